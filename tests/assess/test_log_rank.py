"""Log-rank privacy: exact ranks, a density that agrees with a slow one, and what blind guessing has."""

import math
import statistics
from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from torch import Tensor

from sfumato.assess.log_rank import (
    Ranks,
    density_log_posteriors,
    guessing,
    judge,
    judge_features,
    log_ranks,
    nearest_neighbour_error,
    normal_anonymity,
    superior,
)
from sfumato.errors import ConfigError, DataError


def world(identities=7, images=6, dimension=3, seed=0, spread=1.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training and test features around a centre for each identity, whose codes have gaps."""
    generator = torch.Generator().manual_seed(seed)
    centres = spread * torch.randn(identities, dimension, generator=generator)
    codes = torch.arange(identities).repeat_interleave(images)
    mixing = torch.randn(dimension, dimension, generator=generator)
    train, test = (
        centres[codes] + 0.5 * torch.randn(len(codes), dimension, generator=generator) @ mixing
        for _ in range(2)
    )
    order = torch.randperm(len(codes), generator=generator)
    return train[order], codes[order] * 10 + 3, test, codes * 10 + 3


def posteriors(rows: int = 60, identities: int = 9, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Log-posteriors with ties, and the columns that are right."""
    generator = torch.Generator().manual_seed(seed)
    logs = (torch.randn(rows, identities, generator=generator) * 2).round()
    return logs, torch.randint(0, identities, (rows,), generator=generator)


# Ranks


@pytest.mark.parametrize(("seed", "sharpness"), [(0, 0.0), (1, 1.0), (2, 3.0), (3, 8.0)])
def test_the_entropy_of_an_identity_is_at_least_the_mean_logarithm_of_its_rank(seed: int, sharpness: float):
    # Eq. (8), for every feature by itself: r of each identity is counted as the library counts it.
    generator = torch.Generator().manual_seed(seed)
    logs = (sharpness * torch.randn(50, 9, generator=generator, dtype=torch.float64)).log_softmax(1)
    ranks = torch.stack(
        [log_ranks(logs, torch.full((50,), each)).logs for each in range(9)], 1
    )  # (50, 9), ln r
    entropy, mean = (-(logs.exp() * of).sum(1) for of in (logs, -ranks))
    assert (entropy >= mean - 1e-12).all()


def test_the_rank_by_an_estimate_is_not_bounded_by_the_entropy():
    truth = torch.tensor([[0.98, 0.01, 0.01]], dtype=torch.float64).log()
    estimate = truth.flip(1)
    logs = torch.stack([log_ranks(estimate, torch.tensor([each])).logs for each in range(3)], dim=1)
    assert (truth.exp() * logs).sum() > 5 * -(truth.exp() * truth).sum()


def test_ranks_are_those_of_posteriors_made_by_hand():
    logs = torch.tensor([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.2, 0.2, 0.6], [0.0, 1.0, 0.0]]).log()
    ranks = log_ranks(logs, torch.tensor([0, 2, 0, 2]))
    assert ranks.means.tolist() == [1, 3, 2.5, 2.5]  # what is ruled out comes last
    assert ranks.logs.tolist() == pytest.approx([0, math.log(3), math.log(6) / 2, math.log(6) / 2])
    result = judge(logs, torch.tensor([0, 2, 0, 2]))
    assert result.lrp == pytest.approx((math.log(3) + math.log(6)) / (4 * math.log(3)))
    assert result.mean == pytest.approx(9 / 12)


def test_tied_identities_share_their_places_as_if_each_order_were_as_likely():
    logs, identities = posteriors(rows=12, identities=5)
    found = log_ranks(logs, identities)
    for row in range(12):
        # Every order of the columns, sorted stably: each order of the ties is as frequent.
        ranks = []
        for order in permutations(range(5)):
            ranked = sorted(order, key=lambda column: -logs[row, column].item())
            ranks.append(ranked.index(int(identities[row])) + 1)
        assert found.means[row].item() == pytest.approx(np.mean(ranks))
        assert found.logs[row].item() == pytest.approx(np.mean(np.log(ranks)))
        own = Ranks(found.above[row : row + 1], found.equal[row : row + 1], 5)
        assert own.beyond(2) == pytest.approx(np.mean(np.array(ranks) > 2))


