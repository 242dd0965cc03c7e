"""Releases of one person by DIFFERENT protections: the naming bound for all of them together."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

from sfumato.dp.naming.bound import (
    COUNTED,
    UP,
    Assumption,
    Bound,
    Prior,
    best_guess,
    check_number,
    least,
    log_factor,
)
from sfumato.dp.naming.one import concentrated, gaussian, pure

_MOST_BITS = 60  # with more outputs only a sequence is counted
_LEAKAGE = "maximal leakage, added up: Issa, Wagner & Kamath 2020"


@dataclass(frozen=True, kw_only=True)
class Information:
    """The most that ONE release reveals about its image, in bits; infinite if it is not known.

    Attributes:
        outputs: log2 of the number of different releases.
        leakage: the maximal leakage, log2 Σ_y max_x p(y|x); without noise it is `outputs`.
    """

    outputs: float = math.inf
    leakage: float = math.inf

    def __post_init__(self) -> None:
        for field in fields(self):
            check_number(field.name, getattr(self, field.name))


NOTHING_KNOWN = Information()


@dataclass(frozen=True, kw_only=True)
class Proof:
    """The proved bounds on each of n releases, in every term that adds up; infinite without a proof.

    Attributes:
        releases: n >= 0, each with fresh noise.
        outputs: log2 of the number of different releases, as in Information.
        draws: how many of them are exchangeable: one of each burst of near copies; None for all.
        leakage: of one release, in bits: log2 Σ_y max_x p(y|x).
        epsilon, mu, rho: of one release, of any image against ONE reference.
    """

    releases: int
    outputs: float = math.inf
    draws: int | None = None
    leakage: float = math.inf
    epsilon: float = math.inf
    mu: float = math.inf
    rho: float = math.inf

    def __post_init__(self) -> None:
        for field in fields(self):
            check_number(field.name, getattr(self, field.name) or 0)

    def assuming(self, assumption: Assumption) -> "Proof":
        """With the average leakage of one release under an assumption about all of them."""
        if assumption == "none" or self.releases < 2 or self.outputs > _MOST_BITS:
            return self
        draws, outputs = self.releases, round(2**self.outputs)
        if assumption == "exchangeable" and self.draws is not None:
            draws = min(draws, max(1, self.draws))
        # Further releases of a burst count in full; see `bound`.
        factor = log_factor(outputs=outputs, releases=draws, assuming=assumption) / math.log(2)
        bits = factor + (self.releases - draws) * min(self.leakage, self.outputs)
        return replace(self, leakage=min(self.leakage, bits / self.releases))


def compose(prior: Prior, proofs: Sequence[Proof], *, assuming: Assumption = "none") -> Bound:
    """Bounds releases of one person by unlike protections: each by its leakage or its differential privacy.

    Proof: let the releases be y = (y_1, y_2), of images x_1 and x_2 of the person. With the maximal leakage L
    instead of its logarithm, P(y_1 | x_1) <= L·Q_1(y_1) for Q_1(y) = max_x P(y|x) / L, which is a
    distribution and the same for all people. So any event A has P_i(A) <= L·(Q_1 x P_i)(A), in which only y_2
    still depends on the person, and Σ π_i P_i(A_i) is at most L times the bound of the rest (`gaussian` has
    its proof, with Q_1 x Q_2 as the reference). Leakages add up in bits; ε adds (Dwork & Roth 2014, Theorem
    3.14), μ in squares (Dong, Roth & Su 2022, Corollary 3.3), ρ adds (Bun & Steinke 2016, Lemma 1.7). Any
    choice of proofs to count by leakage holds: it tries those in the order of their gains.

    Source: the above; Issa, Wagner & Kamath 2020, arXiv:1807.07878, for leakages. An average over people,
    images, outputs and noise. It holds for protections that were chosen before the first release. For many
    releases by ONE noisy protection, its own bound may be smaller.

    The factors of `bound` multiply likewise, one for each protection: each is Σ_y max_s P_s(y) at least, for
    those exchangeable together, P_s(y_1, y_2) <= max_θ Π θ_{y_1} · max_θ' Π θ'_{y_2}.

    `proofs` has one for each protection, `assuming` is the assumption about the releases by each.
    """
    best = best_guess(prior)
    made = [proof.assuming(assuming) for proof in proofs if proof.releases]
    theorem = _LEAKAGE if assuming == "none" else f"{COUNTED[assuming]}; {_LEAKAGE}"
    if not made:
        return Bound(best, "nothing was released")
    bounds = [
        bound
        for cost, private in zip(_COSTS, (_by_epsilon, _by_mu, _by_rho), strict=True)
        for leaking, noisy in _splits(made, cost)
        for bound in (_product(leaking, private(prior, noisy), theorem, noisy=bool(noisy)),)
    ]
    return least(Bound(1.0, "nothing is proved"), *bounds)


_Cost = Callable[[Proof], float]
_COSTS: tuple[_Cost, ...] = (lambda p: p.epsilon, lambda p: p.mu * p.mu, lambda p: p.rho)


def _splits(proofs: Sequence[Proof], cost: _Cost) -> Iterator[tuple[list[Proof], list[Proof]]]:
    """Ways to count some proofs by leakage and the others by privacy, as far as each has them."""
    if any(math.isinf(proof.leakage) and math.isinf(cost(proof)) for proof in proofs):
        return
    noisy = [proof for proof in proofs if math.isinf(proof.leakage)]
    leaking = [proof for proof in proofs if math.isinf(cost(proof))]
    both = [proof for proof in proofs if proof not in noisy and proof not in leaking]
    both.sort(key=lambda proof: cost(proof) / proof.leakage if proof.leakage else math.inf)
    for count in range(len(both) + 1):
        yield leaking + both[count:], noisy + both[:count]


def _product(leaking: Sequence[Proof], rest: Bound, theorem: str, *, noisy: bool) -> Bound:
    """The bound of the rest, times the factor of the proofs that count by leakage."""
    if not leaking:
        return rest
    bits = math.fsum(proof.releases * proof.leakage for proof in leaking)
    source = f"{theorem}; {rest.source}" if noisy else theorem
    if bits >= -math.log2(rest.chance):
        return Bound(1.0, source)
    return Bound(min(1.0, rest.chance * 2**bits * (1 + UP)), source)


def _by_epsilon(prior: Prior, proofs: Sequence[Proof]) -> Bound:
    total = math.fsum(proof.releases * proof.epsilon for proof in proofs)
    together = pure(prior, epsilon=total)
    if len({proof.epsilon for proof in proofs}) != 1:
        return together
    releases = sum(proof.releases for proof in proofs)
    return least(together, pure(prior, epsilon=proofs[0].epsilon, releases=releases))


def _by_mu(prior: Prior, proofs: Sequence[Proof]) -> Bound:
    return gaussian(prior, mu=math.sqrt(math.fsum(proof.releases * proof.mu**2 for proof in proofs)))


def _by_rho(prior: Prior, proofs: Sequence[Proof]) -> Bound:
    return concentrated(prior, rho=math.fsum(proof.releases * proof.rho for proof in proofs))
