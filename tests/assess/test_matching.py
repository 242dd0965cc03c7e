from itertools import permutations

import pytest
import torch

from sfumato.assess.matching import match
from sfumato.assess.similarity import mse
from sfumato.errors import ConfigError, DataError


def drawn(count, seed):
    return torch.rand(count, 3, 5, 4, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("count", range(1, 7))
def test_no_order_of_all_has_a_smaller_error(count):
    originals, reconstructions = drawn(count, 0), drawn(count, 1)
    errors = {
        order: mse(originals, reconstructions[list(order)]).mean().item()
        for order in permutations(range(count))
    }
    found = match(originals, reconstructions)
    assert errors[tuple(found.tolist())] == pytest.approx(min(errors.values()), rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_a_batch_in_another_order_and_with_noise_is_put_back(seed):
    originals = drawn(30, seed)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(30, generator=generator)
    rebuilt = (originals + 0.1 * torch.randn(originals.shape, generator=generator)).clamp(0, 1)[order]
    found = match(originals, rebuilt)
    assert found.dtype == torch.int64
    assert torch.equal(order[found], torch.arange(30))


def test_brightness_does_not_draw_all_to_one_image_and_images_at_rest_do_not_overflow():
    # A white image has the largest product with every original: the squares decide.
    originals = torch.stack([torch.full((1, 4, 4), level) for level in (0.1, 0.5, 1.0)])
    assert match(originals, originals.flip(0)).tolist() == [2, 1, 0]
    originals = (drawn(8, 0) * 255).byte()
    assert match(originals, originals.roll(3, 0)).tolist() == [3, 4, 5, 6, 7, 0, 1, 2]


def test_as_many_reconstructions_as_originals_are_needed_and_one_that_diverged_is_named():
    with pytest.raises(ConfigError, match=r"got \(3, 3, 5, 4\) and \(2, 3, 5, 4\)"):
        match(drawn(3, 0), drawn(2, 0))
    reconstructions = drawn(3, 0)
    reconstructions[2, 0, 0, 0] = torch.nan
    with pytest.raises(DataError, match="image 2 is not finite: replace diverged images"):
        match(drawn(3, 0), reconstructions)
