import json
import math
from itertools import product

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, kstest

from sfumato.dp.clipping import (
    POLICIES,
    AdaClip,
    Automatic,
    Fixed,
    MetaClip,
    Outcome,
    Quantile,
    clip_rows,
    fresh_gaussian,
    normalise_rows,
    parse,
    policies,
    split,
)
from sfumato.errors import ArtefactError, ConfigError

SETTINGS = {
    "fixed": ("fixed", {"clipping_norm": 0.7}),
    "automatic": ("automatic", {}),
    "quantile": ("quantile", {"start": 0.7}),
    "quantile, large share": ("quantile", {"start": 0.7, "quantile": 0.8, "share": 0.9}),
    "adaclip": ("adaclip", {}),
    "adaclip, wide": ("adaclip", {"smallest": 1e-4, "largest": 100.0}),
    "meta-clip": ("meta-clip", {"start": 0.7, "bound": 0.3}),
    "meta-clip, large share": ("meta-clip", {"start": 0.7, "bound": 3.0, "share": 0.9}),
}
NAN, INF = math.nan, math.inf
P = 3


def seeded(seed):
    generator = torch.Generator().manual_seed(seed)
    return lambda shape, std: torch.randn(shape, generator=generator, dtype=torch.float64) * std


def step(policy, rows, slopes=None, *, z=0.0, count=4.0, draw=None):
    """One step, without noise unless said otherwise."""
    slopes = torch.zeros(len(rows)) if slopes is None else slopes
    draw = draw or seeded(0)
    return policy.step(rows, noise_multiplier=z, public_count=count, draw=draw, derivatives=slopes)


class Watched:
    """A draw that sees what noise is added to, and puts a release of its own choice in its place.

    What two batches release is thereby made equal, and all that may still differ in the results of a step is
    what did NOT pass through the noise.
    """

    def __init__(self, seed):
        self.queries = []  # (value before noise, standard deviation of its noise)
        self.scripted = seeded(seed)

    def __call__(self, shape, std):
        return _Noise(self, shape, std)


class _Noise:
    def __init__(self, watched, shape, std):
        self.watched, self.shape, self.std = watched, shape, std

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        assert func in (torch.Tensor.add, torch.Tensor.__add__), f"noise is added, not put through {func}"
        value, noise = args
        assert tuple(value.shape) == noise.shape
        noise.watched.queries.append((value.clone(), noise.std))
        return noise.watched.scripted(noise.shape, noise.std)


def distance_of(queries, others):
    """L2 distance of what two neighbouring batches release, each value in units of its noise."""
    assert [(v.shape, std) for v, std in queries] == [(v.shape, std) for v, std in others], (
        "noise depends on data"
    )
    pairs = zip(queries, others, strict=True)
    return math.hypot(*((value - other).norm().item() / std for (value, std), (other, _) in pairs))


def assert_costs_one_gaussian(make, batch, slopes, extra, slope, *, z=1.3, count=4.0, steps=3):
    """THE property: a task more or less moves all releases together by 1/z, and nothing else at all."""
    policy = make()
    generator = torch.Generator().manual_seed(1)
    for number in range(steps):  # into some state that it can come into
        rows = torch.randn(number + 2, P, generator=generator)
        step(policy, rows, rows[:, 0].clone(), z=z, count=count, draw=seeded(number))
    sides = []
    for rows, given_slopes in ((batch, slopes), ([*batch, extra], [*slopes, slope])):
        side, watched = make(), Watched(7)
        side.restore(policy.state())
        rows, given_slopes = (torch.tensor(each, dtype=torch.float64) for each in (rows, given_slopes))
        outcome = step(side, rows.reshape(-1, P), given_slopes, z=z, count=count, draw=watched)
        sides.append((watched.queries, outcome.update, side.state(), side.norm))
    (queries, update, state, norm), (others, other_update, other_state, other_norm) = sides
    assert distance_of(queries, others) <= 1 / z * (1 + 1e-14), "sensitivity: over one Gaussian mechanism"
    assert torch.equal(update, other_update), "the update depends on more than noised values"
    assert (state, norm) == (other_state, other_norm), "the state depends on more than noised values"


