"""The attack: from shared gradients to images."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.attack.gradient_inversion.config import InversionConfig
from sfumato.attack.gradient_inversion.optimise import (
    Candidate,
    Guess,
    Objective,
    follow,
    gradient_moves,
    start_of,
)
from sfumato.attack.gradient_inversion.threat import Problem, ThreatModel, in_common, problem_of
from sfumato.attack.gradient_inversion.victim import Gradients, Loss, Victim, tracking_norms
from sfumato.errors import ConfigError, DataError


@dataclass(frozen=True)
class Inversion:
    """The rebuilt images.

    Attributes:
        images: (B, C, H, W) float32 in [0, 1], in the order of `labels`, which may differ from that of the
            batch: see assess.matching.
        labels: (B,) int64, given, inferred or optimised.
        cost: distance of the gradients of these images from the shared ones, without priors.
        costs: (R,) of each restart; infinite if it diverged.
        history: (S,) the cost of the best restart at each step of Adam, or each 20 of L-BFGS.
    """

    images: Tensor
    labels: Tensor
    cost: float
    costs: Tensor
    history: Tensor = field(repr=False)


def invert(
    model: nn.Module,
    shared: Gradients,
    knows: ThreatModel,
    config: InversionConfig,
    *,
    loss: Loss = functional.cross_entropy,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Inversion:
    """Rebuild the images behind one gradient; see `invert_all`."""
    (inversion,) = invert_all(model, [shared], [knows], config, loss=loss, seed=seed, progress=progress)
    return inversion


def invert_all(
    model: nn.Module,
    shared: Sequence[Gradients],
    knows: Sequence[ThreatModel],
    config: InversionConfig,
    *,
    loss: Loss = functional.cross_entropy,
    at_once: int = 16,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[Inversion]:
    """Rebuild the images behind several gradients of one model, each by itself.

    Args:
        model: float images in [0, 1] -> logits, in the mode of the gradients: in training mode its
            batch norm sees the statistics of the batch. It is not changed.
        shared: for each problem, maps every trained parameter's name to its gradient.
        knows: for each problem; they may differ in labels and statistics only.
        config: see InversionConfig; DLG, IDLG, INVERTING_GRADIENTS and GRAD_ATTACK are published ones.
        loss: the client's loss of logits and labels. Optimised labels are probabilities.
        at_once: guesses that Adam follows as one batch: several times as fast as one by one for small
            networks, with as many times the memory. L-BFGS follows one at a time.
        seed: decides the starts of guesses.
        progress: called after each step with the numbers done and planned.

    Raises:
        DataError: gradients do not fit the model, are not finite, or are all zero.
        ConfigError: labels are needed and unknown, statistics of a model without any, or a model whose
            gradient does not change with the image.
    """
    if not shared or len(shared) != len(knows):
        raise DataError(f"{len(shared)} gradients with {len(knows)} threat models: one of each, at least 1")
    if any(in_common(known) != in_common(knows[0]) for known in knows):
        raise ConfigError("problems of one call may differ in labels and statistics only: call once for each")
    victim = _victim(model, knows[0], config, loss)
    problems = [
        problem_of(victim, gradients, known, config, seed=seed + 1000 * number)
        for number, (gradients, known) in enumerate(zip(shared, knows, strict=True))
    ]
    guesses = [
        (
            problem,
            start_of(victim, knows[0], config, torch.Generator().manual_seed(seed + 1000 * number + restart)),
        )
        for number, problem in enumerate(problems)
        for restart in range(config.restarts)
    ]
    candidates = _follow_all(victim, guesses, config, at_once, progress)
    return [
        _best(number, problem, candidates[number * config.restarts : (number + 1) * config.restarts])
        for number, problem in enumerate(problems)
    ]


def _victim(model: nn.Module, knows: ThreatModel, config: InversionConfig, loss: Loss) -> Victim:
    norms = tracking_norms(model) if config.statistics else ()
    if config.statistics and not norms:
        raise ConfigError(
            f"statistics={config.statistics}: no batch norm of this model has running statistics: set it to 0"
        )
    return Victim(model, loss, knows.local_steps, knows.local_rate, norms, knows.local_batch)


def _follow_all(
    victim: Victim,
    guesses: Sequence[tuple[Problem, Guess]],
    config: InversionConfig,
    at_once: int,
    progress: Callable[[int, int], None] | None,
) -> list[Candidate]:
    """Follow all guesses. Raises ConfigError if no gradient changes with its guess."""
    if not any(gradient_moves(victim, problem, guess) for problem, guess in guesses):
        raise ConfigError(
            "the gradient of this model does not change with the image, as if ReLUs pass nothing or the "
            "second derivatives of its activations vanish: no guess can be improved"
        )
    many = 1 if config.optimiser == "lbfgs" else max(1, at_once)
    parts = [guesses[begin : begin + many] for begin in range(0, len(guesses), many)]
    candidates: list[Candidate] = []
    for done, part in enumerate(parts):

        def count(step: int, done: int = done) -> None:
            if progress is not None:
                progress(done * config.steps + step, len(parts) * config.steps)

        objective = Objective(victim, config, [problem for problem, _ in part])
        candidates += follow(objective, [guess for _, guess in part], config, count)
    return candidates


def _best(number: int, problem: Problem, candidates: Sequence[Candidate]) -> Inversion:
    """Choose the candidate of the least cost. Raises DataError if none has a finite one."""
    best = min(candidates, key=lambda candidate: candidate.cost)
    if best.cost == math.inf:
        raise DataError(
            f"problem {number}: no start led to finite numbers: use more restarts, or a lower rate"
        )
    labels = problem.labels if problem.labels is not None else best.labels.argmax(1).cpu()
    costs = torch.tensor([candidate.cost for candidate in candidates])
    return Inversion(best.images.float().cpu(), labels, best.cost, costs, best.history)
