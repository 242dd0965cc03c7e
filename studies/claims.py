"""The claims of the papers, each judged by the records that answer it.

    python studies/claims.py              # every claim with its verdict and its contrasts
    python studies/claims.py fs-pic       # those of the file of one paper

A file under studies/claims has the sentences of a paper, for each the quantity that it is about, the regime in which the
paper measured it, and evidence: the records, the comparison that the sentence makes, and our verdict. The verdict is
computed, too, and another one is an error. `make results` makes docs/claims.md of them.

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
from pydantic import BaseModel, ConfigDict
from scipy import stats
from tables import Row, at, digest, grouped, half_width, in_words, matches, rises, rows

from sfumato.errors import DataError

FOLDER = Path(__file__).parent / "claims"
TESTS = FOLDER.parents[1]
CHANCE = 0.05  # below which so many contrasts do not come by chance
ENOUGH = 3  # seeds
PAPERS = ("fs-pic", "mask", "dpfe", "meta-clip", "semsim")
FEW = 8  # contrasts, which are written one by one
Word = Literal["holds", "holds in part", "fails", "no power", "another regime", "cannot be checked"]
Patterns = dict[str, Any]


class Strict(BaseModel):
    """Content of a file; a key that is not known is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Measure(Strict):
    """How records become rows of a quantity, and what measures it in which of them."""

    rows: str
    value: str  # its column
    half: str = ""  # the column of half its interval over test episodes
    where: Patterns = {}
    unit: str = "seed"  # the column that counts repetitions
    seeds: int = ENOUGH  # how many a study says it has
    scale: float = 100.0  # of differences that are points


class Compare(Strict):
    """The contrasts of a sentence: `ours` (all others) against each of `theirs` (all others), or values in an `order`.

    "peak inside" says that the highest is neither the first nor the last.
    """

    across: str = ""  # the column whose values are compared
    ours: str | None = None
    theirs: list[str] = []
    order: Literal["falling", "rising", "peak inside"] | None = None
    against: float | str | None = None  # a number or a column, in place of other rows
    within: list[str] = []  # columns whose values the compared rows share, a contrast for each
    sign: Literal["above", "below"] = "above"  # where the sentence says that ours is
    reduce: Literal["mean", "min", "max"] | None = None  # several rows of one seed to one
    allowed: float = 0.0  # how far on the wrong side the sentence lets ours be
    claimed: float = 0.0  # the effect in the paper


class Evidence(Strict):
    """Records, a test, or nothing, that answer a claim, and our verdict."""

    data: str
    verdict: Word
    because: str = ""  # what the figures alone do not say of the verdict
    here: str = ""  # what else differs from the paper's regime and does not decide
    command: str = ""  # that made the records, if it is not `sfumato study run` of the last of them
    test: str = ""
    records: list[str] = []
    rows: str = ""  # of the measure, if it is not the first of the quantity, as its value
    value: str = ""
    where: Patterns = {}
    unit: str = ""  # if they are not those of the measure
    seeds: int = 0
    regime: dict[str, tuple[str, Any]] = {}  # a part of the paper's regime: the column, and its value there
    compare: Compare = Compare()
    needs: Literal["each", "every"] = "each"  # whether one contrast that contradicts decides
    learned: tuple[float | str, float] | None = None  # above what, and how far, something was learned
    room: tuple[float | str, float] | None = None  # what values cannot pass, and how far they must be from it
    counted: str = ""  # a column of which it is said in how many rows it is true

    @property
    def made_by(self) -> str:
        """The command."""
        return self.command or (f"sfumato study run studies/{self.records[-1]}.yaml" if self.records else "")


class Claim(Strict):
    """A sentence of a paper, the quantity, one of quantities.yaml, and the regime in which the paper measured it."""

    says: str
    quantity: str
    regime: str
    left_out: dict[
        str, Patterns | list[Patterns]
    ] = {}  # the reason: rows of the quantity that are no evidence
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
    blank: str = ""
    data: str = ""

    def outcome(self, compare: Compare) -> Literal["yes", "no", "open"]:
        """Whether it shows the sentence, contradicts it, or neither."""
        if self.gap - self.half > -compare.allowed:
            return "yes"
        return "no" if self.gap + self.half < compare.claimed - compare.allowed else "open"


