"""Updates of federated learning clients: their record, their files, and the form that the attacks take.

Files are safetensors with the training in the header, or .npz; never a pickle. Clients of Flower record their
updates by two lines in their code. Flower is not imported: a client is an object with a `fit` like that of
`flwr.client.NumPyClient`, and a mod is a function for `flwr.clientapp.ClientApp(mods=[...])`.
"""

import copy
import json
import math
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, is_grad_enabled, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim import SGD, Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from sfumato.attack.exact import low_rank
from sfumato.attack.saturation import check_bounds
from sfumato.base.files import open_regular, parse_json, whole
from sfumato.errors import ConfigError, DataError

_HEADER = "sfumato-update"
_BEFORE = "before/"
_DAMAGES = (SafetensorError, OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile)

_Client = TypeVar("_Client")
Mod = Callable[[Any, Any, Callable[[Any, Any], Any]], Any]

# Prefixes of Opacus, (Distributed)DataParallel, torch.compile, FSDP and activation checkpoints.
_WRAPPERS = frozenset(
    {"_module", "module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
)


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """A client's training before an update: known to the server, which decides most of it."""

    images: int  # N, the client's number
    steps: int = 1  # of SGD. One step of rate 1 is the gradient itself
    rate: float = 1.0  # the learning rate
    batch: int | None = None  # the number of images of a step; None: all N
    plain: bool = True  # whether it is plain SGD: with momentum, weight decay or Adam a simulation is inexact

    def __post_init__(self) -> None:
        check_bounds(self, "rate", images=1, steps=1)
        if self.batch is not None and not 1 <= self.batch <= self.images:
            raise ConfigError(f"batch={self.batch}: a step sees 1 to {self.images} images")

    @property
    def together(self) -> int:
        """The number of images of a step."""
        return self.batch or self.images


@dataclass(frozen=True, kw_only=True)
class Noise:
    """The noise of DP-SGD in each step: gradients of images clipped to a norm of C, plus noise of σ·C."""

    noise_multiplier: float  # σ
    clipping_norm: float  # C

    def __post_init__(self) -> None:
        check_bounds(self, "noise_multiplier", "clipping_norm")


@dataclass(frozen=True, kw_only=True)
class Update:
    """A client's update. Names `arr_0`, `arr_1`, ... are the tensors of a state dict in its order."""

    # Maps a parameter's name to its value before minus its value after; for one step of rate 1, its gradient.
    change: Mapping[str, Tensor] = field(repr=False)
    training: LocalTraining
    noise: Noise | None = None  # that was added and is known
    # The parameters at the start of training, by the same names; None: those of the given model.
    before: Mapping[str, Tensor] | None = field(default=None, repr=False)

    def fit(self, model: nn.Module) -> tuple[nn.Module, "Update"]:
        """Return a copy of the model at the start of training, and the update by its parameter names.

        Names may have prefixes from wrappers, such as `_module.` of Opacus, on either side. Buffers are set
        in the model, and omitted from the update. Raises DataError if it is of another model.
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


def of_states(
    before: Mapping[str, Tensor],
    after: Mapping[str, Tensor],
    training: LocalTraining,
    *,
    noise: Noise | None = None,
) -> Update:
    """Make an update from two state dicts of a model (FedAvg). Raises DataError if names or shapes differ."""
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
    renamed, matched = _rename(tensors, state), {}
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
        kind = state[own].dtype
        kind = torch.promote_types(kind, torch.float32) if kind.is_floating_point else kind
        matched[own] = tensor.detach().to(device=state[own].device, dtype=kind)
    return matched


def _rename(tensors: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> dict[str, str]:
    """Map tensor names to names in a state, ignoring wrappers of the model on either side."""
    for bare in (str, lambda name: ".".join(part for part in name.split(".") if part not in _WRAPPERS)):
        by_bare = {bare(name): name for name in state}
        found = {name: by_bare[bare(name)] for name in tensors if bare(name) in by_bare}
        if len(by_bare) == len(state) and len(set(found.values())) == len(tensors):
            return found
    return {name: name for name in tensors if name in state}


@dataclass
class Watch:
    """A record of this process's optimisers. State: the observations."""

    steps: int = 0
    rates: set[float] = field(default_factory=set)
    batches: list[int] = field(default_factory=list)  # sizes of the first of a training module by step
    plain: bool = True  # whether all are SGD without momentum, weight decay or several groups
    _update: Update | None = None

    @property
    def update(self) -> Update:
        """The client's update, once the block of `record` has ended well."""
        if self._update is None:
            raise DataError("nothing is recorded yet: read the update after the block of `record`")
        return self._update

    def training(self, images: int | None) -> LocalTraining:
        """Return the observed training; `images` None: those of its one step. Raises DataError."""
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


@contextmanager
def record(
    model: nn.Module, *, images: int | None = None, optimiser: object | None = None
) -> Iterator[Watch]:
    """Record the update of a model trained in a block, with its steps, rate and batches.

        with record(model, images=len(photographs)) as recording:
            train(model, photographs)
        audit_update(model, recording.update, shape=(3, 32, 32))

    `images` is the client's number; None: those of the one step. Opacus's DPOptimizer tells its noise.
    """
    before = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    with watching() as watch:
        yield watch
    multiplier, norm = (getattr(optimiser, name, 0.0) for name in ("noise_multiplier", "max_grad_norm"))
    noise = Noise(noise_multiplier=float(multiplier), clipping_norm=float(norm)) if multiplier else None
    watch._update = of_states(before, model.state_dict(), watch.training(images), noise=noise)


def save(update: Update, path: str | os.PathLike[str]) -> Path:
    """Write an update as .safetensors, whole or not at all, with its training and its noise."""
    path = Path(path)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in update.change.items()}
    for name, tensor in (update.before or {}).items():
        tensors[_BEFORE + name] = tensor.detach().cpu().contiguous().clone()
    noise = None if update.noise is None else asdict(update.noise)
    facts = {"training": asdict(update.training), "noise": noise}
    with whole(path) as temporary:
        save_file(tensors, temporary, metadata={_HEADER: json.dumps(facts, sort_keys=True)})
    return path


