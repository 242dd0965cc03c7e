"""The page in Chromium, with a server that keeps every byte that it is sent."""

import functools
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import chromium
import numpy as np
import pytest
import torch
from devices import SHAPE, pictures, write_code, write_feature, write_mask
from PIL import ExifTags, Image
from torch import Tensor

from sfumato import images, protect, wire
from sfumato.dp.mechanisms import seeded_noise
from sfumato.export.export import export
from sfumato.export.sides import MOST_CODES, MOST_NUMBERS
from sfumato.protect.code import Code
from sfumato.protect.feature import Feature
from sfumato.protect.mask import Mask
from sfumato.protect.naming import naming_words
from sfumato.protect.release import artefact_digest
from sfumato.wire import labelled

pytestmark = chromium.MARKS

SLIDERS = "return [...document.querySelectorAll('.slider input')].map(each => each.id)"

KEY = "the-key-of-the-user"
SIZE = 36  # of the models' images; cells of 5 leave smaller ones at the border


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Cloud:
    """A server of the page and of as much of the API as it uses. State: what it was sent, and its classes."""

    models: list[dict[str, Any]]
    requests: list[Request] = field(default_factory=list)
    classes: dict[str, int] = field(default_factory=dict)
    answers: list[dict[str, Any]] = field(default_factory=list)
    keys: list[dict[str, Any]] = field(default_factory=list)

    def answer(self, request: Request) -> tuple[int, Any]:
        self.requests.append(request)
        parts = [unquote(part) for part in urlsplit(request.path).path.split("/")[2:]]
        if request.headers.get("x-api-key") != KEY:
            return 401, {"title": "Unauthorized", "detail": "this key is unknown: ask for another"}
        match request.method, parts:
            case "GET", ["models"]:
                return 200, self.models
            case "GET", ["classifiers"]:
                names = [model["name"] for model in self.models]
                return 200, [{"id": name, "name": "hats", "model": name} for name in names]
            case "GET", ["classifiers", _, "classes"]:
                return 200, [{"label": label, "examples": count} for label, count in self.classes.items()]
            case "POST", ["classifiers", _, "examples"]:
                said, _ = labelled.split(request.body)
                label, count = said[0].label, len({each.id for each in said})
                self.classes[label] = self.classes.get(label, 0) + count
                became = {"new": count, "known": len(said) - count, "total": self.classes[label]}
                examples = [f"e{i}" for i in range(count)]
                return 201, {"classes": [{"label": label, **became, "examples": examples}]}
            case "POST", ["classifiers", _, "classify"]:
                return 200, {"images": self.answers}
            case "DELETE", ["classifiers", _, "classes", label]:
                del self.classes[label]
                return 204, None
            case "GET", ["keys"]:
                return 200, self.keys
            case "POST", ["keys"]:
                made = {"rate": None, "quota": None, "created": "2026-01-31T09:30:00Z", "revoked": None}
                self.keys.append({"id": f"k-{len(self.keys)}", **json.loads(request.body), **made})
                return 201, {**self.keys[-1], "secret": "sfumato_new"}
            case "DELETE", ["keys", number]:
                (key,) = (each for each in self.keys if each["id"] == number)
                key["revoked"] = "2026-02-01T09:30:00Z"
                return 204, None
        return 404, {"detail": "there is nothing here"}

    def sent(self, end: str) -> list[bytes]:
        """The bodies of requests to addresses that end so."""
        return [each.body for each in self.requests if urlsplit(each.path).path.endswith(end)]


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder, and the API of `server.cloud`."""

    extensions_map = SimpleHTTPRequestHandler.extensions_map | {
        ".js": "text/javascript",
        ".wasm": "application/wasm",
    }

    def do_GET(self) -> None:
        if self.path.startswith("/v1/"):
            self.do_POST()
        else:
            super().do_GET()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, self.path, headers, body)
        status, answer = self.server.cloud.answer(request)  # type: ignore[attr-defined]
        content = b"" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_DELETE = do_POST  # noqa: N815

    def log_message(self, *words: Any) -> None:
        pass


def model(spec: str, *, shape: Any = (3, SIZE, SIZE), made_of: str | None = None) -> dict[str, Any]:
    name = "-".join(part for part in spec.replace("=", "-").replace(",", "-").split(":"))
    return {"name": name, "kind": "few-shot", "spec": spec, "made_of": made_of, "shape": list(shape)}


def exported(artefact: Path) -> Path:
    """An artefact, beside which is now what was exported of it."""
    export(artefact, artefact.with_suffix(".onnx"), check=pictures(2, seed=1))
    return artefact


@pytest.fixture(scope="module")
def mask(tmp_path_factory) -> Path:
    return exported(write_mask(tmp_path_factory.mktemp("mask") / "mask.safetensors"))


@pytest.fixture(scope="module")
def feature(tmp_path_factory) -> Path:
    return exported(write_feature(tmp_path_factory.mktemp("feature") / "feature.safetensors"))


@pytest.fixture(scope="module")
def bits(tmp_path_factory) -> Path:
    return exported(write_code(tmp_path_factory.mktemp("bits") / "code.safetensors", bits=12))


@pytest.fixture(scope="module")
def numbers(tmp_path_factory) -> Path:
    return exported(write_code(tmp_path_factory.mktemp("numbers") / "code.safetensors", numbers=12))


@pytest.fixture
def page(open_page: Callable[[str, Any], Any], site: Path) -> Iterator[Any]:
    """With a server of its own for each test."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(site)))
    server.cloud = Cloud([])  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield open_page(f"http://127.0.0.1:{server.server_port}/", server.cloud)  # type: ignore[attr-defined]
    server.shutdown()
    thread.join()
    server.server_close()


