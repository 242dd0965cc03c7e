"""Gradient inversion: rebuild the images behind a gradient that was shared, as in federated learning.

The adversary knows the model and the gradient. He looks for images whose gradient is the same: a guess is
moved until it is. One loop of small parts serves all published attacks, which are settings of it:

- `DLG`, Zhu et al. 2019, Algorithm 1: squared distance, L-BFGS, labels found along with the images;
- `IDLG`, Zhao et al. 2020, Sec. 3: the same, the label read from the gradient beforehand;
- `INVERTING_GRADIENTS`, Geiping et al. 2020, Sec. 4: cosine distance, total variation, Adam on the sign;
- `GRAD_ATTACK`, Huang et al. 2021, Sec. 4: the same with statistics of batch norm, as a stronger adversary.

Guesses are optimised in units of a quarter around 0.5, near what images are normalised to in these papers,
so that their rates and weights mean the same here.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from sfumato.attack import label_inference
from sfumato.errors import ConfigError, DataError, did_you_mean

Gradients = Mapping[str, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]

OBJECTIVES = ("squared", "cosine")
LABELS = ("known", "inferred", "optimised")
OPTIMISERS = ("lbfgs", "adam", "signed-adam")

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_CENTRE, _UNIT = 0.5, 0.25
_LOW, _HIGH = (0 - _CENTRE) / _UNIT, (1 - _CENTRE) / _UNIT
_DECAY = 0.1
_STAND_INS = 256  # images that label inference looks at
_ATTEMPTS = 5  # of L-BFGS, from new starts, where it runs off
_STRETCH = 20  # iterations of L-BFGS between looks at it
_REMEMBERED = 100  # of its steps
_LEAST = 1e-30
_BETAS, _EPSILON = (0.9, 0.999), 1e-8  # of Adam


@dataclass(frozen=True, kw_only=True)
class InversionConfig:
    """How an adversary looks for images.

    Attributes:
        objective: distance of gradients: "squared", summed over all entries, or "cosine", 1 - cosine over all
            layers at once.
        layer_weights: what each tensor of the gradient counts, in the order of the model's parameters; None:
            all 1.
        total_variation: weight of mean |dx| + mean |dy| of the guess.
        statistics: weight of the distance between batch norm statistics of the guess and those that the
            adversary knows, see ThreatModel.
        labels: "known", "inferred" (see label_inference), or "optimised" with the images.
        optimiser: "lbfgs" with a strong Wolfe line search, "adam", or "signed-adam", on the sign of the
            derivative.
        learning_rate: of the optimiser.
        steps: of it; iterations of L-BFGS.
        decay_at: shares of the steps after which the rate of Adam is divided by 10.
        box: whether a guess is clamped to [0, 1] after each step of Adam.
        restarts: guesses that are followed, from different starts; the one with the least distance of
            gradients counts, priors left out.
    """

    objective: str = "cosine"
    layer_weights: tuple[float, ...] | None = None
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
        for name, value, choices in (
            ("objective", self.objective, OBJECTIVES),
            ("labels", self.labels, LABELS),
            ("optimiser", self.optimiser, OPTIMISERS),
        ):
            if value not in choices:
                raise ConfigError(f"no {name} is called {value!r}: {did_you_mean(value, choices)}")
        for name in ("steps", "restarts"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)}: at least 1")
        for name in ("total_variation", "statistics"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name}={getattr(self, name)}: at least 0, its weight")
        if not 0 < self.learning_rate < math.inf:
            raise ConfigError(f"learning_rate={self.learning_rate}: above 0")
        if not all(0 < share < 1 for share in self.decay_at):
            raise ConfigError(f"decay_at={self.decay_at}: shares of the steps, between 0 and 1")
        if self.layer_weights is not None and not all(0 <= each < math.inf for each in self.layer_weights):
            raise ConfigError(f"layer_weights={self.layer_weights}: each at least 0")


DLG = InversionConfig(
    objective="squared", labels="optimised", optimiser="lbfgs", learning_rate=1.0, steps=3000, box=False
)
IDLG = InversionConfig(
    objective="squared", labels="inferred", optimiser="lbfgs", learning_rate=1.0, steps=3000, box=False
)
INVERTING_GRADIENTS = InversionConfig(total_variation=1e-1)
GRAD_ATTACK = InversionConfig(
    total_variation=1e-1, statistics=5e-3, labels="known", optimiser="adam", steps=10_000
)


@dataclass(frozen=True, kw_only=True)
class ThreatModel:
    """What the adversary knows beside the model and what was shared.

    Attributes:
        shape: (C, H, W) of the images.
        batch: B, how many images are behind the gradient.
        labels: (B,) int64, in any order; None where he does not know them.
        statistics: name of a batch norm layer -> mean and variance (C,) of its inputs over the batch, for
            `InversionConfig.statistics`; None: he takes the running ones of the model for them.
        pruned: he knows that entries of 0 were pruned away, and does not ask his guess for them.
        noise: standard deviation of the noise that he knows was added: a tensor of the gradient counts by the
            share of it that is no noise.
        local_steps: of SGD on the whole batch behind what was shared, which is then the difference of
            parameters, before less after (FedAvg).
        local_rate: of these steps; 1 step of rate 1 is the gradient itself.
    """

    shape: tuple[int, int, int]
    batch: int = 1
    labels: Tensor | None = None
    statistics: Mapping[str, tuple[Tensor, Tensor]] | None = None
    pruned: bool = False
    noise: float = 0.0
    local_steps: int = 1
    local_rate: float = 1.0

    def __post_init__(self) -> None:
        if len(self.shape) != 3 or min(self.shape) < 1:
            raise ConfigError(f"shape={self.shape}: channels, height and width of the images")
        for name in ("batch", "local_steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)}: at least 1")
        if self.labels is not None and tuple(self.labels.shape) != (self.batch,):
            raise ConfigError(
                f"labels of shape {tuple(self.labels.shape)}: one for each of the {self.batch} images"
            )
        if not 0 <= self.noise < math.inf:
            raise ConfigError(f"noise={self.noise}: at least 0, its standard deviation")
        if not 0 < self.local_rate < math.inf:
            raise ConfigError(f"local_rate={self.local_rate}: above 0")


@dataclass(frozen=True)
class Inversion:
    """What was rebuilt.

    Attributes:
        images: (B, C, H, W) float32 in [0, 1], in the order of `labels`, which need not be that of the batch:
            see assess.matching.
        labels: (B,) int64, those that were given, inferred or found.
        cost: distance of the gradients of these images from what was shared, priors left out.
        costs: (R,) of each restart; infinite where it ran off.
        history: (S,) the cost of the best restart on the way: at each step of Adam, each 20 of L-BFGS.
    """

    images: Tensor
    labels: Tensor
    cost: float
    costs: Tensor
    history: Tensor = field(repr=False)


def share(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    loss: Loss = functional.cross_entropy,
    local_steps: int = 1,
    local_rate: float = 1.0,
) -> dict[str, Tensor]:
    """What a client shares of a batch: name of a parameter -> gradient, or what local steps changed.

    Args:
        model: in the mode that it trains in; left as it is, its running statistics too.
        images: (B, C, H, W) float, as the model takes them.
        labels: (B,) int64, or (B, classes) probabilities.
        loss: of logits and labels.
        local_steps, local_rate: see ThreatModel.
    """
    victim = _Victim(model, loss, local_steps, local_rate, named=())
    gradients, _ = victim.shared(images, labels, many=False)
    return victim.named_tensors(gradients.detach())


def captured(model: nn.Module) -> dict[str, Tensor]:
    """The gradients that a training loop has left in a model, after `backward` and before `step`.

    Raises:
        DataError: a parameter that is trained has none.
    """
    trained = {name: each.grad for name, each in model.named_parameters() if each.requires_grad}
    missing = [name for name, gradient in trained.items() if gradient is None]
    if missing:
        raise DataError(
            f"{len(missing)} parameters have no gradient, such as {missing[0]}: call this after backward()"
        )
    return {name: gradient.detach().clone() for name, gradient in trained.items() if gradient is not None}


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
    (found,) = invert_all(model, [shared], [knows], config, loss=loss, seed=seed, progress=progress)
    return found


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
        model: float images in [0, 1] -> logits, in the mode the gradients were made in: in training mode its
            batch norm sees the statistics of the batch. Left as it is.
        shared: of each problem, name of a parameter -> gradient, of every parameter that is trained.
        knows: of each problem; alike in all but labels and statistics.
        config: see InversionConfig; DLG, IDLG, INVERTING_GRADIENTS and GRAD_ATTACK are published ones.
        loss: of logits and labels, the client's. Labels that are optimised come as probabilities.
        at_once: how many guesses Adam follows as one batch: several times as fast as one by one where
            networks are small, at so much more memory. L-BFGS follows one at a time.
        seed: decides where guesses begin.
        progress: called after each step with the numbers done and planned.

    Raises:
        DataError: gradients that do not fit the model, are not finite, or are all zero.
        ConfigError: labels are needed and not known, statistics of a model that has none, or a model whose
            gradient does not change with the image.
    """
    if not shared or len(shared) != len(knows):
        raise DataError(f"{len(shared)} gradients with {len(knows)} threat models: one of each, at least 1")
    if any(_public(each) != _public(knows[0]) for each in knows):
        raise ConfigError(
            "problems of one call differ in no more than labels and statistics: call once for each"
        )
    first = knows[0]
    named = _norms(model) if config.statistics else ()
    if config.statistics and not named:
        raise ConfigError(
            f"statistics={config.statistics}: no batch norm of this model has running statistics: set it to 0"
        )
    victim = _Victim(model, loss, first.local_steps, first.local_rate, named)
    problems = [
        _problem(victim, each, known, config, seed=seed + 1000 * number)
        for number, (each, known) in enumerate(zip(shared, knows, strict=True))
    ]
    starts = [
        _start(victim, first, config, torch.Generator().manual_seed(seed + 1000 * number + restart))
        for number in range(len(problems))
        for restart in range(config.restarts)
    ]
    guesses = [(number // config.restarts, start) for number, start in enumerate(starts)]
    if not any(_moves(victim, problems[number], start) for number, start in guesses):
        raise ConfigError(
            "the gradient of this model does not change with the image, as where ReLUs pass nothing or the "
            "second derivatives of its activations vanish: no guess can be improved"
        )
    many = 1 if config.optimiser == "lbfgs" else max(1, at_once)
    parts = [guesses[begin : begin + many] for begin in range(0, len(guesses), many)]
    followed: list[_Followed] = []
    for done, part in enumerate(parts):

        def count(step: int, done: int = done) -> None:
            if progress is not None:
                progress(done * config.steps + step, len(parts) * config.steps)

        follow = _follow_lbfgs if config.optimiser == "lbfgs" else _follow_adam
        followed += follow(
            victim, [problems[number] for number, _ in part], [s for _, s in part], config, count
        )
    results = []
    for number, problem in enumerate(problems):
        mine = followed[number * config.restarts : (number + 1) * config.restarts]
        best = min(mine, key=lambda each: each.cost)
        if best.cost == math.inf:
            raise DataError(
                f"problem {number}: no start led to finite numbers: take more restarts, or a lower rate"
            )
        labels = problem.labels if problem.labels is not None else best.labels.argmax(1).cpu()
        costs = torch.tensor([each.cost for each in mine])
        results.append(Inversion(best.images.float().cpu(), labels, best.cost, costs, best.history))
    return results


def total_variation(images: Tensor) -> Tensor:
    """Mean |dx| + mean |dy| of (..., H, W), over all that is there."""
    return images.diff(dim=-1).abs().mean() + images.diff(dim=-2).abs().mean()


# The victim


class _Victim:
    """A copy of the model whose shared gradients can be followed back to the images. State: its copy."""

    def __init__(
        self, model: nn.Module, loss: Loss, local_steps: int, local_rate: float, named: Sequence[str]
    ) -> None:
        # A copy, since batch norm in training mode would move the statistics of the model itself.
        self.model = copy.deepcopy(model)
        self.running = {
            name: (module.running_mean, module.running_var)
            for name, module in self.model.named_modules()
            if name in named
        }
        for module in self.model.modules():
            if isinstance(module, _BATCH_NORMS) and module.training:
                # Statistics of the batch, nothing kept: what is changed in place cannot be followed.
                module.running_mean = module.running_var = module.num_batches_tracked = None
                module.track_running_stats = False
        self._loss, self._steps, self._rate = loss, local_steps, local_rate
        self.parameters: dict[str, Tensor] = {
            k: v for k, v in self.model.named_parameters() if v.requires_grad
        }
        self.names = tuple(self.parameters)
        if not self.names:
            raise ConfigError("this model has no parameter that is trained: nothing is shared of it")
        self.named = tuple(named)
        self.device = next(iter(self.parameters.values())).device
        self._inputs: dict[str, Tensor] = {}
        for name in named:
            self.model.get_submodule(name).register_forward_pre_hook(self._keep(name))

    def named_tensors(self, flat: Tensor) -> dict[str, Tensor]:
        """(P,) -> name of a parameter -> its part."""
        parts = flat.split([each.numel() for each in self.parameters.values()])
        return {
            name: part.reshape(each.shape)
            for (name, each), part in zip(self.parameters.items(), parts, strict=True)
        }

    def shared(
        self, images: Tensor, labels: Tensor, *, many: bool
    ) -> tuple[Tensor, dict[str, tuple[Tensor, Tensor]]]:
        """Gradients in the order of `names`, end to end, (P,); mean and variance of the inputs of `named`.

        Both can be followed back to images and labels; with `many` inside vmap, where autograd cannot be
        called by hand, at some cost.
        """

        def lost(parameters: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, tuple[Tensor, Tensor]]]:
            own = parameters is self.parameters and not many
            logits = self.model(images) if own else functional_call(self.model, dict(parameters), (images,))
            value = self._loss(logits, labels)
            taken = {
                name: (each.mean((0, 2, 3)), each.var((0, 2, 3), correction=0))
                for name, each in self._inputs.items()
            }
            self._inputs.clear()
            return value, taken

        def gradients(
            parameters: Mapping[str, Tensor],
        ) -> tuple[dict[str, Tensor], dict[str, tuple[Tensor, Tensor]]]:
            if many:
                found, taken = grad(lost, has_aux=True)(parameters)
                return found, taken
            value, taken = lost(parameters)
            each = torch.autograd.grad(value, list(parameters.values()), create_graph=True)
            return dict(zip(parameters, each, strict=True)), taken

        found, taken = gradients(self.parameters)
        total = self._flat(found)
        moved: Mapping[str, Tensor] = self.parameters
        for _ in range(self._steps - 1):
            moved = {name: moved[name] - self._rate * found[name] for name in self.names}
            found, _ = gradients(moved)
            total = total + self._flat(found)
        return self._rate * total, taken

    def _flat(self, gradients: Mapping[str, Tensor]) -> Tensor:
        return torch.cat([gradients[name].flatten() for name in self.names])

    def _keep(self, name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            self._inputs[name] = inputs[0]

        return hook


def _norms(model: nn.Module) -> list[str]:
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None
    ]


# One gradient that is to be inverted


@dataclass(frozen=True)
class _Problem:
    """What a guess is compared with."""

    target: Tensor  # (P,), in the order of the victim's parameters
    weights: Tensor | None  # (P,), what each entry counts; None: 1
    statistics: dict[str, tuple[Tensor, Tensor]]
    labels: Tensor | None  # None: optimised


def _problem(
    victim: _Victim, shared: Gradients, knows: ThreatModel, config: InversionConfig, *, seed: int
) -> _Problem:
    target = _checked(victim, shared)
    statistics = {}
    for name in victim.named:
        known = victim.running if knows.statistics is None else knows.statistics
        if name not in known:
            raise DataError(
                f"the statistics known have none of {name}: give those of all {len(victim.named)} batch norms"
            )
        mean, variance = known[name]
        statistics[name] = (mean.to(victim.device), variance.to(victim.device))
    labels = None
    if config.labels == "known" and knows.labels is None:
        raise ConfigError("labels='known', and the threat model has none: give them, or let them be inferred")
    if config.labels == "known":
        labels = knows.labels
    elif config.labels == "inferred":
        generator = torch.Generator().manual_seed(seed)
        found = label_inference.counts(
            victim.model,
            {name: each / knows.local_rate for name, each in target.items()},
            knows.batch,
            label_inference.stand_ins(knows.shape, _STAND_INS, generator),
            local_steps=knows.local_steps,
        )
        labels = torch.arange(len(found)).repeat_interleave(found)
    flat = torch.cat([each.flatten() for each in target.values()])
    return _Problem(flat, _weights(target, knows, config), statistics, labels)


def _checked(victim: _Victim, shared: Gradients) -> dict[str, Tensor]:
    """The gradient in the order of the parameters, or DataError."""
    missing = [name for name in victim.names if name not in shared]
    foreign = [name for name in shared if name not in victim.names]
    if missing or foreign:
        problems = [
            f"{what} {names[0]}" for what, names in (("lacks", missing), ("has unknown", foreign)) if names
        ]
        raise DataError(
            f"the gradient is of another model: it {' and '.join(problems)} "
            f"({len(missing)} lacking, {len(foreign)} unknown): it has one of every trained parameter"
        )
    for name in victim.names:
        wanted, got = victim.parameters[name].shape, shared[name].shape
        if wanted != got:
            raise DataError(
                f"the gradient of {name} is {tuple(got)} where the parameter is {tuple(wanted)}: "
                "it is of another model"
            )
        if not bool(shared[name].isfinite().all()):
            raise DataError(f"the gradient of {name} has numbers that are not finite: nothing can be matched")
    if not any(bool(shared[name].any()) for name in victim.names):
        raise DataError("the gradient is zero everywhere: it tells nothing of the images")
    return {
        name: shared[name].detach().to(victim.device, each.dtype) for name, each in victim.parameters.items()
    }


def _weights(target: Gradients, knows: ThreatModel, config: InversionConfig) -> Tensor | None:
    """(P,), what each entry of a gradient counts; None where all count the same."""
    counted = config.layer_weights
    if counted is not None and len(counted) != len(target):
        raise ConfigError(
            f"{len(counted)} layer_weights for the {len(target)} tensors of this gradient: one for each"
        )
    if counted is None and not knows.noise and not knows.pruned:
        return None
    weights = torch.cat(
        [
            (weight * _trusted(each, knows)).flatten()
            for weight, each in zip(counted or (1.0,) * len(target), target.values(), strict=True)
        ]
    )
    if not bool(weights.any()):
        raise ConfigError(
            f"no entry of this gradient counts with noise={knows.noise:g} and layer_weights={counted}: "
            "nothing can be matched, take less of the one or more of the other"
        )
    return weights


def _trusted(target: Tensor, knows: ThreatModel) -> Tensor:
    """What entries count: those that were pruned nothing, tensors by their share of signal over noise."""
    weight = torch.ones((), device=target.device, dtype=target.dtype)
    if knows.noise:
        energy = target.square().sum()
        weight = (1 - target.numel() * knows.noise**2 / energy.clamp(min=_LEAST)).clamp(min=0)
    return weight * (target != 0) if knows.pruned else weight.expand_as(target)


def _public(knows: ThreatModel) -> tuple[object, ...]:
    """What problems of one call have in common."""
    return (
        tuple(knows.shape), knows.batch, knows.pruned, knows.noise, knows.local_steps, knows.local_rate,
        knows.labels is None, knows.statistics is None,
    )  # fmt: skip


# Following guesses


@dataclass
class _Guess:
    """Where a guess is; labels only where they are looked for."""

    units: Tensor  # (B, C, H, W), see _images
    labels: Tensor | None  # (B, classes) logits
    generator: torch.Generator  # it was drawn from


@dataclass(frozen=True)
class _Followed:
    """Where a guess came to."""

    images: Tensor  # (B, C, H, W) in [0, 1]
    labels: Tensor  # (B, classes) logits, or nothing
    cost: float
    history: Tensor  # (steps,)


def _start(
    victim: _Victim, knows: ThreatModel, config: InversionConfig, generator: torch.Generator
) -> _Guess:
    dtype = next(iter(victim.parameters.values())).dtype
    units = torch.randn(knows.batch, *knows.shape, generator=generator, dtype=dtype)
    labels = None
    if config.labels == "optimised":
        with torch.no_grad():
            classes = victim.model(_images(units).to(victim.device)).shape[1]
        labels = torch.randn(knows.batch, classes, generator=generator, dtype=dtype).to(victim.device)
    return _Guess(units.to(victim.device), labels, generator)


def _images(units: Tensor) -> Tensor:
    return _CENTRE + _UNIT * units


class _Objective:
    """What is to become least, for some guesses at once, each at its own problem."""

    def __init__(self, victim: _Victim, config: InversionConfig, problems: Sequence[_Problem]) -> None:
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
        self._together = _stacked(self._known)

    def __call__(self, units: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        """(Q, B, C, H, W) and (Q, B, classes) -> the objective and the distance of gradients, (Q,) each."""
        if len(units) > 1:
            places = tuple(None if each is None else 0 for each in (units, labels, *self._together))
            both: tuple[Tensor, Tensor] = vmap(self._one, in_dims=places)(units, labels, *self._together)
            return both
        asked = None if labels is None else labels[0]
        total, cost = self._one(units[0], asked, *self._known[0], many=False)
        return total[None], cost[None]

    def _one(
        self,
        units: Tensor,
        looked_for: Tensor | None,
        target: Tensor,
        weights: Tensor | None,
        statistics: dict[str, tuple[Tensor, Tensor]],
        known: Tensor | None,
        *,
        many: bool = True,
    ) -> tuple[Tensor, Tensor]:
        labels = known if looked_for is None else looked_for.softmax(1)
        assert labels is not None
        found, taken = self._victim.shared(_images(units), labels, many=many)
        cost = _distance(found, target, weights, self._config.objective)
        total = cost
        if self._config.total_variation:
            total = total + self._config.total_variation * total_variation(units)
        if self._config.statistics:
            apart = [
                (ours - theirs).square().sum().clamp(min=_LEAST).sqrt()
                for name, pair in statistics.items()
                for ours, theirs in zip(taken[name], pair, strict=True)
            ]
            total = total + self._config.statistics * torch.stack(apart).sum()
        return total, cost


def _distance(found: Tensor, target: Tensor, weights: Tensor | None, objective: str) -> Tensor:
    """Of two gradients, (P,) each."""
    if objective == "squared":
        apart = (found - target).square()
        return (apart if weights is None else weights * apart).sum()
    ours, theirs = (found, target) if weights is None else (weights * found, weights * target)
    # Root by root: of a model that is sure of its label, a product of energies may be too small for a float.
    norms = [energy.sum().clamp(min=_LEAST).sqrt() for energy in (found * ours, target * theirs)]
    return 1 - (found * theirs).sum() / (norms[0] * norms[1])


def _follow_adam(
    victim: _Victim,
    problems: Sequence[_Problem],
    guesses: Sequence[_Guess],
    config: InversionConfig,
    count: Callable[[int], None],
) -> list[_Followed]:
    objective = _Objective(victim, config, problems)
    units = torch.stack([each.units for each in guesses]).requires_grad_()
    looked_for = [each.labels for each in guesses if each.labels is not None]
    labels = torch.stack(looked_for).requires_grad_() if looked_for else None
    variables = [units] if labels is None else [units, labels]
    moments = [(torch.zeros_like(each), torch.zeros_like(each)) for each in variables]
    history = []
    for step in range(config.steps):
        passed = sum(step >= each * config.steps for each in config.decay_at)
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
    """One step of Adam in place, Kingma & Ba 2015, Algorithm 1; torch.optim takes more than twice as long."""
    first.lerp_(slope, 1 - _BETAS[0])
    second.mul_(_BETAS[1]).addcmul_(slope, slope, value=1 - _BETAS[1])
    size = second.sqrt().div_(math.sqrt(1 - _BETAS[1] ** step)).add_(_EPSILON)
    variable.addcdiv_(first, size, value=-rate / (1 - _BETAS[0] ** step))


def _follow_lbfgs(
    victim: _Victim,
    problems: Sequence[_Problem],
    guesses: Sequence[_Guess],
    config: InversionConfig,
    count: Callable[[int], None],
) -> list[_Followed]:
    objective = _Objective(victim, config, problems)
    (guess,) = guesses
    for _ in range(_ATTEMPTS):
        found = _minimise_lbfgs(objective, guess, config, count)
        if found.cost < math.inf:
            break
        labels = None if guess.labels is None else _drawn(guess.labels, guess.generator)
        guess = _Guess(_drawn(guess.units, guess.generator), labels, guess.generator)
    return [found]


def _drawn(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=like.dtype).to(like.device)


def _minimise_lbfgs(
    objective: _Objective, guess: _Guess, config: InversionConfig, count: Callable[[int], None]
) -> _Followed:
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


def _ends(objective: _Objective, units: Tensor, labels: Tensor | None, history: Tensor) -> list[_Followed]:
    units = units.detach().clamp(_LOW, _HIGH)  # also without a box: the cost is that of what is shown
    _, cost = objective(units, labels)
    images = _images(units).clamp(0, 1)
    cost = torch.where(cost.isfinite() & images.flatten(1).isfinite().all(1), cost.detach(), math.inf)
    none = units.new_empty(0)
    return [
        _Followed(
            images[i], none if labels is None else labels[i].detach(), cost[i].item(), history[:, i].cpu()
        )
        for i in range(len(units))
    ]


def _moves(victim: _Victim, problem: _Problem, guess: _Guess) -> bool:
    """Whether the gradient of a guess changes with the guess, in one direction for all its entries."""
    images = _images(guess.units).requires_grad_()
    labels = problem.labels if guess.labels is None else guess.labels.softmax(1)
    assert labels is not None
    found, _ = victim.shared(images, labels.to(victim.device), many=False)
    direction = torch.randn(found.shape, generator=torch.Generator().manual_seed(0), dtype=found.dtype)
    (slope,) = torch.autograd.grad(found @ direction.to(found.device), [images], allow_unused=True)
    return slope is not None and bool(slope.any())


def _stacked(known: Sequence[Any]) -> Any:
    """One of everything, along a new first axis; what is None stays so."""
    first = known[0]
    if first is None:
        return None
    if isinstance(first, Tensor):
        return torch.stack(list(known))
    if isinstance(first, dict):
        return {name: _stacked([each[name] for each in known]) for name in first}
    return tuple(_stacked(each) for each in zip(*known, strict=True))