def load(
    path: str | os.PathLike[str],
    *,
    training: LocalTraining | None = None,
    noise: Noise | None = None,
    before: str | os.PathLike[str] | None = None,
) -> Update:
    """Read an update from .safetensors or .npz, of `save` or with tensors by the names of a model.

    `training` and `noise` replace those of the file. `before`: a file of the parameters before; then `path`
    has those after, not the difference. Raises DataError as `read` does, and if the training is unknown.
    """
    path = Path(path)
    tensors, facts = read(path)
    try:
        training = training or (LocalTraining(**facts["training"]) if facts else None)
        noise = noise or (Noise(**facts["noise"]) if facts and facts["noise"] else None)
    except (KeyError, TypeError, ConfigError) as error:
        raise DataError(f"{path}: the training in its header cannot be read ({error})") from error
    if training is None:
        raise DataError(
            f"{path}: does not say how the client trained: give the number of images, and steps, rate and "
            "batch unless it is a plain gradient"
        )
    if before is not None:
        return replace(of_states(read(Path(before))[0], tensors, training), noise=noise)
    began = {name.removeprefix(_BEFORE): each for name, each in tensors.items() if name.startswith(_BEFORE)}
    change = {name: each for name, each in tensors.items() if not name.startswith(_BEFORE)}
    return Update(change=_in_order(change), training=training, noise=noise, before=_in_order(began) or None)


