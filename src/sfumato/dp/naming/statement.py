"""A naming bound in a sentence."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context

from sfumato.dp.naming.bound import ASSUMED, BY_STRENGTH, Assumption, Bound, Prior, best_guess, check_count
from sfumato.errors import ConfigError

_NOTHING = 0.999  # from here on a bound is not worth a sentence
SURE = 0.1  # the posterior probability that sentences speak of
_LESS = 1 - 1e-6  # of a chance, to be worth another one


@dataclass(frozen=True, kw_only=True)
class Naming:
    """A proved bound on naming a person from their releases. str() says it in a sentence.

    Attributes:
        chance: the upper bound on anybody's chance, on average over people and noise; 1 for nothing.
        prior: the chance of the best guess beforehand.
        candidates: equally likely people; None if another prior was given.
        releases: of that person.
        source: the theorem.
        assumption: a sentence of ASSUMED: without it the number says nothing.
    """

    chance: float
    prior: float
    candidates: int | None
    releases: int
    source: str
    assumption: str = ASSUMED["none"]

    @property
    def proves(self) -> bool:
        """Whether the chance is low enough to be worth a sentence."""
        return self.chance < _NOTHING

    def bound_sure(self, posterior: float) -> float:
        """The most that the chance can be of a release after which anybody has that posterior probability.

        The largest posterior max_s P(s | y) is the chance to name the person after y, whose mean over y the
        bound holds: at most `chance` / c, by Markov's inequality.
        """
        return min(1.0, self.chance / posterior)

    def __str__(self) -> str:
        return sentence([self])


def sentence(namings: Sequence[Naming]) -> str:
    """The bounds after the same releases of one person, for several numbers of people, in a sentence.

    It names the assumption, the average and the theorems.
    """
    nothing = [naming for naming in namings if not naming.proves]
    proved = [naming for naming in namings if naming.proves]
    several = namings[0].releases != 1
    if not proved:
        return f"nothing is proved about who {'they show' if several else 'it shows'}"
    first, *others = proved
    text = (
        f"after {first.releases:,} release{'s' * several} nobody, whatever they know, names "
        f"{_subject(first)} more than {percent(first.chance)} of the time"
    )
    text += "".join(f", or of {other.candidates:,} more than {percent(other.chance)}" for other in others)
    caveat = "on average over people and noise, so that a rare release may name its own person"
    sure = [
        percent(naming.bound_sure(SURE)) + (f" among {naming.candidates:,}" if naming.candidates else "")
        for naming in proved
        if naming.bound_sure(SURE) < 1
    ]
    if sure:
        caveat += (
            f", though nobody can be {SURE:.0%} sure of them except with a chance of {' or '.join(sure)}"
        )
    sources = dict.fromkeys(naming.source for naming in proved if naming.source)
    text += f" ({'; '.join([first.assumption, caveat, *sources])})"
    if nothing:
        people = " or ".join(f"{naming.candidates:,}" for naming in nothing)
        text += f"; among {people} people nothing is proved"
    return text


def sentences(assuming: Callable[[Assumption], Sequence[Naming]], *, releases: int) -> str:
    """The bounds after n releases, without and with assumptions about them, in one sentence.

    Args:
        assuming: an assumption -> the bounds, for several numbers of people.
        releases: n; one release needs no assumption.
    """
    proved = [assuming("none")]
    for assumption in BY_STRENGTH[1:] if releases > 1 else ():
        stated = assuming(assumption)
        if any(now.chance < before.chance * _LESS for now, before in zip(stated, proved[-1], strict=True)):
            proved.append(stated)
    first, *others = map(sentence, proved)
    if others and not any(each.proves for each in proved[0]):
        first += " unless more is assumed"
    return "; ".join([first, *others])


def prior_of(candidates: int | None, prior: Prior | None) -> Prior:
    """1/N for N candidates, or the given prior. Raises ConfigError for neither or both."""
    if (candidates is None) == (prior is None):
        raise ConfigError("naming: give a number of candidates, or a prior instead")
    if prior is not None:
        return prior
    assert candidates is not None
    return 1 / check_count("candidates", candidates)


def make_statement(
    bound: Bound, *, candidates: int | None, prior: Prior | None, releases: int, assuming: Assumption = "none"
) -> Naming:
    """A bound as a statement; candidates or prior as `prior_of` takes them."""
    return Naming(
        chance=bound.chance,
        prior=best_guess(prior_of(candidates, prior)),
        candidates=candidates,
        releases=releases,
        source=bound.source,
        assumption=ASSUMED[assuming],
    )


def _subject(naming: Naming) -> str:
    if naming.candidates is not None:
        return f"the right one of {naming.candidates:,} equally likely people"
    return f"the person, whom the best guess beforehand names {percent(naming.prior)} of the time,"


def percent(chance: float) -> str:
    """Two significant digits, three from 10% on, rounded up, but for the error of rounding."""
    upwards = Context(prec=2 if chance < 0.1 else 3, rounding=ROUND_CEILING)
    rounded = upwards.create_decimal_from_float(100 * chance * (1 - 1e-8))
    return f"{rounded.normalize():f}%"
