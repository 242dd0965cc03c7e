"""`sfumato protect` and `sfumato ledger`: what they print, where they write, and how they end.

Most commands run inside the test, through the function behind the script, and in a home of their own.
"""

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from cloud import SIDE, encoder
from commands import SCRIPT, Command, Said, check_mistake
from devices import write_code
from PIL import Image

from sfumato import images, wire
from sfumato.device.ledger import Ledger
from sfumato.dp.mechanisms import fresh_noise
from sfumato.networks.classifiers import CLASSIFIERS
from sfumato.protect import parse
from sfumato.protect.answer import Answerer, save
from sfumato.protect.region import Region

SPEC = "dp-pix:cell=4,epsilon=3"
SECONDS = 60  # a process that needs longer hangs


@pytest.fixture
def protect(command: Command) -> Command:
    """`sfumato protect` in one process, with SPEC where no other is given."""

    def run(*arguments: str | Path, spec: str = SPEC) -> Said:
        return command("protect", *arguments, "--with", spec, "--workers", "1")

    return run


def encoded(seed: int = 0, size: tuple[int, int] = (20, 17), kind: str = "PNG") -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format=kind)
    return buffer.getvalue()


def photos(root: Path, count: int = 3) -> Path:
    root.mkdir(parents=True)
    for i in range(count):
        (root / f"{i}.png").write_bytes(encoded(i))
    return root


def files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


NEW_LEDGER = (
    "the ledger is new: every image may have at most 5 different releases; every person may have at "
    "most 30 different releases (change it with `sfumato ledger budget`)"
)


def test_a_folder_is_protected_and_said_to_be(protect: Command, home: Path, tmp_path: Path):
    photos(tmp_path / "photos")
    said = protect("photos", "out")
    assert said.code == 0
    first, *rest = said.out.splitlines()
    assert re.fullmatch(r"protected 3 images with dp-pix:cell=4,epsilon=3 \([0-9.]+ s\)", first)
    assert rest == [
        f"3 of 3x20x17: {parse(SPEC).guarantee((3, 20, 17))}; nothing is proved about who it shows",
        f"charged 3 new releases; ledger: {home / 'ledger.db'}",
        NEW_LEDGER,
        "manifest: out/manifest.json",
    ]
    assert set(files(tmp_path / "out")) == {"0.png", "1.png", "2.png", "manifest.json"}
    again = protect("photos", "out", "--ledger", home / "ledger.db")
    assert "charged 0 new releases" in again.out
    assert "there already from an earlier run: 3 files\n" in again.out


def test_how_many_boxes_each_still_has_is_said_in_text_in_json_and_in_the_manifest(
    protect: Command, tmp_path: Path
):
    photos(tmp_path / "photos")
    rows = ["0.png,0,0,0.5,0.5", "0.png,0.5,0.5,1,1", "1.png,0,0,1,0.5"]
    (tmp_path / "photos" / "boxes.csv").write_text("\n".join(["file,left,top,right,bottom", *rows]))
    part = ("--where", "box:photos/boxes.csv")
    first = protect("photos", "out", *part)
    assert "boxes covered: 3\nin each: 0.png 2, 1.png 1\n" in first.out
    assert "failed: 1 (no box in the image), such as 2.png" in first.out
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["boxes_covered"] == 3
    assert [each["boxes"] for each in manifest["outputs"]] == [2, 1]
    again = protect("photos", "again", *part, "--json")  # all of whose noise is in the ledger
    assert json.loads(again.out)["boxes_covered"] == 3
    assert "boxes covered: 2\n" in protect("photos/0.png", "0.png", *part).err
    assert files(tmp_path / "again")["0.png"] == files(tmp_path / "out")["0.png"]


