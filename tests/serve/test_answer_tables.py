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

    def ask(self, method: str, *given: Any, **named: Any) -> Any:
        """What a method of the client gives."""
        how = {"protection": self.spec, "ledger": self.ledger, "transport": self.wire}
        with Client("http://127.0.0.1:9", key=self._key, classifier="squares", **how) as client:
            return getattr(client, method)(*given, **named)


@pytest.fixture
def url(sqlite_url: str) -> str:
    return sqlite_url


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
    found = look_up(table, Code(device.spec.partition("=")[2]), queries)
    assert [[each.label for each in row] for row in found] == [[each.label for each in row] for row in asked]
    assert {len(row) for row in found} == {1, 2}  # some are of none of these
    assert device.wire.sent == []
    with Ledger(device.ledger) as ledger:
        assert ledger.summary().releases == charged


async def stays() -> bool:
    return False


async def leaves() -> bool:
    return True


class Direct:
    """A service of codes of 4 bits, whose tables are made without a device."""

    def __init__(self, store: Store, folder: Path, **config: Any) -> None:
        self.store, self.served = store, served_code(folder, bits=4)[1]
        self.service = create(store, [self.served], ServiceConfig(**config)).state.service
        self.key, _ = store.create_key("museum", role="write", name="device")
        made = store.create_classifier("museum", name="direct", model=self.served.name, by=self.key)
        self.id = made.id

    def enrol(self, label: str, vector: np.ndarray) -> None:
        self.store.enrol("museum", self.id, label, [Example(label, vector)], by=self.key)

    def tables(self, *gone: Any) -> list[Any]:
        """The table, or error, of each of those who ask at once."""
        info = self.store.classifier("museum", self.id)

        async def ask() -> list[Any]:
            with self.service.room.share() as take:
                make = self.service.tables.make
                jobs = (make("museum", info, self.served, take, each) for each in gone)
                return await asyncio.gather(*jobs, return_exceptions=True)

        return asyncio.run(ask())


def test_a_table_is_made_once_for_each_version_and_only_while_somebody_waits(store: Store, tmp_path: Path):
    direct = Direct(store, tmp_path)
    direct.enrol("a", np.ones(4, np.float32))
    (left,) = direct.tables(leaves)
    assert isinstance(left, BusyError)
    made = direct.tables(*[stays] * 10)
    assert [isinstance(each, BusyError) for each in made] == [False] * 8 + [True] * 2
    assert all(table is made[0] for table in made[:8])
    direct.enrol("b", np.ones(4, np.float32))
    (newer,) = direct.tables(stays)
    assert newer.header.labels == ("a", "b")


def test_the_memory_that_a_table_takes_counts_for_the_room_of_all_requests(store: Store, tmp_path: Path):
    direct = Direct(store, tmp_path, most_bytes=1000, most_held=1000)
    direct.enrol("a", np.ones(4, np.float32))
    (refused,) = direct.tables(stays)
    assert isinstance(refused, BusyError)
    assert "no room" in str(refused)


def test_every_code_has_the_answer_of_a_query(store: Store, tmp_path: Path):
    """Also where classes tie, as most do of a few bits and of one example each."""
    direct, draw = Direct(store, tmp_path), np.random.default_rng(1)
    for row in range(5):
        direct.enrol(f"class {row}", 2 * draw.integers(0, 2, 4).astype(np.float32) - 1)
    (table,) = direct.tables(stays)
    codes = direct.served.codes
    assert codes is not None
    code = code_of(direct.served.demand.spec)
    queries = codes.unbias(2 * tables.codes_of(4).astype(np.float32) - 1, code)
    refusal = codes.refusal_of(code)
    ask = direct.service.galleries.answer
    answers = ask("museum", direct.id, queries, top=1, refusal=refusal, codes=codes)
    expected = [(answer.guesses[0].label, bool(answer.none_of_these)) for answer in answers]
    assert table.look_up(tables.codes_of(4)) == expected
    assert len({label for label, _ in expected}) > 2


def test_a_table_follows_its_classifier_and_is_signed_by_the_same_key(device: Device, images: torch.Tensor):
    enrolled(device, images)
    first = device.ask("answer_table")
    assert device.ask("answer_table").content == first.content
    device.ask("enrol", "class 4", list(images[59:]))
    newer = device.ask("answer_table")
    assert newer.header.version > first.header.version
    assert newer.header.labels == (*first.header.labels, "class 4")
    assert newer.header.signer == first.header.signer
    with Ledger(device.ledger) as ledger:
        (pin,) = [pin for (_, name), pin in ledger.summary().pins.items() if not name]
        assert pin.spec == newer.header.signer
        ledger.set_pin("http://127.0.0.1:9", "", "0" * 64)
    with pytest.raises(ConfigError, match=r"signed by .*, and were signed by 0{16}\.\.\. before: .*unpin"):
        device.ask("answer_table")


def test_without_a_class_or_for_a_longer_code_there_is_no_table(device: Device, store: Store, tmp_path: Path):
    device.ask("create", "squares", "code")
    with pytest.raises(ServiceError, match="no class: enrol examples first"):
        device.ask("answer_table")
    path, long = served_code(tmp_path / "long", bits=17)
    device = Device(store, long, tmp_path / "long.db", f"code:artefact={path}")
    with pytest.raises(ServiceError, match=r"only codes of at most 16 bits have.*: classify by queries"):
        device.ask("answer_table")


def test_a_code_that_was_never_calibrated_refuses_nothing(store: Store, tmp_path: Path, images: torch.Tensor):
    path, served = served_code(tmp_path, threshold=None)
    device = Device(store, served, tmp_path / "ledger.db", f"code:artefact={path}")
    enrolled(device, images)
    table = device.ask("answer_table")
    assert not table.header.refuses
    assert all(len(row) == 1 for row in look_up(table, Code(str(path)), list(images[40:])))


def test_a_table_is_looked_up_by_its_own_encoder_without_noise(
    device: Device, images: torch.Tensor, tmp_path: Path
):
    enrolled(device, images)
    table = device.ask("answer_table")
    own = device.spec.partition("=")[2]
    with pytest.raises(ConfigError, match="nothing leaves the device, and noise only makes answers worse"):
        look_up(table, Code(own, flip=0.1), images[0])
    other = encoder(tmp_path / "other.safetensors", seed=1, bits=BITS)
    with pytest.raises(ConfigError, match="not the artefact that the table was made for"):
        look_up(table, Code(str(other)), images[0])
