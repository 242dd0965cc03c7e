"""How a study was made: the settings behind the numbers, the meaning of the words, and its limits."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from sfumato.study.choose.estimates import Study, belonging, episodic, in_folds, learners_in_study
from sfumato.study.choose.reading import is_known
from sfumato.study.records import Record
from sfumato.study.report.sections.section import Section
from sfumato.study.vocabulary import GREY_IMAGES, LEARNERS, MEASURES

Entries = list[tuple[str, str]]  # names and values

# Settings of a study, by their key in study.json.
_SETTINGS = {
    "meta": "Meta-learning",
    "classifier": "Classifiers",
    "masks": "Masks",
    "features": "Features",
    "codes": "Codes",
}


def section(study: Study, records: Sequence[Record]) -> Section:
    """Settings, versions and computing time; terms; limits; records outside the report."""
    measures = study.get("measures")
    values = {
        "groups": _groups(study, records),
        "learners": [LEARNERS[name] for name in learners_in_study(study)],
        "measures": [m for m in MEASURES.values() if measures is None or m.name in measures],
        "verified": any(
            "verification_auc" in record.result.model_fields_set
            for record in belonging(study, records, "attack")
        ),
        "tells": bool(belonging(study, records, "tells")),
        "not_shown": _not_shown(study, records),
    }
    return Section("made", "How this was made", "How this was made", values)


def _not_shown(study: Study, records: Sequence[Record]) -> list[str]:
    """Records that exist but are not in the report: "restore (13)", "of other settings (4)"."""
    shown = {id(record) for record in belonging(study, records) if is_known(record.kind, record.cell.attack)}
    others: Counter[str] = Counter()
    for record in records:
        if id(record) not in shown:
            known = is_known(record.kind, record.cell.attack)
            others["settings outside the study" if known else record.cell.attack or record.kind] += 1
    return [f"{name} ({count})" for name, count in sorted(others.items())]


def _groups(study: Study, records: Sequence[Record]) -> list[tuple[str, Entries]]:
    """The settings behind the numbers, by their subject."""
    mine = belonging(study, records)
    versions: dict[str, set[str]] = defaultdict(set)
    for made_by in [study.get("versions") or {}, *(record.versions for record in mine)]:
        for name, version in made_by.items():
            versions[name].add(str(version))
    spent: dict[str, float] = defaultdict(float)
    for record in mine:
        spent[record.kind] += record.seconds
    groups = [
        ("Data", _data(study["data"])),
        ("Task", _task(study)),
        ("Training", _settings(study.get("training") if episodic(study) else None)),
        *((title, _settings(study.get(key))) for key, title in _SETTINGS.items()),
        ("Adversaries", _adversaries(study, records)),
        ("Multiply-adds of a query", _operations(study, records)),
        ("Versions", [(name, ", ".join(sorted(used))) for name, used in versions.items()]),
        (
            "Computing time",
            [(kind, _duration(seconds)) for kind, seconds in spent.items()]
            + [("together", _duration(sum(spent.values())))],
        ),
    ]
    return [(name, entries) for name, entries in groups if entries]


def _settings(group: dict[str, Any] | None) -> Entries:
    return [(name, format_value(value)) for name, value in (group or {}).items()]


def _data(data: dict[str, Any]) -> Entries:
    usual = ("train", "validation", "test")
    splits = [name for name in usual if name in data["splits"]]
    splits += [name for name in data["splits"] if name not in usual]
    return [
        ("source", data["source"]),
        ("images", f"{data['images']:,}"),
        ("shape", " × ".join(str(side) for side in data["shape"]) + " (channels, height, width)"),
        *([("colours", GREY_IMAGES)] if data.get("grey") else []),
        ("splits", ", ".join(f"{name} {data['splits'][name]:,}" for name in splits)),
        ("digest", data["digest"]),
        *(("attention", words) for words in data.get("shared", ())),
    ]


def _task(study: Study) -> Entries:
    task = study["task"]
    entries = [("target label", task["target"]), ("secret label", task.get("sensitive") or "none")]
    entries += [("secret attribute", label) for label in task.get("attributes") or []]
    if episodic(study):
        entries.append(
            ("episode", f"{task['way']}-way {task['shot']}-shot, {task['queries']} queries a class")
        )
        if task.get("other_shots"):
            entries.append(("other shots", _join_values(task["other_shots"])))
        if task.get("other_ways"):
            entries.append(("other ways", _join_values(task["other_ways"])))
    if task.get("classes"):
        entries.append(("classes", _join_values(task["classes"])))
    if episodic(study):
        entries.append(("test episodes", f"{task['episodes']:,}"))
    return [*entries, ("folds" if in_folds(study) else "seeds", _join_values(study["seeds"]))]


def _join_values(values: Iterable[Any]) -> str:
    return ", ".join(map(str, values))


def _adversaries(study: Study, records: Sequence[Record]) -> Entries:
    attacks = [record.result for record in belonging(study, records, "attack")]
    if not attacks:
        return []
    sizes = {
        "identities": {result.identities for result in attacks},
        "gallery in all": {result.gallery for result in attacks},
        "probes in all": {result.probes for result in attacks},
    }
    listed = {name: ", ".join(f"{size:,}" for size in sorted(of - {None})) for name, of in sizes.items()}
    return _settings(study.get("adversary")) + [(name, size) for name, size in listed.items() if size]


def _operations(study: Study, records: Sequence[Record]) -> Entries:
    """(learner, "31.2 million"), from the least to the most over its settings; only of those recorded."""
    counts: dict[str, list[int]] = defaultdict(list)
    for record in belonging(study, records, "accuracy"):
        if record.result.operations is not None:
            counts[record.cell.learner or ""].append(record.result.operations)
    return [
        (name, " to ".join(dict.fromkeys(_millions(end(counts[name])) for end in (min, max))))
        for name in learners_in_study(study)
        if name in counts
    ]


def _millions(count: int) -> str:
    """31_234_567 -> "31.2 million"."""
    return f"{count / 1e6:,.1f} million" if count >= 1e5 else f"{count:,}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def format_value(value: Any) -> str:
    """A value of a record or a setting, with all of its digits."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {format_value(part)}" for name, part in value.items())
    return str(value)
