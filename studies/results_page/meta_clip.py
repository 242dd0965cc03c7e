"""Meta-Clip as it was published: clipping and noise inside the learning of tasks, and a norm that is learned."""

import statistics
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from results_page.figures import differences, half_width
from results_page.meta import ALGORITHMS
from results_page.reading import Record, read_all

POLICIES = ("untrained", "none", "fixed", "adaclip", "quantile", "meta-clip")
BEST_START = "meta-clip from 1"  # of those that were tried with MAML and one example
CLAIMED = 0.026  # the least that the paper says Meta-Clip adds


class Signs(Record):
    """Of dL/dC at the first parameters and norm: shares of tasks, and the mean."""

    above_0: float
    below_0: float
    mean: float


class Conditional(Record):
    """What the paper's accounting states, were the norm and the queries' gradients public."""

    gdp: float | None
    pld: float | None


class Noise(Record):
    """Of a run."""

    noise_multiplier: float
    conditional: Conditional


class Run(Record):
    """One training of one policy."""

    algorithm: str
    shot: int
    epsilon: float
    policy: str
    seed: int
    accuracy: float
    seconds: float
    steps: int
    noise: Noise
    norms: list[float]
    signs: Signs | None

    @property
    def course(self) -> list[float]:
        """The norm after 0, 25, 50, 75 and 100% of the steps."""
        return [self.norms[round(part * (len(self.norms) - 1))] for part in (0, 0.25, 0.5, 0.75, 1)]


@dataclass(frozen=True)
class Gain:
    """By how much Meta-Clip is above another policy, over seeds."""

    over: str
    mean: float
    half: float

    @property
    def claimed(self) -> bool:
        """Whether the interval is above 0, as the paper says."""
        return self.mean - self.half > 0


@dataclass(frozen=True)
class Group:
    """All runs of an algorithm, a number of shots and an epsilon."""

    algorithm: str
    shot: int
    epsilon: float
    runs: list[Run]

    @property
    def name(self) -> str:
        """As papers write it."""
        return f"{ALGORITHMS[self.algorithm]}, {self.shot}-shot"

    def accuracies(self, policy: str) -> dict[int, float]:
        """By seed."""
        return {run.seed: run.accuracy for run in self.runs if run.policy == policy}

    @cached_property
    def gains(self) -> list[Gain]:
        """Of Meta-Clip over a fixed norm and AdaClip, where both have three seeds."""
        return self._gains("meta-clip")

    @cached_property
    def from_best(self) -> list[Gain]:
        """The same where C starts at BEST_START and not at the paper's median."""
        return self._gains(BEST_START)

    def _gains(self, policy: str) -> list[Gain]:
        own, found = self.accuracies(policy), []
        for over in ("fixed", "adaclip"):
            apart = differences(own, self.accuracies(over))
            if len(apart) > 2:
                found.append(Gain(over, statistics.mean(apart), half_width(apart)))
        return found

    @property
    def starts(self) -> list[Run]:
        """The first seed's runs of Meta-Clip, by where C starts."""
        return [run for run in self.runs if run.policy.startswith("meta-clip") and run.seed == 0]

    def course(self, policy: str) -> list[float]:
        """The norm in the course of the first seed's run; see Run.course."""
        return next(run.course for run in self.runs if (run.policy, run.seed) == (policy, 0))


@dataclass(frozen=True)
class Published:
    """All runs."""

    runs: list[Run]

    @cached_property
    def groups(self) -> list[Group]:
        """By algorithm, shots and epsilon; the runs that have no noise stand beside each epsilon."""
        keys = dict.fromkeys((run.algorithm, run.shot, run.epsilon) for run in self.runs)
        groups = []
        for key in sorted(keys, key=lambda key: (list(ALGORITHMS).index(key[0]), key[1], key[2])):
            algorithm, shot, epsilon = key
            alike = [run for run in self.runs if (run.algorithm, run.shot) == (algorithm, shot)]
            own = [run for run in alike if run.epsilon == epsilon or run.policy == "none"]
            groups.append(Group(algorithm, shot, epsilon, own))
        return [group for group in groups if group.accuracies("fixed") and group.accuracies("meta-clip")]

    @property
    def gains(self) -> list[Gain]:
        """Of Meta-Clip, in all groups."""
        return [gain for group in self.groups for gain in group.gains]

    @property
    def gains_from_best(self) -> list[Gain]:
        """The same, from the best start."""
        return [gain for group in self.groups for gain in group.from_best]

    @property
    def from_best(self) -> list[Group]:
        """The groups in which it has three seeds from the best start, too."""
        return [group for group in self.groups if group.from_best]

    @property
    def main(self) -> Group:
        """MAML with one example, at the smaller epsilon."""
        return self.groups[0]

    @property
    def tested(self) -> list[Group]:
        """The groups in which Meta-Clip has three seeds, as others have."""
        return [group for group in self.groups if group.gains]

    @property
    def stuck(self) -> float:
        """The accuracy of the best run of Meta-SGD from the paper's start; guessing has 0.2."""
        return max(
            run.accuracy for run in self.runs if (run.algorithm, run.policy) == ("meta-sgd", "meta-clip")
        )

    @property
    def seconds(self) -> float:
        """Of all trainings."""
        return sum(run.seconds for run in self.runs)


def values() -> dict[str, Any]:
    """What templates may use."""
    runs = sorted(read_all("meta-clip", Run), key=lambda run: (run.seed, run.policy))
    return {"published": Published(runs), "inner_policies": POLICIES, "best_start": BEST_START}
