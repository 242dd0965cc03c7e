"""The claims of the papers, each judged by the records that answer it.

    python studies/claims.py              # every claim with its verdict, its intervals drawn
    python studies/claims.py fs-pic       # those of the files whose names begin so

A file under studies/claims has a sentence of a paper, the quantity that it is about, the regime in which the paper
measured it, and evidence: the records, the comparison that the sentence makes, and our verdict. The verdict is computed,
too, and another one is an error. `make results` makes docs/claims.md of them.

A sentence becomes contrasts: differences that it says are above 0, each with a 95% interval, over seeds if there are
several, else over test episodes. A contrast shows the sentence if its interval is above 0, and contradicts it if the
interval is below what the paper claims. First, the records must be of the paper's quantity and regime, and no row may
be left out without a reason. A contrast has no power if nothing was learned, or if the compared value cannot move.
Of many contrasts, as many as come by chance show nothing.
"""

import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, field_validator
from results_page.engine import rises
from results_page.figures import half_width
from results_page.flat import Row, at, digest, grouped, in_words, matches, rows
from scipy import stats

from sfumato.errors import DataError

FOLDER = Path(__file__).parent / "claims"
TESTS = FOLDER.parents[1]
CHANCE = 0.05  # below which so many contrasts do not come by chance
ENOUGH = 3  # seeds
FEW = 8  # contrasts, which are written one by one
PAPERS = {
    "FS-PIC": "FS-PIC: few-shot learning on protected images (Parnami et al. 2022)",
    "Mask": "Learned masks",
    "DPFE": "Private features: DPFE (Osia et al. 2018)",
    "Meta-Clip": "Meta-Clip: clipping that adapts, in private meta-learning",
    "SemSim": "SemSim: do measures agree with people?",
}
Word = Literal["holds", "holds in part", "fails", "no power", "another regime", "cannot be checked"]


class Strict(BaseModel):
    """Content of a file; a key that is not known is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Measure(Strict):
    """A column that measures a quantity, in the rows in which it does."""

    value: str
    where: dict[str, Any] = {}


class Left(Strict):
    """Rows of the quantity that are not evidence, and the reason; never all rows that there will be."""

    where: dict[str, Any]
    why: str

    @field_validator("where")
    @classmethod
    def _some(cls, where: dict[str, Any]) -> dict[str, Any]:
        if all(wanted == "*" for wanted in where.values()):
            raise ValueError("'*' leaves out what nobody has looked at: name the rows")
        return where


class Same(Strict):
    """A part of the paper's regime, and the column in which the records must have it."""

    column: str
    paper: Any


class Bound(Strict):
    """How far a value must be from a number, or from a column of its row."""

    bound: float | str
    by: float = 0.0


class Compare(Strict):
    """The contrasts of a sentence.

    Attributes:
        across: the column whose values are compared: `ours` (all others) with each of `theirs` (all others), or in an
            `order`; "peak inside" says that the highest is neither the first nor the last.
        against: a number or a column, with which values are compared in place of other rows.
        within: columns whose values the compared rows share, a contrast for each.
        sign: on which side of the others the sentence says that ours is.
        reduce: how several rows of one seed become one.
        allowed: how far on the wrong side the sentence lets ours be.
        claimed: the effect in the paper.
    """

    across: str = ""
    ours: str | None = None
    theirs: list[str] = []
    order: Literal["falling", "rising", "peak inside"] | None = None
    against: float | str | None = None
    within: list[str] = []
    sign: Literal["above", "below"] = "above"
    reduce: Literal["mean", "min", "max"] | None = None
    allowed: float = 0.0
    claimed: float = 0.0


class Evidence(Strict):
    """Records, a test, or nothing, that answer a claim.

    Attributes:
        data, here: the data set, and what else differs from the paper's regime and does not decide.
        verdict, because: ours, and what the figures alone do not say of it.
        before: the verdict of an earlier version, and why it changed.
        rows: how records become rows, of results_page.flat.
        value, half: the column of the quantity, and that of half its interval over test episodes.
        unit, seeds: the column that counts repetitions, and how many the study says it has.
        needs: whether one contrast that contradicts decides, as of "only falls".
        learned, room: how far values must be above what nothing learned has, and below (above) what they cannot pass.
        counted: a column of which it is said in how many rows it is true.
        scale: 100 if differences are points.
    """

    data: str
    verdict: Word
    because: str = ""
    here: str = ""
    command: str = ""
    before: str = ""
    test: str = ""
    records: list[str] = []
    rows: str = "plain"
    where: dict[str, Any] = {}
    left_out: list[Left] = []
    value: str = ""
    half: str = ""
    unit: str = "seed"
    seeds: int = ENOUGH
    regime: dict[str, Same] = {}
    compare: Compare = Compare()
    needs: Literal["each", "every"] = "each"
    learned: Bound | None = None
    room: Bound | None = None
    counted: str = ""
    scale: float = 100.0


