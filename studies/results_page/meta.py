"""Meta-learning: without a promise beside the literature, and clipping policies at equal proved bounds."""

import itertools
import statistics
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from results_page.figures import Gain, course, gain
from results_page.reading import Row, record, records

CLEAN = ("maml-fully-connected-1shot", "maml-strided-5shot", "reptile-strided-5shot")
BUDGETS = (9.02, 3.0, 12.8)  # of the runs; what no budget bounds stands beside each
REGIMES = ("public", "disjoint", "overlapping", "narrow", "objects")
ALGORITHMS = {"maml": "MAML", "fomaml": "first-order MAML", "reptile": "Reptile", "meta-sgd": "Meta-SGD"}
POLICIES = ("untrained", "none", "fixed", "adaclip", "automatic", "quantile", "meta-clip")
ADAPTIVE = ("adaclip", "automatic", "quantile", "meta-clip")


@dataclass(frozen=True)
class Policy:
    """The runs of one policy in one group."""

    name: str
    runs: list[Row]

    @property
    def accuracies(self) -> dict[int, float]:
        """By seed."""
        return {run.seed: run.accuracy for run in self.runs}

    @property
    def privacy(self) -> Row | None:
        """What each run spent; epsilon of an image is that of a task if nothing else is said, and None if infinite."""
        spent = self.runs[0].card.privacy
        return spent and Row({"image_epsilon": spent.epsilon} | spent)

    @property
    def course(self) -> list[float]:
        """The norm in the course of the first run."""
        return course(self.runs[0].norms)


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
        ours, theirs = self.policies[policy].accuracies, self.policies[over].accuracies
        return gain(ours, theirs, policy=policy, group=self)

    def kept(self, policy: str) -> float:
        """The share of the accuracy without a promise that a policy keeps, in the mean over seeds."""
        ours, whole = (self.policies[name].accuracies.values() for name in (policy, "none"))
        return statistics.mean(ours) / statistics.mean(whole)

    @property
    def adaptive(self) -> list[Gain]:
        """Each adaptive policy over the fixed norm that it starts from, if both have three seeds."""
        gains = []
        for name, policy in self.policies.items():
            followed, _, start = name.partition(", from")
            fixed = f"fixed, C{start}" if start else "fixed"
            both = fixed in self.policies and min(len(policy.runs), len(self.policies[fixed].runs)) > 2
            if followed in ADAPTIVE and both:
                gains.append(self.gain(name, fixed))
        return gains


def groups(runs: list[Row]) -> list[Group]:
    """Of runs with a regime, those in which a fixed norm and an untrained network stand beside the others."""
    alike = itertools.groupby(sorted(runs, key=_order), key=lambda run: _order(run)[:3])
    found = []
    for _, of in alike:
        of = list(of)
        about = of[0].about
        for epsilon in BUDGETS:
            policies: dict[str, list[Row]] = {}
            for run in of:
                if run.card.privacy is None or run.about.get("epsilon", 0.0) == epsilon:
                    policies.setdefault(run.about.policy, []).append(run)
            if {"fixed", "untrained"} <= policies.keys():
                named = {name: Policy(name, policies[name]) for name in policies}
                found.append(Group(about.regime, about.algorithm, about.shot, epsilon, named))
    return found


def _order(run: Row) -> tuple[int, int, int, bool, int]:
    about = run.about
    name, comma, _ = about.policy.partition(",")
    algorithm = list(ALGORITHMS).index(about.algorithm)
    return REGIMES.index(about.regime), about.shot, algorithm, bool(comma), POLICIES.index(name)


@dataclass(frozen=True)
class Private:
    """All private trainings and what stands beside them."""

    runs: list[Row]

    @cached_property
    def groups(self) -> list[Group]:
        """In the order of regimes: 1-shot first, MAML first, the larger budget first."""
        return groups(self.runs)

    def of(self, regime: str) -> list[Group]:
        """The groups of a regime."""
        return [each for each in self.groups if each.regime == regime]

    @property
    def adaptive(self) -> list[Gain]:
        """Of adaptive clipping over fixed clipping."""
        return [gain for group in self.groups for gain in group.adaptive]

    def added(self, regime: str, *, private: bool) -> list[float]:
        """What training adds to a network that learned nothing: privately, or without clipping and noise."""
        return [
            group.gain(name, "untrained").mean
            for group in self.of(regime)
            for name, policy in group.policies.items()
            if name != "untrained" and (policy.privacy is not None) == private
        ]


def values() -> dict[str, Any]:
    """What templates may use."""
    clean = [record(f"meta/{name}") for name in CLEAN]
    for run in clean:
        run["algorithm"] = ALGORITHMS[run.card.config.algorithm]
    private = Private([run for run in records("meta") if run.about.get("regime")])
    return {
        "meta_clean": clean,
        "meta_private": private,
        "meta_choices": records("meta-choice"),
        "regimes": [regime for regime in REGIMES if private.of(regime)],
    }
