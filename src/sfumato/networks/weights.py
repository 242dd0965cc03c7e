"""Weights of networks: initial ones from a seed, and public ones from a file of the user or of a package.

Nothing is downloaded here. Artefacts of our own, which carry a card, are read by sfumato.artefacts.
"""

import hashlib
import math
import os
import pickle
import threading
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from sfumato.base.files import open_regular
from sfumato.errors import ArtefactError, MissingExtraError

_NAMED = 3  # wrong names that an error lists
_COUNTER = "num_batches_tracked"  # of a batch norm: no network uses it at rest, and not all files have it
# Keys of a checkpoint below which its state dict may lie.
_WRAPPERS = ("state_dict", "model_state_dict", "net_state_dict", "model", "net")

_Network = TypeVar("_Network", bound=nn.Module)
_one_at_a_time = threading.RLock()


@contextmanager
def initial_weights(seed: int | None = None) -> Iterator[None]:
    """Wraps making a network: PyTorch draws its weights from a generator that all threads share.

    Only one thread is in such a block at a time, and the generator is restored after it. The seed decides the
    weights; None if others replace them at once.
    """
    with _one_at_a_time, torch.random.fork_rng():
        if seed is not None:
            torch.manual_seed(seed)
        yield


@contextmanager
def no_larger_than(tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Wraps making a network for these weights: it stops one that is evidently larger.

    A card may ask for a million layers, or for layers of a million filters. Memory thus stays within about
    twice that of the weights, for any card. Raises ArtefactError for more numbers or tensors than there are.
    """
    with _Measured(sum(each.numel() for each in tensors.values()), len(tensors)):
        yield


class _Measured(TorchFunctionMode):
    """Counts the parts of layers before they are made. State: the numbers and tensors that are left."""

    def __init__(self, numbers: int, tensors: int) -> None:
        super().__init__()
        # Besides weights, a network may need a blank image to see the outputs of its layers.
        self._numbers, self._tensors = 2 * numbers + (1 << 22), 2 * tensors + 256

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in (torch.empty, torch.zeros, torch.ones):
            sizes = args[0] if args and isinstance(args[0], tuple | list) else args
            self._take(math.prod(sizes), 1)
        elif func is torch.eye:
            self._take(args[0] ** 2, 0)
        # Nothing else may fail here: the end of a block of torch.no_grad comes this way, too.
        return func(*args, **(kwargs or {}))

    def _take(self, numbers: int, tensors: int) -> None:
        self._numbers -= numbers
        self._tensors -= tensors
        if self._numbers < 0 or self._tensors < 0:
            raise ArtefactError("its card asks for a larger network than it has weights for")


def take_weights(
    network: nn.Module, tensors: Mapping[str, Tensor], path: str | os.PathLike[str], *, cure: str = ""
) -> None:
    """Gives a network the weights of an artefact. Raises ArtefactError if a name, shape or type differs."""
    if found := _differences(network.state_dict(), tensors):
        raise ArtefactError(
            f"{path}: damaged: the weights do not fit the networks of its card: it {found}{cure}"
        )
    network.load_state_dict(dict(tensors))


def _differences(wanted: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> str:
    """The differences in names, shapes and types between tensors and those of a network, or ""."""
    both = [name for name in wanted if name in tensors]
    problems = {
        "lacks": [name for name in wanted if name not in tensors],
        "has unknown": [name for name in tensors if name not in wanted],
        "has other shapes:": [
            f"{name} {tuple(tensors[name].shape)} for {tuple(wanted[name].shape)}"
            for name in both
            if tensors[name].shape != wanted[name].shape
        ],
        "has other numbers:": [
            f"{name} of {tensors[name].dtype}"
            for name in both
            if tensors[name].is_floating_point() != wanted[name].is_floating_point()
        ],
    }
    return "; ".join(f"{what} {_first(names)}" for what, names in problems.items() if names)


def load_weights(
    make: Callable[[], _Network],
    path: str | os.PathLike[str],
    *,
    source: str,
    unused: Collection[str] = (),
    rename: Callable[[dict[str, Tensor]], dict[str, Tensor]] = dict,
) -> _Network:
    """Makes a network in evaluation mode with the weights of a file: all its own, and no others.

    Args:
        make, path: the network; and the file, see `read`.
        source: the address of such weights and their terms: the end of each error.
        unused: names that the file may have, and this network does not need.
        rename: converts the weights of another library.
    """
    with initial_weights():
        network = make()
    path = Path(path)
    given = rename(read(path, source=source))
    tensors = {name: tensor for name, tensor in given.items() if name not in unused}
    wanted: dict[str, Tensor] = network.state_dict()
    tensors = {name: own for name, own in wanted.items() if name.endswith(_COUNTER)} | tensors
    if found := _differences(wanted, tensors):
        raise ArtefactError(f"{path}: no weights of {type(network).__name__}: {found}. {source}")
    network.load_state_dict(tensors)
    return network.eval()


def _first(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def read(path: Path, *, source: str) -> dict[str, Tensor]:
    """Reads the tensors of a file by name.

    A .safetensors file, an .npz of plain arrays, or a .pt, .pth or .ckpt with a state dict, whose names may
    begin with `module.`. Raises ArtefactError for a missing or damaged file, or one that could run code.
    """
    readers: dict[str, Callable[[Path], dict[str, Tensor]]] = {
        ".safetensors": load_file,
        ".npz": _read_npz,
        **dict.fromkeys((".pt", ".pth", ".ckpt"), _read_state_dict),
    }
    if path.suffix not in readers:
        raise ArtefactError(f"{path}: weights are read from {', '.join(readers)}. {source}")
    try:
        return readers[path.suffix](path)
    except FileNotFoundError as error:
        raise ArtefactError(f"{path}: no such file. {source}") from error
    except pickle.UnpicklingError as error:
        raise ArtefactError(
            f"{path}: is not a plain state dict, and a pickle of anything else could run code: if you trust "
            "it, open it once yourself, and write its tensors with safetensors.torch.save_file"
        ) from error
    except _DAMAGES as error:
        raise ArtefactError(f"{path}: damaged, or not plain numbers ({error}). {source}") from error


# NumPy raises ValueError for pickled arrays; PyTorch TypeError for text, RuntimeError for bad archives.
_DAMAGES = (SafetensorError, OSError, EOFError, ValueError, TypeError, RuntimeError, zipfile.BadZipFile)


def _read_npz(path: Path) -> dict[str, Tensor]:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays}


def _read_state_dict(path: Path) -> dict[str, Tensor]:
    """Reads a checkpoint by PyTorch's reader of tensors alone, which runs no code of the file."""
    content: Any = torch.load(path, map_location="cpu", weights_only=True)
    inner = content
    while inner is not None:
        content = inner
        parts = [content.get(key) for key in _WRAPPERS] if isinstance(content, Mapping) else []
        inner = next((each for each in parts if isinstance(each, Mapping)), None)
    if not isinstance(content, Mapping) or not all(isinstance(each, Tensor) for each in content.values()):
        raise pickle.UnpicklingError("not a mapping from names to tensors")
    return {str(name).removeprefix("module."): tensor for name, tensor in content.items()}


@dataclass(frozen=True, kw_only=True)
class WheelFile:
    """A file of weights in a package of a registry, which is never imported: none of its code runs."""

    what: str  # the work that needs it, in words
    extra: str  # of sfumato, which installs the package
    distribution: str  # the package's name
    file: str  # its path below the folder of the installed package
    sha256: str  # of the file; another one is not read
    otherwise: str = ""  # how to work without it, in words

    def cure(self) -> str:
        """How to install it, or work without it, in words."""
        command = f"in the clone of sfumato, run pip install -c constraints.txt -e '.[{self.extra}]'"
        return f"{command}, {self.otherwise}" if self.otherwise else command

    def is_installed(self) -> bool:
        """Whether the package is installed."""
        try:
            return bool(distribution(self.distribution))
        except PackageNotFoundError:
            return False

    def path(self) -> Path:
        """The path of the file. Raises MissingExtraError, or ArtefactError for unknown bytes."""
        if not self.is_installed():
            raise MissingExtraError(f"{self.what} needs {self.distribution}: {self.cure()}")
        path = Path(str(distribution(self.distribution).locate_file(self.file)))
        try:
            digest = digest_of(path)
        except OSError as error:
            raise ArtefactError(f"{path}: cannot be read ({error.strerror}): {self.cure()}") from error
        if digest != self.sha256:
            raise ArtefactError(
                f"{path}: its SHA-256 is {digest}, and {self.what} is {self.sha256}: it is not read. Remove "
                f"{self.distribution}, and {self.cure()}"
            )
        return path


def digest_of(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file, which is read again only if it has changed. Raises OSError."""
    return _digest(os.fspath(path), Path(path).stat().st_mtime_ns)


@lru_cache(maxsize=32)
def _digest(path: str, changed: int) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