class Claim(Strict):
    """A sentence of a paper, the quantity, one of quantities.yaml, and the regime in which the paper measured it."""

    paper: str
    says: str
    figure: str
    quantity: str
    regime: str
    evidence: list[Evidence]


@dataclass(frozen=True)
class Contrast:
    """By how much one value is on the side of another that the sentence names, over seeds that have both.

    `half` is half of the interval; `blank` says why it shows nothing; `data` is the data set of its rows.
    """

    name: str
    ours: float
    theirs: float
    gap: float
    half: float
    seeds: int
    blank: str
    data: str = ""

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.gap - self.half

    @property
    def high(self) -> float:
        """The upper end."""
        return self.gap + self.half

    def outcome(self, compare: Compare) -> Literal["yes", "no", "open"]:
        """Whether it shows the sentence, contradicts it, or neither."""
        if self.low > -compare.allowed:
            return "yes"
        return "no" if self.high < compare.claimed - compare.allowed else "open"


@dataclass(frozen=True)
class Judged:
    """A verdict by records: the reason; contrasts, seeds, trainings that still rose of how many, and their digest."""

    word: Word
    reason: str = ""
    contrasts: tuple[Contrast, ...] = ()
    seeds: int = 0
    rising: tuple[int, int] = (0, 0)
    digest: str = ""
    counted: str = ""


def judge(evidence: Evidence, quantity: Sequence[Measure], known: Sequence[Row]) -> Judged:
    """The verdict on evidence, of the rows of its records; `quantity` has the columns that measure what the paper does.

    Raises:
        DataError: no row is chosen; some of the quantity are neither chosen nor left out for a reason; or several are
            of one seed and nothing says how they become one.
    """
    chosen = [row for row in known if at(row, evidence.value) is not None and matches(row, evidence.where)]
    if not chosen:
        raise DataError(f"{evidence.data}: no row has {evidence.value} and {evidence.where}: mend `where`")
    marked = digest("".join(sorted({row["record"] for row in chosen})))[:8]
    measure = next((each for each in quantity if each.value == evidence.value), None)
    if measure is None or not all(matches(row, measure.where) for row in chosen):
        reason = f"{evidence.value} of these rows is not the paper's quantity"
        return Judged("another regime", reason, digest=marked)
    _check_left_out(evidence, measure, known)
    contrasts = tuple(_contrasts(evidence, chosen))
    seeds = len({at(row, evidence.unit) for row in chosen})
    if evidence.unit == "seed":  # the fewest of a contrast
        seeds = min((each.seeds for each in contrasts if not each.blank), default=seeds)
    curves = {row["validation"] for row in chosen if row.get("validation")}  # one for each training
    rose = [of for of in map(rises, curves) if of is not None]
    true = sum(bool(at(row, evidence.counted)) for row in chosen)
    counted = f"{evidence.counted} in {true} of {len(chosen)}" if evidence.counted else ""
    word, reason = decide(contrasts, evidence.compare, evidence.needs)
    wanted = max(ENOUGH, evidence.seeds)
    doubts = [f"{seeds} of {wanted} {_units(evidence)}"] if seeds < wanted else []
    doubts += ["most trainings still rose"] if 2 * sum(rose) > len(rose) else []
    if differs := list(_differences(evidence, chosen)):
        word, reason = "another regime", f"{'; '.join(differs)}. There: {_joined(word, reason)}"
    elif len(doubts) > 1 or (doubts and word == "fails"):
        word = "no power"
    elif doubts and word == "holds":
        word = "holds in part"
    reason = _joined(reason, *doubts)
    return Judged(word, reason, contrasts, seeds, (sum(rose), len(rose)), marked, counted)