def random_images(count: int = 2, seed: int = 0) -> Tensor:
    return pictures(count, seed=seed, shape=(3, SIZE, SIZE))


@pytest.mark.parametrize(
    ("spec", "channels", "size"),
    [
        ("pixelize:cell=5", 3, (SIZE, SIZE)),
        ("pixelize:cell=2", 3, (50, 83)),  # cut and made small
        ("pixelize:cell=2", 1, (SIZE, SIZE)),  # grey
    ],
)
def test_what_leaves_is_the_release_that_python_makes_and_nothing_else(page: Any, spec: str, channels, size):
    page.connect(model(spec, shape=(channels, SIZE, SIZE)))
    page.choose(pictures(2, shape=(3, *size)))
    sent = page.release()
    read = [images.read(page.folder / f"{name}.png", channels=channels, size=SIZE) for name in range(2)]
    expected = protect.parse(spec).release(torch.stack(read), seeded_noise(0))
    assert sent.spec == expected.spec
    assert torch.equal(sent.values, expected.values)


def test_what_is_seen_as_protected_leaves_no_pixel_of_an_original_and_answers_are_shown(page: Any):
    first = {"guesses": [{"label": "bowler", "probability": 0.91, "distance": 3.25}], "none_of_these": False}
    second = {"guesses": [{"label": "bowler", "probability": 0.6, "distance": 99.0}], "none_of_these": True}
    page.cloud.answers = [first, second]
    page.connect(model("dp-pix:cell=5,epsilon=30"))
    page.choose(random_images())
    original, protected = page.canvas(0), page.canvas(1)
    page.find("classify").click()
    page.status("0.png: bowler, 91%; 1.png: none of the enrolled classes")
    assert "91.0%" in page.text("pictures")
    assert "None of these, most likely." in page.text("pictures")
    assert page.cloud.requests[-1].path.endswith("/classify?top=5")
    sent = page.release()
    assert torch.equal(original[:3], random_images()[0])
    assert torch.equal(protected[:3], sent.images()[0])
    originals = [image.numpy().tobytes() for image in random_images()]
    interleaved = [image.permute(1, 2, 0).contiguous().numpy().tobytes() for image in random_images()]
    # Six bytes of an original are somewhere in noise with a probability below 10^-9.
    parts = {data[i : i + 6] for data in originals + interleaved for i in range(len(data) - 5)}
    assert len(page.cloud.requests) >= 5
    for request in page.cloud.requests:
        whole = request.path.encode() + str(request.headers).encode() + request.body
        assert not any(whole[i : i + 6] in parts for i in range(len(whole) - 5))


def test_dp_pix_noise_is_there_and_has_its_size(page: Any):
    page.connect(model("dp-pix:cell=4,epsilon=30"))
    page.choose(torch.full((20, 3, SIZE, SIZE), 128, dtype=torch.uint8))
    sent = page.release("grey")
    # The same picture twenty times is one picture: it leaves with one noise.
    assert len(np.unique(sent.values.flatten(1).numpy(), axis=0)) == 1
    # E|Laplace(0, s)| = s = 255 * 3 / 30 / 16 = 1.6, of 243 cells; rounding adds little.
    assert 1.1 < (sent.values[0].double() - 128).abs().mean() < 2.1


