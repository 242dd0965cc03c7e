"""The tables of a report, number for number: a CSV file and an HTML table have the same cells."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from sfumato.base.files import write_rows
from sfumato.study.choose.estimates import Study, belonging, episodic
from sfumato.study.choose.frontier import Setting, frontier
from sfumato.study.hits import Hits, hits_of
from sfumato.study.records import Record
from sfumato.study.vocabulary import classifiers

Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A table of records: the CSV file and the HTML table have the same cells."""

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


def join_tables(tables: Sequence[Table], varied: Sequence[dict[str, Any]]) -> Table:
    """One table of those of each combination of values, which are its first columns."""
    columns = tuple(dict.fromkeys(column for table in tables for column in table.columns))
    rows = tuple(
        (*values.values(), *(cells.get(column) for column in columns))
        for table, values in zip(tables, varied, strict=True)
        for cells in (dict(zip(table.columns, row, strict=True)) for row in table.rows)
    )
    return Table(tables[0].name, tables[0].caption, (*varied[0], *columns), rows)


def tables(study: Study, records: Sequence[Record]) -> list[Table]:
    """The frontier, and the records of every kind but pictures and embeddings, if there are any."""
    return [table for table in all_tables(study, records) if table.rows]


def all_tables(study: Study, records: Sequence[Record]) -> list[Table]:
    """Those without rows as well."""
    return [
        _frontier(study, records),
        *(_of(study, records, source) for source in _sources(study)),
        _transfer(study, records),
    ]


@dataclass(frozen=True)
class _Source:
    """How the records of one kind become a table.

    Attributes:
        name, caption: of the table.
        kind: of the records.
        which: the keys that distinguish their cells, besides protection and seed.
        columns: of their rows, in this order; columns for other keys follow.
        parts: makes the rows of one result.
        recent: columns that records of earlier versions lack: they are left out if empty.
    """

    name: str
    caption: str
    kind: str
    which: tuple[str, ...]
    columns: tuple[str, ...]
    parts: Callable[[Any], list[Row]]
    recent: tuple[str, ...] = ()


def _of(study: Study, records: Sequence[Record], source: _Source) -> Table:
    rows = [
        (record, part)
        for record in _in_order(study, records, source.kind)
        for part in source.parts(record.result)
    ]
    held = {key for _, part in rows for key in part}
    columns = [key for key in source.columns if key not in source.recent or key in held]
    columns += sorted(held.difference(columns))
    return Table(
        source.name,
        source.caption,
        ("protection", *source.which, "seed", *columns, "seconds"),
        tuple(
            (
                *(getattr(record.cell, key) for key in ("protection", *source.which, "seed")),
                *(part.get(key) for key in columns),
                record.seconds,
            )
            for record, part in rows
        ),
    )


def _in_order(study: Study, records: Sequence[Record], kind: str) -> list[Record]:
    """The records of one kind, by protections in the order of the study."""
    order = {spec: number for number, spec in enumerate(study["protections"])}
    return sorted(belonging(study, records, kind), key=lambda record: order[record.cell.protection])


def _sources(study: Study) -> list[_Source]:
    others = [_LOG_RANK, _STORED, _SIMILARITY, _RECONSTRUCTION, _TELLS, _PROVED]
    return [_accuracy(study), _PRIVACY, _ATTACKS, _MANY, *others]


def _dump(result: Any) -> Row:
    """The content of a record, without defaults of this version."""
    said: Row = result.model_dump(exclude_unset=True)
    return said


def _accuracy(study: Study) -> _Source:
    intervals = []
    if episodic(study):
        intervals.append("half_width is half of its 95% interval over test episodes")
    if set(study["learners"]) & set(classifiers()):
        intervals.append("low and high bound that of a classifier, over test images")
    over_episodes, trained = ("half_width", "episodes"), ("trained_episodes", "trained_epochs")
    over_images = ("low", "high", "images", "chance")
    return _Source(
        "accuracy",
        "; ".join(["Accuracy of every learner", *intervals]),
        "accuracy",
        ("learner",),
        ("accuracy", *over_episodes, *over_images, *trained, "train_seconds", "operations", "precision"),
        lambda result: [{key: value for key, value in _dump(result).items() if key != "privacy"}],
        recent=(
            *(*over_images, "trained_epochs", "operations", "precision"),
            *(() if episodic(study) else (*over_episodes, "trained_episodes")),
        ),
    )


def _promise_rows(result: Any) -> list[Row]:
    if result.privacy is None:
        return []
    promise = _dump(result.privacy)
    if "not_covered" in promise:
        promise["not_covered"] = "; ".join(promise["not_covered"])
    return [promise]


# The figures of a model that promises something; see learn.meta.
_PROMISES = (
    *("clipping", "epsilon", "delta", "accountant", "rdp", "gdp_approximation"),
    *("image_epsilon", "unit", "not_covered"),
)
_PRIVACY = _Source(
    "privacy",
    "What meta-learned models promise to the images that they were trained on, each model alone",
    "accuracy",
    ("learner",),
    ("promise", *_PROMISES),
    _promise_rows,
    recent=_PROMISES,
)


def _scores(result: Any) -> list[Row]:
    shared, counted = _dump(result), hits_of([result])
    rows = [{**score, **shared} for score in shared.pop("scores")]
    return [_over_people(row, counted[row["classifier"]]) for row in rows]


def _over_people(row: Row, counted: Hits) -> Row:
    """The row with its interval over people, who are not listed."""
    low, high = counted.interval
    kept = {key: part for key, part in row.items() if not isinstance(part, tuple)}
    return {**kept, "low": low, "high": high}


