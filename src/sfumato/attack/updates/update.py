"""An update: the change of a model's parameters, and the client's training."""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

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
