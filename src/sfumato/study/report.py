"""The report of a study: one HTML file that needs nothing else, and its tables as CSV.

A pure function of study.json and the records: no clock and no chance, so that the same run gives the same
bytes. Nothing in the page asks a network for anything; it holds its style, its charts and its pictures.
"""

import csv
import io
import json
import math
import os
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sfumato.errors import DataError, needs_extra
from sfumato.files import whole
from sfumato.study.recommend import (
    ADVERSARIES,
    LEARNERS,
    Estimate,
    Record,
    Risk,
    Setting,
    Study,
    accuracies,
    attacks_on,
    belonging,
    frontier,
    missing,
    percent,
    recommend,
    risks,
)

# What a record of each kind must have: in its cell beside protection and seed, and in its result.
KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "accuracy": (("learner",), ("accuracy", "half_width", "episodes")),
    "attack": (("attack",), ("scores", "chance", "identities")),
    "similarity": (("view",), ("images",)),
    "pictures": ((), ("original", "released", "denoised")),
    "embeddings": (("learner",), ("points", "classes")),
}

# The adversaries where there is little room.
_SHORT = {
    "reidentify-static": "static",
    "reidentify-adaptive": "adaptive",
    "reidentify-denoised": "static, on denoised images",
    "reidentify-restored": "static, on restored images",
}

_PICTURE = re.compile(r"data:image/png;base64,[A-Za-z0-9+/]+=*")


@dataclass(frozen=True)
class Table:
    """A table of records, number for number: the CSV file and the HTML table have the same cells."""

    name: str  # of the file, without its suffix
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    @property
    def csv(self) -> str:
        """As RFC 4180 text; floats keep all of their digits, None is empty."""
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return text.getvalue()

    @property
    def link(self) -> str:
        """The CSV as a data: URI."""
        return f"data:text/csv;charset=utf-8,{quote(self.csv)}"


def load(directory: str | os.PathLike[str]) -> tuple[Study, list[Record]]:
    """Read study.json and the records of the cells that it lists.

    Raises:
        DataError: there is no study; or a record is damaged, or two are of the same cell: they are named.
    """
    directory = Path(directory)
    study = _read(directory / "study.json", "give the directory of a study that has been run")
    for key in ("name", "title", "data", "task", "protections", "learners", "seeds", "cells"):
        if key not in study:
            raise DataError(f"{directory / 'study.json'}: {key!r} is missing: run the study again")
    listed = [one["digest"] for one in study["cells"]]
    cure = "delete it and run the study again, which makes this record anew"
    found: dict[str, tuple[Path, Record]] = {}
    for path in sorted((directory / "records").glob("*.json")):
        record = _read(path, cure)
        problem = _problem(record)
        if problem:
            raise DataError(f"{path}: a damaged record ({problem}): {cure}")
        # Records of an earlier version of the study may lie here still, and be wanted again.
        if record.get("digest") not in listed:
            continue
        cell = json.dumps([record["kind"], record["cell"]], sort_keys=True)
        if cell in found:
            raise DataError(
                f"{found[cell][0]} and {path.name} record the same cell: delete the one that is out of date"
            )
        found[cell] = (path, record)
    return study, [found[cell][1] for cell in sorted(found)]


def write(directory: str | os.PathLike[str]) -> Path:
    """Write report.html and tables/*.csv into the directory of a run, each whole or not at all.

    A table that an earlier report wrote and that has no rows now is removed.

    Returns:
        The path of report.html.

    Raises:
        DataError: see load.
        MissingExtraError: matplotlib or Jinja2 is not installed.
    """
    directory = Path(directory)
    study, records = load(directory)
    page = render(study, records)
    for table in _tables(study, records):
        path = directory / "tables" / f"{table.name}.csv"
        if table.rows:
            _write(path, table.csv)
        else:
            path.unlink(missing_ok=True)
    return _write(directory / "report.html", page)


