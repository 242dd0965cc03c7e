"""What is proved beside what is found: audits of protections and of training, and the noise of both DP-Pix."""

import math
import re
from typing import Any, NamedTuple

from results_page.reading import Record, read_all
from sfumato.device.budgets import Budget
from sfumato.dp.audit import rounded_down
from sfumato.dp.guarantee import SYMBOLS, Definition
from sfumato.protect.pixelize import cell_areas, spread

CELL, CHANNELS, SIDE, EPSILON, DELTA = 8, 3, 84, 1.0, 1e-6
MECHANISMS = ("dp-pix", "dp-pix, as published", "dp-pix-gaussian", "gaussian")
POLICIES = ("fixed", "automatic", "quantile", "adaclip", "meta-clip")


class Stated(Record):
    """A guarantee."""

    definition: Definition
    value: float


class Found(Record):
    """What trials prove of a protection."""

    lower: float
    stated: Stated
    most: float
    distinguisher: str
    pair: str
    convicted: bool


class Settings(Record):
    """Of an audit."""

    trials: int
    confidence: float
    seed: int
    shape: list[int]


class Audit(Record):
    """Of one protection."""

    spec: str
    settings: Settings
    result: Found
    seconds: float

    @property
    def mechanism(self) -> str:
        """In tables; the published DP-Pix counts by itself."""
        name = self.spec.partition(":")[0]
        return f"{name}, as published" if "variant=published" in self.spec else name

    @property
    def symbol(self) -> str:
        """Of what is stated."""
        return SYMBOLS[self.result.stated.definition]

    @property
    def share(self) -> float:
        """What is proved at least, of what is stated; cut to whole percents."""
        return math.floor(100 * self.result.lower / self.result.stated.value) / 100

    @property
    def order(self) -> tuple[int, list[float]]:
        """By mechanism, then by strength and size."""
        numbers = [float(text) for text in re.findall(r"=([\d.]+)", self.spec)]
        return MECHANISMS.index(self.mechanism), numbers


class TrainingFound(Record):
    """What trainings prove of training."""

    epsilon: float
    lower: float
    most: float
    convicted: bool
    trials: int
    confidence: float
    delta: float


class Config(Record):
    """Of a training."""

    tasks: int


class TrainingAudit(Record):
    """Of one clipping policy, or of a run that is wrong on purpose."""

    name: str
    fault: str | None
    config: Config
    result: TrainingFound
    seconds: float

    @property
    def order(self) -> tuple[bool, bool, float, int, str]:
        """Right before wrong, all tasks in each step before fewer, then by budget and policy."""
        policy = self.name.partition("-epsilon")[0]
        place = POLICIES.index(policy) if policy in POLICIES else 0
        return bool(self.fault), self.name.endswith("sampled"), self.result.epsilon, place, self.name


class Guessed(Record):
    """How many canaries were guessed right."""

    canaries: int
    guesses: int
    right: int


class OneRunFound(Record):
    """What the guesses of a few runs prove."""

    lower: float
    definition: Definition
    stated: float
    delta: float
    confidence: float
    most: float
    guesses: Guessed
    runs: int
    convicted: bool
    epsilon: float  # what is proved, at the δ of trainings


class OneRun(Record):
    """A record of studies/one_run.py."""

    name: str
    kind: str
    subject: str
    sampled: bool
    fault: str | None
    result: OneRunFound
    seconds: float

    @property
    def symbol(self) -> str:
        """Of what is stated."""
        return SYMBOLS[self.result.definition]


def one_run_pairs(audits: list[OneRun]) -> list[tuple[OneRun, OneRun]]:
    """The audit by one run and by more of each subject that has both."""
    first, more = ({a.subject: a for a in audits if (a.result.runs > 1) == many} for many in (False, True))
    return [(first[subject], more[subject]) for subject in first if subject in more]


class Noise(NamedTuple):
    """Standard deviations in a whole cell, in grey levels, where m pixels may differ."""

    pixels: int
    laplace: float
    gaussian: float

    @property
    def less(self) -> str:
        """The mechanism with less noise."""
        return "dp-pix" if self.laplace < self.gaussian else "dp-pix-gaussian"


def noises() -> tuple[list[Noise], float]:
    """Of both mechanisms at the same (epsilon, delta), in closed form; and the rho of that."""
    areas = cell_areas(SIDE, SIDE, CELL)
    rho = Budget.parse(f"epsilon={EPSILON:g},delta={DELTA:g}").amount
    rows = []
    for pixels in (1, 16, 64, 256, 1024, 4096):
        squares = int((spread(pixels, areas, largest_first=True) ** 2).sum())
        laplace = math.sqrt(2) * 255 * pixels * CHANNELS / EPSILON / CELL**2
        rows.append(Noise(pixels, laplace, 255 * math.sqrt(squares * CHANNELS / (2 * rho)) / CELL**2))
    return rows, rho


def values() -> dict[str, Any]:
    """What templates may use."""
    rows, rho = noises()
    trainings = sorted(read_all("audit-training", TrainingAudit), key=lambda each: each.order)
    return {
        "audits": sorted(read_all("audit", Audit), key=lambda each: each.order),
        "mechanisms": MECHANISMS,
        "rounded_down": rounded_down,
        "right_trainings": [each for each in trainings if not each.fault],
        "wrong_trainings": [each for each in trainings if each.fault],
        "one_run": read_all("one-run", OneRun),
        "one_run_pairs": one_run_pairs,
        "noises": rows,
        "noise": {"cell": CELL, "side": SIDE, "epsilon": EPSILON, "delta": DELTA, "rho": rho},
    }
