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
from sfumato.study.choose.estimates import classifier_in_words, percent

_SHOWN = 10  # pairs of near copies
_HIDDEN = 0.05  # of people named beyond chance: a remedy that names no more hides people
_KEPT = 0.9  # of the right guesses beyond chance: a remedy that leaves as many is useful


@dataclass(frozen=True)
class _Tried:
    """A form, how often it names people, and how much it keeps: right guesses, or neighbours.

    People are named `once` from one vector, and at `most` from as many as were tried.
    """

    form: Form
    named: Mapping[int, Named]
    kept: float
    keeps: bool = True  # more than a guess, by an interval
    alone: Named | None = None  # by what it leaves out

    @property
    def once(self) -> float:
        return self.named[1].named.value

    @property
    def most(self) -> float:
        return self.named[max(self.named)].named.value

    @property
    def hides(self) -> bool:
        """Whether few people are named beyond chance, from one vector."""
        chance = 1 / self.named[1].panel
        return self.once - chance <= _HIDDEN * (1 - chance)

    @property
    def bound(self) -> float:
        """The most that anybody can name from one vector; 1 if nothing is proved."""
        chance = 1 / self.named[1].panel
        return counting(chance, outputs=self.form.outputs).chance if self.form.outputs else 1.0


def audit_vectors(vectors: Vectors, *, subject: str, seed: int = 0, progress: Progress = quiet) -> Report:
    """Name, link and verify the people of vectors, infer attributes, and try storage and remedies.

    Without people, links without names alone are measured. `seed` is of halves, panels and samples.

    Raises DataError: fewer than eight people have two vectors, or an attribute with one class in a half.
    """
    twins, tried = _find_twins(vectors, seed), list[_Tried]()
    inferred: dict[str, Inferred] = {}
    findings, changes = list[Finding](), list[str]()
    target = next(iter(vectors.labels), None)
    if (people := vectors.people) is not None:
        halves = measure.split(people, seed)
        for name, classes in vectors.labels.items():
            inferred[name] = measure.infer(vectors.values, classes, people, halves)
        tried = _try_forms(vectors, people, halves, target, seed, progress)
    named, base = tried[0].named if tried else {}, 0.0 if target is None else inferred[target].base
    if tried:
        findings = [_find_named(named)]
        findings += [_find_numbers(each, each.alone) for each in tried if each.alone is not None]
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
    every = [*measure.forms(values[halves.learned], wanted, carriers, names)]
    tried = []
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
        known = [(each.form.name, each.named[size]) for each in tried if size in each.named]
        points = {f" of {name}" * (number > 0): each.point for number, (name, each) in enumerate(known)}
        stored[size] = Named(sets.join(points), mine.panel)
    return [replace(tried[0], named=stored), *tried[1:]]


def _vectors(count: int) -> str:
    return "one vector" if count == 1 else f"{count} vectors"


def _sentence(
    named: Mapping[int, Named], inferred: Mapping[str, Inferred], twins: Finding, vectors: Vectors
) -> str:
    parts, before = list[str](), 0
    for size, each in named.items():
        among = "" if each.panel == before else f" of {each.panel} people (chance {percent(1 / each.panel)})"
        verb = "" if parts else "a stranger names "
        parts.append(f"from {_vectors(size)} {verb}{percent(each.named.value)}{among}")
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
        figures[str(size)] = {"people": len(point.people), "named": rate.value, "low": rate.low}
        figures[str(size)] |= {"high": rate.high, "linked": each.linked.value}
        figures[str(size)] |= {"adversaries": point.by_adversary, **shares}
        said = (str(size), str(len(point.people)), interval(rate), interval(each.linked))
        rows.append((*said, *map(percent, shares.values())))
    often, first = next(iter(figures.values()))["over_half"], next(iter(named.values()))
    words = (
        f"From one vector {percent(often)} of people are named in over half of the tries. The best "
        f"adversary is a {classifier_in_words(first.point.chosen[0])}."
    )
    columns = ("vectors", "people", "named", "linked", "chance", "worst person", "named in over half")
    table = Table(
        (*columns, "verified at 1% false alarms", "equal error"),
        tuple(rows),
        "Some vectors of each person are known. Named: right at the first guess. Linked: two sets of as "
        "many vectors. In brackets the 95% interval over people.",
    )
    leaks = any(each["low"] > each["chance"] for each in figures.values())
    return Finding("named", "Named, linked and verified", shown(leaks), words, table, figures=figures)


def _find_numbers(without: _Tried, alone: Named) -> Finding:
    words = (
        f"From one vector {percent(alone.named.value)} of people are named by "
        f"{' and '.join(without.form.without)} alone, and {percent(without.once)} without, by values, spread "
        "and decimals."
    )
    leaks, numbers = alone.named.low > 1 / alone.panel, list(without.form.without)
    figures = {"numbers": numbers, "alone": alone.named.value, "without": without.once}
    return Finding("numbers", "Numbers that tell most", shown(leaks), words, figures=figures)