def maker(label):
    name, given_settings = SETTINGS[label]
    return lambda: parse(name, given_settings)


def test_every_policy_is_examined():
    assert {name for name, _ in SETTINGS.values()} == set(POLICIES)


HARMLESS = [[0.1, -0.2, 0.3], [0.0, 0.0, 0.0], [2.0, 1.0, -5.0]]
ADVERSARIAL = [
    [0.0, 0.0, 0.0],
    [0.2, 0.2, 0.2],  # within the norm
    [0.7, 0.0, 0.0],  # on it
    [3e4, -3e4, 1.0],
    [1e300, 1e300, -1e300],
    [5e-324, 1e-310, 0.0],
    [NAN, 0.0, 1.0],
    [INF, -INF, 1.0],
]


# Only Meta-Clip looks at slopes; that the others do not, a large one shows.
@pytest.mark.parametrize(
    ("label", "slope"),
    [(label, slope) for label in SETTINGS for slope in ([0.0, 1e9, -INF, NAN] if "meta" in label else [1e9])],
)
@pytest.mark.parametrize("steps", [0, 1, 8])
def test_an_adversarial_task_costs_one_gaussian_mechanism(label, steps, slope):
    for extra, batch in product(ADVERSARIAL, ([], HARMLESS, [[INF, 0.0, 0.0]])):
        assert_costs_one_gaussian(maker(label), batch, [0.1] * len(batch), extra, slope, steps=steps)


any_row = st.lists(st.floats(), min_size=P, max_size=P)
tame_row = st.lists(st.floats(-2, 2), min_size=P, max_size=P)


@pytest.mark.parametrize("label", SETTINGS)
@settings(max_examples=40, deadline=None)
@given(
    batch=st.lists(st.tuples(any_row | tame_row, st.floats()), max_size=4),
    extra=any_row | tame_row,
    slope=st.floats(),
    z=st.floats(0.05, 50),
    steps=st.integers(0, 4),
)
def test_any_task_costs_one_gaussian_mechanism(label, batch, extra, slope, z, steps):
    rows, slopes = [row for row, _ in batch], [one for _, one in batch]
    assert_costs_one_gaussian(maker(label), rows, slopes, extra, slope, z=z, count=5.5, steps=steps)


class ForgetsToClip(Fixed):
    def step(self, contributions, *, noise_multiplier, public_count, draw, derivatives=None):
        total = contributions.double().nan_to_num().sum(0)
        return Outcome((total + draw((P,), noise_multiplier * self.norm)) / public_count, False)


class DividesByTheRealisedNumber(Fixed):
    def step(self, contributions, *, noise_multiplier, public_count, draw, derivatives=None):
        count = max(len(contributions), 1)
        return super().step(contributions, noise_multiplier=noise_multiplier, public_count=count, draw=draw)


class FollowsTheRawMedian(Quantile):
    def step(self, contributions, **rest):
        outcome = super().step(contributions, **rest)
        self.norm = contributions.norm(dim=1).quantile(0.5).item()
        return outcome


class NoisesByTheLargestTask(Fixed):
    def step(self, contributions, *, noise_multiplier, public_count, draw, derivatives=None):
        largest = contributions.double().norm(dim=1).max().item() if len(contributions) else 1.0
        total = contributions.double().sum(0) + draw((P,), noise_multiplier * largest)
        return Outcome(total / public_count, False)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: ForgetsToClip(0.7), "sensitivity"),
        (lambda: DividesByTheRealisedNumber(0.7), "update depends"),
        (lambda: FollowsTheRawMedian(0.7), "state depends"),
        (lambda: NoisesByTheLargestTask(0.7), "noise depends on data"),
    ],
)
def test_the_property_fails_for_a_broken_policy(make, complaint):
    with pytest.raises(AssertionError, match=complaint):
        assert_costs_one_gaussian(make, HARMLESS, [0.0] * 3, [9.0, 9.0, 9.0], 0.0, steps=0)


