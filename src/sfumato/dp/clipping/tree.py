"""Noise that steps share: a binary tree gives it to the sum of all steps so far.

Source: Kairouz, McMahan, Song, Thakkar, Thakurta & Xu 2021 (arXiv:2103.00039), Algorithm 1 and its tree,
after Dwork et al. 2010 and Chan, Shi & Song 2011. Every complete block of 2^l steps that begins at a multiple
of 2^l is a node with its own noise. The sum of the first t steps is that of the blocks of t's binary
digits, and has their noise: the variance of at most log2(t) + 1 draws; independent noise has that of t.

A step is in at most one block of each size, so a task that takes part in one of n steps moves at most
`height(n)` nodes, each by C: together they are one Gaussian mechanism of σ = z / sqrt(height), also if
later steps depend on earlier releases (Theorem 4.1 there). Tasks need not be sampled by chance, and sampling
would not help.
"""

import itertools

import torch
from torch import Tensor

from sfumato.dp.clipping.noise import Draw
from sfumato.errors import ConfigError


def height(steps: int) -> int:
    """The most nodes that a step is in, in a tree of n >= 1 steps: floor(log2(n)) + 1."""
    return steps.bit_length()


class TreeNoise:
    """Noise for successive steps, a `Draw`: the difference that each adds to the noise of the sum so far.

    State: the noise of the nodes that the sum is made of now. It is as secret as the tasks.

    Each call draws the node that its step completes, and subtracts the noise of the nodes that this one
    replaces. So each call has to ask for the same deviation.
    """

    def __init__(self, steps: int, draw: Draw) -> None:
        """A tree for that many steps; `draw` makes the noise of a node."""
        self._height, self._draw = height(steps), draw
        self._nodes: dict[int, Tensor] = {}  # l -> the noise of a block of 2^l steps

    def restart(self) -> None:
        """Begins a new tree. The noise of the previous sum stays, and is not subtracted."""
        self._nodes = {}

    def __call__(self, shape: tuple[int, ...], std: float) -> Tensor:
        """The noise of the next step. -> float64 of `shape`.

        Args:
            shape: of the noise.
            std: the standard deviation of a node.

        Raises:
            ConfigError: the tree has no room for another step: it would be in more nodes than were charged.
        """
        level = next(n for n in itertools.count() if n not in self._nodes)
        if level >= self._height:
            raise ConfigError(f"a tree of height {self._height} is full: begin a new one, and charge it")
        fresh = self._draw(shape, std)
        replaced = [self._nodes.pop(n) for n in range(level)]
        self._nodes[level] = fresh
        return fresh - torch.stack(replaced).sum(0) if replaced else fresh

    def state(self) -> dict[str, list[float]]:
        """For a checkpoint: the noise of each node, flat, by the level of the node."""
        return {str(level): noise.flatten().tolist() for level, noise in self._nodes.items()}

    def restore(self, state: dict[str, list[float]]) -> None:
        """Resume from `state()`."""
        self._nodes = {int(level): torch.tensor(noise, dtype=torch.float64) for level, noise in state.items()}