def render(study: Study, records: Sequence[Record]) -> str:
    """The page of a study as text."""
    with needs_extra("a report", "study"):
        import jinja2
        import markupsafe

        from sfumato.study import charts

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    svg = markupsafe.Markup

    def legend(group: str, looks: Sequence[tuple[str, Any]]) -> list[tuple[Any, str]]:
        return [(svg(charts.key(f"{group} {name}", look)), name) for name, look in looks]

    advice = recommend(study, records)
    apart = bool(study["task"].get("secret_is_task"))
    adversaries = (
        [
            (
                "static",
                "Against static adversaries",
                [name for name in ADVERSARIES if name != "reidentify-adaptive"],
            ),
            ("adaptive", "Against the adaptive adversary", ["reidentify-adaptive"]),
        ]
        if apart
        else [("strongest", "Best accuracy against strongest re-identification", list(ADVERSARIES))]
    )
    fronts = [
        charts.frontier_chart(
            study,
            frontier(study, records, attacks),
            advice,
            name=f"frontier {name}",
            title=title,
        )
        for name, title, attacks in adversaries
    ]
    family_looks = charts.looks(study)
    family_keys = [
        (f"{family.title}, by {family.axis}" if family.axis else family.title, family_looks[family.name])
        for family in charts.families(study)
    ]
    tried = {record["cell"]["attack"] for record in belonging(study, records, "attack")}
    pictures, originals = _pictures(study, records)
    return environment.get_template("report.html").render(
        study=study,
        task=study["task"],
        data=study["data"],
        advice=advice,
        apart=apart,
        summary=_summary(study, records),
        absent=missing(study, records),
        cell_count=len(study["cells"]),
        not_shown=_not_shown(study, records),
        settings=frontier(study, records),
        risk_by=_by_attack(study, records),
        fronts=[chart for chart in fronts if chart],
        accuracy=charts.accuracy_charts(study, records),
        gain=charts.gain_chart(study, records),
        risk=charts.risk_charts(study, records),
        embeddings=charts.embedding_charts(study, records),
        family_legend=legend("family", [("no protection", charts.NONE_LOOK), *family_keys]),
        gain_legend=legend("gain", family_keys),
        learner_legend=legend(
            "learner",
            [
                *((name, charts.LEARNER_LOOKS[name]) for name in study["learners"]),
                ("clean images, clean learner", charts.CLEAN_LOOK),
                ("chance", charts.CHANCE_LOOK),
            ],
        ),
        attack_legend=legend(
            "attack",
            [
                *((name, charts.ATTACK_LOOKS[attack]) for attack, name in _SHORT.items() if attack in tried),
                ("static, no protection", charts.CLEAN_LOOK),
                ("chance", charts.CHANCE_LOOK),
            ],
        ),
        class_legend=legend(
            "class",
            [
                (name, charts.CYCLE[number % len(charts.CYCLE)])
                for number, name in enumerate(charts.classes_of(study, records))
            ],
        ),
        pictures=pictures,
        originals=originals,
        guarantees=_guarantees(study, records),
        tables=tables(study, records),
        made=_made(study, records),
        svg=svg,
        percent=percent,
        interval=_interval,
        learners=LEARNERS,
        adversaries=_SHORT,
        similarities=_similarities(study, records),
        shown=_shown,
    )


def tables(study: Study, records: Sequence[Record]) -> list[Table]:
    """The frontier, and every accuracy, attack and similarity record of the study; only those with rows."""
    return [one for one in _tables(study, records) if one.rows]


