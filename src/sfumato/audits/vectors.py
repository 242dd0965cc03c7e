"""The audit of vectors: whom they name, link and verify, what they tell, their storage and remedies."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sfumato.attack import plda, sets
from sfumato.audits.findings import Finding, Progress, Report, Risk, Table, calibrate, quiet, shown
from sfumato.audits.vector_files import Vectors
from sfumato.dp.naming import counting
from sfumato.errors import DataError, shorten
from sfumato.study.choose.figures import (
    Estimate,
    classifier_in_words,
    estimate_of,
    hits_of_rates,
    interval,
    percent,
)

Transform = Callable[[np.ndarray], np.ndarray]  # (N, D) float32 -> (N, d) float32

SIZES = (1, 10, 100)  # vectors of one person
_FEWEST = 8  # people with two vectors: four who teach, and four to name
_LEARNED = 4_000  # vectors of other people at most, to learn from
_NUMBERS = 128  # of a vector for models: principal components of others'
_UNEVEN = 10.0  # the ratio of two deviations from which numbers are evened out, too
_TELLING, _PLACES = 16, 6  # numbers that are looked at alone, and decimals of theirs
_ROUNDED = 2e-3  # of a place: numbers that end there may be a little smaller
_CARRIES = 5.0  # times as much as most: a number that tells as much of people is named
_DRAWS = 5  # of galleries, panels and sets
_NEIGHBOURS, _ASKED = 10, 1_000  # vectors whose neighbours are compared
_BLOCK = 1_000  # rows compared at once
_COPY = 0.01  # of the squared distance of two random vectors: below, two are nearly copies
_BY_CHANCE = 0.01  # of vectors have a neighbour as near if nothing links any two
_CODE = 8  # bits
_SHOWN = 10  # pairs of near copies
_HIDDEN = 0.05  # of people named beyond chance: a remedy that names no more hides people
_KEPT = 0.9  # of the right guesses beyond chance: a remedy that leaves as many is useful


@dataclass(frozen=True)
class Halves:
    """People, and the rows of those who teach adversaries and remedies, and of those they are tried on."""

    people: np.ndarray  # (N,) int64
    learned: np.ndarray
    asked: np.ndarray


def split(people: np.ndarray, seed: int) -> Halves:
    """Split people with two vectors or more into halves; the others teach."""
    counts = np.bincount(people)
    able = np.flatnonzero(counts > 1)
    if len(able) < _FEWEST:
        raise DataError(
            f"{len(able)} of {(counts > 0).sum()} people have two vectors or more: at least {_FEWEST} are "
            "needed, half of them to learn from and half to name: add vectors, or leave out --people"
        )
    order = np.random.default_rng(seed).permutation(able)
    asked = np.isin(people, order[: len(able) // 2])
    place = np.full(len(counts), len(counts))
    place[order] = np.arange(len(order))
    others = np.flatnonzero(~asked)
    learned = others[place[people[others]].argsort(kind="stable")][:_LEARNED]
    return Halves(people, learned, np.flatnonzero(asked))


@dataclass
class Named:
    """How well vectors of one person identify them: a point of `sets.curve`, with the size of its panel."""

    point: sets.Point
    panel: int

    def __post_init__(self) -> None:
        rates = self.point.named, self.point.linked  # of names, and of two sets that are joined
        self.named, self.linked = (_estimate(each, self.point.tries) for each in rates)


def _estimate(rates: np.ndarray, tries: np.ndarray) -> Estimate:
    return estimate_of(hits_of_rates(rates.tolist(), tries.tolist()))


def name_people(
    values: np.ndarray, halves: Halves, seed: int, telling: np.ndarray | None = None
) -> dict[int, Named]:
    """Name people from 1, 10 and 100 vectors; each number with all people who have enough.

    Adversaries see the vectors; each number divided by its deviation, if these differ; and `telling` (N, K).
    """
    asked, learned = halves.asked, halves.learned
    own, spread = halves.people[asked], values[learned].std(0)
    views = {"": values}
    if spread.max() > _UNEVEN * spread[spread > 0].min(initial=np.inf):
        views[", numbers evened out"] = values / np.where(spread > 0, spread, 1)
    if telling is not None:
        views[", numbers that tell most"] = telling
    shown = {words: sets.few(each[asked], each[learned], most=_NUMBERS) for words, each in views.items()}
    able = {size: np.flatnonzero(np.bincount(own) >= sets.pictures_for(size)) for size in SIZES}
    found: dict[int, Named] = {}
    for size in reversed(SIZES):
        if size in found or len(able[size]) < _FEWEST // 2:
            continue
        rows = np.isin(own, able[size])
        made = sets.curve(
            {words: (each[rows], others) for words, (each, others) in shown.items()},
            own[rows],
            halves.people[learned],
            most=size,
            further={"naive Bayes": sets.by_variances},
            draws=_DRAWS,
            seed=seed,
        )
        # A smaller number is tried with more people, if there are more.
        points = [point for point in made.points if len(able.get(point.releases, ())) == len(able[size])]
        found |= {point.releases: Named(point, made.panel) for point in points}
    return dict(sorted(found.items()))


def find_telling(values: np.ndarray, halves: Halves) -> tuple[np.ndarray, np.ndarray]:
    """Find single numbers that tell of people: by their values, their spread, or their last decimals.

    Only those who teach are looked at. From (N, D) numbers as they are in the file it returns (N, K), values
    of the most telling ones; and their places, if they tell far more than most, and may not belong there.
    """
    learned, people = values[halves.learned], halves.people[halves.learned]
    middle = np.median(learned, axis=0)
    looks: list[Transform] = [lambda x: x, lambda x: np.log(np.abs(x - middle) + 1e-12)]
    for place in range(_PLACES):
        looks.append(lambda x, by=10.0**place: (np.abs(x) * by + _ROUNDED) % 1)  # type: ignore[misc]
        looks.append(lambda x, by=10.0**place: (x * by + _ROUNDED) % 1)  # type: ignore[misc]
    factors = np.stack([_factors(look(learned), people) for look in looks])
    of_each = factors.max(0)  # (D,)
    most = of_each.argsort()[::-1][:_TELLING]
    carriers = most[of_each[most] > _CARRIES * max(1.0, float(np.median(of_each)))]
    telling = carriers if len(carriers) else most
    told = [looks[factors[:, each].argmax()](values)[:, each] for each in telling]
    return np.stack(told, 1).astype(np.float32), carriers


def _factors(values: np.ndarray, people: np.ndarray) -> np.ndarray:
    """(M, D) numbers -> (D,) variances between people, by those within them."""
    values = (values - values.mean(0)) / values.std(0).clip(min=1e-9)
    _, counts, means, rows = plda.group(values, people)
    between = (counts[:, None] * means**2).sum(0) / (len(counts) - 1)
    within = ((values - means[rows]) ** 2).sum(0) / max(1, len(people) - len(counts))
    return np.asarray(between / (within + 1e-6))


@dataclass
class Form:
    """One way to keep vectors; and if it was tried, how often it names people, and how much it keeps."""

    name: str  # for JSON and words, such as "sign bits"
    bytes: int  # of a vector
    transform: Transform  # from the vectors as they are
    outputs: int | None = None  # the number of different releases, if it is small
    remedy: bool = True  # whether it is meant to protect
    without: tuple[str, ...] = ()  # the names of numbers that it leaves out
    named: dict[int, Named] = field(default_factory=dict)
    kept: float = 0.0  # right guesses, or neighbours
    keeps: bool = True  # more than a guess, by an interval
    alone: Named | None = None  # by what it leaves out

    def __post_init__(self) -> None:
        if self.named:
            chance, shares = 1 / self.named[1].panel, [each.named.value for each in self.named.values()]
            self.once, self.most = shares[0], shares[-1]  # how often they are named, from one and the most
            self.hides = self.once - chance <= _HIDDEN * (1 - chance)
            # The most that anybody can name from one; 1 if nothing is proved.
            self.bound = counting(chance, outputs=self.outputs).chance if self.outputs else 1.0


def forms(vectors: Vectors, halves: Halves, carriers: np.ndarray) -> Iterator[Form]:
    """Yield the vectors as they are, as a small database keeps them, and remedies; `carriers` tell most.

    Remedies learn from people who are not looked for afterwards, and keep the first attribute.
    """
    learned = vectors.values[halves.learned]
    mean, width = learned.mean(0), learned.shape[1]
    yield Form("float32", 4 * width, lambda x: x, remedy=False)
    yield Form("sign bits", -(-width // 8), lambda x: _signs(x - mean), remedy=False)
    if len(carriers):
        without = tuple(vectors.names[each] if vectors.names else f"number {each}" for each in carriers)
        words, size = f"all but {' and '.join(without)}", 4 * (width - len(carriers))
        yield Form(words, size, lambda x: np.delete(x, carriers, axis=1), without=without)
    components = plda.principal_components(learned, _CODE)
    bits = components.shape[1]
    yield Form(f"code of {bits} bits", 1, lambda x: _signs((x - mean) @ components), 2**bits)
    if vectors.labels:
        target = next(iter(vectors.labels.values()))[halves.learned]
        known, classes = target >= 0, int(target.max()) + 1
        answer, one_hot = classify(learned[known], target[known]), np.eye(classes, dtype=np.float32)
        words = f"answer alone, one of {classes} classes"
        yield Form(words, 1, lambda x: one_hot[answer(x).argmax(1)], classes)


def _signs(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, np.float32(1), np.float32(-1))


def classify(values: np.ndarray, classes: np.ndarray) -> Transform:
    """Fit a logistic regression; the result maps vectors to log-probabilities of classes."""
    mean, spread = values.mean(0), values.std(0).clip(min=1e-3)

    def scale(x: np.ndarray) -> np.ndarray:
        return np.column_stack([(x - mean) / spread, np.ones(len(x), np.float32)])

    weights = sets.regress(scale(values)[None], classes, int(classes.max()) + 1)[0]
    return lambda x: sets.log_softmax(scale(x) @ weights)


@dataclass(frozen=True)
class Inferred:
    """How often an attribute is inferred from a vector, with its interval, and by the commonest class."""

    share: Estimate
    base: float
    people: int
    vectors: int


def infer(values: np.ndarray, classes: np.ndarray, halves: Halves) -> Inferred:
    """Infer an attribute by a logistic regression that learned it from other people; -1 is unknown."""
    learned, asked = (rows[classes[rows] >= 0] for rows in (halves.learned, halves.asked))
    if len(np.unique(classes[learned])) < 2 or not len(asked):
        raise DataError(
            f"{len(learned)} vectors that teach show {len(np.unique(classes[learned]))} classes, and "
            f"{len(asked)} are asked: label more of them"
        )
    right = classify(values[learned], classes[learned])(values[asked]).argmax(1) == classes[asked]
    _, places, tries = np.unique(halves.people[asked], return_inverse=True, return_counts=True)
    share = _estimate(np.bincount(places, right) / tries, tries)
    return Inferred(share, float(np.bincount(classes[asked]).max() / len(asked)), len(tries), len(asked))


def _unit(x: np.ndarray) -> np.ndarray:
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True).clip(min=1e-12))


def _nearest(unit: np.ndarray, asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows, values = [], []
    for block in np.array_split(asked, -(-len(asked) // _BLOCK)):
        cosines = unit[block] @ unit.T
        cosines[np.arange(len(block)), block] = -2
        rows.append(cosines.argmax(1))
        values.append(cosines.max(1))
    return np.concatenate(rows), np.concatenate(values)


def neighbours_kept(values: np.ndarray, changed: np.ndarray, people: np.ndarray, seed: int) -> float:
    """The share of the ten nearest vectors of other people that are still among the ten nearest."""
    draw = np.random.default_rng(seed)
    asked = draw.choice(len(values), min(_ASKED, len(values)), replace=False)
    order = draw.permutation(len(values))  # equal ones are taken by chance
    others, nearest = people[asked, None] != people[order], []
    for each in (values, changed):
        unit = _unit(each - each.mean(0))
        cosines = np.where(others, unit[asked] @ unit[order].T, -2)
        count = min(_NEIGHBOURS, len(order) - 1)
        nearest.append(np.argpartition(-cosines, count, axis=1)[:, :count])
    return float(np.mean([np.isin(*pair).mean() for pair in zip(*nearest, strict=True)]))


def audit_vectors(vectors: Vectors, *, subject: str, seed: int = 0, progress: Progress = quiet) -> Report:
    """Name, link and verify the people of vectors, infer attributes, and try storage and remedies.

    Without people, links without names alone are measured. `seed` is of halves, panels and samples.
    Raises DataError: fewer than eight people have two vectors, or an attribute with one class in a half.
    """
    twins, target = _find_twins(vectors, seed), next(iter(vectors.labels), None)
    inferred, named = dict[str, Inferred](), dict[int, Named]()
    findings, changes = list[Finding](), list[str]()
    if vectors.people is not None:
        halves = split(vectors.people, seed)
        inferred |= {name: infer(vectors.values, each, halves) for name, each in vectors.labels.items()}
        base = 0.0 if target is None else inferred[target].base
        utility = "neighbours kept" if target is None else f"{target} right"
        tried = _try_forms(vectors, halves, target, seed, progress)
        named = tried[0].named
        findings = [_find_named(named), *(_find_numbers(each, each.alone) for each in tried if each.alone)]
        findings += [*([_find_attributes(inferred)] if inferred else []), _find_forms(tried, utility, base)]
        changes = [] if tried[0].hides else [*_remedies(tried, target, utility, base)]
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
    vectors: Vectors, halves: Halves, target: str | None, seed: int, progress: Progress
) -> list[Form]:
    """Try all forms. Against the first, the vectors as they are, adversaries compute the others, too."""
    values, rows = vectors.values, halves.asked
    classes = None if target is None else vectors.labels[target]
    telling, carriers = find_telling(values * vectors.unit, halves)
    tried, every = [], [*forms(vectors, halves, carriers)]
    for number, form in enumerate(every):
        progress(number, len(every))
        changed, keeps = form.transform(values), True
        if classes is None:
            kept = neighbours_kept(values[rows], changed[rows], halves.people[rows], seed)
        else:
            read = infer(changed, classes, halves)
            kept, keeps = read.share.value, read.share.low > read.base
        named = name_people(changed, halves, seed, None if number else telling)
        alone = name_people(telling, halves, seed)[1] if form.without else None
        tried.append(replace(form, named=named, kept=kept, keeps=keeps, alone=alone))
    progress(len(every), len(every))
    stored = {}
    for size, mine in tried[0].named.items():
        points = {f" of {each.name}": each.named[size].point for each in tried[1:] if size in each.named}
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


def _calibrate(point: sets.Point) -> dict[str, Any]:
    return calibrate(point.scores, point.right, point.shown, point.half[point.shown])


def _find_named(named: Mapping[int, Named]) -> Finding:
    figures, rows = dict[str, dict[str, Any]](), []
    for size, each in named.items():
        point, rate = each.point, each.named
        bits, surest = _calibrate(point).values()
        shares = {"chance": 1 / each.panel, "surest": surest.value}
        shares |= {"accepted": point.accepted, "equal_error": point.equal_error}
        said: dict[str, Any] = {"people": len(point.people), "named": rate.value, "low": rate.low}
        said |= {"high": rate.high, "bits": bits.value, "linked": each.linked.value}
        said["adversaries"] = point.by_adversary
        figures[str(size)] = said | shares
        counts = (str(size), str(len(point.people)))
        told = interval(rate), interval(each.linked), f"{bits.value:.2f}"
        rows.append((*counts, *told, *map(percent, shares.values())))
    sure, best = percent(figures["1"]["surest"]), classifier_in_words(named[1].point.chosen[0])
    words = f"From one vector {sure} of the surest hundredth of namings are right. "
    words += f"The best adversary is a {best}."
    columns = ("vectors", "people", "named", "linked", "bits of identity", "chance", "surest 1% right")
    caption = (
        "Some vectors of each person are known. Named: right at the first guess. Linked: two sets of as "
        "many vectors. In brackets the 95% interval over people."
    )
    table = Table((*columns, "verified at 1% false alarms", "equal error"), tuple(rows), caption)
    leaks = any(each["low"] > each["chance"] for each in figures.values())
    return Finding("named", "Named, linked and verified", shown(leaks), words, table, figures=figures)


def _find_numbers(without: Form, alone: Named) -> Finding:
    rate, numbers = alone.named, list(without.without)
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


def _find_forms(tried: list[Form], utility: str, base: float) -> Finding:
    stored, hidden = tried[0], [each.name for each in tried if each.hides]
    sentence = "None of these hides people: from one vector, each names over 5% beyond chance."
    if stored.hides:
        sentence = "The vectors as they are name hardly more people than chance does."
    elif hidden:
        sentence = f"From one vector, these name at most 5% of people beyond chance: {'; '.join(hidden)}."
    guess = (percent(1 / each.panel) for each in stored.named.values())
    rows = [("a guess", "0", *guess, "1.0%", percent(base), "-")]
    figures = dict[str, dict[str, Any]]()
    for each in tried:
        name, size = each.name, each.bytes
        shares = {str(count): each.named[count].named.value for count in stored.named}
        figures[name] = {"bytes": size, "kept": each.kept, "proved": each.bound, "named": shares}
        said = (*shares.values(), each.named[1].point.accepted, each.kept)
        rows.append((name, f"{size:,}", *map(percent, said), percent(each.bound) if each.bound < 1 else "-"))
    columns = ("form", "bytes", *(f"named from {count}" for count in stored.named), "verified from 1")
    columns = (*columns, utility, "proved at most, from 1")
    words = "Each is learned from one half of the people and tried on the other, by adversaries who know it."
    title, table = "Other ways to store them, and remedies", Table(columns, tuple(rows), words)
    return Finding("forms", title, shown(not hidden), sentence, table, figures=figures)


def _find_twins(vectors: Vectors, seed: int) -> Finding:
    """What links vectors if nobody says whose they are, next to vectors that share their covariance alone.

    For these, the numbers of each principal component are shuffled.
    """
    centred = vectors.values - vectors.values.mean(0)
    draw = np.random.default_rng(seed)
    axes = np.linalg.eigh(np.cov(centred.T.astype(np.float64)))[1].astype(np.float32)
    shuffled = draw.permuted(centred @ axes, axis=0)
    nearest, similarity = _nearest(_unit(centred), np.arange(len(centred)))
    some = draw.choice(len(centred), min(len(centred), 2 * _BLOCK), replace=False)
    linked = float((similarity > np.quantile(_nearest(_unit(shuffled), some)[1], 1 - _BY_CHANCE)).mean())
    distances = ((centred - centred[nearest]) ** 2).sum(1)
    usual = np.median(((centred - centred[draw.permutation(len(centred))]) ** 2).sum(1))
    close = np.flatnonzero(distances < _COPY * usual)
    copies = np.unique(np.sort(np.stack([close, nearest[close]], 1), 1), axis=0)
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


def _remedies(tried: list[Form], target: str | None, utility: str, base: float) -> Iterator[str]:
    """Advise the most private remedy that keeps as much as the vectors; the answer alone if none does."""
    stored, remedies = tried[0], [each for each in tried if each.remedy]
    for each in remedies:
        if each.without and each.once < stored.once / 2:
            names = f"then a stranger names {percent(each.once)} from one vector, not {percent(stored.once)}"
            yield f"Leave out {' and '.join(each.without)}: {names}."
            if each.hides:
                return
    keeping = [each for each in remedies if stored.keeps and each.keeps]
    useful = [each for each in keeping if each.kept - base >= _KEPT * (stored.kept - base)]
    best = min(useful or keeping or remedies[-1:], key=lambda each: (each.most, each.once, each.bound))
    figures = (
        f"a stranger names {percent(best.once)} from one vector and {percent(best.most)} from the most, "
        f"not {percent(stored.once)} and {percent(stored.most)}; {utility}: {percent(best.kept)}, "
        f"not {percent(stored.kept)}."
    )
    if useful and best.most < stored.most:
        yield f"Keep this and no vectors: {best.name}. Then {figures}"
    elif not stored.keeps:
        nothing = f"Nothing of {target} is read beyond guessing ({percent(base)})"
        useless = f"so that no vectors are of use: keep the {best.name}, or nothing"
        yield f"{nothing}, {useless}. Then {figures}"
    else:
        yield f"No remedy is useful and hides people. Fewest are named with {best.name}: {figures}"
    if best.bound < 1:
        most = f"at most {percent(best.bound)} of {best.named[1].panel} people to anybody"
        proved = "This is proved, and grows with each further release."
        yield f"A release with {best.outputs} possible values names {most}. {proved}"
    weak = [each for each in tried[1:] if not each.remedy and each.once > stored.once / 2]
    if weak:
        said = ", ".join(f"{each.name} {percent(each.once)}" for each in weak)
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
        yield Risk("singling out", rate=each.named, **known, **_calibrate(each.point))
        yield Risk("linkability", rate=each.linked, **known)
    for name, attribute in inferred.items():
        known = {"people": attribute.people, "images": attribute.vectors, "source": source}
        adversary = "logistic regression"
        yield Risk("inference", name, 1, adversary, attribute.share, attribute.base, **known)
