"""Embeddings of batches of images by frozen encoders, stored on disk, so that each is computed once.

A file is named by the digest of the encoder and of the images. Embeddings reveal the images: files lie in
the cache folder of the user, only their owner can read them, and they stay until they are cleared (`sfumato
data cache --clear`) or make room for newer ones.

    SFUMATO_CACHE  a folder for the files: never one that others read
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from sfumato.base.files import cache_folder, whole

MOST = 1 << 30  # bytes of all files together

_FEWEST = 8  # images of a batch
_FOLDER: ContextVar[Path | None] = ContextVar("embeddings", default=None)


@contextmanager
def store(folder: str | os.PathLike[str] | None = None) -> Iterator[None]:
    """Stores embeddings in a folder during this block, by default `folder_of_user()`, and reads them."""
    token = _FOLDER.set(folder_of_user() if folder is None else Path(folder))
    try:
        yield
    finally:
        _FOLDER.reset(token)


def folder_of_user() -> Path:
    """The folder of the files."""
    return cache_folder("embeddings")


def look_up(key: str, images: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
    """Returns `compute` of float images: from the folder of `store`, or computed and stored there.

    Outside such a block, for a few images, and if gradients are needed, it is computed.

    Args:
        key: the digest of all else that decides the result.
        images: (N, C, H, W).
        compute: -> (N, D).
    """
    folder = _FOLDER.get()
    gradients = torch.is_grad_enabled() and images.requires_grad
    if folder is None or len(images) < _FEWEST or gradients:
        return compute(images)
    digest = hashlib.sha256(f"{key} {tuple(images.shape)} {images.dtype}".encode())
    digest.update(images.detach().cpu().contiguous().numpy().data)
    path = folder / f"{digest.hexdigest()[:32]}.safetensors"
    try:
        found = load_file(path)["embeddings"]
        os.utime(path)
        return found.to(images.device)
    except (OSError, SafetensorError, KeyError):
        pass  # missing or damaged: it is made again
    with torch.no_grad():
        made = compute(images)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with whole(path) as temporary:
        save_file({"embeddings": made.cpu().contiguous()}, temporary)
        temporary.chmod(0o600)
    _make_room(folder)
    return made


def size() -> int:
    """Bytes of all files of the user."""
    return sum(bytes_ for _, bytes_, _ in _files(folder_of_user()))


def clear() -> int:
    """Deletes all files of the user, and returns their bytes."""
    files = _files(folder_of_user())
    for _, _, path in files:
        path.unlink(missing_ok=True)
    return sum(bytes_ for _, bytes_, _ in files)


def _make_room(folder: Path) -> None:
    """Removes the oldest files of a cache that is too large."""
    files = sorted(_files(folder))
    total = sum(bytes_ for _, bytes_, _ in files)
    for _, bytes_, path in files:
        if total <= MOST:
            return
        path.unlink(missing_ok=True)
        total -= bytes_


def _files(folder: Path) -> list[tuple[float, int, Path]]:
    """The time of the last use, the bytes and the path of each file."""
    files = []
    for path in folder.glob("*.safetensors"):
        try:
            status = path.stat()
        except OSError:
            continue  # another process removed it
        files.append((status.st_mtime, status.st_size, path))
    return files
