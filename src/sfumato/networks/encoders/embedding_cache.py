"""What frozen encoders make of batches of images, kept on disk, so that it is computed once.

A file is named by the digest of the encoder and of the images. Embeddings tell about the images: files lie in
the cache folder of the user, can be read by their owner alone, and stay until they are cleared (`sfumato data
cache --clear`) or make room for newer ones.

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
def kept(folder: str | os.PathLike[str] | None = None) -> Iterator[None]:
    """In this block, embeddings are kept in a folder, by default `folder_of_user()`, and read from there."""
    token = _FOLDER.set(folder_of_user() if folder is None else Path(folder))
    try:
        yield
    finally:
        _FOLDER.reset(token)


def folder_of_user() -> Path:
    """Where the files lie."""
    return cache_folder("embeddings")


def cached(key: str, images: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
    """What `compute` gives of float images: from the folder of `kept`, or made and kept there.

    Outside such a block, for a few images, and where gradients are asked for, it is computed.

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
        pass  # not there, or damaged: it is made anew
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
    """Delete all files of the user, and say how many bytes they had."""
    files = _files(folder_of_user())
    for _, _, path in files:
        path.unlink(missing_ok=True)
    return sum(bytes_ for _, bytes_, _ in files)


def _make_room(folder: Path) -> None:
    """Remove the oldest files of a cache that is too large."""
    files = sorted(_files(folder))
    total = sum(bytes_ for _, bytes_, _ in files)
    for _, bytes_, path in files:
        if total <= MOST:
            return
        path.unlink(missing_ok=True)
        total -= bytes_


def _files(folder: Path) -> list[tuple[float, int, Path]]:
    """When each file was last used, its bytes and its path."""
    files = []
    for path in folder.glob("*.safetensors"):
        try:
            status = path.stat()
        except OSError:
            continue  # another process removed it
        files.append((status.st_mtime, status.st_size, path))
    return files