def decide(contrasts: Sequence[Contrast], compare: Compare, needs: str) -> tuple[Word, str]:
    """The word for contrasts, and how often the sentence is shown and contradicted."""
    usable = [each for each in contrasts if not each.blank]
    blanks = "; ".join(sorted({each.blank for each in contrasts} - {""}))
    if not usable:
        return "no power", blanks
    outcomes = [each.outcome(compare) for each in usable]
    yes, no = outcomes.count("yes"), outcomes.count("no")
    reason = f"shown in {yes} of {len(contrasts)}" + f", contradicted in {no}" * (no > 0)
    reason += f", without power in {len(contrasts) - len(usable)}: {blanks}" * (blanks != "")
    if yes == len(contrasts):
        return "holds", reason * (yes > 1)
    pairs = list(zip(usable, outcomes, strict=True))
    if needs == "every" and not _are_chance(pairs, "no"):
        return "fails", reason
    if not _are_chance(pairs, "yes"):
        names = [each.name for each, shown in pairs if shown == "yes"]
        return "holds in part", reason + f": {', '.join(names)}" * (len(names) < 4)
    return ("fails" if 2 * no > len(usable) else "no power"), reason


def by_chance(count: int, of: int) -> float:
    """How likely so many independent 95% intervals, of so many, are above 0 if there is no difference."""
    return float(stats.binom.sf(count - 1, of, 0.025))


def _are_chance(outcomes: Sequence[tuple[Contrast, str]], word: str) -> bool:
    """Whether so many contrasts with an outcome may have come by chance.

    Those of one data set share seeds and clean models: all of them may say the same by one chance, so the number of
    data sets with such a contrast counts as well.
    """
    shown = [each.data for each, outcome in outcomes if outcome == word]
    sets = {each.data for each, _ in outcomes}
    return max(by_chance(len(shown), len(outcomes)), by_chance(len(set(shown)), len(sets))) >= CHANCE


def _units(evidence: Evidence) -> str:
    known = {"data": "data sets", "spec": "settings", "threads": "measurements"}
    return known.get(evidence.unit, f"{evidence.unit}s")


