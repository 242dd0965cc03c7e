import math

import numpy as np
import pytest
import torch
from skimage.metrics import structural_similarity

from sfumato.assess import similarity
from sfumato.errors import ConfigError


@pytest.fixture
def pairs():
    generator = torch.Generator().manual_seed(0)
    originals = torch.rand(4, 3, 24, 31, generator=generator)
    return originals, (originals + 0.2 * torch.randn(originals.shape, generator=generator)).clamp(0, 1)


def test_ssim_agrees_with_scikit_image(pairs):
    expected = [
        structural_similarity(
            a.permute(1, 2, 0).numpy().astype(np.float64),
            b.permute(1, 2, 0).numpy().astype(np.float64),
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
            data_range=1.0,
            channel_axis=-1,
        )
        for a, b in zip(*pairs, strict=True)
    ]
    torch.testing.assert_close(similarity.ssim(*pairs).double(), torch.tensor(expected), atol=1e-4, rtol=0)


def test_an_image_is_like_itself(pairs):
    originals, _ = pairs
    assert torch.equal(similarity.mse(originals, originals), torch.zeros(4))
    assert similarity.psnr(originals, originals).isposinf().all()
    torch.testing.assert_close(similarity.ssim(originals, originals), torch.ones(4))


def test_an_error_of_a_tenth_everywhere_is_20_decibels():
    grey = torch.full((2, 1, 12, 12), 0.5)
    assert similarity.mse(grey, grey + 0.1).tolist() == pytest.approx([0.01, 0.01])
    assert similarity.psnr(grey, grey + 0.1).tolist() == pytest.approx([20.0, 20.0], abs=1e-4)


def test_psnr_is_one_number_a_pair_not_one_of_the_pooled_error():
    black = torch.zeros(2, 1, 12, 12)
    others = torch.stack([torch.full((1, 12, 12), 0.1), torch.full((1, 12, 12), 0.01)])
    assert similarity.psnr(black, others).tolist() == pytest.approx([20.0, 40.0], abs=1e-3)
    pooled = -10 * math.log10(similarity.mse(black, others).mean())
    assert pooled == pytest.approx(22.97, abs=0.01)


def test_similarity_does_not_depend_on_the_rest_of_the_batch(pairs):
    originals, others = pairs
    for measure in (similarity.mse, similarity.psnr, similarity.ssim):
        alone = torch.cat([measure(a[None], b[None]) for a, b in zip(originals, others, strict=True)])
        torch.testing.assert_close(measure(originals, others), alone)


def test_embeddings_are_alike_by_the_angle_between_them_and_one_of_nothing_is_like_nothing():
    first = torch.tensor([[1.0, 0.0], [2.0, 0.0], [1.0, 0.0], [3.0, 4.0], [0.0, 0.0]])
    second = torch.tensor([[5.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [4.0, 3.0], [1.0, 1.0]])
    expected = torch.tensor([1.0, -1.0, 0.0, 0.96, 0.0])
    torch.testing.assert_close(similarity.embedding_similarity(first, second), expected)


def test_images_at_rest_of_other_shapes_or_too_small_are_refused(pairs):
    originals, others = pairs
    small = torch.zeros(1, 1, 10, 20)
    for measure, first, second, message in (
        (similarity.mse, (originals * 255).byte(), originals, r"use images\.to_float"),
        (similarity.psnr, originals, others[:1], r"\(4, 3, 24, 31\) and \(1, 3, 24, 31\)"),
        (similarity.ssim, small, small, "at least 11x11"),
        (
            similarity.embedding_similarity,
            torch.zeros(2, 3),
            torch.zeros(1, 3),
            r"\(N, D\) pairs, got \(2, 3\)",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            measure(first, second)
