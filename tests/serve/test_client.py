"""The client: what leaves a device, what never does, and what becomes of every answer."""

import contextlib
import json
import logging
import re
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from cloud import SIDE, Wire, described, encoder, photograph, refusing, running, untrained
from devices import write_feature
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image
from sqlalchemy import select

from sfumato import images, wire
from sfumato.device.client import Client, Guess, ServiceError, client, connection, demands, outgoing
from sfumato.device.ledger import Ledger
from sfumato.device.ledger.budgets import Budget
from sfumato.errors import ArtefactError, BudgetExceededError, ConfigError, ImageError, SpecError
from sfumato.learn.code_prototypes import CodePrototypes
from sfumato.protect import parse
from sfumato.protect.code import Code
from sfumato.protect.release import Release
from sfumato.protect.spec import portable
from sfumato.serve import models
from sfumato.serve.http.app import create
from sfumato.serve.served import Served, code_of
from sfumato.serve.store import Store, schema
from sfumato.wire import labelled

SPEC = "dp-pix:cell=4,epsilon=3"
KEY = "sfumato_not-a-real-secret"
HERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> list[Served]:
    folder = tmp_path_factory.mktemp("models")
    # Squared distances of an untrained encoder: of the same release 0, of others far above.
    refusal = refusing(1e-6).card()
    return [untrained(folder, "noisy", SPEC, refusal=refusal), untrained(folder, "clear", "none")]


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Store]:
    with Store(sqlite_url) as opened:
        opened.create_tenant("museum")
        yield opened


class Cloud:
    """A service and a device."""

    def __init__(self, store: Store, served: list[Served], folder: Path) -> None:
        self.app = create(store, served)
        self.store, self.served = store, served
        self.wire = Wire(self.app)
        self.key = store.create_key("museum", role="admin", name="device")[1]
        self.ledger = folder / "ledger.db"
        self.folder = folder

    def client(self, protection: Any = SPEC, **more: Any) -> Client:
        return Client(
            HERE, key=self.key, protection=protection, ledger=self.ledger, transport=self.wire, **more
        )

    def photos(self, *numbers: int) -> list[Path]:
        return [photograph(self.folder / "photos" / f"{number}.png", number) for number in numbers]


@pytest.fixture
def cloud(store: Store, served: list[Served], tmp_path: Path) -> Iterator[Cloud]:
    made = Cloud(store, served, tmp_path)
    yield made
    made.app.state.service.engine.close()