@pytest.mark.parametrize("label", ["quantile", "meta-clip"])
def test_the_property_fails_for_a_share_that_is_not_taken_from_the_sum(label, monkeypatch):
    extra = [9.0, 9.0, 9.0], 5.0
    assert_costs_one_gaussian(maker(label), HARMLESS, [0.0] * 3, *extra)
    monkeypatch.setattr(policies, "split", lambda z, share: (z, z / math.sqrt(share)))
    with pytest.raises(AssertionError, match="sensitivity"):
        assert_costs_one_gaussian(maker(label), HARMLESS, [0.0] * 3, *extra)


@given(z=st.floats(1e-3, 1e3), share=st.floats(0.01, 0.99))
def test_a_split_costs_what_the_whole_costs(z, share):
    of_sum, other = split(z, share=share)
    assert 1 / of_sum**2 + 1 / other**2 == pytest.approx(1 / z**2, rel=1e-12)


# Clipping of single rows.


@given(rows=st.lists(any_row | tame_row, min_size=1, max_size=5), norm=st.floats(1e-3, 1e3))
@example(rows=[[1e308, 1e308, 1e308]], norm=1.0)
def test_no_row_is_longer_than_the_clipping_norm_not_even_by_rounding(rows, norm):
    for dtype in (torch.float32, torch.float64):
        clipped = clip_rows(torch.tensor(rows, dtype=dtype), clipping_norm=norm)
        assert clipped.isfinite().all()
        assert all(math.hypot(*row) <= norm for row in clipped.tolist())


def test_long_rows_of_float32_are_not_longer_than_the_clipping_norm():
    rows = torch.randn(8, 300_000, generator=torch.Generator().manual_seed(0))
    for row in clip_rows(rows, clipping_norm=0.1):
        assert math.sqrt(math.fsum(x * x for x in row.tolist())) <= 0.1


def test_a_row_within_the_norm_is_unchanged_a_longer_one_turned_nowhere_and_one_not_finite_is_zero():
    rows = torch.tensor([[1.0, NAN], [INF, 1.0], [0.3, 0.4], [0.0, 0.0], [30.0, 40.0]])
    clipped = clip_rows(rows, clipping_norm=5.0)
    assert torch.equal(clipped[2:4], rows[2:4].double())
    assert clipped[4].tolist() == pytest.approx([3.0, 4.0])
    for made in (clipped, normalise_rows(rows, stability=0.01)):
        assert made[:2].tolist() == [[0, 0], [0, 0]]


@given(rows=st.lists(any_row | tame_row, min_size=1, max_size=5), stability=st.floats(1e-9, 10))
def test_every_normalised_row_is_shorter_than_1(rows, stability):
    normalised = normalise_rows(torch.tensor(rows, dtype=torch.float64), stability=stability)
    assert all(math.hypot(*row) < 1 for row in normalised.tolist())


# All policies.


def steps_of(policy, number, *, seed, z=1.0, count=8.0, size=5):
    generator, draw = torch.Generator().manual_seed(seed), seeded(seed + 1)
    batches = (  # every fourth is empty
        (torch.randn(n % 4, size, generator=generator), torch.randn(n % 4, generator=generator))
        for n in range(number)
    )
    return [step(policy, *batch, z=z, count=count, draw=draw).update for batch in batches]


@pytest.mark.parametrize("label", SETTINGS)
def test_a_policy_goes_on_exactly_from_its_state(label):
    for before in (0, 6):
        policy, other = maker(label)(), maker(label)()
        steps_of(policy, before, seed=1)
        other.restore(json.loads(json.dumps(policy.state())))
        assert all(map(torch.equal, steps_of(policy, 6, seed=2), steps_of(other, 6, seed=2)))
        assert (policy.state(), policy.norm) == (other.state(), other.norm)