def _tables(study: Study, records: Sequence[Record]) -> list[Table]:
    order = {spec: number for number, spec in enumerate(study["protections"])}

    def table(
        name: str,
        caption: str,
        kind: str,
        which: str,
        keys: Sequence[str],
        parts: Callable[[dict[str, Any]], list[dict[str, Any]]] = lambda result: [result],
    ) -> Table:
        """`parts` makes the rows of one result; what they hold beside `keys` gets columns after those."""
        them = sorted(belonging(study, records, kind), key=lambda one: order[one["cell"]["protection"]])
        found = [(one, part) for one in them for part in parts(one["result"])]
        others = sorted({key for _, part in found for key in part}.difference(keys))
        rows = tuple(
            (
                *(one["cell"][key] for key in ("protection", which, "seed")),
                *(part.get(key) for key in (*keys, *others)),
                one["seconds"],
            )
            for one, part in found
        )
        return Table(name, caption, ("protection", which, "seed", *keys, *others, "seconds"), rows)

    def scores(result: dict[str, Any]) -> list[dict[str, Any]]:
        shared = {key: value for key, value in result.items() if key != "scores"}
        return [{**score, **shared} for score in result["scores"]]

    def flat(result: dict[str, Any]) -> list[dict[str, Any]]:
        guarantee = result.get("guarantee") or {}
        proved = {("guarantee" if key == "text" else key): value for key, value in guarantee.items()}
        return [{**{key: value for key, value in result.items() if key != "guarantee"}, **proved}]

    similarity = ("ssim", "psnr", "mse", "images", "bytes_per_image")
    return [
        Table(
            "frontier",
            "Every setting with its best learner"
            + (" and its strongest adversary" if study["task"].get("sensitive") else ""),
            _FRONTIER,
            tuple(_frontier_row(one) for one in frontier(study, records)),
        ),
        table(
            "accuracy",
            "Accuracy of every learner; half_width is half of its 95% interval over test episodes",
            "accuracy",
            "learner",
            ("accuracy", "half_width", "episodes", "trained_episodes", "train_seconds"),
        ),
        table(
            "reidentification",
            "Re-identification by every adversary and classifier; low and high bound its 95% interval",
            "attack",
            "attack",
            ("classifier", "top1", "low", "high", "chance", "identities", "gallery", "probes"),
            scores,
        ),
        table(
            "similarity",
            "Similarity to the original, bytes that leave the device, and what is proved",
            "similarity",
            "view",
            (*similarity, "guarantee", "definition", "value", "whole_image", "source"),
            flat,
        ),
    ]


_FRONTIER = (
    "protection",
    "learner",
    "accuracy",
    "accuracy_low",
    "accuracy_high",
    "attack",
    "classifier",
    "reidentification",
    "reidentification_low",
    "reidentification_high",
    "chance",
    "complete",
    "on_frontier",
)


def _frontier_row(one: Setting) -> tuple[Any, ...]:
    accuracy, risk = one.accuracy, one.risk
    return (
        one.protection,
        one.learner,
        *((accuracy.value, accuracy.low, accuracy.high) if accuracy else (None, None, None)),
        *((risk.attack, risk.classifier) if risk else (None, None)),
        *((risk.top1.value, risk.top1.low, risk.top1.high, risk.chance) if risk else (None,) * 4),
        one.complete,
        one.on_frontier,
    )


def _read(path: Path, cure: str) -> dict[str, Any]:
    def refuse(word: str) -> float:
        raise ValueError(f"{word} is no number")

    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}): {cure}") from error
    except ValueError as error:  # also what json and the decoder raise
        raise DataError(f"{path}: damaged, not JSON ({error}): {cure}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: damaged, not a JSON object: {cure}")
    return content


def _problem(record: Record) -> str | None:
    """What is wrong with a record, or None. Kinds of other reports pass: they are counted, not shown."""
    for key, kind in (("kind", str), ("cell", dict), ("result", dict)):
        if not isinstance(record.get(key), kind):
            return f"{key!r} is missing"
    in_cell, in_result = KINDS.get(record["kind"], ((), ()))
    if record["kind"] == "attack" and record["cell"].get("attack") not in ADVERSARIES:
        in_result = ()
    needed = [*(("cell", key) for key in ("protection", "seed", *in_cell))] if in_cell or in_result else []
    for part, key in [*needed, *(("result", key) for key in in_result)]:
        if key not in record[part]:
            return f"{part} has no {key!r}"
    if in_result and not isinstance(record.get("seconds"), int | float):
        return "'seconds' is missing"
    if record["kind"] == "attack" and in_result and not record["result"]["scores"]:
        return "result has no scores"
    if record["kind"] == "pictures":
        shown = [one for them in record["result"].values() for one in them or []]
        if not all(isinstance(one, str) and _PICTURE.fullmatch(one) for one in shown):
            return "a picture is no PNG data: URI"
    return None


def _write(path: Path, text: str) -> Path:
    with whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")
    return path


