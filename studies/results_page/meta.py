"""Meta-learning: without a promise beside the literature, and clipping policies at equal proved bounds."""

import statistics
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from results_page.figures import differences, half_width
from results_page.reading import Record, read_all

CLEAN = ("maml-fully-connected-1shot", "maml-strided-5shot", "reptile-strided-5shot")
BUDGETS = (9.02, 3.0, 12.8)  # of the runs; what no budget bounds stands beside each
REGIMES = ("public", "disjoint", "overlapping", "narrow", "objects")
ALGORITHMS = {"maml": "MAML", "fomaml": "first-order MAML", "reptile": "Reptile", "meta-sgd": "Meta-SGD"}
POLICIES = ("untrained", "none", "fixed", "adaclip", "automatic", "quantile", "meta-clip")
ADAPTIVE = ("adaclip", "automatic", "quantile", "meta-clip")
TREE = "fixed, noise of a tree"


class About(Record):
    """What runs are grouped by; empty for runs without a promise."""

    regime: str = ""
    algorithm: str = ""
    shot: int = 0
    epsilon: float = 0.0
    policy: str = ""


class Config(Record):
    """Settings of a training."""

    algorithm: str
    network: str
    shot: int
    tasks: int


class Privacy(Record):
    """What a training spent."""

    epsilon: float
    gdp_approximation: float
    noise_multiplier: float
    rdp: float
    image_epsilon: float | None = None

    @property
    def bound_of_image(self) -> float | None:
        """Epsilon of an image, which is that of a task where nothing else is said; None: infinite."""
        return self.image_epsilon if "image_epsilon" in self.model_fields_set else self.epsilon


class Card(Record):
    """Of the model."""

    config: Config
    steps: int
    computed: str | None = None
    precision: str | None = None
    privacy: Privacy | None


class Test(Record):
    """How a model was tested."""

    episodes: int
    queries: int


class Run(Record):
    """One training."""

    name: str
    seed: int
    least: float | None
    accuracy: float
    half_width: float
    test: Test
    seconds: float | None
    threads: int
    about: About
    norms: list[float]
    card: Card

    @property
    def algorithm(self) -> str:
        """As papers write it."""
        return ALGORITHMS[self.card.config.algorithm]

    @property
    def reached(self) -> bool:
        """Whether the accuracy is that of the literature."""
        return self.accuracy >= (self.least or 0.0)


@dataclass(frozen=True)
class Policy:
    """The runs of one policy in one group, by seed."""

    name: str
    runs: list[Run]

    @cached_property
    def accuracies(self) -> dict[int, float]:
        """By seed."""
        return {run.seed: run.accuracy for run in self.runs}

    @property
    def privacy(self) -> Privacy | None:
        """What each run spent."""
        return self.runs[0].card.privacy

    @property
    def course(self) -> list[float]:
        """The norm after 0, 25, 50, 75 and 100% of the steps of the first run."""
        norms = self.runs[0].norms
        return [norms[round(part * (len(norms) - 1))] for part in (0, 0.25, 0.5, 0.75, 1)]


@dataclass(frozen=True)
class Gain:
    """By how much one policy is above another, over seeds."""

    policy: str
    group: "Group"
    mean: float
    half: float

    @property
    def better(self) -> bool:
        """Whether the interval is above 0."""
        return self.mean - self.half > 0

    @property
    def worse(self) -> bool:
        """Whether the interval is below 0."""
        return self.mean + self.half < 0


@dataclass(frozen=True)
class Group:
    """All policies of a regime, an algorithm, a number of shots and a budget."""

    regime: str
    algorithm: str
    shot: int
    epsilon: float
    policies: dict[str, Policy]

    def gain(self, policy: str, over: str) -> Gain:
        """Of one policy over another."""
        found = differences(self.policies[policy].accuracies, self.policies[over].accuracies)
        return Gain(policy, self, statistics.mean(found), half_width(found))

    def gained(self, policy: str, over: str) -> str:
        """The gain in points, with its interval where there are three seeds."""
        gain = self.gain(policy, over)
        text = f"{100 * gain.mean:+.1f}"
        return text if len(self.policies[policy].runs) < 3 else f"{text} ± {100 * gain.half:.1f}"

    def kept(self, policy: str) -> float:
        """The share of the accuracy without a promise that a policy keeps, in the mean over seeds."""
        return statistics.mean(self.policies[policy].accuracies.values()) / statistics.mean(
            self.policies["none"].accuracies.values()
        )

    @property
    def adaptive(self) -> list[Gain]:
        """Each adaptive policy over the fixed norm that it starts from, where both have three seeds."""
        gains = []
        for name, policy in self.policies.items():
            followed, _, start = name.partition(", from")
            fixed = f"fixed, C{start}" if start else "fixed"
            both = fixed in self.policies and min(len(policy.runs), len(self.policies[fixed].runs)) > 2
            if followed in ADAPTIVE and both:
                gains.append(self.gain(name, fixed))
        return gains


