"""Answer tables of a service: the answers of queries, for devices that send none."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cloud import SIDE, Wire, encoder, refusing

from sfumato import artefacts
from sfumato.device.client import Client, ServiceError, look_up
from sfumato.device.ledger import Ledger
from sfumato.errors import BusyError, ConfigError
from sfumato.learn.code_prototypes import Spread
from sfumato.protect.code import Code
from sfumato.serve import models
from sfumato.serve.config import ServiceConfig
from sfumato.serve.http.app import create
from sfumato.serve.served import Served, code_of
from sfumato.serve.store import Example, Store
from sfumato.wire import tables

BITS = 6


def served_code(folder: Path, *, bits: int = BITS, threshold: float | None = 3.0) -> tuple[Path, Served]:
    """A code of an untrained encoder; with a threshold, a refusal of codes without noise."""
    path = encoder(folder / "code.safetensors", bits=bits)
    refusal = None if threshold is None else refusing(threshold).card()
    known = {
        **{"spread": vars(Spread(1 / 3, 2 / 3)), "refusal": refusal},
        **{"no_refusal": "" if refusal else "never measured", "flip": None, "norm": None, "noise": None},
    }
    tensors, card = artefacts.load(path, kind="code")
    artefacts.save(path, tensors, card | {"prototypes": known})
    return path, models.load(path)


class Device:
    """A device and a service in this process. State: the requests that were sent."""

    def __init__(self, store: Store, served: Served, ledger: Path, spec: str) -> None:
        self.wire, self.ledger, self.spec = Wire(create(store, [served])), ledger, spec
        self._key = store.create_key("museum", role="write", name="device")[1]
        with Ledger(ledger) as opened:  # images of a class are near copies
            opened.set_near_copies("ignore")

    @property
    def requests(self) -> list[str]:
        return [f"{each.method} {each.url.path.rpartition('/')[2]}" for each in self.wire.sent]

    def ask(self, method: str, *given: Any, **named: Any) -> Any:
        """What a method of the client gives."""
        with Client(
            "http://127.0.0.1:9",
            key=self._key,
            protection=self.spec,
            ledger=self.ledger,
            classifier="squares",
            transport=self.wire,
        ) as client:
            return getattr(client, method)(*given, **named)


@pytest.fixture
def images() -> torch.Tensor:
    """60 images of a few squares of colour."""
    pixels = np.random.default_rng(0).integers(0, 256, (60, 3, 4, 4), np.uint8)
    return torch.from_numpy(pixels.repeat(SIDE // 4, 2).repeat(SIDE // 4, 3))


@pytest.fixture
def device(store: Store, tmp_path: Path) -> Device:
    path, served = served_code(tmp_path)
    return Device(store, served, tmp_path / "ledger.db", f"code:artefact={path}")


def enrolled(device: Device, images: torch.Tensor) -> None:
    """Four classes, of one example to four."""
    classes = {f"class {row}": list(images[10 * row : 10 * row + 1 + row]) for row in range(4)}
    device.ask("enrol_many", classes)


def test_a_table_answers_as_the_service_does_and_sends_nothing(device: Device, images: torch.Tensor):
    enrolled(device, images)
    table = device.ask("answer_table")
    assert (table.header.name, table.header.bits, table.header.refuses) == ("squares", BITS, True)
    queries = list(images[40:])
    asked = device.ask("classify_many", queries, top=1)
    device.wire.sent.clear()
    with Ledger(device.ledger) as ledger:
        charged = ledger.summary().releases
    found = look_up.look_up(table, Code(device.spec.partition("=")[2]), queries)
    assert [[each.label for each in row] for row in found] == [[each.label for each in row] for row in asked]
    assert {len(row) for row in found} == {1, 2}  # some are of none of these
    assert device.requests == []
    with Ledger(device.ledger) as ledger:
        assert ledger.summary().releases == charged


async def stays() -> bool:
    return False


async def leaves() -> bool:
    return True


def test_a_table_is_made_once_for_each_version_and_only_while_somebody_waits(store: Store, tmp_path: Path):
    _, served = served_code(tmp_path, bits=4)
    service = create(store, [served]).state.service
    key, _ = store.create_key("museum", role="write", name="device")
    made = store.create_classifier("museum", name="once", model=served.name, by=key)

    def enrol(label: str) -> Any:
        store.enrol("museum", made.id, label, [Example("1", np.ones(4, np.float32))], by=key)
        return store.classifier("museum", made.id)

    async def ask(info: Any, *gone: Any) -> list[Any]:
        with service.room.share() as take:
            jobs = (service.tables.make("museum", info, served, take, each) for each in gone)
            return await asyncio.gather(*jobs, return_exceptions=True)

    info = enrol("a")
    (left,) = asyncio.run(ask(info, leaves))
    assert isinstance(left, BusyError)
    tables_made = asyncio.run(ask(info, *[stays] * 10))
    assert [isinstance(each, BusyError) for each in tables_made] == [False] * 8 + [True] * 2
    assert all(table is tables_made[0] for table in tables_made[:8])
    (newer,) = asyncio.run(ask(enrol("b"), stays))
    assert newer.header.labels == ("a", "b")


def test_the_memory_that_a_table_takes_counts_for_the_room_of_all_requests(store: Store, tmp_path: Path):
    _, served = served_code(tmp_path, bits=4)
    service = create(store, [served], ServiceConfig(most_bytes=1000, most_held=1000)).state.service
    key, _ = store.create_key("museum", role="write", name="device")
    made = store.create_classifier("museum", name="large", model=served.name, by=key)
    store.enrol("museum", made.id, "a", [Example("1", np.ones(4, np.float32))], by=key)
    info = store.classifier("museum", made.id)
    with service.room.share() as take, pytest.raises(BusyError, match="no room"):
        asyncio.run(service.tables.make("museum", info, served, take, stays))


def test_every_code_has_the_answer_of_a_query(store: Store, tmp_path: Path):
    """Also where classes tie, as most do of a few bits and of one example each."""
    _, served = served_code(tmp_path, bits=4)
    app, draw = create(store, [served]), np.random.default_rng(1)
    key, _ = store.create_key("museum", role="write", name="device")
    made = store.create_classifier("museum", name="ties", model=served.name, by=key)
    for row in range(5):
        (vector,) = 2 * draw.integers(0, 2, (1, 4)).astype(np.float32) - 1
        store.enrol("museum", made.id, f"class {row}", [Example(str(row), vector)], by=key)
    info = store.classifier("museum", made.id)
    service = app.state.service
    with service.room.share() as take:
        table = asyncio.run(service.tables.make("museum", info, served, take, stays))
    assert served.codes is not None
    code = code_of(served.demands[0].spec)
    queries = 2 * tables.codes_of(4).astype(np.float32) - 1
    answers = app.state.service.tables._galleries.answer(
        *("museum", made.id, served.codes.embed(queries, code)),
        top=1,
        refusal=served.codes.refusal_of(code),
        codes=served.codes,
    )
    expected = [(answer.guesses[0].label, bool(answer.none_of_these)) for answer in answers]
    assert table.look_up(tables.codes_of(4)) == expected
    assert len({label for label, _ in expected}) > 2


def test_a_table_that_is_known_is_sent_again_only_when_the_classifier_changed(
    device: Device, images: torch.Tensor
):
    enrolled(device, images)
    first = device.ask("answer_table")
    assert device.ask("answer_table", known=first) is first
    device.ask("enrol", "class 4", list(images[59:]))
    newer = device.ask("answer_table", known=first)
    assert newer.header.version > first.header.version
    assert newer.header.labels == (*first.header.labels, "class 4")
    assert newer.header.signer == first.header.signer


def test_a_service_whose_key_changed_is_refused(device: Device, images: torch.Tensor, tmp_path: Path):
    enrolled(device, images)
    device.ask("answer_table")
    with Ledger(device.ledger) as ledger:
        (pin,) = [pin for (_, name), pin in ledger.summary().pins.items() if not name]
        assert len(pin.spec) == 64
        ledger.set_pin("http://127.0.0.1:9", "", "0" * 64)
    with pytest.raises(
        ConfigError, match=r"signed by .*, and were signed by 0000000000000000\.\.\. before: .*unpin"
    ):
        device.ask("answer_table")


def test_without_a_class_there_is_no_table(device: Device):
    device.ask("create", "squares", "code")
    with pytest.raises(ServiceError, match="no class: enrol examples first"):
        device.ask("answer_table")


def test_longer_codes_have_no_table(store: Store, tmp_path: Path, images: torch.Tensor):
    path, long = served_code(tmp_path, bits=17)
    device = Device(store, long, tmp_path / "ledger.db", f"code:artefact={path}")
    enrolled(device, images)
    with pytest.raises(ServiceError, match="has no table, which only codes of at most 16 bits have"):
        device.ask("answer_table")


def test_a_code_that_was_never_calibrated_refuses_nothing(store: Store, tmp_path: Path, images: torch.Tensor):
    path, served = served_code(tmp_path, threshold=None)
    device = Device(store, served, tmp_path / "ledger.db", f"code:artefact={path}")
    enrolled(device, images)
    table = device.ask("answer_table")
    assert not table.header.refuses
    assert all(len(row) == 1 for row in look_up.look_up(table, Code(str(path)), list(images[40:])))


def test_a_table_is_looked_up_by_its_own_encoder_without_noise(
    device: Device, images: torch.Tensor, tmp_path: Path
):
    enrolled(device, images)
    table = device.ask("answer_table")
    own = device.spec.partition("=")[2]
    with pytest.raises(ConfigError, match="nothing leaves the device, and noise only makes answers worse"):
        look_up.look_up(table, Code(own, flip=0.1), images[0])
    other = encoder(tmp_path / "other.safetensors", seed=1, bits=BITS)
    with pytest.raises(ConfigError, match="not the artefact that the table was made for"):
        look_up.look_up(table, Code(str(other)), images[0])


def test_codes_of_more_than_16_bits_have_no_table(store: Store, tmp_path: Path):
    path, long = served_code(tmp_path, bits=20)
    device = Device(store, long, tmp_path / "ledger.db", f"code:artefact={path}")
    device.ask("create", "squares", "code")
    with pytest.raises(ServiceError, match=r"only codes of at most 16 bits have.*: classify by queries"):
        device.ask("answer_table")
