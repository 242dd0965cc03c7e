import math

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from sfumato.dp.guarantee import Guarantee, round_up
from sfumato.errors import ConfigError
from sfumato.protect import parse


def guarantee(definition: str, value: float, **other) -> Guarantee:
    usual = {"pixels": 1, "whole_image": value, "source": "a proof"}
    return Guarantee(definition=definition, value=value, **{**usual, **other})


def converted(value: float, *route: str, delta: float = 0.0) -> float:
    """The number at the end of a route such as "pure", "concentrated", "approximate"."""
    promise = guarantee(route[0], value)
    for definition in route[1:]:
        promise = promise.to(definition, delta=delta if definition == "approximate" else 0.0)
    return promise.value


# In plain words.


@pytest.mark.parametrize(
    ("stated", "unit", "words", "whole"),
    [
        (guarantee("pure", 3.001, whole_image=705.6), "1 pixel", "eps = 3.01 (pure DP)", "eps = 706"),
        (
            guarantee("gaussian", 0.1 + 0.2, pixels=10, whole_image=21168.0),  # exact: not rounded up
            *("10 pixels", "mu = 0.3 (Gaussian DP)", "mu = 21200"),
        ),
        (
            guarantee("approximate", 4.5, whole_image=883.19, delta=1e-5),
            *("1 pixel", "eps = 4.5 ((eps, delta)-DP at delta = 1e-05)", "eps = 884"),
        ),
    ],
)
def test_plain_words_name_the_unit_and_never_round_a_number_down(stated, unit, words, whole):
    assert str(stated) == f"hides any {unit} at {words}; the whole image only at {whole}"


@given(st.floats(1e-300, 1e300))
def test_a_rounded_number_is_at_most_one_percent_above_and_never_below(value):
    shown = float(round_up(value))
    # Below by 1e-11 at most, which keeps 3.0000000000000004 at 3: far under the digits that anybody reads.
    assert value * (1 - 2e-11) <= shown <= value * 1.0101


@given(st.floats(1e-30, 0.999))
@example(1.2345641e-6)
def test_delta_in_plain_words_is_never_rounded_down(delta):
    words = str(guarantee("approximate", 1.0, delta=delta))
    shown = float(words.split("delta = ")[1].split(")")[0])
    assert shown >= delta * (1 - 2e-11)


# Pure to Gaussian.


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 3.0, 10.0, 40.0, 300.0, 600.0])
def test_the_trade_off_of_pure_dp_lies_nowhere_below_that_of_its_gaussian_dp(epsilon):
    mu = converted(epsilon, "pure", "gaussian")
    # Errors of the first kind, dense everywhere and at both ends.
    tiny = np.logspace(-300, -1, 20_000)
    first = np.concatenate([tiny, np.linspace(0.1, 0.9, 20_001), 1 - np.logspace(-15, -1, 2_000)])
    pure = np.maximum(1 - np.exp(epsilon) * first, np.exp(-epsilon) * (1 - first))
    gaussian = norm.cdf(norm.isf(first) - mu)
    # 1e-9: what scipy's tails lose. 1e-15: the same near 1.
    assert (pure >= gaussian * (1 - 1e-9) - 1e-15).all()


@given(st.floats(-20, 5).map(lambda exponent: 10**exponent))
@example(1e-16)
@example(1e-15)
@example(1e-8)
@example(499.999)
@example(500.0)
def test_the_mu_of_pure_dp_is_never_below_the_exact_one(epsilon):
    mu = converted(epsilon, "pure", "gaussian")
    with mpmath.workdps(60):
        # The error at the kink, Phi(-mu / 2), falls as mu grows: too small a mu makes it too large.
        kink = 1 / (1 + mpmath.exp(mpmath.mpf(epsilon)))
        assert mpmath.ncdf(-mpmath.mpf(mu) / 2) <= kink


@pytest.mark.parametrize(("epsilon", "slack"), [(1e-3, 1e-9), (1.0, 1e-9), (499.0, 1e-9), (1e4, 1e-3)])
def test_the_mu_of_pure_dp_is_not_needlessly_large(epsilon, slack):
    # From 500 on a bound takes the place of the exact quantile: 0.4% more there, less beyond.
    mu = converted(epsilon, "pure", "gaussian") * (1 - slack)
    with mpmath.workdps(60):
        assert mpmath.ncdf(-mpmath.mpf(mu) / 2) > 1 / (1 + mpmath.exp(mpmath.mpf(epsilon)))


# To concentrated.


