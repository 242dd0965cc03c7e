"""Services that want more than they are given: what they demand, and that nothing leaves by it."""

import re
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest
from cloud import SIDE, described, photograph

from sfumato import wire
from sfumato.device.client import Client, Demanded, ServiceError
from sfumato.device.ledger import Ledger
from sfumato.errors import ConfigError, ImageError, SfumatoError
from sfumato.protect import parse
from sfumato.protect.spec import portable
from sfumato.wire import labelled

SPEC = "dp-pix:cell=4,epsilon=3"
URL = "https://cloud.example"
Device = Callable[..., Client]
YES: Callable[[Demanded], bool] = lambda demanded: True  # noqa: E731


class Hostile(httpx.BaseTransport):
    """A service that says what it likes. State: what it was sent."""

    def __init__(self) -> None:
        self.models = [described(SPEC)]  # what it says it runs
        self.model = "m"  # the name of the one that its classifier is for
        enrolled = {"label": "anna", "new": 1, "known": 0, "total": 1, "examples": ["e"]}
        self.enrolled = httpx.Response(200, json={"classes": [enrolled]})
        self.begun = True
        self.sent: list[httpx.Request] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.sent.append(request)
        made = {"id": "1", "name": "default", "model": self.model, "created": "2026-01-01T00:00:00Z"}
        made |= {"version": 0, "classes": 1}
        match request.method, request.url.path:
            case "GET", "/v1/models":
                return httpx.Response(200, json=self.models)
            case "GET", "/v1/classifiers/default" if self.begun:
                (model,) = [model for model in self.models if model["name"] == self.model][:1] or [None]
                if model is None:
                    return httpx.Response(409, json={"detail": f"it is for the model {self.model}"})
                return httpx.Response(200, json=made | {"model": model})
            case "GET", "/v1/classifiers/default":
                return httpx.Response(404, json={"detail": "no such classifier here"})
            case "POST", "/v1/classifiers":
                self.begun = True
                return httpx.Response(200, json=made)
        return self.enrolled

    def releases(self) -> list[bytes]:
        """What left to be enrolled."""
        sent = (each for each in self.sent if each.headers.get("content-type") == labelled.MEDIA_TYPE)
        return [labelled.split(each.content)[1] for each in sent]


@pytest.fixture
def service() -> Hostile:
    return Hostile()


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    return photograph(tmp_path / "photo.png", 0)


@pytest.fixture
def device(service: Hostile, tmp_path: Path) -> Iterator[Callable[..., Client]]:
    """Makes clients of one device."""
    made: list[Client] = []

    how = {"key": "k", "ledger": tmp_path / "ledger.db", "transport": service, "retries": 0}

    def client(protection: str | None = None, accept: Callable[[Demanded], bool] | None = None) -> Client:
        made.append(Client(URL, protection=protection, accept=accept, **how))
        return made[-1]

    yield client
    for each in made:
        each.close()


WEAK = [
    *("pixelize:cell=1", "blur:radius=0.01", "gaussian:sigma=0.001", "block:share=0.001", "none", " none "),
    *("dp-pix:cell=1,epsilon=1000000", "dp-pix:cell=1,epsilon=1000000,variant=published", "none:", ""),
    *("dp-pix-gaussian:cell=1,rho=1e9", "centre-blur:radius=0.01", "mask:artefact=m.safetensors,keep=0.99"),
    *("feature:artefact=f.safetensors,noise=0", "outside:index=/etc/passwd", "\x1b[2J"),
    *("gaussian:sigma=160@box:file=/etc/passwd", "pixelize:cell=4@faces:margin=1,file=boxes.csv"),
]


@pytest.mark.parametrize("spec", WEAK)
def test_a_demand_for_clear_images_by_any_name_gets_nothing_whoever_agrees(
    service: Hostile, device: Device, photo: Path, spec: str
):
    service.models = [described(spec)]
    for service.begun, accept in product((True, False), (None, YES)):
        with pytest.raises(ConfigError):
            device(accept=accept).enrol("anna", photo)
    assert service.releases() == []
    assert [each.method for each in service.sent if each.method == "POST"] == []


