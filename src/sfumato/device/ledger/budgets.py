"""Budgets: limits on the total cost of the releases of an image or a person."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sfumato.dp.guarantee import SYMBOLS, Guarantee, proof_of, round_up
from sfumato.dp.naming import (
    ASSUMED,
    BY_STRENGTH,
    NOTHING_KNOWN,
    Assumption,
    Information,
    Proof,
    compose,
)
from sfumato.errors import BudgetExceededError, ConfigError

_Definition = Literal["pure", "gaussian", "concentrated", "bits", "releases", "naming"]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A limit on the total cost of releases, for neighbours that differ in up to `pixels` pixels.

    One definition applies to the whole sum: ε adds (basic composition), μ adds in squares (Dong, Roth & Su
    2022, Corollary 3.3), ρ adds (Bun & Steinke 2016, Lemma 1.7). The sums stay valid if later settings
    depend on earlier releases, as long as the budget was fixed first (privacy filters: Rogers et al. 2016,
    Smith & Thakurta 2022, Feldman & Zrnic 2021). An (ε, δ) budget becomes the ρ that implies it.

    "releases" counts different releases, whatever is proved of them. It proves nothing: it stops a requester
    who asks for one image again and again, under specs that differ in the last digit, to average the noise.

    "bits" adds up information: log2 of the number of possible releases, so that n codes of b bits cost n·b
    and an answer of k classes costs log2 k. After B bits, nobody names the right one of N equally likely
    people with a chance above 2^B / N (sfumato.dp.naming). Noise does not lower this cost.

    "naming" limits the chance that somebody names a person among N people, given all that is proved about
    their releases of a period together, under a stated assumption. It is not a sum: the histograms of two
    batches together have fewer values.

    Attributes:
        definition: the quantity that is summed.
        amount: the limit: ε, μ^2, ρ, bits, or a number of releases; for naming, the bits by which a guess
            among N people may improve. Infinite lifts the default.
        pixels: m of the neighbours.
        words: the budget as the user wrote it.
    """

    definition: _Definition
    amount: float
    pixels: int
    words: str

    @classmethod
    def parse(cls, text: str) -> "Budget":
        """Read "releases=5", "bits=64", "epsilon=10", "epsilon=10,delta=1e-6", "mu=2" or "rho=1".

        All but "releases" and "bits" accept ",pixels=4". The other form is "naming=1%,of=1000", which
        accepts ",per=year" and ",assuming=exchangeable".

        Raises:
            ConfigError: another key, a number that is not above 0, or a delta that is not below 1.
        """
        words = text.replace(" ", "")
        if text.startswith("naming="):
            named = _Named.parse(text)
            return cls(
                definition="naming", amount=math.log2(named.share * named.people), pixels=1, words=words
            )
        values: dict[str, float] = {}
        for part in text.split(","):
            key, _, number = part.strip().partition("=")
            try:
                value = float(number)
            except ValueError:
                value = math.nan
            if not 0 < value < _MOST:
                raise ConfigError(f"budget {text!r}: {part.strip()!r} is not KEY=NUMBER above 0: {_FORMS}")
            if key in values:
                raise ConfigError(f"budget {text!r}: {key} is given twice: {_FORMS}")
            if key in ("pixels", "releases") and not value.is_integer():
                raise ConfigError(f"budget {text!r}: {key}={value:g} is not a whole number")
            values[key] = value
        pixels = values.pop("pixels", None)
        match sorted(values.items()):
            case [("releases" | "bits" as key, amount)]:
                if pixels is not None:
                    raise ConfigError(
                        f"budget {text!r}: a number of {key} takes no number of pixels: {_FORMS}"
                    )
                definition: _Definition = "releases" if key == "releases" else "bits"
            case [("epsilon", amount)]:
                definition = "pure"
            case [("mu", mu)]:
                definition, amount = "gaussian", mu**2
            case [("rho", amount)]:
                definition = "concentrated"
            case [("delta", delta), ("epsilon", epsilon)]:
                definition, amount = "concentrated", _rho_of(epsilon, delta)
            case _:
                raise ConfigError(f"budget {text!r}: {_FORMS}")
        if amount <= 0:
            raise ConfigError(f"budget {text!r} is so small that nothing fits it: {_FORMS}")
        return cls(definition=definition, amount=amount, pixels=int(pixels or 1), words=words)

    def cost(self, guarantees: Sequence[Guarantee], information: Information = NOTHING_KNOWN) -> float:
        """Return the cost that a release adds to the sum, by the best of its guarantees.

        Args:
            guarantees: the known ones.
            information: for a budget in bits.

        Raises:
            BudgetExceededError: nothing is proved of it, or nothing in a unit of this budget.
        """
        nothing = "nothing is proved of it"
        if self.definition == "releases":
            return 1.0
        if self.definition == "bits" and math.isfinite(information.outputs):
            return information.outputs
        if self.definition == "bits":
            raise BudgetExceededError(
                "its outputs are not counted, so no budget in bits can hold it: release a code of bits or an "
                "answer",
                cause="its outputs are not counted",
            )
        if self.definition == "naming":
            if proof_of(guarantees, information, releases=1) == _NOTHING:
                cure = "release a code of bits or an answer"
                raise BudgetExceededError(
                    f"{nothing}, so no budget of naming can hold it: {cure}", cause=nothing
                )
            return 0.0  # naming is checked for all releases together, once they are recorded
        if not guarantees:
            cure = "use a protection with a proof, such as dp-pix"
            raise BudgetExceededError(f"{nothing}, so no budget can hold it: {cure}", cause=nothing)
        costs = []
        for guarantee in guarantees:
            # A guarantee for m pixels holds for fewer; for more, take steps of m.
            group = guarantee if guarantee.pixels >= self.pixels else guarantee.group(self.pixels)
            try:
                value = group.to(self.definition).value
            except ConfigError as error:
                raise BudgetExceededError(
                    f"it is {guarantee.definition} and the budget is {self.definition}: {error}; "
                    "budgets in rho, or in epsilon with a delta, hold every definition",
                    cause=f"it is {guarantee.definition}",
                ) from error
            costs.append(value * value if self.definition == "gaussian" else value)
        return min(costs)

    def refusal(
        self, spent: float, cost: float, subject: str, command: Callable[[str], str], *, copies: bool = True
    ) -> str | None:
        """Return why a cost does not fit the rest of the budget, and the cure; None if it fits.

        Args:
            spent: by the subject so far.
            cost: of a release.
            subject: in words.
            command: maps the words of a budget to the command that sets it for the subject.
            copies: whether releases of near copies are among them.
        """
        # The tolerance is for sums of decimals: three times 0.1 is within 0.3.
        if spent + cost <= self.amount * (1 + 1e-9):
            return None
        if self.definition == "naming":
            return self._named.refusal(spent, subject, command)
        if math.isinf(spent):
            currency = (
                ""
                if self.definition == "bits"
                else f", or nothing that adds up in {_SUMMED[self.definition]}"
            )
            return (
                f"nothing is left for {subject} ({self}), since {self.unheld} made before, such as "
                f"a blur{currency}: lift the budget with `{command('none')}`, then limit the "
                f"number of releases with `{command('releases=5')}`"
            )
        raised = f"or raise the budget: `{command(self.larger(spent + cost))}`"
        left = f"{max(0.0, self.amount - spent):.4g} of {self.amount:.4g}"
        if self.definition == "releases":
            return (
                f"{subject} has {spent:.0f} different releases already{', near copies included' * copies}, "
                f"and may have {self}: ask for one made before, {raised}"
            )
        if self.definition == "bits":
            return (
                f"this release costs {round_up(cost)} bits, and {left} are left for {subject}: release fewer "
                f"images, choose a code of fewer bits, {raised}"
            )
        return (
            f"this release costs {_SUMMED[self.definition]} = {round_up(cost)}, and {left} is left for "
            f"{subject} ({self}): ask for more noise, {raised}"
        )

    def larger(self, least: float) -> str:
        """Return the words of a budget of this kind that holds a sum: at least twice this one."""
        times = max(2, math.ceil(least / self.amount))
        return re.sub(
            "(releases|bits|epsilon|mu|rho)=([^,]+)",
            lambda part: f"{part[1]}={float(part[2]) * times:.10g}",
            self.words,
        )

    def since(self, now: float) -> float:
        """Return when the counted period began, in seconds since 1970; only naming has one."""
        return now - _PERIODS[self._named.period] if self.definition == "naming" else -math.inf

    def bits(self, proofs: Sequence[Proof]) -> float:
        """For naming: log2 of how much likelier the proofs make it to name the person than guessing."""
        named = self._named
        return math.log2(compose(1 / named.people, proofs, assuming=named.assuming).chance * named.people)

    @property
    def _named(self) -> "_Named":
        return _Named.parse(self.words)

    @property
    def unheld(self) -> str:
        """Why a release exhausts any budget of this kind, in words."""
        what = "nobody counts the outputs" if self.definition == "bits" else "nothing is proved"
        return f"{what} of a release"

    def describe_spent(self, spent: float) -> str:
        """Say how much is spent, in the unit of the budget."""
        if math.isinf(spent):
            return f"nothing is left, since {self.unheld} made there"
        if self.definition == "releases":
            return f"{spent:.0f} of {self.amount:.0f} releases are made"
        if self.definition == "bits":
            return f"{spent:.4g} of {self.amount:.4g} bits are spent"
        if self.definition == "naming":
            return f"{spent:.4g} of {self.amount:.4g} bits are spent, which name them in at most " + (
                f"{round_up(100 * 2**spent / self._named.people)}% of cases"
            )
        return f"{_SUMMED[self.definition]} = {spent:.4g} of {self.amount:.4g} is spent"

    @property
    def holds_nothing_of(self) -> str:
        """Which releases it always refuses, in words; "" for a number of releases."""
        return _HOLDS.get(self.definition, _HOLDS["pure"])

    def __str__(self) -> str:
        if self.definition == "releases":
            return "no limit" if math.isinf(self.amount) else f"at most {self.amount:.0f} different releases"
        if self.definition == "bits":
            return f"at most {self.amount:.10g} bits"
        if self.definition == "naming":
            return str(self._named)
        return f"{self.words} for any {self.pixels} pixel{'s' * (self.pixels > 1)}"


