"""The claims of the papers, each answered by the records that it is about.

    python studies/claims.py              # every claim with its answer and its contrasts
    python studies/claims.py fs-pic       # those of the file of one paper

A file under studies/claims has the sentences of a paper, for each the quantity that it is about, the regime in which the
paper measured it, and evidence: the records, the comparison that the sentence makes, and our answer. The answer is
computed, too, and another one is an error. `make claims` makes docs/claims.md, with the evidence that has `first`, and
docs/claims-evidence.md, with all of it.

A sentence becomes contrasts: differences that it says are above 0, in each setting. They are pooled: each seed has the mean
of its settings, and the interval is Student's t over seeds, since pairs of one setting are alike. Before that, records must
be of the paper's quantity and regime, no row may be left out without a reason, and some outcome must be able to show the
sentence. A contrast says nothing if nothing was learned, or if the compared value cannot move.
"""

import math
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict
from scipy import stats
from tables import Row, at, column, digest, grouped, half_width, in_words, matches, rises, rows

from sfumato.errors import DataError

FOLDER = Path(__file__).parent / "claims"
TESTS = FOLDER.parents[1]
CHANCE = 0.05  # below which so many contrasts do not come by chance
MOST, FAR_LESS = 0.75, 0.5  # of the pairs; of the paper's size
PAPERS = ("fs-pic", "mask", "dpfe", "meta-clip", "semsim")
FEW = 8  # contrasts, which are written one by one
Word = Literal["yes", "yes, a little", "in part", "no", "open", "not comparable"]
MEANINGS: dict[Word, str] = {
    "yes": "the interval is above 0, three quarters of the pairs show it, and half of the size that the paper states, if it does, is reached; "
    "of a loss that a sentence allows the interval decides, and of a sentence about every setting each of them",
    "yes, a little": "the same, and less than half of the paper's size",
    "in part": "some settings show it, more than come by chance, and not the whole; of one seed no more is said",
    "no": "the interval is below 0, or below the paper's size; of a sentence about every setting, some contradict it; or what was to be "
    "proved is not",
    "open": "none of these: too few seeds, nothing learned, no room to move, or nothing was measured",
    "not comparable": "the records are not of the paper's regime or quantity; what they say there follows",
}
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
    scale: float = 100.0  # of differences that are points
    bounds: tuple[float | str, float | str] = (-math.inf, math.inf)  # or columns: no value is outside
    whole: dict[
        str, dict[str, int]
    ] = {}  # column -> world -> how many there are, of which it counts those used


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
    largest: bool = False  # whether that is of the setting that has the largest

    @property
    def size(self) -> float:
        """The effect of every setting in the paper, or 0."""
        return 0.0 if self.largest else self.claimed


class First(Strict):
    """What the first page says beside the answer and our figures."""

    says: str = ""  # the sentence, if it is not that of the claim
    theirs: str
    mind: str = ""


class Evidence(Strict):
    """Records, a test, or nothing, that answer a claim, and our answer."""

    data: str
    verdict: Word
    first: First | None = None
    because: str = ""  # what the figures alone do not say of the answer
    part: str = ""  # why not everything that there is was used
    here: str = ""  # what else differs from the paper's regime and does not decide
    command: str = ""  # that made the records, if it is not `sfumato study run` of the last of them
    test: str = ""
    records: list[str] = []
    rows: str = ""  # of the measure, if it is not the first of the quantity, as its value
    value: str = ""
    where: Patterns = {}
    unit: str = ""  # if it is not that of the measure
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
    """By how much one value is on the side of another that the sentence names, for each seed that has both.

    `half` is half of the interval; `blank` says why it shows nothing; `data` is the data set of its rows.
    """

    name: str
    ours: float
    theirs: float
    gaps: dict[str, float]
    half: float
    blank: str = ""
    data: str = ""

    @property
    def gap(self) -> float:
        """The mean over seeds."""
        return statistics.mean(self.gaps.values())

    def outcome(self, compare: Compare) -> Literal["yes", "no", "open"]:
        """Whether it shows the sentence, contradicts it, or neither."""
        if self.gap - self.half > -compare.allowed:
            return "yes"
        return "no" if self.gap + self.half < compare.size - compare.allowed else "open"


@dataclass(frozen=True)
class Pooled:
    """All contrasts of a sentence as one.

    `gap` and `half` are over `seeds`, each the mean of the settings that all of them have; `pairs` are those of a setting and
    a seed, `above` those that show the sentence, and `largest` the highest mean of a setting.
    """

    gap: float
    half: float
    seeds: int
    pairs: int
    above: int
    largest: float


