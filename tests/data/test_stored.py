"""Images that do not fit memory: the same data, read from a file of the cache that is the user's alone."""

import multiprocessing
import os
import pickle
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from layouts import photograph
from reading import bounded, reader, trainer
from torch import Tensor

from sfumato import data, images
from sfumato.base.files import claim
from sfumato.cli.data import contact_sheet
from sfumato.data import LabelledImages, folder
from sfumato.data.readers import stored
from sfumato.data.readers.stored import Stored
from sfumato.data.readers.table import write
from sfumato.errors import BusyError, ConfigError, DataError, ImageError

PEOPLE, EACH = 10, 4
NAMES = ["about.json", "pixels"]


@pytest.fixture(scope="module")
def _photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 pictures of noise, 4 of each of 10 people."""
    folder = tmp_path_factory.mktemp("album") / "photos"
    for number in range(PEOPLE * EACH):
        noise = torch.randint(0, 256, (3, 9, 9), generator=torch.Generator().manual_seed(number))
        images.write(folder / f"person {number // EACH}" / f"{number}.png", noise.byte())
    return folder


@pytest.fixture
def photos(_photos: Path, tmp_path: Path) -> Path:
    """A copy of them, which a test may change."""
    return Path(shutil.copytree(_photos, tmp_path / "photos"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the cache, and nothing held in memory from here on: not even a batch."""
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SFUMATO_MEMORY", "0")
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def held(_photos: Path) -> LabelledImages:
    """The pictures in memory."""
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("SFUMATO_MEMORY", raising=False)
        return folder(_photos, size=8)