Answer = Callable[[httpx.Request], httpx.Response]


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that the client wanted to wait, none of which it does."""
    found: list[float] = []
    monkeypatch.setattr(connection.time, "sleep", found.append)
    return found


def asking(tmp_path: Path, answer: Answer, **more: Any) -> Client:
    """A client of a service that answers so."""
    how = {"protection": SPEC, "key": KEY, "ledger": tmp_path / "ledger.db"} | more
    return Client(HERE, transport=httpx.MockTransport(answer), **how)


def problem(status: int, detail: str, **headers: str) -> httpx.Response:
    body = {"type": "about:blank", "title": "-", "status": status, "detail": detail}
    return httpx.Response(status, json=body, headers=headers)


def test_images_of_no_class_come_back_without_a_label_and_answers_too_few_are_refused(cloud: Cloud):
    anna, other = cloud.photos(0, 5)
    device = cloud.client()
    device.enrol("anna", [anna])
    (none, nearest), (known,) = device.classify_many([other, anna])
    assert none == Guess(None, None, None)
    assert (nearest.label, known.label, known.probability) == ("anna", "anna", pytest.approx(1))
    assert known.distance == pytest.approx(0, abs=1e-6)
    cloud.wire.handle_request = lambda request: httpx.Response(200, json={"images": []})
    with pytest.raises(ServiceError, match="0 answers for 1 images"):
        device.classify(anna)


def test_a_classifier_that_another_device_begins_or_forgets_meanwhile_is_used_or_begun_anew(
    cloud: Cloud, tmp_path: Path
):
    other, photos = cloud.client(), cloud.photos(0)
    answered = cloud.wire.handle_request

    def first(request: httpx.Request) -> httpx.Response:
        if request.method == "POST" and request.url.path == "/v1/classifiers" and not other.classifiers():
            other.create("default", "noisy")
        return answered(request)

    device = asking(tmp_path, first, key=cloud.key)
    assert device.enrol("anna", photos).new == 1
    assert len(other.classifiers()) == 1
    other.forget_classifier("default")
    with pytest.raises(ServiceError) as caught:
        device.enrol("anna", photos)
    assert caught.value.status == 404
    assert device.enrol("anna", photos).new == 1


def test_any_label_arrives_as_it_is(cloud: Cloud):
    device, given = cloud.client(), ["...", "100%", "%2e", "a b?c#d", "Ünï&cödé", "+", "日本"]
    device.enrol_many({label: cloud.photos(number) for number, label in enumerate(given)})
    assert {each.label for each in device.classes()} == set(given)
    assert [device.forget(label) for label in given] == [1] * len(given)


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        *((label, "1 to 200 characters") for label in ("", "a/b", "a\nb", "x" * 201, ".", "..")),
        *((" anna", "a space"), ("anna\u202e", "U\\+202E"), ("a\ud800", "half")),
    ],
)
def test_what_is_no_label_is_refused_before_anything_is_charged(cloud: Cloud, label: str, reason: str):
    with pytest.raises(ConfigError, match=f"is not a label: .*{reason}"):
        cloud.client().enrol(label, cloud.photos(0))
    assert not cloud.ledger.exists()


def test_one_name_in_two_spellings_is_one_class_and_one_person(cloud: Cloud):
    device = cloud.client()
    with Ledger(cloud.ledger) as ledger:
        ledger.set_budget(Budget.parse("releases=1"), person="zoe\u0308")
    device.enrol("zo\u00eb", cloud.photos(0), people=True)
    with pytest.raises(BudgetExceededError, match="the person zo\u00eb"):
        device.enrol("zoe\u0308", cloud.photos(1), people=True)


def test_images_of_many_classes_are_sent_together_and_charged_and_enrolled_as_each_alone(
    cloud: Cloud, tmp_path: Path
):
    photos = cloud.photos(*range(35))
    device = cloud.client()
    given = {"anna": photos[:1], "ben": photos[1:34], "carl": photos[34]}
    found = device.enrol_many(given)
    assert {label: (each.new, each.known) for label, each in found.items()} == {
        **{"anna": (1, 0), "ben": (33, 0), "carl": (1, 0)}
    }
    sent = [each for each in cloud.wire.sent if each.url.path.endswith("/examples")]
    parts = [labelled.split(each.content) for each in sent]
    assert [[each.label for each in said] for said, _ in parts] == [
        ["anna"] + ["ben"] * 31,
        ["ben"] * 2 + ["carl"],
    ]
    assert [wire.header(release).count for _, release in parts] == [32, 3]
    with Ledger(cloud.ledger) as ledger:
        charged = ledger.summary()
    for label, each in given.items():  # the same releases, which are known and charged
        assert device.enrol(label, each).new == 0
    assert {label: each.new for label, each in device.enrol_many(given).items()} == dict.fromkeys(given, 0)
    with Ledger(cloud.ledger) as ledger:
        assert ledger.summary() == charged
    assert sorted(found["ben"].examples) == sorted(device.enrol("ben", photos[1:34]).examples)
    assert device.classify(photos[0])[0].label == "anna"


def test_of_many_classes_an_image_that_may_not_leave_stops_its_part_or_is_reported(
    cloud: Cloud, tmp_path: Path
):
    damaged = tmp_path / "damaged.png"
    damaged.write_bytes(b"\x89PNG\r\n\x1a\n")
    anna, ben, other = cloud.photos(0, 1, 2)
    with Ledger(cloud.ledger) as ledger:
        ledger.set_budget(Budget.parse("epsilon=4"), person="ben")
    given = {"e\u0301": [damaged, anna], "\u00e9": [], "ben": [ben, other], "carl": damaged}
    for error, part in ((ImageError, given), (BudgetExceededError, {"e\u0301": [anna], "ben": given["ben"]})):
        with pytest.raises(error, match=r"damaged.png|ben"):
            cloud.client().enrol_many(part, people=True)
    assert cloud.wire.bodies() == []
    seen: list[Any] = []
    found = cloud.client().enrol_many(given, people=True, failed=lambda source, _: seen.append(source))
    assert seen == [damaged, damaged, other]
    counted = {label: (each.new, each.failed) for label, each in found.items()}
    assert counted == {"\u00e9": (1, 1), "ben": (1, 1), "carl": (0, 1)}
    assert cloud.client().classify(anna)[0].label == "\u00e9"


def test_every_byte_that_is_sent_is_the_release_or_says_where_it_goes(cloud: Cloud):
    photos = cloud.photos(0, 1)
    device = cloud.client()
    device.enrol("anna", photos)
    device.classify(photos[0])
    with Ledger(cloud.ledger) as ledger:
        clean = [images.read(path, size=SIDE) for path in photos]
        digests = [images.digest(each) for each in clean]
        kept = ledger.find_releases(digests, SPEC)
    values = torch.stack(
        [torch.frombuffer(bytearray(kept[each]), dtype=torch.uint8).view(3, 4, 4) for each in digests]
    )
    both = Release(values, SPEC, (SIDE, SIDE), 4)
    assert cloud.wire.bodies() == [wire.encode(both), wire.encode(both.rows([0]))]
    (name,) = [each.id for each in device.classifiers()]
    assert [(each.method, each.url.raw_path.decode()) for each in cloud.wire.sent[:-1]] == [
        ("GET", "/v1/classifiers/default"),
        ("GET", "/v1/models"),
        ("POST", "/v1/classifiers"),
        ("POST", f"/v1/classifiers/{name}/examples"),
        ("GET", "/v1/classifiers/default"),
        ("POST", f"/v1/classifiers/{name}/classify?top=5"),
    ]
    assert json.loads(cloud.wire.sent[2].content) == {"name": "default", "model": "noisy"}
    ids = [each.id for each in labelled.split(cloud.wire.sent[3].content)[0]]
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in ids)
    enrolled = labelled.join([("anna", each) for each in ids], wire.encode(both))
    for request in cloud.wire.sent:
        assert set(request.headers) <= {
            *("host", "accept", "accept-encoding", "connection", "user-agent", "x-api-key"),
            *("content-type", "content-length"),
        }
        assert request.content in (enrolled, cloud.wire.bodies()[1], cloud.wire.sent[2].content, b"")


@contextlib.contextmanager
def bare_service(replies: dict[bytes, Any]) -> Iterator[tuple[str, bytearray]]:
    """Bare sockets: whatever a program may send arrives here as it is. The address, and what was received."""
    received = bytearray()

    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            for _ in replies:
                part = b""
                while b"\r\n\r\n" not in part:
                    part += connection.recv(65536)
                head, _, rest = part.partition(b"\r\n\r\n")
                length = [int(line[15:]) for line in head.split(b"\r\n") if line[:15] == b"Content-Length:"]
                while length and len(rest) < length[0]:
                    rest += connection.recv(65536)
                received.extend(head + b"\r\n\r\n" + rest)
                body = json.dumps(replies[head.partition(b" HTTP")[0]]).encode()
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", received
        thread.join()


def test_no_byte_of_a_clean_image_goes_through_the_socket(tmp_path: Path):
    secret = b"N 47.3769 E 8.5417"
    pattern = np.frombuffer(b"Zyzzyva quorum, vexed by fjords!", np.uint8)
    pixels = np.tile(pattern, (SIDE, 2))[:, : SIDE * 3].reshape(SIDE, SIDE, 3)
    exif = Image.Exif()
    exif[0x010E] = secret.decode()  # ImageDescription
    path = tmp_path / "photo of anna.png"
    Image.fromarray(pixels).save(path, exif=exif, comment=secret)
    clean = images.read(path, size=SIDE)
    assert secret in path.read_bytes()
    assert pattern.tobytes()[:24] in pixels.tobytes()

    made = {"id": "1", "name": "default", "created": "2026-01-01T00:00:00Z", "version": 0, "classes": 0}
    known = {"label": "a", "new": 1, "known": 0, "total": 1, "examples": ["e"]}
    replies = {
        b"GET /v1/classifiers/default": made | {"model": described(SPEC)},
        b"POST /v1/classifiers/1/examples": {"classes": [known]},
    }
    how = {"key": KEY, "protection": SPEC, "ledger": tmp_path / "ledger.db", "retries": 0, "timeout": 5}
    with bare_service(replies) as (url, received), Client(url, **how) as device:
        device.enrol("a", [path])
    start = received.index(b"SFMT")
    found = wire.decode(bytes(received[start:]), most_images=1, most_pixels=SIDE**2)
    assert isinstance(found, Release)
    assert found.values.shape == (1, 3, 4, 4)  # not one pixel of the original's 16x16
    assert received.count(b"SFMT") == 1
    for planted in (secret, b"photo of anna", bytes(str(tmp_path), "utf8"), b"IHDR", b"Exif"):
        assert planted not in received
    rows = [clean.numpy().tobytes(), np.ascontiguousarray(clean.numpy().transpose(1, 2, 0)).tobytes()]
    for whole in rows:
        for at in range(0, len(whole) - 6):
            assert whole[at : at + 6] not in received


def test_one_image_by_path_tensor_or_array_is_one_release_charged_once(cloud: Cloud, tmp_path: Path):
    upright = np.random.default_rng(0).integers(0, 256, (24, 40, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6  # turn a quarter to the right
    path = tmp_path / "turned.png"
    Image.fromarray(np.rot90(upright, 1)).save(path, exif=exif)
    tensor = torch.from_numpy(upright.transpose(2, 0, 1).copy())
    with cloud.client() as device:
        first = device.enrol("anna", [path, str(path), tensor.numpy(), tensor])
    with cloud.client() as device:
        again = device.enrol("anna", [path])
    assert (first.new, first.known, first.total) == (1, 3, 1)
    assert (again.new, again.known, again.examples) == (0, 1, first.examples[:1])
    one, other = (wire.decode(body, most_images=4, most_pixels=10**6) for body in cloud.wire.bodies())
    assert all(torch.equal(each, other.values[0]) for each in one.values)


def test_a_picture_is_fitted_without_new_loss_or_cuts_or_is_no_image(tmp_path: Path):
    lossy, cut = tmp_path / "photo.tif", photograph(tmp_path / "cut.png", 0)
    pixels = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(lossy, compression="jpeg")
    _, fitted = outgoing.fit(lossy, (3, SIDE, SIDE))
    assert np.array_equal(fitted, images.read(lossy, size=SIDE).numpy())
    wide = torch.zeros(3, 8, 12, dtype=torch.uint8)
    assert outgoing.fit(wide, (3, 8, 12))[1].shape == (3, 8, 12)
    with pytest.raises(ImageError, match="an image of 8x12 pixels, and the model's are 10x12: resize it"):
        outgoing.fit(wide, (3, 10, 12))  # only squares are cut
    cut.write_bytes(cut.read_bytes()[:-60])
    with pytest.raises(ImageError, match=r"cut\.png"):
        outgoing.fit(cut, (3, SIDE, SIDE))


def test_another_protection_than_the_demanded_one_and_clear_images_are_not_sent_unasked(cloud: Cloud):
    device, (photo,) = cloud.client(protection=None), cloud.photos(0)
    for name in ("noisy", "clear"):
        device.create(name, name)
    with pytest.raises(ConfigError, match="takes releases of dp-pix:cell=4,epsilon=3, and not of pixelize"):
        cloud.client("pixelize:cell=4").enrol("anna", photo, classifier="noisy")
    with Ledger(cloud.ledger) as ledger:
        assert ledger.summary().releases == 0
    assert cloud.client("none").enrol("anna", photo, classifier="clear").new == 1
    for accept in (None, lambda demanded: True):  # though they were asked for once
        with pytest.raises(ConfigError, match="takes clear images: to send them unprotected, ask for"):
            cloud.client(None, accept=accept).enrol("anna", cloud.photos(1), classifier="clear")
    assert len(cloud.wire.bodies()) == 1


def named(spec: str, made: str | None) -> Any:
    return client.ModelInfo.model_validate(described(spec, shape=(3, 8, 8), made_of=made))


def test_of_a_protection_that_names_an_artefact_the_device_has_its_own_copy(tmp_path: Path):
    model = named("mask:artefact=m.safetensors", "a" * 64)
    for spec in ("mask:artefact=m.safetensors", " feature:artefact=m,noise=0", "blur:radius=2@box:file=b"):
        with pytest.raises(
            ConfigError, match=r"cannot choose a file here: name your own copy of that (artefact|file)"
        ):
            demands.demand(named(spec, None))
    path = tmp_path / "m.safetensors"
    path.write_bytes(b"another")
    with pytest.raises(ConfigError, match=r"not the artefact that m was made for: .* begins with aaaa"):
        demands.check_takes(model, parse(f"mask:artefact={path}"))
    own = parse(f"mask:artefact={path}")
    for made in (own.digest(), None):
        demands.check_takes(named("mask:artefact=m.safetensors", made), own)


@pytest.fixture
def codes(store: Store, tmp_path: Path) -> Iterator[Cloud]:
    """A service for the codes of an artefact, which lies on the device under another name."""
    encoder(tmp_path / "device" / "own.safetensors", bits=12)
    made = Cloud(store, [models.load(encoder(tmp_path / "hats.safetensors", bits=12))], tmp_path)
    yield made
    made.app.state.service.engine.close()


def own(codes: Cloud, noise: str = "") -> str:
    return f"code:artefact={codes.folder}/device/own.safetensors{noise}"


def test_the_service_cannot_tell_whether_two_classes_classifiers_or_services_have_one_image(
    cloud: Cloud, tmp_path: Path
):
    (photo,) = cloud.photos(0)
    device = cloud.client()
    device.create("vases", "noisy")
    places = [("anna", "default"), ("ben", "default"), ("anna", "vases"), ("anna", "default")]
    for label, classifier in places:
        device.enrol(label, photo, classifier=classifier)
    sent = [each for each in cloud.wire.sent if each.headers.get("content-type") == labelled.MEDIA_TYPE]
    ids = [labelled.split(each.content)[0][0].id for each in sent]
    assert len({*ids}) == 3
    assert ids[3] == ids[0]
    assert len({outgoing.example_id(b"1", url, "c", "anna") for url in (HERE, f"{HERE}/again")}) == 2
    assert images.digest(images.read(photo, size=SIDE)).hex()[:32] not in ids


def test_of_things_all_images_are_enrolled_and_of_a_person_as_many_as_the_budget_has(codes: Cloud):
    failures: list[str] = []
    things = codes.client(own(codes)).enrol("mugs", codes.photos(*range(40)))
    assert (things.new, things.total) == (40, 40)
    people = {"people": True, "failed": lambda _, error: failures.append(str(error))}
    with codes.client(own(codes, ",flip=0.1")) as device:
        person = device.enrol("anna", codes.photos(*range(40, 80)), **people)
    assert (person.new, person.failed, person.total, len(failures)) == (30, 10, 30, 10)
    assert "30 different releases" in failures[0]


def test_a_question_that_the_service_would_refuse_is_not_charged(cloud: Cloud):
    (photo,) = cloud.photos(0)
    cloud.client().create("empty", "noisy")
    cases = [
        (cloud.client(), {"classifier": "nothing"}, "no classifier is called 'nothing'"),
        (cloud.client(), {"classifier": "empty"}, "empty has no class: enrol an example first"),
        (cloud.client(), {"classifier": "empty", "top": 101}, "top=101: from 1 to 100 classes"),
        (cloud.client("pixelize:cell=8"), {"classifier": "empty"}, "empty has no class"),
    ]
    for device, more, message in cases:
        with pytest.raises(ConfigError, match=message):
            device.classify(photo, **more)
    cloud.key = "wrong"
    with pytest.raises(ServiceError, match="401"):
        cloud.client().classify(photo)
    assert not cloud.ledger.exists()


def test_a_key_that_may_only_ask_enrols_nothing_and_nothing_is_charged(cloud: Cloud):
    cloud.client().create("hats", "noisy")
    cloud.key = cloud.store.create_key("museum", role="read", name="gate")[1]
    with pytest.raises(ServiceError, match="403: your key may only ask, and enrolling in hats needs one of"):
        cloud.client(classifier="hats").enrol("anna", cloud.photos(0))
    with pytest.raises(ServiceError, match="403: this needs a key of the role write, and yours has read"):
        cloud.client(classifier="new").enrol("anna", cloud.photos(0))
    assert cloud.wire.bodies() == []
    with Ledger(cloud.ledger) as ledger:
        assert ledger.summary().releases == 0


def distance_of_the_same(code: Code, bits: int) -> float:
    """The squared distance of a noisy code from the prototype that is of itself alone."""
    made, one = CodePrototypes(bits, bits), np.ones(1)
    unbiased = made.unbias(np.ones((1, bits)), code)
    others = -unbiased  # a prototype of another class
    (prototype, _), _ = made.posterior(
        np.concatenate([unbiased, others]), one.repeat(2) * made.weight(code), one.repeat(2)
    )
    return float(np.square(unbiased - prototype).sum())


@pytest.fixture
def features(store: Store, tmp_path: Path) -> Iterator[Cloud]:
    """A service for the features of two artefacts, of which the device has the second under another name."""
    paths = [
        write_feature(tmp_path / f"{name}.safetensors", shape=(3, SIDE, SIDE), dimension=dimension)
        for name, dimension in (("a", 4), ("b", 5))
    ]
    made = Cloud(store, [models.load(path) for path in paths], tmp_path)
    paths[1].rename(tmp_path / "own.safetensors")
    yield made
    made.app.state.service.engine.close()


@pytest.mark.parametrize(
    ("kind", "noise", "size"),  # size: bytes of one release
    [("feature", ",noise=0.5", 20), ("bits", "", 2), ("bits", ",flip=0.1", 2), ("bits", ",epsilon=8", 2)],
)
def test_features_and_codes_are_enrolled_classified_and_forgotten_and_only_they_leave(
    request: pytest.FixtureRequest, kind: str, noise: str, size: int
):
    cloud = request.getfixturevalue({"bits": "codes", "feature": "features"}[kind])
    feature = f"feature:artefact={cloud.folder}/own.safetensors{noise}"
    spec = feature if kind == "feature" else own(cloud, noise)
    device, (anna, ben) = cloud.client(spec), cloud.photos(0, 1)
    found = device.enrol_many({"anna": anna, "ben": ben})
    assert [each.new for each in found.values()] == [1, 1]
    assert [each.model for each in device.classifiers()] == ["b" if kind == "feature" else "hats"]
    first, second = device.classify(anna)
    assert (first.label, second.label) == ("anna", "ben")
    # Noise is drawn once.
    distance = 0.0 if kind == "feature" else distance_of_the_same(code_of(spec), 12)
    assert first.distance == pytest.approx(distance, rel=1e-5)
    for sent, count in zip(cloud.wire.bodies(), (2, 1), strict=True):
        head, protection = wire.header(sent), parse(spec, takes=["numbers", "bits"])
        assert (head.kind, head.count) == (kind, count)
        assert (head.spec, head.made_of) == (portable(spec), protection.digest())
        assert sent.endswith(b"".join(wire.decode(sent, most_images=2, most_pixels=24).pack()))
        assert len(sent) == 9 + int.from_bytes(sent[5:9], "little") + count * size
    assert device.forget("anna") == 1
    assert [guess.label for guess in device.classify(anna)] == ["ben"]
    assert device.forget_example(*found["ben"].examples) == 1
    assert device.classes() == []
    assert device.forget_classifier("default") == 0


@pytest.mark.parametrize("noise", ["", ",flip=0.1"])
def test_a_thief_of_the_store_has_the_bits_that_travelled_and_nothing_else_of_an_image(
    codes: Cloud, noise: str
):
    """So whatever is computed of it names no more people than is proved of the releases."""
    device = codes.client(own(codes, noise))
    for label, photos in (("anna", codes.photos(0, 1, 2)), ("ben", codes.photos(3, 4))):
        device.enrol(label, photos)
    travelled = [wire.decode(body, most_images=3, most_pixels=36).values for body in codes.wire.bodies()]
    with codes.store._engine.connect() as connection:
        rows = connection.execute(select(schema.examples.c.embedding)).scalars().all()
        means = connection.execute(
            select(schema.classes.c.sum, schema.classes.c.weight).order_by(schema.classes.c.label)
        ).all()
    stolen = torch.from_numpy(np.stack([np.frombuffer(row, "<f4") for row in rows]))
    assert sorted((stolen > 0).tolist()) == sorted(torch.cat(travelled).tolist())
    (size,) = stolen.abs().unique().tolist()  # signs, and one size for all
    for bits, (total, weight) in zip(travelled, means, strict=True):
        expected = (2 * bits.double() - 1).mean(0) * size
        assert np.frombuffer(total, "<f8") / weight == pytest.approx(expected.numpy())


def test_codes_of_another_artefact_or_of_none_are_refused_before_anything_is_charged(codes: Cloud):
    other = encoder(codes.folder / "other" / "hats.safetensors", bits=12, seed=1)
    with pytest.raises(ConfigError, match=r"not the artefact that hats was made for"):
        codes.client(f"code:artefact={other}").enrol("anna", codes.photos(0))
    with pytest.raises(ConfigError, match="name your own copy of that artefact"):
        codes.client(None).enrol("anna", codes.photos(0))
    with pytest.raises(ConfigError, match=r"0 models take releases of dp-pix"):
        codes.client(SPEC).enrol("anna", codes.photos(0))
    with pytest.raises(ArtefactError, match="no such file"):
        codes.client("code:artefact=missing.safetensors")
    assert not codes.ledger.exists()
    assert codes.wire.bodies() == []


def scripted(tmp_path: Path, *answers: Any, **more: Any) -> tuple[Client, list[str]]:
    """A client of a service that gives these answers or errors, the last for ever; how it was asked."""
    left, asked = list(answers), list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return found

    return asking(tmp_path, answer, **more), asked


def test_what_is_busy_or_lost_is_asked_again(tmp_path: Path, naps: list[float]):
    busy = problem(503, "512 images wait already", **{"retry-after": "3"})
    lost, bad = httpx.ReadTimeout("timed out"), problem(502, "bad gateway")
    device, asked = scripted(tmp_path, busy, lost, bad, httpx.Response(200, json=[]))
    assert (device.models(), len(asked)) == ([], 4)
    assert 3 <= naps[0] <= 3.25
    assert naps[1] <= 0.5
    assert naps[2] <= 1


def test_pauses_are_drawn_and_grow(tmp_path: Path, naps: list[float]):
    device, _ = scripted(tmp_path, problem(503, "busy"), retries=6)
    for _ in range(20):
        with pytest.raises(ServiceError, match="503: busy") as caught:
            device.models()
        assert caught.value.status == 503
    rounds = np.array(naps).reshape(20, 6)
    assert (rounds <= 0.25 * 2 ** np.arange(6)).all()
    assert (rounds.max(0) > 0.125 * 2 ** np.arange(6)).all()  # all 20 below half: once in 10^6, for each
    assert len(set(naps)) == len(naps)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 413, 415, 422, 500])
def test_what_the_service_refuses_is_not_asked_again(tmp_path: Path, naps: list[float], status: int):
    device, asked = scripted(tmp_path, problem(status, "do this", **{"retry-after": "1"}))
    with pytest.raises(ServiceError, match=f"{status}: do this") as caught:
        device.models()
    assert (caught.value.status, len(asked), naps) == (status, 1, [])


INFO = {"id": "1", "name": "default", "model": "m", "created": "2026-01-01T00:00:00Z"}
INFO |= {"version": 0, "classes": 1}


def test_a_key_that_used_its_requests_asks_again_after_the_time_that_the_service_names(
    tmp_path: Path, naps: list[float]
):
    """Also what is not repeated otherwise: nothing was done."""
    used = problem(429, "more requests than the 60 a minute of this key", **{"retry-after": "20"})
    device, asked = scripted(tmp_path, used, used, httpx.Response(201, json=INFO))
    device.create("a", "m")
    assert asked == ["POST"] * 3
    assert [20 <= nap < 21 for nap in naps] == [True, True]
    with pytest.raises(ServiceError, match="429: more requests"):
        scripted(tmp_path, used, retries=1)[0].create("a", "m")


def test_what_would_change_something_twice_is_not_sent_again(tmp_path: Path, naps: list[float]):
    gone = httpx.ReadError("gone")
    device, asked = scripted(tmp_path, gone, httpx.Response(200, json=[INFO]), gone)
    for change in (lambda: device.create("a", "m"), lambda: device.forget("a")):
        with pytest.raises(ServiceError, match=r"no answer .ReadError: gone.: check the address"):
            change()
    assert (asked, naps) == (["POST", "GET", "DELETE"], [])


def test_retry_after_is_a_number_of_seconds_and_anything_else_counts_for_nothing(
    tmp_path: Path, naps: list[float]
):
    late = problem(503, "closed", **{"retry-after": "3600"})
    with pytest.raises(ServiceError, match="try again in 3600 s; a client waits 60 s at most") as caught:
        asking(tmp_path, lambda request: late).models()
    assert (caught.value.wait, naps) == (3600, [])
    for value, low, high in (
        ("30", 30, 30.25),
        ("soon", 0, 0.25),
        ("Sun, 31 Dec 2000 00:00:00 GMT", 0, 0.25),
    ):
        naps.clear()
        busy = problem(503, "busy", **{"retry-after": value})
        with pytest.raises(ServiceError):
            asking(tmp_path, lambda request, busy=busy: busy, retries=1).models()
        assert low <= naps[0] <= high


@given(value=st.text(st.characters(codec="latin-1", exclude_categories=["Cc"]), max_size=60))
@example("Mon, 01 Jan 2001 00:00:00 +99999999")
@example("Mon, 01 Jan 0001 00:00:00 +2359")
def test_no_retry_after_is_a_traceback(value: str):
    headers = {"retry-after": value}
    error = connection._refusal(HERE, 503, headers, b"")
    assert str(error).startswith(f"{HERE}: 503: ")
    assert error.wait is None or error.wait >= 0


@pytest.mark.parametrize("coding", ["gzip", "gzip, gzip", "GZIP", "br", "identity, gzip", "own"])
def test_a_packed_answer_is_refused_before_a_byte_of_it_is_read(tmp_path: Path, coding: str):
    read, headers = [], []

    def body() -> Iterator[bytes]:
        read.append(True)
        yield b"\x1f\x8b"

    def answer(request: httpx.Request) -> httpx.Response:
        headers.append(request.headers.get_list("accept-encoding"))
        return httpx.Response(200, headers={"content-encoding": coding}, content=body())

    with pytest.raises(ServiceError, match="a packed answer to a request for a plain one"):
        asking(tmp_path, answer, retries=0).models()
    assert (read, headers) == ([], [["identity"]])


@pytest.mark.parametrize("headers", [False, True])
def test_an_answer_has_one_deadline_however_often_a_byte_comes(tmp_path: Path, headers: bool):
    closed = threading.Event()

    def drip() -> Iterator[bytes]:
        while not closed.wait(0.01):
            yield b" "

    def answer(request: httpx.Request) -> httpx.Response:
        if headers:  # which do not come at all
            closed.wait(5)
        return httpx.Response(200, content=drip())

    started = time.monotonic()
    with pytest.raises(ServiceError, match="the answer came too slowly"):
        asking(tmp_path, answer, retries=0, timeout=0.05).models()
    assert time.monotonic() - started < 4
    closed.set()


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (httpx.Response(404, text="<html>"), "404: not the answer of a sfumato service"),
        (httpx.Response(404, json=["x"]), "404: not the answer of a sfumato service"),
        (httpx.Response(200, text="<html>"), "the answer is not a list"),
        (httpx.Response(301, headers={"location": "https://elsewhere.example"}), "301: it redirects"),
        (problem(422, "a\x1b[2Jb"), r"422: a\\x1b\[2Jb"),
    ],
)
def test_answers_of_something_else_are_told_apart(tmp_path: Path, reply: httpx.Response, message: str):
    with pytest.raises(ServiceError, match=message):
        asking(tmp_path, lambda request: reply).models()


def test_the_key_is_in_no_error_no_text_and_no_log(
    tmp_path: Path, naps: list[float], caplog: pytest.LogCaptureFixture
):
    def lost(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError(f"nobody at {request.url}", request=request)

    caplog.set_level(logging.DEBUG)
    said = []
    for answer in (lost, lambda _: problem(401, "no valid key"), lambda _: httpx.Response(200, json=[])):
        device = asking(tmp_path, answer)
        said += [repr(device), str(device), repr(vars(device))]
        with contextlib.suppress(ServiceError):
            device.models()
    with pytest.raises(ServiceError) as caught:
        asking(tmp_path, lost).models()
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    found = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    said += [repr(caught.value), *found.format()]
    assert KEY not in "".join(said) + caplog.text


@pytest.mark.parametrize(
    ("setting", "value", "error", "message"),
    [
        *(
            ("key", key, ConfigError, "characters: it needs 1 to 200 printable ones")
            for key in ("", "line\nbreak", "Schlüssel", "x" * 201, "two words")
        ),
        ("retries", -1, ConfigError, "retries=-1: at least 0"),
        ("protection", "blurr:radius=2", SpecError, "no protection is called 'blurr'"),
        *(
            ("url", url, ConfigError, "would travel in clear: use https")
            for url in ("http://cloud.example", "http://192.168.1.2:8000", "http://localhost.evil.example")
        ),
        *(
            ("url", url, ConfigError, f"not the address of a service: write scheme and host, such as {like}")
            for url, like in [
                *(
                    (url, "http")
                    for url in ("ftp://cloud", "https://", "https://a:b:c", "https://a/?key=b", "")
                ),
                *((url, f"https://{url}") for url in ("cloud.example:8000", "localhost.example")),
                *((url, f"http://{url}") for url in ("127.0.0.1:8000", "localhost/at")),
            ]
        ),
        ("url", "https://me:hidden@cloud.example", ConfigError, "has a user name or a password"),
    ],
)
def test_settings_that_cannot_be_are_refused_at_once_and_no_secret_is_shown(
    tmp_path: Path, setting: str, value: Any, error: type[Exception], message: str
):
    how = {"url": HERE, "key": KEY, "protection": SPEC, "ledger": tmp_path / "ledger.db"}
    with pytest.raises(error, match=message) as caught:
        Client(**how | {setting: value})
    assert "hidden" not in str(caught.value)
    assert setting != "key" or not value or value not in str(caught.value)


def test_a_key_goes_over_tls_or_stays_on_the_machine(tmp_path: Path):
    how = {"key": KEY, "ledger": tmp_path / "ledger.db"}
    Client("http://cloud.example", insecure=True, **how).close()
    for url in ("https://cloud.example/under/", "http://localhost:8", "http://127.0.0.2", "http://[::1]:8"):
        Client(url, **how).close()


def test_a_key_does_not_go_through_a_proxy_in_clear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    how = {"key": KEY, "ledger": tmp_path / "ledger.db", "retries": 0}
    with bare_service({b"GET /v1/models": []}) as (url, _), Client(url, **how) as device:
        assert device.models() == []


def test_over_a_network_and_from_many_threads_every_image_is_enrolled_once(
    store: Store, served: list[Served], tmp_path: Path
):
    secret = store.create_key("museum", role="write", name="device")[1]
    photos = [photograph(tmp_path / "photos" / f"{number}.png", number) for number in range(12)]
    with (
        running(store, served) as url,
        Client(url, key=secret, protection=SPEC, ledger=tmp_path / "ledger.db") as device,
    ):
        device.create("default", "noisy")
        with ThreadPoolExecutor(4) as threads:
            found = threads.map(lambda i: device.enrol(f"class {i % 3}", photos[i::4]).new, range(4))
        assert sum(found) == 12
        assert sum(each.examples for each in device.classes()) == 12
