"""Studies of the engine, `sfumato study run`: all that the pages know of its study.json and its records."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from results_page.reading import RESULTS, ROOT
from sfumato.dp.guarantee import SYMBOLS, round_up
from sfumato.study import records, report
from sfumato.study.choose.figures import Curve, Estimate, Risk, Setting
from sfumato.study.choose.recommend import Recommendation
from sfumato.study.choose.results import Results

# What `sfumato study run` runs: a study that is added has its records collected, too.
STUDIES = (*sorted(path.stem for path in (ROOT / "studies").glob("*.yaml") if path.stem != "example"), "demo")
DRAWN = ("pictures", "embeddings", "examples")  # large, and for the report alone: their rows may be left out
RISES = 0.005  # of validation accuracy, from which on it is said to rise


def rises(curve: Sequence[float]) -> bool | None:
    """Whether validation still rose when training ended: in the mean, over the last quarter of its epochs.

    By more than half a point, against the quarter before. None where the curve was not kept, or is of few epochs.
    """
    quarter = len(curve) // 4
    if not quarter:
        return None
    before, last = curve[-2 * quarter : -quarter], curve[-quarter:]
    return sum(last) / quarter - sum(before) / quarter > RISES


Accuracy = Any  # the result of a cell of that kind; `half_width` is that of the 95% interval over episodes


def rising(trained: Iterable[Accuracy]) -> tuple[int, int]:
    """How many trainings ended while validation still rose, and of how many the curve was kept.

    A model that is tested under several protections, as that of clean images is, has one curve, and counts once.
    """
    known = {each.curve: rises(each.curve) for each in trained}
    found = [of for of in known.values() if of is not None]
    return sum(found), len(found)


def apart(higher: Accuracy, lower: Accuracy) -> float:
    """How far the interval of one accuracy is above that of another; negative where they overlap."""
    return higher.accuracy - higher.half_width - lower.accuracy - lower.half_width


BySeed = dict[int, Accuracy]


def shared(ours: BySeed, theirs: BySeed) -> list[tuple[Accuracy, Accuracy]]:
    """The accuracies of each seed that both have."""
    return [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]


def in_short(guarantee: Any) -> str:
    """What is proved of one pixel, and of the whole image."""
    return f"{SYMBOLS[guarantee.definition]} = {round_up(guarantee.value)}; {round_up(guarantee.whole_image)}"


@dataclass(frozen=True)
class Study:
    """A study and its records.

    Attributes:
        name: of its file under studies/results, without .jsonl, or of the folder of its run.
    """

    name: str
    file: dict[str, Any]
    records: list[records.Record]

    @cached_property
    def results(self) -> Results:
        """Its figures."""
        return Results(self.file, self.records)

    @property
    def title(self) -> str:
        """Of its chapter, with the seeds that are measured if there are fewer than the study says."""
        listed, measured = self.file.get("seeds", []), {record.cell.seed for record in self.records}
        title = str(self.file.get("title") or self.file["name"])
        return title if len(measured) >= len(listed) else f"{title} ({len(measured)} of {len(listed)} seeds)"

    @property
    def command(self) -> str:
        """What runs it."""
        return "make demo" if self.name == "demo" else f"sfumato study run studies/{self.name}.yaml"

    @property
    def specs(self) -> list[str]:
        """Its protections but none."""
        return [spec for spec in self.file["protections"] if spec != "none"]

    @property
    def missing(self) -> set[str]:
        """The digests of its cells, of the kinds that are kept, that have no record."""
        return {cell["digest"] for cell in self.file["cells"] if cell["kind"] not in DRAWN} - {
            record.digest for record in self.records
        }

    @property
    def curves(self) -> dict[str, Curve]:
        """Maps each protection to how naming grows with the number of releases, if that was recorded."""
        return self.results.curves

    @property
    def episodic(self) -> bool:
        """Whether its learners are few-shot learners."""
        return self.results.episodic

    @property
    def versions(self) -> dict[str, str]:
        """Of the libraries that its accuracies were measured with."""
        return dict(next(record.versions for record in self._of("accuracy")))

    def seconds(self, kind: str | None = None) -> float:
        """What its cells took, of one kind or of all that are kept."""
        return float(sum(record.seconds for record in self.records if kind in (None, record.kind)))

    @property
    def settings(self) -> list[Setting]:
        """Each protection with its best learner and its strongest adversary."""
        return self.results.settings

    @property
    def recommendation(self) -> Recommendation:
        """The setting to use."""
        return self.results.advice

    @property
    def risks(self) -> dict[tuple[str, str], Risk]:
        """(protection, attack) -> how often its strongest classifier names the right person."""
        return self.results.risks

    def top1(self, protection: str, attack: str) -> Estimate | None:
        """How often an attack names the right person; None where it did not run."""
        risk = self.risks.get((protection, attack))
        return risk.top1 if risk else None

    def accuracy(self, learner: str, protection: str = "none") -> Accuracy:
        """Of one learner."""
        return self._result("accuracy", protection=protection, learner=learner)

    def accuracies(self, learner: str, protection: str = "none") -> BySeed:
        """Of one learner, by seed, as far as it is measured."""
        return self._by_seed("accuracy", protection=protection, learner=learner)

    @property
    def rising(self) -> tuple[int, int]:
        """Of its trainings, see the function."""
        return rising(record.result for record in self._of("accuracy"))

    def similarity(self, protection: str, view: str = "released") -> Any:
        """Of what is seen of an image."""
        return self._result("similarity", protection=protection, view=view)

    def proved(self, protection: str) -> Any:
        """What is proved of a release; None if that is not recorded."""
        return next((record.result for record in self._of("proved", protection=protection)), None)

    def attack(self, protection: str = "none", attack: str = "reidentify-static") -> Any:
        """Whom an adversary looked at."""
        return self._result("attack", protection=protection, attack=attack)

    def transfer(self) -> dict[str, dict[str, Any]]:
        """Protection that images have -> protection that a model was trained for -> accuracy."""
        rows = records.read_run(RESULTS / f"{self.name}.jsonl")
        return {
            row["cell"]["protection"]: row["result"]["trained"]
            for _, row in rows
            if row.get("kind") == "transfer"
        }

    def _of(self, kind: str, **cell: str) -> Iterator[records.Record]:
        for record in self.records:
            if record.kind == kind and all(getattr(record.cell, key) == of for key, of in cell.items()):
                yield record

    def _by_seed(self, kind: str, **cell: str) -> dict[int, Any]:
        found = sorted(self._of(kind, **cell), key=lambda record: record.cell.seed)
        return {record.cell.seed: record.result for record in found}

    def _result(self, kind: str, **cell: str) -> Any:
        (record,) = self._of(kind, **cell)
        return record.result


def load(path: Path) -> Study:
    """A study and its records, of a file of rows or the folder of a run."""
    results = report.load(path)
    return Study(path.stem, results.study, results.records)


@cache
def study(name: str) -> Study:
    """A study under studies/results."""
    return load(RESULTS / f"{name}.jsonl")


def values() -> dict[str, Any]:
    """What templates may use."""
    return {"study": study}