def test_a_perfect_adversary_leaves_no_privacy():
    identities = torch.arange(20)
    result = judge(torch.eye(20).log(), identities)
    assert (result.lrp, result.low, result.high, result.mean) == (0, 0, 0, 1 / 20)
    assert result.beyond == {1: 0, 5: 0, 10: 0}


@pytest.mark.parametrize("identities", [2, 3, 608, 10_000])
def test_an_adversary_who_finds_all_equally_likely_has_what_blind_guessing_has(identities: int):
    result = judge(torch.zeros(4, identities), torch.tensor([0, 1, 1, identities - 1]))
    expected = sum(math.log(r) for r in range(1, identities + 1)) / (identities * math.log(identities))
    assert result.lrp == pytest.approx(expected, rel=1e-12)
    assert result.guessing == pytest.approx(expected, rel=1e-12)
    assert result.mean == pytest.approx((identities + 1) / (2 * identities))
    # Of the discrete uniform distribution; 0.29 for many identities, as the paper says.
    assert result.deviation == pytest.approx(math.sqrt((identities**2 - 1) / 12) / identities)
    assert result.beyond[1] == pytest.approx(1 - 1 / identities)


def test_random_posteriors_are_about_blind_guessing():
    logs = torch.randn(20_000, 50, generator=torch.Generator().manual_seed(0))
    result = judge(logs, torch.arange(20_000) % 50)
    assert result.low < guessing(50) < result.high  # an interval of 95%, and this seed is within
    assert result.high - result.low < 0.01
    assert result.deviation == pytest.approx(0.29, abs=0.005)


def test_parts_of_posteriors_are_judged_as_the_whole():
    logs, identities = posteriors()
    assert judge(iter(logs.split(7)), identities) == judge(logs, identities)


def test_the_share_beyond_the_k_best_is_counted():
    logs, identities = posteriors(rows=300, identities=30)
    logs = logs + 0.001 * torch.rand(logs.shape, generator=torch.Generator().manual_seed(1))  # no ties
    places = [(logs[i] >= logs[i, identities[i]]).sum().item() for i in range(300)]
    result = judge(logs, identities)
    assert result.beyond == {k: pytest.approx(np.mean(np.array(places) > k)) for k in (1, 5, 10)}


@pytest.mark.parametrize(("each", "spread", "room"), [(200, 0.0, 0.035), (600, 1.5, 0.045)])
def test_the_interval_covers_the_log_rank_privacy_of_the_population_as_often_as_it_says(each, spread, room):
    """Also of ten features of each of 60 people, some of whom are easier to find than others."""
    generator = torch.Generator().manual_seed(0)
    identities = torch.arange(each) % 60

    def found():
        ease = spread * torch.randn(60, generator=generator)
        logs = torch.randn(each, 60, generator=generator)
        logs[torch.arange(each), identities] += ease[identities]
        return judge(logs, identities)

    results = [found() for _ in range(300)]
    truth = sum(result.lrp for result in results) / 300 if spread else guessing(60)
    covered = sum(result.low < truth < result.high for result in results) / 300
    assert covered == pytest.approx(0.95, abs=room)  # three standard deviations
    alone = judge(torch.randn(50, 10, generator=generator), torch.zeros(50).long())
    assert (alone.low, alone.high) == (0, 1)  # of one person nothing is known of others


# The density


