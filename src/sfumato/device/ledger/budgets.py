"""Budgets: limits on the total cost of the releases of an image or a person."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from sfumato.dp.guarantee import Definition, Guarantee, proof_of, round_up
from sfumato.dp.naming import ASSUMED, BY_STRENGTH, NOTHING_KNOWN, Assumption, Information, Proof
from sfumato.errors import BudgetExceededError, ConfigError

_Definition = Definition | Literal["bits", "releases", "naming"]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A limit on the total cost of releases, for neighbours that differ in up to `pixels` pixels.

    One definition applies to the whole sum: ε adds (basic composition), μ adds in squares (Dong, Roth & Su
    2022, Corollary 3.3), ρ adds (Bun & Steinke 2016, Lemma 1.7). The sums stay valid if later settings
    depend on earlier releases, as long as the budget was fixed first (privacy filters: Rogers et al. 2016,
    Smith & Thakurta 2022, Feldman & Zrnic 2021). An (ε, δ) budget becomes the ρ that implies it.

    "releases" counts different releases. It proves nothing: it stops a requester who asks for one image again
    and again, under specs that differ in the last digit, to average the noise.

    "bits" adds up information: log2 of the number of possible releases, n·b for n codes of b bits, log2 k for
    an answer of k classes. After B bits, nobody names the right one of N equally likely people with a chance
    above 2^B / N (sfumato.dp.naming). Noise does not lower this cost.

    "naming" limits the chance that somebody names a person among N people, given all that is proved about
    their releases of a period together, under a stated assumption. It is no sum: see dp.naming.compose.
    """

    definition: _Definition
    # ε, μ^2, ρ, bits or a number of releases; for naming, the bits by which a guess among N people may
    # improve. Infinite lifts the default.
    amount: float
    words: str  # as the user wrote it
    pixels: int = 1
    people: int = 0  # N of naming
    period: str = "ever"  # of which releases count, for naming
    assuming: Assumption = "none"  # for naming

    @classmethod
    def parse(cls, text: str) -> "Budget":
        """Read a budget, such as "releases=5", in a form of _FORMS. Raises ConfigError, which lists them."""
        if text.startswith("naming="):
            return _parse_naming(text)
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
        pixels, delta = values.pop("pixels", None), values.pop("delta", None)
        key, amount = next(iter(values.items()), ("", 0.0))
        if len(values) != 1 or key not in _KEYS or (delta is not None and key != "epsilon"):
            raise ConfigError(f"budget {text!r}: {_FORMS}")
        definition = _KEYS[key]
        if pixels is not None and definition not in _SUMMED:
            raise ConfigError(f"budget {text!r}: a number of {key} takes no number of pixels: {_FORMS}")
        if delta is not None:
            definition, amount = "concentrated", _rho_of(amount, delta)
        elif definition == "gaussian":
            amount **= 2
        if amount <= 0:
            raise ConfigError(f"budget {text!r} is so small that nothing fits it: {_FORMS}")
        words = text.replace(" ", "")
        return cls(definition=definition, amount=amount, words=words, pixels=int(pixels or 1))

    def cost(self, guarantees: Sequence[Guarantee], information: Information = NOTHING_KNOWN) -> float:
        """Return the cost that a release adds to the sum, by the best of its guarantees.

        Raises BudgetExceededError if nothing is proved of it, or nothing in the unit of this budget.
        """
        match self.definition:
            case "releases":
                costs = [1.0]
            case "bits":
                costs = [information.outputs] if math.isfinite(information.outputs) else []
            case "naming":  # checked for all releases together, once they are recorded
                costs = [] if proof_of(guarantees, information, releases=1) == Proof(releases=1) else [0.0]
            case _:
                costs = [self._cost_of(guarantee, self.definition) for guarantee in guarantees]
        if not costs:
            lack, cure = _WORDS.get(self.definition, _PROVED)
            raise BudgetExceededError(f"{lack}, so no budget{cure}", cause=lack)
        return min(costs)

    def _cost_of(self, guarantee: Guarantee, definition: Definition) -> float:
        # A guarantee for m pixels holds for fewer; for more, take steps of m.
        group = guarantee if guarantee.pixels >= self.pixels else guarantee.group(self.pixels)
        try:
            value = group.to(definition).value
        except ConfigError as error:
            raise BudgetExceededError(
                f"it is {guarantee.definition} and the budget is {definition}: {error}; "
                "budgets in rho, or in epsilon with a delta, hold every definition",
                cause=f"it is {guarantee.definition}",
            ) from error
        return value * value if definition == "gaussian" else value

    def refusal(
        self, spent: float, cost: float, subject: str, command: Callable[[str], str], *, copies: bool = True
    ) -> str | None:
        """Return why a cost does not fit the rest of the budget of a subject, and the cure; None if it fits.

        `command` maps the words of a budget to the command that sets it for the subject; `copies` says
        whether releases of near copies are among those that were `spent`.
        """
        # The tolerance is for sums of decimals: three times 0.1 is within 0.3.
        if spent + cost <= self.amount * (1 + 1e-9):
            return None
        if self.definition == "naming":
            chance, raised, what = 2**spent / self.people, "none", "nothing would be proved about naming them"
            if chance < 1:
                percent = round_up(100 * chance)
                raised = f"naming={percent}%,of={self.people},per={self.period},assuming={self.assuming}"
                what = f"somebody could name them in {percent}% of cases"
            words = (
                f"with this release of {subject} {what} ({self}): wait, release fewer images, choose a code "
                f"of fewer bits, or raise the budget: `{command(raised)}`"
            )
            more = [f"assuming={each}" for each in BY_STRENGTH[BY_STRENGTH.index(self.assuming) + 1 :]]
            return words + f"; more is allowed if you may assume more ({' or '.join(more)})" * bool(more)
        symbol = _SUMMED.get(self.definition)
        if math.isinf(spent):
            unit = f", or nothing that adds up in {symbol}" * bool(symbol)
            return (
                f"nothing is left for {subject} ({self}), since {self.unheld} made before, such as "
                f"a blur{unit}: lift the budget with `{command('none')}`, then limit the "
                f"number of releases with `{command('releases=5')}`"
            )
        raised = f"or raise the budget: `{command(self.larger(spent + cost))}`"
        if self.definition == "releases":
            return (
                f"{subject} has {spent:.0f} different releases already{', near copies included' * copies}, "
                f"and may have {self}: ask for one made before, {raised}"
            )
        left = f"{max(0.0, self.amount - spent):.4g} of {self.amount:.4g}"
        if self.definition == "bits":
            return (
                f"this release costs {round_up(cost)} bits, and {left} are left for {subject}: release fewer "
                f"images, choose a code of fewer bits, {raised}"
            )
        return (
            f"this release costs {symbol} = {round_up(cost)}, and {left} is left for "
            f"{subject} ({self}): ask for more noise, {raised}"
        )

    def larger(self, least: float) -> str:
        """Return the words of a budget of this kind that holds a sum: at least twice this one."""
        times = max(2, math.ceil(least / self.amount))
        number = re.compile("(releases|bits|epsilon|mu|rho)=([^,]+)")
        return number.sub(lambda part: f"{part[1]}={float(part[2]) * times:.10g}", self.words)

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
        if symbol := _SUMMED.get(self.definition):
            return f"{symbol} = {spent:.4g} of {self.amount:.4g} is spent"
        words = f"{spent:.4g} of {self.amount:.4g} bits are spent"
        if self.definition == "naming":
            words += f", which name them in at most {round_up(100 * 2**spent / self.people)}% of cases"
        return words

    def __str__(self) -> str:
        if self.definition == "releases":
            return "no limit" if math.isinf(self.amount) else f"at most {self.amount:.0f} different releases"
        if self.definition == "bits":
            return f"at most {self.amount:.10g} bits"
        if self.definition == "naming":
            by = f", by the releases of any {self.period}" * (self.period != "ever")
            share = f"{100 * 2**self.amount / self.people:.10g}%"
            return f"at most {share} named among {self.people:,} people{by} ({ASSUMED[self.assuming]})"
        return f"{self.words} for any {self.pixels} pixel{'s' * (self.pixels > 1)}"


