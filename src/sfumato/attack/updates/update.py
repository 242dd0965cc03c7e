"""An update: the change of parameters, the training behind it, and their record around a training loop."""

import copy
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, is_grad_enabled, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim import SGD, Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from sfumato.errors import ConfigError, DataError

# Prefixes of Opacus, (Distributed)DataParallel, torch.compile, FSDP and activation checkpoints.
_WRAPPERS = frozenset(
    {"_module", "module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
)


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """A client's training before an update: known to the server, which decides most of it.

    Attributes:
        images: N, the client's number of images.
        steps: of plain SGD. One step of rate 1 is the gradient itself.
        rate: the learning rate.
        batch: the number of images of a step; None: all N.
        plain: whether it is plain SGD: with momentum, weight decay or Adam a simulation is inexact.
    """

    images: int
    steps: int = 1
    rate: float = 1.0
    batch: int | None = None
    plain: bool = True

    def __post_init__(self) -> None:
        for name in ("images", "steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)}: at least 1")
        if not 0 < self.rate < math.inf:
            raise ConfigError(f"rate={self.rate}: the learning rate of the client, above 0")
        if self.batch is not None and not 1 <= self.batch <= self.images:
            raise ConfigError(f"batch={self.batch}: a step sees 1 to {self.images} images")

    @property
    def together(self) -> int:
        """The number of images of a step."""
        return self.batch or self.images


@dataclass(frozen=True, kw_only=True)
class Noise:
    """The noise of DP-SGD in each step: gradients of images clipped to a norm of C, plus noise of σ·C.

    Attributes:
        noise_multiplier: σ.
        clipping_norm: C.
    """

    noise_multiplier: float
    clipping_norm: float

    def __post_init__(self) -> None:
        for name in ("noise_multiplier", "clipping_norm"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name}={getattr(self, name)}: above 0, or no Noise at all")


@dataclass(frozen=True, kw_only=True)
class Update:
    """A client's update.

    Attributes:
        change: maps a parameter's name to its value before minus its value after; for one step of rate 1, its
            gradient. Names `arr_0`, `arr_1`, ... are the tensors of a state dict in its order, as in Flower.
        training: the client's training.
        noise: the known added noise; None: none.
        before: the parameters at the start of training, by the same names; None: those of the given model.
    """

    change: Mapping[str, Tensor] = field(repr=False)
    training: LocalTraining
    noise: Noise | None = None
    before: Mapping[str, Tensor] | None = field(default=None, repr=False)

    def fit(self, model: nn.Module) -> tuple[nn.Module, "Update"]:
        """Return a copy of the model at the start of training, and the update by its parameter names.

        Names may have prefixes from wrappers, such as `_module.` of Opacus, on either side. Statistics of
        batch norm and other buffers are set in the model, and omitted from the update.

        Raises:
            DataError: the update is of another model.
        """
        model = copy.deepcopy(model)
        if any(weight.dtype in (torch.float16, torch.bfloat16) for weight in model.parameters()):
            model = model.float()  # read in 32 bits, whatever it was trained in
        state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
        if self.before is not None:
            model.load_state_dict({**state, **_match(self.before, state, "the parameters before")})
        change = _match(self.change, state, "the update")
        trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
        missing = sorted(trained - change.keys())
        if missing:
            raise DataError(
                f"the update lacks {missing[0]} ({len(missing)} in all): it is of another model, or these "
                "are frozen: then set requires_grad=False on them"
            )
        kept = {name: change[name] for name in state if name in trained}
        return model, Update(change=kept, training=self.training, noise=self.noise)


def of_gradient(gradient: Mapping[str, Tensor], *, images: int, noise: Noise | None = None) -> Update:
    """Make an update from a gradient, the mean over `images` images."""
    return Update(change=gradient, training=LocalTraining(images=images), noise=noise)


def of_states(
    before: Mapping[str, Tensor],
    after: Mapping[str, Tensor],
    training: LocalTraining,
    *,
    noise: Noise | None = None,
) -> Update:
    """Make an update from two state dicts of a model (FedAvg).

    Raises:
        DataError: their names or shapes differ.
    """
    after = _match(after, before, "the state after")
    missing = [name for name in before if name not in after]
    if missing:
        raise DataError(f"the state after lacks {missing[0]}: give two states of one model")
    change = {name: before[name].detach() - after[name].detach() for name in before}
    return Update(change=change, training=training, noise=noise, before=before)


def _match(tensors: Mapping[str, Tensor], state: Mapping[str, Tensor], what: str) -> dict[str, Tensor]:
    """Bring tensors to the names and devices of a state, in at least 32 bits. Raises DataError."""
    if tensors and all(name == f"arr_{number}" for number, name in enumerate(tensors)):
        if len(tensors) != len(state):
            raise DataError(
                f"{what} has {len(tensors)} arrays without names, and the model {len(state)} tensors: give "
                "those of its state_dict(), in its order"
            )
        tensors = dict(zip(state, tensors.values(), strict=True))
    renamed = _rename(tensors, state)
    for name, tensor in tensors.items():
        own = renamed.get(name)
        if own is None:
            raise DataError(f"{what} has {name}, which the model does not have: it is of another model")
        if tensor.shape != state[own].shape:
            raise DataError(
                f"{what} has {name} of shape {tuple(tensor.shape)} where the model has "
                f"{tuple(state[own].shape)}: it is of another model"
            )
        if not bool(torch.isfinite(tensor).all()):
            raise DataError(f"{what} has numbers in {name} that are not finite, so nothing can be read")
    return {
        renamed[name]: _at_least_32_bits(tensor.detach(), state[renamed[name]])
        for name, tensor in tensors.items()
    }


def _rename(tensors: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> dict[str, str]:
    """Map tensor names to names in a state, ignoring wrappers of the model on either side."""
    found: dict[str, str] = {}
    for bare in (str, _unwrap):
        by_bare = {bare(name): name for name in state}
        found = {name: by_bare[bare(name)] for name in tensors if bare(name) in by_bare}
        if len(by_bare) == len(state) and len(set(found.values())) == len(tensors):
            return found
    return {name: name for name in tensors if name in state}


def _unwrap(name: str) -> str:
    """Remove the prefixes of wrappers from a name, or from a part of it."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def _at_least_32_bits(tensor: Tensor, like: Tensor) -> Tensor:
    kind = torch.promote_types(like.dtype, torch.float32) if like.dtype.is_floating_point else like.dtype
    return tensor.to(device=like.device, dtype=kind)


@dataclass
class Watch:
    """A record of this process's optimisers. State: the observations.

    Attributes:
        steps: of any optimiser.
        rates: the learning rates of these.
        batches: the size of the first batch of a module in training mode before each step.
        plain: whether all optimisers are SGD without momentum, weight decay or several groups.
    """

    steps: int = 0
    rates: set[float] = field(default_factory=set)
    batches: list[int] = field(default_factory=list)
    plain: bool = True

    def training(self, images: int | None) -> LocalTraining:
        """Return the observed training; `images` None: those of its one step.

        Raises:
            DataError: nothing was trained, or the number of images is unknown.
        """
        if not self.steps:
            raise DataError("no optimiser made a step in this block: train in it, with torch.optim")
        together = max(self.batches, default=None) if len(self.batches) == self.steps else None
        if images is None and self.steps == 1:
            images = together
        if images is None:
            raise DataError("the number of images is unknown after several steps: pass images=N")
        return LocalTraining(
            images=images,
            steps=self.steps,
            rate=next(iter(self.rates)),
            batch=None if together is None or together >= images else together,
            plain=self.plain and len(self.rates) == 1,
        )


@contextmanager
def watching() -> Iterator[Watch]:
    """Watch all optimisers of this process, and the batches of modules in training mode, for a block."""
    watch = Watch()
    since: list[int] = []  # batches since the last step

    def stepped(optimiser: Optimizer, *_: Any) -> None:
        watch.steps += 1
        watch.batches += since[:1]
        since.clear()
        for group in optimiser.param_groups:
            watch.rates.add(float(group["lr"]))
            watch.plain &= type(optimiser) is SGD and not group["momentum"] and not group["weight_decay"]

    def seen(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if module.training and is_grad_enabled() and inputs and isinstance(inputs[0], Tensor):
            since.append(len(inputs[0]))

    hooks = [register_optimizer_step_post_hook(stepped), register_module_forward_pre_hook(seen)]
    try:
        yield watch
    finally:
        for hook in hooks:
            hook.remove()


@dataclass
class Recording:
    """The result of `record`. State: the update, after the block has ended well."""

    _update: Update | None = None

    @property
    def update(self) -> Update:
        """The client's update. Raises DataError while it trains."""
        if self._update is None:
            raise DataError("nothing is recorded yet: read the update after the block of `record`")
        return self._update


@contextmanager
def record(
    model: nn.Module, *, images: int | None = None, optimiser: object | None = None
) -> Iterator[Recording]:
    """Record the update of a model trained in a block, with its steps, rate and batches.

        with record(model, images=len(photographs)) as recording:
            train(model, photographs)
        audit_update(model, recording.update, shape=(3, 32, 32))

    Args:
        model: the model trained in the block.
        images: the client's number of images; None: those of the one step.
        optimiser: if it is Opacus's DPOptimizer, its noise and clipping norm are recorded.

    Raises:
        DataError: see Watch.training.
    """
    recording = Recording()
    before = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    with watching() as watch:
        yield recording
    recording._update = of_states(
        before, model.state_dict(), watch.training(images), noise=noise_of(optimiser)
    )


def noise_of(optimiser: object | None) -> Noise | None:
    """Return the noise of Opacus's DPOptimizer; None if an optimiser adds none."""
    multiplier, norm = (getattr(optimiser, name, 0.0) for name in ("noise_multiplier", "max_grad_norm"))
    return Noise(noise_multiplier=float(multiplier), clipping_norm=float(norm)) if multiplier else None


_KNOWN = (8, 11, 24)  # significant bits of bfloat16, float16 and float32
_GRID = 1e-2  # of its step: numbers of a grid are as near to it
_MOSTLY = 0.9  # share of the numbers: in the rest the difference itself was rounded


def significant_bits(numbers: Tensor) -> int:
    """Count the bits in which all numbers are exact: 8 of bfloat16, 11 of float16, 24 of float32, or else 53.

    This does not depend on their present type, nor on a loss scaled by a power of two.
    """
    return next((bits for bits in _KNOWN if bool(_exact(numbers, bits).all())), 53)


def rounding(change: Tensor, before: Tensor, steps: int = 1) -> Tensor:
    """Estimate the rounding error of the numbers of each row: root mean squares, upper bounds.

    Args:
        change: (m, ...), a tensor of the update.
        before: the parameter. If subtracting the update from it gives a state of the same precision, the
            update is a difference of two such states, and has their rounding.
        steps: of the client, each of which rounds the state.
    """
    bits, own = significant_bits(change), significant_bits(before)
    added = 2.0**-bits * _typical(change)
    least = change[change != 0].abs().min() if bool(change.any()) else change.new_zeros(())
    if bits < 24 or bool(((change / least).round() * least - change).abs().amax() < _GRID * least):
        added += least  # of 16 bits, or of a grid as of 8 bits: smaller numbers vanish
    if float(_exact(before.double() - change.double(), own).double().mean()) > _MOSTLY:
        added += 2.0**-own * _typical(before) * steps**0.5
    return added


def _exact(numbers: Tensor, bits: int) -> Tensor:
    """Mark the numbers with at most this many significant bits."""
    scaled: Tensor = torch.frexp(numbers.detach().double()).mantissa * 2**bits
    return scaled.eq(scaled.round())


def _typical(numbers: Tensor) -> Tensor:
    """Compute (m,) root mean squares of rows."""
    return numbers.detach().double().flatten(1).square().mean(1).sqrt()
