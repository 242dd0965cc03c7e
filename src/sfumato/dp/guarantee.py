"""The guarantee of a release: a number with its unit and its source, never more than is proved."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Context
from statistics import NormalDist
from typing import Any, Literal

from sfumato.dp import naming
from sfumato.errors import ConfigError

Definition = Literal["pure", "gaussian", "concentrated", "approximate"]

SYMBOLS: dict[Definition, str] = {
    "pure": "eps",
    "gaussian": "mu",
    "concentrated": "rho",
    "approximate": "eps",
}
_NAMES: dict[Definition, str] = {"pure": "pure DP", "gaussian": "Gaussian DP", "concentrated": "zCDP"}


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """A differential-privacy guarantee for ONE release of ONE image.

    Neighbours are two images of the same shape that differ in at most `pixels` pixels, each in all of its
    channels. The shape of an image is public. Releasing the same image again spends again. Numbers are double
    precision: exact but for their last digits.

    Attributes:
        definition: "pure" (ε-DP), "gaussian" (μ-GDP, Dong, Roth & Su 2022, numbered as in
            arXiv:1905.02383), "concentrated" (ρ-zCDP, Bun & Steinke 2016) or "approximate" ((ε, δ)-DP).
        value: ε, μ, ρ or ε between neighbours.
        pixels: m, how many pixels may differ.
        whole_image: the same number between ANY two images of that shape.
        source: where the proof is.
        delta: δ of "approximate"; 0 otherwise.
        centre: the μ between the releases of any image of that shape and ONE reference, such as noise around
            0. It may be half of that between two images; None if none is proved. It is a μ whatever the
            definition, and serves `naming` alone.
    """

    definition: Definition
    value: float
    pixels: int
    whole_image: float
    source: str
    delta: float = 0.0
    centre: float | None = None

    def to(self, definition: Definition, *, delta: float = 0.0) -> "Guarantee":
        """Converts the guarantee to another definition, by a theorem. A conversion loses for good.

        "pure" converts to all others, "gaussian" to "concentrated" and "approximate", "concentrated" to
        "approximate". `delta` is for that alone.

        Raises:
            ConfigError: no theorem converts to it; δ is missing, or given for another definition.
        """
        if (definition == "approximate") != (delta != 0) or not 0 <= delta < 1:
            raise ConfigError(
                f"delta={delta:g}: give a delta above 0 and below 1 for the approximate definition, "
                "and for no other"
            )
        if definition == self.definition and delta == self.delta:
            return self
        theorem = _THEOREMS.get((self.definition, definition))
        if theorem is None:
            raise ConfigError(f"no theorem leads from {self.definition} to {definition} differential privacy")
        convert, source = theorem
        value, whole_image = convert(self.value, delta), convert(self.whole_image, delta)
        if not (math.isfinite(value) and math.isfinite(whole_image)):
            raise ConfigError(f"{self}: has no counterpart that a number of double precision can hold")
        return replace(
            self,
            definition=definition,
            value=value,
            whole_image=whole_image,
            source=f"{self.source}; {source}",
            delta=delta,
        )

    def group(self, pixels: int) -> "Guarantee":
        """The guarantee for images that differ in up to `pixels` pixels, by group privacy.

        k = ceil(pixels / m) steps of m pixels lead from one image to the other: ε, μ and the square root of ρ
        grow k-fold (Dong, Roth & Su 2022, Theorem 2.14; Bun & Steinke 2016, Proposition 1.9). A mechanism
        often has a better bound of its own: ask Protection.guarantee(shape, pixels=...) first.
        """
        if pixels < 1:
            raise ConfigError(f"pixels={pixels}: images differ in at least 1 pixel")
        steps = -(-pixels // self.pixels)
        if self.definition == "approximate" and steps > 1:
            raise ConfigError("(eps, delta) of groups: take group() first and convert after")
        value = self.value * (steps**2 if self.definition == "concentrated" else steps)
        # Images that differ in many pixels are still two images of that shape.
        return replace(self, value=min(value, max(self.value, self.whole_image)), pixels=pixels)

    def naming(
        self, *, candidates: int | None = None, releases: int = 1, prior: naming.Prior | None = None
    ) -> naming.Naming:
        """An upper bound on anybody's chance to name the person on the released images.

        Follows from `whole_image`, with the releases of any one image as the reference, or from `centre`,
        whichever proves more; see sfumato.dp.naming. A protection with few outputs may prove more.

        Args:
            candidates: N equally likely people; or
            prior: the chance of the best guess beforehand, or the priors of all people.
            releases: n, of images of that person, each with fresh noise.
        """
        best, whole = naming.prior_of(candidates, prior), self.whole_image
        match self.definition:
            case "pure":
                bound = naming.pure(best, epsilon=whole, releases=releases)
            case "gaussian":
                bound = naming.gaussian(best, mu=whole, releases=releases)
            case "concentrated":
                bound = naming.concentrated(best, rho=whole, releases=releases)
            case "approximate":
                bound = naming.approximate(best, epsilon=whole, delta=self.delta, releases=releases)
        if self.centre is not None:
            bound = naming.least(bound, naming.gaussian(best, mu=self.centre, releases=releases))
        return naming.make_statement(bound, candidates=candidates, prior=prior, releases=releases)

    def __str__(self) -> str:
        unit = "any 1 pixel" if self.pixels == 1 else f"any {self.pixels} pixels"
        kind = _NAMES.get(self.definition, f"(eps, delta)-DP at delta = {round_up(self.delta)}")
        symbol = SYMBOLS[self.definition]
        return (
            f"hides {unit} at {symbol} = {round_up(self.value)} ({kind}); "
            f"the whole image only at {symbol} = {round_up(self.whole_image)}"
        )


def proof_of(
    guarantees: Sequence[Guarantee],
    information: naming.Information,
    *,
    releases: int,
    draws: int | None = None,
) -> naming.Proof:
    """The proved bounds on n releases, in every term that adds up over unlike ones: see naming.compose.

    Each term is the least over all guarantees, converted if a theorem allows it. "approximate" converts to
    none of them and adds nothing. p(y|x) <= e^ε q(y), so no more than ε leaks, and no more than there are
    outputs.

    Args:
        guarantees, information: of one release; for any numbers of pixels, since only `whole_image` and
            `centre` count.
        releases: n >= 0, of any images of one person, each with fresh noise.
        draws: see Proof.
    """

    def least(definition: Definition) -> float:
        return min((_whole_as(guarantee, definition) for guarantee in guarantees), default=math.inf)

    centres = [guarantee.centre for guarantee in guarantees if guarantee.centre is not None]
    epsilon, mu = least("pure"), min([least("gaussian"), *centres])
    return naming.Proof(
        releases=releases,
        outputs=information.outputs,
        draws=draws,
        leakage=min(information.leakage, information.outputs, epsilon / math.log(2) * _UP),
        epsilon=epsilon,
        mu=mu,
        rho=min(least("concentrated"), _gaussian_to_concentrated(mu, 0)),
    )


def _whole_as(guarantee: Guarantee, definition: Definition) -> float:
    """The number between any two images under another definition; infinite if no theorem converts to it."""
    try:
        return guarantee.to(definition).whole_image
    except ConfigError:
        return math.inf


def round_up(value: float) -> str:
    """Rounds up to three significant digits: a guarantee may be understated, not overstated."""
    if not math.isfinite(value):
        return f"{value:g}"
    # The 1e-9 keeps 3.0000000000000004 at 3, far below any digit shown.
    upwards = Context(prec=3, rounding=ROUND_CEILING)
    return f"{float(upwards.create_decimal_from_float(value * (1 - 1e-9))):.10g}"


def _pure_to_gaussian(epsilon: float, _: float) -> float:
    """μ = -2 Φ^-1(1 / (1 + e^ε)) = 2 sqrt(2) erf^-1(tanh(ε / 2)).

    The trade-off function of ε-DP has straight pieces from (0, 1) over (a, a) to (1, 0), a = 1 / (1 + e^ε);
    that of μ-GDP is convex, so it lies below as soon as it passes through (a, a).
    """
    if epsilon < 1:  # near 1/2 the other form would lose the digits of ε
        import mpmath

        context = mpmath.MPContext()
        context.dps = 40
        return float(2 * context.sqrt(2) * context.erfinv(context.tanh(context.mpf(epsilon) / 2))) * _UP
    if epsilon < 500:
        return -2 * NormalDist().inv_cdf(1 / (1 + math.exp(epsilon))) * _UP
    # From Φ(-t) <= exp(-t^2 / 2) / 2: a little more than the root, never less.
    return 2 * math.sqrt(2 * (epsilon - math.log(2)) + 1e-9) * _UP


def _pure_to_concentrated(epsilon: float, _: float) -> float:
    """ρ = ε^2 / 2 (Proposition 1.4); and ρ = ε, since no Rényi divergence is above ε."""
    return min(epsilon * epsilon / 2, epsilon)  # a power would not give infinity, but raise


def _gaussian_to_concentrated(mu: float, _: float) -> float:
    """ρ = μ^2 / 2: everything that μ-GDP allows is a post-processing of N(0, 1) against N(μ, 1)."""
    return max(mu * mu / 2, 5e-324 if mu else 0.0)  # a square too small for a double is not 0


def _gaussian_to_approximate(mu: float, delta: float) -> float:
    """The least ε with δ >= Φ(-ε/μ + μ/2) - e^ε Φ(-ε/μ - μ/2): Dong, Roth & Su 2022, Corollary 2.13."""
    if mu == 0:
        return 0.0
    import mpmath

    context = mpmath.MPContext()  # the precision of mpmath itself is shared by all threads
    context.dps = 50

    def delta_at(epsilon: float) -> Any:
        shift, half = context.mpf(epsilon) / mu, context.mpf(mu) / 2
        return context.ncdf(half - shift) - context.exp(epsilon) * context.ncdf(-shift - half)

    if delta_at(0.0) <= delta:
        return 0.0
    # Beyond the ε of zCDP the δ is small enough; halve the interval until nothing is left.
    low, high = 0.0, _zcdp_to_approximate(_gaussian_to_concentrated(mu, 0), delta)
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if delta_at(middle) <= delta else (middle, high)
    return high


def _zcdp_to_approximate(rho: float, delta: float) -> float:
    """The least ε over 1 < α < e^30 of ρα + ln(1 - 1/α) - ln(δα) / (α - 1).

    Source: Canonne, Kamath & Steinke 2020, Corollary 13, solved for ε. Any α gives a valid ε: the search need
    not be exact for the result to hold.
    """
    if rho == 0:
        return 0.0

    def epsilon_at(log_excess: float) -> float:
        alpha = 1 + math.exp(log_excess)
        return rho * alpha + math.log1p(-1 / alpha) - (math.log(delta) + math.log(alpha)) / (alpha - 1)

    low, high = (math.log(-math.log(delta)) - math.log(rho)) / 2 - 12, 30.0
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(200):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if epsilon_at(left) <= epsilon_at(right) else (left, high)
    return max(0.0, epsilon_at((low + high) / 2)) * _UP


_UP = 1 + 1e-12  # more than floating point loses in a few steps: a stated number may be too large only

_THEOREMS = {
    ("pure", "gaussian"): (_pure_to_gaussian, "as Gaussian DP: Dong, Roth & Su 2022, Sec. 2.2"),
    ("pure", "concentrated"): (_pure_to_concentrated, "as zCDP: Bun & Steinke 2016, Prop. 1.4"),
    ("pure", "approximate"): (lambda epsilon, _: epsilon, "delta = 0 is less than any delta"),
    ("gaussian", "concentrated"): (_gaussian_to_concentrated, "as zCDP: Bun & Steinke 2016, Prop. 1.6"),
    ("gaussian", "approximate"): (_gaussian_to_approximate, "Dong, Roth & Su 2022, Cor. 2.13"),
    ("concentrated", "approximate"): (_zcdp_to_approximate, "Canonne, Kamath & Steinke 2020, Cor. 13"),
}
