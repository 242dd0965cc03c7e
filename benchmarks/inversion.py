"""Gradient inversion: what a step costs beside the bare search, and guesses as one batch beside one by one.

    OMP_NUM_THREADS=1 python benchmarks/inversion.py

The bare search is a plain loop of the same step: the gradient of the guess, its cosine to what was shared,
total variation, the derivative by the guess, and Adam of torch.optim on its sign: at most 1.15 of it. 16
restarts as one batch: 4 times as fast as one by one on LeNet. A step of the ResNet is arithmetic, of which 16
restarts need 16 times as much: nothing is wanted there. One image of 32x32; the ResNet is in eval mode.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from timing import Line, in_turn, show
from torch import Tensor, nn
from torch.nn import functional

from sfumato.attack.gradient_inversion import INVERTING_GRADIENTS, invert_all
from sfumato.attack.victim import ThreatModel, share
from sfumato.networks import LeNet, ResNet

SHAPE, LABELS = (3, 32, 32), torch.tensor([3])
WEIGHT = 0.1  # of total variation
RESTARTS = 16
AT_MOST, BATCH_AT_LEAST = 1.15, 4
# Of each victim, steps alone and as a batch.
VICTIMS: dict[str, tuple[nn.Module, int, int]] = {
    "LeNet": (LeNet(SHAPE, 10), 100, 20),
    "ResNet-20": (ResNet(SHAPE, 10, depth=20).eval(), 12, 4),
}


def bare(model: nn.Module, shared: dict[str, Tensor], steps: int) -> None:
    parameters, target = list(model.parameters()), list(shared.values())
    guess = torch.rand(1, *SHAPE).requires_grad_()
    optimiser = torch.optim.Adam([guess], lr=0.1)
    for _ in range(steps):
        loss = functional.cross_entropy(model(guess), LABELS)
        found = torch.autograd.grad(loss, parameters, create_graph=True)
        product = sum((ours * theirs).sum() for ours, theirs in zip(found, target, strict=True))
        ours, theirs = (sum(each.square().sum() for each in side).sqrt() for side in (found, target))
        rough = guess.diff(dim=-1).abs().mean() + guess.diff(dim=-2).abs().mean()
        (slope,) = torch.autograd.grad(1 - product / (ours * theirs) + WEIGHT * rough, [guess])
        guess.grad = slope.sign()
        optimiser.step()
        with torch.no_grad():
            guess.clamp_(0, 1)


def attack(model: nn.Module, shared: dict[str, Tensor], steps: int, restarts: int, at_once: int) -> None:
    config = replace(
        INVERTING_GRADIENTS, total_variation=WEIGHT, labels="known", steps=steps, restarts=restarts
    )
    invert_all(model, [shared], [ThreatModel(shape=SHAPE, labels=LABELS)], config, at_once=at_once)


def lines(short: bool) -> Iterator[Line]:
    for name, (model, steps, few) in VICTIMS.items():
        shared = share(model, torch.rand(1, *SHAPE), LABELS)
        turns = in_turn(
            lambda model=model, shared=shared, steps=steps: attack(model, shared, steps, 1, 1),
            lambda model=model, shared=shared, steps=steps: bare(model, shared, steps),
            seconds=3 if short else 8,
        )
        yield turns.costs(
            f"inversion of {name}",
            against="a bare loop",
            unit="ms a step",
            scale=1e3 / steps,
            bound=AT_MOST,
        )
        ways = (RESTARTS, 1) if short else (RESTARTS, 1, 4)
        if short and name != "LeNet":
            continue
        turns = in_turn(
            *(lambda way=way, m=model, s=shared, few=few: attack(m, s, few, RESTARTS, way) for way in ways),
            seconds=5 if short else 20,
        )
        each = {"count": RESTARTS * few, "unit": "steps a second"}
        yield turns.rates(
            f"inversion of {name}, {RESTARTS} at once",
            against="one by one",
            bound=BATCH_AT_LEAST if name == "LeNet" else None,
            **each,
        )
        if not short:
            yield turns.rates(f"inversion of {name}, by fours", against="one by one", one=2, **each)


def main() -> None:
    show(lines(short=False))


if __name__ == "__main__":
    main()