def slow_posteriors(train: Tensor, identities: Tensor, test: Tensor, *, priors: str) -> np.ndarray:
    """p(y|f), plainly, in float64, where nothing underflows."""
    x, y, t = train.double().numpy(), identities.numpy(), test.double().numpy()
    x, t = (x - x.mean(0)) / x.std(0, ddof=1), (t - x.mean(0)) / x.std(0, ddof=1)
    codes, d = np.unique(y), x.shape[1]
    around = np.concatenate([x[y == code] - x[y == code].mean(0) for code in codes])
    n = len(x) - len(codes)
    within = around.T @ around / n
    # Chen, Wiesel, Eldar & Hero 2010, Eq. (23), where the shrunk covariance is the target's and the sample's.
    squares, trace = np.trace(within @ within), np.trace(within)
    shrinkage = min(1, ((1 - 2 / d) * squares + trace**2) / ((n + 1 - 2 / d) * (squares - trace**2 / d)))
    covariance = (1 - shrinkage) * within + (shrinkage * trace / d + 1e-6) * np.eye(d)
    densities = np.zeros((len(t), len(codes)))
    for column, code in enumerate(codes):
        own = x[y == code]
        h = (4 / (len(own) * (d + 2))) ** (1 / (d + 4))  # Silverman 1986, Eq. (4.14)
        for centre in own:
            kernel = multivariate_normal(centre, h * h * covariance)
            densities[:, column] += kernel.pdf(t) / len(own)
        if priors == "counts":
            densities[:, column] *= len(own)
    return densities / densities.sum(1, keepdims=True)


@pytest.mark.parametrize("priors", ["uniform", "counts"])
@pytest.mark.parametrize("dimension", [2, 5])
def test_the_density_agrees_with_a_slow_one(dimension: int, priors: str):
    train, identities, test, truth = world(dimension=dimension)
    # Identities with 6, 5, 4 ... images.
    kept = torch.rand(len(train), generator=torch.Generator().manual_seed(3)) < 0.8
    train, identities = train[kept], identities[kept]
    expected = slow_posteriors(train, identities, test, priors=priors)
    found = torch.cat(list(density_log_posteriors(train, identities, test, priors=priors)))
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.exp().numpy(), expected, atol=1e-9)
    np.testing.assert_allclose(found.numpy(), np.log(expected), rtol=1e-6, atol=1e-6)
    columns = torch.searchsorted(identities.unique(), truth)
    slow = judge(torch.from_numpy(np.log(expected)), columns)
    assert judge(found, columns).lrp == pytest.approx(slow.lrp, abs=1e-6)


def test_it_stays_finite_where_a_naive_density_underflows():
    train, identities, test, truth = world(spread=5.0)
    shifted = test + 1e4
    naive = slow_posteriors(train, identities, test, priors="uniform")
    with np.errstate(invalid="ignore"):
        far = slow_posteriors(train, identities, shifted, priors="uniform")
    assert np.isfinite(naive).all()
    assert np.isnan(far).all()
    found = torch.cat(list(density_log_posteriors(train, identities, shifted)))
    assert found.isfinite().all()
    assert math.isfinite(judge_features(train, identities, shifted, truth).lrp)


def test_scaling_shifting_and_mixing_features_changes_nothing():
    train, identities, test, truth = world(images=40)
    plain = judge_features(train, identities, test, truth)
    scaled = judge_features(train * 1e-6 + 3, identities, test * 1e-6 + 3, truth)
    assert scaled.lrp == pytest.approx(plain.lrp, abs=0.01)  # float32 features: 3 + 1e-6 loses digits
    turn = torch.tensor([[1.0, 2.0, 0.0], [0.0, 1.0, 0.5], [1.0, 0.0, 3.0]])
    mixed = judge_features(train @ turn, identities, test @ turn, truth)
    assert mixed.lrp == pytest.approx(plain.lrp, abs=0.02)  # the shrinkage is towards another target