@dataclass(frozen=True)
class Judged:
    """A verdict by records: the reason, contrasts, and what docs/claims.md says of them."""

    word: Word
    reason: str = ""
    contrasts: tuple[Contrast, ...] = ()
    figures: str = ""
    power: str = "–"
    digest: str = ""


def judge(claim: Claim, evidence: Evidence, measure: Measure, known: Sequence[Row]) -> Judged:
    """The verdict on evidence, of the rows of its records.

    Raises:
        DataError: no row is chosen; some of the quantity are neither chosen nor left out for a reason; or several are
            of one seed and nothing says how they become one.
    """
    chosen = [row for row in known if at(row, measure.value) is not None and matches(row, evidence.where)]
    if not chosen:
        raise DataError(f"{evidence.data}: no row has {measure.value} and {evidence.where}: mend `where`")
    marked = digest("".join(sorted({row["record"] for row in chosen})))[:8]
    if not all(matches(row, measure.where) for row in chosen):
        reason = f"{measure.value} of these rows is not the paper's quantity"
        return Judged("another regime", reason, digest=marked)
    _check_left_out(claim, evidence, measure, known)
    unit, wanted = evidence.unit or measure.unit, evidence.seeds or measure.seeds
    measure = measure.model_copy(update={"unit": unit, "seeds": wanted})
    contrasts = tuple(_contrasts(evidence, measure, chosen))
    seeds = len({at(row, unit) for row in chosen})
    if unit == "seed":  # the fewest of a contrast
        seeds = min((each.seeds for each in contrasts if not each.blank), default=seeds)
    curves = {row["validation"] for row in chosen if row.get("validation")}  # one for each training
    rose = [of for of in map(rises, curves) if of is not None]
    word, reason = decide(contrasts, evidence.compare, evidence.needs)
    enough = max(ENOUGH, wanted)
    doubts = [f"{seeds} of {enough} {_units(unit)}"] if seeds < enough else []
    doubts += ["most trainings still rose"] if 2 * sum(rose) > len(rose) else []
    if differs := list(_differences(evidence, chosen)):
        word, reason = "another regime", f"{'; '.join(differs)}. There: {_joined(word, reason)}"
    elif len(doubts) > 1 or (doubts and word == "fails"):
        word = "no power"
    elif doubts and word == "holds":
        word = "holds in part"
    figures, power = _figures(contrasts, measure.scale), _power(contrasts, measure, seeds, rose)
    if evidence.counted:
        true = sum(bool(at(row, evidence.counted)) for row in chosen)
        figures += f"; {evidence.counted} in {true} of {len(chosen)}"
    return Judged(word, _joined(reason, *doubts), contrasts, figures, power, marked)


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


def _are_chance(outcomes: Sequence[tuple[Contrast, str]], word: str) -> bool:
    """Whether so many contrasts with an outcome may have come by chance.

    Those of one data set share seeds and clean models: all of them may say the same by one chance, so the number of
    data sets with such a contrast counts as well.
    """
    shown = [each.data for each, outcome in outcomes if outcome == word]
    of_all, of_sets = len(outcomes), len({each.data for each, _ in outcomes})
    # So many independent 95% intervals, of so many, are above 0 if there is no difference.
    likely = (
        stats.binom.sf(len(shown) - 1, of_all, 0.025),
        stats.binom.sf(len(set(shown)) - 1, of_sets, 0.025),
    )
    return bool(max(likely) >= CHANCE)


def _units(unit: str, count: int = 2) -> str:
    words = {"data": "data sets", "spec": "settings", "threads": "measurements"}.get(unit, f"{unit}s")
    return words if count != 1 else words.removesuffix("s")