@pytest.mark.parametrize("label", SETTINGS)
def test_an_empty_batch_is_noised_like_any_other(label):
    policy = maker(label)()
    watched = Watched(1)
    update = step(policy, torch.empty(0, 5), z=1.0, draw=watched).update
    assert (update.shape, bool(update.all())) == ((5,), True)
    assert all(std > 0 for _, std in watched.queries)


@pytest.mark.parametrize("label", ["fixed", "quantile", "meta-clip"])
def test_without_noise_and_within_the_norm_the_update_is_the_plain_mean(label):
    rows = torch.tensor([[0.1, 0.2], [0.3, -0.2]])
    outcome = step(maker(label)(), rows, count=2.0)
    assert outcome.update.tolist() == pytest.approx(rows.mean(0).tolist())
    assert not outcome.zeroed


@pytest.mark.parametrize("label", SETTINGS)
def test_that_tasks_were_left_out_is_told_and_neither_which_nor_how_many(label):
    def outcome(rows):
        policy = maker(label)()
        steps_of(policy, 5, seed=0, size=2)  # AdaClip then has a mean to be shifted by
        return step(policy, torch.tensor(rows), count=2.0)

    good, bad = [0.1, 0.2], [NAN, 0.1]
    assert outcome([good, bad]).zeroed is outcome([bad, bad, good]).zeroed is True
    assert outcome([good]).zeroed is False
    assert torch.equal(outcome([good, bad]).update, outcome([good]).update)


@pytest.mark.parametrize("label", [x for x in SETTINGS if "adaclip" not in x])
def test_the_noise_of_the_sum_has_the_stated_deviation(label):
    policy, draw, size, z, total = maker(label)(), seeded(3), 400, 1.7, 0.0
    for _ in range(25):
        std = policy.norm * policy.sum_multiplier(z)
        update = step(policy, torch.zeros(3, size), z=z, count=6.0, draw=draw).update
        total += ((update * 6.0 / std) ** 2).sum().item()
    # Seeds are fixed: the test does not flicker. Right noise fails for one seed in ten thousand.
    assert 5e-5 < chi2.cdf(total, 25 * size) < 1 - 5e-5


# Automatic.


def test_automatic_divides_by_the_norm_and_the_stability_and_is_free_of_scale():
    update = step(Automatic(0.5), torch.tensor([[3.0, 4.0]]), count=1.0).update
    assert update.tolist() == pytest.approx([3 / 5.5, 4 / 5.5])
    rows = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)) * 100
    updates = [step(Automatic(), rows * scale, z=0.5, draw=seeded(1)).update for scale in (1.0, 1000.0)]
    # What is left of the scale is γ / |g|, about 0.01 / 200.
    assert updates[0].tolist() == pytest.approx(updates[1].tolist(), abs=1e-4)


# Quantile.


def deviation_from_median(tasks, share, *, seed=0, steps=800):
    """Root mean square of ln(C / median) after 200 steps, from a start of a tenth of the median, z = 1."""
    generator, draw, pool = torch.Generator().manual_seed(seed), seeded(seed + 1), 200
    policy = Quantile(0.1, share=share)
    squares = []
    for number in range(steps):
        drawn = int((torch.rand(pool, generator=generator) < tasks / pool).sum())  # Poisson sampling
        norms = (0.5 * torch.randn(drawn, 1, generator=generator)).exp()  # of median 1
        step(policy, norms, z=1.0, count=tasks, draw=draw)
        if number >= 200:
            squares.append(math.log(policy.norm) ** 2)
    return math.sqrt(sum(squares) / len(squares))


@pytest.mark.parametrize(
    ("tasks", "share", "deviation", "noise"),
    [(4, 0.1, 0.18, 1.054), (16, 0.1, 0.06, 1.054), (4, 0.3, 0.12, 1.195)],  # 5.4% more noise on the sum
)
def test_quantile_stays_as_near_to_the_median_as_the_docstring_says(tasks, share, deviation, noise):
    assert deviation_from_median(tasks, share) == pytest.approx(deviation, rel=0.2)
    assert split(1.0, share=share)[0] == pytest.approx(noise, abs=1e-3)