def test_a_demand_that_nobody_agreed_to_gets_nothing_and_is_shown_with_both_cures(
    service: Hostile, device: Device, photo: Path
):
    service.models, service.begun = [described(SPEC)], False
    with pytest.raises(ConfigError) as caught:
        device().enrol("anna", photo)
    assert str(caught.value) == (
        f"{URL} wants images of 3x16x16 for 'default', protected by {SPEC}: hides any 1 pixel at eps = 3 "
        "(pure DP); the whole image only at eps = 768; nothing is proved about who it shows. "
        "Nobody on this device agreed, and nothing was sent: choose it with "
        f"protection='{SPEC}' (--with {SPEC}), or accept it at a terminal"
    )
    with pytest.raises(ConfigError, match="It was not accepted, and nothing was sent"):
        device(accept=lambda demanded: False).enrol("anna", photo)
    assert (service.releases(), service.begun) == ([], False)


@pytest.mark.parametrize("shape", [(3, 100_000, 8), (2, 8, 8), (3, 0, 8)])
def test_a_service_cannot_ask_for_images_of_any_size(
    service: Hostile, device: Device, photo: Path, tmp_path: Path, shape: tuple[int, int, int]
):
    service.models = [described(SPEC, shape=shape)]
    with pytest.raises(ServiceError, match="this client makes images of"):
        device(SPEC).enrol("anna", photo)
    assert not (tmp_path / "ledger.db").exists()


def test_a_demand_changed_by_a_millionth_gets_nothing_more(service: Hostile, device: Device, photo: Path):
    """Otherwise every change would have fresh noise, and their mean would have none."""
    cloud = device(accept=YES)
    assert cloud.enrol("anna", photo).new == 1
    service.enrolled = httpx.Response(422, json={"detail": "again"})
    with pytest.raises(ServiceError):  # what the client knew of the classifier is over
        cloud.enrol("anna", photo)
    known = len(service.releases())
    for step in range(1, 5):
        service.models = [described(f"dp-pix:cell=4,epsilon={3 + step * 1e-6:.6f}")]
        for other in (cloud, device(accept=YES), device()):
            with pytest.raises(ConfigError) as caught:
                other.enrol("anna", photo)
            assert re.fullmatch(
                rf"{URL}: images leave for 'default' by {SPEC} of images of 3x16x16 since "
                r"20\d\d-\d\d-\d\d \d\d:\d\d UTC, but now the service demands dp-pix:cell=4,epsilon=3.00000"
                r"\d of images of 3x16x16: nothing was sent. If you agree: choose it with protection=... "
                rf"\(--with SPEC\), or accept it after `sfumato ledger unpin {URL}`",
                str(caught.value),
            )
    assert len(service.releases()) == known
    assert len(set(service.releases())) == 1


def test_another_spec_by_name_is_another_choice_and_after_an_unpin_a_person_is_asked_again(
    service: Hostile, device: Device, photo: Path, tmp_path: Path
):
    device(SPEC).enrol("anna", photo)
    service.models = [described("pixelize:cell=4")]
    device("pixelize:cell=4").enrol("anna", photo)
    device().enrol("anna", photo)
    service.models = [described(SPEC)]
    with pytest.raises(ConfigError, match="images leave for 'default' by pixelize:cell=4"):
        device().enrol("anna", photo)
    assert [wire.header(each).spec for each in service.releases()] == [SPEC, *["pixelize:cell=4"] * 2]
    with Ledger(tmp_path / "ledger.db") as ledger:
        assert ledger.unpin(URL) == 1
    with pytest.raises(ConfigError, match="Nobody on this device agreed"):
        device().enrol("anna", photo)
    assert device(accept=YES).enrol("anna", photo).new == 1


@pytest.mark.parametrize("protection", [None, "pixelize:cell=2"])
def test_larger_images_for_the_same_cells_are_another_demand(
    service: Hostile, device: Device, tmp_path: Path, protection: str | None
):
    photo = photograph(tmp_path / "large.png", 0, side=600)
    service.models = [described("pixelize:cell=2", shape=(3, SIDE, SIDE))]
    device(protection, YES).enrol("anna", photo)
    service.models = [described("pixelize:cell=2", shape=(3, 2048, 2048))]
    with pytest.raises(ConfigError, match="cell=2 of images of 3x2048x2048: nothing was sent") as caught:
        device(protection, YES).enrol("anna", photo)
    assert str(caught.value).endswith(f"If you agree: `sfumato ledger unpin {URL}`")
    assert [wire.header(each).size for each in service.releases()] == [(SIDE, SIDE)]


