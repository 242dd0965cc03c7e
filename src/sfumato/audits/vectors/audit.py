"""The audit of vectors: people and attributes that they give away, storage and remedies, as one report."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sfumato.attack import sets
from sfumato.audits.findings import Finding, Progress, Report, Risk, Table, interval, quiet, shown, worst_of
from sfumato.audits.vectors import measure
from sfumato.audits.vectors.measure import Form, Halves, Inferred, Named
from sfumato.audits.vectors.reading import Vectors
from sfumato.dp.naming import counting
from sfumato.errors import shorten
from sfumato.study.choose.results import classifier_in_words, percent

_SHOWN = 10  # pairs of near copies
_HIDDEN = 0.05  # of people named beyond chance: a remedy that names no more hides people
_KEPT = 0.9  # of the right guesses beyond chance: a remedy that leaves as many is useful


@dataclass
class _Tried:
    """A form, how often it names people, and how much it keeps: right guesses, or neighbours."""

    form: Form
    named: dict[int, Named]
    kept: float
    keeps: bool = True  # more than a guess, by an interval
    alone: Named | None = None  # by what it leaves out

    def __post_init__(self) -> None:
        chance, shares = 1 / self.named[1].panel, [each.named.value for each in self.named.values()]
        self.once, self.most = shares[0], shares[-1]  # how often they are named, from one vector and the most
        self.hides = self.once - chance <= _HIDDEN * (1 - chance)
        outputs = self.form.outputs  # the most that anybody can name from one; 1 if nothing is proved
        self.bound = counting(chance, outputs=outputs).chance if outputs else 1.0


def audit_vectors(vectors: Vectors, *, subject: str, seed: int = 0, progress: Progress = quiet) -> Report:
    """Name, link and verify the people of vectors, infer attributes, and try storage and remedies.

    Without people, links without names alone are measured. `seed` is of halves, panels and samples.

    Raises DataError: fewer than eight people have two vectors, or an attribute with one class in a half.
    """
    twins, target = _find_twins(vectors, seed), next(iter(vectors.labels), None)
    inferred, named = dict[str, Inferred](), dict[int, Named]()
    findings, changes = list[Finding](), list[str]()
    if (people := vectors.people) is not None:
        halves = measure.split(people, seed)
        for name, classes in vectors.labels.items():
            inferred[name] = measure.infer(vectors.values, classes, people, halves)
        base = 0.0 if target is None else inferred[target].base
        tried = _try_forms(vectors, people, halves, target, seed, progress)
        named = tried[0].named
        findings = [_find_named(named), *(_find_numbers(each, each.alone) for each in tried if each.alone)]
        findings += [_find_attributes(inferred)] if inferred else []
        findings.append(_find_forms(tried, target, base))
        changes = [] if tried[0].hides else [*_remedies(tried, target, base)]
    if twins.figures["copies"]:
        changes.append("Remove near copies before you share or test: one copy names the other.")
    return Report(
        audit="vectors",
        subject=subject,
        sentence=_sentence(named, inferred, twins, vectors),
        findings=(*findings, twins),
        changes=tuple(changes),
        limits=tuple(_limits(vectors, seed)),
        risks=tuple(_risks(named, inferred, f"this audit, seed {seed}")),
    )


def _try_forms(
    vectors: Vectors, people: np.ndarray, halves: Halves, target: str | None, seed: int, progress: Progress
) -> list[_Tried]:
    """Try all forms. Against the first, the vectors as they are, adversaries compute the others, too."""
    values, rows = vectors.values, halves.asked
    classes = None if target is None else vectors.labels[target]
    telling, carriers = measure.find_telling(values * vectors.unit, people, halves)
    names = [vectors.names[each] if vectors.names else f"number {each}" for each in carriers]
    wanted = None if classes is None else classes[halves.learned]
    tried, every = [], [*measure.forms(values[halves.learned], wanted, carriers, names)]
    for number, form in enumerate(every):
        progress(number, len(every))
        changed, keeps = form.transform(values), True
        if classes is None:
            kept = measure.neighbours_kept(values[rows], changed[rows], people[rows], seed)
        else:
            read = measure.infer(changed, classes, people, halves)
            kept, keeps = read.share.value, read.share.low > read.base
        named = measure.name_people(changed, people, halves, seed, None if number else telling)
        alone = measure.name_people(telling, people, halves, seed)[1] if form.without else None
        tried.append(_Tried(form, named, kept, keeps, alone))
    progress(len(every), len(every))
    stored = {}
    for size, mine in tried[0].named.items():
        points = {f" of {each.form.name}": each.named[size].point for each in tried[1:] if size in each.named}
        stored[size] = Named(sets.join({"": mine.point, **points}), mine.panel)
    return [replace(tried[0], named=stored), *tried[1:]]


def _sentence(
    named: Mapping[int, Named], inferred: Mapping[str, Inferred], twins: Finding, vectors: Vectors
) -> str:
    parts, before = list[str](), 0
    for size, each in named.items():
        among = "" if each.panel == before else f" of {each.panel} people (chance {percent(1 / each.panel)})"
        source = f"{size} vectors" if parts else "one vector a stranger names"
        parts.append(f"from {source} {percent(each.named.value)}{among}")
        before = each.panel
    sentences = [", ".join(parts)] if parts else []
    sentences += [
        f"{name} is read from {percent(each.share.value)} of vectors (guessing: {percent(each.base)})"
        for name, each in inferred.items()
    ]
    if not named:
        sentences.append(
            f"without names, {percent(twins.figures['linked'])} of vectors have a twin nearer than chance "
            "makes one. Nobody was named: the file does not say whose they are"
        )
    if vectors.left_out:
        sentences.append(f"no part of the vectors, and not looked at: {shorten(', '.join(vectors.left_out))}")
    return ". ".join(sentence[0].upper() + sentence[1:] for sentence in sentences) + "."


def _find_named(named: Mapping[int, Named]) -> Finding:
    figures, rows = dict[str, dict[str, Any]](), []
    for size, each in named.items():
        point, rate = each.point, each.named
        worst, over_half = worst_of(point.named.tolist()).values()
        shares = {"chance": 1 / each.panel, "worst": worst, "over_half": over_half}
        shares |= {"accepted": point.accepted, "equal_error": point.equal_error}
        said: dict[str, Any] = {"people": len(point.people), "named": rate.value, "low": rate.low}
        said |= {"high": rate.high, "linked": each.linked.value, "adversaries": point.by_adversary}
        figures[str(size)] = said | shares
        counts = (str(size), str(len(point.people)))
        rows.append((*counts, interval(rate), interval(each.linked), *map(percent, shares.values())))
    often, best = percent(figures["1"]["over_half"]), classifier_in_words(named[1].point.chosen[0])
    words = f"From one vector {often} of people are named in over half of the tries. "
    words += f"The best adversary is a {best}."
    columns = ("vectors", "people", "named", "linked", "chance", "worst person", "named in over half")
    caption = (
        "Some vectors of each person are known. Named: right at the first guess. Linked: two sets of as "
        "many vectors. In brackets the 95% interval over people."
    )
    table = Table((*columns, "verified at 1% false alarms", "equal error"), tuple(rows), caption)
    leaks = any(each["low"] > each["chance"] for each in figures.values())
    return Finding("named", "Named, linked and verified", shown(leaks), words, table, figures=figures)


def _find_numbers(without: _Tried, alone: Named) -> Finding:
    rate, numbers = alone.named, list(without.form.without)
    words = (
        f"From one vector {percent(rate.value)} of people are named by {' and '.join(numbers)} alone, and "
        f"{percent(without.once)} without, by values, spread and decimals."
    )
    figures = {"numbers": numbers, "alone": rate.value, "without": without.once}
    verdict = shown(rate.low > 1 / alone.panel)
    return Finding("numbers", "Numbers that tell most", verdict, words, figures=figures)


def _find_attributes(inferred: Mapping[str, Inferred]) -> Finding:
    read = [name for name, each in inferred.items() if each.share.low > each.base]
    rows = tuple(
        (name, interval(each.share), percent(each.base), str(each.people), str(each.vectors))
        for name, each in inferred.items()
    )
    better = f"{', '.join(read) or 'none of them'} better than a guess"
    words = f"A logistic regression reads {better}, learned from other people."
    table = Table(("attribute", "right", "by the commonest class", "people", "vectors"), rows)
    figures = {name: {"right": each.share.value, "base": each.base} for name, each in inferred.items()}
    return Finding("attributes", "Attributes", shown(bool(read)), words, table, figures=figures)


def _utility(target: str | None) -> str:
    return "neighbours kept" if target is None else f"{target} right"


def _find_forms(tried: list[_Tried], target: str | None, base: float) -> Finding:
    stored, hidden = tried[0], [each.form.name for each in tried if each.hides]
    sentence = "None of these hides people: from one vector, each names over 5% beyond chance."
    if stored.hides:
        sentence = "The vectors as they are name hardly more people than chance does."
    elif hidden:
        sentence = f"From one vector, these name at most 5% of people beyond chance: {'; '.join(hidden)}."
    guess = (percent(1 / each.panel) for each in stored.named.values())
    rows = [("a guess", "0", *guess, "1.0%", percent(base), "-")]
    figures = dict[str, dict[str, Any]]()
    for each in tried:
        name, size = each.form.name, each.form.bytes
        shares = {str(count): each.named[count].named.value for count in stored.named}
        figures[name] = {"bytes": size, "kept": each.kept, "proved": each.bound, "named": shares}
        said = (*shares.values(), each.named[1].point.accepted, each.kept)
        rows.append((name, f"{size:,}", *map(percent, said), percent(each.bound) if each.bound < 1 else "-"))
    columns = ("form", "bytes", *(f"named from {count}" for count in stored.named), "verified from 1")
    columns = (*columns, _utility(target), "proved at most, from 1")
    words = "Each is learned from one half of the people and tried on the other, by adversaries who know it."
    title, table = "Other ways to store them, and remedies", Table(columns, tuple(rows), words)
    return Finding("forms", title, shown(not hidden), sentence, table, figures=figures)


def _find_twins(vectors: Vectors, seed: int) -> Finding:
    """What links vectors if nobody says whose they are."""
    linked, nearest, copies = measure.find_twins(vectors.values, seed)
    pairs, table, same, by_chance = vectors.rows[copies], None, None, None
    sentence = f"{percent(linked)} of vectors have a twin that is nearer than chance makes one."
    if (people := vectors.people) is not None:
        counts = np.bincount(people)
        by_chance = float((counts * (counts - 1)).sum() / (len(people) * (len(people) - 1)))
        same = float((people[nearest] == people).mean())
        sentence += f" The nearest other is of the same person for {percent(same)}, by chance for "
        sentence += f"{percent(by_chance)}."
    if len(pairs):
        sentence += f" {len(pairs):,} pairs are nearly copies."
        rows = tuple((str(first), str(second)) for first, second in pairs[:_SHOWN])
        few = f"{len(rows)} of {len(pairs):,} pairs"
        words = f"{few}. Their distance is under a tenth of that of two random vectors."
        table = Table(("row", "nearly a copy of row"), rows, words)
    verdict = shown(linked > 0.05 or len(pairs) > 0)
    figures = {"linked": linked, "copies": len(pairs), "same": same, "by_chance": by_chance}
    return Finding("twins", "Without names", verdict, sentence, table, figures=figures)


def _remedies(tried: list[_Tried], target: str | None, base: float) -> Iterator[str]:
    """Advise the most private remedy that keeps as much as the vectors; the answer alone if none does."""
    stored, remedies = tried[0], [each for each in tried if each.form.remedy]
    for each in remedies:
        if each.form.without and each.once < stored.once / 2:
            names = f"then a stranger names {percent(each.once)} from one vector, not {percent(stored.once)}"
            yield f"Leave out {' and '.join(each.form.without)}: {names}."
            if each.hides:
                return
    keeping = [each for each in remedies if stored.keeps and each.keeps]
    useful = [each for each in keeping if each.kept - base >= _KEPT * (stored.kept - base)]
    best = min(useful or keeping or remedies[-1:], key=lambda each: (each.most, each.once, each.bound))
    figures = (
        f"a stranger names {percent(best.once)} from one vector and {percent(best.most)} from the most, "
        f"not {percent(stored.once)} and {percent(stored.most)}; {_utility(target)}: {percent(best.kept)}, "
        f"not {percent(stored.kept)}."
    )
    if useful and best.most < stored.most:
        yield f"Keep this and no vectors: {best.form.name}. Then {figures}"
    elif not stored.keeps:
        nothing = f"Nothing of {target} is read beyond guessing ({percent(base)})"
        useless = f"so that no vectors are of use: keep the {best.form.name}, or nothing"
        yield f"{nothing}, {useless}. Then {figures}"
    else:
        yield f"No remedy is useful and hides people. Fewest are named with {best.form.name}: {figures}"
    if best.bound < 1:
        most = f"at most {percent(best.bound)} of {best.named[1].panel} people to anybody"
        proved = "This is proved, and grows with each further release."
        yield f"A release with {best.form.outputs} possible values names {most}. {proved}"
    weak = [each for each in tried[1:] if not each.form.remedy and each.once > stored.once / 2]
    if weak:
        said = ", ".join(f"{each.form.name} {percent(each.once)}" for each in weak)
        yield f"Smaller storage does not protect: named from one vector by {said}."


def _limits(vectors: Vectors, seed: int) -> Iterator[str]:
    if len(vectors.rows) < vectors.total:
        words = "." if vectors.people is None else ", person by person, up to 150 each."
        yield f"{len(vectors.rows):,} of {vectors.total:,} rows were read, drawn with seed {seed}{words}"
    if len(np.unique(vectors.unit)) > 1:
        yield "One number varies over 100 times as much as most, so each was divided by its deviation."
    if vectors.people is None:
        yield "Without --people nobody is named: links are counted, whether right or wrong."
        return
    yield "A stronger adversary, or one with more vectors of each person, may name more."
    tried = "Remedies were tried against adversaries who saw their result"
    yield f"{tried}; a new model may undo them. Only a proof holds against everybody."


def _risks(named: Mapping[int, Named], inferred: Mapping[str, Inferred], source: str) -> Iterator[Risk]:
    for size, each in named.items():
        known: dict[str, Any] = {"secret": "identity", "releases": size, "control": 1 / each.panel}
        known |= {"adversary": classifier_in_words(each.point.chosen[0]), "people": len(each.point.named)}
        known["source"] = source
        yield Risk("singling out", rate=each.named, **known, **worst_of(each.point.named.tolist()))
        yield Risk("linkability", rate=each.linked, **known, **worst_of(each.point.linked.tolist()))
    for name, attribute in inferred.items():
        known = {"people": attribute.people, "images": attribute.vectors, "source": source}
        adversary = "logistic regression"
        yield Risk("inference", name, 1, adversary, attribute.share, attribute.base, **known)
