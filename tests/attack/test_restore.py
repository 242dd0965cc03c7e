import pytest
import torch

from sfumato import data
from sfumato.assess.similarity import psnr
from sfumato.attack.undo import RestorationConfig, train_restorer
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ConfigError, DataError, ImageError
from sfumato.images import to_float
from sfumato.protect import parse

FEW = RestorationConfig(steps=3, batch=4)


@pytest.fixture(scope="module")
def faces():
    """200 faces of 20 people to learn from, and 40 of 4 others."""
    images = data.load("faces", identities=24, images_per_identity=10, headwear=12, size=24).images
    return images[:200], images[200:]


def released(spec, images, *seed):
    return parse(spec).release(images, seeded_noise(*seed)).images()


@pytest.mark.parametrize(("network", "gain"), [("unet", 2), ("dncnn", 2)])
def test_much_of_the_noise_on_strangers_faces_is_undone(faces, network, gain):
    others, asked = faces
    config = RestorationConfig(network=network, steps=60, batch=8)
    restorer = train_restorer(
        others, lambda batch, step: released("gaussian:sigma=40", batch, 0, step), config
    )
    seen = released("gaussian:sigma=40", asked, 1)
    before, after = (psnr(to_float(asked), to_float(x)).mean() for x in (seen, restorer.restore(seen)))
    assert after > before + gain  # decibels; a constant grey picture would be worse than the noise


def test_where_nothing_was_hidden_the_original_comes_back(faces):
    others, asked = faces
    restorer = train_restorer(others, lambda batch, step: batch, RestorationConfig(steps=30, batch=8))
    assert psnr(to_float(asked), to_float(restorer.restore(asked))).mean() > 25


def test_a_seed_repeats(faces):
    others, asked = faces
    one, same, other = (
        train_restorer(others, lambda batch, step: batch, FEW, seed=seed).restore(asked) for seed in (3, 3, 4)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_no_step_shows_the_noise_of_another(faces):
    steps = []

    def watched(batch, step):
        steps.append(step)
        return batch

    train_restorer(faces[0], watched, FEW)
    assert sorted(steps) == [0, 1, 2, 3]  # the last is that of the validation


@pytest.mark.parametrize("size", [(17, 30), (24, 24)])
def test_images_keep_their_shape_whatever_their_sides(size):
    images = torch.zeros(5, 1, *size, dtype=torch.uint8)
    assert train_restorer(images, lambda batch, step: batch, FEW).restore(images).shape == images.shape


def test_progress_counts_the_steps(faces):
    told = []
    train_restorer(
        faces[0], lambda batch, step: batch, FEW, progress=lambda done, total: told.append((done, total))
    )
    assert told == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"network": "unett"}, "did you mean 'unet'"),
        ({"steps": 0}, "steps=0: at least 1"),
        ({"batch": 0}, "batch=0: at least 1"),
        ({"learning_rate": 0}, "learning_rate=0: above 0"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        RestorationConfig(**settings)


def test_no_photographs_are_refused():
    with pytest.raises(DataError, match="at least one photograph"):
        train_restorer(torch.zeros(0, 3, 16, 16, dtype=torch.uint8), lambda batch, step: batch, FEW)


def test_floats_are_refused(faces):
    with pytest.raises(ImageError, match="uint8"):
        train_restorer(faces[0].float(), lambda batch, step: batch, FEW)
