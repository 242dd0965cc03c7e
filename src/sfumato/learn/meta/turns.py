"""Tasks that take turns: each once in an epoch, in a public order, with noise that the steps share.

Source: Kairouz et al. 2021 (arXiv:2103.00039), DP-FTRL with a new tree for each epoch ("TreeRestart" there).
Nobody is drawn by chance, and who takes part is not secret. What a task moves in an epoch, all steps
together, costs what one Gaussian mechanism costs, exactly, and epochs add up as such.

The place of a task in this order stays empty where the task is not in the pool.
"""

import math
from typing import Any

import torch
from torch import Tensor

from sfumato.dp import clipping
from sfumato.dp.clipping import TreeNoise, tree_height
from sfumato.episodes import seed_of


class Turns:
    """Who takes part in which step, and the noise of it. State: the tree, which is secret.

    Attributes:
        steps: of an epoch.
        height: of the tree.
        tree: the noise.
    """

    def __init__(self, pool: int, tasks: int, seed: int) -> None:
        """For a pool of so many tasks, `tasks` a step at most; the seed decides the order."""
        self._pool, self._seed = pool, seed
        self.steps = math.ceil(pool / tasks)
        self.height = tree_height(self.steps)
        self.tree = TreeNoise(self.steps, lambda shape, std: clipping.fresh_gaussian(shape, std))

    @property
    def count(self) -> float:
        """How many tasks a step has, in the mean over an epoch."""
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
        """How many epochs so many steps begin."""
        return math.ceil(steps / self.steps)

    def numbers(self, step: int) -> Tensor:
        """(T,) which tasks take part in a step, counted from 0."""
        epoch, at = divmod(step, self.steps)
        order = torch.randperm(
            self._pool, generator=torch.Generator().manual_seed(seed_of(self._seed, epoch))
        )
        return order.tensor_split(self.steps)[at]

    def card(self) -> dict[str, Any]:
        """What a card says of them."""
        return {"steps": self.steps, "height": self.height}