@pytest.fixture(scope="module", params=[0, 7000], ids=["none at once", "one at once"])
def kept(request, _photos, tmp_path_factory):
    """The pictures in a file of a cache, from which so many bytes are read at once."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SFUMATO_CACHE", str(tmp_path_factory.mktemp("stored")))
        patched.setenv("SFUMATO_MEMORY", str(request.param))
        return folder(_photos, size=8)


# The same data


def test_images_above_the_bound_are_stored_and_those_within_it_are_held(photos, cache, monkeypatch):
    size = PEOPLE * EACH * 3 * 8 * 8
    for bound, kind in ((size, Tensor), (size - 1, Stored)):
        monkeypatch.setenv("SFUMATO_MEMORY", str(bound))
        assert type(folder(photos, size=8).images) is kind


def test_stored_data_and_its_splits_are_the_held_ones_and_no_second_reading_decodes(
    photos, held, cache, monkeypatch
):
    kept = folder(photos, size=8)
    assert kept.digest == held.digest
    for name, rows in kept.splits.items():
        part = kept.split(name)
        assert part.digest == held.split(name).digest
        assert part.images._source.data_ptr() == kept.images._source.data_ptr()
        assert part.images._rows.nbytes == 8 * len(rows)  # all that a split costs
    monkeypatch.setattr(images, "read_first", None)
    assert folder(photos, size=8).digest == held.digest


INDEXES: dict[str, Callable[[Tensor], Tensor]] = {
    "a number": lambda pixels: pixels[3],
    "a number from the end": lambda pixels: pixels[-1],
    "a number in a tensor": lambda pixels: pixels[torch.tensor(3)],
    "a slice": lambda pixels: pixels[2:9],
    "a slice with steps": lambda pixels: pixels[1:20:3],
    "nothing": lambda pixels: pixels[4:4],
    "a list": lambda pixels: pixels[[4, 0, 4]],
    "rows": lambda pixels: pixels[torch.tensor([9, 2, 3])],
    "a table of rows": lambda pixels: pixels[torch.tensor([[9, 2], [3, 3]])],
    "a mask": lambda pixels: pixels[torch.arange(len(pixels)) % 3 == 0],
    "planes": lambda pixels: pixels[:, 1],
    "rows and planes": lambda pixels: pixels[torch.tensor([1, 2]), 0],
    "what was taken": lambda pixels: pixels[torch.tensor([9, 2, 3, 5])][1:3],
}
OPERATIONS: dict[str, Callable[[Tensor], object]] = {
    "its shape": lambda pixels: (pixels.shape, pixels.ndim, pixels.dtype, pixels.device, len(pixels)),
    "its size": lambda pixels: (pixels.size(0), pixels.numel(), pixels.nbytes, pixels.is_floating_point()),
    "floats": lambda pixels: pixels.float() / 255,
    "to_float": images.to_float,
    "a sum on the left": lambda pixels: pixels + 1,
    "a sum on the right": lambda pixels: 1 + pixels,
    "a comparison": lambda pixels: pixels == pixels.flip(0),
    "stacked": lambda pixels: torch.stack([pixels[0], pixels[1]]),
    "joined": lambda pixels: torch.cat([pixels, pixels]),
    "parts": lambda pixels: torch.cat([part.float() for part in pixels.split(7)]),
    "so many parts": lambda pixels: torch.cat([part.float() for part in pixels.tensor_split(3)]),
    "parts of some sizes": lambda pixels: pixels.split([2, len(pixels) - 2])[1].flip(0),
    "parts by a function": lambda pixels: torch.cat(torch.split(pixels, 7)),
    "planes apart": lambda pixels: torch.cat(pixels.split(1, dim=1)),
    "one after the other": lambda pixels: torch.stack(list(pixels)),
    "chosen by a function": lambda pixels: torch.index_select(pixels, 0, torch.tensor([3, 1])),
    "an array": lambda pixels: torch.from_numpy(pixels.numpy() * 1),
    "numbers": lambda pixels: pixels.tolist(),
    "written into another": lambda pixels: torch.zeros(len(pixels), 3, 8, 8).copy_(pixels),
    "through a network": lambda pixels: torch.nn.Flatten()(pixels.float()).mean(1),
    "by a NumPy function": lambda pixels: torch.from_numpy(images.as_array(pixels)[:, :1] // 2),
    "a pickle": lambda pixels: pickle.loads(pickle.dumps(pixels)),
    "read-only views": lambda pixels: pixels.contiguous().view(len(pixels), -1).T,
}


@pytest.mark.parametrize("of", ["all", "a split"])
@pytest.mark.parametrize("operation", [*INDEXES.values(), *OPERATIONS.values()], ids=[*INDEXES, *OPERATIONS])
def test_stored_images_are_indexed_and_reckoned_with_as_a_tensor_is(held, kept, operation, of):
    assert type(kept.images) is Stored
    known, found = (
        operation(each.images if of == "all" else each.split("train").images) for each in (held, kept)
    )
    if isinstance(known, Tensor):
        assert isinstance(found, Tensor)
        assert found.shape == known.shape
        assert found.dtype == known.dtype
        assert torch.equal(found, known)
    else:
        assert found == known


def test_a_selection_of_up_to_a_32nd_of_the_bound_is_a_plain_tensor_and_parts_are_not(
    photos, cache, monkeypatch
):
    pixels = folder(photos, size=8).images
    assert {type(part) for part in (*pixels.split(7), *pixels.tensor_split(3))} == {Stored}
    monkeypatch.setenv("SFUMATO_MEMORY", str(32 * 3 * 8 * 8))
    pixels = folder(photos, size=8).images
    assert type(pixels[torch.arange(1)]) is Tensor
    assert type(pixels[torch.arange(2)]) is Stored


def test_a_write_into_rows_that_were_taken_or_a_view_stays_there(photos, held, cache, monkeypatch):
    view = folder(photos, size=8).images.contiguous()
    view[0] = 0
    assert view[0].sum() == 0
    monkeypatch.setenv("SFUMATO_MEMORY", "7000")
    kept = folder(photos, size=8)
    kept.images[torch.tensor([0])].fill_(0)
    assert kept.digest == held.digest


@pytest.mark.parametrize(
    "write_into",
    [lambda pixels: pixels.fill_(0), lambda pixels: pixels.__setitem__(0, 0), lambda pixels: pixels.add_(1)],
    ids=["fill", "item", "add"],
)
def test_a_write_that_would_be_lost_is_refused(photos: Path, cache: Path, write_into):
    with pytest.raises(DataError, match="on images in a file, which are read-only: clone the part"):
        write_into(folder(photos, size=8).images)


def test_a_contact_sheet_and_a_written_table_are_the_same(photos, held, cache, tmp_path):
    kept = folder(photos, size=8)
    sheets = [contact_sheet(each, "class", rows=4, columns=3) for each in (held, kept)]
    assert torch.equal(*sheets)
    written = [write(each, tmp_path / name).parent for each, name in ((held, "held"), (kept, "kept"))]
    names = [path.relative_to(written[0]) for path in written[0].rglob("*.*")]
    assert all((written[0] / name).read_bytes() == (written[1] / name).read_bytes() for name in names)


def test_other_splits_of_the_same_images_need_no_reading(photos: Path, held: LabelledImages, cache: Path):
    rows = {"train": torch.arange(0, 40, 2), "test": torch.arange(1, 40, 2)}
    kept = replace(folder(photos, size=8), splits=rows)
    assert kept.split("test").digest == replace(held, splits=rows).split("test").digest


def test_every_source_of_files_can_be_stored(photos: Path, held: LabelledImages, cache: Path, tmp_path: Path):
    table = write(held, tmp_path / "table")
    for source in (f"folder:{photos}", f"table:{table}"):
        loaded = data.load(source, size=8)
        assert type(loaded.images) is Stored
        assert loaded.digest == held.digest


# Files that are no images


def test_files_that_are_no_images_are_told_of_at_every_reading_and_errors_that_leave_nothing(photos, cache):
    for name in ("person 0/1.png", "person 9/38.png"):
        (photos / name).write_text("no image")
    with pytest.raises(ImageError, match="remove the file"):
        folder(photos, size=8)
    assert pixels_in(cache) == []
    told: list[list[str]] = [[], []]
    for each in told:
        kept = folder(photos, size=8, skip_unreadable=lambda error, each=each: each.append(str(error)))
        assert len(kept) == 38
    assert told[0] == told[1]
    assert [Path(line.split(":")[0]).name for line in told[0]] == ["1.png", "38.png"]
    with pytest.raises(ImageError, match=r"1\.png: .*: remove the file, or pass skip_unreadable"):
        folder(photos, size=8)


def test_a_folder_without_any_image_that_can_be_read_is_refused(tmp_path: Path, cache: Path):
    (tmp_path / "photos" / "a").mkdir(parents=True)
    (tmp_path / "photos" / "a" / "1.png").write_text("no image")
    with pytest.raises(DataError, match="none of the 1 files is an image that can be read"):
        folder(tmp_path / "photos", skip_unreadable=lambda error: None)
    assert pixels_in(cache) == []


# What is known again


def test_a_changed_file_is_noticed_and_one_of_the_same_length_by_its_time(photos: Path, cache: Path):
    before = folder(photos, size=8)
    path = photos / "person 3" / "12.png"
    os.utime(path, ns=(0, 0))
    folder(photos, size=8)
    assert len(pixels_in(cache)) == 2
    photograph(path, 77)
    after = folder(photos, size=8)
    assert after.images[12].unique().tolist() == [77]
    assert before.images[12].unique().numel() > 1  # whoever has read them keeps them


@pytest.mark.parametrize("settings", [{"size": 9}, {"channels": 1}])
def test_other_settings_are_other_images(photos: Path, cache: Path, settings: dict[str, int]):
    folder(photos, size=8)
    kept = folder(photos, **({"size": 8} | settings)).images
    assert kept.shape == (40, settings.get("channels", 3), *[settings.get("size", 8)] * 2)
    assert len(pixels_in(cache)) == 2


@pytest.mark.parametrize("damage", [slice(0), slice(5), slice(100, None)], ids=["empty", "short", "cut"])
def test_a_damaged_file_is_made_anew(photos: Path, held: LabelledImages, cache: Path, damage: slice):
    folder(photos, size=8)
    (path,) = pixels_in(cache)
    path.write_bytes(path.read_bytes()[damage])
    assert folder(photos, size=8).digest == held.digest


# Who can read it, and how it is freed


def test_the_cache_is_that_of_the_user_and_its_owner_alone_can_read_it(photos, cache, monkeypatch, tmp_path):
    old = os.umask(0)
    try:
        cache.mkdir()
        (cache / "images").mkdir(mode=0o777)
        folder(photos, size=8)
    finally:
        os.umask(old)
    (path,) = pixels_in(cache)
    assert (cache / "images").stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o777 == 0o600
    monkeypatch.delenv("SFUMATO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert sys.platform != "linux" or stored.place() == tmp_path / "sfumato" / "images"


def test_what_is_in_the_cache_is_listed_and_cleared_if_nobody_writes_it(photos: Path, cache: Path):
    assert stored.entries() == []
    kept = folder(photos, size=8)
    digest = kept.digest
    (entry,), (path,) = stored.entries(), pixels_in(cache)
    assert (entry.name, entry.shape) == (f"folder:{photos}", (40, 3, 8, 8))
    assert 40 * 3 * 8 * 8 < entry.bytes < 40 * 3 * 8 * 8 + 500
    with claim(path), pytest.raises(BusyError, match="another process is writing it"):
        stored.clear()
    assert stored.clear() == [entry]
    assert list((cache / "images").iterdir()) == []
    assert LabelledImages(kept.name, kept.images, kept.labels, kept.splits).digest == digest  # still readable


# Two processes, and one that is killed


@pytest.fixture(scope="module")
def processes() -> Any:
    """Starts processes that have read the library already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["sfumato.data", "pytest"])
    return context