def test_a_picture_leaves_with_the_same_noise_again_after_a_reload(page: Any):
    page.connect(model("dp-pix:cell=4,epsilon=3"))
    page.choose(random_images())
    first = page.enrol("a hat")
    page.connect(model("dp-pix:cell=4,epsilon=3"))
    page.choose(random_images())
    assert page.enrol("a hat") == first
    page.choose(random_images())
    page.enrol("a cap")
    hats, again, caps = (labelled.split(body)[0] for body in page.cloud.sent("/examples"))
    assert again == hats  # known again, in this class alone
    ids = {each.id for each in (*hats, *caps)}
    assert len(ids) == 4
    assert {len(bytes.fromhex(each)) for each in ids} == {16}
    page.until("return document.getElementById('ledger').textContent.includes('2 releases of 2 pictures')")


def test_at_most_five_different_releases_of_a_picture_leave_and_those_again(page: Any):
    def chosen(spec: str, side: int = SIZE, *, other: bool = False) -> None:
        page.connect(model(spec, shape=(3, side, side)))
        page.choose(random_images(2)[1:] if other else random_images(1))
        page.browser.execute_script("if (!document.getElementById('changed').hidden) accept.click()")
        page.until("return !document.getElementById('actions').hidden")

    def refused() -> None:
        sent = len(page.cloud.sent("/examples"))
        page.write("label", "a hat")
        page.submit("enrol")
        page.refuses("nothing was sent: 5 different releases of ")
        assert len(page.cloud.sent("/examples")) == sent

    for epsilon in range(1, 6):
        chosen(f"dp-pix:cell=4,epsilon={epsilon}")
        last = page.enrol("a hat")
    chosen("dp-pix:cell=4,epsilon=6")
    refused()
    chosen("pixelize:cell=9")  # what draws no noise tells something, too
    refused()
    chosen("dp-pix:cell=4,epsilon=5", 24)  # of the same file, for a model of another shape
    refused()
    chosen("dp-pix:cell=4,epsilon=6")  # with a picture that may leave: all or none
    page.choose(random_images(2)[1:])
    refused()
    chosen("dp-pix:cell=4,epsilon=6", other=True)
    page.enrol("a hat")
    chosen("dp-pix:cell=4,epsilon=5")
    assert page.enrol("a hat") == last


def test_before_a_server_is_asked_the_page_draws_noise_once_and_says_that_pixels_hide_nobody(page: Any):
    page.open()
    assert not page.find("pixels").get_property("hidden")
    assert page.text("pixels").startswith("Pixels hide nobody: ")
    page.choose(random_images(1))
    before = page.canvas(1)
    page.slide("epsilon", by=1)
    assert not torch.equal(page.canvas(1), before)
    page.slide("epsilon", by=-1)
    assert torch.equal(page.canvas(1), before)


def test_guarantees_are_those_of_python_are_agreed_to_by_sending_and_follow_the_slider(page: Any):
    spec, shape = "dp-pix:cell=4,epsilon=3", (3, SIZE, SIZE)
    words = naming_words(protect.parse(spec), shape)
    page.connect(model(spec) | {"naming": [words]})
    page.choose(random_images(1))
    assert page.text("guarantee") == str(protect.parse(spec).guarantee(shape))
    assert page.text("naming") == words == "nothing is proved about who it shows"
    assert all(page.find(name).is_displayed() for name in ("guarantee", "first", "classify"))
    page.slide("epsilon", by=1)
    assert page.text("spec") == "dp-pix:cell=4,epsilon=5"
    assert page.text("guarantee") == str(protect.parse("dp-pix:cell=4,epsilon=5").guarantee(shape))
    assert page.text("naming") == ""  # of what is for looking only
    assert not page.find("classify").is_displayed()  # nothing is sent that the model was not trained for
    assert page.find("mismatch").is_displayed()
    page.find("reset").click()
    page.until("return document.getElementById('mismatch').hidden")
    assert page.text("spec") == spec
    page.enrol("a hat")
    page.choose(random_images(1))
    assert not page.find("first").is_displayed()
    assert not page.find("changed").is_displayed()


# Who decides.