def _find_attributes(inferred: Mapping[str, Inferred]) -> Finding:
    read = [name for name, each in inferred.items() if each.share.low > each.base]
    rows = tuple(
        (name, interval(each.share), percent(each.base), str(each.people), str(each.vectors))
        for name, each in inferred.items()
    )
    words = f"A logistic regression reads {', '.join(read) or 'none of them'} better than a guess, "
    words += "learned from other people."
    table = Table(("attribute", "right", "by the commonest class", "people", "vectors"), rows)
    figures = {name: {"right": each.share.value, "base": each.base} for name, each in inferred.items()}
    return Finding("attributes", "Attributes", shown(bool(read)), words, table, figures=figures)


def _utility(target: str | None) -> str:
    return "neighbours kept" if target is None else f"{target} right"


def _find_forms(tried: list[_Tried], target: str | None, base: float) -> Finding:
    stored, sizes = tried[0], list(tried[0].named)
    hidden = [each.form.name for each in tried if each.hides]
    sentence = "None of these hides people: from one vector, each names over 5% beyond chance."
    if stored.hides:
        sentence = "The vectors as they are name hardly more people than chance does."
    elif hidden:
        sentence = f"From one vector, these name at most 5% of people beyond chance: {'; '.join(hidden)}."
    guess = (percent(1 / stored.named[size].panel) for size in sizes)
    rows = [("a guess", "0", *guess, "1.0%", percent(base), "-")]
    figures = dict[str, dict[str, Any]]()
    for each in tried:
        shares = {str(size): each.named[size].named.value for size in sizes}
        figures[each.form.name] = {"bytes": each.form.bytes, "kept": each.kept, "proved": each.bound}
        figures[each.form.name]["named"] = shares
        said = (*shares.values(), each.named[1].point.accepted, each.kept)
        bound = percent(each.bound) if each.bound < 1 else "-"
        rows.append((each.form.name, f"{each.form.bytes:,}", *map(percent, said), bound))
    columns = ("form", "bytes", *(f"named from {size}" for size in sizes), "verified from 1")
    table = Table(
        (*columns, _utility(target), "proved at most, from 1"),
        tuple(rows),
        "Each is learned from one half of the people and tried on the other, by adversaries who know it.",
    )
    title = "Other ways to store them, and remedies"
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
        table = Table(
            ("row", "nearly a copy of row"),
            tuple((str(first), str(second)) for first, second in pairs[:_SHOWN]),
            f"{min(_SHOWN, len(pairs))} of {len(pairs):,} pairs. Their distance is under a tenth of "
            "that of two random vectors.",
        )
    verdict = shown(linked > 0.05 or len(pairs) > 0)
    figures = {"linked": linked, "copies": len(pairs), "same": same, "by_chance": by_chance}
    return Finding("twins", "Without names", verdict, sentence, table, figures=figures)


def _remedies(tried: list[_Tried], target: str | None, base: float) -> Iterator[str]:
    """Advise the most private remedy that keeps as much as the vectors; the answer alone if none does."""
    stored, remedies = tried[0], [each for each in tried if each.form.remedy]
    for each in remedies:
        if each.form.without and each.once < stored.once / 2:
            yield (
                f"Leave out {' and '.join(each.form.without)}: then a stranger names {percent(each.once)} "
                f"from one vector, not {percent(stored.once)}."
            )
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
        yield (
            f"Nothing of {target} is read beyond guessing ({percent(base)}), so that no vectors are of use: "
            f"keep the {best.form.name}, or nothing. Then {figures}"
        )
    else:
        yield f"No remedy is useful and hides people. Fewest are named with {best.form.name}: {figures}"
    if best.bound < 1:
        yield (
            f"A release with {best.form.outputs} possible values names at most {percent(best.bound)} of "
            f"{best.named[1].panel} people to anybody. This is proved, and grows with each further release."
        )
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
    yield (
        "Remedies were tried against adversaries who saw their result; a new model may undo them. Only a "
        "proof holds against everybody."
    )


def _risks(named: Mapping[int, Named], inferred: Mapping[str, Inferred], source: str) -> Iterator[Risk]:
    for size, each in named.items():
        known: dict[str, Any] = {"secret": "identity", "releases": size, "control": 1 / each.panel}
        known |= {"adversary": classifier_in_words(each.point.chosen[0]), "source": source}
        known["people"] = len(each.point.named)
        yield Risk("singling out", rate=each.named, **known, **worst_of(each.point.named.tolist()))
        yield Risk("linkability", rate=each.linked, **known, **worst_of(each.point.linked.tolist()))
    for name, attribute in inferred.items():
        known = {"people": attribute.people, "images": attribute.vectors, "source": source}
        adversary = "logistic regression"
        yield Risk("inference", name, 1, adversary, attribute.share, attribute.base, **known)