def started(processes: Any, target: Callable[..., None], *arguments: object) -> tuple[Any, Any]:
    """A process, and the line to it."""
    ours, theirs = processes.Pipe()
    process = processes.Process(target=target, args=(theirs, dict(os.environ), *arguments), daemon=True)
    process.start()
    theirs.close()
    return process, ours


@pytest.mark.parametrize("cleared", [False, True])
def test_a_killed_writer_is_as_if_it_never_was_and_what_it_left_can_be_cleared(
    photos, held, cache, processes, cleared
):
    process, line = started(processes, reader, photos, 20)
    assert line.recv() == "halfway"
    process.kill()
    process.join()
    assert [entry.name for entry in (stored.clear() if cleared else stored.entries())] == [None]
    assert pixels_in(cache) == []
    assert not cleared or list((cache / "images").iterdir()) == []
    assert folder(photos, size=8).digest == held.digest
    assert sorted(path.name for path in (cache / "images").rglob("*") if path.is_file()) == NAMES


def test_of_two_processes_at_once_one_decodes_and_both_have_the_images(photos, held, cache, processes):
    _, first = started(processes, reader, photos, 20)
    assert first.recv() == "halfway"
    _, second = started(processes, reader, photos, 0)  # it would say so before the first image
    assert not second.poll(0.5)
    first.send("go on")
    assert (first.recv(), second.recv()) == ((held.digest, 40), (held.digest, 0))