def groups(runs: list[Run]) -> list[Group]:
    """Of runs with a regime, those where a fixed norm and an untrained network stand beside the others."""
    keys = sorted(
        {(run.about.regime, run.about.algorithm, run.about.shot) for run in runs},
        key=lambda key: (REGIMES.index(key[0]), key[2], list(ALGORITHMS).index(key[1])),
    )
    found = []
    for regime, algorithm, shot in keys:
        for epsilon in BUDGETS:
            policies: dict[str, list[Run]] = {}
            for run in runs:
                bounded = run.card.privacy is None or run.about.epsilon == epsilon
                if (run.about.regime, run.about.algorithm, run.about.shot) == (
                    regime,
                    algorithm,
                    shot,
                ) and bounded:
                    policies.setdefault(run.about.policy, []).append(run)
            if {"fixed", "untrained"} <= policies.keys():
                ordered = sorted(policies, key=_order)
                found.append(
                    Group(regime, algorithm, shot, epsilon, {p: Policy(p, policies[p]) for p in ordered})
                )
    return found


def _order(policy: str) -> tuple[bool, int]:
    name, comma, _ = policy.partition(",")
    return bool(comma), POLICIES.index(name)


@dataclass(frozen=True)
class Private:
    """All private trainings and what stands beside them."""

    runs: list[Run]

    @cached_property
    def groups(self) -> list[Group]:
        """In the order of regimes."""
        return groups(self.runs)

    def of(self, regime: str) -> list[Group]:
        """The groups of a regime: MAML, 1-shot first, at the larger budget."""
        return [each for each in self.groups if each.regime == regime]

    @property
    def narrow(self) -> Group:
        """MAML, 1-shot, where something is learned."""
        return self.of("narrow")[0]

    @property
    def adaptive(self) -> list[Gain]:
        """Of adaptive clipping over fixed clipping."""
        return [gain for group in self.groups for gain in group.adaptive]

    def added(self, regime: str, *, private: bool) -> list[float]:
        """What training adds to a network that learned nothing: privately, or without clipping and noise."""
        return [
            group.gain(name, "untrained").mean
            for group in self.groups
            for name, policy in group.policies.items()
            if group.regime == regime and name != "untrained" and (policy.privacy is not None) == private
        ]

    @property
    def trees(self) -> Group | None:
        """The group that has noise from a tree beside independent noise."""
        return next((group for group in self.groups if TREE in group.policies), None)

    @property
    def courses(self) -> list[tuple[str, Policy]]:
        """The policies whose norm moves: MAML, 1-shot, at the smaller budget."""
        return [
            (group.regime, policy)
            for group in self.groups
            for name, policy in group.policies.items()
            if (group.algorithm, group.shot, group.epsilon) == ("maml", 1, BUDGETS[0])
            and name.partition(",")[0] in ("quantile", "meta-clip")
        ]

    @property
    def seeds(self) -> int:
        """The most that a policy has."""
        return max(len(policy.runs) for group in self.groups for policy in group.policies.values())

    @property
    def seconds(self) -> float:
        """Of all trainings that were not resumed."""
        return sum(run.seconds or 0.0 for run in self.runs)


class Choice(Record):
    """A setting that was chosen on validation classes: the accuracy with each value."""

    regime: str
    policy: str
    setting: str
    accuracies: dict[str, float]


def values() -> dict[str, Any]:
    """What templates may use."""
    runs = {run.name: run for run in read_all("meta", Run)}
    private = Private([run for run in runs.values() if run.about.regime])
    return {
        "meta_clean": [runs[name] for name in CLEAN],
        "meta_private": private,
        "meta_choices": read_all("meta-choice", Choice),
        "regimes": [regime for regime in REGIMES if private.of(regime)],
    }
