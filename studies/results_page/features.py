"""Private features: attributes kept, identity lost, and what each cut costs a device."""

import statistics
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from results_page.reading import ROOT, Row, record, records
from sfumato.assess.log_rank import normal_anonymity, superior

WORLDS = ("faces", "lfw")
OF_SETS = {
    "lfw-both": "LFW",
    "cmu": "CMU Face Images",
}  # whose sets of attributes are compared, and nothing else
CUTS = ("conv4_2", "conv5_1", "conv6_1", "conv7")
LAST = CUTS[-1]
VARIANTS = ("simple", "dpfe", "adversarial", "information")


def _complete(run: Row) -> Row:
    """Adds what follows from the figures of a run."""
    run.part["name"] = f"{run.part.attributes}-{run.part.cut}-{run.part.variant}"
    points = [*run.curve, *run.get("bounded", [])]
    for each in (each for point in points for each in point.adversaries.values()):
        counted = each.beyond.get(str(each.identities // 10))  # the right person is not in the first tenth
        each["tenth"] = each.get("beyond_a_tenth", counted)
        each["tenth_if_normal"] = normal_anonymity(
            each.mean, each.deviation, 0.1
        )  # as the paper states it, Sec. 6.2
        each["first"] = 1 - each.beyond["1"]
    for point in points:
        point["accuracy"] = statistics.mean(point.accuracies.values())
        point["worst"] = point.adversaries[point.strongest]
        point["first"] = max(each.first for each in point.adversaries.values())
    run["pairs"] = [(point.accuracy, point.worst.lrp) for point in run.curve]
    return run


@dataclass(frozen=True)
class Model:
    """One model over seeds; figures are lists over them, without noise if no point is named."""

    runs: list[Row]

    @property
    def part(self) -> Row:
        """Its attributes, cut and variant."""
        return self.runs[0].part

    @property
    def clear(self) -> list[Row]:
        """The points without noise."""
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
    def first(self) -> list[float]:
        """How often the right person is named first."""
        return [point.worst.first for point in self.clear]

    @property
    def inversions(self) -> list[Row]:
        """What a decoder restores."""
        return [run.inversion for run in self.runs if run.get("inversion")]

    @property
    def ranks(self) -> list[Row]:
        """Of each amount of noise, over seeds: `worst` against the strongest adversary, and errors of the nearest feature."""
        along = zip(*(run.curve for run in self.runs), strict=True)
        return [
            Row(
                ratio=points[0].ratio,
                accuracy=statistics.mean(point.accuracy for point in points),
                privacy=statistics.mean(point.worst.lrp for point in points),
                worst=[point.worst for point in points],
                nearest=[
                    error
                    for point in points
                    if (error := point.adversaries.density.get("nearest_neighbour_error")) is not None
                ],
            )
            for points in along
        ]

    @property
    def bounded(self) -> list[list[Row]]:
        """With a proof: of each amount of noise, seed by seed."""
        return [list(points) for points in zip(*(run.get("bounded", []) for run in self.runs), strict=True)]

    @property
    def devices(self) -> list[Row]:
        """The exported halves."""
        return [run.device for run in self.runs if run.get("device")]

    def cost(self, side: str, of: str) -> float:
        """The median over seeds, of the `device` or of the `whole` model there."""
        return float(statistics.median(device.costs[side][of] for device in self.devices))


def paired(*models: Model) -> list[tuple[Row, ...]]:
    """The runs of each seed that all models have."""
    of_models = [{run.seed: run for run in model.runs} for model in models]
    return [
        tuple(runs[seed] for runs in of_models)
        for seed in of_models[0]
        if all(seed in runs for runs in of_models)
    ]


def over(ours: Model, theirs: Model) -> Row:
    """Whether one model's curve is above another's at every accuracy that both reach, seed by seed."""
    found = [superior(own.pairs, beside.pairs) for own, beside in paired(ours, theirs)]
    held, gains = [bool(each) for each in found], [each.mean for each in found]
    return Row(ours=ours.part.name, theirs=theirs.part.name, held=held, gains=gains)


@dataclass(frozen=True)
class World:
    """All models of one world, or only those of its sets of attributes."""

    name: str
    data: str
    models: dict[str, Model]

    @property
    def any(self) -> Row:
        """A run, for what all have in common."""
        return next(iter(self.models.values())).runs[0]

    @property
    def guessing(self) -> float:
        """Log-rank privacy against who guesses blindly."""
        return self.any.curve[0].adversaries.density.guessing

    @property
    def sets(self) -> list[str]:
        """Sets of attributes, the smallest first."""
        return list(dict.fromkeys(model.part.attributes for model in self.models.values()))

    def model(self, variant: str, cut: str = LAST, attributes: str | None = None) -> Model:
        """Of a set of attributes, or of the first."""
        return self.models[f"{attributes or self.sets[0]}-{cut}-{variant}"]

    @property
    def network(self) -> dict[str, list[float]]:
        """Accuracies of the network without a feature, over seeds."""
        runs = next(iter(self.models.values())).runs
        return {target: [run.network[target] for run in runs] for target in runs[0].network}

    @property
    def betas(self) -> Row:
        """How much privacy weighs: what was tried on validation images, from least to most, and chosen."""
        found = record(f"features/{self.name}-betas")
        tried = {
            of: Row(sorted(each.items(), key=lambda pair: float(pair[0]))) for of, each in found.tried.items()
        }
        return Row(found, tried=tried)

    @cached_property
    def over_simple(self) -> list[Row]:
        """DPFE over Simple, cut by cut."""
        return [over(self.model("dpfe", cut), self.model("simple", cut)) for cut in CUTS]

    @cached_property
    def over_dpfe(self) -> list[Row]:
        """The other ways to lose identity, over DPFE."""
        return [over(self.model(variant), self.model("dpfe")) for variant in VARIANTS[2:]]

    @cached_property
    def over_lower(self) -> list[Row]:
        """A higher cut over the one below it."""
        return [over(self.model("dpfe", high), self.model("dpfe", low)) for low, high in pairwise(CUTS)]

    @property
    def larger(self) -> list[Model]:
        """DPFE for each set of attributes, from the smallest."""
        return [self.model("dpfe", attributes=name) for name in self.sets]

    @property
    def falls(self) -> bool:
        """Whether privacy falls with each attribute that is added."""
        means = [statistics.mean(model.privacy) for model in self.larger]
        return all(more > less for more, less in pairwise(means))

    @property
    def together(self) -> list[bool]:
        """Of each seed, whether DPFE of all attributes is less private than of each alone."""
        return [
            both.curve[0].worst.lrp < min(run.curve[0].worst.lrp for run in alone)
            for *alone, both in paired(*self.larger)
        ]

    @property
    def held_in_sets(self) -> list[bool]:
        """Of each set and seed, whether DPFE's curve is above that of the plain feature."""
        pairs = [over(self.model("dpfe", LAST, name), self.model("simple", LAST, name)) for name in self.sets]
        return [held for pair in pairs for held in pair.held]

    @property
    def halves(self) -> list[Row]:
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


def world(name: str, data: str = "") -> World:
    """The records of a world, by model."""
    models: dict[str, list[Row]] = {}
    for run in sorted(map(_complete, records(f"features/{name}-[0-9]*")), key=_order):
        models.setdefault(run.part.name, []).append(run)
    return World(name, data, {part: Model(runs) for part, runs in models.items()})


def _order(run: Row) -> tuple[int, int, int]:
    return len(run.part.attributes), CUTS.index(run.part.cut), VARIANTS.index(run.part.variant)


def normal_is_over(worlds: list[World]) -> list[float]:
    """How much more the paper states from mean and deviation than is counted: of all models, seeds and amounts of noise."""
    runs = [run for each in worlds for model in each.models.values() for run in model.runs]
    found = [point.worst for run in runs for point in run.curve if point.worst.tenth is not None]
    return [each.tenth_if_normal - each.tenth for each in found]


def cut_costs() -> Row:
    """The record of studies/cuts.py; `beyond`: how much more than the lowest of the paper's four, which it compares with."""
    found = record("cuts")
    costs = {cost.part: cost for cost in found.costs}
    for cost in found.costs:
        cost["beyond"] = Row({of: cost[of] / costs[CUTS[0]][of] - 1 for of in ("milliseconds", "memory")})
    found["all"] = costs["all"]
    found["rises"] = all(costs[a].milliseconds < costs[b].milliseconds for a, b in pairwise((*CUTS, "all")))
    return found


def values() -> dict[str, Any]:
    """What templates may use."""
    worlds = [world(name) for name in WORLDS]
    return {
        "feature_worlds": worlds,
        "feature_sets": [world(name, data) for name, data in OF_SETS.items()],
        "cut_costs": cut_costs(),
        "normal_is_over": normal_is_over(worlds),
        "cuts": CUTS,
        "variants": VARIANTS,
    }