def test_a_smaller_share_loses_the_median_of_4_tasks():
    assert deviation_from_median(4, 0.01) > 0.5


@pytest.mark.parametrize("quantile", [0.2, 0.8])
def test_quantile_without_noise_finds_other_quantiles(quantile):
    norms = torch.linspace(0.02, 1.0, 50)[:, None]
    policy = Quantile(5.0, quantile=quantile)
    for _ in range(200):
        step(policy, norms, count=50.0)
    assert policy.norm == pytest.approx(quantile, abs=0.02)
    steps_of(policy, 200, seed=0, z=1e6, count=1.0)  # more noise than any norm could survive unbounded
    assert abs(math.log10(policy.norm)) <= 6 + 1e-9


@pytest.mark.parametrize(
    ("norms", "count", "fraction"),
    [([0.5, 0.6, 0.7, 2.0], 4, 3 / 4), *(([0.5, 2.0, 3.0, x], 8, 1 / 2 - 0.5 / 8) for x in (NAN, INF, -INF))],
)
def test_quantile_moves_by_the_update_of_the_paper_and_by_finite_tasks_alone(norms, count, fraction):
    """Andrew et al. 2021: C exp(-η (b - γ)); the bits are ±1/2."""
    moved, outcomes = [], []
    for tasks in (norms, [each for each in norms if math.isfinite(each)]):
        policy = Quantile(1.0, learning_rate=0.3)
        outcomes.append(step(policy, torch.tensor(tasks)[:, None], count=count))
        moved.append(policy.norm)
    assert moved == [pytest.approx(math.exp(-0.3 * (fraction - 1 / 2)))] * 2
    assert torch.equal(*(each.update for each in outcomes))
    assert [each.zeroed for each in outcomes] == [not math.isfinite(norms[-1]), False]


# AdaClip.


def test_adaclip_agrees_with_the_algorithm_written_coordinate_by_coordinate():
    beta1, beta2, h1, h2, z, count = 0.9, 0.7, 1e-4, 4.0, 0.8, 5.0
    policy = AdaClip(beta1, beta2, h1, h2)
    mean, deviation = [0.0] * P, [(h1 * h2) ** 0.25] * P
    draw, noise = seeded(4), seeded(4)
    generator = torch.Generator().manual_seed(5)
    for _ in range(20):
        rows = torch.randn(4, P, generator=generator, dtype=torch.float64)
        update = step(policy, rows, z=z, count=count, draw=draw).update
        b = [math.sqrt(s * sum(deviation)) for s in deviation]
        total = [0.0] * P
        for row in rows.tolist():
            w = [(g - m) / scale for g, m, scale in zip(row, mean, b, strict=True)]
            total = [t + x / max(1.0, math.hypot(*w)) for t, x in zip(total, w, strict=True)]
        noisy_sum = [(t + n) / count for t, n in zip(total, noise((P,), z).tolist(), strict=True)]
        expected = [scale * w + m for scale, w, m in zip(b, noisy_sum, mean, strict=True)]
        assert update.tolist() == pytest.approx(expected, rel=1e-6)
        for i in range(P):
            v = min(max((expected[i] - mean[i]) ** 2 - (b[i] * z / count) ** 2, h1), h2)
            deviation[i] = math.sqrt(beta2 * deviation[i] ** 2 + (1 - beta2) * v)
            mean[i] = beta1 * mean[i] + (1 - beta1) * expected[i]


def test_adaclip_is_unbiased_where_nothing_clips():
    rows = torch.tensor([[0.3, -0.1, 0.2], [0.1, 0.5, 0.0]], dtype=torch.float64)
    wide = {"policy": "adaclip", "mean": [0.4, -2.0, 1.0], "deviation": [3.0, 5.0, 4.0]}
    draw, updates = seeded(6), []
    for _ in range(2000):
        policy = AdaClip()
        policy.restore(wide)
        updates.append(step(policy, rows, z=0.5, count=2.0, draw=draw).update)
    found = torch.stack(updates)
    standard_errors = (found.mean(0) - rows.mean(0)) / (found.std(0) / math.sqrt(2000))
    assert standard_errors.abs().max() < 4
    deviations = [math.sqrt(s * 12) * 0.25 for s in (3.0, 5.0, 4.0)]  # b = sqrt(s · Σ s): b·z / tasks
    assert found.std(0).tolist() == pytest.approx(deviations, rel=0.06)


