"""The board: protections side by side, each measured by one study file with fixed settings; see board.yaml.

A row is a packed run of that file (`sfumato study rows`), which others can send. Its marks are the reasons
why its figures do not count.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sfumato.assess.hits import Means
from sfumato.base.files import whole, write_rows
from sfumato.errors import ConfigError, DataError
from sfumato.protect.spec import PROTECTIONS
from sfumato.study.choose.figures import Estimate, Risk, Setting, cell_name, estimate_of, percent
from sfumato.study.choose.results import Results, load
from sfumato.study.grid import StudyConfig
from sfumato.study.measure.results import Checks

CONTROL = "none"  # an image as it is, which all adversaries see
RELEASES = (1, 10, 100)
_NAMED = 0.5  # of the people on unprotected images, from one release, at least
_EQUAL = 0.05  # how far the control of a row may be from that of the first
_LEARNING = ("reidentify-adaptive", "reidentify-values")
_DEPENDS = 0.02  # of the images at most, since networks round
_NEEDED = {"checks", "many", "tells", "proved"}  # kinds of measurements, for a row


@dataclass(frozen=True)
class Row:
    """One protection, measured."""

    protection: str
    tasks: Mapping[str, Estimate]  # label -> how often it is recognised from releases; see `Run.tasks_of`
    named: Mapping[int, Estimate]  # number of releases -> how often people are named
    had: Means  # what the adversary had, for one release
    bits: Estimate | None  # of identity, of one release
    surest: Estimate | None  # how many of the surest hundredth of namings from one release are right
    strongest: Risk | None  # the adversary with the most names from one release, among all test people
    proof: str  # in words; "" if nothing is proved
    bytes: int  # of an image
    milliseconds: float  # for an image
    seconds: float  # of all its measurements; other programs lengthen them
    processor_seconds: float
    marks: tuple[str, ...]  # the reasons why its figures do not count

    @property
    def top1(self) -> float:
        """How often the strongest adversary names people; 0 if nobody tried."""
        return self.strongest.top1.value if self.strongest else 0.0

    def as_json(self) -> dict[str, Any]:
        """The row, fit for JSON."""
        strongest = self.strongest and {"adversary": self.strongest.adversary, **asdict(self.strongest.top1)}
        return {**asdict(replace(self, strongest=None)), "strongest": strongest}


@dataclass(frozen=True)
class Run:
    """A run of a board, or the file of rows that it was packed into."""

    path: Path
    results: Results

    @property
    def digests(self) -> dict[str, str]:
        """Each measurement of the control -> the digest of all settings and data that decide it."""
        made = (cell for cell in self.results.study["cells"] if cell["cell"]["protection"] == CONTROL)
        return {cell_name(cell): cell["digest"] for cell in made}

    @property
    def control(self) -> Estimate | None:
        """How often people are named from one unprotected image; None if nobody tried."""
        curve = self.results.curves.get(CONTROL)
        point = curve.after(1) if curve else None
        return point.named if point else None

    def rows(self, first: "Run") -> Iterator[Row]:
        """A row for each protection; `first` is the run that others must be like."""
        of_all, every = tuple(self._mark_all(first)), self.results
        settings = {setting.protection: setting for setting in every.settings}
        for spec, curve in every.curves.items():
            own = [record for record in every.records if record.cell.protection == spec]
            results = {record.kind: record.result for record in own}
            if not results.keys() >= _NEEDED:
                continue
            checks, proof = results["checks"], every.proofs[spec]
            few = f"one of {proof.outputs:,} outputs" if proof.outputs else ""
            points = {count: curve.after(count) for count in RELEASES}
            marks = [*of_all, *(f"not measured: {name}" for name in every.missing if f" {spec} " in name)]
            yield Row(
                protection=spec,
                tasks=self.tasks_of(spec, results["tells"]),
                named={count: point.named for count, point in points.items() if point is not None},
                had=curve.points[0].had,
                bits=curve.points[0].bits,
                surest=curve.points[0].surest,
                strongest=settings[spec].risk,
                proof=proof.guarantee.text if proof.guarantee else few,
                bytes=checks.bytes_most,
                milliseconds=checks.milliseconds,
                seconds=sum(record.seconds for record in own),
                processor_seconds=sum(record.processor_seconds or record.seconds for record in own),
                marks=tuple(marks if spec == CONTROL else [*marks, *self._mark(settings[spec], checks)]),
            )

    def tasks_of(self, spec: str, tells: Any) -> dict[str, Estimate]:
        """How well labels are recognised: the target by its learner, others, not the secret, from values."""
        target, sensitive = (self.results.study["task"][key] for key in ("target", "sensitive"))
        learned = [made for (of, _), made in self.results.accuracies.items() if of == spec]
        best = {target: max(learned, key=lambda made: made.value)} if learned else {}
        return best | {
            name: estimate_of(made.counted)
            for name, made in tells.labels.items()
            if name not in (target, sensitive)
        }

    def _mark_all(self, first: "Run") -> Iterator[str]:
        others = [name for name, digest in first.digests.items() if self.digests.get(name) != digest]
        if others:
            more = f" and {len(others) - 1} more measurements" if others[1:] else ""
            yield f"other settings, data or version than {first.path.name}: {others[0]}{more}"
        control, same = self.control, first.control
        if control is None:
            yield "no adversary is tried on unprotected images"
            return
        if control.value < _NAMED:
            yield (
                f"weak adversaries: on unprotected images they name {percent(control.value)} from one "
                f"release, and at least {percent(_NAMED)} are needed"
            )
        if same is not None and abs(same.value - control.value) > _EQUAL:
            yield (
                f"adversaries name {percent(control.value)} on unprotected images, and "
                f"{percent(same.value)} in {first.path.name}"
            )

    def _mark(self, setting: Setting, checks: Checks) -> Iterator[str]:
        risks = {risk.attack: risk for risk in setting.risks}
        made = [risks[name] for name in _LEARNING if name in risks]
        learning = max(made, key=lambda each: each.top1.value, default=None)
        if learning is None:
            yield "no adversary learned from its releases"
        for name, words in {
            "reidentify-static": "knows clean photographs only",
            "reidentify-sorted": "ignores the order of the values",
        }.items():
            risk = risks.get(name)
            if risk is None or learning is None or risk.top1.low <= risk.chance:
                continue
            if risk.strongest.is_above(learning.strongest):
                yield (
                    f"masked: an adversary who {words} names {percent(risk.top1.value)}, and those who "
                    f"learn from releases {percent(learning.top1.value)}: its format keeps them from learning"
                )
        if checks.unchanged:
            yield f"{percent(checks.unchanged)} of the releases are the original image"
        if not checks.repeats:
            yield "releases differ by more than the given noise: nobody can repeat the figures"
        if checks.depends > _DEPENDS:
            yield f"{percent(checks.depends)} of the releases depend on other images of the batch"
        if checks.own_type:
            yield "a release of its own type: the bytes that travel may not be what adversaries read"
        if checks.bytes_most != checks.bytes_declared:
            yield f"a release of {checks.bytes_most:,} bytes, and {checks.bytes_declared:,} are declared"
        if checks.bytes_most > checks.bytes_of_image + -(-checks.bytes_of_image // 8):
            yield f"a release of {checks.bytes_most:,} bytes, and the image has {checks.bytes_of_image:,}"


def join(paths: Sequence[Path]) -> list[Row]:
    """The rows of several runs of a board, by how rarely ten releases name; the control comes last.

    A protection that several runs measure soundly has the row of the strongest adversary.
    """
    runs = [Run(path, load(path)) for path in paths]
    for run in runs:
        if not run.results.study.get("board"):
            raise DataError(
                f"{run.path}: a run of the study {run.results.study['name']!r}, which is no board: run "
                "`sfumato study run board --protection SPEC`"
            )
    rows: dict[tuple[str, tuple[str, ...]], Row] = {}
    for run in runs:
        for row in run.rows(runs[0]):
            key = row.protection, row.marks
            if key not in rows or rows[key].top1 < row.top1:
                rows[key] = row

    def order(row: Row) -> tuple[bool, list[float]]:
        return row.protection == CONTROL, [row.named[count].value for count in (10, 1) if count in row.named]

    return sorted(rows.values(), key=order)


def compare(config: StudyConfig, protections: Iterable[str]) -> StudyConfig:
    """The study with further protections: specs, registered names, or folders of protected images."""
    specs = [
        of_folder(Path(each), config) if each not in PROTECTIONS and Path(each).is_dir() else each
        for each in protections
    ]
    changed = replace(config, protections=[*config.protections, *specs])
    changed.specs  # noqa: B018 - every spec is checked
    return changed


def of_folder(folder: Path, config: StudyConfig) -> str:
    """The spec of a folder of images that another tool made of those of a study.

    `sfumato data write board COPY` writes these; a tool's file for COPY/images/000001.png is
    FOLDER/000001.png, or of any other suffix, in any sub-folder. An index is written there, if there is none.
    """
    from sfumato.data.readers.table import names_of
    from sfumato.images import digest
    from sfumato.study.run import prepare

    index = folder / f"{folder.absolute().name}.csv"
    spec = f"outside:index={index}"
    if index.exists():
        return spec
    data = prepare(config).data[0]
    files = {path.stem: path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    names = [name.rpartition("/")[2] for name in names_of(data)]
    if missing := [name for name in names if name not in files]:
        raise ConfigError(
            f"{folder}: {len(missing):,} of {len(names):,} images are missing, the first {missing[0]}: "
            f"protect all of those that `sfumato data write {config.name} COPY` writes, under their names"
        )
    rows = ([files[name], digest(image).hex()] for name, image in zip(names, data.images, strict=True))
    with whole(index) as temporary, temporary.open("w", newline="", encoding="utf-8") as opened:
        write_rows(opened, [["file", "digest"], *rows])
    return spec
