"""The sections that are paragraphs and a table of records, without charts or pictures."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sfumato.assess.people import Recognised, at_blur, at_noise
from sfumato.study.choose.estimates import (
    OVER_PEOPLE,
    Curve,
    Estimate,
    Study,
    belonging,
    bounds_of_attributes,
    curves,
    estimate_of,
    in_folds,
    inferences,
    learner_in_words,
    percent,
    risks,
)
from sfumato.study.choose.recommend import releases_of
from sfumato.study.hits import hits_of, join
from sfumato.study.records import Record
from sfumato.study.report.sections.section import (
    DASH,
    MARK,
    Column,
    RecordTable,
    Section,
    Value,
    of_records,
    show_estimate,
)

_ABREAST = 7  # labels that fit side by side on paper


def people(study: Study, records: Sequence[Record]) -> Section | None:
    """People's recognition at comparable settings of blur and noise; None without such settings."""
    width = study["data"]["shape"][2]
    answers: list[tuple[str, Recognised]] = []
    for spec in study["protections"]:
        name, _, value = spec.partition("=")
        if name == "blur:radius":
            answers.append((spec, at_blur(float(value), side=width)))
        elif name == "gaussian:sigma":
            answers.append((spec, at_noise(float(value))))
    if not answers:
        return None
    rows = [
        (spec, [Value(_sentence(answer.sentence), (f"compared with {answer.compared}",))])
        for spec, answer in answers
    ]
    table = RecordTable(
        "Table of people",
        "What people recognised; 95% intervals in brackets",
        [Column("people", number=False)],
        [rows],
    )
    paragraphs = (
        "In an experiment people were shown grey photographs of 224 × 224 pixels for a fifth of a second, "
        "blurred or with noise, and chose one of 16 classes, such as dog or car (Geirhos et al. 2018; CC BY "
        "4.0). A setting of this study is compared with the blur that is as wide a part of the image, or "
        "with the noise that has the same ratio to the contrast.",
        "It is a comparison and not this study’s own experiment: a smaller image lacks detail already and "
        "its noise is coarser, which hides more; colour, and more time to look, show more. Nor does it bound "
        "the risk: to name a class is not to name a person, and where people fail a network may not.",
    )
    return of_records("people", "What people recognise", "People", paragraphs, table)


def inference(study: Study, records: Sequence[Record]) -> Section | None:
    """How often each attribute is inferred, with guessing and its bound; None without attributes."""
    inferred = inferences(study, records)
    if not inferred:
        return None
    bounds = bounds_of_attributes(study)
    chances = {label: each.chance for (_, label), each in inferred.items()}

    def value(spec: str, label: str) -> Value:
        each = inferred.get((spec, label))
        if each is None:
            return DASH
        shown = show_estimate(each.top1, each.adversary, marked=each.top1.value > bounds[label])
        return replace(shown, small=(f"{shown.small[0]};", *shown.small[1:]))

    table = RecordTable(
        "Table of inferences",
        "How often each attribute is inferred by the strongest adversary; small numbers are the "
        f"{OVER_PEOPLE} in percent. {MARK} marks what is above the bound.",
        [
            Column(label, f"at most {percent(bound)}; guessing {percent(chances[label])}")
            for label, bound in bounds.items()
        ],
        [[(spec, [value(spec, label) for label in bounds]) for spec in study["protections"]]],
        mark="above the bound",
        style="stacked",
    )
    words = (
        "Further secrets of this study are attributes, whose classes all people share. An adversary learns "
        "them from releases of people whom they know, and asks them of others: by textbook classifiers of "
        "what travelled, and, of images, by a network that was trained on releases. The recommended setting "
        "keeps the bound of each, with the upper end of its interval."
    )
    return of_records("inference", "Attribute inference", "Attribute inference", [words], table)


def stored(study: Study, records: Sequence[Record]) -> Section | None:
    """The risk from stored embeddings, with that of releases; None without such records."""
    results: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for record in belonging(study, records, "stored"):
        results[record.cell.protection, record.cell.learner or ""].append(record.result)
    if not results:
        return None
    of_releases: dict[str, Estimate] = {}
    for (spec, _), risk in risks(study, records).items():
        if spec not in of_releases or risk.top1.value > of_releases[spec].value:
            of_releases[spec] = risk.top1
    every = [result for seeds in results.values() for result in seeds]
    hits = {key: hits_of(seeds, folds=in_folds(study)).values() for key, seeds in results.items()}
    thefts = {key: estimate_of(max(each, key=lambda made: made.share)) for key, each in hits.items()}
    learners = list(dict.fromkeys(name for _, name in results))
    columns = [Column(f"embeddings of “{name}”", learner_in_words(name)) for name in learners]
    rows = [
        (
            spec,
            [show_estimate(thefts.get((spec, name))) for name in learners]
            + ([show_estimate(of_releases.get(spec))] if of_releases else []),
        )
        for spec in study["protections"]
        if spec in {stolen for stolen, _ in results}
    ]
    chance = percent(statistics.fmean(result.chance for result in every))
    table = RecordTable(
        "Table of stored embeddings",
        f"First guesses that are right, of {max(result.embeddings for result in every):,} stolen embeddings; "
        f"guessing alone: {chance}. Small numbers are the {OVER_PEOPLE} in percent.",
        [*columns, *([Column("releases")] if of_releases else [])],
        [rows],
    )
    words = (
        "A service keeps embeddings of what it was sent. A thief who has them, and releases of known people "
        "that were embedded alike, compares the two: how often their first guess at "
        f"{study['task']['sensitive']} is right, by the best way to compare. Beside it stands what the "
        "strongest adversary reaches on the releases themselves."
    )
    title = "What stored embeddings tell their thief"
    return of_records("stored", title, "Stored embeddings", [words], table)


