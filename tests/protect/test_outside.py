"""Images of an outside tool: the file that belongs to an original, and an error wherever there is none."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from sfumato import images
from sfumato.base.engines import EngineConfig
from sfumato.device.jobs.folder import protect_folder
from sfumato.device.ledger import Ledger
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ArtefactError, DataError, ImageError
from sfumato.protect.outside import Outside
from sfumato.protect.release import file_digest_of

NOISE = seeded_noise(0)
COUNT = 4


def pictures(seed: int, count: int = COUNT, channels: int = 3, size: tuple[int, int] = (20, 20)) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, channels, *size), generator=generator).to(torch.uint8)


def write_pairs(root: Path, originals: Tensor, anonymised: Tensor) -> str:
    """Files of originals and of what a tool made of them, and the index that pairs them."""
    lines = ["file,tool,digest"]
    for i, (original, other) in enumerate(zip(originals, anonymised, strict=True)):
        images.write(root / f"photos/{i}.png", original)
        images.write(root / f"anonymised/{i}.png", other)
        lines.append(f"anonymised/{i}.png,CIAGAN,{images.digest(original).hex()}")
    return write_index(root, *lines)


def write_index(root: Path, *lines: str) -> str:
    path = root / "index.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture(autouse=True)
def folders(tmp_path: Path) -> None:
    for name in ("photos", "anonymised"):
        (tmp_path / name).mkdir()


@pytest.fixture
def index(tmp_path: Path) -> str:
    return write_pairs(tmp_path, pictures(0), pictures(1))


# What is released


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(20, 20), (18, 25)])
def test_an_original_is_released_as_its_anonymised_file(tmp_path: Path, channels: int, size: tuple[int, int]):
    originals, anonymised = (pictures(seed, channels=channels, size=size) for seed in (0, 1))
    protection = Outside(write_pairs(tmp_path, originals, anonymised))
    release = protection.release(originals[[2, 0, 2]], NOISE)
    assert torch.equal(release.values, anonymised[[2, 0, 2]])
    assert torch.equal(release.images(), release.values)
    assert (release.size, release.cell, release.shown, release.spec) == (size, 1, None, protection.spec)


def test_a_file_of_another_size_comes_at_the_size_of_its_original(tmp_path: Path):
    originals = torch.full((2, 3, 18, 25), 90, dtype=torch.uint8)
    originals[1] += 1
    anonymised = torch.zeros(2, 3, 36, 50, dtype=torch.uint8)
    anonymised[:, 0, :, 25:] = 200  # red on the right
    values = Outside(write_pairs(tmp_path, originals, anonymised)).release(originals, NOISE).values
    assert values.shape == originals.shape
    assert (values[:, 0, :, :10] == 0).all()
    assert (values[:, 0, :, -10:] == 200).all()
    assert (values[:, 1:] == 0).all()


def test_an_index_that_was_written_anew_is_read_anew(tmp_path: Path, index: str):
    protection = Outside(index)
    before = protection.release(pictures(0)[:1], NOISE).values
    write_index(tmp_path, "file,digest", f"anonymised/3.png,{images.digest(pictures(0)[0]).hex()}")
    after = protection.release(pictures(0)[:1], NOISE).values
    assert torch.equal(before, pictures(1)[:1])
    assert torch.equal(after, pictures(1)[3:])


# As a protection


def test_it_is_made_of_the_index_and_all_files_that_it_names(tmp_path: Path, index: str):
    digests = {file_digest_of(Outside(index))}
    images.write(tmp_path / "anonymised/1.png", pictures(7)[0])
    digests.add(file_digest_of(Outside(index)))
    with (tmp_path / "index.csv").open("a") as opened:
        opened.write("\n")
    digests.add(file_digest_of(Outside(index)))
    assert len(digests) == 3
    images.write(tmp_path / "anonymised/unnamed.png", pictures(9)[0])
    assert file_digest_of(Outside(index)) in digests


def test_a_folder_is_released_by_the_ledger(tmp_path: Path, index: str):
    folders, engine = (tmp_path / "photos", tmp_path / "out"), EngineConfig(workers=1)
    outcome = protect_folder(*folders, Outside(index), tmp_path / "ledger.db", engine=engine)
    assert (outcome.failures, outcome.shapes) == ({}, {(3, 20, 20): COUNT})
    for i in range(COUNT):
        assert torch.equal(images.read(tmp_path / f"out/{i}.png"), pictures(1)[i])
    with Ledger(tmp_path / "ledger.db") as ledger:
        assert [*ledger.summary().specs] == [f"outside:index={file_digest_of(Outside(index))[:16]}"]


# Mistakes


def test_an_image_that_is_no_original_is_refused_with_its_digest(index: str):
    batch = torch.cat([pictures(0)[:3], pictures(5)[:2]])
    message = (
        rf"2 of 5 images are not originals of {index}, the first of digest {images.digest(batch[3]).hex()}: "
        "anonymise them too and add them to it"
    )
    with pytest.raises(DataError, match=message):
        Outside(index).release(batch, NOISE)


def test_an_index_that_is_not_there_is_refused(tmp_path: Path):
    protection = Outside(str(tmp_path / "gone.csv"))
    for ask in (protection.digest, lambda: protection.release(pictures(0), NOISE)):
        with pytest.raises(ArtefactError, match=r"gone\.csv: cannot be read \(No such file"):
            ask()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([""], r"index\.csv: is empty"),
        (["files,digest"], r"index\.csv: no column 'file': did you mean 'files'"),
        (["file,class"], r"index\.csv: no column 'digest'"),
        (["file,digest"], r"index\.csv: no rows: list at least one image"),
        (["file,digest", "a.png,"], r"index\.csv, line 2: '' is not a digest, of 64 hex"),
        (["file,digest", f",{'0' * 64}"], r"index\.csv, line 2: no value for 'file': fill it in or remove"),
        (["file,digest", "a.png,12ab"], r"index\.csv, line 2: '12ab' is not a digest, of 64 hex"),
        (["file,digest", f"a.png,{'xy' * 32}"], r"index\.csv, line 2: 'xyxy.* is not a digest"),
        (["file,digest", f"a.png,{'0' * 64}", f"b.png,{'0' * 64}"], "line 3: the same original as .*line 2"),
    ],
)
def test_an_index_that_says_nothing_clear_is_refused(tmp_path: Path, lines: list[str], message: str):
    with pytest.raises(DataError, match=message):
        Outside(write_index(tmp_path, *lines)).release(pictures(0), NOISE)


def test_a_file_that_is_not_there_or_no_image_is_refused_with_its_line(tmp_path, index: str):
    folder = "anonymised"
    (tmp_path / folder / "1.png").rename(tmp_path / "1.png")
    message = rf"index\.csv, line 3: .*{folder}/1\.png: cannot be read \(No such file"
    with pytest.raises(ImageError, match=message):
        Outside(index).release(pictures(0), NOISE)
    with pytest.raises(ArtefactError, match=message):
        Outside(index).digest()
    (tmp_path / "1.png").rename(tmp_path / folder / "1.png")
    (tmp_path / folder / "2.png").write_bytes(b"no image")
    with pytest.raises(ImageError, match=rf"index\.csv, line 4: .*{folder}/2\.png: ") as caught:
        Outside(index).release(pictures(0), NOISE)
    assert caught.value.cause