def test_an_image_without_a_face_that_is_protected_whole_is_named(
    protect: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    photos(tmp_path / "photos", 2)
    monkeypatch.setattr(Region, "find", lambda self, image: [])
    part = ("--where", "faces:file=none.safetensors,missing=all")
    monkeypatch.setattr(Region, "digest", lambda self: "00")
    said = protect("photos", "out", *part)
    assert "faces covered: 0\n" in said.out
    assert "no face was found in 2 images, all of which is protected: 0.png, 1.png\n" in said.out
    part = ("--where", "faces:file=none.safetensors")
    stopped = protect("photos", "none", *part)
    assert "no face was found in 2 images, which are not released: 0.png, 1.png\n" in stopped.out
    told = json.loads(protect("photos", "none", *part, "--json").out)
    assert told["without_face"] == ["0.png", "1.png"]


def test_of_two_files_of_one_name_the_cure_is_said_and_helps(protect: Command, tmp_path: Path):
    photos(tmp_path / "photos", 1)
    (tmp_path / "photos" / "0.jpg").write_bytes(encoded(7, kind="JPEG"))
    said = protect("photos", "out")
    cure = "the same command with --rename, into a new folder, gives each release a name of its own"
    assert cure in said.out
    again = protect("photos", "new", "--rename")
    assert (again.code, cure in again.out) == (0, False)
    assert len(files(tmp_path / "new")) == 3  # and the manifest


def test_nothing_is_left_behind_where_nothing_is_released(protect: Command, home: Path, tmp_path: Path):
    (tmp_path / "photos").mkdir()
    said = protect("photos", "out")
    assert said.code == 1
    assert "photos: has no images: name a folder or a tar file that holds some" in said.err
    assert "nothing was released, so there is no folder of releases and no manifest\n" in said.out
    assert "ledger" not in said.out
    assert not (tmp_path / "out").exists()
    assert not (home / "ledger.db").exists()


def test_failures_are_counted_by_cause_and_named_on_request_in_a_file_that_stays(
    protect: Command, tmp_path: Path
):
    photos(tmp_path / "photos")
    for name in ("x.png", "y.png"):
        (tmp_path / "photos" / name).write_bytes(b"dear diary")
    (tmp_path / "photos" / "z.png").write_bytes(encoded(9, (2, 2)))
    said = protect("photos", "out")
    assert said.code == 1
    assert said.out.startswith("protected 3 images")
    assert "by name: the same command with --failures FILE" in said.out
    cause = "not an image that can be read"
    failed = [line for line in said.out.splitlines() if line.startswith("failed: ")]
    assert (len(failed), failed[-1]) == (2, f"failed: 2 ({cause}), such as x.png")
    leaving = protect("photos", "out", "--failures", "out/failed.csv")
    check_mistake(leaving, "names originals, and lies in out")
    again = protect("photos", "out", "--failures", "failed.csv")
    assert again.code == 1  # they fail again
    assert "failures: failed.csv, 3 files by name. Keep it here" in again.out
    header, *rows = csv.reader((tmp_path / "failed.csv").read_text().splitlines())
    assert header == ["file", "cause", "images"]
    assert rows[:2] == [["x.png", cause, "1"], ["y.png", cause, "1"]]
    assert (rows[2][0], "does not fit" in rows[2][1]) == ("z.png", True)
    taken = protect("photos", "out", "--failures", "failed.csv")
    check_mistake(taken, "failed.csv: already exists: name another file, or remove it")


@pytest.mark.parametrize(
    "name", [os.fsdecode(b"caf\xe9.png"), "a\nsfumato: all is well.png", "\x1b[2J\x1b[31m.png", "\r.png"]
)
def test_the_name_of_a_failed_file_neither_breaks_the_line_nor_drives_the_terminal(
    protect: Command, tmp_path: Path, name: str
):
    photos(tmp_path / "photos")
    (tmp_path / "photos" / name).write_bytes(b"dear diary")
    said = protect("photos", "out")
    assert said.code == 1
    (line,) = [line for line in said.out.split("\n") if line.startswith("failed: 1 (")]
    assert line.endswith(".png")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", said.out)


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The spec of a code of 12 bits, of an encoder that was never trained."""
    path = tmp_path_factory.mktemp("code") / "bits.safetensors"
    return f"code:artefact={write_code(path, shape=(3, 20, 17), bits=12)}"


def test_codes_are_written_as_they_travel(protect: Command, tmp_path: Path, code: str):
    photos(tmp_path / "in")
    said = protect(tmp_path / "in", tmp_path / "out", spec=code)
    assert said.code == 0
    assert "nothing is proved about its pixels" in said.out
    assert "names the right one of 1,000,000 equally likely people more than 0.41% of the time" in said.out
    for number in range(3):
        image = images.read(tmp_path / "in" / f"{number}.png")[None]
        sent = (tmp_path / "out" / f"{number}.release").read_bytes()
        received = wire.decode(sent, most_images=1, most_pixels=1000)
        assert torch.equal(received.values, parse(code, takes=["bits"]).release(image, fresh_noise()).values)
        assert wire.header(sent).made_of == parse(code, takes=["bits"]).digest()


def test_an_answer_is_written_as_the_name_of_its_class(protect: Command, tmp_path: Path):
    path = tmp_path / "answers.safetensors"
    network = CLASSIFIERS["conv4"]((3, 32, 32), 2)
    answerer = Answerer(network, classes=("cat", "dog"), shape=(3, 32, 32))
    save(path, answerer.eval(), network="conv4", card={})
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"{number}.png").write_bytes(encoded(number, (32, 32)))
    assert protect(tmp_path / "in", tmp_path / "out", spec=f"answer:artefact={path}").code == 0
    names = [content.decode() for name, content in files(tmp_path / "out").items() if name.endswith(".txt")]
    assert len(names) == 3
    assert set(names) <= {"cat\n", "dog\n"}


@pytest.mark.parametrize(("spec", "format_name"), [(None, "png"), (None, "text"), (SPEC, "text")])
def test_a_release_is_written_in_no_format_that_cannot_hold_it(
    protect: Command, tmp_path: Path, code: str, spec: str | None, format_name: str
):
    photos(tmp_path / "in")
    for source, target in (("in/0.png", "0.out"), ("in", "out")):
        said = protect(tmp_path / source, tmp_path / target, "--format", format_name, spec=spec or code)
        expected = "releases pixels: write them in the format PNG" if spec else "releases bits: write them in"
        check_mistake(said, expected)
        assert not (tmp_path / target).exists()


@pytest.mark.parametrize(
    ("arguments", "released", "kind"),
    [
        (["photos/0.png", "new/a.png"], "new/a.png", "PNG"),
        (["photos/0.png", "a.jpg"], "a.jpg", "JPEG"),
        (["photos/0.png", "a.webp"], "a.webp", "WEBP"),
        (["photos/0.png", "photos/sub"], "photos/sub/0.png", "PNG"),
        (["photos/0.png", "photos/sub", "--rename"], "photos/sub/image.png", "PNG"),
        (["photos", "out", "--format", "jpeg"], "out/0.jpg", "JPEG"),
        (["photos", "out", "--format", "webp", "--cells"], "out/0.webp", "WEBP"),
    ],
)
def test_suffix_format_and_folder_decide_the_file_and_its_kind(
    protect: Command, tmp_path: Path, arguments: list[str], released: str, kind: str
):
    (photos(tmp_path / "photos", 1) / "sub").mkdir()
    assert protect(*arguments).code == 0
    with Image.open(tmp_path / released) as opened:
        assert (opened.format, opened.size) == (kind, (5, 5) if "--cells" in arguments else (17, 20))


def test_one_image_says_what_is_proved_and_whether_it_was_charged(
    protect: Command, home: Path, tmp_path: Path
):
    (tmp_path / "in.png").write_bytes(encoded())
    proved = f"{SPEC}: {parse(SPEC).guarantee((3, 20, 17))}; nothing is proved about who it shows"
    ledger = f"ledger: {home / 'ledger.db'}"
    assert protect("in.png", "a.png").err.splitlines() == [proved, f"charged; {ledger}", NEW_LEDGER]
    assert protect("in.png", "b.png").err.splitlines() == [
        proved,
        f"released before, and given again at no cost; {ledger}",
    ]
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_where_noise_hides_whole_images_it_is_said_how_rarely_people_are_named(
    protect: Command, tmp_path: Path
):
    photos(tmp_path / "photos")
    line = protect("photos", "out", spec="dp-pix:cell=10,epsilon=0.01").out.splitlines()[1]
    # The whole image is at eps = 340 * 0.01 = 3.4, and e^3.4 is 29.97; after three, at most e^10.2 = 26,903.
    one, all_of_one_person = line.split("; if all are of one person, ")
    assert "more than 3% of the time, or of 1,000,000 more than 0.003% (nothing is assumed of the" in one
    assert all_of_one_person.startswith("after 3 releases nobody, whatever they know, names the right one")
    assert float(all_of_one_person.split(" of 1,000,000 ")[1].split("more than ")[1].split("%")[0]) > 0.003


@pytest.mark.parametrize("target", ["in.png", "thesis.png", "out", "link.png"])
def test_one_image_never_replaces_a_file(protect: Command, tmp_path: Path, target: str):
    (tmp_path / "in.png").write_bytes(encoded())
    (tmp_path / "thesis.png").write_bytes(b"chapter 1")
    (tmp_path / "link.png").symlink_to("thesis.png")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "in.png").write_bytes(b"chapter 2")
    before = files(tmp_path)
    cure = "already exists, and might be an original: name a new file"
    check_mistake(protect("in.png", target), cure)
    assert files(tmp_path) == before


def test_an_image_goes_from_pipe_to_pipe(protect: Command, home: Path, tmp_path: Path):
    done = subprocess.run(
        [SCRIPT, "protect", "-", "-", "--with", SPEC],
        input=encoded(),
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr.endswith(f"charged; ledger: {home / 'ledger.db'}\n{NEW_LEDGER}\n".encode())
    (tmp_path / "in.png").write_bytes(encoded())
    protect("in.png", "a.png")
    assert done.stdout == (tmp_path / "a.png").read_bytes()


def test_what_is_no_image_in_a_pipe_is_answered_in_one_line_and_not_charged(
    command: Command, monkeypatch: pytest.MonkeyPatch, home: Path
):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"dear diary")))
    check_mistake(command("protect", "-", "out.png", "--with", SPEC), "<bytes>")
    with Ledger(home / "ledger.db") as ledger:
        assert ledger.summary().releases == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("photos out --with dp-pixx:cell=4", "no protection is called 'dp-pixx': did you mean 'dp-pix'"),
        ("photos out --with blur:radius=4 --where faces:m", "@faces: 'm' is not"),
        ("photos out --with block --where box:nix.csv", "nix.csv: cannot be read (No such"),
        ("photos out --with block --where face", "--where face: faces, background, or box:FILE, a CSV with"),
        ("photos out --with block --where box", "box:FILE, a CSV with left,top,right,bottom"),
        ("photos out --with none", "none: protects nothing"),
        ("photos/0.png out --with none", "none: protects nothing"),
        ("photos out.png --with SPEC", "out.png: photos is many images, and this names one file"),
        ("photos out --with dp-pix:cell=4,epsilon=1,2", "names 2 protections"),
        ("photos out --with SPEC --format gif", "format GIF: choose one of PNG, JPEG, WEBP, BMP"),
        ("photos/0.png a.tiff --with SPEC", "format TIFF: choose one of PNG, JPEG, WEBP, BMP"),
        ("gone out --with SPEC", "gone"),
        ("notes.txt out.png --with SPEC", "notes.txt"),
        ("photos notes.txt --with SPEC", "notes.txt: is not a folder"),
        ("memory://gone out --with SPEC", "memory://gone: no such folder or file"),
        ("photos/0.png s3://u:pw@b/a.png --with SPEC", "s3://b/a.png: one image needs a local file"),
        ("photos/0.png notes.txt/a.png --with SPEC", "notes.txt"),
        ("photos out --with SPEC --ledger notes.txt", "notes.txt: file is not a database"),
        ("photos out --with SPEC --ledger notes.txt/l", "cannot be opened for writing"),
        ("photos/0.png - --with dp-pix:cell=18,epsilon=3", "cell=18 is larger than the 20x17 images"),
        ("photos/0.png - --with SPEC --json", "would both go to standard output"),
    ],
)
def test_a_mistake_is_answered_in_one_line(command: Command, tmp_path: Path, arguments: str, message: str):
    photos(tmp_path / "photos")
    (tmp_path / "notes.txt").write_text("dear diary " * 99)
    before = files(tmp_path / "photos")
    words = arguments.replace("SPEC", SPEC).split()
    said = command("protect", *words, "--workers", "1")
    check_mistake(said, message)
    assert message in said.err.splitlines()[-1]
    assert files(tmp_path / "photos") == before
    assert not files(tmp_path / "out")
    assert (tmp_path / "notes.txt").read_text() == "dear diary " * 99


def test_the_ledger_lies_where_it_is_said_to_and_is_shown_with_its_specs_and_budgets(
    command: Command, protect: Command, home: Path, tmp_path: Path
):
    photos(tmp_path / "photos")
    own = ("--ledger", "own.db")
    protect("photos", "one", *own)
    protect("photos", "two", *own, spec="blur:radius=2")
    protect("photos/0.png", "three.png", *own, spec="gaussian:sigma=40")
    command("ledger", "budget", "epsilon=10,delta=1e-6,pixels=4", *own)
    assert not home.exists()
    assert command("ledger", "show", *own).out.splitlines() == [
        "ledger: own.db",
        "7 releases of 3 images",
        "blur:radius=2: 3",
        "dp-pix:cell=4,epsilon=3: 3",
        "gaussian:sigma=40: 1",
        "budget of every image: epsilon=10,delta=1e-6,pixels=4 for any 4 pixels",
        "budget of every image: at most 5 different releases",
        "budget of every person: at most 30 different releases",
        "near copies of an image: share its budget",
    ]


def test_a_ledger_that_is_not_there_is_not_begun_by_looking(command: Command, home: Path):
    line = f"sfumato: {home / 'ledger.db'}: no ledger yet: the first `sfumato protect` begins one"
    check_mistake(command("ledger", "show"), line)
    assert not home.exists()


@pytest.mark.parametrize(
    "arguments",
    ["ledger show", f"protect in out --with {SPEC} --ledger l.db", f"protect in/0.png a.png --with {SPEC}"],
)
def test_names_that_are_not_utf_8_are_printed_somehow(
    command: Command, tmp_path: Path, home: Path, arguments: str
):
    # Standard output is strict here, as it is in every locale but C and POSIX.
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    photos(folder / "in", 1)
    Ledger(home / "ledger.db").close()
    names = {name: str(folder / name) for name in ("in", "out", "in/0.png", "a.png", "l.db")}
    assert command(*(names.get(word, word) for word in arguments.split())).code == 0


def test_a_folder_is_made_squares_of_one_size_before_it_is_protected(
    command: Command, protect: Command, tmp_path: Path
):
    photos(tmp_path / "photos")
    said = protect("photos", "out", "--size", "8")
    assert said.code == 0
    assert "3 of 3x8x8: " in said.out
    assert images.read(tmp_path / "out" / "0.png").shape == (3, 8, 8)
    one = protect("photos/0.png", "0.png", "--size", "8")
    assert "released before, and given again at no cost" in one.err
    assert images.read(tmp_path / "0.png").tolist() == images.read(tmp_path / "out" / "0.png").tolist()
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["size"] == 8
    assert "holds a run with size 8, not " in protect("photos", "out").err


def test_images_that_a_code_is_not_for_are_answered_with_the_size_that_it_is_for(
    protect: Command, tmp_path: Path
):
    photos(tmp_path / "photos")
    spec = f"code:artefact={encoder(tmp_path / 'c.safetensors', bits=4)}"
    said = protect("photos", "out", spec=spec)
    assert said.code == 1
    assert f"it is for images of 3x{SIDE}x{SIDE}: --size {SIDE} makes such squares" in said.out
    assert protect("photos", "codes", "--size", SIDE, spec=spec).code == 0
    Image.open(tmp_path / "photos" / "0.png").convert("L").save(tmp_path / "photos" / "grey.png")
    grey = protect("photos", "grey", "--size", SIDE, spec=spec)
    assert (grey.code, "grey images made colour: 1\n" in grey.out) == (0, True)
    assert json.loads((tmp_path / "grey" / "manifest.json").read_text())["grey_images_made_colour"] == 1
    one = protect("photos/grey.png", "one.release", "--size", SIDE, spec=spec)
    assert "grey images made colour: 1\n" in one.err
    small = protect("photos", "cells", spec="pixelize:cell=18")
    assert "smaller cells fit, or shares of the image, such as cell=1/8" in small.out


def test_people_who_remain_recognisable_are_told_before_the_first_file(protect: Command, tmp_path: Path):
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "1.png").write_bytes(encoded(1, (120, 160)))
    words = "warning: people remain recognisable if a face fills the image: a cell of 4x4 pixels is 1/30"
    assert words in protect("large", "out", spec="pixelize:cell=4").err
    assert words in protect("large/1.png", "1.png", spec="pixelize:cell=4").err
    assert "recognisable" not in protect("large", "eighths", spec="pixelize:cell=1/8").err


def test_what_became_of_a_folder_is_said_in_json(protect: Command, tmp_path: Path):
    photos(tmp_path / "photos")
    (tmp_path / "photos" / "broken.png").write_text("no image")
    said = protect("photos", "out", "--json")
    assert said.code == 1
    told = json.loads(said.out)
    assert (told["spec"], told["images"], told["charged"]) == (SPEC, 3, 3)
    assert [each["shape"] for each in told["shapes"]] == [[3, 20, 17]]
    assert "hides any 1 pixel" in told["shapes"][0]["proved"]
    assert [each["first"] for each in told["failed"].values()] == ["broken.png"]
    one = json.loads(protect("photos/0.png", "0.png", "--json").out)
    assert (one["spec"], one["shape"], one["charged"]) == (SPEC, [3, 20, 17], 0)
