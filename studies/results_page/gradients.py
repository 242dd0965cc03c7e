"""What is rebuilt of gradients."""

import statistics
from dataclasses import dataclass
from typing import Any

from results_page.reading import Record, read, read_all
from sfumato.dp.guarantee import rounded_up

NETWORKS = {"lenet": "LeNet", "convnet8-16": "ConvNet8 of width 16", "resnet20": "ResNet-20"}
DEFENCES = ("none", "pruning", "gaussian", "laplacian", "dp-sgd", "mixup")


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
    defences = read_all("inversion/defence-*", Defence)
    defences.sort(key=lambda each: (DEFENCES.index(each.kind), _amount(each.defence)))
    return Inversion(
        {name: read(f"inversion/{name}", Rebuilt) for name in (*names, *deep)},
        read("inversion/labels", Labels),
        defences,
    )


def _amount(defence: str) -> float:
    """ "gaussian 0.1" -> 0.1."""
    amount = defence.partition(" ")[2]
    return float(amount) if amount else 0.0


class CurvePoint(Record):
    """Images rebuilt by so many steps."""

    psnr: list[float]
    ssim: list[float]


class Curve(Timed):
    """What is rebuilt of a deep untrained network by steps."""

    images: int
    victim: Victim
    chosen: Chosen
    points: dict[int, CurvePoint]

    @property
    def by_steps(self) -> list[tuple[int, CurvePoint]]:
        """Each number of steps and what it gives, the fewest first."""
        return sorted(self.points.items())

    @property
    def best(self) -> float:
        """The highest mean PSNR of all points, in dB."""
        return max(statistics.mean(each.psnr) for each in self.points.values())


@dataclass(frozen=True)
class Published:
    """A figure of a paper, and the record of the same here.

    Attributes:
        paper: authors and year.
        what: attack and victim.
        figure: as the paper has it.
        ours: of the records of studies/inversion.py.
        differs: what is not the same.
    """

    paper: str
    what: str
    figure: str
    ours: str
    differs: str


def published(found: Inversion) -> list[Published]:
    """Figures of papers beside ours: Geiping et al. 2020, Table 1, and Zhao et al. 2020, Table 1."""

    def mean(name: str) -> str:
        each = found.rebuilt[name]
        return f"{each.mean_psnr:.1f} dB, mean of {each.images}"

    deep = "20 images instead of 100, of a part of CIFAR-10"
    few = f"{found.rebuilt['resnet20-untrained'].images} images instead of 100; ResNet-20 of 16 channels, not 64; 1 start"
    single = [each for each in found.labels.victims if each.state == "untrained"]
    right, asked = sum(each.single_right for each in single), sum(each.single for each in single)
    geiping = "Geiping et al. 2020"
    return [
        Published(geiping, "Euclidean loss, L-BFGS, untrained LeNet", "46.25 ± 12.66 dB", mean("idlg"),
                  f"labels inferred (iDLG); a start that runs off is taken anew; {deep}"),
        Published(geiping, "inverting gradients, untrained LeNet", "18.00 ± 3.33 dB", mean("lenet-1"),
                  f"total variation chosen on other images; 2,000 steps; {deep}"),
        Published(geiping, "inverting gradients, untrained ResNet-20", "19.83 ± 2.96 dB", mean("resnet20-untrained"), few),
        Published(geiping, "inverting gradients, trained ResNet-20", "13.95 ± 3.38 dB", mean("resnet20-trained"),
                  f"{few}; trained on 1,500 images"),
        Published("Zhao et al. 2020", "iDLG, labels of single images", "100%", f"{100 * right / asked:.1f}%",
                  "CIFAR-10 for MNIST, CIFAR-100 and LFW; three untrained networks"),
    ]  # fmt: skip


def values() -> dict[str, Any]:
    """What templates may use."""
    found = inversion()
    curves = {each.victim.network: each for each in read_all("inversion/curve-*", Curve)}
    return {"inversion": found, "curves": curves, "papers_figures": published(found)}