def _joined(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def _check_left_out(evidence: Evidence, measure: Measure, known: Sequence[Row]) -> None:
    said = [evidence.where, *(left.where for left in evidence.left_out)]
    of_quantity = (row for row in known if at(row, measure.value) is not None and matches(row, measure.where))
    if unsaid := [row for row in of_quantity if not any(matches(row, where) for where in said)]:
        example = {key: value for key, value in unsaid[0].items() if isinstance(value, str | int | float)}
        raise DataError(
            f"{evidence.data}: {len(unsaid)} rows have {measure.value} and are neither chosen nor left out, such as "
            f"{example}: choose them, or say under left_out why not"
        )


def _differences(evidence: Evidence, chosen: Sequence[Row]) -> Iterator[str]:
    """What the records have in place of the paper's regime."""
    for name, same in evidence.regime.items():
        wanted = same.paper if isinstance(same.paper, list) else [same.paper]
        values = {at(row, same.column) for row in chosen} - {None}
        if not values:
            raise DataError(f"{evidence.data}: no row has {same.column}: the records do not show the {name}")
        if others := values - set(wanted):
            yield f"{name} {', '.join(map(in_words, sorted(others, key=str)))} in place of {', '.join(map(in_words, wanted))}"


def _contrasts(evidence: Evidence, chosen: Sequence[Row]) -> Iterator[Contrast]:
    compare = evidence.compare
    for name, group in grouped(chosen, compare.within).items():
        by_value = grouped(group, [compare.across] if compare.across else [])
        for ours, theirs in _pairs(evidence, by_value):
            single = compare.within and (theirs is None or (compare.ours and len(compare.theirs) == 1))
            pair = "" if single else ours if theirs is None else f"{ours} against {theirs}"
            other = by_value[ours] if theirs is None else by_value[theirs]
            yield _contrast(evidence, " ".join(filter(None, (name, pair))), by_value[ours], other)


def compared(known: Sequence[Row], value: str, **compare: Any) -> list[Contrast]:
    """The contrasts of rows that have a value, over seeds, as pages show them; see Compare."""
    evidence = Evidence(data="a page", verdict="holds", value=value, compare=Compare(**compare))
    return list(_contrasts(evidence, [row for row in known if at(row, value) is not None]))


def _pairs(evidence: Evidence, by_value: Mapping[str, list[Row]]) -> Iterator[tuple[str, str | None]]:
    compare, values = evidence.compare, list(by_value)
    if compare.against is not None:
        yield from ((value, None) for value in values)
    elif compare.order == "peak inside":
        inside = max(
            values[1:-1], key=lambda value: statistics.mean(_by_unit(evidence, by_value[value]).values())
        )
        yield from ((inside, values[0]), (inside, values[-1]))
    elif compare.order:
        yield from pairwise(values if compare.order == "falling" else values[::-1])
    else:
        theirs = compare.theirs or [value for value in values if value != compare.ours]
        ours = [compare.ours] if compare.ours else [value for value in values if value not in theirs]
        yield from ((own, other) for own in ours for other in theirs if own in by_value and other in by_value)


def _by_unit(evidence: Evidence, of: Sequence[Row], column: str = "") -> dict[str, float]:
    """The quantity, or another column, of each seed."""
    reduce = {"mean": statistics.mean, "min": min, "max": max, None: None}[evidence.compare.reduce]
    values = {}
    for unit, group in grouped(of, [evidence.unit]).items():
        values[unit] = [
            float(value) for row in group if (value := at(row, column or evidence.value)) is not None
        ]
        if len(values[unit]) > 1 and not reduce:
            raise DataError(
                f"{evidence.data}: {len(group)} rows of one {evidence.unit}, {unit}: say `reduce`, or choose fewer"
            )
    return {unit: float((reduce or max)(each)) for unit, each in values.items() if each}


def _contrast(evidence: Evidence, name: str, ours: Sequence[Row], theirs: Sequence[Row]) -> Contrast:
    compare, sign = evidence.compare, 1 if evidence.compare.sign == "above" else -1
    own = _by_unit(evidence, ours)
    if isinstance(compare.against, float):
        other = dict.fromkeys(own, compare.against)
    else:
        other = _by_unit(evidence, theirs, compare.against or "")
    gaps = [sign * (own[unit] - other[unit]) for unit in own if unit in other]
    if not gaps:
        raise DataError(
            f"{evidence.data}: {name}: no {evidence.unit} has both: {sorted(own)}, {sorted(other)}"
        )
    one, two = (statistics.mean(of[unit] for unit in own if unit in other) for of in (own, other))
    half = half_width(gaps)
    if len(gaps) == 1 and evidence.half:
        sides = (ours,) if compare.against is not None else (ours, theirs)
        half = math.hypot(*(max(_by_unit(evidence, side, evidence.half).values()) for side in sides))
    blank = ""
    if (known := evidence.learned) and min(one, two) < _bound(evidence, known, ours) + known.by:
        blank = "nothing was learned"
    elif (known := evidence.room) and sign * (_bound(evidence, known, ours) - two) < known.by:
        blank = "no room to " + ("rise" if sign > 0 else "fall")
    # Worlds such as lfw-both and lfw-small are of the photographs of lfw.
    data = next((str(ours[0][key]).split("-")[0] for key in ("world", "data", "study") if key in ours[0]), "")
    return Contrast(name, one, two, statistics.mean(gaps), half, len(gaps), blank, data)


def _bound(evidence: Evidence, of: Bound, row: Sequence[Row]) -> float:
    number = isinstance(of.bound, float)
    return float(of.bound) if number else statistics.mean(_by_unit(evidence, row, str(of.bound)).values())


# What there is, in words.


def load(folder: Path = FOLDER) -> dict[str, Claim]:
    """The claims, by the names of their files."""
    return {path.stem: Claim.model_validate(_yaml(path)) for path in sorted(folder.glob("*-*.yaml"))}


@cache
def quantities(folder: Path = FOLDER) -> dict[str, list[Measure]]:
    """Quantity -> the columns that measure it."""
    known = _yaml(folder / "quantities.yaml").items()
    return {name: [Measure.model_validate(each) for each in measures] for name, measures in known}


def _yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def verdict(claim: Claim, evidence: Evidence) -> Judged:
    """The verdict by the records, which is the one that is written.

    Raises:
        DataError: it is another one, or the test that is named is not there.
    """
    if evidence.records:
        judged = judge(evidence, quantities()[claim.quantity], rows(evidence.records, evidence.rows))
        if judged.word != evidence.verdict:
            raise DataError(
                f"{claim.says} ({evidence.data}): the records say {judged.word!r} ({judged.reason}) and the file "
                f"{evidence.verdict!r}: read the figures, and change the words under studies/claims"
            )
        return judged
    path, _, name = evidence.test.partition("::")
    if evidence.test and f"def {name}(" not in (TESTS / path).read_text(encoding="utf-8"):
        raise DataError(f"{evidence.test} is not there: name the test that holds {claim.says!r}")
    return Judged(evidence.verdict)


def why(evidence: Evidence, judged: Judged) -> str:
    """The reason by the records, and what is said beside it, as sentences."""
    parts = filter(None, (judged.reason, evidence.because))
    return ". ".join(part[0].upper() + part[1:] for part in parts)


def figures(evidence: Evidence, judged: Judged) -> str:
    """The contrasts: each of a few, the range of many."""
    usable = [each for each in judged.contrasts if not each.blank] or judged.contrasts
    scale, digits = evidence.scale, 1 if evidence.scale == 100 else 3
    gaps = [scale * each.gap for each in usable]
    if len(usable) > FEW:
        return "; ".join(
            filter(None, (f"{min(gaps):+.{digits}f} to {max(gaps):+.{digits}f}", judged.counted))
        )
    words = [
        (f"{each.name}: " if each.name else "")
        + (f"{scale * each.ours:.{digits}f} / {scale * each.theirs:.{digits}f}, " if each.theirs else "")
        + f"{scale * each.gap:+.{digits}f}"
        + (f" ± {scale * each.half:.{digits}f}" if each.half < math.inf else "")
        for each in usable
    ]
    return "; ".join(filter(None, (*words, judged.counted)))


def power(evidence: Evidence, judged: Judged) -> str:
    """Seeds, the least and the widest interval, and how many trainings still rose."""
    if not judged.contrasts:
        return "–"
    says = f" (the study says {evidence.seeds})" * (judged.seeds < evidence.seeds)
    units = _units(evidence) if judged.seeds != 1 else _units(evidence).removesuffix("s")
    parts = [f"{judged.seeds} {units}{says}"]
    halves = [evidence.scale * each.half for each in judged.contrasts]
    if max(halves) < math.inf:
        parts.append("± " + " to ".join(dict.fromkeys(f"{half:.2g}" for half in (min(halves), max(halves)))))
    if judged.rising[1]:
        parts.append("validation still rose in {} of {} trainings".format(*judged.rising))
    return ", ".join(parts)


def drawn(contrast: Contrast, reach: float, width: int = 41) -> str:
    """An interval as a line of text, with 0 in its middle."""

    def column(value: float) -> int:
        return round((max(-1.0, min(1.0, value / reach)) + 1) / 2 * (width - 1))

    low, high = column(contrast.low), column(contrast.high)
    line = ["-" if low <= at <= high else " " for at in range(width)]
    line[width // 2], line[column(contrast.gap)] = "|", "o"
    return "".join(line)


def values() -> dict[str, Any]:
    """What templates may use: paper -> its claims, and each evidence of a claim with its verdict by the records."""
    papers: dict[str, list[tuple[Claim, list[tuple[Evidence, Judged]]]]] = {name: [] for name in PAPERS}
    for claim in load().values():
        papers[claim.paper].append((claim, [(each, verdict(claim, each)) for each in claim.evidence]))
    of_all = [each for claims in papers.values() for _, judged in claims for each, _ in judged]
    return {
        "claims": {PAPERS[name]: claims for name, claims in papers.items()},
        "verdicts": {word: sum(each.verdict == word for each in of_all) for word in get_args(Word)},
        "compared": compared,
        "claim_why": why,
        "claim_figures": figures,
        "claim_power": power,
    }


def main() -> None:
    """Print the claims, of all files or of some."""
    for name, claim in load().items():
        if not name.startswith(tuple(sys.argv[1:] or [""])):
            continue
        print(f"\n{claim.paper}, {claim.figure}: {claim.says}")
        for evidence in claim.evidence:
            judged = verdict(claim, evidence)
            print(f"  {evidence.data}: {_joined(evidence.verdict, judged.reason, power(evidence, judged))}")
            reach = max(
                (abs(each.gap) + each.half for each in judged.contrasts if each.half < math.inf), default=1.0
            )
            for each in judged.contrasts:
                print(f"    {drawn(each, reach)}  {each.name}" + f" ({each.blank})" * bool(each.blank))


if __name__ == "__main__":
    main()
