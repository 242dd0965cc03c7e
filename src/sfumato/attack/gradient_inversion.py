"""Gradient inversion: rebuild the images behind a shared gradient, as in federated learning.

The adversary knows the model and the gradient, and moves a guess until its gradient is the same. Published
attacks are settings of one loop:

- `DLG`, Zhu et al. 2019, Algorithm 1: squared distance, L-BFGS, labels found along with the images;
- `IDLG`, Zhao et al. 2020, Sec. 3: the same, the label read from the gradient beforehand;
- `INVERTING_GRADIENTS`, Geiping et al. 2020, Sec. 4: cosine distance, total variation, Adam on the sign;
- `GRAD_ATTACK`, Huang et al. 2021, Sec. 4: the same with statistics of batch norm, as a stronger adversary.

Guesses are in units of a quarter around 0.5, close to the papers' normalisation, as their rates and weights.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn import functional

from sfumato.attack import label_inference
from sfumato.attack.saturation import check_bounds
from sfumato.attack.victim import Gradients, Loss, Moments, ThreatModel, Victim, check_gradient
from sfumato.errors import ConfigError, DataError, did_you_mean

OBJECTIVES = ("squared", "cosine")
LABELS = ("known", "inferred", "optimised")
OPTIMISERS = ("lbfgs", "adam", "signed-adam")


@dataclass(frozen=True, kw_only=True)
class InversionConfig:
    """The settings of gradient inversion.

    Attributes:
        objective: distance of gradients: "squared", summed over all entries, or "cosine", 1 - cosine over all
            layers at once.
        total_variation: weight of mean |dx| + mean |dy| of the guess.
        statistics: weight of the distance between the batch norm statistics of the guess and those that the
            adversary knows, see ThreatModel.
        labels: "known", "inferred" (see label_inference), or "optimised" with the images.
        optimiser: "lbfgs" with a strong Wolfe line search, "adam", or "signed-adam", on signs.
        learning_rate: of the optimiser.
        steps: of the optimiser; for L-BFGS, iterations.
        decay_at: shares of the steps after which Adam's rate is divided by 10.
        box: whether a guess is clamped to [0, 1] after each step of Adam.
        restarts: guesses from different starts; the least distance of gradients, without priors, counts.
    """

    objective: str = "cosine"
    total_variation: float = 0.0
    statistics: float = 0.0
    labels: str = "inferred"
    optimiser: str = "signed-adam"
    learning_rate: float = 0.1
    steps: int = 4800
    decay_at: tuple[float, ...] = (3 / 8, 5 / 8, 7 / 8)
    box: bool = True
    restarts: int = 1

    def __post_init__(self) -> None:
        choices_of = {"objective": OBJECTIVES, "labels": LABELS, "optimiser": OPTIMISERS}
        for name, choices in choices_of.items():
            if (value := getattr(self, name)) not in choices:
                raise ConfigError(f"no {name} is called {value!r}: {did_you_mean(value, choices)}")
        check_bounds(self, "learning_rate", steps=1, restarts=1, total_variation=0, statistics=0)
        if not all(0 < share < 1 for share in self.decay_at):
            raise ConfigError(f"decay_at={self.decay_at}: shares of the steps, between 0 and 1")


DLG = InversionConfig(
    objective="squared", labels="optimised", optimiser="lbfgs", learning_rate=1.0, steps=3000, box=False
)
IDLG = replace(DLG, labels="inferred")
INVERTING_GRADIENTS = InversionConfig(total_variation=1e-1)
GRAD_ATTACK = InversionConfig(
    total_variation=1e-1, statistics=5e-3, labels="known", optimiser="adam", steps=10_000
)


class Problem(NamedTuple):
    """The target of a guess."""

    target: Tensor  # (P,), in the order of the victim's parameters
    weights: Tensor | None  # (P,), weights of entries; None: 1
    statistics: Moments
    labels: Tensor | None  # None: optimised


class Guess(NamedTuple):
    """The start of a guess."""

    units: Tensor  # (B, C, H, W), see _images
    labels: Tensor | None  # (B, classes) logits, if labels are optimised
    generator: torch.Generator  # that drew it


@dataclass(frozen=True)
class Inversion:
    """The rebuilt images, in the order of `labels`, not of the batch: see assess.matching."""

    images: Tensor  # (B, C, H, W) float32 in [0, 1]
    labels: Tensor  # (B,) int64, given, inferred or optimised
    cost: float  # distance of the gradients of these images from the shared ones, without priors
    costs: Tensor  # (R,) of each restart; infinite if it diverged
    # (S,) the cost of the best restart at each step of Adam, or each 20 of L-BFGS
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

    `model`: float images in [0, 1] -> logits, in the mode of the gradients: in training mode its batch norm
    sees the statistics of the batch. It is not changed. `shared`: for each problem, every trained parameter's
    name -> its gradient; `knows`: they may differ in labels and statistics only. `loss`: the client's, of
    logits and labels; optimised labels are probabilities. `at_once`: guesses that Adam follows as one batch:
    several times as fast as one by one for small networks, with as many times the memory. L-BFGS follows one
    at a time.

    Raises DataError for gradients that do not fit the model, or are all zero; and ConfigError if labels are
    needed and unknown, or the model has no statistics or no gradient that changes.
    """
    if not shared or len(shared) != len(knows):
        raise DataError(f"{len(shared)} gradients with {len(knows)} threat models: one of each, at least 1")
    in_common = [
        (replace(k, labels=None, statistics=None), k.labels is None, k.statistics is None) for k in knows
    ]
    if any(known != in_common[0] for known in in_common):
        raise ConfigError("problems of one call may differ in labels and statistics only: call once for each")
    victim = Victim(model, loss, knows[0], statistics=bool(config.statistics))
    if config.statistics and not victim.norms:
        raise ConfigError(
            f"statistics={config.statistics}: no batch norm of this model has running statistics: set it to 0"
        )
    problems, guesses = [], []
    for number, (gradients, known) in enumerate(zip(shared, knows, strict=True)):
        own_seed = seed + 1000 * number
        problems.append(problem_of(victim, gradients, known, config, seed=own_seed))
        for restart in range(config.restarts):
            generator = torch.Generator().manual_seed(own_seed + restart)
            guesses.append((problems[-1], _start_of(victim, known, config, generator)))
    if not any(_gradient_moves(victim, problem, guess) for problem, guess in guesses):
        raise ConfigError(
            "the gradient of this model does not change with the image, as if ReLUs pass nothing or the "
            "second derivatives of its activations vanish: no guess can be improved"
        )
    many = 1 if config.optimiser == "lbfgs" else max(1, at_once)
    parts = [guesses[begin : begin + many] for begin in range(0, len(guesses), many)]
    follow = _follow_lbfgs if config.optimiser == "lbfgs" else _follow_adam
    ends: list[Inversion] = []
    for done, part in enumerate(parts):

        def count(step: int, done: int = done) -> None:
            if progress is not None:
                progress(done * config.steps + step, len(parts) * config.steps)

        objective = Objective(victim, config, [problem for problem, _ in part])
        ends += follow(objective, [guess for _, guess in part], config, count)
    found = []
    for number in range(len(problems)):
        own = ends[number * config.restarts : (number + 1) * config.restarts]
        best = min(own, key=lambda end: end.cost)
        if best.cost == torch.inf:
            raise DataError(
                f"problem {number}: no start led to finite numbers: use more restarts, or a lower rate"
            )
        found.append(replace(best, costs=torch.tensor([end.cost for end in own])))
    return found