@pytest.mark.parametrize(
    "spec", ["pixelize:cell=1", "gaussian:sigma=0.001", "dp-pix:cell=1,epsilon=1000000", "none"]
)
def test_a_demand_that_protects_nothing_is_refused(page: Any, spec: str):
    page.connect(model(spec))
    page.choose(random_images(1))
    assert page.text("guarantee") == "this page cannot protect pictures that way"
    assert not page.find("actions").is_displayed()
    assert page.count("#pictures canvas") == 1  # the original alone


CHANGES: list[dict[str, Any]] = [
    {"spec": "dp-pix:cell=4,epsilon=3.000001"},
    {"shape": [3, 2 * SIZE, 2 * SIZE]},
    {"spec": "pixelize:cell=2"},
    {"spec": "dp-pix:cell=4,epsilon=3", "name": "another id"},
]


def test_a_demand_that_changes_gets_nothing_until_the_user_accepts_it(page: Any):
    def described(demand: dict[str, Any]) -> str:
        return f"{demand['spec']} of images of {'x'.join(map(str, demand['shape']))}"

    demand = model("dp-pix:cell=4,epsilon=3")
    page.connect(demand)
    page.choose(random_images(1))
    page.enrol("a hat")
    for change in CHANGES:
        before, demand = demand, demand | change
        sent = len(page.cloud.sent("/examples"))
        page.connect(demand)
        page.choose(random_images(1))
        page.until("return !document.getElementById('changed').hidden")
        assert not page.find("actions").is_displayed()
        proved = protect.parse(demand["spec"]).guarantee(tuple(demand["shape"]))
        assert " ".join(page.text("changed-words").split()) == (
            f"Until now, pictures for this classifier were sent as {described(before)}. "
            f"It now takes {described(demand)}: {proved or 'nothing is proved about its pixels'}."
        )
        assert len(page.cloud.sent("/examples")) == sent
        page.accept()
        assert wire.header(page.enrol("a hat")).spec == demand["spec"]
    page.connect(demand)
    page.choose(random_images(1))
    assert page.find("actions").is_displayed()


def test_a_picture_that_its_release_would_equal_does_not_leave(page: Any):
    page.connect(model("pixelize:cell=4"))
    page.choose(torch.cat([random_images(1), torch.full((1, 3, SIZE, SIZE), 90, dtype=torch.uint8)]))
    page.find("classify").click()
    page.refuses(
        f"pixelize:cell=4: the release of a {SIZE}x{SIZE} image would differ from it by 0.0 grey levels"
    )
    assert page.cloud.sent("/classify") == []


def test_a_photograph_stands_upright_and_nearly_as_python_reads_it(page: Any):
    ramp = np.linspace(0, 255, 60).astype(np.uint8)
    photograph = Image.fromarray(np.stack([np.tile(ramp, (40, 1))] * 3, 2))
    turned = Image.Exif()
    turned[ExifTags.Base.Orientation] = 6
    turned[ExifTags.Base.Make] = "the maker of the camera"
    photograph.save(page.folder / "photograph.jpg", quality=95, exif=turned)
    page.connect(model("pixelize:cell=4"))
    page.pick([page.folder / "photograph.jpg"], 1)
    body = page.enrol("a hat")
    sent = wire.decode(body, most_images=1, most_pixels=10_000)
    read = images.read(page.folder / "photograph.jpg", size=SIZE)
    expected = protect.parse("pixelize:cell=4").release(read[None], seeded_noise(0)).values
    # Decoders of JPEG differ in the last bits.
    assert (sent.values.int() - expected.int()).abs().max() <= 4
    assert b"maker" not in body


def test_transparent_parts_are_white(page: Any):
    page.connect(model("dp-pix:cell=2,epsilon=1000000"))  # next to no noise
    Image.new("RGBA", (SIZE, SIZE), (10, 20, 30, 0)).save(page.folder / "clear.png")
    page.pick([page.folder / "clear.png"], 1)
    assert page.release().values.unique().tolist() == [255]


def test_what_another_window_released_first_is_what_leaves(page: Any):
    page.connect(model("dp-pix:cell=4,epsilon=3"))
    page.choose(random_images(1))
    first = page.browser.current_window_handle
    page.browser.switch_to.new_window("tab")
    try:
        page.connect(model("dp-pix:cell=4,epsilon=3"))
        page.choose(random_images(1))
        of_another = page.enrol("a hat")
    finally:
        page.browser.close()
        page.browser.switch_to.window(first)
    assert page.enrol("a hat") == of_another


