"""Tasks that take turns: each once in an epoch, in a public order, with noise that the steps share.

Source: Kairouz et al. 2021 (arXiv:2103.00039), DP-FTRL with a new tree for each epoch ("TreeRestart" there).
Nobody is drawn by chance, and the participants are not secret. All steps of an epoch together cost, for a
task, exactly as much as one Gaussian mechanism, and epochs add up as such.

The position of a task in this order stays empty if the task is not in the pool.
"""

import math
from typing import Any

import torch
from torch import Tensor

from sfumato.dp import clipping
from sfumato.dp.clipping import TreeNoise, tree_height
from sfumato.episodes import seed_of


class Turns:
    """The tasks of each step of an epoch, and its noise. State: the tree, which is secret."""

    def __init__(self, pool: int, tasks: int, seed: int) -> None:
        """For a pool of this size, `tasks` a step at most; the seed decides the order."""
        self._pool, self._seed = pool, seed
        self.steps = math.ceil(pool / tasks)
        self.height = tree_height(self.steps)
        self.tree = TreeNoise(self.steps, lambda shape, std: clipping.fresh_gaussian(shape, std))

    @property
    def count(self) -> float:
        """The mean number of tasks of a step over an epoch."""
        return self._pool / self.steps

    def of_epoch(self, node: float) -> float:
        """The noise multiplier of a whole epoch, from that of a node."""
        return node / math.sqrt(self.height)

    def of_node(self, epoch: float) -> float:
        """The noise multiplier of a node, from that of a whole epoch."""
        return epoch * math.sqrt(self.height)

    def begins(self, step: int) -> bool:
        """Whether an epoch begins with this step, counted from 0."""
        return step % self.steps == 0

    def epochs(self, steps: int) -> int:
        """How many epochs begin within these steps."""
        return math.ceil(steps / self.steps)

    def numbers(self, step: int) -> Tensor:
        """(T,) the tasks of a step, counted from 0."""
        epoch, at = divmod(step, self.steps)
        order = torch.randperm(
            self._pool, generator=torch.Generator().manual_seed(seed_of(self._seed, epoch))
        )
        return order.tensor_split(self.steps)[at]

    def card(self) -> dict[str, Any]:
        """The entries of a card."""
        return {"steps": self.steps, "height": self.height}
