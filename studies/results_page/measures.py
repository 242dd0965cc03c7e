"""Whether measures of reconstructions agree with those who look at them."""

import statistics
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from results_page.figures import Interval, mean_of
from results_page.gradients import Timed
from results_page.reading import Record, read, read_all

HAND_MADE = {
    "psnr": "PSNR",
    "ssim": "SSIM",
    "mse": "MSE",
    "squeezenet": "SqueezeNet distance",
    "frechet": "Fréchet distance",
}
SEMSIM, CHOSEN, EQUAL = "semsim", "semsim-perceptual, chosen", "semsim-perceptual, relative, equal weights"
SHOWN = HAND_MADE | {
    SEMSIM: "SemSim",
    CHOSEN: "semsim-perceptual",
    EQUAL: "the same distance, equal weights",
}
ATTACKS = {"closed-form": "Table 1", "search": "Table 2"}
POOLED = "all victims"
GOAL, OF_RELIABILITY = 0.75, 0.9


class Judge(Record):
    """On clean test images, asked as it judges reconstructions."""

    right: int
    trials: int
    share: float


class Images(Record):
    """How many of each split."""

    training: int
    test: int


class Source(Timed):
    """A data set: its judges and its victims."""

    data: Images
    classes: list[str]
    judges: dict[str, Judge]
    victims: dict[str, float]
    originals: list[int]
    recognised_before: float


class Attacked(Record):
    """One victim: what judges recognise of it, and what measures say."""

    recognised: int
    items: int
    failed: int
    scores: dict[str, float | None]

    @property
    def share(self) -> float:
        """That is recognised."""
        return self.recognised / self.items


class Reconstructions(Timed):
    """One attack on one data set."""

    krippendorff_alpha: float | None
    victims: dict[str, Attacked]


class Correlation(Record):
    """Of a measure with judges, by two coefficients."""

    kendall: Interval
    spearman: Interval


class Counted(Record):
    """Victims of a data set, and the range of what is recognised of them."""

    victims: int
    least: float
    most: float


class Reliable(Record):
    """Of the judges' ranking."""

    kendall: Interval


class Table(Record):
    """Correlations of every measure with judges, over the victims of one attack or of all."""

    rows: dict[str, dict[str, list[Correlation | None]]]
    victims: dict[str, Counted]
    reliability: dict[str, Reliable]
    means: dict[str, float]
    best: str = Field(alias="best_hand_made")
    ahead: dict[str, Interval]

    def correlation(self, source: str, measure: str, coefficient: str = "kendall") -> Interval | None:
        """Of one data set: the mean over seeds, each end by itself."""
        found = [
            getattr(each, coefficient) for each in self.rows[source].get(measure, []) if each is not None
        ]
        return mean_of(found) if found else None

    @property
    def reliable(self) -> float:
        """The judges with themselves, on average over data sets."""
        return statistics.mean(each.kendall.value for each in self.reliability.values())

    @property
    def top(self) -> str:
        """The measure with the highest mean, of those that are shown."""
        return max((each for each in SHOWN if each in self.means), key=lambda each: self.means[each])

    def share(self, measure: str) -> float:
        """Its mean, as a share of what the judges have with themselves."""
        return self.means[measure] / self.reliable

    def reached(self, measure: str) -> bool:
        """Whether it has all that was wanted of it."""
        far = self.ahead[measure].low > 0 if measure in self.ahead else True
        return self.means[measure] >= GOAL and self.share(measure) >= OF_RELIABILITY and far


class Compared(Record):
    """Measures with each other."""

    kendall: list[list[float]]
    names: list[str]


class Variant(Record):
    """SemSim with one thing changed."""

    data: str
    epochs: int
    reconstructions: int
    attacks: dict[str, Correlation | None]


class Agreement(Timed):
    """All tables."""

    tables: dict[str, Table]
    matrices: dict[str, Compared]
    variants: dict[str, Variant]
    chosen: dict[str, str]

    @property
    def matrix(self) -> dict[str, list[float]]:
        """Measures with each other, in the mean over data sets."""
        matrices = list(self.matrices.values())
        names = [name for name in matrices[0].names if all(name in each.names for each in matrices)]
        return {
            row: [
                statistics.mean(
                    each.kendall[each.names.index(row)][each.names.index(column)] for each in matrices
                )
                for column in names
            ]
            for row in names
        }


@dataclass(frozen=True)
class Metrics:
    """All records of studies/reconstruction.py."""

    sources: dict[str, Source]
    attacks: dict[str, dict[str, Reconstructions]]
    agreement: Agreement
    learned: list[Timed]

    @property
    def processor(self) -> float:
        """Seconds of one core that all records took."""
        attacked = [each for records in self.attacks.values() for each in records.values()]
        return sum(each.seconds.processor for each in (*self.sources.values(), *attacked, *self.learned))


def metrics() -> Metrics:
    """The records."""
    folder = "reconstruction"
    agreement = read(f"{folder}/agreement", Agreement)
    sets = list(agreement.matrices)
    attacks = [attack for attack in ATTACKS if attack in agreement.tables]
    learned = [
        each for kind in ("semsim", "stages", "variant") for each in read_all(f"{folder}/{kind}-*", Timed)
    ]
    return Metrics(
        {name: read(f"{folder}/{name}", Source) for name in sets},
        {a: {name: read(f"{folder}/{name}-{a}", Reconstructions) for name in sets} for a in attacks},
        agreement,
        learned,
    )


def values() -> dict[str, Any]:
    """What templates may use."""
    found = metrics()
    return {
        "metrics": found,
        "measure_names": SHOWN,
        "learned_names": {"semsim": SEMSIM, "perceptual": CHOSEN, "equal": EQUAL},
        "table_names": {attack: ATTACKS[attack] for attack in found.attacks},
        "pooled_name": POOLED,
    }
