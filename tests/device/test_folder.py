"""Folders and tar shards: every image released by the ledger, nothing of the originals beside it, and no
kill, full disk or stranger's file that leaves a half.

Jobs run in this process but where processes are the point.
"""

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sfumato import images
from sfumato.base.engines import EngineConfig
from sfumato.base.files import PART
from sfumato.device.jobs.folder import FolderConfig, Outcome, protect_folder
from sfumato.device.jobs.worker import NOBODY, PAGES, fill
from sfumato.device.ledger import Ledger
from sfumato.device.ledger.budgets import Budget
from sfumato.device.storage import Storage
from sfumato.errors import DataError, LedgerError, SfumatoError
from sfumato.protect import parse

SPEC = "dp-pix:cell=4,epsilon=3"
HERE = EngineConfig(workers=1)
SECONDS = 60  # a process that needs longer hangs
NOT_UTF8 = os.fsdecode(b"caf\xe9")


class Place:
    """A device: a source, a target and a ledger, and what is done with them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.source, self.target = root / "source", root / "target"
        self.ledger = root / "device" / "ledger.db"
        self.source.mkdir(parents=True)

    def picture(
        self, name: str, seed: int = 0, *, size: tuple[int, int] = (20, 17), mode: str = "RGB"
    ) -> Path:
        """A picture of noise; equal for equal seeds, sizes and modes where the format is exact."""
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(name, seed, size=size, mode=mode))
        return path

    def tar(self, name: str, members: dict[str, bytes], mode: str = "w", **info: Any) -> Path:
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path, mode) as out:
            for member, content in members.items():
                out.addfile(member_of(member, content, **info), io.BytesIO(content))
        return path

    def run(self, spec: str = SPEC, **config: Any) -> Outcome:
        settings = FolderConfig(**config)
        return protect_folder(self.source, self.target, parse(spec), self.ledger, settings, engine=HERE)

    def budget(self, words: str | None, person: str | None = None) -> float:
        with Ledger(self.ledger) as ledger:
            return ledger.set_budget(None if words is None else Budget.parse(words), person=person)

    def outputs(self) -> dict[str, bytes]:
        """Path below the target -> content; without the manifest."""
        return {
            str(path.relative_to(self.target)): path.read_bytes()
            for path in sorted(self.target.rglob("*"))
            if path.is_file() and path.name != "manifest.json"
        }

    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.target / "manifest.json").read_text())
        return found

    def times(self) -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in self.target.rglob("*") if path.suffix != ".json"}

    def kept(self, spec: str = SPEC) -> dict[bytes, bytes]:
        """Digest of an original -> what the ledger keeps."""
        database = sqlite3.connect(self.ledger)
        rows = database.execute(
            "select images.image, release from charges join images on images.id = charges.image "
            "join terms on terms.id = terms where spec = ?",
            (spec,),
        ).fetchall()
        database.close()
        return dict(rows)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def encoded(name: str, seed: int = 0, *, size: tuple[int, int] = (20, 17), mode: str = "RGB") -> bytes:
    shape = size if mode == "L" else (*size, 3)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    buffer = io.BytesIO()
    kind = {".jpg": "JPEG", ".jpeg": "JPEG", ".gif": "GIF", ".tif": "TIFF", ".bmp": "BMP", ".webp": "WEBP"}
    Image.fromarray(pixels).save(buffer, format=kind.get(Path(name).suffix.lower(), "PNG"))
    return buffer.getvalue()


def member_of(name: str, content: bytes, **info: Any) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for key, value in info.items():
        setattr(member, key, value)
    return member


def members(content: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(content)) as shard:
        return {member.name: shard.extractfile(member).read() for member in shard}  # type: ignore[union-attr]


def seen(values: bytes, original: Path | bytes, cell: int = 4) -> np.ndarray:
    """What the ledger keeps of an original, with cells enlarged: (C, H, W)."""
    channels, height, width = images.read(original, channels=None).shape
    cells = np.frombuffer(values, np.uint8).reshape(channels, -(-height // cell), -(-width // cell))
    return cells.repeat(cell, 1).repeat(cell, 2)[:, :height, :width]


def counts(outcome: Outcome) -> dict[str, int]:
    return {cause: count for cause, (count, _) in outcome.failures.items()}


NAMES = [
    *(f"{NOT_UTF8}.png", f"{NOT_UTF8}/a.png", "new\nline.png", "\x1b[31mred.png", "a'b\"c;d.png"),
    *("50%_*.png", " .png", "-rf.png", "e\u0301.png", "😀.png", "x" * 251 + ".png"),
]


def test_a_name_is_kept_byte_for_byte(place: Place):
    for number, name in enumerate(NAMES):
        place.picture(name, number)
    assert not place.run().failures
    assert set(place.outputs()) == {*NAMES} == {entry["file"] for entry in place.manifest()["outputs"]}
    before = place.times()
    assert place.run().earlier == len(NAMES)
    assert place.times() == before


def test_releases_have_the_names_of_the_originals_at_any_depth_and_the_suffix_of_the_format(place: Place):
    deep, long = "/".join("abcdefghijklmnopqrst"), "x" * 251 + ".png"
    for name in (
        "one.jpg",
        "2.PNG",
        "anna/x.y.jpeg",
        f"{deep}/z.webp",
        "anna/b.tif",
        "c.bmp",
        "c2.gif",
        long,
    ):
        place.picture(name, seed=len(name))
    outcome = place.run(format_name="WEBP")
    wanted = ["one.webp", "2.webp", "anna/x.y.webp", "anna/b.webp", "c.webp", "c2.webp"]
    assert set(place.outputs()) == {*wanted, f"{deep}/z.webp"}
    assert counts(outcome) == {"a name that is too long for the target": 1}
    assert outcome.shapes.total() == 7


def test_neither_a_release_nor_a_file_of_somebody_is_replaced_by_another_of_its_name(place: Place):
    place.picture("a.jpg", 1)
    place.run()
    (place.target / "b.png").write_bytes(b"thesis")
    before = place.outputs()
    place.picture("a.bmp", 2)  # comes before a.jpg in the folder
    place.picture("b.jpg", 3)
    assert sum(counts(place.run()).values()) == 2
    assert place.outputs() == before


@pytest.mark.parametrize(
    ("file", "inner"), [("a.jpg", "a.png/x.png"), ("a.tgz", "a.tar/x.png"), ("z.png", "manifest.json/x.png")]
)
def test_a_file_that_would_take_the_name_of_a_folder_fails_by_cause(place: Place, file: str, inner: str):
    if file.endswith(".tgz"):
        place.tar(file, {"y.png": encoded("y.png", 1)}, "w:gz")
    else:
        place.picture(file, 1)
    place.picture(inner, 2)
    place.picture("last.png", 3)
    place.run()  # counts one of them as failed, and ends
    assert "last.png" in place.outputs()
    assert place.manifest()["images"] >= 2


@pytest.mark.parametrize(
    ("format_name", "suffix", "error"),
    # JPEG without subsampling, of quality 95: about a level on photographs, more on noise.
    [("PNG", "png", 0), ("WEBP", "webp", 0), ("BMP", "bmp", 0), ("JPEG", "jpg", 5), ("CELLS", "png", 0)],
)
def test_every_release_shows_what_the_ledger_keeps_exactly_and_as_jpeg_about(
    place: Place, format_name: str, suffix: str, error: float
):
    place.picture("a.png", 0)
    place.picture("b/c.png", 1, mode="L")
    place.picture("d.jpg", 2, size=(9, 31))
    place.picture("e.bmp", 3, size=(4, 4), mode="L")
    cells = format_name == "CELLS"
    outcome = place.run(cells=cells) if cells else place.run(format_name=format_name)
    assert outcome.shapes == {(3, 20, 17): 1, (1, 20, 17): 1, (3, 9, 31): 1, (1, 4, 4): 1}
    assert place.manifest()["one_pixel_is"] == ("a cell" if cells else "a pixel")
    kept = place.kept()
    for original in place.source.rglob("*.*"):
        path = place.target / original.relative_to(place.source).with_suffix(f".{suffix}")
        shown, image = images.read(path, channels=None), images.read(original, channels=None)
        values = kept[images.digest(image)]
        if cells:
            assert shown.numpy().tobytes() == values
        else:
            assert np.abs(shown.numpy().astype(int) - seen(values, original)).mean() <= error


def test_copies_of_one_picture_have_one_release_and_one_charge_also_in_a_second_target(place: Place):
    for name in ("a.png", "b/copy.png", "b/same pixels.bmp"):
        place.picture(name, 7)
    place.tar("t.tar", {"x/again.png": encoded("again.png", 7)})
    assert place.run().charged == 1
    first, manifest = place.outputs(), (place.target / "manifest.json").read_bytes()
    copies = {name: content for name, content in first.items() if name != "t.tar"}
    assert len({*members(first["t.tar"]).values(), *copies.values()}) == 1
    place.target = place.root / "second"
    assert place.run().charged == 0
    assert place.outputs() == first
    assert (place.target / "manifest.json").read_bytes() == manifest


def test_the_manifest_names_exactly_the_outputs_and_states_the_guarantee_of_every_shape(place: Place):
    place.picture("b.png", 1)
    place.picture("a/z.png", 2, mode="L")
    place.picture("a.jpg", 3)
    place.tar("t.tar", {"1.png": encoded("1.png", 4), "2.png": encoded("2.png", 5, mode="L")})
    outcome, manifest = place.run(), place.manifest()
    assert [(entry["file"], entry["sha256"], entry["bytes"]) for entry in manifest["outputs"]] == [
        (name, hashlib.sha256(content).hexdigest(), len(content))
        for name, content in sorted(place.outputs().items())
    ]
    assert manifest["outputs"][-1]["shapes"] == {"1x20x17": 1, "3x20x17": 1}
    assert (manifest["spec"], manifest["format"], manifest["images"]) == (SPEC, "PNG", 5)
    assert outcome.manifest == place.target / "manifest.json"
    stated = {tuple(row["shape"]): row for row in manifest["guarantees"]}
    assert {shape: row["images"] for shape, row in stated.items()} == {(3, 20, 17): 3, (1, 20, 17): 2}
    for shape, row in stated.items():
        assert row["proved"]["words"] == str(parse(SPEC).guarantee(shape))
        assert row["naming"] == "nothing is proved about who it shows"
        assert (row["proved"]["value"], row["proved"]["pixels"]) == (3, 1)


def test_the_manifest_says_nothing_that_identifies_an_original(place: Place):
    path = place.picture("a.jpg", 1)
    (place.source / "anna's secret.png").write_bytes(b"no image")
    place.run()
    assert list(place.manifest()["failed"].values()) == [1]
    text = (place.target / "manifest.json").read_text()
    image = images.read(path)
    for content in (path.read_bytes(), image.numpy().tobytes(), image.permute(1, 2, 0).numpy().tobytes()):
        assert hashlib.sha256(content).hexdigest() not in text
    assert images.digest(image).hex() not in text
    assert not [word for word in (str(place.root), ".jpg", "anna") if word in text]


def test_with_new_names_which_come_from_a_secret_of_the_target_nothing_tells_an_old_one(place: Place):
    place.picture("anna/zurich.jpg", 1)
    place.picture("bert/smith.png", 2)
    (place.source / "anna" / "diagnosis.png").write_bytes(b"no image")
    place.picture("anna/tiny.png", 3, size=(2, 2))
    place.tar("clinic/patients.tar", {"carla/mueller.png": encoded("x.png", 4), "carla/x.png": b"no image"})
    place.run(rename=True)
    everything = "\n".join(str(path.relative_to(place.target)) for path in place.target.rglob("*")).encode()
    everything += b"".join(path.read_bytes() for path in place.target.rglob("*") if path.is_file())
    words = "anna zurich bert smith diagnosis tiny clinic patients carla mueller"
    assert [word for word in words.split() if word.encode() in everything.lower()] == []
    first, times = place.outputs(), place.times()
    assert (len(first), place.manifest()["renamed"]) == (3, True)
    place.run(rename=True)
    assert place.times() == times
    for name in (*first, "manifest.json"):
        (place.target / name).unlink()
    place.run(rename=True)  # the secret outlives its files
    assert place.outputs() == first
    place.target = place.root / "second"
    place.run(rename=True)
    assert not set(first) & set(place.outputs())


def test_with_new_names_neither_time_nor_order_tells_the_folder_of_an_original(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    pictures = {
        f"{person}/{i}.png": encoded("x.png", 20 * i + p) for p, person in enumerate("ab") for i in range(12)
    }
    for name in pictures:
        place.picture(name).write_bytes(pictures[name])
    place.tar("shard.tar", pictures, mtime=9)
    written: list[str] = []
    file = Storage.file
    monkeypatch.setattr(
        Storage, "file", lambda self, name, **k: (written.append(name), file(self, name, **k))[1]
    )
    place.run("pixelize:cell=4", rename=True)
    place.picture("a/later.png", 99)
    place.run("pixelize:cell=4", rename=True)
    images = [name for name in written if name.endswith(".png")][:24]
    times = {path.stat().st_mtime_ns for path in (place.target, *place.target.rglob("*"))}
    assert len(times) == 1  # of the manifest, of folders and of what came later, too
    assert images == sorted(images)  # so that neither folders nor inodes keep the order
    (shard,) = (content for name, content in place.outputs().items() if name.endswith(".tar"))
    assert list(members(shard)) == sorted(members(shard))
    files = [entry["file"] for entry in place.manifest()["outputs"]]
    assert files == sorted(files)


def test_a_second_run_does_what_is_new_changed_or_gone_and_nothing_else(place: Place):
    for i in range(6):
        place.picture(f"{i}.png", i)
    place.tar("t.tar", {"1.png": encoded("1.png", 7)})
    place.tar("u.tar", {"1.png": encoded("1.png", 8)})
    first = place.run()
    times, before, manifest = place.times(), place.outputs(), place.manifest()
    again = place.run()
    assert (again.earlier, again.charged, again.shapes) == (8, 0, first.shapes)
    assert (place.times(), place.outputs(), place.manifest()) == (times, before, manifest)
    os.utime(place.source / "0.png", ns=(0, 1))  # touched only
    (place.target / "1.png").unlink()
    (place.target / "2.png").write_bytes(b"")
    assert (place.run().charged, place.outputs()) == (0, before)
    os.utime(place.picture("3.png", 20), ns=(0, 2))  # of the same size, perhaps, but of another time
    place.picture("6.png", 21)
    (place.source / "4.png").write_bytes(b"no image any more")
    (place.source / "u.tar").write_bytes(b"no tar any more")
    last, after = place.run(), place.outputs()
    assert (last.charged, last.earlier, sum(counts(last).values())) == (2, 5, 2)
    assert set(after) == {*before, "6.png"} - {"4.png", "u.tar"}
    assert {name for name in after if before.get(name) != after[name]} == {"3.png", "6.png"}
    assert {entry["file"] for entry in place.manifest()["outputs"]} == set(after)


def test_images_are_told_by_their_first_bytes_and_further_pictures_are_counted(place: Place):
    gif, tiff = io.BytesIO(), io.BytesIO()
    pages = [Image.fromarray(np.full((20, 17, 3), 60 * i, np.uint8)) for i in range(1, 4)]
    pages[0].save(gif, "GIF", save_all=True, append_images=pages[1:])
    pages[0].save(tiff, "TIFF", save_all=True, append_images=pages[1:])
    files = {"a.jfif": encoded("a.jpg", 1), "b": encoded("b.png", 2), "c.1": gif.getvalue()}
    for name, content in files.items():
        place.picture(name).write_bytes(content)
    place.tar("t.tar", {"scan.of.page": tiff.getvalue(), "d.png": encoded("d.png", 3), "notes": b"words"})
    for _ in range(2):  # the second run says the same of what is there
        outcome = place.run()
        assert outcome.shapes.total() == 5
        assert outcome.left_out == {PAGES: 4, "no images by their first bytes": 1}
        assert place.manifest()["left_out"] == outcome.left_out
    assert set(place.outputs()) == {"a.png", "b.png", "c.1.png", "t.tar"}


def test_each_person_needs_a_folder_and_images_outside_are_counted(place: Place):
    place.picture("a.png", 1)
    with pytest.raises(DataError, match="no image lies in a sub-folder, and each person needs one"):
        place.run(people=True)
    assert not place.outputs()
    place.picture("anna/b.png", 2)
    assert place.run(people=True).counts == {NOBODY: 1}


@pytest.mark.parametrize("name", ["photo.png", "x.tar.png"])
def test_releases_of_one_name_are_refused_before_a_charge_however_far_apart(place: Place, name: str):
    place.tar("x.tar", {name: encoded(name, 1)})
    place.picture("x.a.png", 2)  # it lies between them
    place.tar("x.tar.gz", {name: encoded(name, 3)}, "w:gz")
    outcome = place.run()
    assert outcome.charged == outcome.shapes.total() == 2
    assert sum(counts(outcome).values()) == 1


CHANGES = {"format_name": "BMP", "cells": True, "rename": True, "people": True, "size": 9, "channels": 1}


@pytest.mark.parametrize("name", ["spec", *(each.name for each in dataclasses.fields(FolderConfig))])
def test_a_target_of_other_settings_is_refused(place: Place, name: str):
    place.picture("a/a.png")
    place.run()
    before, manifest = place.outputs(), place.manifest()
    new = {"spec": "dp-pix:cell=5,epsilon=3", **CHANGES}[name]
    with pytest.raises(DataError, match=f"holds a run with {name.removesuffix('_name')} .*, not {new}: "):
        place.run(**{name: new})
    assert (place.outputs(), place.manifest()) == (before, manifest)


def test_a_target_of_another_source_is_refused_and_an_emptied_one_takes_other_settings(place: Place):
    place.picture("a.png")
    place.run()
    place.source = place.root / "other"
    place.picture("b.png")
    with pytest.raises(DataError, match=f"with source {place.root}/source, not {place.source}: name"):
        place.run()
    for path in place.target.iterdir():
        path.unlink()
    place.run(format_name="BMP")
    assert set(place.outputs()) == {"b.bmp"}


def test_a_target_that_holds_somebodys_files_is_refused_and_left(place: Place):
    place.picture("a.png")
    place.target.mkdir()
    (place.target / "thesis.txt").write_text("chapter 1")
    with pytest.raises(DataError, match="is not empty and not from an earlier run: name a new folder"):
        place.run()
    assert place.outputs() == {"thesis.txt": b"chapter 1"}
    (place.target / "thesis.txt").unlink()
    place.run()
    place.ledger = place.root / "other" / "ledger.db"  # of another device
    with pytest.raises(DataError, match="is not empty and not from an earlier run"):
        place.run()
    place.target = place.target / "a.png"
    with pytest.raises(DataError, match=r"a.png: is not a folder: name a new folder"):
        place.run()


@pytest.mark.parametrize(
    ("place_of", "path", "message"),
    [
        ("source", "gone", "gone: no such folder or file"),
        ("source", "a.png", "a.png: is neither a folder nor a tar file"),
        ("source", "pipe.tar", "pipe.tar: is neither a folder nor a tar file"),
        ("target", "..", "is not empty and not from an earlier run"),  # around the source
        ("ledger", "../../out/ledger.db", "lies in .*out, which leaves the device"),
        *(
            ("target", inside, "lies in .*source, whose images would be")
            for inside in (".", "out", "a/b", "../source", "../link/out")
        ),
    ],
)
def test_a_source_target_or_ledger_in_the_wrong_place_is_refused(
    tmp_path: Path, place_of: str, path: str, message: str
):
    place = Place(tmp_path / "photos")
    place.ledger, place.target = tmp_path / "ledger.db", tmp_path / "out"
    place.picture("a.png")
    os.mkfifo(place.source / "pipe.tar")
    (place.root / "link").symlink_to("source")
    setattr(place, place_of, place.source / path)
    with pytest.raises(DataError, match=message):
        place.run()
    # The ledger knows the originals, and the target is sent away.
    assert not list((tmp_path / "out").rglob("*"))
    assert {entry.name for entry in (tmp_path / "photos" / "source").iterdir()} == {"a.png", "pipe.tar"}


@pytest.mark.parametrize(
    ("content", "size", "cause"),
    [
        (b"dear diary", 9, "not an image that can be read"),
        (None, 18, "an image that pixelize:cell=18 does not fit"),
    ],
)
def test_a_run_that_releases_nothing_leaves_no_folder_and_no_manifest(
    place: Place, content: bytes | None, size: int, cause: str
):
    path = place.picture("a.png")
    path.write_bytes(content or path.read_bytes())
    place.target.mkdir()
    outcome = place.run(f"pixelize:cell={size}")
    assert (counts(outcome), outcome.manifest) == ({cause: 1}, None)
    assert list(place.target.iterdir()) == []  # it was there before
    place.target.rmdir()
    place.run(f"pixelize:cell={size}")
    assert not place.target.exists()
    left = {path.name for path in place.root.rglob("*")} - {"source", "a.png"}
    assert left <= {"device", "ledger.db", "ledger.db.runs", "witness"}  # and no journal


def test_a_damaged_ledger_or_journal_stops_the_job_before_anything_is_written(place: Place):
    place.picture("a.png")
    place.ledger.parent.mkdir()
    place.ledger.write_text("dear diary " * 100)
    with pytest.raises(LedgerError):
        place.run()
    assert place.outputs() == {}
    place.ledger.unlink()
    place.run()
    (journal,) = place.ledger.parent.glob("ledger.db.runs/*.db")
    assert journal.parent.stat().st_mode & 0o077 == 0  # it names originals
    journal.write_text("dear diary " * 1000)
    with pytest.raises((SfumatoError, OSError)):
        place.run()


def test_broken_files_fail_by_cause_and_the_rest_goes_on(place: Place):
    good = place.picture("good.png", 1).read_bytes()
    place.picture("zz.jpg", 2)
    place.picture("small.png", 1, size=(3, 90))
    broken = {"empty.png": b"", "text.jpg": b"diary", "cut.png": good[: len(good) // 2], "bit.jpg": good[:9]}
    for name, content in broken.items():
        (place.source / name).write_bytes(content)
    for _ in range(2):
        outcome = place.run()
        assert outcome.failures["an image that dp-pix:cell=4,epsilon=3 does not fit"] == (1, "small.png")
        assert sum(counts(outcome).values()) == len(broken) + 1
        assert not [cause for cause in outcome.failures if "/" in cause or "cut" in cause]
        assert set(place.outputs()) == {"good.png", "zz.png"}
        assert place.manifest()["failed"] == counts(outcome)
    place.picture("bit.jpg", 3)  # it was mended
    assert sum(counts(place.run()).values()) == len(broken)
    assert "bit.png" in place.outputs()


def test_what_only_looks_like_a_file_fails_by_cause_and_what_is_left_out_is_counted(place: Place):
    for name in ("a.png", ".hidden.png", ".cache/b.png"):
        place.picture(name)
    for name in ("notes.txt", "Makefile"):
        (place.source / name).write_text("")
    links = {"loop": "..", "outside": place.root, "gone.png": "nowhere", "self.png": "self.png"}
    for name, target in links.items():
        (place.source / name).symlink_to(target)
    os.mkfifo(place.source / "pipe.png")
    os.mkfifo(place.source / "pipe.tar")
    outcome = place.run()  # which never hangs
    assert outcome.left_out == {"hidden": 2, "no images by their first bytes": 2, "links to folders": 2}
    assert sum(counts(outcome).values()) == 4
    assert set(place.outputs()) == {"a.png"}


def test_a_link_is_released_as_a_file_of_its_own_if_it_stays_in_the_folder_or_its_folder_is_trusted(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    picture, private = place.picture("a/x.png", 5), place.root / "private"
    private.mkdir()
    (private / "diary.png").write_bytes(encoded("x.png", 6))
    (place.source / "link.png").symlink_to("a/x.png")
    (place.source / "out.png").symlink_to(private / "diary.png")
    assert place.run().left_out == {"links out of the folder": 1}
    assert set(place.outputs()) == {"a/x.png", "link.png"}
    assert not (place.target / "link.png").is_symlink()
    assert picture.read_bytes() == encoded("x.png", 5)
    monkeypatch.setenv("SFUMATO_OUTSIDE", str(private))
    place.run()
    assert set(place.outputs()) == {"a/x.png", "link.png", "out.png"}


def test_images_over_their_budget_fail_and_nothing_of_them_is_written(place: Place):
    for i in range(4):
        place.picture(f"{i}.png", i)
    place.run("dp-pix:cell=5,epsilon=1")
    place.target = place.root / "second"
    (place.source / "1.png").unlink()
    place.picture("new.png", 9)
    place.budget("epsilon=3.5")
    outcome = place.run()
    assert counts(outcome) == {"over the budget of an image: epsilon=3.5 for any 1 pixel": 3}
    assert (outcome.charged, len(place.kept()), set(place.outputs())) == (1, 1, {"new.png"})


def test_of_a_person_over_their_budget_as_many_pass_as_fit(place: Place):
    for i in range(5):
        place.picture(f"anna/{i}.png", i)
    place.picture("bert/6.png", 6)
    place.budget("epsilon=9.5", "anna")
    outcome = place.run(people=True)
    assert counts(outcome) == {"over the budget of a person: epsilon=9.5 for any 1 pixel": 2}
    assert outcome.charged == 4
    assert set(place.outputs()) == {"anna/0.png", "anna/1.png", "anna/2.png", "bert/6.png"}
    place.budget("epsilon=15", "anna")
    assert not place.run(people=True).failures
    place.tar("anna/shard.tar", {f"deep/{i}.png": encoded("x.png", 10 + i) for i in range(3)})
    place.budget("epsilon=21", "anna")
    assert sum(counts(place.run(people=True)).values()) == 1  # of the shard, which is of that person, too
    assert len(members(place.outputs()["anna/shard.tar"])) == 2
    assert len(place.outputs()) == 7


@pytest.mark.parametrize(
    ("name", "mode"),
    [("t.tar", "w"), ("t.tar.gz", "w:gz"), ("t.tgz", "w:gz"), ("t.TAR", "w"), ("t.tar", "w:xz")],
)
def test_a_shard_becomes_a_plain_shard_of_its_releases(place: Place, name: str, mode: str):
    originals = {
        "a.png": encoded("a.png", 1),
        "deep/er/b.jpg": encoded("b.jpg", 2),
        "./c.png": encoded("c", 3),
    }
    place.tar(name, originals, mode)
    place.tar("empty.tar", {})
    outcome = place.run()
    assert not outcome.failures
    assert members(place.outputs()["empty.tar"]) == {}
    shown = members(place.outputs()["t.tar"])
    assert [str(Path(member)) for member in shown] == ["a.png", "deep/er/b.png", "c.png"]
    kept = place.kept()
    for released, original in zip(shown.values(), originals.values(), strict=True):
        expected = seen(kept[images.digest(images.read(original))], original)
        assert np.array_equal(images.read(released).numpy(), expected)


def test_a_shard_by_itself_is_a_source(place: Place):
    place.source = place.tar("t.tar.gz", {"a.png": encoded("a.png", 1)}, "w:gz")
    assert place.run().charged == 1
    assert list(members(place.outputs()["t.tar"])) == ["a.png"]
    assert place.run().earlier == 1


@pytest.mark.parametrize("tar_format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_no_metadata_of_a_shard_or_its_members_survives(place: Place, tar_format: int):
    planted = {"uname": "annaowner", "gname": "annagroup", "uid": 7331, "gid": 7332, "mtime": 1234567890}
    extra = (
        {} if tar_format != tarfile.PAX_FORMAT else {"pax_headers": {"comment": "annacomment", "k": "annak"}}
    )
    path = place.source / "t.tar"
    headers = {"comment": "annaglobal"} if extra else None
    with tarfile.open(path, "w", format=tar_format, pax_headers=headers) as out:
        content = encoded("a.png", 1)
        out.addfile(member_of("a.png", content, mode=0o751, **planted, **extra), io.BytesIO(content))
    place.run()
    released = place.outputs()["t.tar"]
    assert b"anna" not in released
    with tarfile.open(fileobj=io.BytesIO(released)) as shard:
        (member,) = shard.getmembers()
    assert (member.uid, member.gid, member.uname, member.gname, member.mtime) == (0, 0, "", "", 0)
    assert (member.mode, member.pax_headers, member.linkname) == (0o644, {}, "")


def test_members_that_are_no_images_are_left_out_or_fail_and_the_rest_goes_on(place: Place):
    content = encoded("a.png", 1)
    with tarfile.open(place.source / "t.tar", "w") as out:
        for name, data in (
            ("a.png", content),
            ("notes.txt", b"hi"),
            ("x/.hidden.png", content),
            ("b.png", b""),
        ):
            out.addfile(member_of(name, data), io.BytesIO(data))
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE):
            out.addfile(member_of("device.png", b"", type=kind, linkname="/etc/passwd"))
        out.addfile(member_of("c.png", content), io.BytesIO(content))
    before = None
    for _ in range(2):  # the second run leaves it as it is
        outcome = place.run()
        assert outcome.left_out == {"hidden, or no regular files": 5, "no images by their first bytes": 1}
        assert sum(counts(outcome).values()) == 1
        assert list(members(place.outputs()["t.tar"])) == ["a.png", "c.png"]
        assert before in (None, place.times())
        before = place.times()


@pytest.mark.parametrize("name", ["../a.png", "/a.png", "x/../../a.png", "//a.png", "x/..", "", "."])
def test_a_member_without_a_name_or_that_leads_out_of_the_shard_is_never_released(place: Place, name: str):
    place.tar("t.tar", {name: encoded("a.png", 1), "good.png": encoded("a.png", 2)})
    outcome = place.run()
    assert list(members(place.outputs()["t.tar"])) == ["good.png"]
    assert outcome.failures or outcome.left_out or name in ("", ".")


@pytest.mark.parametrize("names", [("a.jpg", "a.png"), ("a.png", "./a.png"), ("x/a.png", "x//a.png")])
def test_no_two_members_of_a_released_shard_have_one_name(place: Place, names: tuple[str, str]):
    place.tar("t.tar", {name: encoded(name, i) for i, name in enumerate(names)})
    assert sum(counts(place.run()).values()) == 1
    assert len(members(place.outputs()["t.tar"])) == 1


def tar_of(mode: str, count: int = 4, **info: Any) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, format=tarfile.PAX_FORMAT) as out:
        for i in range(count):
            content = encoded("a.png", i)
            out.addfile(member_of(f"{i}.png", content, **info), io.BytesIO(content))
    return buffer.getvalue()


DAMAGED = {
    **{"empty": b"", "no tar": b"dear diary" * 200, "short": tar_of("w")[:1000]},
    "short gz": tar_of("w:gz")[:1500] + bytes(500),
    **{f"short {kind}": tar_of(f"w:{kind}")[:2000] for kind in ("bz2", "xz")},
    # Nonsense of a sparse file, which tarfile does not expect.
    "bad header": tar_of("w", 1, pax_headers={"GNU.sparse.map": "x,y", "GNU.sparse.size": "z"}),
}


def test_a_damaged_shard_fails_by_cause_and_the_rest_goes_on(place: Place):
    for name, content in DAMAGED.items():
        (place.source / f"{name}.tar").write_bytes(content)
    place.picture("z.png", 2)
    outcome = place.run()
    assert sum(counts(outcome).values()) == len(DAMAGED)
    assert all(cause.startswith("a damaged tar file") for cause in outcome.failures)
    assert set(place.outputs()) == {"z.png"}
    assert not list(place.target.rglob(PART))


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_no_damage_to_a_shard_stops_the_job(place: Place, mode: str):
    whole, rng = tar_of(mode), np.random.default_rng(0)
    for i in range(60):
        content = bytearray(whole)
        # Most of it in the first header, where it tells.
        start = int(rng.integers(0, 512 if i % 2 else len(content) - 8))
        content[start : start + 8] = rng.bytes(int(rng.integers(1, 9)))
        (place.source / f"{i}.tar").write_bytes(content)
    place.picture("z.png", 2)
    place.run()
    assert "z.png" in place.outputs()


def test_a_shard_that_cannot_be_read_fails_by_cause_and_the_rest_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    place.tar("t.tar", {"a.png": encoded("a.png", 1)})
    place.picture("z.png", 2)

    def refuse(storage: Storage, name: str) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Storage, "stream", refuse)
    assert counts(place.run()) == {"a tar file that cannot be read (Permission denied)": 1}
    assert set(place.outputs()) == {"z.png"}


def test_a_full_disk_stops_the_job_with_nothing_half_written_and_the_next_run_ends_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    written, write = list[Path](), Path.write_bytes

    def write_or_fail(path: Path, data: bytes) -> int:
        if len(written) == 2:
            write(path, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        written.append(path)
        return write(path, data)

    for i in range(5):
        place.picture(f"{i}.png", i)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", write_or_fail)
        with pytest.raises(OSError, match="No space left on device; finished work is kept: fix that"):
            place.run()
    first = place.outputs()
    assert len(first) == 2
    assert all(images.read(content) is not None for content in first.values())
    assert place.run().charged == 0
    assert len(place.outputs()) == 5
    assert place.outputs().items() >= first.items()


def test_a_second_run_into_one_target_is_refused(place: Place):
    place.picture("a.png")
    place.target.mkdir()
    handle = os.open(place.target, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)  # as another run has it
    with pytest.raises(DataError, match="target: another run is writing here: wait for it, or name another"):
        place.run()
    assert place.outputs() == {}
    os.close(handle)
    assert place.run().charged == 1


def test_two_processes_write_the_same_files_as_one(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sfumato.device.jobs.folder._CHUNK_FILES", 4)
    for i in range(6):
        place.picture(f"anna/{i}.png", i, size=(20, 17 + i % 2))
    place.picture("copy.png", 3, size=(20, 18))
    place.picture("grey.png", 20, mode="L")
    place.picture("small.png", 21, size=(3, 3))
    place.picture("grey.jpg", 22)  # takes the name of grey.png
    (place.source / "bad.png").write_bytes(b"no")
    place.tar("t.tar", {"1.png": encoded("x.png", 30), "2.png": encoded("x.png", 0), "3.png": b"no"})
    one = place.run()
    outputs, manifest = place.outputs(), place.manifest()
    place.target = place.root / "second"
    # Relative paths are those of the process that was started.
    monkeypatch.chdir(place.root)
    engine = EngineConfig(workers=2)
    two = protect_folder("source", "second", parse(SPEC), "device/ledger.db", engine=engine)
    assert place.outputs() == outputs
    assert place.manifest() == manifest
    assert (two.charged, counts(two), two.shapes) == (0, counts(one), one.shapes)


IN_SMALL_TASKS = """
import sys
from sfumato.device.jobs import folder
from sfumato.base.engines import EngineConfig
from sfumato.protect import parse