def worst_pure_divergence(epsilon: float, alpha: float) -> float:
    """The Rényi divergence of randomised response of order α, which no ε-DP mechanism exceeds."""
    terms = (alpha * epsilon, (1 - alpha) * epsilon)
    return (np.logaddexp(*terms) - np.logaddexp(0, epsilon)) / (alpha - 1)


@given(st.floats(-6, 4).map(lambda exponent: 10**exponent), st.floats(-3, 4).map(lambda e: 1 + 10**e))
def test_no_pure_mechanism_passes_the_rho_that_it_is_given(epsilon, alpha):
    rho = converted(epsilon, "pure", "concentrated")
    # The absolute 1e-13 / (alpha - 1) is what the difference of two logarithms loses.
    lost = 1e-13 * max(1, epsilon * alpha) / (alpha - 1)
    assert worst_pure_divergence(epsilon, alpha) <= alpha * rho * (1 + 1e-12) + lost


@pytest.mark.parametrize(
    ("epsilon", "rho"), [(0.1, 0.005), (1.0, 0.5), (2.0, 2.0), (3.0, 3.0), (706.0, 706.0)]
)
def test_rho_of_pure_dp_is_half_the_square_or_epsilon_if_that_is_less(epsilon, rho):
    assert converted(epsilon, "pure", "concentrated") == pytest.approx(rho, rel=1e-12)