def test_nothing_is_sent_where_the_ledger_cannot_be_written(page: Any):
    page.connect(model("dp-pix:cell=4,epsilon=3"))
    page.choose(random_images(1))
    page.browser.execute_script("IDBObjectStore.prototype.put = function () { this.transaction.abort(); }")
    page.find("classify").click()
    page.refuses("nothing was sent: the ledger cannot be written")
    assert page.cloud.sent("/classify") == []


def test_more_pictures_than_a_request_may_hold_go_in_several(page: Any):
    small = model("pixelize:cell=4", shape=(1, 8, 8))
    page.connect(small)
    page.choose(pictures(70, shape=(3, 8, 8)))
    page.enrol("a hat")
    bodies = [labelled.split(body)[1] for body in page.cloud.sent("/examples")]
    assert [wire.header(body).count for body in bodies] == [64, 6]
    assert page.text("status") == ("a hat: 70 enrolled now, 0 before; the class has 70 examples.")


def test_a_class_whose_name_would_be_taken_out_of_an_address_is_refused(page: Any):
    page.connect(model("dp-pix:cell=4,epsilon=3"))
    page.choose(random_images(1))
    page.write("label", "..")
    page.submit("enrol")
    page.refuses("a name of dots alone has no address")
    assert page.cloud.sent("/examples") == []


