"""Training until the validation stops improving: the number of steps, the rate, and the validation curve.

An adversary who stops early flatters the protection. The learning rate stays constant until the validation
figure of held-out people stops rising, and then falls to 0 while training continues for half as long again
(Hägele et al. 2024, Sec. 3: as good as a cosine of the same length, which need not be known in advance). If
the ceiling or a budget of minutes comes first, the rate falls in its last third, and the result is a lower
bound; one that minutes ended depends on the machine.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sfumato.base.hardware import fuses
from sfumato.errors import ConfigError

_COOLING = 1 / 3  # share of all steps, at a falling rate
_CHECKS = 20  # validations up to the ceiling
_LEAST_BETWEEN = 25  # steps between two of them, except for the last
_PATIENCE = 4  # validations without a gain
_FEWEST = 10  # least number of people for holding some out


def check_bounds(settings: object, *above_0: str, **least: float) -> None:
    """Raise ConfigError for a setting below its least value or not `above_0`, or that is not finite."""
    for name, bound in least.items():
        if not bound <= getattr(settings, name) < math.inf:
            raise ConfigError(f"{name}={getattr(settings, name)}: at least {bound}")
    for name in above_0:
        if not 0 < getattr(settings, name) < math.inf:
            raise ConfigError(f"{name}={getattr(settings, name)}: above 0")


class Validation(NamedTuple):
    """A figure for the quality of a network; higher is better."""

    figure: str  # its name
    judge: Callable[[], float]  # returns it for the network in evaluation mode
    gain: float  # the least rise that counts


@dataclass(frozen=True, kw_only=True)
class Training:
    """The course of a training; without a figure if nobody could be held out."""

    steps: int  # made
    ceiling: int  # the most allowed
    figure: str | None = None
    curve: tuple[tuple[int, float], ...] = ()  # steps made, and the figure then; ascending
    flat: bool | None = None  # whether the figure stopped rising before the ceiling
    minutes: float | None = None  # the budget, if it ended the training


def train(
    loss: Callable[[int], Tensor],
    model: nn.Module,
    *,
    beside: tuple[nn.Parameter, ...] = (),
    ceiling: int,
    learning_rate: float,
    validation: Validation | None = None,
    progress: Callable[[int, int], None] | None = None,
    minutes: float = math.inf,
) -> Training:
    """Train a model by Adam until its figure no longer rises; it is left in evaluation mode.

    Guarantees: no more steps than the ceiling; the final weights are those of the best validation.

    `loss` maps a step, from 0, to the loss of the model on a batch; `beside`: further parameters to train.
    `ceiling`: the most steps; all of them without validation, if nobody could be held out and time allows.
    """
    parameters = [*model.parameters(), *beside]
    optimiser = torch.optim.Adam(parameters, lr=learning_rate, fused=fuses(parameters))
    every = max(_LEAST_BETWEEN, -(-ceiling // _CHECKS))
    cooling_from, end = ceiling - int(_COOLING * ceiling), ceiling
    flat, spent, step = False, False, 0
    cooling_at = time.monotonic() + 60 * minutes * (1 - _COOLING)
    curve: list[tuple[int, float]] = []
    best = risen_to = -math.inf
    stale, weights = 0, dict[str, Tensor]()  # validations without a gain; of the best one
    while step < end:
        for group in optimiser.param_groups:
            group["lr"] = learning_rate * min(1.0, (end - step) / (end - cooling_from + 1))
        model.train()
        loss(step).backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        step += 1
        if validation is not None and (step % every == 0 or step == end):
            model.eval()
            with torch.no_grad():
                value = validation.judge()
            curve.append((step, value))
            if value > best:
                best, weights = value, {name: each.clone() for name, each in model.state_dict().items()}
            gained = value >= risen_to + validation.gain
            risen_to, stale = (value, 0) if gained else (risen_to, stale + 1)
            flat = flat or (step < cooling_from and stale >= _PATIENCE)
        spent = spent or (step < cooling_from and not flat and time.monotonic() > cooling_at)
        if step < cooling_from and (flat or spent):
            cooling_from, end = step, step + math.ceil(step * _COOLING / (1 - _COOLING))
        if progress is not None:
            progress(step, end)
    model.eval()
    budget = minutes if spent else None
    if validation is None:
        return Training(steps=step, ceiling=ceiling, minutes=budget)
    if weights:  # none if the figure never was a number
        model.load_state_dict(weights)
    return Training(
        steps=step, ceiling=ceiling, figure=validation.figure, curve=tuple(curve), flat=flat, minutes=budget
    )


def hold_out(people: Tensor, *, most: int, seed: int) -> Tensor:
    """Hold out a tenth of the people, or fewer, two at least, with `most` photographs; of nine nobody."""
    names, photographs = people.unique(return_counts=True)
    if len(names) < _FEWEST:
        return torch.zeros(len(people), dtype=torch.bool)
    order = torch.randperm(len(names), generator=torch.Generator().manual_seed(seed))
    enough = int((photographs[order].cumsum(0) < most).sum()) + 1
    return torch.isin(people, names[order[: max(2, min(enough, len(names) // 10))]])