_CENTRE, _UNIT = 0.5, 0.25
_LOW, _HIGH = (0 - _CENTRE) / _UNIT, (1 - _CENTRE) / _UNIT
_DECAY = 0.1
_ATTEMPTS = 5  # of L-BFGS, from new starts, if it diverges
_STRETCH = 20  # iterations of L-BFGS between checks
_REMEMBERED = 100  # steps that L-BFGS remembers
_LEAST = 1e-30


def total_variation(images: Tensor) -> Tensor:
    """Return mean |dx| + mean |dy| of (..., H, W), over everything."""
    return images.diff(dim=-1).abs().mean() + images.diff(dim=-2).abs().mean()


def _start_of(
    victim: Victim, knows: ThreatModel, config: InversionConfig, generator: torch.Generator
) -> Guess:
    like = next(iter(victim.parameters.values()))
    units = torch.randn(knows.batch, *knows.shape, generator=generator, dtype=like.dtype).to(like.device)
    if config.labels != "optimised":
        return Guess(units, None, generator)
    with torch.no_grad():
        logits = victim.model(_images(units))
    return Guess(units, _draw(logits, generator), generator)


def _draw(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=like.dtype).to(like.device)


def _images(units: Tensor) -> Tensor:
    return _CENTRE + _UNIT * units