# What cannot work


def test_a_folder_that_cannot_be_written_is_answered_with_the_cures(photos, cache, tmp_path, monkeypatch):
    monkeypatch.setattr(images, "read_first", None)  # it is known before anything is decoded
    with monkeypatch.context() as patch:
        patch.setattr(stored.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 7679}))
        with pytest.raises(DataError, match=re.escape("cannot be kept there (No space left on device)")):
            folder(photos, size=8)
    (tmp_path / "file").touch()
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "file"))
    with pytest.raises(
        DataError,
        match=r"file/images: 7,680 bytes of images of folder:.* cannot be kept there \(Not a directory\): "
        "make room with `sfumato data cache --clear`, name a folder of your own in SFUMATO_CACHE, or hold "
        "them in memory with SFUMATO_MEMORY=7680",
    ):
        folder(photos, size=8)
    monkeypatch.setenv("SFUMATO_MEMORY", "2G")
    with pytest.raises(ConfigError, match="SFUMATO_MEMORY=2G: a whole number of bytes, such as 2147483648"):
        folder(photos, size=8)


def test_a_disk_that_fills_up_leaves_nothing(photos: Path, cache: Path, processes: Any):
    """By the system's own bound on the length of a file, which is an error of the same kind."""
    _, line = started(processes, bounded, photos)
    assert "cannot be kept there (File too large): make room" in line.recv()
    assert [path.name for path in (cache / "images").rglob("*") if path.is_file()] == ["pixels.lock"]


# Memory


@pytest.mark.skipif(sys.platform != "linux", reason="anonymous memory is what Linux calls it")
def test_reading_splitting_and_training_stay_within_the_bound(tmp_path: Path, processes: Any):
    """12,288 bytes an image: 6,000 take 74 MB, and a shuffled split of them 44 MB more."""
    for number in range(10):
        (tmp_path / "many" / f"{number}").mkdir(parents=True)
    for number in range(6000):
        (tmp_path / "many" / f"{number % 10}" / f"{number}.png").touch()
    lines = [started(processes, trainer, tmp_path, bound)[1] for bound in (1 << 23, 1 << 30)]
    (*of_stored, small), (*of_held, large) = (line.recv() for line in lines)
    assert of_stored == of_held
    assert small < 25_000_000
    assert large > 110_000_000


def pixels_in(cache: Path) -> list[Path]:
    return sorted(cache.glob("images/*/pixels"))