@dataclass(frozen=True)
class _Named:
    """The terms of a budget of naming."""

    share: float
    people: int
    period: str
    assuming: Assumption

    @classmethod
    def parse(cls, text: str) -> "_Named":
        """Read "naming=1%,of=1000,per=year,assuming=exchangeable"; the last two are optional."""
        given = dict(part.strip().partition("=")[::2] for part in text.split(","))
        share, people = given.pop("naming", ""), given.pop("of", "")
        period, assumed = given.pop("per", "ever"), given.pop("assuming", "none")
        assuming = next((each for each in BY_STRENGTH if each == assumed), None)
        try:
            value = float(share.removesuffix("%")) / (100 if share.endswith("%") else 1)
            count = int(people)
        except ValueError:
            value, count = math.nan, 0
        if given or assuming is None or period not in _PERIODS or not 0 < value < 1 or count < 2:
            raise ConfigError(f"budget {text!r}: {_FORMS}")
        if value * count <= 1:
            raise ConfigError(
                f"budget {text!r}: to guess among {count:,} people names {100 / count:.3g}% already: allow "
                "more, or say that there are more people (of=)"
            )
        return cls(value, count, period, assuming)

    def refusal(self, spent: float, subject: str, command: Callable[[str], str]) -> str:
        """Say why the releases of a period tell too much, and what to do."""
        chance = 2**spent / self.people
        others = {"none": "assuming=shuffled or assuming=exchangeable", "shuffled": "assuming=exchangeable"}
        more = others.get(self.assuming)
        cure = f"; more is allowed if you may assume more ({more})" if more else ""
        if chance >= 1:
            raised, what = "none", "nothing would be proved about naming them"
        else:
            raised = f"naming={round_up(100 * chance)}%,of={self.people},per={self.period}"
            raised += f",assuming={self.assuming}"
            what = f"somebody could name them in {round_up(100 * chance)}% of cases"
        return (
            f"with this release of {subject} {what} ({self}): wait, release fewer images, choose a code of "
            f"fewer bits, or raise the budget: `{command(raised)}`{cure}"
        )

    def __str__(self) -> str:
        period = "" if self.period == "ever" else f", by the releases of any {self.period}"
        return (
            f"at most {100 * self.share:.10g}% named among {self.people:,} people{period} "
            f"({ASSUMED[self.assuming]})"
        )


