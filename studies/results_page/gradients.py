"""What is rebuilt of gradients, and whether metrics agree with those who look at it."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from results_page.figures import Interval
from results_page.reading import Record, read, read_all
from sfumato.dp.guarantee import rounded_up

NETWORKS = {"lenet": "LeNet", "convnet8-16": "ConvNet8 of width 16", "resnet20": "ResNet-20"}
METRICS = {
    "psnr": "PSNR",
    "mse": "MSE",
    "ssim": "SSIM",
    "squeezenet": "SqueezeNet distance",
    "frechet": "Fréchet distance",
    "semsim": "SemSim",
}
ATTACKS = ("inverting-gradients", "idlg")
SETS = ("cifar10", "caltech101", "lfw", "fer", "omniglot")
DEFENCES = ("none", "pruning", "gaussian", "laplacian", "dp-sgd", "mixup")
ABLATED = "cifar10"


class Seconds(Record):
    """What a part took, on a busy machine and by itself."""

    wall: float
    processor: float


class Timed(Record):
    """A record that says what it took."""

    seconds: Seconds


class Victim(Record):
    """Whose gradients are attacked."""

    network: str
    accuracy: float | None = None

    @property
    def words(self) -> str:
        """As tables have it."""
        trained = "" if self.accuracy is None else f", trained (accuracy {100 * self.accuracy:.0f}%)"
        return NETWORKS[self.network] + trained


class Chosen(Record):
    """The weight of total variation, and what was tried."""

    total_variation: float
    tried: dict[str, float]


class Rebuilt(Timed):
    """What an attack rebuilds."""

    images: int
    psnr: list[float]
    median_psnr: float
    victim: Victim | None = None
    chosen: Chosen | None = None
    finite: int | None = None
    attempted: int | None = None
    workers: int = 4
    batch: int | None = None

    @property
    def mean_psnr(self) -> float:
        """In dB."""
        return statistics.mean(self.psnr)


class Labelled(Record):
    """How many labels of one victim were read rightly."""

    victim: Victim
    state: str
    single: int
    single_right: int
    in_batches: int
    counted_right: dict[str, int]

    def share(self, guessed_from: str) -> float:
        """Of a batch, with mean probabilities guessed from `noise` or other `images`."""
        return self.counted_right[guessed_from] / self.in_batches

    @property
    def reached(self) -> bool:
        """Whether 97% are read in a batch."""
        return max(self.share(each) for each in self.counted_right) >= 0.97


class Labels(Timed):
    """The record of labels read from gradients."""

    batch: int
    victims: list[Labelled]


class Attempt(Record):
    """One adversary on a defence."""

    adversary: str
    mean_psnr: float
    psnr: list[float]
    ssim: list[float]


class Defence(Timed):
    """What adversaries rebuild behind one defence."""

    defence: str
    kind: str
    attacks: list[Attempt]
    strongest: int
    epsilon: float | None = None
    delta: float | None = None
    rate: float | None = None
    steps: int | None = None

    @property
    def best(self) -> Attempt:
        """Of the strongest adversary."""
        return self.attacks[self.strongest]

    @property
    def promise(self) -> str:
        """Epsilon, where there is one."""
        return "" if self.epsilon is None else rounded_up(self.epsilon)

    def most(self, *, aware: bool) -> float | None:
        """The highest mean PSNR of adversaries who know of the defence, or who do not."""
        found = [
            attempt.mean_psnr
            for attempt in self.attacks
            if (attempt.adversary != "knows nothing of it") == aware
        ]
        return max(found, default=None)


@dataclass(frozen=True)
class Inversion:
    """All records of studies/inversion.py."""

    rebuilt: dict[str, Rebuilt]
    labels: Labels
    defences: list[Defence]

    @property
    def gained(self) -> list[float]:
        """By 16 starts instead of one, on the same images, in dB."""
        several = self.rebuilt["lenet-16"].psnr
        return [
            after - before
            for before, after in zip(self.rebuilt["lenet-1"].psnr[: len(several)], several, strict=True)
        ]

    @property
    def accounted(self) -> Defence:
        """A defence with a promise."""
        return next(each for each in self.defences if each.epsilon is not None)

    def in_order(self, defence: Defence) -> bool:
        """Whether no more is rebuilt than without defence, nor than with less of the same."""
        before = self.defences[: self.defences.index(defence)]
        bounds = [each.best.mean_psnr for each in before if each.kind in ("none", defence.kind)]
        return all(defence.best.mean_psnr <= bound for bound in bounds)

    @property
    def ordered(self) -> tuple[int, int]:
        """How many defences are in order, of how many."""
        made = [each for each in self.defences if each.kind != "none"]
        return sum(self.in_order(each) for each in made), len(made)

    @property
    def seconds(self) -> list[Seconds]:
        """Of all parts."""
        return [each.seconds for each in (*self.rebuilt.values(), self.labels, *self.defences)]


def inversion() -> Inversion:
    """The records, defences from less to more."""
    names = ("dlg", "idlg", "lenet-1", "lenet-16", "batch", "first-layer", "cafe")
    deep = [f"{network}-{state}" for network in list(NETWORKS)[1:] for state in ("untrained", "trained")]
    defences = read_all("inversion/defence-*.json", Defence)
    defences.sort(key=lambda each: (DEFENCES.index(each.kind), _amount(each.defence)))
    return Inversion(
        {name: read(f"inversion/{name}.json", Rebuilt) for name in (*names, *deep)},
        read("inversion/labels.json", Labels),
        defences,
    )


def _amount(defence: str) -> float:
    """ "gaussian 0.1" -> 0.1."""
    amount = defence.partition(" ")[2]
    return float(amount) if amount else 0.0


class Proxy(Record):
    """A recogniser that answers instead of a person."""

    accuracy: float


class Images(Record):
    """How many of each split."""

    training: int
    test: int


class Source(Timed):
    """A data set: its proxies and its victims."""

    data: Images
    classes: list[str]
    proxies: dict[str, Proxy]
    victims: dict[str, float]
    recognised_before: float


class Attacked(Record):
    """One victim: what proxies recognise of it, and what metrics say."""

    recognised: int
    items: int
    failed: int
    scores: dict[str, float]

    @property
    def share(self) -> float:
        """That is recognised."""
        return self.recognised / self.items


class Reconstructions(Timed):
    """One attack on one data set."""

    krippendorff_alpha: float | None
    victims: dict[str, Attacked]


class Correlation(Record):
    """Of a metric with proxies, by two coefficients."""

    kendall: Interval
    spearman: Interval


class Compared(Record):
    """Metrics with each other."""

    kendall: list[list[float]]
    names: list[str]


Row = dict[str, Correlation | list[Correlation | None] | None]


class Agreement(Timed):
    """Of metrics with proxies: attack -> data set -> metric; SemSim has a list over seeds."""

    tables: dict[str, dict[str, Row]]
    matrices: dict[str, Compared]
    ablations: dict[str, Correlation | None]

    def correlation(self, attack: str, source: str, metric: str, coefficient: str) -> Interval | None:
        """The mean over seeds; None where the proxies recognised as much of every victim."""
        cell = self.tables[attack][source][metric]
        runs = [run for run in (cell if isinstance(cell, list) else [cell]) if run is not None]
        if not runs:
            return None
        intervals: Sequence[Interval] = [getattr(run, coefficient) for run in runs]
        return Interval(
            *(statistics.mean(getattr(each, end) for each in intervals) for end in ("value", "low", "high"))
        )

    def means(
        self, attack: str, metric: str, coefficient: str, sources: Sequence[str] | None = None
    ) -> list[float]:
        """Of each data set where there is one; of all, or of some."""
        asked = self.tables[attack] if sources is None else sources
        found = [self.correlation(attack, source, metric, coefficient) for source in asked]
        return [each.value for each in found if each]

    def best(self, attack: str, coefficient: str = "kendall") -> str:
        """The metric whose mean over data sets is highest."""
        return max(METRICS, key=lambda metric: statistics.mean(self.means(attack, metric, coefficient)))

    @property
    def matrix(self) -> dict[str, list[float]]:
        """Metrics with each other, in the mean over data sets."""
        matrices = list(self.matrices.values())
        return {
            name: [
                statistics.mean(matrix.kendall[row][column] for matrix in matrices)
                for column in range(len(matrices[0].names))
            ]
            for row, name in enumerate(matrices[0].names)
        }

    @property
    def variants(self) -> dict[str, Correlation | None]:
        """Of SemSim: as it is, and with one thing changed at a time."""
        whole = self.tables[ATTACKS[0]][ABLATED]["semsim"]
        assert isinstance(whole, list)
        return {"all originals, LeNet, triplets": whole[0], **self.ablations}


@dataclass(frozen=True)
class Metrics:
    """All records of studies/reconstruction.py."""

    sources: dict[str, Source]
    attacks: dict[str, dict[str, Reconstructions]]
    agreement: Agreement
    semsim: list[Timed]

    @property
    def proxies(self) -> list[str]:
        """Their names, in the order in which records have their accuracies."""
        return list(next(iter(self.sources.values())).proxies)

    def victims(self, attack: str) -> dict[str, list[Attacked]]:
        """Each victim of an attack, over data sets."""
        records = list(self.attacks[attack].values())
        return {name: [record.victims[name] for record in records] for name in records[0].victims}

    @cached_property
    def seconds(self) -> list[Seconds]:
        """Of all records but the agreement, which is computed from them."""
        reconstructions = [each for records in self.attacks.values() for each in records.values()]
        return [each.seconds for each in (*self.sources.values(), *reconstructions, *self.semsim)]


def metrics() -> Metrics:
    """The records."""
    folder = "reconstruction"
    return Metrics(
        {name: read(f"{folder}/{name}.json", Source) for name in SETS},
        {a: {name: read(f"{folder}/{name}-{a}.json", Reconstructions) for name in SETS} for a in ATTACKS},
        read(f"{folder}/agreement.json", Agreement),
        [*read_all(f"{folder}/semsim-*.json", Timed), *read_all(f"{folder}/ablation-*.json", Timed)],
    )


def values() -> dict[str, Any]:
    """What templates may use."""
    return {"inversion": inversion(), "metrics": metrics(), "metric_names": METRICS}