def test_features_that_tell_nothing_are_about_blind_guessing_and_those_that_tell_all_are_near_0():
    blind = judge_features(*world(identities=30, images=20, spread=0.0))
    assert blind.lrp == pytest.approx(blind.guessing, abs=0.04)
    assert blind.nearest_neighbour_error == pytest.approx(1 - 1 / 30, abs=0.03)
    told = judge_features(*world(identities=30, images=20, spread=100.0))
    assert told.lrp < 0.001
    assert told.nearest_neighbour_error == 0
    assert math.isfinite(judge_features(*world(identities=4, images=2, dimension=30)).lrp)  # fewer images


def test_a_feature_that_is_constant_says_nothing():
    train, identities, test, truth = world()
    with_constant = [torch.cat([each, torch.full((len(each), 1), 7.0)], 1) for each in (train, test)]
    found = judge_features(with_constant[0], identities, with_constant[1], truth)
    assert math.isfinite(found.lrp)
    assert found.nearest_neighbour_error <= 0.9


def test_the_nearest_neighbour_is_that_of_a_plain_search():
    train, identities, test, truth = world(identities=12, images=5)
    x, t = train.double().numpy(), test.double().numpy()
    x, t = x / train.double().std(0).numpy(), t / train.double().std(0).numpy()
    codes = np.unique(identities)
    around = np.concatenate([x[identities == c] - x[identities == c].mean(0) for c in codes])
    inverse = np.linalg.inv(np.cov(around.T))
    differences = t[:, None] - x[None]
    nearest = np.einsum("mnd,de,mne->mn", differences, inverse, differences).argmin(1)
    expected = (identities.numpy()[nearest] != truth.numpy()).mean()
    found = nearest_neighbour_error(train, identities, test, truth)
    assert found == pytest.approx(expected, abs=2 / len(test))  # shrinkage may turn a near tie


def test_all_pairs_are_never_in_memory_at_once():
    train, identities, test, _ = world(identities=500, images=4, dimension=4)
    for chunk in density_log_posteriors(train, identities, test.repeat(2, 1)):
        assert chunk.numel() <= 1 << 21
        assert len(chunk) <= 256


# Accuracy and privacy


def test_a_curve_that_lies_above_is_superior_by_the_difference():
    better, worse = [(0.9, 0.5), (0.7, 0.8)], [(0.95, 0.2), (0.6, 0.7)]
    found = superior(better, worse)
    assert found
    assert not superior(worse, better)
    assert (found.low, found.high) == (0.7, 0.9)
    # worse has 0.7 - (a - 0.6) / 0.35 * 0.5 at an accuracy of a.
    assert found.least == pytest.approx(0.5 - (0.7 - 0.3 / 0.35 * 0.5))
    assert found.most == pytest.approx(0.8 - (0.7 - 0.1 / 0.35 * 0.5))
    assert found.mean == pytest.approx((found.least + found.most) / 2)


CROSSING = [
    ([(0.5, 0.9), (0.9, 0.1)], [(0.5, 0.6), (0.9, 0.4)]),
    ([(0.5, 0.9), (0.9, 0.9)], [(0.5, 0.5), (0.7, 0.95), (0.9, 0.5)]),  # between the ends
    ([(0.8, 0.52), (0.7, 0.7)], [(0.8, 0.5), (0.81, 0.55), (0.7, 0.6)]),
    ([(0.5, 0.9), (0.7, 0.8)], [(0.7, 0.1), (0.9, 0.1)]),  # they share a single accuracy
    ([(0.9, 0.1), (0.6, 0.5)], [(0.9, 0.1), (0.6, 0.5)]),
]


@pytest.mark.parametrize(("one", "other"), CROSSING)
def test_curves_that_cross_or_are_one_are_neither_superior(one, other):
    assert not superior(one, other)
    assert not superior(other, one)