_NOTHING = Proof(releases=1)
_SUMMED: dict[Any, str] = {**SYMBOLS, "gaussian": f"{SYMBOLS['gaussian']}^2"}  # what adds up
_HOLDS = {
    "releases": "",
    "bits": "it holds only codes of bits and answers: every other release is refused",
    "naming": "it holds releases with a proof about naming, such as a code of bits: a blur is refused",
    "pure": "it holds only releases with a proof, such as dp-pix: a blur, a mosaic (pixelize) or a mask is "
    "refused; an image that had such a release before gets no more releases",
}
NO_LIMIT = Budget(definition="releases", amount=math.inf, pixels=1, words="none")

_MOST = 1e18  # the largest number of a budget: later arithmetic cannot overflow
_DAY = 86_400.0
_PERIODS = {"day": _DAY, "week": 7 * _DAY, "month": 30 * _DAY, "year": 365 * _DAY, "ever": math.inf}
_FORMS = (
    "write epsilon=10, epsilon=10,delta=1e-6, mu=2 or rho=1, followed by pixels=4 for 4 pixels; or "
    "bits=64, or releases=5; or naming=1%,of=1000, followed by per=day, week, month or year, and "
    "assuming=none, shuffled or exchangeable"
)


def _rho_of(epsilon: float, delta: float) -> float:
    """Return a ρ whose zCDP implies (ε, δ)-DP, the largest for small δ. Raises ConfigError unless δ < 1."""
    low, high = 0.0, epsilon + 1  # a larger ρ exists only for a large δ
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        proved = Guarantee(definition="concentrated", value=middle, pixels=1, whole_image=middle, source="")
        implied = proved.to("approximate", delta=delta).value
        low, high = (middle, high) if implied <= epsilon else (low, middle)
    return low