@pytest.mark.parametrize("mu", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("alpha", [1.01, 2.0, 30.0])
def test_rho_of_gaussian_dp_is_the_renyi_divergence_of_two_normals(mu, alpha):
    def integrand(x: float) -> float:
        return math.exp(alpha * norm.logpdf(x, mu) + (1 - alpha) * norm.logpdf(x) - peak)

    peak = alpha * (alpha - 1) * mu**2 / 2
    integral = quad(integrand, alpha * mu - 40, alpha * mu + 40, points=[alpha * mu])[0]
    divergence = (math.log(integral) + peak) / (alpha - 1)
    rho = converted(mu, "gaussian", "concentrated")
    assert divergence == pytest.approx(alpha * rho, rel=1e-6)  # what quad promises, near alpha = 1


# To approximate.


def hockey_stick_of_normals(mu: float, epsilon: float) -> float:
    """∫ max(0, density of N(mu, 1) - e^ε density of N(0, 1)), by quadrature."""
    start = epsilon / mu + mu / 2  # from here on the first is larger
    excess = lambda x: norm.pdf(x - mu) - math.exp(epsilon + norm.logpdf(x))  # noqa: E731
    return quad(excess, start, start + 40, epsabs=0, limit=200)[0]


@pytest.mark.parametrize("mu", [0.01, 0.1, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_epsilon_of_gaussian_dp_has_the_hockey_stick_divergence_delta(mu, delta):
    epsilon = converted(mu, "gaussian", "approximate", delta=delta)
    # 1e-5: the cancellation in the integrand, of two densities that meet at its start.
    assert hockey_stick_of_normals(mu, epsilon) == pytest.approx(delta, rel=1e-5)


@pytest.mark.parametrize("mu", [1e-6, 0.5, 12.6, 706.0, 21168.0])
@pytest.mark.parametrize("delta", [1e-7, 1e-30, 1e-300])
def test_epsilon_of_gaussian_dp_is_the_least_for_values_of_any_size(mu, delta):
    def exceeds(epsilon: float) -> bool:
        """Whether ln(Φ(a) - δ) is above ε + ln Φ(b), a and b as in the corollary: no huge powers of e."""
        upper, lower = (mpmath.ncdf(end - mpmath.mpf(epsilon) / mu) for end in (mu / 2, -mu / 2))
        return upper > delta and mpmath.log(upper - delta) > epsilon + mpmath.log(lower)

    epsilon = converted(mu, "gaussian", "approximate", delta=delta)
    with mpmath.workdps(700):  # delta is 1e-300 of the terms
        assert not exceeds(epsilon)
        assert exceeds(epsilon * (1 - 1e-9))


def test_a_mu_or_rho_that_delta_covers_costs_nothing():
    # The total variation of N(0, 1) and N(1e-6, 1) is 4e-7.
    assert converted(1e-6, "gaussian", "approximate", delta=1e-6) == 0
    assert converted(1e-12, "concentrated", "approximate", delta=0.01) == 0


def epsilon_on_a_grid(rho: float, delta: float) -> float:
    """Canonne, Kamath & Steinke 2020, Corollary 13 solved for ε, at 400,000 orders from 1 + 1e-13 to 1e13."""
    excess = np.logspace(-13, 13, 400_001)
    alpha = 1 + excess
    return (rho * alpha + np.log(excess) - np.log(alpha) - (np.log(delta) + np.log(alpha)) / excess).min()


@pytest.mark.parametrize("rho", [1e-6, 0.005, 0.5, 3.0, 706.0, 21168.0, 1e9])
@pytest.mark.parametrize("delta", [0.1, 1e-5, 1e-12, 1e-200])
def test_epsilon_of_concentrated_dp_is_the_least_over_a_grid_of_orders(rho, delta):
    epsilon = converted(rho, "concentrated", "approximate", delta=delta)
    least = epsilon_on_a_grid(rho, delta)
    # A step of the grid is 1.5e-4 in ln(alpha - 1), and misses the least by its square.
    assert max(0, least) * (1 - 1e-7) - 1e-15 <= epsilon <= max(0, least) * (1 + 1e-9)


@settings(deadline=None, max_examples=60)
@given(
    rho=st.floats(-6, 5).map(lambda exponent: 10**exponent),
    delta=st.floats(-30, -0.01).map(lambda exponent: 10**exponent),
)
def test_the_delta_of_the_epsilon_of_concentrated_dp_is_at_most_delta(rho, delta):
    epsilon = converted(rho, "concentrated", "approximate", delta=delta)
    with mpmath.workdps(40):

        def log_delta(log_excess: float) -> mpmath.mpf:
            """ln of exp((α - 1)(αρ - ε)) / (α - 1) * (1 - 1/α)^α, as the corollary has it."""
            excess = mpmath.exp(log_excess)
            alpha = 1 + excess
            return excess * (alpha * rho - epsilon) - mpmath.log(excess) + alpha * mpmath.log(excess / alpha)

        # The exponents fall and rise again: a ternary search.
        low, high = mpmath.mpf(-20), mpmath.mpf(40)
        for _ in range(150):
            left, right = low + (high - low) / 3, high - (high - low) / 3
            low, high = (low, right) if log_delta(left) < log_delta(right) else (left, high)
        # 1e-9: the search, and the double precision of ε, times the order at the least.
        lost = 1e-15 * epsilon * mpmath.exp(low)
        assert log_delta(low) <= mpmath.log(delta) + 1e-9 + lost


@pytest.mark.parametrize("definition", ["pure", "gaussian", "concentrated"])
@settings(deadline=None, max_examples=40)
@given(
    value=st.floats(-4, 5).map(lambda exponent: 10**exponent),
    delta=st.floats(-300, -0.1).map(lambda exponent: 10**exponent),
    factor=st.floats(1.001, 1e3),
)
def test_a_smaller_delta_or_a_weaker_promise_never_gives_a_smaller_epsilon(definition, value, delta, factor):
    epsilon = converted(value, definition, "approximate", delta=delta)
    # 1e-11: the search stops there.
    assert converted(value, definition, "approximate", delta=delta / factor) >= epsilon * (1 - 1e-11)
    assert converted(value * factor, definition, "approximate", delta=delta) >= epsilon * (1 - 1e-11)


@pytest.mark.parametrize("definition", ["gaussian", "concentrated"])
@pytest.mark.parametrize("delta", [1e-307, 1e-309, 1e-320, 5e-324])
def test_a_delta_too_small_for_double_precision_does_not_make_epsilon_vanish(definition, delta):
    assert converted(1.0, definition, "approximate", delta=delta) > 20


# Routes.


@pytest.mark.parametrize("route", ["", "concentrated", "gaussian", "gaussian concentrated"])
@settings(deadline=None, max_examples=60)
@given(
    epsilon=st.floats(-3, 2.5).map(lambda exponent: 10**exponent),
    delta=st.floats(-30, -0.1).map(lambda exponent: 10**exponent),
)
def test_no_route_from_pure_dp_promises_more_than_randomised_response_keeps(route, epsilon, delta):
    stated = converted(epsilon, "pure", *route.split(), "approximate", delta=delta)
    with mpmath.workdps(60):
        # The worst ε-DP mechanism lies with probability 1 / (1 + e^ε), and tells the truth otherwise.
        lie = 1 / (1 + mpmath.exp(mpmath.mpf(epsilon)))
        assert 1 - lie - mpmath.exp(mpmath.mpf(stated)) * lie <= delta


def test_the_whole_image_the_source_and_the_pixels_go_along():
    promise = parse("dp-pix-gaussian:cell=4,rho=0.5,pixels=16").guarantee((1, 28, 28))
    made = promise.to("approximate", delta=1e-5)
    assert (made.pixels, made.delta) == (16, 1e-5)
    assert made.whole_image == converted(promise.whole_image, "concentrated", "approximate", delta=1e-5)
    assert made.source.startswith(promise.source)
    assert made.source.endswith("Canonne, Kamath & Steinke 2020, Cor. 13")


@pytest.mark.parametrize("definition", ["pure", "gaussian", "concentrated"])
def test_a_promise_in_its_own_terms_is_itself_and_nothing_released_is_nothing_lost_in_any(definition):
    promise = guarantee(definition, 0.7)
    assert promise.to(definition) is promise
    terms = ["pure", "gaussian", "concentrated", "approximate"]
    for term in terms[terms.index(definition) :]:
        assert converted(0.0, definition, term, delta=1e-5) == 0


# Groups.


@pytest.mark.parametrize(
    ("definition", "value"), [("pure", 5 * 0.2), ("gaussian", 5 * 0.2), ("concentrated", 5**2 * 0.2)]
)
def test_five_steps_between_images_cost_five_times_epsilon_mu_or_the_root_of_rho(definition, value):
    promise = guarantee(definition, 0.2, pixels=10, whole_image=1000.0).group(50)
    assert promise.value == pytest.approx(value)
    assert (promise.pixels, promise.whole_image) == (50, 1000)
    if definition == "concentrated":  # then converted: the price of the group in other terms
        of_group = converted(25 * 0.2, "concentrated", "approximate", delta=1e-6)
        assert promise.to("approximate", delta=1e-6).value == pytest.approx(of_group)


def test_a_started_step_counts_as_one_and_no_group_costs_more_than_the_whole_image():
    promise = guarantee("pure", 0.2, pixels=10, whole_image=1.1)
    for pixels, steps in ((1, 1), (9, 1), (10, 1), (11, 2), (20, 2), (21, 3), (60, 5.5)):
        assert promise.group(pixels).value == pytest.approx(0.2 * steps)


MECHANISMS = [
    "dp-pix:cell=3,epsilon=0.7,pixels={}",
    "dp-pix:cell=3,epsilon=0.7,pixels={},variant=published",
    "dp-pix-gaussian:cell=3,rho=0.3,pixels={}",
    "gaussian:sigma=100",
]


@settings(deadline=None, max_examples=60)
@given(spec=st.sampled_from(MECHANISMS), pixels=st.integers(1, 12), group=st.integers(1, 100))
def test_a_groups_price_is_never_below_what_the_mechanism_itself_proves_tight(spec, pixels, group):
    # The mechanism's own value for that many pixels is reached by some neighbours, or nearly so.
    protection = parse(spec.format(pixels))
    own = protection.guarantee((1, 8, 7), pixels=group).value
    assert protection.guarantee((1, 8, 7)).group(group).value >= own * (1 - 1e-12)


# Refusals.


@pytest.mark.parametrize(
    ("start", "end"),
    [("gaussian", "pure"), ("concentrated", "pure"), ("concentrated", "gaussian")]
    + [("approximate", end) for end in ("pure", "gaussian", "concentrated")],
)
def test_where_no_theorem_leads_there_is_no_number(start, end):
    promise = guarantee(start, 1.0, delta=1e-5 if start == "approximate" else 0.0)
    with pytest.raises(ConfigError, match=f"no theorem leads from {start} to {end} differential privacy"):
        promise.to(end)


@pytest.mark.parametrize(
    ("start", "end", "delta"),
    [("pure", "approximate", 0.0)]
    + [("pure", end, 1e-5) for end in ("pure", "gaussian", "concentrated")]
    + [("concentrated", "approximate", delta) for delta in (-1e-5, 1.0, 2.0, math.inf, math.nan)],
)
def test_a_delta_that_is_missing_or_impossible_or_belongs_nowhere_is_refused(start, end, delta):
    message = f"delta={delta:g}: give a delta above 0 and below 1 for the approximate .* and for no other"
    with pytest.raises(ConfigError, match=message):
        guarantee(start, 1.0).to(end, delta=delta)


@pytest.mark.parametrize(
    ("stated", "pixels", "message"),
    [
        (guarantee("approximate", 1.0, delta=1e-5), 2, r"take group\(\) first and convert after"),
        (guarantee("pure", 1.0), 0, "pixels=0: images differ in at least 1 pixel"),
        (guarantee("pure", 1.0), -3, "pixels=-3: images differ in at least 1 pixel"),
    ],
)
def test_a_group_that_has_no_price_is_refused(stated, pixels, message):
    with pytest.raises(ConfigError, match=message):
        stated.group(pixels)
