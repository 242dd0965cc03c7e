"""The promise of a private run to the tasks of its pool, and keeping it."""

import os
from collections.abc import Callable, Iterable
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
from sfumato.learn.meta.turns import Turns
from sfumato.learn.method import finite
from sfumato.learn.task_pool import (
    TaskPool,
    disjoint_pool,
    overlap_of,
    overlapping_pool,
    poisson,
)


class Promise:
    """The promise of a private run to the tasks of its pool. State: the account, the policy, who takes part.

    All its draws come from the operating system.
    """

    def __init__(
        self, private: Private, config: MetaConfig, data: LabelledImages, target: str, seed: int
    ) -> None:
        label, original, tasks = data.label(target), data.labels.get("original"), private.pool_tasks
        self._data = data
        self.pool: TaskPool = (
            disjoint_pool(label, config.shape, seed=seed, original=original)
            if tasks is None
            else overlapping_pool(label, config.shape, tasks=tasks, seed=seed, original=original)
        )
        self._classes = class_digests(label)
        if config.tasks > len(self.pool):
            raise ConfigError(
                f"tasks={config.tasks}: the pool has {len(self.pool)} tasks, and a step can have no more"
            )
        self._turns = Turns(len(self.pool), config.tasks, seed) if private.noise == "tree" else None
        self._rate = config.tasks / len(self.pool) if self._turns is None else 1.0
        self._account = accounting.Accountant(private.epsilon, private.delta, len(self.pool))
        self._private = private
        self._settings = private.settings
        # Parsed here, so that a wrong setting fails before any image is read.
        self._policy: clipping.ClippingPolicy | None = (
            None if private.start_noise is not None else clipping.parse(private.clipping, private.settings)
        )
        if private.start_noise is not None:
            clipping.parse(private.clipping, {**private.settings, "start": 1.0})
        self.follows_norm = clipping.POLICIES[private.clipping].follows_norm
        self.inner_noise = private.inner_noise
        self._noise, self._price = self._multipliers(config.steps)
        self._done = 0
        self.draws = fresh_generator()

    def _multipliers(self, steps: int) -> tuple[float, float]:
        """Noise multipliers: of a step, or of a node in a tree; and of the part that is charged at once."""
        private, turns = self._private, self._turns
        charges = steps if turns is None else turns.epochs(steps)
        if private.noise_multiplier is not None:
            given = private.noise_multiplier
            return given, given if turns is None else turns.of_epoch(given)
        least = accounting.calibrate(private.epsilon, private.delta, self._rate, charges, self._before)
        return least if turns is None else turns.of_node(least), least

    def begin(self, norms: Callable[[TaskPool], Tensor]) -> None:
        """Before the first step: finds the first norm, if it is sought among the tasks."""
        if self._policy is not None:
            return
        asked = self._private.start_noise
        assert asked is not None
        self._account.step(asked, 1.0)  # every task takes part
        start = clipping.private_start(norms(self.pool), noise_multiplier=asked, draw=clipping.fresh_gaussian)
        self._take({**self._private.settings, "start": start})

    def _take(self, settings: dict[str, float]) -> None:
        self._settings = settings
        self._policy = clipping.parse(self._private.clipping, settings)

    @property
    def policy(self) -> clipping.ClippingPolicy:
        """The policy, once it has begun."""
        assert self._policy is not None
        return self._policy

    def charge(self) -> bool:
        """Charges a step, before a task is drawn for it; False if the budget has no room for it.

        In a tree an epoch is charged with its first step, and covers the others.
        """
        if self._turns is None or self._turns.begins(self._done):
            try:
                self._account.step(self._price, self._rate)
            except BudgetExceededError:
                if self._account.stretches == tuple(self._before):
                    raise  # not even one step: the user has to know
                return False
            if self._turns is not None:
                self._turns.tree.restart()
        self._done += 1
        return True

    def check(self) -> None:
        """Raises BudgetExceededError if the budget has no room for the start and the first step."""
        account = accounting.Accountant(self._account.epsilon, self._account.delta, len(self.pool))
        for stretch in (*self._before, accounting.Stretch(self._price, self._rate, 1)):
            account.step(stretch.noise_multiplier, stretch.rate)

    def draw(self, shape: Shape) -> Tensor:
        """(T, N, K + Q) rows of the tasks that take part in the charged step; maybe none."""
        numbers = (
            poisson(len(self.pool), self._rate)
            if self._turns is None
            else self._turns.numbers(self._done - 1)
        )
        return self.pool.draw(numbers, shape, self.draws)

    def release(self, contributed: Iterable[Tensor]) -> clipping.Outcome:
        """(t, D) contributions of some tasks at a time -> the noised mean, all that is seen of them."""
        turns = self._turns
        return self.policy.step_over(
            map(self._split, contributed),
            noise_multiplier=self._noise,
            public_count=self._rate * len(self.pool) if turns is None else turns.count,
            draw=clipping.fresh_gaussian if turns is None else turns.tree,
        )

    def _split(self, contributed: Tensor) -> clipping.Part:
        return (contributed[:, :-1], contributed[:, -1]) if self.follows_norm else (contributed, None)

    def state(self) -> dict[str, Any]:
        """The state of a checkpoint."""
        return {
            "account": self._account.state,
            "settings": self._settings,
            "policy": self.policy.state(),
            "noise": self._noise,
            "tree": {} if self._turns is None else self._turns.tree.state(),
        }

    def restore(self, state: dict[str, Any], done: int) -> None:
        """Continues to count from a checkpoint. Raises ValueError if the account lacks some steps."""
        self._account = accounting.Accountant.resume(state["account"])
        charges = done if self._turns is None else self._turns.epochs(done)
        if sum(stretch.steps for stretch in self._account.stretches) != charges + len(self._before):
            raise ValueError("the account does not match the steps that were taken")
        self._take(state["settings"])
        self.policy.restore(state["policy"])
        self._noise, self._done = state["noise"], done
        if self._turns is not None:
            self._turns.tree.restore(state["tree"])

    @property
    def _before(self) -> list[accounting.Stretch]:
        """The cost of the start."""
        noise = self._private.start_noise
        return [] if noise is None else [accounting.Stretch(noise, 1.0, 1)]

    def card(self, computed: str) -> dict[str, Any]:
        """The promise and its limits; `computed` is the way of computing contributions."""
        spent = self._account.cost()
        # Equal pixels are one picture, too; the pool was made before any image was looked at.
        overlap, turns = overlap_of(self.pool.tasks, originals(self._data)), self._turns
        changed = "added or removed" if turns is None else "there or its place left empty"
        card: dict[str, Any] = {
            "unit": (
                f"one task of the pool, {changed}, with all images of its classes"
                if overlap == 1
                else f"one task of the pool, {changed}, while its images stay in up to {overlap - 1} "
                "others; of an image see image_epsilon, null where nothing finite is proved"
            ),
            "pool": len(self.pool),
            "clipping": self.policy.name,
            "noise_multiplier": self._noise,
            "rate": self._rate if turns is None else 1 / turns.steps,
            **({} if turns is None else {"tree": turns.card()}),
            "accountant": "PLD",
            "epsilon": spent.pld,
            "delta": spent.delta,
            "rdp": spent.rdp,
            "gdp_approximation": spent.gdp,
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
            stretches = self._account.stretches
            card["image_epsilon"] = finite(accounting.image_epsilon(overlap, stretches, spent.delta))
        return card


def fresh_generator() -> torch.Generator:
    """A generator for draws of tasks and images that must stay secret: seeded by the operating system."""
    return torch.Generator().manual_seed(int.from_bytes(os.urandom(7), "big"))