def _gradient_moves(victim: Victim, problem: Problem, guess: Guess) -> bool:
    """Whether the gradient of a guess changes with the guess, tested in one random direction."""
    images = _images(guess.units).requires_grad_()
    labels = problem.labels if guess.labels is None else guess.labels.softmax(1)
    assert labels is not None
    gradient, _ = victim.shared_by(images, labels, many=False)
    direction = torch.randn(gradient.shape, generator=torch.Generator().manual_seed(0), dtype=gradient.dtype)
    (slope,) = torch.autograd.grad(gradient @ direction.to(gradient.device), [images], allow_unused=True)
    return slope is not None and bool(slope.any())


class Objective:
    """The function to minimise, for some guesses at once, each with its own problem. State: the problems."""

    def __init__(self, victim: Victim, config: InversionConfig, problems: Sequence[Problem]) -> None:
        self._victim, self._config, self.problems = victim, config, problems
        self._together = Problem(*_stack(problems))

    def __call__(self, units: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        """(Q, B, C, H, W) and (Q, B, classes) -> the objective and the distance of gradients, (Q,) each."""
        if len(units) > 1:
            axes = Problem._make(None if tensors is None else 0 for tensors in self._together)
            together = vmap(self._of_guess, in_dims=(0, None if labels is None else 0, axes))
            both: tuple[Tensor, Tensor] = together(units, labels, self._together)
            return both
        optimised = None if labels is None else labels[0]
        total, cost = self._of_guess(units[0], optimised, self.problems[0], many=False)
        return total[None], cost[None]

    def _of_guess(
        self, units: Tensor, optimised: Tensor | None, problem: Problem, *, many: bool = True
    ) -> tuple[Tensor, Tensor]:
        labels = problem.labels if optimised is None else optimised.softmax(1)
        assert labels is not None
        gradient, moments = self._victim.shared_by(_images(units), labels, many=many)
        cost = _distance(gradient, problem.target, problem.weights, self._config.objective)
        total = cost
        if self._config.total_variation:
            total = total + self._config.total_variation * total_variation(units)
        if self._config.statistics:
            distances = [
                (ours - theirs).square().sum().clamp(min=_LEAST).sqrt()
                for name, pair in problem.statistics.items()
                for ours, theirs in zip(moments[name], pair, strict=True)
            ]
            total = total + self._config.statistics * torch.stack(distances).sum()
        return total, cost


def _distance(gradient: Tensor, target: Tensor, weights: Tensor | None, objective: str) -> Tensor:
    if objective == "squared":
        squares = (gradient - target).square()
        return (squares if weights is None else weights * squares).sum()
    ours, theirs = (gradient, target) if weights is None else (weights * gradient, weights * target)
    # Root by root: for a model certain of its label, a product of energies may underflow.
    norms = [energy.sum().clamp(min=_LEAST).sqrt() for energy in (gradient * ours, target * theirs)]
    return 1 - (gradient * theirs).sum() / (norms[0] * norms[1])


def _stack(known: Sequence[Any]) -> Any:
    """Stack the known values of all problems along a new first axis; None stays None."""
    if isinstance(known[0], Tensor):
        return torch.stack(list(known))
    if isinstance(known[0], dict):
        return {name: _stack([tensors[name] for tensors in known]) for name in known[0]}
    if known[0] is None:
        return None
    return tuple(_stack(tensors) for tensors in zip(*known, strict=True))


def _follow_adam(
    objective: Objective, guesses: Sequence[Guess], config: InversionConfig, count: Callable[[int], None]
) -> list[Inversion]:
    units = torch.stack([guess.units for guess in guesses]).requires_grad_()
    optimised = [guess.labels for guess in guesses if guess.labels is not None]
    labels = torch.stack(optimised).requires_grad_() if optimised else None
    variables = [units] if labels is None else [units, labels]
    optimiser = torch.optim.Adam(variables, lr=config.learning_rate, foreach=False)
    history = []
    for step in range(config.steps):
        passed = sum(step >= share * config.steps for share in config.decay_at)
        total, cost = objective(units, labels)
        history.append(cost.detach())
        slopes = torch.autograd.grad(total.sum(), variables)
        for variable, slope in zip(variables, slopes, strict=True):
            signed = config.optimiser == "signed-adam" and variable is units
            variable.grad = slope.sign() if signed else slope
        optimiser.param_groups[0]["lr"] = config.learning_rate * _DECAY**passed
        optimiser.step()
        if config.box:
            units.detach().clamp_(_LOW, _HIGH)
        count(step + 1)
    return _ends(objective, units, labels, torch.stack(history))


def _follow_lbfgs(
    objective: Objective,
    guesses: Sequence[Guess],
    config: InversionConfig,
    count: Callable[[int], None],
    attempts: int = _ATTEMPTS,
) -> list[Inversion]:
    (guess,) = guesses
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
    ran_off = torch.full((), torch.inf, device=units.device)
    ends = _ends(objective, units, labels, torch.stack(history or [ran_off])[:, None])
    if ends[0].cost < torch.inf or attempts == 1:
        return ends
    drawn = None if guess.labels is None else _draw(guess.labels, guess.generator)
    again = Guess(_draw(guess.units, guess.generator), drawn, guess.generator)
    return _follow_lbfgs(objective, [again], config, count, attempts - 1)


def _ends(objective: Objective, units: Tensor, labels: Tensor | None, history: Tensor) -> list[Inversion]:
    units = units.detach().clamp(_LOW, _HIGH)  # also without a box: the cost is that of the images returned
    _, cost = objective(units, labels)
    images = _images(units).clamp(0, 1)
    cost = torch.where(cost.isfinite() & images.flatten(1).isfinite().all(1), cost.detach(), torch.inf)
    ends = []
    for i, problem in enumerate(objective.problems):
        known = problem.labels if labels is None else labels[i].argmax(1)
        assert known is not None
        ends.append(
            Inversion(images[i].float().cpu(), known.cpu(), cost[i].item(), cost[:0], history[:, i].cpu())
        )
    return ends


def problem_of(
    victim: Victim, shared: Gradients, knows: ThreatModel, config: InversionConfig, *, seed: int
) -> Problem:
    """Set up the problem of one gradient; inferred labels use stand-in images of that seed."""
    missing = [name for name in victim.parameters if name not in shared]
    foreign = [name for name in shared if name not in victim.parameters]
    if missing or foreign:
        problems = [
            f"{what} {names[0]}" for what, names in (("lacks", missing), ("has unknown", foreign)) if names
        ]
        raise DataError(
            f"the gradient is of another model: it {' and '.join(problems)} "
            f"({len(missing)} lacking, {len(foreign)} unknown): give one for every trained parameter"
        )
    target: dict[str, Tensor] = {}  # in the order of the parameters
    for name, weight in victim.parameters.items():
        check_gradient(name, shared[name], weight)
        target[name] = shared[name].detach().to(victim.device, weight.dtype)
    if not any(bool(each.any()) for each in target.values()):
        raise DataError("the gradient is zero everywhere: it contains nothing about the images")
    running = victim.running if knows.statistics is None else knows.statistics
    lacking = [name for name in victim.norms if name not in running]
    if lacking:
        raise DataError(
            f"the known statistics lack {lacking[0]}: give those of all {len(victim.norms)} batch norms"
        )
    statistics = {
        name: (mean.to(victim.device), variance.to(victim.device))
        for name in victim.norms
        for mean, variance in [running[name]]
    }
    labels = None
    if config.labels == "known" and knows.labels is None:
        raise ConfigError("labels='known', but the threat model has none: give them, or infer labels")
    if config.labels == "known":
        labels = knows.labels
    elif config.labels == "inferred":
        counts = label_inference.counts_of_update(victim.model, target, knows, seed=seed)
        labels = torch.arange(len(counts)).repeat_interleave(counts)
    flat = torch.cat([gradient.flatten() for gradient in target.values()])
    labels = None if labels is None else labels.to(victim.device)
    return Problem(flat, _weights(target, knows), statistics, labels)


def _weights(target: Gradients, knows: ThreatModel) -> Tensor | None:
    """Weigh entries, (P,): 0 for pruned ones, and tensors by their share of signal; None if all are equal."""
    if not knows.noise and not knows.pruned:
        return None
    parts = []
    for gradient in target.values():
        noise = gradient.numel() * knows.noise**2
        signal = (1 - noise / gradient.square().sum().clamp(min=_LEAST)).clamp(min=0)
        parts.append((signal * (gradient != 0 if knows.pruned else torch.ones_like(gradient))).flatten())
    weights = torch.cat(parts)
    if not bool(weights.any()):
        raise ConfigError(
            f"no entry of this gradient counts with noise={knows.noise:g}: nothing can be matched"
        )
    return weights
