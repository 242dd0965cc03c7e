"""PLDA against dense Gaussian densities, the closed form of balanced data, and limits that are known."""

import numpy as np
import pytest
import torch
from scipy.linalg import block_diag
from scipy.stats import binomtest, multivariate_normal
from torch import Tensor

from sfumato.attack import plda
from sfumato.errors import DataError


def photographs(
    counts: list[int], *, dimensions: int = 5, between: float = 1.0, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(1, N, d) values of people by the model, who they are, and its two covariances."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    roots = [normal(dimensions, dimensions) * size for size in (between, 1.0)]
    identities = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    people = normal(len(counts), dimensions) @ roots[0].T + 3
    values = people[identities] + normal(len(identities), dimensions) @ roots[1].T
    return values[None], identities, roots[0] @ roots[0].T, roots[1] @ roots[1].T


def covariances(model: plda.PLDA) -> tuple[np.ndarray, np.ndarray]:
    """B and W in the coordinates of the values, of a model that kept all dimensions."""
    back = np.linalg.inv(model.axes)
    return back.T * model.between @ back, back.T @ back


def dense_log_ratio(gallery: np.ndarray, probes: np.ndarray, mean: np.ndarray, b: np.ndarray, w: np.ndarray):
    """ln p(gallery, probes of one person) - ln p(gallery) - ln p(probes), by densities of stacked vectors."""

    def log_density(rows: np.ndarray) -> float:
        n = len(rows)
        covariance = np.kron(np.ones((n, n)), b) + block_diag(*[w] * n)
        return multivariate_normal.logpdf(rows.ravel(), np.tile(mean, n), covariance)

    return log_density(np.vstack([gallery, probes])) - log_density(gallery) - log_density(probes)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_ratio_is_that_of_dense_gaussian_densities_for_any_number_of_photographs(size: int):
    values, identities, _, _ = photographs([4, 7, 2, 9] * 15)
    model = plda.train(values, identities, dimensions=5)
    gallery, names, _, _ = photographs([1, 3, 8], seed=1)
    probes = photographs([4 * size], seed=2)[0].reshape(4, size, 5)
    people, ratios = model.log_ratios(gallery, names, probes)
    b, w = covariances(model)
    expected = [
        [dense_log_ratio(gallery[0][names == who].numpy(), group, model.mean, b, w) for who in people]
        for group in probes.numpy()
    ]
    np.testing.assert_allclose(ratios, expected, rtol=1e-8, atol=1e-8)
    if size == 1:
        np.testing.assert_allclose(model.log_ratios(gallery, names, probes[:, 0])[1], ratios)


def test_equal_numbers_of_photographs_give_the_closed_form():
    """W = S_w / (I·(n - 1)) and B = S_b / I - W / n, where that is positive."""
    values, identities, _, _ = photographs([6] * 40)
    model = plda.train(values, identities, dimensions=5)
    rows = values[0].reshape(40, 6, 5).numpy()
    inner = (rows - rows.mean(1, keepdims=True)).reshape(-1, 5)
    w = inner.T @ inner / (40 * 5)
    b = np.cov(rows.mean(1).T, bias=True) - w / 6
    ours = covariances(model)
    np.testing.assert_allclose(ours[1], w, rtol=0.01, atol=0.01)
    np.testing.assert_allclose(ours[0], b, rtol=0.01, atol=0.01)


def test_no_other_covariances_nearby_are_more_likely():
    values, identities, _, _ = photographs([1, 2, 6, 3] * 10, dimensions=2)
    model = plda.train(values, identities, dimensions=2)
    b, w = covariances(model)
    mean = model.mean

    def log_likelihood(mean: np.ndarray, b: np.ndarray, w: np.ndarray) -> float:
        total = 0.0
        for who in identities.unique().tolist():
            rows = values[0][identities == who].numpy()
            covariance = np.kron(np.ones((len(rows),) * 2), b) + block_diag(*[w] * len(rows))
            total += multivariate_normal.logpdf(rows.ravel(), np.tile(mean, len(rows)), covariance)
        return total

    best = log_likelihood(mean, b, w)
    for change in (0.9, 1.1):
        assert log_likelihood(mean, b * change, w) < best
        assert log_likelihood(mean, b, w * change) < best
        assert log_likelihood(mean * change, b, w) < best


def test_people_who_are_alike_leave_nothing_to_tell():
    values, identities, _, _ = photographs([8] * 100, between=1e-6)
    gallery, names, _, _ = photographs([8] * 20, between=1e-6, seed=1)
    _, ratios = plda.train(values, identities).log_ratios(gallery, names, gallery[0])
    assert np.abs(ratios).max() < 2


def test_a_shift_or_a_scale_of_any_number_changes_no_ratio():
    values, identities, _, _ = photographs([3, 5] * 30)
    gallery, names, _, _ = photographs([4] * 10, seed=1)
    probes = gallery[0] + 0.5
    scale = torch.tensor([0.5, 2.0, 1.0, 3.0, 1.5]).double()
    plain = plda.train(values, identities, dimensions=5).log_ratios(gallery, names, probes)[1]
    scaled = plda.train(values * scale - 4, identities, dimensions=5).log_ratios(
        gallery * scale - 4, names, probes * scale - 4
    )[1]
    np.testing.assert_allclose(plain, scaled, rtol=1e-2, atol=1e-2)


def test_a_photograph_released_twice_is_still_one_photograph():
    """Two equal releases of each say no more than one does, in training and in the gallery."""
    values, identities, _, _ = photographs([3, 5] * 30)
    gallery, names, _, _ = photographs([4] * 10, seed=1)
    once = plda.train(values, identities).log_ratios(gallery, names, gallery[0])
    twice = plda.train(values.repeat(2, 1, 1), identities).log_ratios(
        gallery.repeat(2, 1, 1), names, gallery[0]
    )
    np.testing.assert_allclose(once[1], twice[1], rtol=1e-3, atol=1e-3)


def test_the_number_of_components_is_that_which_names_people_who_are_held_out():
    """Identity lies in the first of 40 directions; the others are large, and of 12 photographs a person."""
    draw = torch.Generator().manual_seed(0)
    identities = torch.arange(24).repeat_interleave(12)
    values = torch.randn(1, 288, 40, generator=draw, dtype=torch.float64)
    values[..., :8] += 6 * torch.randn(24, 8, generator=draw, dtype=torch.float64)[identities]
    assert plda.train(values, identities).between.size in (10, 20)
    late = values.clone()
    late[..., :8] *= 0.1  # the directions with identity vary least, and come last
    assert plda.train(late, identities).between.size == 40


def test_components_are_those_of_an_exact_decomposition_and_none_without_variance():
    draw = torch.Generator().manual_seed(0)
    values = torch.randn(300, 60, generator=draw, dtype=torch.float64) * (0.8 ** torch.arange(60)).double()
    ours = plda.principal_components(values, 10)
    exact = torch.linalg.svd(values - values.mean(0), full_matrices=False).Vh[:10].T
    np.testing.assert_allclose(ours @ ours.T, exact @ exact.T, atol=1e-4)
    np.testing.assert_allclose(ours.T @ ours, np.eye(10), atol=1e-12)
    assert plda.principal_components(values[:, :1] @ torch.ones(1, 30).double(), 20).shape == (30, 1)


def test_people_whose_releases_never_differ_are_told_apart():
    """W is 0 there: it has a floor, and everybody is named."""
    people = torch.randn(30, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    identities = torch.arange(30).repeat_interleave(4)
    names, ratios = plda.train(people[identities][None], identities).log_ratios(
        people[None], torch.arange(30), people
    )
    assert names[ratios.argmax(1)].tolist() == list(range(30))


def test_of_photographs_that_show_nobody_the_held_out_share_is_chance():
    """Noise alone: who is named rightly is so by chance, unless the model was trained on these very people.

    30 of 60 people are looked for, on two of four photographs each; in 40 dimensions a model that knows the
    photographs finds directions in which they happen to differ.
    """
    identities = torch.arange(60).repeat_interleave(4)
    values = torch.randn(1, 240, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    right = round(60 * plda.train(values, identities).held_out)
    # The best of three numbers of components: each alone is 1 in 30 of 60 probes.
    assert binomtest(right, 60, 1 / 30, alternative="greater").pvalue > 1e-3


@pytest.mark.parametrize(
    ("values", "identities", "message"),
    [
        (torch.tensor([[[1.0], [2.0], [float("nan")]]]), [0, 0, 1], "not finite"),
        (torch.rand(1, 3, 2), [0, 0, 0], "3 photographs of 1 people: at least 2 people"),
        (torch.rand(1, 3, 2), [0, 1, 2], "2 photographs of one"),
        (torch.ones(1, 3, 2), [0, 0, 1], "values that are not all equal"),
    ],
)
def test_nothing_to_learn_is_said(values: Tensor, identities: list[int], message: str):
    with pytest.raises(DataError, match=message):
        plda.train(values, torch.tensor(identities))
