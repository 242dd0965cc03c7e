"""An update: what changed of the parameters of a model, and how the client trained."""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from sfumato.errors import ConfigError, DataError

# Of Opacus, DataParallel and DistributedDataParallel, torch.compile, FSDP and activation checkpoints.
_WRAPPERS = frozenset(
    {"_module", "module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
)


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """How a client trained before it sent: what a server knows, since it decides most of it.

    Attributes:
        images: N, how many images the client trained on.
        steps: of plain SGD. One step of rate 1 is the gradient itself.
        rate: the learning rate.
        batch: how many images a step saw; None: all N.
        plain: whether that is all: with momentum, weight decay or Adam a simulation of SGD is inexact.
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
        """How many images a step sees."""
        return self.batch or self.images


@dataclass(frozen=True, kw_only=True)
class Noise:
    """What DP-SGD did to each step: gradients of images clipped to a norm of C, noise of deviation σ·C added.

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
    """What a client sends.

    Attributes:
        change: name of a parameter -> its value before, less its value after; for one step of rate 1, its
            gradient. Names `arr_0`, `arr_1`, ... stand for the tensors of a state dict in its order, as
            Flower has them.
        training: how it came about.
        noise: what was added on purpose; None: nothing that is known.
        before: the parameters at which training began, named alike; None: those of the model at hand.
    """

    change: Mapping[str, Tensor] = field(repr=False)
    training: LocalTraining
    noise: Noise | None = None
    before: Mapping[str, Tensor] | None = field(default=None, repr=False)

    def fitted(self, model: nn.Module) -> tuple[nn.Module, "Update"]:
        """A copy of the model where the training began, and the update by the names of its parameters.

        Names may have in front what wrappers put there, such as `_module.` of Opacus, on either side.
        Statistics of batch norm and other buffers are set in the model, and left out of the update.

        Raises:
            DataError: the update is of another model.
        """
        model = copy.deepcopy(model)
        if any(weight.dtype in (torch.float16, torch.bfloat16) for weight in model.parameters()):
            model = model.float()  # it is read in 32 bits, whatever it was trained in
        state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
        if self.before is not None:
            model.load_state_dict({**state, **_matched(self.before, state, "the parameters before")})
        change = _matched(self.change, state, "the update")
        trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
        missing = sorted(trained - change.keys())
        if missing:
            raise DataError(
                f"the update lacks {missing[0]} ({len(missing)} in all): it is of another model, or these "
                "are frozen: then set requires_grad=False on them"
            )
        kept = {name: change[name] for name in state if name in trained}
        return model, Update(change=kept, training=self.training, noise=self.noise)

    @property
    def gradient(self) -> dict[str, Tensor] | None:
        """The gradient behind one step of plain SGD; None where there were several, or another optimiser."""
        if self.training.steps > 1 or not self.training.plain:
            return None
        return {name: tensor / self.training.rate for name, tensor in self.change.items()}


def of_gradient(gradient: Mapping[str, Tensor], *, images: int, noise: Noise | None = None) -> Update:
    """The update that is a gradient, the mean over so many images."""
    return Update(change=gradient, training=LocalTraining(images=images), noise=noise)


def of_states(
    before: Mapping[str, Tensor],
    after: Mapping[str, Tensor],
    training: LocalTraining,
    *,
    noise: Noise | None = None,
) -> Update:
    """The update between two state dicts of a model (FedAvg).

    Raises:
        DataError: they have other names or shapes.
    """
    after = _matched(after, before, "the state after")
    missing = [name for name in before if name not in after]
    if missing:
        raise DataError(f"the state after lacks {missing[0]}: give two states of one model")
    change = {name: before[name].detach() - after[name].detach() for name in before}
    return Update(change=change, training=training, noise=noise, before=before)


def _matched(tensors: Mapping[str, Tensor], state: Mapping[str, Tensor], what: str) -> dict[str, Tensor]:
    """Tensors by the names and on the devices of a state, in 32 bits at least. Raises DataError."""
    if tensors and all(name == f"arr_{number}" for number, name in enumerate(tensors)):
        if len(tensors) != len(state):
            raise DataError(
                f"{what} has {len(tensors)} arrays without names, and the model {len(state)} tensors: give "
                "those of its state_dict(), in its order"
            )
        tensors = dict(zip(state, tensors.values(), strict=True))
    renamed = _renamed(tensors, state)
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
            raise DataError(f"{what} has numbers in {name} that are not finite: nothing can be read")
    return {
        renamed[name]: _at_least_32_bits(tensor.detach(), state[renamed[name]])
        for name, tensor in tensors.items()
    }


def _renamed(tensors: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> dict[str, str]:
    """The name in a state of each tensor that it has, whatever wrapped the model on either side."""
    found: dict[str, str] = {}
    for bare in (str, _unwrapped):
        by_bare = {bare(name): name for name in state}
        found = {name: by_bare[bare(name)] for name in tensors if bare(name) in by_bare}
        if len(by_bare) == len(state) and len(set(found.values())) == len(tensors):
            return found
    return {name: name for name in tensors if name in state}


def _unwrapped(name: str) -> str:
    """A name without those that wrappers put in front of it, or of a part of it."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def _at_least_32_bits(tensor: Tensor, like: Tensor) -> Tensor:
    kind = torch.promote_types(like.dtype, torch.float32) if like.dtype.is_floating_point else like.dtype
    return tensor.to(device=like.device, dtype=kind)
