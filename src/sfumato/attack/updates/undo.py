"""Take off an update what a server knows of it: the decay of weights, of L2 or L1.

Clients whose loss or optimiser pulls weights to 0 add c·W + s·sign(W) to their gradients: coupled or
decoupled, of one step or many, with momentum or without. The server has W. The gradient of a linear layer has
the rank of its images, so c and s are the numbers whose subtraction leaves the lowest rank. FedProx needs
nothing: µ·(W - W₀) is 0 in the first step, and a mixture of gradients later.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from sfumato.attack.spear import low_rank
from sfumato.attack.updates.update import Update, rounding
from sfumato.errors import DataError

_STEPS = 31  # of the search; each counts directions of a third of the energy of the one before
_LARGEST = 2048  # units of a layer, which take a minute
_LESS = 0.98  # of what the images do not explain is left, at most, if there was a decay
_FREE = 200  # numbers at least that they do not explain: two coefficients make a few vanish in any update


def undo_decay(model: nn.Module, update: Update) -> tuple[Update, tuple[float, float]]:
    """Subtract the decay of weights. -> the update without it; c and s, in units of the update.

    Both are 0 if no linear layer shows them, as with noise, or with as many images as units.

    Args:
        model: at the start of training.
        update: fitted to it.
    """
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    for name, change in update.change.items():
        if change.ndim != 2 or min(change.shape) > _LARGEST or not bool(change.any()):
            continue
        own, weight = change.double().cpu(), weights[name].double().cpu()
        error = rounding(change, weights[name], update.training.steps).cpu()
        found = _lowest_rank(own, weight)
        rest = own - _decay(found, weight)
        try:
            left = low_rank(rest, name, rounding=error)[0]
        except DataError:
            continue
        columns = left / left.norm(dim=0)
        tails = [float((each - columns @ (columns.T @ each)).norm()) for each in (own, rest)]
        if math.prod(side - left.shape[1] for side in own.shape) < _FREE or tails[1] > _LESS * tails[0]:
            continue
        undone = {each: value - _decay(found, weights[each]) for each, value in update.change.items()}
        bias = f"{name.removesuffix('weight')}bias"
        # Many clients decay no bias. The gradient by this layer's is a mixture of the columns of the other.
        lies = [
            float((each - columns @ (columns.T @ each)).norm())
            for each in (sent[bias].double().cpu() for sent in (update.change, undone) if bias in sent)
        ]
        if lies and lies[0] <= lies[1]:
            undone |= {each: value for each, value in update.change.items() if value.ndim == 1}
        return replace(update, change=undone), found
    return update, (0.0, 0.0)


def _decay(coefficients: tuple[float, float], weight: Tensor) -> Tensor:
    return coefficients[0] * weight + coefficients[1] * weight.sign()


def _lowest_rank(change: Tensor, weight: Tensor) -> tuple[float, float]:
    """Find c and s that make change - c·W - s·sign(W) of the lowest rank, all (m, n) float64.

    By reweighted least squares (Mohan & Fazel 2012): directions in which little is left count most.
    """
    if len(change) > len(change.T):
        change, weight = change.T, weight.T
    every = torch.stack([change, weight, weight.sign()])
    products = torch.einsum("imp,jnp->ijmn", every, every)  # (3, 3, m, m)
    own = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    floor = 0.0
    for step in range(_STEPS):
        energies, turn = torch.linalg.eigh(torch.einsum("i,j,ijmn->mn", own, own, products))
        floor = float(energies[-1]) if step == 0 else floor / 3
        counts = turn / (energies.clamp(min=0) + floor) @ turn.T
        sums = torch.einsum("mn,ijmn->ij", counts, products)
        own[1:] = -torch.linalg.lstsq(sums[1:, 1:], sums[1:, :1]).solution[:, 0]
    return -float(own[1]), -float(own[2])