def test_adaclip_in_many_dimensions_settles_where_its_upper_bound_says_on_noise_alone():
    policy = AdaClip(largest=0.25)
    for seed in range(300):
        step(policy, torch.zeros(8, 2000), z=1.0, count=8.0, draw=seeded(seed))
    variances = torch.tensor(policy.state()["deviation"]) ** 2
    beyond_one_deviation = math.erfc(math.sqrt(0.5))  # 0.317
    # Each variance is an average over about 19 steps: 2,000 of them have a standard error of 1%.
    assert variances.mean().item() == pytest.approx(0.25 * beyond_one_deviation, rel=0.05)


# Meta-Clip.


@pytest.mark.parametrize("start", [0.5, 3.0])
def test_meta_clip_finds_the_norm_of_least_loss(start):
    policy = MetaClip(start, bound=10.0, learning_rate=0.05)
    for _ in range(200):
        slopes = torch.full((4,), 2 * (policy.norm - 1.5))  # of the loss (C - 1.5)^2
        step(policy, torch.zeros(4, 2), slopes)
    assert policy.norm == pytest.approx(1.5, abs=1e-3)


def test_a_single_task_moves_meta_clip_by_its_bound_at_most_and_it_stays_in_its_public_range():
    policy = MetaClip(1.0, bound=0.5, learning_rate=0.1)
    step(policy, torch.zeros(1, 2), torch.tensor([1e9]), count=2.0)
    assert policy.norm == pytest.approx(1.0 - 0.1 * 0.5 / 2)
    policy = MetaClip(1.0, bound=1.0, learning_rate=10.0, smallest=0.5, largest=2.0)
    norms = set()
    for seed in range(20):
        steps_of(policy, 2, seed=seed)
        norms.add(policy.norm)
    assert (min(norms), max(norms)) == (0.5, 2.0)


# Floating point.


@pytest.mark.parametrize("std", [1e-7, 0.3, 0.5, 1.0, 1.7, 4e5])
def test_fresh_noise_lies_on_a_grid_of_2_to_the_40_steps_a_deviation_and_is_gaussian(std):
    noise = fresh_gaussian((20_000,), std)
    step = 2.0 ** (math.floor(math.log2(std)) - 40)
    assert torch.equal((noise / step).round() * step, noise)
    assert kstest(noise.numpy() / std, "norm").pvalue > 1e-4
    assert torch.equal(fresh_gaussian((3,), 0.0), torch.zeros(3, dtype=torch.float64))


@pytest.mark.parametrize("label", SETTINGS)
def test_what_meets_the_noise_is_on_its_grid_and_sums_exactly_in_any_order(label):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(9, P, generator=generator, dtype=torch.float64) * 3
    order = torch.randperm(9, generator=generator)
    sides = []
    for given_rows in (rows, rows[order]):
        watched = Watched(0)
        step(maker(label)(), given_rows, given_rows[:, 0], z=1.3, draw=watched)
        sides.append(watched.queries)
    for (value, std), (other, _) in zip(*sides, strict=True):
        assert torch.equal(value, other)  # floating-point sums would differ, and tell who came when
        grid = 2.0 ** (math.floor(math.log2(std)) - 40)
        assert torch.equal((value / grid).round() * grid, value)


# Errors.


