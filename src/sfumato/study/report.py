"""The report of a study: one HTML file that needs nothing else, and its tables as CSV.

A pure function of study.json and the records: no clock and no chance, so that the same run gives the same
bytes. Nothing in the page asks a network for anything; it holds its style, its charts and its pictures.
"""

import io
import json
import math
import os
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sfumato.assess.people import Recognised, at_blur, at_noise
from sfumato.dp.guarantee import rounded_up
from sfumato.errors import DataError, needs_extra
from sfumato.files import portable, whole, write_rows
from sfumato.study.recommend import (
    ADAPTIVE,
    ADVERSARIES,
    CLASSIFIERS,
    LEARNERS,
    STATIC,
    VIEWS,
    Estimate,
    Record,
    Risk,
    Setting,
    Study,
    accuracies,
    belonging,
    classifier_in_words,
    clean_learner,
    episodic,
    frontier,
    guessing,
    missing,
    percent,
    recommend,
    risks,
)
from sfumato.study.records import read_json

# What a record of each kind must have: in its cell beside protection and seed, and in its result.
KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "accuracy": (("learner",), ("accuracy",)),
    "attack": (("attack",), ("scores", "chance", "identities")),
    "similarity": (("view",), ("images",)),
    "pictures": ((), ("original", "released", "denoised")),
    "embeddings": (("learner",), ("points", "classes")),
    "transfer": (("learner",), ("trained",)),
}