def _summary(study: Study, records: Sequence[Record]) -> list[str]:
    """The first paragraphs, in plain language."""
    task, data = study["task"], study["data"]
    sensitive = task.get("sensitive")
    count = sum(spec != "none" for spec in study["protections"])
    channels, height, width = data["shape"]
    colour = "grey" if channels == 1 else "colour"
    first = (
        f"Images are protected on the device before they leave it, and a service learns to tell "
        f"{task['target']} from what it receives, with {task['shot']} examples of each of {task['way']} "
        f"classes. This study tries {count} ways to protect {data['images']:,} {colour} images of "
        f"{width} × {height} pixels ({data['source']})"
    )
    first += (
        f", and measures how well the task still works and how often an adversary can still tell {sensitive}."
        if sensitive
        else ", and measures how well the task still works. It names no secret: no adversary was tried."
    )
    paragraphs = [first]
    clean = accuracies(study, records).get(("none", "clean"))
    clear = risks(study, records).get(("none", "reidentify-static"))
    if clean:
        told = (
            f"Without protection the classifier is right in {percent(clean.value)} of cases "
            f"(guessing: {percent(1 / task['way'])})"
        )
        if clear:
            told += (
                f", and the adversary names the right {sensitive} for {percent(clear.top1.value)} of the "
                f"images (guessing: {percent(clear.chance)})"
            )
        paragraphs.append(told + ".")
    return paragraphs


def _by_attack(study: Study, records: Sequence[Record]) -> dict[str, dict[str, Risk | None]]:
    """Protection -> attack -> its risk; None where it is missing."""
    found = risks(study, records)
    return {
        spec: {attack: found.get((spec, attack)) for attack in attacks_on(study, spec)}
        for spec in study["protections"]
    }


def _not_shown(study: Study, records: Sequence[Record]) -> list[str]:
    """Records that are there and not in the report: "restore (13)", "of other settings (4)"."""
    mine = {id(record) for record in belonging(study, records) if record["kind"] in KINDS}
    others: Counter[str] = Counter()
    for record in records:
        if id(record) not in mine:
            kind = record["kind"]
            unknown = (
                kind not in KINDS or record["cell"].get("attack", "reidentify-static") not in ADVERSARIES
            )
            others[record["cell"].get("attack", kind) if unknown else "settings outside the study"] += 1
    return [f"{name} ({count})" for name, count in sorted(others.items())]


def _pictures(
    study: Study, records: Sequence[Record]
) -> tuple[list[tuple[str, list[int], list[str], list[str] | None]], list[str]]:
    """Rows of (protection, numbers of its originals, released, denoised), and the different originals."""
    first: dict[str, Record] = {}
    for record in belonging(study, records, "pictures"):
        first.setdefault(record["cell"]["protection"], record)
    numbers: dict[str, int] = {}
    rows = []
    for spec in study["protections"]:
        if spec in first:
            result = first[spec]["result"]
            originals = [numbers.setdefault(one, len(numbers)) for one in result["original"]]
            rows.append((spec, originals, result["released"], result["denoised"]))
    return rows, list(numbers)


