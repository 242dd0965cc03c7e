"""The noise of a tree: which nodes a sum is made of, what a task moves, and what that costs."""

import math

import pytest
import torch

from sfumato.dp.accounting import Stretch, epsilon
from sfumato.dp.clipping import TreeNoise, fresh_gaussian, tree_height
from sfumato.errors import ConfigError

SIZES = [1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 60, 64]


class Axes:
    """Each draw is an axis of its own, so that what is made of draws can be read exactly."""

    def __init__(self, most):
        self.most, self.drawn = most, 0

    def __call__(self, shape, std):
        drawn = torch.zeros(self.most, dtype=torch.float64)
        drawn[self.drawn] = std
        self.drawn += 1
        return drawn


def increments(steps, std=1.0):
    """(steps, draws): what each step's noise is made of."""
    axes = Axes(steps)
    tree = TreeNoise(steps, axes)
    return torch.stack([tree((steps,), std) for _ in range(steps)])


def blocks(steps):
    """The largest block that ends at each step, which is drawn there: (first, step after the last)."""
    return [
        (end - 2**level, end)
        for end in range(1, steps + 1)
        for level in [(end & -end).bit_length() - 1]  # the largest block that ends here
    ]


def nodes(steps):
    """All nodes of the tree: each complete block that begins at a multiple of its size."""
    return [
        (first, first + 2**level)
        for level in range(steps.bit_length())
        for first in range(0, steps - 2**level + 1, 2**level)
    ]


@pytest.mark.parametrize("steps", SIZES)
def test_a_sum_has_the_noise_of_the_blocks_of_its_binary_digits(steps):
    sums = increments(steps).cumsum(0)  # (t, draws)
    for t in range(1, steps + 1):
        digits = [level for level in range(t.bit_length()) if t >> level & 1]
        ends, at = [], 0
        for level in reversed(digits):  # the largest block first
            at += 2**level
            ends.append(at - 1)
        wanted = torch.zeros(steps, dtype=torch.float64)
        wanted[ends] = 1.0  # the draw that was made when the block ended
        assert torch.equal(sums[t - 1], wanted)


@pytest.mark.parametrize("steps", SIZES)
def test_the_covariance_of_two_sums_is_the_number_of_blocks_that_they_share(steps):
    sums = increments(steps, std=3.0).cumsum(0)
    covariance = sums @ sums.T
    for s in range(1, steps + 1):
        for t in range(s, steps + 1):
            shared, rest = 0, s ^ t  # digits above the highest one in which s and t differ
            for level in range(rest.bit_length() if s != t else 0, t.bit_length()):
                shared += t >> level & 1
            assert covariance[s - 1, t - 1] == 9.0 * shared


@pytest.mark.parametrize("steps", SIZES)
def test_a_step_is_in_as_many_nodes_as_the_tree_is_high_and_not_in_more(steps):
    most = max(sum(first <= step < last for first, last in nodes(steps)) for step in range(steps))
    assert most == tree_height(steps) == math.floor(math.log2(steps)) + 1


@pytest.mark.parametrize("steps", SIZES)
def test_what_is_released_is_a_function_of_noised_nodes_that_a_step_moves_by_the_root_of_the_height(steps):
    # All increments are B (S x + z): S sums blocks, z is independent, and B S is the identity.
    made_of = increments(steps)  # (steps, nodes that are used)
    summed = torch.zeros(steps, steps, dtype=torch.float64)
    for node, (first, last) in enumerate(blocks(steps)):
        summed[node, first:last] = 1.0
    torch.testing.assert_close(made_of @ summed, torch.eye(steps, dtype=torch.float64), rtol=0, atol=0)
    assert summed.square().sum(0).max() <= tree_height(steps)  # of one task, with a contribution of norm 1


def test_a_tree_costs_what_one_gaussian_of_its_height_costs():
    z, steps, trees = 2.0, 100, 3
    each = [Stretch(z, 1.0, tree_height(steps) * trees)]  # every node by itself, each once for each tree
    together = [Stretch(z / math.sqrt(tree_height(steps)), 1.0, trees)]
    assert epsilon(each, 1e-5) == pytest.approx(epsilon(together, 1e-5), rel=1e-9)


def test_a_tree_with_too_many_steps_is_refused():
    tree = TreeNoise(4, fresh_gaussian)
    for _ in range(7):  # what fits into its height
        tree((2,), 1.0)
    with pytest.raises(ConfigError, match="a tree of height 3 is full: begin a new one"):
        tree((2,), 1.0)


def test_a_restart_keeps_the_noise_that_the_sum_has_and_pays_for_new_noise():
    axes = Axes(8)
    tree = TreeNoise(4, axes)
    before = sum(tree((8,), 1.0) for _ in range(4))
    tree.restart()
    after = before + sum(tree((8,), 1.0) for _ in range(3))
    assert before.tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
    assert after.tolist() == [0, 0, 0, 1, 0, 1, 1, 0]


def test_fresh_noise_of_a_tree_stays_on_the_grid_of_its_nodes_exactly():
    tree = TreeNoise(64, fresh_gaussian)
    drawn = torch.stack([tree((50,), 0.7) for _ in range(64)])
    grid = drawn * 2.0**41  # nodes lie on multiples of 2^-41 for this deviation
    assert torch.equal(grid, grid.round())
    # The last sum is one node: nothing of the others is left, not even a rounding.
    assert torch.equal(drawn.sum(0), tree._nodes[6])


def test_a_tree_goes_on_exactly_from_its_state():
    tree, other = TreeNoise(8, fresh_gaussian), TreeNoise(8, fresh_gaussian)
    for _ in range(3):
        tree((4,), 1.0)
    other.restore(tree.state())

    zero = lambda shape, std: torch.zeros(shape, dtype=torch.float64)  # noqa: E731
    tree._draw = other._draw = zero
    assert torch.equal(tree((4,), 1.0), other((4,), 1.0))  # takes back the two nodes that were restored