@pytest.mark.parametrize(
    ("name", "given_settings", "message"),
    [
        ("fixd", {}, "did you mean 'fixed'"),
        ("fixed", {}, "fixed needs clipping_norm"),
        ("fixed", {"clipping_norm": 0.0}, "clipping_norm=0: above 0"),
        ("fixed", {"clipping_norm": INF}, "clipping_norm=inf: above 0 and finite"),
        ("fixed", {"clip_norm": 1.0}, "no setting 'clip_norm'.*did you mean 'clipping_norm'"),
        ("automatic", {"stability": 0.0}, "stability=0: above 0"),
        ("quantile", {"start": -1.0}, "start=-1: above 0"),
        ("quantile", {"start": 1.0, "quantile": 1.0}, "quantile=1: above 0 and below 1"),
        ("quantile", {"start": 1.0, "share": 0.0}, "share=0: above 0 and below 1"),
        ("quantile", {"start": 1.0, "learning_rate": NAN}, "learning_rate=nan: above 0"),
        ("adaclip", {"mean_decay": 1.0}, "mean_decay=1: above 0 and below 1"),
        ("adaclip", {"smallest": 2.0}, "smallest=2: below largest=1"),
        ("meta-clip", {"start": 1.0}, "meta-clip needs bound"),
        ("meta-clip", {"start": 1.0, "bound": 0.0}, "bound=0: above 0"),
        ("meta-clip", {"start": 1.0, "bound": 1.0, "share": 1.0}, "share=1: above 0 and below 1"),
        ("meta-clip", {"start": 1.0, "bound": 1.0, "largest": 0.5}, "start=1: from smallest=0.01"),
        ("meta-clip-published", {"start": 1.0}, "is not a private clipping: .* take meta-clip"),
    ],
)
def test_settings_that_cannot_work_are_refused(name, given_settings, message):
    with pytest.raises(ConfigError, match=message):
        parse(name, given_settings)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"noise_multiplier": -1.0}, "noise_multiplier=-1: from 0"),
        ({"public_count": 0.0}, "public_count=0: above 0.*never how many were drawn"),
        ({"contributions": torch.zeros(3)}, "flatten each task"),
    ],
)
@pytest.mark.parametrize("label", SETTINGS)
def test_a_step_that_cannot_work_is_refused_before_anything_is_drawn(label, changed, message):
    policy = maker(label)()
    before = policy.state()
    watched = Watched(0)
    good = {"contributions": torch.zeros(2, 3), "noise_multiplier": 1.0, "public_count": 2.0}
    with pytest.raises(ConfigError, match=message):
        policy.step(**{**good, **changed}, draw=watched, derivatives=torch.zeros(2))
    assert (policy.state(), watched.queries) == (before, [])


@pytest.mark.parametrize(
    ("derivatives", "message"), [(None, "hand in derivatives"), (torch.zeros(3), "does not fit")]
)
def test_missing_derivatives_and_contributions_of_another_network_are_refused(derivatives, message):
    given_settings = {"noise_multiplier": 1.0, "public_count": 2.0, "draw": seeded(0)}
    with pytest.raises(ConfigError, match=message):
        maker("meta-clip")().step(torch.zeros(2, 3), derivatives=derivatives, **given_settings)
    adaclip = AdaClip()
    steps_of(adaclip, 1, seed=0, size=3)
    with pytest.raises(ConfigError, match="5 values and earlier ones had 3"):
        steps_of(adaclip, 1, seed=0, size=5)


@pytest.mark.parametrize(
    ("label", "state", "message"),
    [
        *((label, {"policy": "other", "norm": 1.0}, "made with clipping other") for label in SETTINGS),
        ("quantile", {"policy": "quantile", "norm": -1.0}, "damaged"),
        ("quantile", {"policy": "quantile"}, "damaged"),
        ("adaclip", {"policy": "adaclip", "mean": [1.0], "deviation": [1.0, 2.0]}, "damaged"),
        ("adaclip", {"policy": "adaclip", "mean": [1.0], "deviation": [0.0]}, "damaged"),
    ],
)
def test_a_state_that_is_damaged_or_of_another_policy_is_refused(label, state, message):
    with pytest.raises(ArtefactError, match=message):
        maker(label)().restore(state)
