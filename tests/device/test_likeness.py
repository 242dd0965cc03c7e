"""What is nearly the image itself does not leave a device, where no noise is drawn."""

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

CLEAR = "write none to send images in clear"


def released(protection: Protection, batch: Tensor, ledger: Ledger) -> Release:
    return releasing.release(protection, batch, ledger)


class Shifted:
    """A protection that makes every value brighter by so many grey levels."""

    spec, cell, draws_noise = "shifted", 1, False

    def __init__(self, levels: int) -> None:
        self.levels = levels

    def release(self, batch: Tensor, noise) -> Release:
        return Release(batch + self.levels, self.spec, (batch.shape[2], batch.shape[3]))

    def guarantee(self, shape, pixels=None) -> None:
        return


def smooth(side: int = 40) -> Tensor:
    """A ramp from black to white: a picture that a blur of 1 pixel hardly changes."""
    return torch.linspace(0, 255, side).round().to(torch.uint8).expand(1, 3, side, side).contiguous()


@pytest.mark.parametrize(
    "spec", ["blur:radius=2", "pixelize:cell=4", "centre-blur:radius=3", "centre-blur:radius=0.5,share=0.1"]
)
def test_an_image_that_its_release_would_equal_does_not_leave(ledger: Ledger, spec: str):
    grey = torch.full((1, 3, 40, 40), 90, dtype=torch.uint8)
    with pytest.raises(ImageError, match=CLEAR) as caught:
        released(parse(spec), grey, ledger)
    assert caught.value.cause == "its release would be nearly the image itself"
    assert ledger.summary().releases == 0


def test_the_message_names_the_difference_the_bound_and_the_cure(ledger: Ledger):
    with pytest.raises(ImageError) as caught:
        released(Shifted(1), smooth() // 2, ledger)
    assert str(caught.value) == (
        "shifted: the release of a 40x40 image would differ from it by 1 grey level (root "
        "mean square), and must differ by more than 2: choose stronger parameters, such as a "
        "larger cell or radius, which larger images need; or write none to send images in "
        "clear"
    )


@pytest.mark.parametrize(("levels", "leaves"), [(0, False), (1, False), (2, False), (3, True)])
def test_the_bound_is_the_root_mean_square_over_all_values(ledger: Ledger, levels: int, leaves: bool):
    assert LEAST_DIFFERENCE == 2
    batch = smooth() // 2
    if leaves:
        assert torch.equal(released(Shifted(levels), batch, ledger).values, batch + levels)
    else:
        with pytest.raises(ImageError, match="would differ from it by"):
            released(Shifted(levels), batch, ledger)


def test_one_such_image_keeps_its_whole_batch_from_leaving(photos: Tensor, ledger: Ledger):
    batch = photos.clone()
    batch[3] = 90
    with pytest.raises(ImageError, match="would differ from it by 0 grey levels"):
        released(parse("pixelize:cell=4"), batch, ledger)
    assert ledger.summary().releases == 0


def test_an_image_is_compared_as_the_receiver_sees_it(ledger: Ledger):
    """Cells of few values that stand for many pixels; the same picture in half the size is another matter."""
    cells = torch.randint(0, 256, (1, 3, 20, 20), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    enlarged = cells.repeat_interleave(2, 2).repeat_interleave(2, 3)
    with pytest.raises(ImageError, match="would differ from it by 0 grey levels"):
        released(parse("pixelize:cell=2"), enlarged, ledger)
    assert released(parse("pixelize:cell=2"), cells, ledger).values.shape == (1, 3, 10, 10)


def test_none_in_words_sends_the_image_itself(ledger: Ledger, photos: Tensor):
    assert torch.equal(released(parse("none"), photos, ledger).values, photos)


@pytest.mark.parametrize("spec", ["gaussian:sigma=2", "dp-pix:cell=2,epsilon=1e6"])
def test_a_release_with_noise_is_never_refused_by_what_is_in_the_image(ledger: Ledger, spec: str):
    """A refusal would be a function of the image of which no guarantee knows."""
    grey = torch.full((1, 3, 40, 40), 90, dtype=torch.uint8)
    assert len(released(parse(spec), grey, ledger).values) == 1


class Masked:
    """Shows as many pixels of a black picture as it is told, and blackens the others, which were black."""

    spec, cell, draws_noise = "masked", 1, False

    def __init__(self, shown: int) -> None:
        self.shown = shown

    def release(self, batch: Tensor, noise) -> Release:
        shown = (torch.arange(batch[0, 0].numel()) < self.shown).view(1, 1, *batch.shape[2:])
        return Release(batch * shown, self.spec, (batch.shape[2], batch.shape[3]), shown=shown)

    def guarantee(self, shape, pixels=None) -> None:
        return


def test_a_mask_is_judged_by_whether_it_hides_a_pixel(ledger: Ledger):
    black = torch.zeros(1, 3, 10, 10, dtype=torch.uint8)
    assert released(Masked(99), black, ledger).shown is not None
    with pytest.raises(ImageError, match="all pixels"):
        released(Masked(100), black, ledger)


def test_in_a_folder_it_is_one_failure_by_its_cause_and_the_others_go_on(tmp_path: Path):
    folder = tmp_path / "photos"
    folder.mkdir()
    draw = np.random.default_rng(0)
    for number in range(3):
        pixels = torch.from_numpy(draw.integers(0, 256, (3, 24, 24), dtype=np.uint8))
        images.write(folder / f"{number}.png", pixels)
    images.write(folder / "sky.png", torch.full((3, 24, 24), 200, dtype=torch.uint8))
    outcome = protect_folder(
        folder,
        tmp_path / "out",
        parse("pixelize:cell=4"),
        tmp_path / "ledger.db",
        engine=EngineConfig(workers=1),
    )
    assert outcome.failures == {"its release would be nearly the image itself": (1, "sky.png")}
    assert sorted(path.name for path in (tmp_path / "out").glob("*.png")) == ["0.png", "1.png", "2.png"]
    assert outcome.charged == 3