@dataclass(frozen=True)
class Judged:
    """An answer by records: the reason, contrasts, and what the pages say of them."""

    word: Word
    reason: str = ""
    contrasts: tuple[Contrast, ...] = ()
    ours: str = ""
    figures: str = ""
    power: str = "–"
    digest: str = ""
    rising: bool = False  # whether validation still rose in most trainings
    there: Word | None = None  # the answer in our regime, if it is not the paper's


def judge(claim: Claim, evidence: Evidence, measure: Measure, known: Sequence[Row]) -> Judged:
    """The answer by evidence, of the rows of its records.

    Raises:
        DataError: no row is chosen; some of the quantity are neither chosen nor left out for a reason; images were left
            out without one; no outcome can show the sentence; or several rows are of one seed and nothing says how they
            become one.
    """
    chosen = [row for row in known if at(row, measure.value) is not None and matches(row, evidence.where)]
    if not chosen:
        raise DataError(f"{evidence.data}: no row has {measure.value} and {evidence.where}: mend `where`")
    there: Word | None = None
    marked = digest("".join(sorted({row["record"] for row in chosen})))[:8]
    if not all(matches(row, measure.where) for row in chosen):
        reason = f"{measure.value} of these rows is not the paper's quantity"
        return Judged("not comparable", reason, digest=marked)
    _check_left_out(claim, evidence, measure, known)
    _check_whole(evidence, measure, chosen)
    measure = measure.model_copy(update={"unit": evidence.unit or measure.unit})
    contrasts = tuple(_contrasts(evidence, measure, chosen))
    curves = {row["validation"] for row in chosen if row.get("validation")}  # one for each training
    rose = [of for of in map(rises, curves) if of is not None]
    if usable := [each for each in contrasts if not each.blank]:
        pooled = pool(usable, evidence.compare)
        word, reason = decide(pooled, usable, evidence.compare, evidence.needs)
        ours = _ours(pooled, usable, measure)
    else:
        word, reason, ours = "open", "", ""
    if blanks := sorted({each.blank for each in contrasts} - {""}):
        count = len(contrasts) - len(usable)
        reason = _joined(reason, f"says nothing in {count} of {len(contrasts)}: {'; '.join(blanks)}")
    if differs := list(_differences(evidence, chosen)):
        word, there = "not comparable", word
        reason = f"{'; '.join(differs)}. There: {_joined(there, reason)}"
    if evidence.counted:
        true = sum(bool(at(row, evidence.counted)) for row in chosen)
        ours += f"; {evidence.counted} in {true} of {len(chosen)}"
    power, rising = _power(contrasts, measure, rose), 2 * sum(rose) > len(rose)
    return Judged(
        word, reason, contrasts, ours, _figures(contrasts, measure.scale), power, marked, rising, there
    )


def pool(contrasts: Sequence[Contrast], compare: Compare) -> Pooled:
    """Contrasts as one: over as many seeds as leave half of the settings or more, each of which has them all."""
    seeds = Counter(seed for each in contrasts for seed in each.gaps)
    common, whole = [], []
    for count in range(len(seeds), 0, -1):
        common = [seed for seed, _ in seeds.most_common(count)]
        whole = [each for each in contrasts if set(common) <= set(each.gaps)]
        if 2 * len(whole) >= len(contrasts):
            break
    else:
        raise DataError(
            "no seed is in half of the settings: compare within fewer columns, or name another unit"
        )
    means = [statistics.mean(each.gaps[seed] for each in whole) for seed in common]
    gaps = [gap for each in contrasts for gap in each.gaps.values()]
    above = sum(gap > -compare.allowed for gap in gaps)
    largest = max(each.gap for each in contrasts)
    return Pooled(statistics.mean(means), half_width(means), len(means), len(gaps), above, largest)


def decide(pooled: Pooled, contrasts: Sequence[Contrast], compare: Compare, needs: str) -> tuple[Word, str]:
    """The answer by the pooled contrast and by each, and how often the sentence is shown and contradicted."""
    outcomes = [each.outcome(compare) for each in contrasts]
    yes, no = outcomes.count("yes"), outcomes.count("no")
    reason = f"alone shown in {yes} of {len(contrasts)}" + f", contradicted in {no}" * (no > 0)
    reason *= len(contrasts) > 1
    pairs = list(zip(contrasts, outcomes, strict=True))
    low, high = (pooled.gap + side * pooled.half + compare.allowed for side in (-1, 1))
    partly = not _are_chance(pairs, "yes")
    no_more = _are_chance(pairs, "no")
    if needs == "every" and not no_more:
        return "no", reason
    if needs == "every":
        return (
            "yes" if yes == len(contrasts) and pooled.seeds > 1 else "in part" if partly else "open"
        ), reason
    if low > 0:
        # A pair may vary by more than a sentence allows, so that the interval decides.
        most = no_more if compare.allowed else pooled.above >= MOST * pooled.pairs
        size = pooled.largest if compare.largest else pooled.gap
        little = bool(compare.claimed) and size < FAR_LESS * compare.claimed
        return ("in part" if not most else "yes, a little" if little else "yes"), reason
    return ("no" if high < compare.size else "in part" if partly else "open"), reason


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