# The adversaries where there is little room.
_SHORT = {
    "reidentify-static": "static",
    "reidentify-adaptive": "adaptive",
    "reidentify-denoised": "static, on denoised images",
    "reidentify-denoised-adaptive": "adaptive, on denoised images",
    "reidentify-restored": "static, on restored images",
    "reidentify-restored-adaptive": "adaptive, on restored images",
    "reidentify-shape": "adaptive, on the shape alone",
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
        write_rows(text, [self.columns, *self.rows])
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
    study = read_json(directory / "study.json", "give the directory of a study that has been run")
    for key in ("name", "title", "data", "task", "protections", "learners", "seeds", "cells"):
        if key not in study:
            raise DataError(f"{directory / 'study.json'}: {key!r} is missing: run the study again")
    listed = [one["digest"] for one in study["cells"]]
    cure = "delete it and run the study again, which makes this record anew"
    found: dict[str, tuple[Path, Record]] = {}
    for path in sorted((directory / "records").glob("*.json")):
        record = read_json(path, cure)
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
    records = [found[cell][1] for cell in sorted(found)]
    names = _names(study["protections"])
    return _renamed(study, names), [_renamed(record, names) for record in records]


def _names(specs: Sequence[str]) -> dict[str, str]:
    """What a report calls protections: an artefact by its file, where no two are then of one name."""
    short = {spec: portable(spec) for spec in specs}
    return short if len(set(short.values())) == len(short) else {}


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """A part of a study with these texts in the place of others."""
    if isinstance(value, dict):
        return {names.get(key, key): _renamed(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [_renamed(each, names) for each in value]
    return names.get(value, value) if isinstance(value, str) else value


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
    adversaries: list[tuple[str, str, Sequence[str]]] = (
        [
            ("static", "Against static adversaries", STATIC),
            ("adaptive", "Against adaptive adversaries", ADAPTIVE),
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
    attacked = _attacked(study, records)
    tried = [] if attacked is None else attacked.attacks
    pictures, originals = _pictures(study, records)
    return environment.get_template("report.html").render(
        study=study,
        task=study["task"],
        data=study["data"],
        advice=advice,
        apart=apart,
        episodic=episodic(study),
        summary=_summary(study, records),
        absent=missing(study, records),
        cell_count=len(study["cells"]),
        not_shown=_not_shown(study, records),
        settings=frontier(study, records),
        strongest_of={
            name: _strongest_of(study, records, attacks) for name, _, attacks in adversaries if apart
        },
        attacked=attacked,
        tried=tried,
        verified=any("verification_auc" in one["result"] for one in belonging(study, records, "attack")),
        transfer=_transfer(study, records),
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
                *((_SHORT[attack], charts.ATTACK_LOOKS[attack]) for attack in tried),
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
        restored=any(one.restored for one in pictures),
        originals=originals,
        people=_people(study),
        guarantees=_guarantees(study, records),
        promises=_promises(study, records),
        tables=tables(study, records),
        made=_made(study, records),
        svg=svg,
        percent=percent,
        interval=_interval,
        learners=LEARNERS,
        adversaries=_SHORT,
        adaptive=ADAPTIVE,
        classifier_in_words=classifier_in_words,
        similarities=_similarities(study, records),
        recognised="face-similarity" in (study.get("measures") or []),
        shown=_shown,
    )


def tables(study: Study, records: Sequence[Record]) -> list[Table]:
    """The frontier, and all records of accuracy, privacy, attacks, similarity and transfer that are there."""
    return [one for one in _tables(study, records) if one.rows]


def _tables(study: Study, records: Sequence[Record]) -> list[Table]:
    order = {spec: number for number, spec in enumerate(study["protections"])}

    def place(cell: dict[str, Any]) -> int:
        return order[cell["protection"]]

    def table(
        name: str,
        caption: str,
        kind: str,
        which: str,
        keys: Sequence[str],
        parts: Callable[[dict[str, Any]], list[dict[str, Any]]] = lambda result: [result],
        *,
        recent: Sequence[str] = (),
    ) -> Table:
        """`parts` makes the rows of one result; what they hold beside `keys` gets columns after those.

        `recent` are the keys that records of earlier versions lack: they get no column that would be empty.
        """
        them = sorted(belonging(study, records, kind), key=lambda one: place(one["cell"]))
        found = [(one, part) for one in them for part in parts(one["result"])]
        held = {key for _, part in found for key in part}
        keys = [key for key in keys if key not in recent or key in held]
        others = sorted(held.difference(keys))
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

    def measured(result: dict[str, Any]) -> list[dict[str, Any]]:
        return [{key: value for key, value in result.items() if key != "privacy"}]

    def promised(result: dict[str, Any]) -> list[dict[str, Any]]:
        if "privacy" not in result:
            return []
        told = {
            key: "; ".join(value) if key == "not_covered" else value
            for key, value in result["privacy"].items()
        }
        return [told]

    def flat(result: dict[str, Any]) -> list[dict[str, Any]]:
        guarantee = result.get("guarantee") or {}
        proved = {("guarantee" if key == "text" else key): value for key, value in guarantee.items()}
        return [{**{key: value for key, value in result.items() if key != "guarantee"}, **proved}]

    faces = ("face-similarity", "face-similarity_of_two")
    similarity = ("ssim", "psnr", "mse", *faces, "images", "bytes_per_image")
    intervals = []
    if episodic(study):
        intervals.append("half_width is half of its 95% interval over test episodes")
    if set(study["learners"]) & set(CLASSIFIERS):
        intervals.append("low and high bound that of a classifier, over test images")
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
            "; ".join(["Accuracy of every learner", *intervals]),
            "accuracy",
            "learner",
            (
                "accuracy",
                "half_width",
                "episodes",
                "low",
                "high",
                "images",
                "chance",
                "trained_episodes",
                "trained_epochs",
                "train_seconds",
                "operations",
                "precision",
            ),
            measured,
            recent=(
                *("low", "high", "images", "chance", "trained_epochs", "operations", "precision"),
                *(() if episodic(study) else ("half_width", "episodes", "trained_episodes")),
            ),
        ),
        table(
            "privacy",
            "What meta-learned models promise to the images that they were trained on, each model alone",
            "accuracy",
            "learner",
            ("promise", *_PROMISED),
            promised,
            recent=_PROMISED,
        ),
        table(
            "reidentification",
            "Re-identification by every adversary and classifier; low and high bound its 95% interval",
            "attack",
            "attack",
            (
                *("classifier", "top1", "low", "high", "top5", "top10", "chance"),
                *("identities", "gallery", "probes", "faces_found", "verification_auc", "tar_at_far_1e-3"),
            ),
            scores,
            recent=("top5", "top10", "faces_found", "verification_auc", "tar_at_far_1e-3"),
        ),
        table(
            "similarity",
            "Similarity to the original, bytes that leave the device, and what is proved",
            "similarity",
            "view",
            (*similarity, "guarantee", "definition", "value", "whole_image", "source"),
            flat,
            recent=faces,
        ),
        Table(
            "transfer",
            "Accuracy of the model trained for each setting on images protected by another; "
            "half_width is half of its 95% interval over test episodes",
            ("queried", "learner", "seed", "trained", "accuracy", "half_width"),
            tuple(
                (*(one["cell"][key] for key in ("protection", "learner", "seed")), trained, *numbers)
                for one in sorted(belonging(study, records, "transfer"), key=lambda one: place(one["cell"]))
                for trained, numbers in _transferred(one["result"], order)
            ),
        ),
    ]


def _transferred(result: dict[str, Any], order: Mapping[str, int]) -> list[tuple[str, tuple[float, float]]]:
    """(trained for, (accuracy, half of its interval)) of one transfer record, in the order of the study."""
    found = sorted(result["trained"].items(), key=lambda item: (order.get(item[0], len(order)), item[0]))
    return [(spec, (one["accuracy"], one["half_width"])) for spec, one in found]


# What a model that promises something says of it, in the order of the table; see learn.meta.
_PROMISED = (
    "clipping",
    "epsilon",
    "delta",
    "accountant",
    "rdp",
    "gdp_approximation",
    "image_epsilon",
    "unit",
    "not_covered",
)

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
    if record["kind"] == "accuracy":
        known = record["cell"]["learner"] in CLASSIFIERS
        for key in ("low", "high", "images", "chance") if known else ("half_width", "episodes"):
            if key not in record["result"]:
                return f"result has no {key!r}"
    if record["kind"] == "accuracy" and record["cell"]["learner"] == "meta":
        privacy = record["result"].get("privacy")
        if not isinstance(privacy, dict) or not isinstance(privacy.get("promise"), str):
            return "result has no promise under 'privacy'"
        for key in ("clipping", "epsilon", "delta", "unit", "not_covered") if len(privacy) > 1 else ():
            if key not in privacy:
                return f"privacy has no {key!r}"
    if record["kind"] == "transfer":
        trained = record["result"]["trained"]
        if not isinstance(trained, dict) or not trained:
            return "result names no model that was trained"
        for spec, one in trained.items():
            for key in ("accuracy", "half_width"):
                if not isinstance(one, dict) or not isinstance(one.get(key), int | float):
                    return f"the model trained for {spec} has no {key!r}"
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
    examples = ""
    if episodic(study):
        plural = "" if task["shot"] == 1 else "s"
        examples = f", with {task['shot']} example{plural} of each of {task['way']} classes"
    first = (
        f"Images are protected on the device before they leave it, and a service learns to tell "
        f"{task['target']} from what it receives{examples}. This study tries {count} ways to "
        f"protect {data['images']:,} {colour} images of {width} × {height} pixels ({data['source']})"
    )
    first += (
        f", and measures how well the task still works and how often an adversary can still tell {sensitive}."
        if sensitive
        else ", and measures how well the task still works. It names no secret: no adversary was tried."
    )
    paragraphs = [first]
    clean = accuracies(study, records).get(("none", clean_learner(study)))
    clear = risks(study, records).get(("none", "reidentify-static"))
    if clean:
        told = (
            f"Without protection the classifier is right in {percent(clean.value)} of cases "
            f"(guessing: {percent(guessing(study, records) or 0)})"
        )
        if clear:
            told += (
                f", and the adversary names the right {sensitive} for {percent(clear.top1.value)} of the "
                f"images (guessing: {percent(clear.chance)})"
            )
        paragraphs.append(told + ".")
    return paragraphs


def _strongest_of(
    study: Study, records: Sequence[Record], attacks: Sequence[str]
) -> dict[str, Estimate | None]:
    """Protection -> the strongest of these attacks on it; None where none of them ran."""
    found = risks(study, records)
    tops = {
        spec: [found[spec, attack].top1 for attack in attacks if (spec, attack) in found]
        for spec in study["protections"]
    }
    return {spec: max(each, key=lambda top: top.value, default=None) for spec, each in tops.items()}


@dataclass(frozen=True)
class _Attacked:
    """The table of re-identification: a row a protection, a column an attack that ran.

    Attributes:
        views: what is looked at -> the attacks on it that ran, in the order of VIEWS.
        detected: those views for which it is recorded whether a detector found the faces.
        risks: (protection, attack) -> its risk.
        strongest: (protection, attack) of the strongest of each row; all of them where several are equal.
        faces: (protection, view) -> the share of photographs on which the detector found a face.
        chance: how often pure guessing is right, in words.
    """

    views: dict[str, list[str]]
    detected: set[str]
    risks: dict[tuple[str, str], Risk]
    strongest: set[tuple[str, str]]
    faces: dict[tuple[str, str], float]
    chance: str

    @property
    def attacks(self) -> list[str]:
        """The attacks that ran, view by view."""
        return [attack for attacks in self.views.values() for attack in attacks]


def _attacked(study: Study, records: Sequence[Record]) -> _Attacked | None:
    """The table of re-identification; None where no attack is recorded."""
    found = risks(study, records)
    if not found:
        return None
    shares: dict[tuple[str, str], list[float]] = defaultdict(list)
    for record in belonging(study, records, "attack"):
        share = record["result"].get("faces_found")
        if share is not None:
            view = next(name for name, attacks in VIEWS.items() if record["cell"]["attack"] in attacks)
            shares[record["cell"]["protection"], view].append(share)
    tried = {attack for _, attack in found}
    views = {view: [attack for attack in attacks if attack in tried] for view, attacks in VIEWS.items()}
    tops: dict[str, float] = defaultdict(float)
    for (spec, _), risk in found.items():
        tops[spec] = max(tops[spec], risk.top1.value)
    return _Attacked(
        views={view: attacks for view, attacks in views.items() if attacks},
        detected={view for _, view in shares},
        risks=found,
        strongest={key for key, risk in found.items() if risk.top1.value == tops[key[0]]},
        faces={key: statistics.fmean(values) for key, values in shares.items()},
        chance=" to ".join(sorted({percent(risk.chance) for risk in found.values()})),
    )


@dataclass(frozen=True)
class _Transfer:
    """What models make of images that were protected in another way than those they were trained for.

    Attributes:
        learner: whose models.
        trained, queried: the settings with a row, and those with a column, in the order of the study.
        accuracy: (trained for, queried with) -> accuracy, a mean over seeds.
        best: (trained for, queried with) of the best model of each column; all where several are equal.
        tints: the background of each cell, from white at the lowest accuracy to the accent's at the highest.
        told: what the table shows, a sentence an entry.
    """

    learner: str
    trained: list[str]
    queried: list[str]
    accuracy: dict[tuple[str, str], float]
    best: set[tuple[str, str]]
    tints: dict[tuple[str, str], str]
    told: list[str]


def _transfer(study: Study, records: Sequence[Record]) -> _Transfer | None:
    """The transfer matrix; None without such records."""
    them = belonging(study, records, "transfer")
    if not them:
        return None
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for record in them:
        for spec, one in record["result"]["trained"].items():
            found[spec, record["cell"]["protection"]].append(one["accuracy"])
    accuracy = {key: statistics.fmean(values) for key, values in found.items()}
    queried = [spec for spec in study["protections"] if any(spec == asked for _, asked in accuracy)]
    trained = [spec for spec in study["protections"] if any(spec == one for one, _ in accuracy)]
    columns = {
        asked: [accuracy[one, asked] for one in trained if (one, asked) in accuracy] for asked in queried
    }
    low, high = min(accuracy.values()), max(accuracy.values())
    return _Transfer(
        learner=them[0]["cell"]["learner"],
        trained=trained,
        queried=queried,
        accuracy=accuracy,
        best={key for key, value in accuracy.items() if value == max(columns[key[1]])},
        tints={key: _tint((value - low) / (high - low or 1)) for key, value in accuracy.items()},
        told=_transfer_in_words(accuracy, queried, columns),
    )


def _transfer_in_words(
    accuracy: Mapping[tuple[str, str], float], queried: Sequence[str], columns: Mapping[str, Sequence[float]]
) -> list[str]:
    own = [spec for spec in queried if (spec, spec) in accuracy]
    lost = {
        (one, asked): accuracy[asked, asked] - value
        for (one, asked), value in accuracy.items()
        if asked in own and one != asked
    }
    told = []
    if own:
        best = sum(accuracy[spec, spec] == max(columns[spec]) for spec in own)
        told.append(f"For {best} of {len(own)} settings the model trained for that very setting is the best.")
    if lost:
        told.append(
            "Where images are protected in another way than the model was trained for, accuracy is "
            f"{_points(statistics.fmean(lost.values()))} on average"
        )
        (worst, asked), most = max(lost.items(), key=lambda item: item[1])
        if most > 0:
            told[-1] += f", and {_points(most)} at worst (trained for {worst}, queried with {asked})"
        told[-1] += "."
    clean = [loss for (one, _), loss in lost.items() if one == "none"]
    if clean:
        told.append(
            f"For the model trained on clean images it is {_points(statistics.fmean(clean))} on average."
        )
    return told


def _points(loss: float) -> str:
    """0.123 -> "12.3 points lower", of a hundred."""
    return f"{abs(100 * loss):.1f} points {'lower' if loss >= 0 else 'higher'}"


def _tint(share: float) -> str:
    """From white at 0 to a teal at 1 on which the page's ink has a contrast of more than 8 to 1."""
    light, full = (255, 255, 255), (143, 200, 208)
    levels = (round(a + (b - a) * share) for a, b in zip(light, full, strict=True))
    return "#{:02x}{:02x}{:02x}".format(*levels)


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


@dataclass(frozen=True)
class _Shown:
    """A row of the grid of pictures, each a data: URI."""

    protection: str
    originals: list[int]  # numbers among all originals
    released: list[str]
    denoised: list[str] | None
    restored: list[str] | None


def _pictures(study: Study, records: Sequence[Record]) -> tuple[list[_Shown], list[str]]:
    """The rows, and the different originals."""
    first: dict[str, Record] = {}
    for record in belonging(study, records, "pictures"):
        first.setdefault(record["cell"]["protection"], record)
    numbers: dict[str, int] = {}
    rows = []
    for spec in study["protections"]:
        if spec in first:
            result = first[spec]["result"]
            originals = [numbers.setdefault(one, len(numbers)) for one in result["original"]]
            views = (result["released"], result["denoised"], result.get("restored"))
            rows.append(_Shown(spec, originals, *views))
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
        if all("face-similarity" in one for one in results):
            mean = statistics.fmean(one["face-similarity"] for one in results)
            parts.append(f"face similarity {mean:.2f}")
            two = [one["face-similarity_of_two"] for one in results]
            if None not in two:
                parts[-1] += f" (of two people {statistics.fmean(two):.2f})"
        told[key] = ", ".join(parts)
    return told


def _people(study: Study) -> list[tuple[str, Recognised]]:
    """(protection, what people recognised at a comparable setting), of those that people were asked about."""
    width = study["data"]["shape"][2]
    found = []
    for spec in study["protections"]:
        name, _, value = spec.partition("=")
        if name == "blur:radius":
            found.append((spec, at_blur(float(value), side=width)))
        elif name == "gaussian:sigma":
            found.append((spec, at_noise(float(value))))
    return found


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


@dataclass(frozen=True)
class _Promised:
    """A row of the table of training: what one meta-learned model promises. Bounds are rounded up.

    Attributes:
        epsilon: by PLD, the bound; None where nothing is promised, and then `if_public` is what it would be
            if the norm that the policy clips to were public.
        image: ε of an image whose copies or tasks overlap; None where an image is in one task only.
        rdp, gdp: by the other accountants; that of GDP is an approximation and not rounded up.
        accuracy: of this model, with its own interval.
    """

    protection: str
    seed: int
    policy: str
    epsilon: str | None
    if_public: str | None
    image: str | None
    rdp: str
    gdp: str
    delta: str
    accuracy: Estimate


@dataclass(frozen=True)
class _Promises:
    """What is promised to the images that the meta-learned models were trained on.

    Attributes:
        groups: (the unit, what is not covered, the rows of both), in the order of the study; none where the
            models promise nothing.
        overlapping: whether an image is in several tasks, and so has an ε of its own.
        together: ε and δ of all models of one seed, which are trained on one pool, by basic composition;
            None where there is one model, or one that promises nothing.
    """

    groups: list[tuple[str, list[str], list[_Promised]]]
    overlapping: bool
    together: tuple[str, str] | None


def _promises(study: Study, records: Sequence[Record]) -> _Promises | None:
    """The privacy of training; None without meta-learned models."""
    order = {spec: number for number, spec in enumerate(study["protections"])}
    them = [one for one in belonging(study, records, "accuracy") if "privacy" in one["result"]]
    if not them:
        return None
    groups: dict[tuple[str, tuple[str, ...]], list[_Promised]] = defaultdict(list)
    spent: dict[int, list[tuple[float | None, float]]] = defaultdict(list)
    for record in sorted(them, key=lambda one: order[one["cell"]["protection"]]):
        promised = record["result"]["privacy"]
        if "unit" in promised:
            key = (promised["unit"], tuple(promised["not_covered"]))
            groups[key].append(_promised(record["cell"], record["result"]))
            spent[record["cell"]["seed"]].append((promised["epsilon"], promised["delta"]))
    sums = [
        (sum(epsilon for epsilon, _ in each if epsilon is not None), sum(delta for _, delta in each))
        for each in spent.values()
    ]
    several = any(len(each) > 1 for each in spent.values())
    known = all(epsilon is not None for each in spent.values() for epsilon, _ in each)
    together = None
    if several and known:
        epsilon, delta = (rounded_up(max(values)) for values in zip(*sums, strict=True))
        together = (epsilon, delta)
    return _Promises(
        groups=[(unit, list(not_covered), rows) for (unit, not_covered), rows in groups.items()],
        overlapping=any(one.image for rows in groups.values() for one in rows),
        together=together,
    )


def _promised(cell: dict[str, Any], result: dict[str, Any]) -> _Promised:
    promised, value, half_width = result["privacy"], result["accuracy"], result["half_width"]
    image, gdp = promised.get("image_epsilon"), promised.get("gdp_approximation")
    if_public = promised.get("epsilon_if_the_norm_were_public")
    return _Promised(
        protection=cell["protection"],
        seed=cell["seed"],
        policy=promised["clipping"],
        epsilon=_bound(promised["epsilon"]),
        if_public=_bound(if_public),
        image=("no bound" if image is None else rounded_up(image)) if "image_epsilon" in promised else None,
        rdp=_bound(promised.get("rdp")) or "–",
        gdp="–" if gdp is None else f"{gdp:.3g}",
        delta=rounded_up(promised["delta"]),
        accuracy=Estimate(value, max(0.0, value - half_width), min(1.0, value + half_width), 1),
    )


def _bound(value: float | None) -> str | None:
    return None if value is None else rounded_up(value)


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
    other_shots = (task.get("other_shots") or []) if episodic(study) else []
    episode = f"{task['way']}-way {task['shot']}-shot, {task['queries']} queries a class"
    training = (study.get("training") or {}) if episodic(study) else {}
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
                *([("episode", episode)] if episodic(study) else []),
                *([("other shots", ", ".join(map(str, other_shots)))] if other_shots else []),
                *([("classes", ", ".join(task["classes"]))] if task.get("classes") else []),
                *([("test episodes", f"{task['episodes']:,}")] if episodic(study) else []),
                ("seeds", ", ".join(str(seed) for seed in study["seeds"])),
            ],
        ),
        ("Training", [(name, _shown(value)) for name, value in training.items()]),
        ("Meta-learning", [(name, _shown(value)) for name, value in (study.get("meta") or {}).items()]),
        ("Classifiers", [(name, _shown(value)) for name, value in (study.get("classifier") or {}).items()]),
        (
            "Adversaries",
            [(name, _shown(value)) for name, value in adversary.items()]
            + [(name, size) for name, size in sizes if size],
        ),
        ("Multiply-adds of a query", _operations(study, records)),
        ("Versions", [(name, ", ".join(sorted(each))) for name, each in versions.items()]),
        (
            "Computing time",
            [(kind, _duration(seconds)) for kind, seconds in spent.items()]
            + [("together", _duration(sum(spent.values())))],
        ),
    ]
    return [(name, entries) for name, entries in groups if entries]


def _operations(study: Study, records: Sequence[Record]) -> list[tuple[str, str]]:
    """(learner, "31.2 million"), from the least to the most over its settings; only of those recorded."""
    found: dict[str, list[int]] = defaultdict(list)
    for record in belonging(study, records, "accuracy"):
        if record["result"].get("operations") is not None:
            found[record["cell"]["learner"]].append(record["result"]["operations"])
    return [
        (name, " to ".join(dict.fromkeys(_millions(each(found[name])) for each in (min, max))))
        for name in study["learners"]
        if name in found
    ]


def _millions(count: int) -> str:
    """31_234_567 -> "31.2 million"."""
    return f"{count / 1e6:,.1f} million" if count >= 1e5 else f"{count:,}"


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