def _in_order(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Order arrays without names by their numbers: a file orders them alphabetically."""
    if not all(name.removeprefix("arr_").isdecimal() for name in tensors):
        return tensors
    return {name: tensors[name] for name in sorted(tensors, key=lambda name: int(name.removeprefix("arr_")))}


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any] | None]:
    """Read tensors, and the training in the header, or None. Raises DataError."""
    if path.suffix not in (".safetensors", ".npz"):
        raise DataError(
            f"{path}: updates are read from .safetensors and .npz, since a pickle could run code: write its "
            "tensors with safetensors.torch.save_file"
        )
    try:
        if path.suffix == ".npz":
            with open_regular(path) as file, np.load(file, allow_pickle=False) as arrays:
                return {name: torch.from_numpy(arrays[name]) for name in arrays}, None
        open_regular(path).close()
        with safe_open(path, framework="pt") as file:
            said = (file.metadata() or {}).get(_HEADER)
            return dict(zip(file.keys(), map(file.get_tensor, file.keys()), strict=True)), (
                parse_json(said) if said else None
            )
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except _DAMAGES as error:
        raise DataError(f"{path}: damaged, or not plain numbers ({error})") from error


def record_client(client: _Client, folder: str | Path, *, noise: Noise | None = None) -> _Client:
    """Let the `fit` of a NumPyClient of Flower save every update in a folder, as update-1.safetensors, ...

    Steps, rate and batch are those of PyTorch's optimisers meanwhile; the number of images is the one that
    `fit` returns. Return values do not change. `noise`: of DP-SGD, if the client adds it.
    """
    fit = client.fit  # type: ignore[attr-defined]

    def recording_fit(parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], int, dict[str, Any]]:
        before = _number(parameters)  # copies: the client may train in place
        with watching() as watch:
            after, images, metrics = fit(parameters, config)
        _keep(folder, before, _number(after), watch.training(images), noise)
        return after, images, metrics

    client.fit = recording_fit  # type: ignore[attr-defined]
    return client


def client_mod(folder: str | Path, *, images: int | None = None, noise: Noise | None = None) -> Mod:
    """Return a mod of Flower that does the same; the number of images may be `num-examples` of the reply."""

    def recording_mod(message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> Any:
        before = _arrays(message)
        with watching() as watch:
            reply = call_next(message, context)
        if watch.steps and before and reply.has_content():
            told = {
                name.replace("_", "-"): value
                for record in reply.content.metric_records.values()
                for name, value in record.items()
            }
            seen = told.get("num-examples") if images is None else images
            training = watch.training(None if seen is None else int(seen))
            _keep(folder, before, _arrays(reply), training, noise)
        return reply

    return recording_mod


def _keep(
    folder: str | Path,
    before: dict[str, Tensor],
    after: dict[str, Tensor],
    training: LocalTraining,
    noise: Noise | None,
) -> None:
    if list(before) != list(after):
        raise DataError(
            "the client returned other arrays than it got: an update is recorded only if `fit` takes "
            "and returns the same parameters"
        )
    number = 1 + len(list(Path(folder).glob("update-*.safetensors")))
    save(of_states(before, after, training, noise=noise), Path(folder) / f"update-{number}.safetensors")


def _number(arrays: list[Any]) -> dict[str, Tensor]:
    return {f"arr_{number}": torch.from_numpy(np.array(each)) for number, each in enumerate(arrays)}


def _arrays(message: Any) -> dict[str, Tensor]:
    for record in message.content.array_records.values():
        arrays = {name: np.array(array.numpy()) for name, array in record.items()}
        if all(map(str.isdecimal, arrays)):
            return _number(list(arrays.values()))
        return {name: torch.from_numpy(array) for name, array in arrays.items()}
    return {}


_KNOWN = (8, 11, 24)  # significant bits of bfloat16, float16 and float32
_GRID = 1e-2  # of its step: numbers of a grid are as near to it
_MOSTLY = 0.9  # share of the numbers: in the rest the difference itself was rounded


def significant_bits(numbers: Tensor) -> int:
    """Count the bits in which all numbers are exact: 8 of bfloat16, 11 of float16, 24 of float32, or 53."""
    return next((bits for bits in _KNOWN if bool(_exact(numbers, bits).all())), 53)


def rounding(change: Tensor, before: Tensor, steps: int = 1) -> Tensor:
    """Estimate the rounding error of the numbers of each row: root mean squares, upper bounds."""
    bits, own = significant_bits(change), significant_bits(before)
    added = 2.0**-bits * _typical(change)
    least = change[change != 0].abs().min() if bool(change.any()) else change.new_zeros(())
    if bits < 24 or bool(((change / least).round() * least - change).abs().amax() < _GRID * least):
        added += least  # of 16 bits, or of a grid as of 8 bits: smaller numbers vanish
    # Then it is a difference of two states of this precision, and has their rounding, once a step.
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


_STEPS = 31  # of the search; each counts directions of a third of the energy of the one before
_LARGEST = 2048  # units of a layer, which take a minute
_LESS = 0.98  # of what the images do not explain is left, at most, if there was a decay
_FREE = 200  # numbers at least that they do not explain: two coefficients make a few vanish in any update


def undo_decay(model: nn.Module, update: Update) -> tuple[Update, tuple[float, float]]:
    """Subtract the decay of weights. -> the update without it; c and s, in units of the update.

    Clients whose loss or optimiser pulls weights to 0 add c·W + s·sign(W) to their gradients: coupled or
    decoupled, of one step or many, with momentum or without. The server has W. The gradient of a linear layer
    has the rank of its images, so c and s are the numbers whose subtraction leaves the lowest rank; 0 if no
    layer shows them, as with noise, or as many images as units. FedProx needs nothing: µ·(W - W₀) is 0 in the
    first step, and a mixture of gradients later. `update` is fitted to `model`, at the start of training.
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
        tails = [_outside(columns, each) for each in (own, rest)]
        if math.prod(side - left.shape[1] for side in own.shape) < _FREE or tails[1] > _LESS * tails[0]:
            continue
        undone = {each: value - _decay(found, weights[each]) for each, value in update.change.items()}
        bias = f"{name.removesuffix('weight')}bias"
        # Many clients decay no bias. The gradient by this layer's is a mixture of the columns of the other.
        biases = [sent[bias].double().cpu() for sent in (update.change, undone) if bias in sent]
        lies = [_outside(columns, each) for each in biases]
        if lies and lies[0] <= lies[1]:
            undone |= {each: value for each, value in update.change.items() if value.ndim == 1}
        return replace(update, change=undone), found
    return update, (0.0, 0.0)


def _decay(coefficients: tuple[float, float], weight: Tensor) -> Tensor:
    return coefficients[0] * weight + coefficients[1] * weight.sign()


def _outside(columns: Tensor, values: Tensor) -> float:
    return float((values - columns @ (columns.T @ values)).norm())


def _lowest_rank(change: Tensor, weight: Tensor) -> tuple[float, float]:
    """Find c and s that make change - c·W - s·sign(W) of the lowest rank, all (m, n) float64."""
    # By reweighted least squares (Mohan & Fazel 2012): directions in which little is left count most.
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