def tells(study: Study, records: Sequence[Record]) -> Section | None:
    """How often releases tell every other label of the data, with guessing; None without such records.

    Neither the task nor the secrets: better learners and adversaries measure these, in their own sections.
    """
    task = study["task"]
    elsewhere = {task["target"], task.get("sensitive"), *(task.get("attributes") or [])}
    results: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for record in belonging(study, records, "tells"):
        for name, label in record.result.labels.items():
            if name not in elsewhere:
                results[record.cell.protection, name].append(label)
    if not results:
        return None
    guesses = {key: statistics.fmean(seed.guessing for seed in seeds) for key, seeds in results.items()}
    values = {key: _show_label(study, seeds, guesses[key]) for key, seeds in results.items()}
    names = list(dict.fromkeys(name for _, name in results))
    parts = [names[first : first + _ABREAST] for first in range(0, len(names), _ABREAST)]
    tables = [
        RecordTable(
            f"Table of labels {number}" if len(parts) > 1 else "Table of labels",
            "How often a label is read correctly; small numbers are the "
            f"{OVER_PEOPLE} in percent. {MARK} marks what is given away: the interval is above guessing.",
            [
                Column(name, f"guessing {_range(guess for (_, of), guess in guesses.items() if of == name)}")
                for name in part
            ],
            [
                [
                    (spec, [values.get((spec, name), DASH) for name in part])
                    for spec in study["protections"]
                    if any(spec == protection for protection, _ in results)
                ]
            ],
            mark="given away",
        )
        for number, part in enumerate(parts, 1)
    ]
    others = (
        "The task and the secret have sections of their own, with stronger learners and adversaries."
        if task.get("sensitive")
        else "The task has a section of its own."
    )
    words = (
        "What was not meant to leave leaves as well: how often each other label of the data set is read "
        f"correctly from one release, beside how often it would be by naming the commonest class. {others} "
        "The adversary here is a textbook one: ordinary classifiers of what travelled, which learn from "
        "releases of other images. A stronger one may tell more."
    )
    return of_records("tells", "What else a release tells", "What else it tells", [words], *tables)


def many(study: Study, records: Sequence[Record]) -> Section | None:
    """What many releases of one person tell: a device sends hundreds in a year; None without such records."""
    recorded = curves(study, records)
    if not recorded:
        return None
    sizes = sorted({point.releases for curve in recorded.values() for point in curve.points})
    most = "from the most releases that were looked at"
    columns = [
        Column("guessing"),
        *(Column(str(size), group="named, by number of releases") for size in sizes),
        Column("the most named person", group=most),
        Column("named in over half of the tries", group=most),
        Column("recognised at 1% false alarms", group=most),
        Column("linked across two services", group=most),
    ]
    table = RecordTable(
        "Table of many releases",
        f"Small numbers are the {OVER_PEOPLE} in percent; guessing names one of the people of a "
        "panel. A dash: too few pictures, or named too often already.",
        columns,
        [[(spec, _show_curve(recorded[spec], sizes)) for spec in study["protections"] if spec in recorded]],
        style="attacked",
    )
    releases = releases_of(study)
    words = (
        "A device sends many releases of one person, and a service holds them together. Adversaries know "
        "other releases of each person and get 1, 3, 10, … more of one of them. The adversary is chosen by "
        "one half of the people and stated for the other; a figure is the mean over draws of galleries and "
        f"sets. The bound of this study is for {releases} release{'s' if releases > 1 else ''}."
    )
    return of_records("many", "What many releases of one person tell", "Many releases", [words], table)


def _show_curve(curve: Curve, sizes: Sequence[int]) -> list[Value]:
    """Shows guessing, the risk from each number of releases, and more of the largest number."""
    last = curve.points[-1]
    points = [curve.after(size) for size in sizes]
    return [
        Value(percent(last.chance)),
        *(show_estimate(point.named if point else None) for point in points),
        *(Value(percent(share)) for share in (last.worst, last.over_half, last.accepted)),
        show_estimate(last.linked),
    ]


def _show_label(study: Study, seeds: Sequence[Any], guessing: float) -> Value:
    """How often one label is read correctly, marked if all of the interval is above guessing."""
    accuracy = estimate_of(join([seed.counted for seed in seeds], folds=in_folds(study)))
    return show_estimate(accuracy, marked=accuracy.low > guessing)


def _range(shares: Iterable[float]) -> str:
    """From the least to the largest share, in percent."""
    ends = sorted(shares)
    return " to ".join(dict.fromkeys(percent(end) for end in (ends[0], ends[-1])))


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]
