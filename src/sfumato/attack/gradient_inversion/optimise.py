"""Follow guesses: move them until their gradients equal the shared ones.

Guesses are optimised in units of a quarter around 0.5, close to the normalisation of images in the papers, so
that the papers' rates and weights mean the same here.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from sfumato.attack.gradient_inversion.config import InversionConfig
from sfumato.attack.gradient_inversion.threat import Problem, ThreatModel
from sfumato.attack.gradient_inversion.victim import Moments, Victim

_CENTRE, _UNIT = 0.5, 0.25
_LOW, _HIGH = (0 - _CENTRE) / _UNIT, (1 - _CENTRE) / _UNIT
_DECAY = 0.1
_ATTEMPTS = 5  # of L-BFGS, from new starts, if it diverges
_STRETCH = 20  # iterations of L-BFGS between checks
_REMEMBERED = 100  # steps that L-BFGS remembers
_LEAST = 1e-30
_BETAS, _EPSILON = (0.9, 0.999), 1e-8  # of Adam


def total_variation(images: Tensor) -> Tensor:
    """Return mean |dx| + mean |dy| of (..., H, W), over everything."""
    return images.diff(dim=-1).abs().mean() + images.diff(dim=-2).abs().mean()


@dataclass(frozen=True)
class Guess:
    """The start of a guess; labels only if they are optimised."""

    units: Tensor  # (B, C, H, W), see _images
    labels: Tensor | None  # (B, classes) logits
    generator: torch.Generator  # that drew it


@dataclass(frozen=True)
class Candidate:
    """The end of a guess, and its cost."""

    images: Tensor  # (B, C, H, W) in [0, 1]
    labels: Tensor  # (B, classes) logits, or nothing
    cost: float
    history: Tensor  # (steps,)


def start_of(
    victim: Victim, knows: ThreatModel, config: InversionConfig, generator: torch.Generator
) -> Guess:
    """Draw a guess."""
    dtype = next(iter(victim.parameters.values())).dtype
    units = torch.randn(knows.batch, *knows.shape, generator=generator, dtype=dtype)
    labels = None
    if config.labels == "optimised":
        with torch.no_grad():
            classes = victim.model(_images(units).to(victim.device)).shape[1]
        labels = torch.randn(knows.batch, classes, generator=generator, dtype=dtype).to(victim.device)
    return Guess(units.to(victim.device), labels, generator)


def _images(units: Tensor) -> Tensor:
    return _CENTRE + _UNIT * units


def gradient_moves(victim: Victim, problem: Problem, guess: Guess) -> bool:
    """Whether the gradient of a guess changes with the guess, tested in one random direction."""
    images = _images(guess.units).requires_grad_()
    labels = problem.labels if guess.labels is None else guess.labels.softmax(1)
    assert labels is not None
    gradient, _ = victim.shared_by(images, labels.to(victim.device), many=False)
    direction = torch.randn(gradient.shape, generator=torch.Generator().manual_seed(0), dtype=gradient.dtype)
    (slope,) = torch.autograd.grad(gradient @ direction.to(gradient.device), [images], allow_unused=True)
    return slope is not None and bool(slope.any())


class Objective:
    """The function to minimise, for some guesses at once, each with its own problem. State: the problems."""

    def __init__(self, victim: Victim, config: InversionConfig, problems: Sequence[Problem]) -> None:
        self._victim, self._config = victim, config
        self._known = [
            (
                problem.target,
                problem.weights,
                problem.statistics,
                None if problem.labels is None else problem.labels.to(victim.device),
            )
            for problem in problems
        ]
        self._together = _stack(self._known)

    def __call__(self, units: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        """(Q, B, C, H, W) and (Q, B, classes) -> the objective and the distance of gradients, (Q,) each."""
        if len(units) > 1:
            inputs = (units, labels, *self._together)
            axes = tuple(None if tensors is None else 0 for tensors in inputs)
            both: tuple[Tensor, Tensor] = vmap(self._of_guess, in_dims=axes)(*inputs)
            return both
        optimised = None if labels is None else labels[0]
        total, cost = self._of_guess(units[0], optimised, *self._known[0], many=False)
        return total[None], cost[None]

    def _of_guess(
        self,
        units: Tensor,
        optimised: Tensor | None,
        target: Tensor,
        weights: Tensor | None,
        statistics: Moments,
        known: Tensor | None,
        *,
        many: bool = True,
    ) -> tuple[Tensor, Tensor]:
        labels = known if optimised is None else optimised.softmax(1)
        assert labels is not None
        gradient, moments = self._victim.shared_by(_images(units), labels, many=many)
        cost = _distance(gradient, target, weights, self._config.objective)
        total = cost
        if self._config.total_variation:
            total = total + self._config.total_variation * total_variation(units)
        if self._config.statistics:
            distances = [
                (ours - theirs).square().sum().clamp(min=_LEAST).sqrt()
                for name, pair in statistics.items()
                for ours, theirs in zip(moments[name], pair, strict=True)
            ]
            total = total + self._config.statistics * torch.stack(distances).sum()
        return total, cost


def _distance(gradient: Tensor, target: Tensor, weights: Tensor | None, objective: str) -> Tensor:
    """Measure the distance of two gradients, (P,) each."""
    if objective == "squared":
        squares = (gradient - target).square()
        return (squares if weights is None else weights * squares).sum()
    ours, theirs = (gradient, target) if weights is None else (weights * gradient, weights * target)
    # Root by root: for a model certain of its label, a product of energies may underflow.
    norms = [energy.sum().clamp(min=_LEAST).sqrt() for energy in (gradient * ours, target * theirs)]
    return 1 - (gradient * theirs).sum() / (norms[0] * norms[1])


def _stack(known: Sequence[Any]) -> Any:
    """Stack the known values of all problems along a new first axis; None stays None."""
    first = known[0]
    if first is None:
        return None
    if isinstance(first, Tensor):
        return torch.stack(list(known))
    if isinstance(first, dict):
        return {name: _stack([tensors[name] for tensors in known]) for name in first}
    return tuple(_stack(tensors) for tensors in zip(*known, strict=True))


def follow(
    objective: Objective, guesses: Sequence[Guess], config: InversionConfig, count: Callable[[int], None]
) -> list[Candidate]:
    """Move guesses to the least cost they can reach; L-BFGS follows one.

    Args:
        objective: for as many problems as guesses.
        guesses: the starts.
        config: the optimiser and its settings.
        count: called with the number of steps done.
    """
    if config.optimiser == "lbfgs":
        (guess,) = guesses
        return [_follow_lbfgs(objective, guess, config, count)]
    return _follow_adam(objective, guesses, config, count)


def _follow_adam(
    objective: Objective, guesses: Sequence[Guess], config: InversionConfig, count: Callable[[int], None]
) -> list[Candidate]:
    units = torch.stack([guess.units for guess in guesses]).requires_grad_()
    optimised = [guess.labels for guess in guesses if guess.labels is not None]
    labels = torch.stack(optimised).requires_grad_() if optimised else None
    variables = [units] if labels is None else [units, labels]
    moments = [(torch.zeros_like(variable), torch.zeros_like(variable)) for variable in variables]
    history = []
    for step in range(config.steps):
        passed = sum(step >= share * config.steps for share in config.decay_at)
        total, cost = objective(units, labels)
        history.append(cost.detach())
        slopes = torch.autograd.grad(total.sum(), variables)
        with torch.no_grad():
            for variable, slope, (first, second) in zip(variables, slopes, moments, strict=True):
                signed = config.optimiser == "signed-adam" and variable is units
                _adam(
                    variable,
                    slope.sign() if signed else slope,
                    first,
                    second,
                    rate=config.learning_rate * _DECAY**passed,
                    step=step + 1,
                )
            if config.box:
                units.clamp_(_LOW, _HIGH)
        count(step + 1)
    return _ends(objective, units, labels, torch.stack(history))


def _adam(variable: Tensor, slope: Tensor, first: Tensor, second: Tensor, *, rate: float, step: int) -> None:
    """Step Adam in place, Kingma & Ba 2015, Algorithm 1; torch.optim takes more than twice as long."""
    first.lerp_(slope, 1 - _BETAS[0])
    second.mul_(_BETAS[1]).addcmul_(slope, slope, value=1 - _BETAS[1])
    size = second.sqrt().div_(math.sqrt(1 - _BETAS[1] ** step)).add_(_EPSILON)
    variable.addcdiv_(first, size, value=-rate / (1 - _BETAS[0] ** step))


def _follow_lbfgs(
    objective: Objective, guess: Guess, config: InversionConfig, count: Callable[[int], None]
) -> Candidate:
    for _ in range(_ATTEMPTS):
        candidate = _minimise_lbfgs(objective, guess, config, count)
        if candidate.cost < math.inf:
            break
        labels = None if guess.labels is None else _draw(guess.labels, guess.generator)
        guess = Guess(_draw(guess.units, guess.generator), labels, guess.generator)
    return candidate


def _draw(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=like.dtype).to(like.device)


def _minimise_lbfgs(
    objective: Objective, guess: Guess, config: InversionConfig, count: Callable[[int], None]
) -> Candidate:
    units = guess.units[None].clone().requires_grad_()
    labels = None if guess.labels is None else guess.labels[None].clone().requires_grad_()
    variables = [units] if labels is None else [units, labels]
    optimiser = torch.optim.LBFGS(
        variables,
        lr=config.learning_rate,
        max_iter=_STRETCH,
        history_size=_REMEMBERED,
        tolerance_grad=0.0,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        total, _ = objective(units, labels)
        total.sum().backward(inputs=variables)
        return total.sum()

    history = []
    for done in range(0, config.steps, _STRETCH):
        value = optimiser.step(closure)
        if not bool(value.isfinite()) or not bool(units.isfinite().all()):
            break
        history.append(value.detach())
        count(min(done + _STRETCH, config.steps))
    ran_off = torch.full((), math.inf, device=units.device)
    return _ends(objective, units, labels, torch.stack(history or [ran_off])[:, None])[0]


def _ends(objective: Objective, units: Tensor, labels: Tensor | None, history: Tensor) -> list[Candidate]:
    units = units.detach().clamp(_LOW, _HIGH)  # also without a box: the cost is that of the images returned
    _, cost = objective(units, labels)
    images = _images(units).clamp(0, 1)
    cost = torch.where(cost.isfinite() & images.flatten(1).isfinite().all(1), cost.detach(), math.inf)
    none = units.new_empty(0)
    return [
        Candidate(
            images[i], none if labels is None else labels[i].detach(), cost[i].item(), history[:, i].cpu()
        )
        for i in range(len(units))
    ]