def _joined(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def _check_left_out(claim: Claim, evidence: Evidence, measure: Measure, known: Sequence[Row]) -> None:
    """Each row of the quantity is evidence, for this row or another of the claim, or left out for a reason."""
    others = (each.where for each in claim.evidence if set(each.records) & set(evidence.records))
    said: list[Patterns] = [evidence.where, *others]
    for where in claim.left_out.values():
        said += where if isinstance(where, list) else [where]
    of_quantity = (row for row in known if at(row, measure.value) is not None and matches(row, measure.where))
    if unsaid := [row for row in of_quantity if not any(matches(row, where) for where in said)]:
        example = {key: value for key, value in unsaid[0].items() if isinstance(value, str | int | float)}
        raise DataError(
            f"{evidence.data}: {len(unsaid)} rows have {measure.value} and are neither chosen nor left out, such as "
            f"{example}: choose them, or say under left_out why not"
        )


def _differences(evidence: Evidence, chosen: Sequence[Row]) -> Iterator[str]:
    """What the records have in place of the paper's regime."""
    for name, (column, paper) in evidence.regime.items():
        wanted = paper if isinstance(paper, list) else [paper]
        values = {at(row, column) for row in chosen} - {None}
        if not values:
            raise DataError(f"{evidence.data}: no row has {column}: the records do not show the {name}")
        if others := sorted(values - set(wanted), key=str):
            ours, papers = (", ".join(map(in_words, each)) for each in (others, wanted))
            yield f"{name} {ours} in place of {papers}"


def _contrasts(evidence: Evidence, measure: Measure, chosen: Sequence[Row]) -> Iterator[Contrast]:
    compare = evidence.compare
    for name, group in grouped(chosen, compare.within).items():
        by_value = grouped(group, [compare.across] if compare.across else [])
        for ours, theirs in _pairs(compare, measure, by_value):
            single = compare.within and (theirs is None or (compare.ours and len(compare.theirs) == 1))
            pair = "" if single else ours if theirs is None else f"{ours} against {theirs}"
            other = by_value[ours if theirs is None else theirs]
            yield _contrast(evidence, measure, " ".join(filter(None, (name, pair))), by_value[ours], other)


def _pairs(
    compare: Compare, measure: Measure, by_value: Mapping[str, list[Row]]
) -> Iterator[tuple[str, str | None]]:
    values = list(by_value)
    if compare.against is not None:
        yield from ((value, None) for value in values)
    elif compare.order == "peak inside":
        means = {
            value: statistics.mean(_by_unit(compare, measure, by_value[value]).values()) for value in values
        }
        inside = max(values[1:-1], key=lambda value: means[value])
        yield from ((inside, values[0]), (inside, values[-1]))
    elif compare.order:
        yield from pairwise(values if compare.order == "falling" else values[::-1])
    else:
        theirs = compare.theirs or [value for value in values if value != compare.ours]
        ours = [compare.ours] if compare.ours else [value for value in values if value not in theirs]
        yield from ((own, other) for own in ours for other in theirs if own in by_value and other in by_value)


def _by_unit(compare: Compare, measure: Measure, of: Sequence[Row], column: str = "") -> dict[str, float]:
    reduce = {"mean": statistics.mean, "min": min, "max": max, None: None}[compare.reduce]
    values = {}
    for unit, group in grouped(of, [measure.unit]).items():
        each = [float(value) for row in group if (value := at(row, column or measure.value)) is not None]
        if len(each) > 1 and not reduce:
            raise DataError(
                f"{len(group)} rows of one {measure.unit}, {unit}, have {measure.value}: say `reduce`, or choose fewer"
            )
        if each:
            values[unit] = float((reduce or max)(each))
    return values


def _contrast(
    evidence: Evidence, measure: Measure, name: str, ours: Sequence[Row], theirs: Sequence[Row]
) -> Contrast:
    compare, sign = evidence.compare, 1 if evidence.compare.sign == "above" else -1
    own = _by_unit(compare, measure, ours)
    if isinstance(compare.against, float):
        other = dict.fromkeys(own, compare.against)
    else:
        other = _by_unit(compare, measure, theirs, compare.against or "")
    both = [unit for unit in own if unit in other]
    if not both:
        raise DataError(
            f"{evidence.data}: {name}: no {measure.unit} has both: {sorted(own)}, {sorted(other)}"
        )
    gaps = [sign * (own[unit] - other[unit]) for unit in both]
    one, two = (statistics.mean(of[unit] for unit in both) for of in (own, other))
    half = half_width(gaps)
    if len(gaps) == 1 and measure.half:
        sides = (ours,) if compare.against is not None else (ours, theirs)
        half = math.hypot(*(max(_by_unit(compare, measure, side, measure.half).values()) for side in sides))

    blank = ""
    for what, limit in (("learned", evidence.learned), ("room", evidence.room)):
        if blank or limit is None:
            continue
        bound, by = limit
        if isinstance(bound, str):
            bound = statistics.mean(_by_unit(compare, measure, ours, bound).values())
        if what == "learned" and min(one, two) < bound + by:
            blank = "nothing was learned"
        elif what == "room" and sign * (bound - two) < by:
            blank = "no room to " + ("rise" if sign > 0 else "fall")
    # Worlds such as lfw-both and lfw-small are of the photographs of lfw.
    data = next((str(ours[0][key]).split("-")[0] for key in ("world", "data", "study") if key in ours[0]), "")
    return Contrast(name, one, two, statistics.mean(gaps), half, len(gaps), blank, data)


def _figures(contrasts: Sequence[Contrast], scale: float) -> str:
    """The contrasts in words: each of a few, the range of many."""
    usable = [each for each in contrasts if not each.blank] or contrasts
    digits = 1 if scale == 100 else 3
    gaps = [scale * each.gap for each in usable]
    if len(usable) > FEW:
        return f"{min(gaps):+.{digits}f} to {max(gaps):+.{digits}f}"
    return "; ".join(
        (f"{each.name}: " if each.name else "")
        + (f"{scale * each.ours:.{digits}f} / {scale * each.theirs:.{digits}f}, " if each.theirs else "")
        + f"{scale * each.gap:+.{digits}f}"
        + (f" ± {scale * each.half:.{digits}f}" if each.half < math.inf else "")
        for each in usable
    )


def _power(contrasts: Sequence[Contrast], measure: Measure, seeds: int, rose: Sequence[bool]) -> str:
    """Seeds, the least and the widest interval, and how many trainings still rose."""
    says = f" (the study says {measure.seeds})" * (seeds < measure.seeds)
    parts = [f"{seeds} {_units(measure.unit, seeds)}{says}"]
    halves = [measure.scale * each.half for each in contrasts]
    if max(halves) < math.inf:
        parts.append("± " + " to ".join(dict.fromkeys(f"{half:.2g}" for half in (min(halves), max(halves)))))
    if rose:
        parts.append(f"validation still rose in {sum(rose)} of {len(rose)} trainings")
    return ", ".join(parts)


def load() -> dict[str, tuple[str, list[Claim]]]:
    """The name of each file -> the paper, and its claims."""
    files = {name: _yaml(FOLDER / f"{name}.yaml") for name in PAPERS}
    return {
        name: (file["paper"], [Claim.model_validate(each) for each in file["claims"]])
        for name, file in files.items()
    }


@cache
def quantities() -> dict[str, list[Measure]]:
    """Quantity -> the columns that measure it."""
    known = _yaml(FOLDER / "quantities.yaml").items()
    return {name: [Measure.model_validate(each) for each in measures] for name, measures in known}


def _yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def measure_of(claim: Claim, evidence: Evidence) -> Measure:
    """The measure of the quantity that evidence names, or the first."""
    return next(
        each
        for each in quantities()[claim.quantity]
        if evidence.rows in ("", each.rows) and evidence.value in ("", each.value)
    )


def verdict(claim: Claim, evidence: Evidence) -> Judged:
    """The verdict by the records, which is the one that is written.

    Raises:
        DataError: it is another one, or the test that is named is not there.
    """
    if evidence.records:
        measure = measure_of(claim, evidence)
        judged = judge(claim, evidence, measure, rows(evidence.records, measure.rows))
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


def values() -> dict[str, Any]:
    """What templates may use: paper -> its claims, and each evidence of a claim with its verdict by the records."""
    papers = {
        paper: [(claim, [(each, verdict(claim, each)) for each in claim.evidence]) for claim in claims]
        for paper, claims in load().values()
    }
    said = [each.verdict for claims in papers.values() for claim, _ in claims for each in claim.evidence]
    counts = {word: said.count(word) for word in get_args(Word)}
    return {"claims": papers, "verdicts": counts, "claim_why": why}


def main() -> None:
    """Print the claims of all papers or of some, and each contrast with its interval."""
    for name, (paper, claims) in load().items():
        for claim in claims if name in (sys.argv[1:] or [name]) else ():
            print(f"\n{paper}: {claim.says}")
            for evidence in claim.evidence:
                judged = verdict(claim, evidence)
                print(f"  {evidence.data}: {_joined(evidence.verdict, judged.reason, judged.power)}")
                for each in judged.contrasts:
                    print(f"    {each.gap:+.3f} ± {each.half:.3f}  {each.name} {each.blank}".rstrip())


if __name__ == "__main__":
    main()
