"""What is proved of naming a person, in a sentence."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context

from sfumato.dp.naming.bound import Bound, Prior, best_guess, checked_count
from sfumato.errors import ConfigError

_NOTHING = 0.999  # from here on a bound says nothing that is worth a sentence


@dataclass(frozen=True, kw_only=True)
class Naming:
    """What is proved of naming a person from their releases. str() says it in a sentence.

    Attributes:
        chance: the most that anybody's chance can be, on average over people and noise; 1 for nothing.
        prior: the chance of the best guess beforehand.
        candidates: of how many equally likely people; None where another prior was given.
        releases: of that person.
        source: the theorem.
    """

    chance: float
    prior: float
    candidates: int | None
    releases: int
    source: str

    def __str__(self) -> str:
        if self.candidates is not None:
            return sentence([self])
        guessed = f"guessed beforehand with at most {_percent(self.prior)}"
        if self.chance >= _NOTHING:
            return f"nothing is proved of naming a person who is {guessed}"
        return f"{_times([self])} the right person, {guessed}, {_from(self)}"


def sentence(namings: Sequence[Naming]) -> str:
    """One sentence on several numbers of equally likely people, for the same number of releases."""
    nothing = [naming for naming in namings if naming.chance >= _NOTHING]
    proved = [naming for naming in namings if naming.chance < _NOTHING]
    parts = []
    if proved:
        people = _listed([f"{naming.candidates:,}" for naming in proved], "and")
        parts.append(f"{_times(proved)} the right one of {people} equally likely people {_from(proved[0])}")
    if nothing:
        people = _listed([f"{naming.candidates:,}" for naming in nothing], "or")
        parts.append(f"nothing is proved of naming somebody among {people} people")
    return "; ".join(parts)


def prior_of(candidates: int | None, prior: Prior | None) -> Prior:
    """1/N of N candidates, or the prior that was given in their place. Raises ConfigError: none or both."""
    if (candidates is None) == (prior is None):
        raise ConfigError("naming: give a number of candidates, or a prior in its place")
    if prior is not None:
        return prior
    assert candidates is not None
    return 1 / checked_count("candidates", candidates)


def stated(bound: Bound, *, candidates: int | None, prior: Prior | None, releases: int) -> Naming:
    """A bound as a statement; candidates or prior as `prior_of` takes them."""
    best = best_guess(prior_of(candidates, prior))
    return Naming(
        chance=bound.chance, prior=best, candidates=candidates, releases=releases, source=bound.source
    )


def _times(namings: Sequence[Naming]) -> str:
    chances = _listed([_percent(naming.chance) for naming in namings], "and")
    return f"at most {chances} of the times, whatever they know, somebody names"


def _from(naming: Naming) -> str:
    releases = f"{naming.releases:,} release{'s' * (naming.releases != 1)}"
    return f"from {releases} (on average over people and noise)"


def _listed(words: Sequence[str], conjunction: str) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {conjunction} {words[-1]}"


def _percent(chance: float) -> str:
    """Two significant digits, three near 1, not below the chance but for what floating point added to it."""
    upwards = Context(prec=2 if chance < 0.9 else 3, rounding=ROUND_CEILING)
    rounded = upwards.create_decimal_from_float(100 * chance * (1 - 1e-8))
    return f"{rounded.normalize():f}%"
