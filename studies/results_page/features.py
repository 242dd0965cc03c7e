"""Private features: attributes kept, identity lost, and what each cut costs a device."""

import statistics
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from matplotlib.figure import Figure
from pydantic import Field

from results_page.reading import ROOT, Record, read, read_all
from sfumato.assess.log_rank import normal_anonymity, superior

WORLDS = ("faces", "lfw", "celeba")
OF_SETS = {
    "lfw-both": "LFW",
    "cmu": "CMU Face Images",
}  # whose sets of attributes are compared, and nothing else
CUTS = ("conv4_2", "conv5_1", "conv6_1", "conv7")
LAST = CUTS[-1]
VARIANTS = ("simple", "dpfe", "adversarial", "information")


class Beyond(Record):
    """What log-rank privacy an adversary leaves."""

    lrp: float
    guessing: float
    mean: float
    deviation: float
    beyond: dict[str, float]
    identities: int
    beyond_a_tenth: float | None = None
    nearest_neighbour_error: float | None = None

    @property
    def tenth(self) -> float | None:
        """How often the right person is not in the first tenth of the guesses; None where nobody counted."""
        counted = self.beyond.get(str(self.identities // 10))
        return counted if self.beyond_a_tenth is None else self.beyond_a_tenth

    @property
    def tenth_if_normal(self) -> float:
        """The same as the paper states it, from mean and deviation (Sec. 6.2)."""
        return normal_anonymity(self.mean, self.deviation, 0.1)

    @property
    def first(self) -> float:
        """How often the right person is named first."""
        return 1 - self.beyond["1"]


class Point(Record):
    """Of a curve: accuracy and privacy at a share of noise."""

    ratio: float
    accuracies: dict[str, float]
    adversaries: dict[str, Beyond]
    strongest: str

    @property
    def accuracy(self) -> float:
        """The mean over attributes."""
        return statistics.mean(self.accuracies.values())

    @property
    def worst(self) -> Beyond:
        """Against the strongest adversary."""
        return self.adversaries[self.strongest]


class Bounded(Record):
    """The same of a feature that is clipped to a norm, with noise: what it keeps, and what is proved of it."""

    norm: float
    noise: float
    rho: float
    proved: dict[str, float]
    accuracies: dict[str, float]
    adversaries: dict[str, Beyond]
    strongest: str

    @property
    def first(self) -> float:
        """How often the adversary who names most is right at once."""
        return max(each.first for each in self.adversaries.values())


class Cost(Record):
    """Of what runs on a device, or of the whole model there."""

    milliseconds: float
    memory: float
    parameters: float
    bytes: float


class Device(Record):
    """The exported half of a model."""

    images: int
    same_decisions: float
    difference: float
    costs: dict[str, Cost]


class Names(Record):
    """How often an adversary names the right person first."""

    top1: float


class Inversion(Record):
    """What a decoder restores."""

    static: Names
    adaptive: Names
    ssim: float


class Part(Record):
    """Attributes, cut and variant of a model."""

    attributes: str
    cut: str
    variant: str

    @property
    def name(self) -> str:
        """As tables have it."""
        return f"{self.attributes}-{self.cut}-{self.variant}"

    @property
    def order(self) -> tuple[int, int, int]:
        """In tables."""
        return len(self.attributes), CUTS.index(self.cut), VARIANTS.index(self.variant)


class Run(Record):
    """The record of a model and a seed."""

    world: str
    seed: int
    part: Part
    people: int
    known: int
    asked: int
    network: dict[str, float]
    curve: list[Point]
    bounded: list[Bounded] = Field(default_factory=list)
    seconds: dict[str, float]
    device: Device | None = None
    inversion: Inversion | None = None

    @property
    def pairs(self) -> list[tuple[float, float]]:
        """Accuracy and privacy of each point of the curve."""
        return [(point.accuracy, point.worst.lrp) for point in self.curve]


class Betas(Record):
    """How much privacy weighs: what was tried on validation images, and chosen."""

    chosen: dict[str, float]
    simple: float
    tried: dict[str, dict[str, float]]

    def ordered(self, variant: str) -> list[tuple[str, float]]:
        """What was tried of a variant, from least to most, with its accuracy."""
        return sorted(self.tried[variant].items(), key=lambda pair: float(pair[0]))


@dataclass(frozen=True)
class Ranks:
    """Rank statistics of one model at one amount of noise, over seeds, against the strongest adversary."""

    points: list[Point]

    @property
    def ratio(self) -> float:
        """Of the noise."""
        return self.points[0].ratio

    @property
    def worst(self) -> list[Beyond]:
        """Seed by seed."""
        return [point.worst for point in self.points]

    @property
    def nearest(self) -> list[float]:
        """How often the nearest known feature is of another person."""
        errors = [point.adversaries["density"].nearest_neighbour_error for point in self.points]
        return [error for error in errors if error is not None]


@dataclass(frozen=True)
class Model:
    """One model over seeds; figures are lists over them, without noise where no point is named."""

    runs: list[Run]

    @property
    def part(self) -> Part:
        """Its attributes, cut and variant."""
        return self.runs[0].part

    @property
    def clear(self) -> list[Point]:
        """Without noise."""
        return [run.curve[0] for run in self.runs]

    @property
    def targets(self) -> list[str]:
        """Its attributes."""
        return list(self.clear[0].accuracies)

    def accuracy(self, target: str) -> list[float]:
        """Of one attribute."""
        return [point.accuracies[target] for point in self.clear]

    @property
    def accuracies(self) -> list[float]:
        """The means over attributes."""
        return [point.accuracy for point in self.clear]

    @property
    def privacy(self) -> list[float]:
        """Against the strongest adversary."""
        return [point.worst.lrp for point in self.clear]

    @property
    def density(self) -> list[float]:
        """Against the paper's kernel density alone."""
        return [point.adversaries["density"].lrp for point in self.clear]

    @property
    def strongest(self) -> list[str]:
        """Which adversaries are the strongest."""
        return sorted({point.strongest for point in self.clear})

    @property
    def first(self) -> list[float]:
        """How often the right person is named first."""
        return [point.worst.first for point in self.clear]

    @property
    def inversions(self) -> list[Inversion]:
        """What a decoder restores."""
        return [run.inversion for run in self.runs if run.inversion]

    @property
    def curve(self) -> list[tuple[float, float, float]]:
        """Ratio of noise, mean accuracy, mean privacy against the strongest adversary."""
        return [
            (
                points[0].ratio,
                statistics.mean(point.accuracy for point in points),
                statistics.mean(point.worst.lrp for point in points),
            )
            for points in zip(*(run.curve for run in self.runs), strict=True)
        ]

    @property
    def bounded(self) -> list[list[Bounded]]:
        """With a proof: of each amount of noise, seed by seed."""
        return [list(points) for points in zip(*(run.bounded for run in self.runs), strict=True)]

    @property
    def ranks(self) -> list[Ranks]:
        """Of each amount of noise."""
        return [Ranks(list(points)) for points in zip(*(run.curve for run in self.runs), strict=True)]

    @property
    def devices(self) -> list[Device]:
        """The exported halves."""
        return [run.device for run in self.runs if run.device]

    def cost(self, side: str, of: str) -> float:
        """The median over seeds, of the `device` or of the `whole` model there."""
        return float(statistics.median(getattr(device.costs[side], of) for device in self.devices))


def paired(*models: Model) -> list[tuple[Run, ...]]:
    """The runs of each seed that all models have."""
    of_models = [{run.seed: run for run in model.runs} for model in models]
    seeds = [seed for seed in of_models[0] if all(seed in runs for runs in of_models)]
    return [tuple(runs[seed] for runs in of_models) for seed in seeds]


@dataclass(frozen=True)
class Superiority:
    """Whether one model's curve is above another's at every accuracy that both reach, seed by seed."""

    ours: str
    theirs: str
    held: list[bool]
    gains: list[float]


@dataclass(frozen=True)
class World:
    """All models of one world."""

    name: str
    models: dict[str, Model]
    betas: Betas

    @property
    def any(self) -> Run:
        """A run, for what all have in common."""
        return next(iter(self.models.values())).runs[0]

    @property
    def guessing(self) -> float:
        """Log-rank privacy against who guesses blindly."""
        return self.any.curve[0].adversaries["density"].guessing

    @property
    def network(self) -> dict[str, list[float]]:
        """Accuracies of the network without a feature, over seeds."""
        runs = next(iter(self.models.values())).runs
        return {target: [run.network[target] for run in runs] for target in runs[0].network}

    @property
    def first(self) -> str:
        """The set of attributes of the cuts."""
        return self.any.part.attributes

    def model(self, variant: str, cut: str = LAST) -> Model:
        """Of the first set."""
        return self.models[f"{self.first}-{cut}-{variant}"]

    @cached_property
    def over_simple(self) -> list[Superiority]:
        """DPFE over Simple, cut by cut."""
        return [self._over(("dpfe", cut), ("simple", cut)) for cut in CUTS]

    @cached_property
    def over_dpfe(self) -> list[Superiority]:
        """The other ways to lose identity, over DPFE."""
        return [self._over((variant, LAST), ("dpfe", LAST)) for variant in VARIANTS[2:]]

    @cached_property
    def over_lower(self) -> list[Superiority]:
        """A higher cut over the one below it."""
        return [self._over(("dpfe", high), ("dpfe", low)) for low, high in pairwise(CUTS)]

    @property
    def larger(self) -> list[Model]:
        """DPFE for each set of attributes, from the smallest."""
        found = [
            model for model in self.models.values() if (model.part.cut, model.part.variant) == (LAST, "dpfe")
        ]
        return sorted(found, key=lambda model: model.part.order)

    @property
    def falls(self) -> bool:
        """Whether privacy falls with each attribute that is added."""
        means = [statistics.mean(model.privacy) for model in self.larger]
        return all(more > less for more, less in pairwise(means))

    @property
    def mean_ranks(self) -> list[float]:
        """Of DPFE, at each amount of noise."""
        return [statistics.mean(each.mean for each in ranks.worst) for ranks in self.model("dpfe").ranks]

    def _over(self, ours: tuple[str, str], theirs: tuple[str, str]) -> Superiority:
        mine, other = self.model(*ours), self.model(*theirs)
        found = [superior(run.pairs, beside.pairs) for run, beside in paired(mine, other)]
        return Superiority(
            mine.part.name, other.part.name, [bool(each) for each in found], [each.mean for each in found]
        )

    @property
    def halves(self) -> list[Device]:
        """All exported halves of DPFE."""
        return [device for cut in CUTS for device in self.model("dpfe", cut).devices]

    @property
    def seconds(self) -> float:
        """Of all runs."""
        return sum(sum(run.seconds.values()) for model in self.models.values() for run in model.runs)

    @property
    def restored(self) -> bool:
        """Whether there is a picture of what a decoder restores."""
        return (ROOT / "docs" / "images" / f"features-{self.name}-restored.png").exists()

    def draw(self) -> None:
        """Accuracy against log-rank privacy as noise grows: docs/images/features-WORLD.png."""
        figure = Figure(figsize=(7, 4.5), dpi=110, layout="constrained")
        axes = figure.subplots()
        for color, cut in enumerate(CUTS):
            for variant, style in (("dpfe", "-o"), ("simple", ":s")):
                model = self.model(variant, cut)
                _, *points = zip(*model.curve, strict=True)
                label = f"{cut}, {variant}: {model.cost('device', 'milliseconds'):.2f} ms"
                axes.plot(*points, style, color=f"C{color}", markersize=4, label=label)
        axes.axhline(self.guessing, color="0.5", linestyle="--", linewidth=1, label="blind guessing")
        axes.set_xlabel("accuracy, as noise grows from right to left")
        axes.set_ylabel("log-rank privacy, strongest adversary")
        axes.legend(fontsize=8, frameon=False)
        figure.savefig(ROOT / "docs" / "images" / f"features-{self.name}.png", metadata={"Software": None})


@dataclass(frozen=True)
class Sets:
    """Sets of real attributes of one world (Fig. 8), each by the plain feature and by DPFE."""

    name: str
    data: str
    models: dict[str, Model]

    @property
    def any(self) -> Run:
        """A run, for what all have in common."""
        return next(iter(self.models.values())).runs[0]

    @property
    def sets(self) -> list[str]:
        """Their names, the smallest first."""
        return list(dict.fromkeys(model.part.attributes for model in self.models.values()))

    def model(self, attributes: str, variant: str) -> Model:
        """Of a set."""
        return self.models[f"{attributes}-{LAST}-{variant}"]

    @property
    def guessing(self) -> float:
        """Log-rank privacy against who guesses blindly."""
        return self.any.curve[0].adversaries["density"].guessing

    @property
    def falls(self) -> list[bool]:
        """Of each seed, whether DPFE of both attributes is less private than of each alone."""
        found = []
        for runs in paired(*(self.model(name, "dpfe") for name in self.sets)):
            *alone, both = [run.curve[0].worst.lrp for run in runs]
            found.append(both < min(alone))
        return found

    @property
    def over_simple(self) -> list[bool]:
        """Of each set and seed, whether DPFE's curve is above that of the plain feature."""
        held = []
        for name in self.sets:
            pairs = paired(self.model(name, "dpfe"), self.model(name, "simple"))
            held += [bool(superior(ours.pairs, theirs.pairs)) for ours, theirs in pairs]
        return held


@dataclass(frozen=True)
class Statement:
    """The paper's statement from mean and deviation, beside what is counted, where somebody counted."""

    stated: list[float]
    counted: list[float]

    @property
    def over(self) -> list[float]:
        """How much more is stated than counted."""
        return [stated - counted for stated, counted in zip(self.stated, self.counted, strict=True)]


def statement(worlds: list[World]) -> Statement:
    """Of all models, seeds and amounts of noise."""
    found = [
        worst
        for world in worlds
        for model in world.models.values()
        for run in model.runs
        for worst in (point.worst for point in run.curve)
    ]
    pairs = [(each.tenth_if_normal, each.tenth) for each in found if each.tenth is not None]
    return Statement([stated for stated, _ in pairs], [counted for _, counted in pairs])


class CutCost(Cost):
    """Of the layers of the paper's network up to a cut."""

    part: str


class Cuts(Record):
    """The record of studies/cuts.py."""

    shape: tuple[int, int, int]
    costs: list[CutCost]

    def cost(self, part: str) -> CutCost:
        """Of the layers up to a cut, or of all."""
        (found,) = (cost for cost in self.costs if cost.part == part)
        return found

    def beyond(self, part: str, of: str) -> float:
        """How much more a cut costs than the lowest of the paper's four, which it compares with."""
        return float(getattr(self.cost(part), of) / getattr(self.cost(CUTS[0]), of) - 1)

    @property
    def rises(self) -> bool:
        """Whether each of the paper's cuts, and all layers, take longer than the cut before."""
        times = [self.cost(part).milliseconds for part in (*CUTS, "all")]
        return all(less < more for less, more in pairwise(times))


def cut_costs() -> Cuts | None:
    """The record; None where it is not there."""
    return read("cuts", Cuts)


def models_of(name: str) -> dict[str, Model]:
    """All models of a world over seeds, by their names."""
    models: dict[str, list[Run]] = {}
    for run in sorted(read_all(f"features/{name}-[0-9]*", Run), key=lambda run: run.part.order):
        models.setdefault(run.part.name, []).append(run)
    return {part: Model(runs) for part, runs in models.items()}


def values() -> dict[str, Any]:
    """What templates may use."""
    worlds = []
    for name in WORLDS:
        if models := models_of(name):
            worlds.append(World(name, models, read(f"features/{name}-betas", Betas)))
    sets = [Sets(name, data, models) for name, data in OF_SETS.items() if (models := models_of(name))]
    return {
        "feature_worlds": worlds,
        "feature_sets": sets,
        "cut_costs": cut_costs(),
        "feature_statement": statement(worlds),
        "cuts": CUTS,
        "variants": VARIANTS,
    }
