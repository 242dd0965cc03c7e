"""The audit of a naming statement: draws people, and names them from the view of an observer."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from sfumato.dp.audit.evidence import lower_limit, round_down
from sfumato.dp.naming import Naming
from sfumato.errors import ConfigError

View = Callable[[Tensor, torch.Generator], Tensor]
"""(T,) int64 people, numbered from 0 -> (T, n) int64 outputs, from 0, in the order that an observer sees."""

_SMALL = 0.01  # added to the count of every output


@dataclass(frozen=True, kw_only=True)
class NamingAudit:
    """The result of an audit of a naming statement; str() puts it in words.

    Attributes:
        stated: the statement.
        lower: a lower bound on the chance to name somebody, with that confidence.
        adversary: the one who reaches it.
        confidence: of `lower`.
    """

    stated: Naming
    lower: float
    adversary: str
    confidence: float

    @property
    def convicted(self) -> bool:
        """Whether more is proved than the statement allows: its assumption does not hold for this view."""
        return self.lower > self.stated.chance

    def __str__(self) -> str:
        share = f"{round_down(100 * self.lower)}% (with {self.confidence:.0%} confidence)"
        return (
            f"an adversary who compares {self.adversary} names people at least {share} of the time, and "
            f"{100 * self.stated.chance:.3g}% is stated ({self.stated.assumption})"
        )


def audit_naming(
    view: View,
    stated: Naming,
    *,
    outputs: int,
    known: int = 4,
    trials: int = 2_000,
    confidence: float = 0.99,
    seed: int = 0,
) -> NamingAudit:
    """Tries to name people more often than stated, from n releases of each as an observer sees them.

    The adversaries know `known` views of every person, and compare their order, their counts, or how likely
    the counts are. The best of them on half of the trials is judged on the other (Clopper & Pearson 1934).

    Args:
        view: the view of an observer, of people whom the statement is about.
        stated: for a number of candidates.
        outputs: M.
        known, trials: views of each person, and of randomly drawn people.
        confidence: `lower` is below the chance with this probability.
        seed: of people and of the generator that `view` draws from.

    Raises:
        ConfigError: the statement has no number of candidates.
    """
    if stated.candidates is None:
        raise ConfigError("an audit draws people: state a bound among a number of candidates")
    generator, people = torch.Generator().manual_seed(seed), stated.candidates
    everybody = torch.arange(people)
    learned = [_features(view(everybody, generator), outputs) for _ in range(known)]
    means = {name: torch.stack([each[name] for each in learned]).mean(0) for name in learned[0]}

    def hits() -> dict[str, int]:
        drawn = torch.randint(people, (trials // 2,), generator=generator)
        seen = _features(view(drawn, generator), outputs)
        guesses = {name: torch.cdist(seen[name], means[name]).argmin(1) for name in seen}
        logs = ((means["counts"] + _SMALL) / (1 + _SMALL * outputs)).log()
        guesses["likelihoods of counts"] = (seen["counts"] @ logs.T).argmax(1)
        return {name: int((guess == drawn).sum()) for name, guess in guesses.items()}

    chosen = hits()
    best = max(chosen, key=lambda name: chosen[name])
    lower = lower_limit(hits()[best], trials // 2, alpha=1 - confidence)
    return NamingAudit(stated=stated, lower=lower, adversary=best, confidence=confidence)


def _features(view: Tensor, outputs: int) -> dict[str, Tensor]:
    """(T, n) -> how often each output is at each position, (T, n M), and how often it is at all, (T, M)."""
    seen = one_hot(view, outputs).double()
    return {"the order of releases": seen.flatten(1), "counts": seen.mean(1)}