def _check_whole(evidence: Evidence, measure: Measure, chosen: Sequence[Row]) -> None:
    """All that there is was used, or it is said why not."""
    for name, there in measure.whole.items():
        for row in chosen:
            used, of = at(row, name), there.get(row["world"])
            if used is not None and of is not None and used < of and not evidence.part:
                raise DataError(
                    f"{evidence.data}: {name} is {used} of {of} in {row['world']}: use all, or say under part why not"
                )


def _check_possible(
    evidence: Evidence, measure: Measure, name: str, ours: Sequence[Row], bound: float
) -> None:
    """Some value is beyond a bound."""
    above = evidence.compare.sign == "above"
    end = measure.bounds[above]
    most = statistics.mean(column(ours, end)) if isinstance(end, str) else end
    if (most - bound if above else bound - most) + evidence.compare.allowed <= 0:
        raise DataError(
            f"{evidence.data}: {name}: no outcome can show this: {measure.value} is at "
            f"{'most' if above else 'least'} {most:.3g}, and is to be {evidence.compare.sign} {bound:.3g}: mend `against`"
        )


def _differences(evidence: Evidence, chosen: Sequence[Row]) -> Iterator[str]:
    """What the records have in place of the paper's regime."""
    for name, (key, paper) in evidence.regime.items():
        wanted = paper if isinstance(paper, list) else [paper]
        values = {at(row, key) for row in chosen} - {None}
        if not values:
            raise DataError(f"{evidence.data}: no row has {key}: the records do not show the {name}")
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
    gaps = {unit: sign * (own[unit] - other[unit]) for unit in both}
    one, two = (statistics.mean(of[unit] for unit in both) for of in (own, other))
    if compare.against is not None:
        _check_possible(evidence, measure, name, ours, two)
    half = half_width(list(gaps.values()))
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
    return Contrast(name, one, two, gaps, half, blank, data)


def _ours(pooled: Pooled, contrasts: Sequence[Contrast], measure: Measure) -> str:
    """The pooled contrast in words, as "+17.9 ± 1.6 points in 60 of 60 pairs, 3 seeds"."""
    digits, scale = (1, 100) if measure.scale == 100 else (3, measure.scale)
    text = f"{scale * pooled.gap:+.{digits}f}"
    if pooled.half < math.inf:
        text += f" ± {scale * pooled.half:.{digits}f}"
    text += " points" * (scale == 100)
    if len(contrasts) > 1:
        text += f" in {pooled.above} of {pooled.pairs} pairs"
    elif contrasts[0].theirs:
        text = (
            f"{scale * contrasts[0].ours:.{digits}f} against {scale * contrasts[0].theirs:.{digits}f}: {text}"
        )
    return f"{text}, {pooled.seeds} {_units(measure.unit, pooled.seeds)}"


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


def _power(contrasts: Sequence[Contrast], measure: Measure, rose: Sequence[bool]) -> str:
    """Seeds, the least and the widest interval of a setting, and how many trainings still rose."""
    seeds = sorted({len(each.gaps) for each in contrasts})
    parts = [
        " to ".join(dict.fromkeys(map(str, (seeds[0], seeds[-1])))) + f" {_units(measure.unit, seeds[-1])}"
    ]
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


def mind(first: First, others: Sequence[tuple[Evidence, Judged]]) -> str:
    """What the first page says beside an answer; {data} is what that evidence of the claim has."""
    ours = {each.data: judged.ours for each, judged in others}
    return re.sub(r"\{(.+?)\}", lambda name: ours[name[1]], first.mind)


def why(evidence: Evidence, judged: Judged) -> str:
    """The reason by the records, and what is said beside it, as sentences."""
    parts = filter(None, (judged.reason, evidence.part, evidence.because))
    return ". ".join(part[0].upper() + part[1:] for part in parts)


def values() -> dict[str, Any]:
    """What templates may use: paper -> its claims, and each evidence of a claim with its answer by the records."""
    papers = {
        paper: [(claim, [(each, verdict(claim, each)) for each in claim.evidence]) for claim in claims]
        for paper, claims in load().values()
    }
    every = [each for claims in papers.values() for _, evidence in claims for each, _ in evidence]
    counts = [
        (word, sum(each.verdict == word and each.first is not None for each in every), MEANINGS[word])
        for word in get_args(Word)
    ]
    return {"claims": papers, "answers": counts, "claim_why": why, "mind": mind}


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