if __name__ == "__main__":
    source, target, spec, ledger = sys.argv[1:]
    folder._CHUNK_FILES = 4
    folder.protect_folder(source, target, parse(spec), ledger, engine=EngineConfig(workers=2))
"""


def test_a_killed_run_goes_on_and_nothing_is_lost_or_spent_twice(place: Place):
    for i in range(120):
        place.picture(f"{i % 3}/{i}.png", i, size=(20, 17 + i % 4))
    for i in range(4):
        place.tar(f"{i}.tar", {f"{j}.png": encoded("x.png", 1000 + 20 * i + j) for j in range(10)})
    errors = place.target.with_name("errors.txt")
    with (
        errors.open("wb") as file,
        subprocess.Popen(
            [sys.executable, "-c", IN_SMALL_TASKS, place.source, place.target, SPEC, place.ledger],
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=file,
        ) as process,
    ):
        until = time.monotonic() + SECONDS
        while len(list(place.target.rglob("[!.]*.png"))) < 5 and time.monotonic() < until:
            time.sleep(0.002)
        os.killpg(process.pid, signal.SIGKILL)
    # A worker may die a moment later, in the middle of a commit that is there after all.
    until = time.monotonic() + 5
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < until:
            os.killpg(process.pid, 0)
            time.sleep(0.01)
    # Hidden files are the halves that a kill may leave.
    first = {
        name: content for name, content in place.outputs().items() if not Path(name).name.startswith(".")
    }
    assert 5 <= len(first) < 124, errors.read_text()
    charged = len(place.kept())

    outcome = place.run()
    assert not outcome.failures
    outputs = place.outputs()
    assert outputs.items() >= first.items()
    assert len(outputs) == 124
    kept = place.kept()
    assert len(kept) == charged + outcome.charged == 120 + 40
    for path in place.source.rglob("*.png"):
        released = images.read(outputs[str(path.relative_to(place.source))]).numpy()
        assert np.array_equal(released, seen(kept[images.digest(images.read(path))], path))
    assert {entry["file"]: entry["sha256"] for entry in place.manifest()["outputs"]} == {
        name: hashlib.sha256(content).hexdigest() for name, content in outputs.items()
    }


def test_sizes_of_png_files_fall_in_buckets_and_readers_see_the_same_pixels(place: Place):
    """Two sizes in each octave: a size alone says which of them, and no more."""
    for number in range(4):
        place.picture(f"{number}.png", number)
    place.run()
    sizes = {len(content) for content in place.outputs().values()}
    assert sizes
    assert all(size in (2 << (size.bit_length() - 2), 3 << (size.bit_length() - 2)) for size in sizes)
    draw = np.random.default_rng(0)
    for side in (1, 2, 7, 30, 31, 32, 90):
        image = draw.integers(0, 256, (3, side, side), np.uint8)
        plain = images.encode(image)
        filled = fill(plain)
        assert np.array_equal(images.read_array(filled), image)
        assert len(plain) < len(filled) <= 1.5 * (len(plain) + 12)
        assert filled.count(b"IEND") == plain.count(b"IEND") == 1
        with Image.open(io.BytesIO(filled)) as opened:
            opened.verify()  # checksums of all chunks