def _parse_naming(text: str) -> Budget:
    given = dict(part.strip().partition("=")[::2] for part in text.split(","))
    share, people = given.pop("naming", ""), given.pop("of", "")
    period, assumed = given.pop("per", "ever"), given.pop("assuming", "none")
    assuming = next((each for each in BY_STRENGTH if each == assumed), None)
    try:
        value = float(share.removesuffix("%")) / (100 if share.endswith("%") else 1)
        count = int(people)
    except ValueError:
        value, count = math.nan, 0
    if given or assuming is None or period not in PERIODS or not 0 < value < 1 or count < 2:
        raise ConfigError(f"budget {text!r}: {_FORMS}")
    if value * count <= 1:
        raise ConfigError(
            f"budget {text!r}: to guess among {count:,} people names {100 / count:.3g}% already: allow "
            "more, or say that there are more people (of=)"
        )
    words, amount = text.replace(" ", ""), math.log2(value * count)
    return Budget(
        definition="naming", amount=amount, words=words, people=count, period=period, assuming=assuming
    )


_SUMMED: dict[str, str] = {"pure": "eps", "gaussian": "mu^2", "concentrated": "rho"}  # these add up
_KEYS: dict[str, _Definition] = {"releases": "releases", "bits": "bits"}
_KEYS |= {"epsilon": "pure", "mu": "gaussian", "rho": "concentrated"}
# For a release that no budget of a kind holds: its lack, and the refusal with the cure.
_PROVED = ("nothing is proved of it", " can hold it: use a protection with a proof, such as dp-pix")
_CODES = " can hold it: release a code of bits or an answer"
_WORDS = {
    "bits": ("its outputs are not counted", f" in bits{_CODES}"),
    "naming": (_PROVED[0], f" of naming{_CODES}"),
}
NO_LIMIT = Budget(definition="releases", amount=math.inf, words="none")

_MOST = 1e18  # the largest number of a budget: later arithmetic cannot overflow
PERIODS = {"day": 86_400.0, "week": 604_800.0, "month": 2_592_000.0}
PERIODS |= {"quarter": 7_884_000.0, "year": 31_536_000.0, "ever": math.inf}
_FORMS = (
    "write epsilon=10, epsilon=10,delta=1e-6, mu=2 or rho=1, followed by pixels=4 for 4 pixels; or "
    "bits=64, or releases=5; or naming=1%,of=1000, followed by per=day, week, month, quarter or "
    "year, and assuming=none, chain, shuffled or exchangeable"
)


@lru_cache(64)
def _rho_of(epsilon: float, delta: float) -> float:
    """Return a ρ whose zCDP implies (ε, δ)-DP, the largest for small δ. Raises ConfigError unless δ < 1."""
    low, high = 0.0, epsilon + 1  # a larger ρ exists only for a large δ
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        proved = Guarantee(definition="concentrated", value=middle, pixels=1, whole_image=middle, source="")
        implied = proved.to("approximate", delta=delta).value
        low, high = (middle, high) if implied <= epsilon else (low, middle)
    return low