def _similarities(study: Study, records: Sequence[Record]) -> dict[tuple[str, str], str]:
    """(protection, view) -> "SSIM 0.41, PSNR 17.2 dB", means over seeds."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for record in belonging(study, records, "similarity"):
        found[record["cell"]["protection"], record["cell"]["view"]].append(record["result"])
    told = {}
    for key, results in found.items():
        parts = []
        if all("ssim" in one for one in results):
            parts.append(f"SSIM {statistics.fmean(one['ssim'] for one in results):.2f}")
        if all("psnr" in one for one in results):
            psnr = [one["psnr"] for one in results if one["psnr"] is not None]
            parts.append(f"PSNR {statistics.fmean(psnr):.1f} dB" if psnr else "PSNR ∞")
        told[key] = ", ".join(parts)
    return told


@dataclass(frozen=True)
class _Guaranteed:
    """A row of the table of guarantees."""

    protection: str
    bytes_per_image: int | None
    text: str | None
    source: str | None
    neighbours: str | None  # how often a judge of two neighbouring images is right, at most
    whole: str | None  # the same for any two images


def _guarantees(study: Study, records: Sequence[Record]) -> list[_Guaranteed]:
    first: dict[str, dict[str, Any]] = {}
    for record in belonging(study, records, "similarity"):
        if record["cell"]["view"] == "released":
            first.setdefault(record["cell"]["protection"], record["result"])
    rows = []
    for spec in study["protections"]:
        if spec in first:
            proved = first[spec].get("guarantee") or {}
            rows.append(
                _Guaranteed(
                    spec,
                    first[spec].get("bytes_per_image"),
                    proved.get("text"),
                    proved.get("source"),
                    _told_apart(proved.get("definition"), proved.get("value")),
                    _told_apart(proved.get("definition"), proved.get("whole_image")),
                )
            )
    return rows


def _told_apart(definition: str | None, value: float | None) -> str | None:
    """How often the best possible judge, shown one release, says rightly which of two images it is of.

    Both images are equally likely beforehand, so that 50% is a coin. With ε-DP it is at most
    e^ε / (1 + e^ε) (Kairouz, Oh & Viswanath 2015), with μ-GDP at most Φ(μ / 2) (Dong, Roth & Su 2022,
    from the trade-off function). Rounded up: a guarantee may be understated, not overstated.
    """
    if value is None or definition not in ("pure", "gaussian"):
        return None
    normal = statistics.NormalDist()
    share = 1 / (1 + math.exp(-value)) if definition == "pure" else normal.cdf(value / 2)
    return f"{math.ceil(1000 * share - 1e-9) / 10:.1f}%"


def _made(study: Study, records: Sequence[Record]) -> list[tuple[str, list[tuple[str, str]]]]:
    """The settings behind the numbers: groups of (name, value)."""
    data, task = study["data"], study["task"]
    mine = belonging(study, records)
    versions: dict[str, set[str]] = defaultdict(set)
    for each in [study.get("versions") or {}, *(record.get("versions") or {} for record in mine)]:
        for name, version in each.items():
            versions[name].add(str(version))
    spent: dict[str, float] = defaultdict(float)
    for record in mine:
        spent[record["kind"]] += record["seconds"]
    attacks = [record["result"] for record in belonging(study, records, "attack")]
    sizes = [
        (name, ", ".join(f"{size:,}" for size in sorted({one[key] for one in attacks if key in one})))
        for key, name in (
            ("identities", "identities"),
            ("gallery", "gallery in all"),
            ("probes", "probes in all"),
        )
    ]
    usual = ("train", "validation", "test")
    splits = [name for name in usual if name in data["splits"]]
    splits += [name for name in data["splits"] if name not in usual]
    adversary = (study.get("adversary") or {}) if attacks else {}
    groups = [
        (
            "Data",
            [
                ("source", data["source"]),
                ("images", f"{data['images']:,}"),
                ("shape", " × ".join(str(side) for side in data["shape"]) + " (channels, height, width)"),
                ("splits", ", ".join(f"{name} {data['splits'][name]:,}" for name in splits)),
                ("digest", data["digest"]),
            ],
        ),
        (
            "Task",
            [
                ("target label", task["target"]),
                ("secret label", task.get("sensitive") or "none"),
                ("episode", f"{task['way']}-way {task['shot']}-shot, {task['queries']} queries a class"),
                ("test episodes", f"{task['episodes']:,}"),
                ("seeds", ", ".join(str(seed) for seed in study["seeds"])),
            ],
        ),
        ("Training", [(name, _shown(value)) for name, value in (study.get("training") or {}).items()]),
        (
            "Adversaries",
            [(name, _shown(value)) for name, value in adversary.items()]
            + [(name, size) for name, size in sizes if size],
        ),
        ("Versions", [(name, ", ".join(sorted(each))) for name, each in versions.items()]),
        (
            "Computing time",
            [(kind, _duration(seconds)) for kind, seconds in spent.items()]
            + [("together", _duration(sum(spent.values())))],
        ),
    ]
    return [(name, entries) for name, entries in groups if entries]


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _interval(estimate: Estimate) -> str:
    return f"{100 * estimate.low:.1f}–{100 * estimate.high:.1f}"


def _shown(value: Any) -> str:
    """A value of a record or a setting, with all of its digits."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(each)}" for name, each in value.items())
    return str(value)