_ATTACKS = _Source(
    "reidentification",
    "Re-identification by every adversary and classifier; low and high bound its 95% interval, over people",
    "attack",
    ("attack",),
    (
        *("classifier", "top1", "low", "high", "top5", "top10", "chance"),
        *("identities", "gallery", "probes", "faces_found"),
        *("verification_auc", "tar_at_far_1e-2", "tar_at_far_1e-3"),
    ),
    _scores,
    recent=(
        *("top5", "top10", "faces_found"),
        *("verification_auc", "tar_at_far_1e-2", "tar_at_far_1e-3"),
    ),
)


def _of_many(result: Any) -> list[Row]:
    return [
        {
            "releases": point.releases,
            "adversary": name,
            "named": share,
            "guessing": 1 / result.panel,
            "people": len(point.named),
            "chosen": point.chosen.count(name),
        }
        for point in result.points
        for name, share in point.by_adversary.items()
    ]


_MANY = _Source(
    "many",
    "How often people are named from many releases of them, by every adversary; chosen by how many halves of "
    "the people",
    "many",
    (),
    ("releases", "adversary", "named", "guessing", "people", "chosen"),
    _of_many,
)
_LOG_RANK = _Source(
    "log-rank",
    "Log-rank privacy against the strongest of three adversaries; low and high bound its 95% interval",
    "log-rank",
    (),
    ("lrp", "low", "high", "guessing", "strongest", "features", "identities", "accuracy", "images", "chance"),
    lambda result: [_dump(result)],
)
_STORED = _Source(
    "stored",
    "Re-identification by stored embeddings; low and high bound its 95% interval",
    "stored",
    ("learner",),
    ("classifier", "top1", "low", "high", "chance", "identities", "embeddings"),
    _scores,
)


def _similarities(result: Any) -> list[Row]:
    return [_with_guarantee(_dump(result))]


def _with_guarantee(row: Row) -> Row:
    """The guarantee among the others, its text under its name."""
    guarantee = row.pop("guarantee", None) or {}
    return {**row, **{("guarantee" if key == "text" else key): value for key, value in guarantee.items()}}


_GUARANTEE = ("guarantee", "definition", "value", "whole_image", "source")
_FACES = ("face-similarity", "face-similarity_of_two")
_SIMILARITY = _Source(
    "similarity",
    "Similarity to the original, bytes that leave the device, and what is proved",
    "similarity",
    ("view",),
    ("ssim", "psnr", "mse", *_FACES, "images", "bytes_per_image", *_GUARANTEE),
    _similarities,
    recent=_FACES,
)
_RECONSTRUCTION = _Source(
    "reconstruction",
    "Similarity of what adversaries rebuild to the original",
    "reconstruction",
    ("attack",),
    ("images",),
    lambda result: [{"images": result.images, **result.measures}],
)
_TELLS = _Source(
    "tells",
    "Every label of the data set, as a release tells it; low and high bound its 95% interval, over people",
    "tells",
    (),
    ("label", "accuracy", "low", "high", "guessing", "classes", "images", "adversary"),
    lambda result: [
        _over_people({"label": name, **_dump(label)}, label.counted) for name, label in result.labels.items()
    ],
)


def _proofs(result: Any) -> list[Row]:
    row = _with_guarantee(_dump(result))
    namings = row.pop("naming", ())
    return [{**row, **{f"naming_of_{naming['candidates']}": naming["at_most"] for naming in namings}}]


_PROVED = _Source(
    "proved",
    "What leaves the device, and what is proved: the chance to name one among that many people is at most",
    "proved",
    (),
    ("release", "bytes_per_image", "outputs", *_GUARANTEE),
    _proofs,
)


def _transfer(study: Study, records: Sequence[Record]) -> Table:
    order = {spec: number for number, spec in enumerate(study["protections"])}
    rows = []
    for record in _in_order(study, records, "transfer"):
        models = record.result.trained
        for spec in sorted(models, key=lambda spec: (order.get(spec, len(order)), spec)):
            cell, model = record.cell, models[spec]
            rows.append((cell.protection, cell.learner, cell.seed, spec, model.accuracy, model.half_width))
    return Table(
        "transfer",
        "Accuracy of the model trained for each setting on images protected by another; "
        "half_width is half of its 95% interval over test episodes",
        ("queried", "learner", "seed", "trained", "accuracy", "half_width"),
        tuple(rows),
    )


def _frontier(study: Study, records: Sequence[Record]) -> Table:
    return Table(
        "frontier",
        "Every setting with its best learner"
        + (" and its strongest adversary" if study["task"].get("sensitive") else ""),
        (
            *("protection", "learner", "accuracy", "accuracy_low", "accuracy_high", "attack", "classifier"),
            *("reidentification", "reidentification_low", "reidentification_high", "chance"),
            *("complete", "on_frontier"),
        ),
        tuple(_frontier_row(setting) for setting in frontier(study, records)),
    )


def _frontier_row(setting: Setting) -> tuple[Any, ...]:
    accuracy, risk = setting.accuracy, setting.risk
    return (
        setting.protection,
        setting.learner,
        *((accuracy.value, accuracy.low, accuracy.high) if accuracy else (None, None, None)),
        *((risk.attack, risk.classifier) if risk else (None, None)),
        *((risk.top1.value, risk.top1.low, risk.top1.high, risk.chance) if risk else (None,) * 4),
        setting.complete,
        setting.on_frontier,
    )
