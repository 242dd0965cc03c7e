import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm

from sfumato.assess.frechet import Frechet, Moments, distance_between, frechet_distance
from sfumato.errors import ConfigError, DataError


def drawn(images, dimension, seed, *, shift=0.0):
    """Correlated features: a random mix of independent ones."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(dimension, dimension, generator=generator)
    return torch.randn(images, dimension, generator=generator) @ mix + shift


def moments(features):
    return features.double().mean(0), features.double().T.cov()


SIZES = {
    "fewer images than features": (20, 30, 50),
    "more images than features": (80, 60, 12),
    "fewer in one set, more in the other": (10, 70, 24),
    "as many images as features": (16, 16, 16),
    "two images": (2, 2, 9),
    "one feature": (40, 50, 1),
}


@pytest.mark.parametrize(("images", "others", "dimension"), SIZES.values(), ids=SIZES)
def test_it_is_the_closed_form_of_means_and_unbiased_covariances_from_either_side(images, others, dimension):
    first, second = drawn(images, dimension, 0), drawn(others, dimension, 1, shift=0.5)
    (m1, s1), (m2, s2) = (
        (mean.numpy(), np.atleast_2d(cov)) for mean, cov in (moments(first), moments(second))
    )
    values, vectors = np.linalg.eigh(s1)
    root = vectors * np.sqrt(values.clip(0)) @ vectors.T
    # tr((S1 S2)^1/2): Dowson & Landau 1982
    common = np.sqrt(np.linalg.eigvalsh(root @ s2 @ root).clip(0)).sum()
    expected = np.square(m1 - m2).sum() + np.trace(s1 + s2) - 2 * common
    there, back = frechet_distance(first, second), frechet_distance(second, first)
    assert there.distance == pytest.approx(expected, rel=1e-4)
    assert there.distance == pytest.approx(back.distance, rel=1e-9)
    assert there.images == back.images == min(images, others)
    if min(images, others) > dimension:
        expected = np.square(m1 - m2).sum() + np.trace(s1 + s2 - 2 * sqrtm(s1 @ s2).real)
        assert there.distance == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("images", [10, 60], ids=["fewer than features", "more than features"])
def test_a_shifted_set_is_as_far_as_the_shift_and_a_wider_one_as_its_deviation(images):
    features = drawn(images, 24, 0).double()
    shift = torch.linspace(-1, 1, 24).double()
    assert frechet_distance(features, features + shift).distance == pytest.approx(
        shift.square().sum().item(), rel=1e-9
    )
    wider = features.mean(0) + 3 * (features - features.mean(0))
    variance = features.var(0).sum().item()
    assert frechet_distance(features, wider).distance == pytest.approx((3 - 1) ** 2 * variance, rel=1e-9)


def test_a_set_is_at_no_distance_from_itself_in_any_order():
    features = drawn(30, 40, 0)
    scale = features.double().var(0).sum().item()
    assert 0 <= frechet_distance(features, features.flip(0)).distance < 1e-10 * scale


def test_features_far_from_zero_keep_their_distance():
    # In float32 a mean of 1e4 would leave nothing of differences of 1e-4.
    first, second = drawn(30, 5, 0).double(), drawn(30, 5, 1).double()
    near, far = frechet_distance(first, second), frechet_distance(first + 1e4, second + 1e4)
    assert far.distance == pytest.approx(near.distance, rel=1e-8)


def test_few_images_of_one_distribution_are_apart_and_the_result_says_so():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(2 * 2048, 16, generator=generator)
    few, many = frechet_distance(features[:50], features[50:100]), frechet_distance(*features.split(2048))
    assert few.distance > 20 * many.distance
    assert few.biased
    assert not many.biased
    assert str(Frechet(12.345, 600)) == "12.35 (biased upwards: 600 images, fewer than 2,048)"
    assert str(Frechet(12.345, 2048)) == "12.35"


SHAPES = r"compares \(N, D\) and \(M, D\) features of one network, got"


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (torch.zeros(3, 4), torch.zeros(3, 5), SHAPES),
        (torch.zeros(3), torch.zeros(3), SHAPES),
        (torch.zeros(2, 3, 4), torch.zeros(2, 3, 4), SHAPES),
        (torch.zeros(5, 3), torch.zeros(1, 3), "two images or more on each side, got 1"),
        (torch.zeros(3, 2), torch.tensor([[1.0, torch.nan]] * 3), "not finite"),
        (torch.zeros(3, 2), torch.tensor([[1.0, torch.inf]] * 3), "not finite"),
    ],
    ids=["dimensions", "vectors", "maps", "one image", "nan", "infinity"],
)
def test_features_that_have_no_distance_are_refused_also_in_parts(first, second, message):
    with pytest.raises((ConfigError, DataError), match=message):
        frechet_distance(first, second)
    if message != SHAPES:
        with pytest.raises(DataError, match=message):
            distance_between(in_parts(first, 1), in_parts(second, 1))


# In parts


def in_parts(features, sizes):
    found = Moments()
    for part in features.split(sizes):
        found.add(part)
    return found


@pytest.mark.parametrize("sizes", [1, 7, 50, [0, 100], [3, 0, 90, 7]], ids=str)
@pytest.mark.parametrize("dimension", [5, 40, 200])
def test_features_in_parts_have_the_distance_of_all_together(sizes, dimension):
    first, second = drawn(100, dimension, 0, shift=30.0), drawn(80, dimension, 1)
    found = distance_between(in_parts(first, sizes), in_parts(second, 13))
    together = frechet_distance(first, second)
    assert found.images == together.images == 80
    assert found.distance == pytest.approx(together.distance, rel=1e-9)


def test_the_moments_in_parts_are_mean_and_unbiased_covariance():
    features = drawn(300, 6, 2, shift=5.0)
    mean, root = in_parts(features, 11).sum_up()
    expected = moments(features)
    assert torch.allclose(mean, expected[0])
    assert torch.allclose(root.T @ root, expected[1])


def test_moments_take_no_more_than_two_rows_a_feature_whatever_the_number_of_images():
    found = Moments()
    for seed in range(50):
        found.add(drawn(9, 4, seed))
        assert len(found._root) <= 2 * 4
    assert found.images == 450


def test_moments_far_from_0_lose_no_digits():
    """A sum of squares less the square of the sum would: 10^16 and 1 do not fit a float64 together."""
    features = drawn(200, 3, 0).double()
    near, far = in_parts(features, 10), in_parts(features + 1e8, 10)
    roots = [each.sum_up()[1] for each in (near, far)]
    assert torch.allclose(*(root.T @ root for root in roots), rtol=1e-6)
