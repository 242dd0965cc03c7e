"""What is nearly the image itself does not leave a device, where no noise is drawn."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from sfumato import images
from sfumato.base.engines import EngineConfig
from sfumato.device.jobs import releasing
from sfumato.device.jobs.folder import protect_folder
from sfumato.device.ledger import Ledger
from sfumato.errors import ImageError
from sfumato.protect import Protection, Release, parse
from sfumato.protect.parameters import LEAST_DIFFERENCE


class Changed:
    """A protection that changes the values of images, and shows some of their pixels."""

    spec, cell, draws_noise = "changed", 1, False

    def __init__(self, change: Callable[[Tensor], Tensor], shown: Tensor | None = None) -> None:
        self.change, self.shown = change, shown

    def release(self, batch: Tensor, noise) -> Release:
        return Release(self.change(batch), self.spec, (batch.shape[2], batch.shape[3]), shown=self.shown)

    def guarantee(self, shape, pixels=None) -> None:
        return


def brighter(levels: int) -> Changed:
    return Changed(lambda batch: batch + levels)


@pytest.fixture
def released(ledger: Ledger) -> Callable[[Protection | str, Tensor], Release]:
    def release(protection: Protection | str, batch: Tensor) -> Release:
        taken = parse(protection) if isinstance(protection, str) else protection
        return releasing.release(taken, batch, ledger)

    return release


def smooth(side: int = 40) -> Tensor:
    """A ramp from black to white: a picture that a blur of 1 pixel hardly changes."""
    return torch.linspace(0, 255, side).round().to(torch.uint8).expand(1, 3, side, side).contiguous()


GREY = torch.full((1, 3, 40, 40), 90, dtype=torch.uint8)


@pytest.mark.parametrize(
    "spec", ["blur:radius=2", "pixelize:cell=4", "centre-blur:radius=3", "centre-blur:radius=0.5,share=0.1"]
)
def test_an_image_that_its_release_would_equal_does_not_leave_nor_does_its_batch(
    ledger: Ledger, photos: Tensor, released, spec: str
):
    batch = photos.clone()
    batch[3] = 90
    for pixels in (GREY, batch):
        with pytest.raises(
            ImageError, match=r"would differ from it by 0 grey levels .*write none to send"
        ) as caught:
            released(spec, pixels)
    assert caught.value.cause == "its release would be nearly the image itself"
    assert ledger.summary().releases == 0


def test_the_message_names_the_difference_the_bound_and_the_cure(released):
    with pytest.raises(ImageError) as caught:
        released(brighter(1), smooth() // 2)
    assert str(caught.value) == (
        "changed: the release of a 40x40 image would differ from it by 1 grey level (root "
        "mean square), and must differ by more than 2: choose stronger parameters, such as a "
        "larger cell or radius, which larger images need; or write none to send images in "
        "clear"
    )


def test_the_bound_is_the_root_mean_square_over_all_values(released):
    assert LEAST_DIFFERENCE == 2
    batch = smooth() // 2
    assert torch.equal(released(brighter(3), batch).values, batch + 3)
    with pytest.raises(ImageError, match="would differ from it by 2"):
        released(brighter(2), batch)


def test_an_image_is_compared_as_the_receiver_sees_it(released):
    """Cells of few values that stand for many pixels; the same picture in half the size is another matter."""
    cells = torch.randint(0, 256, (1, 3, 20, 20), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    enlarged = cells.repeat_interleave(2, 2).repeat_interleave(2, 3)
    with pytest.raises(ImageError, match="would differ from it by 0 grey levels"):
        released("pixelize:cell=2", enlarged)
    assert released("pixelize:cell=2", cells).values.shape == (1, 3, 10, 10)


def test_none_in_words_sends_the_image_itself(photos: Tensor, released):
    assert torch.equal(released("none", photos).values, photos)


@pytest.mark.parametrize("spec", ["gaussian:sigma=2", "dp-pix:cell=2,epsilon=1e6"])
def test_a_release_with_noise_is_never_refused_by_what_is_in_the_image(released, spec: str):
    """A refusal would be a function of the image of which no guarantee knows."""
    assert len(released(spec, GREY).values) == 1


def test_a_mask_is_judged_by_whether_it_hides_a_pixel(released):
    black, shown = torch.zeros(1, 3, 10, 10, dtype=torch.uint8), torch.ones(1, 1, 10, 10, dtype=torch.bool)
    with pytest.raises(ImageError, match="all pixels"):
        released(Changed(lambda batch: batch, shown.clone()), black)
    shown[..., 9, 9] = False
    assert released(Changed(lambda batch: batch, shown), black).shown is not None


def test_in_a_folder_it_is_one_failure_by_its_cause_and_the_others_go_on(tmp_path: Path):
    photos, draw = tmp_path / "photos", np.random.default_rng(0)
    for number in range(3):
        pixels = torch.from_numpy(draw.integers(0, 256, (3, 24, 24), dtype=np.uint8))
        images.write(photos / f"{number}.png", pixels)
    images.write(photos / "sky.png", GREY[0])
    protection, engine = parse("pixelize:cell=4"), EngineConfig(workers=1)
    outcome = protect_folder(photos, tmp_path / "out", protection, tmp_path / "ledger.db", engine=engine)
    assert outcome.failures == {"its release would be nearly the image itself": (1, "sky.png")}
    assert sorted(path.name for path in (tmp_path / "out").glob("*.png")) == ["0.png", "1.png", "2.png"]
    assert outcome.charged == 3