def test_a_point_that_another_beats_in_both_does_not_count_and_the_order_is_no_matter():
    """Measured accuracies need not fall as noise grows."""
    assert superior([(0.5, 0.9), (0.7, 0.3), (0.9, 0.9)], [(0.5, 0.5), (0.9, 0.5)])
    messy = superior([(0.9, 0.5), (0.5, 0.9), (0.9, 0.1)], [(0.5, 0.2), (0.9, 0.2)])
    assert messy.least == pytest.approx(0.3)


# Mistakes


def test_what_cannot_be_judged_is_refused():
    train, identities, test, truth = world()
    single = identities.clone()
    single[0] = 999
    nan = train.clone()
    nan[:2, 1] = math.nan
    for message, arguments in (
        ("no test features", (train, identities, test[:0], truth[:0])),
        ("1 identities is meaningless", (train, torch.zeros_like(identities), test, truth * 0)),
        ("1 of 8 identities have a single training feature.*leave these", (train, single, test, truth)),
        ("2 training features have values that are not finite", (nan, identities, test, truth)),
        ("2 test features have values", (train, identities, nan, truth)),
        (r"features of \(42, 3\) and test features of \(42, 2\)", (train, identities, test[:, :2], truth)),
        ("42 training features for 41 identities", (train, identities[1:], test, truth)),
        ("1 identities of the test features are in no", (train, identities, test, truth.clamp(min=5))),
    ):
        with pytest.raises(DataError, match=message):
            judge_features(*arguments)
    with pytest.raises(ConfigError, match="priors=flat: choose uniform or counts"):
        density_log_posteriors(train, identities, test, priors="flat")
    for share in (-0.1, 1.1):
        with pytest.raises(ConfigError, match="share"):
            normal_anonymity(0.3, 0.2, share)


def test_posteriors_that_cannot_be_judged_are_refused():
    logs, identities = posteriors()
    for message, *arguments in (
        ("returned NaN", logs * math.nan, identities),
        ("for the columns 0 to 8", logs, identities + 5),
        ("1 identities is meaningless", logs[:, :1], identities * 0),
        ("a row for each feature", logs[0], identities),
        ("at least one", torch.zeros(0, 5), torch.zeros(0).long()),
        ("log-posteriors of 50 features for 60 identities", iter([logs[:50]]), identities),
        ("of 0 features", iter([]), identities),
    ):
        with pytest.raises(DataError, match=message):
            judge(*arguments)


def test_curves_that_cannot_be_compared_are_refused():
    with pytest.raises(DataError, match=r"from 0.8 to 0.9 and from 0.5 to 0.6 do not overlap: sweep"):
        superior([(0.9, 0.1), (0.8, 0.2)], [(0.5, 0.2), (0.6, 0.1)])
    with pytest.raises(DataError, match="at least one"):
        superior([], [(0.5, 0.2)])
    with pytest.raises(DataError, match="all of them finite"):
        superior([(math.nan, 0.1)], [(0.5, 0.2)])


def test_the_papers_statement_is_the_tail_of_a_normal_distribution():
    # Sec. 6.2: mean 0.3 and deviation 0.25 of r / c. The paper writes 0.88; one minus Φ(-0.8) is 0.788.
    exact = statistics.NormalDist(0.3, 0.25).cdf(0.5)
    assert normal_anonymity(0.3, 0.25, 0.1) == pytest.approx(exact, rel=1e-9)
    assert exact == pytest.approx(0.788, abs=5e-4)


def test_beyond_a_tenth_is_counted_and_not_taken_from_a_normal_distribution():
    # Of 20 identities the first two guesses are the first tenth: ranks 1, 2, 3, 20 of four features.
    scores = torch.stack([torch.arange(20, 0, -1).roll(1 - rank) for rank in (1, 2, 3, 20)]).float()
    result = judge(scores, torch.zeros(4, dtype=torch.int64))
    assert result.mean * 20 == pytest.approx((1 + 2 + 3 + 20) / 4)
    assert result.beyond_a_tenth == 0.5