@pytest.mark.parametrize(
    ("spec", "side", "message"),
    [
        ("pixelize:cell=2", 2048, "of a 2048x2048 image would differ from it by"),
        # A box that somebody on the device chose, with noise in it, in a corner of what the model takes.
        ("gaussian:sigma=160@box:file=BOXES", SIDE, r"99\.22% of the pixels .* leave as they are, and"),
    ],
)
def test_of_an_image_of_which_nearly_all_would_stay_clear_nothing_leaves(
    service: Hostile, device: Device, photo: Path, tmp_path: Path, spec: str, side: int, message: str
):
    (tmp_path / "boxes.csv").write_text("left,top,right,bottom\n0,0,2,1\n")
    spec = spec.replace("BOXES", str(tmp_path / "boxes.csv"))
    service.models = [described(portable(spec), shape=(3, side, side))]
    with pytest.raises(ImageError, match=message):
        device(spec).enrol("anna", photo)
    assert service.releases() == []


def test_another_model_under_the_same_name_gets_no_other_releases(
    service: Hostile, device: Device, photo: Path
):
    device(accept=YES).enrol("anna", photo)
    service.models = [described("pixelize:cell=2")]  # the same name
    with pytest.raises(ConfigError, match="nothing was sent"):
        device(accept=YES).enrol("anna", photo)
    service.models, service.model = [described(SPEC), described("pixelize:cell=2", name="other")], "other"
    with pytest.raises(ConfigError, match="nothing was sent"):
        device(accept=YES).enrol("anna", photo)
    assert [wire.header(each).spec for each in service.releases()] == [SPEC]


def test_of_thousands_of_models_a_message_names_a_few(service: Hostile, device: Device, photo: Path):
    service.models = [described(SPEC, name=f"m{number}" * 50) for number in range(5000)]
    service.begun = False
    with pytest.raises(ConfigError, match="and 4995 more") as caught:
        device(accept=YES).enrol("anna", photo)
    assert len(str(caught.value)) < 5000
    assert service.releases() == []


@pytest.mark.parametrize(
    "spec",
    [
        "x" * 10**6,
        "pixelize:cell=" + "9" * 10**6,
        "blur:" + "x" * 10**6 + "=1",
        "dp-pix:cell=" + "2," * 10**5 + "epsilon=" + "3," * 10**5 + "pixels=1,2,3",
    ],
)
def test_a_spec_of_a_megabyte_gets_nothing_but_a_short_message(
    service: Hostile, device: Device, photo: Path, spec: str
):
    service.models = [described(spec)]
    for begun, protection in product((True, False), (None, SPEC)):
        service.begun = begun
        with pytest.raises(ConfigError) as caught:
            device(protection, YES).enrol("anna", photo)
        assert len(str(caught.value)) < 2000
    assert service.releases() == []


def test_an_answer_without_end_is_not_read_to_its_end(device: Device, service: Hostile):
    read = []

    def endless() -> Iterator[bytes]:
        while True:
            read.append(1)
            yield b" " * (1 << 20)

    service.handle_request = lambda request: httpx.Response(200, content=endless())  # type: ignore[method-assign]
    with pytest.raises(ServiceError, match="an answer of more than 16 MiB"):
        device().models()
    assert len(read) < 20


ESCAPES = "a\x1b[2J\x1b]0;x\x07\r\n\u202eb"


@pytest.mark.parametrize(
    "models",
    [
        [described("none") | {"name": ESCAPES}],
        [described(ESCAPES)],
        [described(f"mask:artefact={ESCAPES}")],
        [described(f"blur:radius={ESCAPES}")],
        [described(f"dp-pix:cell=2,epsilon=3,variant={ESCAPES}")],
        [],
    ],
)
def test_no_word_of_a_service_moves_a_cursor(
    service: Hostile, device: Device, photo: Path, models: list[dict[str, Any]]
):
    service.models = models
    service.model = ESCAPES if not models or models[0]["name"] == ESCAPES else "m"
    for begun, protection in product((True, False), (None, "pixelize:cell=2")):
        service.begun = begun
        with pytest.raises(SfumatoError) as caught:
            device(protection, YES).enrol("anna", photo)
        assert str(caught.value).isprintable()
    assert service.releases() == []


def test_what_a_person_is_asked_is_printable_and_true(service: Hostile, device: Device, photo: Path):
    asked: list[Demanded] = []
    service.models = [described(" dp-pix: epsilon=3.0 , cell=4,pixels=1")]
    device(accept=lambda demanded: not asked.append(demanded)).enrol("anna", photo)
    assert str(asked[0]) == (
        f"{URL} wants images of 3x16x16 for 'default', protected by {SPEC}: "
        f"{parse(SPEC).guarantee((3, SIDE, SIDE))}; nothing is proved about who it shows"
    )
    assert [wire.header(each).spec for each in service.releases()] == [SPEC]
