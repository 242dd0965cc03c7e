"""The promise of a private run to the tasks of its pool, and keeping it."""

import os
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from sfumato.data.copies import originals
from sfumato.data.labelled import LabelledImages
from sfumato.dp import accounting, clipping
from sfumato.episodes import Shape
from sfumato.errors import BudgetExceededError, ConfigError
from sfumato.learn.meta.config import MetaConfig, Private
from sfumato.learn.meta.model import class_digests
from sfumato.learn.method import finite
from sfumato.learn.task_pool import disjoint_pool, overlap_of, overlapping_pool, poisson


class Promise:
    """The promise of a private run to the tasks of its pool. State: the account, the policy, who takes part.

    All its draws come from the operating system.
    """

    def __init__(
        self, private: Private, config: MetaConfig, data: LabelledImages, target: str, seed: int
    ) -> None:
        label, original, tasks = data.label(target), data.labels.get("original"), private.pool_tasks
        self._data = data
        self.pool = (
            disjoint_pool(label, config.shape, seed=seed, original=original)
            if tasks is None
            else overlapping_pool(label, config.shape, tasks=tasks, seed=seed, original=original)
        )
        self._classes = class_digests(label)
        if config.tasks > len(self.pool):
            raise ConfigError(
                f"tasks={config.tasks}: the pool has {len(self.pool)} tasks, and a step can have no more"
            )
        self.rate = config.tasks / len(self.pool)
        # Parsed here, so that a wrong setting fails before any image is read.
        self.policy = clipping.parse(private.clipping, private.settings)
        self.inner_noise = private.inner_noise
        given = private.noise_multiplier
        if given is None:
            given = accounting.calibrate(private.epsilon, private.delta, self.rate, config.steps)
        self.noise = given
        self._account = accounting.Accountant(
            private.epsilon, private.delta, len(self.pool), noise_multiplier=self.noise, rate=self.rate
        )
        self.draws = fresh_generator()

    def charge(self) -> bool:
        """Charges a step, before a task is drawn for it; False if the budget has no room for it."""
        try:
            self._account.step()
        except BudgetExceededError:
            if not self._account.done:
                raise  # not even one step: the user has to know
            return False
        return True

    def draw(self, shape: Shape) -> Tensor:
        """(T, N, K + Q) rows of the tasks that take part in the charged step; maybe none."""
        return self.pool.draw(poisson(len(self.pool), self.rate), shape, self.draws)

    def release(self, contributed: Iterable[Tensor]) -> clipping.Outcome:
        """(t, D) contributions of some tasks at a time -> the noised mean, all that is seen of them."""
        return self.policy.step_over(
            map(self.split, contributed),
            noise_multiplier=self.noise,
            public_count=self.rate * len(self.pool),
            draw=clipping.fresh_gaussian,
        )

    def split(self, contributed: Tensor) -> clipping.Part:
        """(t, D) contributions -> those of the parameters, and the derivatives by C, if it is followed."""
        if self.policy.follows_norm:
            return contributed[:, :-1], contributed[:, -1]
        return contributed, None

    def state(self) -> dict[str, Any]:
        """The state of a checkpoint."""
        return {"charged": [self.noise, self._account.done], "policy": self.policy.state()}

    def restore(self, state: dict[str, Any], done: int) -> None:
        """Continues to count from a checkpoint. Raises ValueError if the account lacks some steps."""
        if state["charged"] != [self.noise, done]:
            raise ValueError("the account does not match the steps that were taken")
        self._account.restore(done)
        self.policy.restore(state["policy"])

    def card(self, computed: str) -> dict[str, Any]:
        """The promise and its limits; `computed` is the way of computing contributions."""
        # Equal pixels are one picture, too; the pool was made before any image was looked at.
        overlap = overlap_of(self.pool.tasks, originals(self._data))
        card: dict[str, Any] = {
            "unit": (
                "one task of the pool, added or removed, with all images of its classes"
                if overlap == 1
                else "one task of the pool, added or removed, while its images stay in up to "
                f"{overlap - 1} others; of an image see image_epsilon, null where nothing finite is proved"
            ),
            "pool": len(self.pool),
            "clipping": self.policy.name,
            "noise_multiplier": self.noise,
            "rate": self.rate,
            "accountant": "PLD",
            "epsilon": self._account.cost(),
            "delta": self._account.delta,
            "rdp": self._account.cost("rdp"),
            "gdp_approximation": self._account.cost("gdp"),
            "images_overlap": overlap,
            "classes": self._classes,
            "not_covered": [
                "the support and query images of those who use the model",
                "the number of tasks, which classes there are, which of them have enough images, and in how "
                "many tasks a picture is",
            ],
        }
        if computed != "loop":
            card["not_covered"].append(
                "floating point: tasks are computed in one call, where rounding may tell who else is there"
            )
        if overlap > 1:
            grouped = [stretch.of_group(overlap) for stretch in self._account.stretches]
            card["image_epsilon"] = finite(accounting.epsilon(grouped, self._account.delta))
        return card


def fresh_generator() -> torch.Generator:
    """A generator for draws of tasks and images that must stay secret: seeded by the operating system."""
    return torch.Generator().manual_seed(int.from_bytes(os.urandom(7), "big"))
