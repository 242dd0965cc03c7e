"""A protection inside other pipelines: the same release as `protect`, of the kind that went in."""

import os
import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from sfumato.device.ledger import Ledger
from sfumato.errors import ConfigError, ImageError
from sfumato.protect import parse
from sfumato.transforms import Protect

SPEC, NOISY = "pixelize:cell=8", "dp-pix:cell=4,epsilon=3"


class Marked(torch.Tensor):
    """A subclass of Tensor, as torchvision's tv_tensors.Image is."""


@pytest.fixture(scope="module")
def image() -> torch.Tensor:
    return torch.randint(0, 256, (3, 32, 24), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def expected(image) -> torch.Tensor:
    from sfumato.dp.mechanisms import fresh_noise

    return parse(SPEC).release(image[None], fresh_noise()).images()[0]


def outside(spec: str = SPEC) -> Protect:
    return Protect(spec, outside_ledger=True)


def test_each_kind_of_picture_comes_back_as_its_release_in_the_same_kind(image, expected):
    protect, array = outside(), image.permute(1, 2, 0).numpy()
    made = protect(Image.fromarray(array))
    assert (made.mode, made.size) == ("RGB", (24, 32))
    assert np.array_equal(np.asarray(made), expected.permute(1, 2, 0))
    assert np.array_equal(protect(array), expected.permute(1, 2, 0))
    assert np.array_equal(protect(array[None])[0], expected.permute(1, 2, 0))
    assert torch.equal(protect(image), expected)
    assert torch.equal(protect(image[None])[0], expected)
    assert torch.equal(protect(image.half() / 255), (expected.float() / 255).half())
    assert type(protect(image.as_subclass(Marked))) is Marked
    assert protect(array[:, :, 0]).shape == (32, 24)
    assert protect(Image.fromarray(array[:, :, 0])).mode == "L"


def test_a_photograph_is_turned_upright_and_loses_its_metadata(tmp_path, image):
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "planted"  # turned by 90 degrees; a description
    path = tmp_path / "photo.png"
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(path, exif=exif, icc_profile=b"planted")
    with Image.open(path) as opened:
        made = outside()(opened)
    assert made.size == (32, 24)
    made.save(path)
    assert b"planted" not in path.read_bytes()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (torch.full((3, 8, 8), 1.5), "values from 1.5 to 1.5: floats are from 0 to 1: protect before"),
        (np.zeros((8, 8, 3), np.float32), "float32: arrays are .* uint8: protect before"),
        ((np.zeros((8, 8, 3), np.uint8), 4), "a tuple: a picture is a PIL.Image"),
        (np.zeros((3, 32, 24), np.uint8), "with 1 or 3 channels"),
        (np.zeros((32, 24, 3), np.uint8), "choose stronger parameters"),  # blank: its release is itself
    ],
)
def test_what_is_no_picture_to_protect_is_refused_by_its_name(wrong, message):
    with pytest.raises(ImageError, match=message):
        outside()(wrong)


def test_it_names_a_ledger_or_says_that_it_has_none(tmp_path):
    with pytest.raises(ConfigError, match="names no ledger, and not outside_ledger=True: name a ledger"):
        Protect(SPEC)
    with pytest.raises(ConfigError, match="names a ledger and outside_ledger=True"):
        Protect(SPEC, ledger=tmp_path / "ledger.db", outside_ledger=True)
    assert repr(outside()) == "Protect(pixelize:cell=8, outside any ledger: no budget)"
    assert "ledger=" in repr(Protect(SPEC, ledger=tmp_path / "ledger.db"))


class Copies(torch.utils.data.Dataset):
    """One image, several times, through a transform."""

    def __init__(self, image: torch.Tensor, transform: Protect) -> None:
        self.image, self.transform = image, transform

    def __len__(self) -> int:
        return 4

    def __getitem__(self, row: int) -> torch.Tensor:
        if row >= len(self):
            raise IndexError(row)
        return self.transform(self.image)


def test_workers_draw_different_noise_outside_a_ledger_and_repeat_one_release_by_it(tmp_path, image):
    """Workers start from one state of NumPy's generator: noise drawn from that would be equal in all."""
    path = tmp_path / "ledger.db"
    for protect, different in ((outside(NOISY), 4), (Protect(NOISY, ledger=path), 1)):
        protect(image)  # before the fork, so that workers inherit whatever it opened
        how = {"batch_size": 1, "num_workers": 2, "multiprocessing_context": "fork"}
        loader = DataLoader(Copies(image, protect), **how)
        seen = torch.cat([protect(image)[None], *loader])
        assert len(seen[1:].unique(dim=0)) == different
    with Ledger(path) as ledger:
        assert ledger.summary().releases == 1
    assert torch.equal(pickle.loads(pickle.dumps(protect))(image), seen[0])  # as for workers that are spawned


def test_albumentations_runs_it_as_a_function_of_images(image, expected, monkeypatch):
    monkeypatch.setitem(os.environ, "NO_ALBUMENTATIONS_UPDATE", "1")  # it would ask a host for its version
    albumentations = pytest.importorskip("albumentations")
    flip = albumentations.HorizontalFlip(p=1)
    pipeline = albumentations.Compose([albumentations.Lambda(image=outside()), flip])
    made = pipeline(image=image.permute(1, 2, 0).numpy(), mask=np.ones((32, 24), np.uint8))
    assert np.array_equal(made["image"], expected.permute(1, 2, 0).flip(1))