def ledger(page: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = page.browser.execute_async_script(
        """
        const done = arguments[0];
        const request = indexedDB.open("sfumato-ledger");
        request.onsuccess = () => {
          const all = request.result.transaction("releases").objectStore("releases").getAll();
          all.onsuccess = () => done(all.result);
        };
        """
    )
    return found


def test_the_ledger_keeps_random_releases_and_no_others_and_no_key(page: Any):
    for number, spec in enumerate(("pixelize:cell=2", "dp-pix:cell=4,epsilon=3", "dp-pix:cell=4,epsilon=1")):
        page.connect(model(spec))
        page.choose(random_images(1))
        if number:
            page.accept()
        page.enrol("a hat")
        page.until(f"return document.getElementById('ledger').textContent.includes('{number + 1} release')")
    kept = {each["key"].split(" ")[1]: each["release"] for each in ledger(page)}
    assert kept["pixelize:cell=2@"] is None
    assert len(kept["dp-pix:cell=4,epsilon=3@"]["packet"]) == 3 * (SIZE // 4) ** 2
    others = "[{ ...localStorage }, { ...sessionStorage }, document.cookie, history.state]"
    stored = json.dumps(ledger(page)) + page.browser.execute_script(f"return JSON.stringify({others})")
    assert "dp-pix:cell=4,epsilon=3" in stored
    assert KEY not in stored
    page.browser.refresh()
    page.until("return !document.getElementById('main').hidden")
    assert page.find("key").get_property("value") == ""


def test_a_refusal_says_what_the_server_said(page: Any):
    page.cloud.models = [model("dp-pix:cell=4,epsilon=3")]
    page.open()
    page.write("key", "wrong")
    page.submit("connect")
    page.refuses("this key is unknown: ask for another")
    assert page.find("problem").get_attribute("role") == "alert"


def test_a_class_of_any_name_is_enrolled_and_forgotten_with_what_was_answered_before(page: Any):
    label = "<b>Ägypten<i> 50% & co?"
    page.connect(model("dp-pix:cell=4,epsilon=3"))
    page.choose(random_images())
    page.enrol(label)
    assert page.cloud.classes == {label: 2}
    page.reads("classes", label)
    page.choose(random_images())
    guess = {"label": label, "probability": 0.9, "distance": 1.0}
    page.cloud.answers = [{"guesses": [guess], "none_of_these": False}] * 2
    page.find("classify").click()
    page.until("return document.querySelectorAll('#pictures meter').length == 2")
    page.confirm("#classes button")
    page.status(f"Forgot {label}.")
    assert page.cloud.classes == {}
    assert (page.count("#pictures meter"), page.count("#pictures > li")) == (0, 2)


def test_of_two_files_of_one_name_the_second_has_a_number(page: Any):
    page.open()
    for number, image in enumerate(random_images()):
        path = page.folder / str(number) / "photo.png"
        path.parent.mkdir()
        images.write(path, image)
        page.pick([path], number + 1)
    names = "return [...document.querySelectorAll('.caption span')].map(each => each.textContent)"
    assert page.browser.execute_script(names) == ["photo.png", "photo.png (2)"]
    page.browser.find_element("css selector", "[aria-label='Remove photo.png']").click()
    page.until("return document.querySelectorAll('#pictures > li').length == 1")
    assert page.browser.execute_script(names) == ["photo.png (2)"]


def test_an_admin_makes_a_key_whose_secret_is_shown_once_and_revokes_it(page: Any):
    page.connect(model("dp-pix:cell=4,epsilon=3"))
    summary = page.browser.find_element("css selector", "#tenant-keys summary")
    summary.click()
    page.write("key-name", "<i>gate")
    page.submit("create-key")
    page.until("return document.querySelectorAll('#keys li').length == 1")
    assert json.loads(page.cloud.sent("/keys")[-2]) == {"name": "<i>gate", "role": "write"}
    assert page.text("secret") == "Secret of <i>gate (write), shown this once: sfumato_new"
    assert page.text("keys") == "<i>gate: write, made 2026-01-31Revoke"
    summary.click()
    page.until("return document.getElementById('secret').hidden")
    assert page.text("secret") == ""
    page.cloud.keys[0]["rate"] = 60
    summary.click()
    page.reads("keys", "<i>gate: write, 60 requests a minute")
    page.confirm("#keys button")
    page.status("Revoked <i>gate.")
    assert page.text("keys") == "<i>gate: write, 60 requests a minute, made 2026-01-31, revoked 2026-02-01"


@pytest.mark.parametrize("files", ["n", "ngnng", "gg"])
def test_files_that_are_no_pictures_are_named_and_counted_and_the_others_are_there(page: Any, files: str):
    page.open()
    paths = []
    for number, kind in enumerate(files):
        paths.append(page.folder / f"{number}{kind}.png")
        if kind == "g":
            images.write(paths[-1], random_images(1, seed=number)[0])
        else:
            paths[-1].write_text("no picture")
    page.pick(paths, files.count("g"))
    page.until(f"return document.getElementById('problem').hidden == {str('n' not in files).lower()}")
    problem = page.text("problem")
    for path in paths:
        reason = f"{path.name} is not a picture that this browser reads: save it as JPEG or PNG"
        assert (reason in problem) == ("n" in path.name.partition(".")[0])
    count = f"{files.count('n')} of {len(files)} files were left out: "
    assert problem.startswith(count) == ("n" in files and len(files) > 1)


def test_a_picture_of_the_camera_is_protected_like_any_other(page: Any):
    fake = """
        Object.defineProperty(navigator.mediaDevices, "getUserMedia", { value: async () => {
          const canvas = Object.assign(document.createElement("canvas"), { width: 64, height: 48 });
          const context = canvas.getContext("2d");
          setInterval(() => { context.fillStyle = "rgb(200, 100, 50)"; context.fillRect(0, 0, 64, 48); }, 20);
          return canvas.captureStream();
        } });
    """
    with page.changed(fake):
        # Next to no noise; without any, a picture of one colour would not leave.
        page.connect(model("dp-pix:cell=4,epsilon=1000"))
    page.find("camera").click()
    page.until("return viewfinder.open && video.videoWidth > 0")
    page.find("shoot").click()
    page.until("return document.querySelectorAll('#pictures > li').length == 1")
    colour = torch.tensor([200.0, 100, 50]).view(1, 3, 1, 1)
    assert (page.release("wall").values.double() - colour).abs().max() <= 4  # of a video
    assert page.browser.execute_script("return document.getElementById('video').srcObject") is None


def test_a_learned_mask_shows_the_pixels_that_python_shows_and_only_its_server_is_asked(
    page: Any, mask: Path
):
    page.connect(model("mask:artefact=mask.safetensors", shape=SHAPE, made_of=artefact_digest(str(mask))))
    page.export(mask)
    page.choose(pictures(2))
    body = page.enrol("a hat")
    sent = wire.decode(body, most_images=2, most_pixels=10_000)
    expected = Mask(str(mask)).release(pictures(2), seeded_noise(0))
    assert wire.header(body).made_of == artefact_digest(str(mask))
    assert sent.shown.sum((1, 2, 3)).tolist() == [90, 90]
    assert torch.equal(sent.values, pictures(2) * sent.shown)
    assert (sent.shown != expected.shown).double().mean() < 0.01  # another order of sums, and near ties
    messages = [json.loads(each["message"])["message"] for each in page.browser.get_log("performance")]
    requests = [each["params"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    asked = [each["request"]["url"] for each in requests]
    assert any(url.endswith(".wasm") for url in asked)
    assert [url for url in asked if not url.startswith((page.address, "about:", "blob:", "data:"))] == []
    assert page.browser.get_log("browser") == []


def test_of_a_mask_whose_shape_is_asked_for_no_value_leaves(page: Any, mask: Path):
    spec = "mask:artefact=mask.safetensors,values=shape"
    page.connect(model(spec, shape=SHAPE, made_of=artefact_digest(str(mask))))
    page.export(mask)
    page.choose(pictures(2))
    sent = page.release()
    assert sent.shown.sum((1, 2, 3)).tolist() == [90, 90]
    assert torch.equal(sent.values, sent.shapes())


def ready(page: Any, artefact: Path) -> str:
    """The spec, of a page on which an exported feature or code was chosen."""
    spec = f"{artefact.stem}:artefact={artefact.name}"
    page.connect(model(spec, shape=SHAPE, made_of=artefact_digest(str(artefact))))
    page.export(artefact)
    return spec


def test_a_private_feature_leaves_with_the_noise_of_the_slider(page: Any, feature: Path):
    ready(page, feature)
    assert page.text("spec") == "feature:artefact=feature.safetensors,noise=0.5"
    for _ in range(6):  # 0.2, 0.1, 0.05, 0.02, 0.01, 0
        page.slide("noise", by=-1)
    page.choose(pictures(2))
    sent = page.release()
    expected = Feature(str(feature), noise=0.0).release(pictures(2), seeded_noise(0))
    assert sent.spec == "feature:artefact=feature.safetensors,noise=0"
    torch.testing.assert_close(sent.values, expected.values, atol=MOST_NUMBERS, rtol=0)


def test_a_clipped_feature_has_the_guarantee_of_python(page: Any, feature: Path):
    spec = ready(page, feature)
    page.slide("norm", by=-1)
    page.choose(pictures(1))
    sent = page.release()
    clipped = Feature(str(feature), noise=0.5, norm=50.0)
    assert sent.spec == f"{spec},noise=0.5,norm=50"
    assert page.text("guarantee") == str(clipped.guarantee(SHAPE))
    assert torch.equal((sent.values * 1024).round() / 1024, sent.values)  # on the grid of the discrete noise


def test_a_code_leaves_as_the_bits_of_python_and_they_are_shown(page: Any, bits: Path):
    spec = ready(page, bits)
    images = pictures(40, seed=3)
    page.choose(images)
    shown = page.browser.find_element("css selector", "#pictures .pair p").text
    body = page.enrol("a hat")
    sent = wire.decode(body, most_images=40, most_pixels=10_000)
    expected = Code(str(bits)).release(images, seeded_noise(0))
    assert wire.header(body).made_of == artefact_digest(str(bits))
    assert sent.spec == spec
    assert torch.equal(sent.values, expected.values)
    assert body.endswith(b"}" + b"".join(expected.pack()))  # two bytes an image, and nothing else
    first = "".join(map(str, expected.values[0].int().tolist()))
    assert shown == f"leaves as 12 bits: {first[:4]} {first[4:8]} {first[8:]}"


def test_a_code_leaves_as_the_numbers_of_python(page: Any, numbers: Path):
    spec = ready(page, numbers)
    page.choose(pictures(2))
    assert page.browser.find_element("css selector", "#pictures .pair p").text == "leaves as 12 numbers"
    sent = page.release()
    expected = Code(str(numbers)).release(pictures(2), seeded_noise(0))
    assert sent.spec == spec
    torch.testing.assert_close(sent.values, expected.values, atol=MOST_CODES, rtol=0)


def test_the_sliders_of_bits_flip_them_or_tell_lies_and_say_what_is_proved(page: Any, bits: Path):
    spec = ready(page, bits)
    assert page.browser.execute_script(SLIDERS) == ["slider-flip", "slider-epsilon"]
    page.slide("epsilon", by=-1)
    assert page.text("spec") == f"{spec},epsilon=12"
    page.slide("flip", by=-1)
    assert page.text("spec") == f"{spec},flip=0.45"
    assert page.text("guarantee") == str(Code(str(bits), flip=0.45).guarantee(SHAPE))
    images = pictures(20, seed=3)
    page.choose(images)
    sent = page.release()
    clean = Code(str(bits)).release(images, seeded_noise(0)).values
    assert sent.spec == f"{spec},flip=0.45"
    assert 60 < (sent.values != clean).sum() < 156  # of 240 bits 108 turn, give or take 7.7


def test_the_sliders_of_numbers_clip_them_and_add_noise(page: Any, numbers: Path):
    spec = ready(page, numbers)
    assert page.browser.execute_script(SLIDERS) == ["slider-norm", "slider-noise"]
    page.slide("norm", by=-1)
    assert page.text("spec") == f"{spec},norm=10,noise=0.1"
    assert page.text("guarantee") == str(Code(str(numbers), norm=10, noise=0.1).guarantee(SHAPE))
    images = pictures(20, seed=3)
    page.choose(images)
    sent = page.release()
    clean = Code(str(numbers)).release(images, seeded_noise(0)).values
    assert torch.equal((sent.values * 1024).round() / 1024, sent.values)  # on the grid of the discrete noise
    assert (sent.values - clean).std() == pytest.approx(0.1**0.5, rel=0.3)  # of 240: give or take 5%


def test_an_export_of_another_artefact_is_refused(page: Any, mask: Path):
    page.connect(model("mask:artefact=mask.safetensors", shape=SHAPE, made_of="0" * 64))
    page.find("exported").send_keys(str(mask.with_suffix(".onnx")))
    page.refuses("this file was exported from another artefact than the server's model")


def test_without_a_secure_connection_the_page_says_so_and_does_nothing(page: Any):
    with page.changed("Object.defineProperty(Crypto.prototype, 'subtle', { value: undefined })"):
        chromium.go_to(page.browser, page.address)
    page.refuses("this page needs a secure connection")
    assert not page.find("main").is_displayed()


def test_the_policy_forbids_everything_that_is_not_the_pages_own(site: Path):
    policy = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self' ; base-uri 'none'"
    assert policy in (site / "index.html").read_text()


def test_every_control_has_a_name_for_screen_readers_and_is_large_enough_on_every_screen(page: Any):
    label = "a hat with a very long name that goes on and on and on" * 2
    page.cloud.classes = {label: 3}
    page.connect(model("dp-pix:cell=4,epsilon=3"))
    page.choose(random_images())
    page.until("return document.querySelectorAll('#classes button').length == 1")
    nodes = page.browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    controls = {"button", "textbox", "combobox", "slider", "checkbox", "link", "image", "DisclosureTriangle"}
    found = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node.get("ignored") and node.get("role", {}).get("value") in controls
    ]
    assert len(found) >= 15
    assert [role for role, name in found if not name.strip()] == []
    assert len([name for role, name in found if role == "image"]) == 4
    assert ("button", f"Forget {label}") in found
    for width in (320, 390, 1200):
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
        page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        page.until(f"return innerWidth == {width} || document.documentElement.scrollWidth > {width}")
        assert page.browser.execute_script("return document.documentElement.scrollWidth") <= width
        heights = page.browser.execute_script(
            "return [...document.querySelectorAll('button, select, .file label')]"
            ".filter(each => each.offsetParent).map(each => each.getBoundingClientRect().height)"
        )
        assert len(heights) >= 6
        assert min(heights) >= 44


def test_the_page_works_by_keyboard_alone(page: Any):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    page.cloud.models = [model("dp-pix:cell=4,epsilon=3")]
    page.open()
    page.choose(random_images(1))
    press = lambda *keys: ActionChains(page.browser, duration=0).send_keys(*keys).perform()  # noqa: E731
    page.browser.execute_script("document.activeElement.blur(); window.scrollTo(0, 0)")
    seen = []
    for _ in range(30):
        press(Keys.TAB)
        name = page.browser.execute_script("return document.activeElement.id")
        seen.append(name)
        if name == "key":
            press(KEY, Keys.ENTER)
            page.status("Connected.")
        if name == "label":
            press("a hat", Keys.ENTER)
            page.status("a hat: ")
            break
    order = ["key", "kinds", "slider-cell", "slider-epsilon", "files", "camera", "clear", "label"]
    assert [name for name in seen if name in order] == order
    assert page.cloud.classes == {"a hat": 1}
