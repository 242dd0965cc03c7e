"""Meta-Clip as it was published: clipping and noise inside the learning of tasks, and a norm that is learned."""

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from results_page.figures import Gain, course, gain
from results_page.meta import ALGORITHMS
from results_page.reading import Row, records

POLICIES = ("untrained", "none", "fixed", "adaclip", "quantile", "meta-clip")
BEST_START = "meta-clip from 1"  # of those that were tried with MAML and one example


@dataclass(frozen=True)
class Group:
    """All runs of an algorithm, a number of shots and an epsilon."""

    algorithm: str
    shot: int
    epsilon: float
    runs: list[Row]

    @property
    def name(self) -> str:
        """As papers write it."""
        return f"{ALGORITHMS[self.algorithm]}, {self.shot}-shot"

    def accuracies(self, policy: str) -> dict[int, float]:
        """By seed."""
        return {run.seed: run.accuracy for run in self.runs if run.policy == policy}

    @property
    def gains(self) -> list[Gain]:
        """Of Meta-Clip over a fixed norm and AdaClip, if both have three seeds."""
        return self._gains("meta-clip")

    @property
    def from_best(self) -> list[Gain]:
        """The same if C starts at BEST_START and not at the paper's median."""
        return self._gains(BEST_START)

    def _gains(self, policy: str) -> list[Gain]:
        own, others = self.accuracies(policy), {over: self.accuracies(over) for over in ("fixed", "adaclip")}
        return [
            gain(own, theirs, policy=over)
            for over, theirs in others.items()
            if len(own.keys() & theirs.keys()) > 2
        ]

    @property
    def starts(self) -> list[Row]:
        """The first seed's runs of Meta-Clip, by the start of C."""
        return [run for run in self.runs if run.policy.startswith("meta-clip") and run.seed == 0]

    def course(self, policy: str) -> list[float]:
        """The norm in the course of the first seed's run."""
        return next(course(run.norms) for run in self.runs if (run.policy, run.seed) == (policy, 0))


@dataclass(frozen=True)
class Published:
    """All runs."""

    runs: list[Row]

    @cached_property
    def groups(self) -> list[Group]:
        """By algorithm, shots and epsilon; the runs that have no noise stand beside each epsilon."""
        keys = {(list(ALGORITHMS).index(run.algorithm), run.shot, run.epsilon) for run in self.runs}
        groups = []
        for place, shot, epsilon in sorted(keys):
            algorithm = list(ALGORITHMS)[place]
            alike = [run for run in self.runs if (run.algorithm, run.shot) == (algorithm, shot)]
            own = [run for run in alike if run.epsilon == epsilon or run.policy == "none"]
            groups.append(Group(algorithm, shot, epsilon, own))
        return [group for group in groups if group.accuracies("fixed") and group.accuracies("meta-clip")]

    @property
    def gains(self) -> list[Gain]:
        """Of Meta-Clip, in all groups."""
        return list(itertools.chain(*(group.gains for group in self.groups)))

    @property
    def gains_from_best(self) -> list[Gain]:
        """The same, from the best start."""
        return list(itertools.chain(*(group.from_best for group in self.groups)))


def values() -> dict[str, Any]:
    """What templates may use."""
    runs = sorted(records("meta-clip"), key=lambda run: (run.seed, run.policy))
    return {
        "published": Published(runs),
        "course": course,
        "inner_policies": POLICIES,
        "best_start": BEST_START,
    }
