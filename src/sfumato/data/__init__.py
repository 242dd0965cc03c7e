"""Data sets, each as LabelledImages: images, a table of named labels, and splits."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pydantic

from sfumato.data.labelled import Label, LabelledImages
from sfumato.data.readers.celeba import celeba
from sfumato.data.readers.fer import fer
from sfumato.data.readers.folder import folder
from sfumato.data.readers.official import caltech101, lfw, miniimagenet
from sfumato.data.readers.omniglot import omniglot
from sfumato.data.readers.parquet import from_dataset, parquet
from sfumato.data.readers.table import table
from sfumato.data.worlds.faces import faces
from sfumato.data.worlds.glyphs import glyphs
from sfumato.data.worlds.hats import hats
from sfumato.errors import ConfigError, DataError, ImageError, did_you_mean

__all__ = [
    "WORLDS",
    "Label",
    "LabelledImages",
    "caltech101",
    "celeba",
    "faces",
    "fer",
    "folder",
    "from_dataset",
    "glyphs",
    "hats",
    "lfw",
    "load",
    "miniimagenet",
    "omniglot",
    "parquet",
    "table",
]

WORLDS: dict[str, Callable[..., LabelledImages]] = {"faces": faces, "glyphs": glyphs}
_OWN = (folder, table, parquet, hats)
_SETS = (omniglot, celeba, miniimagenet, caltech101, fer, lfw)
_ON_DISK: dict[str, Callable[..., LabelledImages]] = {reader.__name__: reader for reader in (*_OWN, *_SETS)}


def load(source: str, *, strict: bool = True, **settings: Any) -> LabelledImages:
    """Loads the data that a string names: "faces", "folder:DIR", "table:FILE", "parquet:FILE", ...

    Args:
        source: a world, or a kind of source and its path; `sfumato data list` prints all of them.
        strict: stop at the first file that cannot be read; otherwise such files are in `skipped`.
        settings: keyword arguments of the function of that name in this package, such as size=64.
    """
    kind, _, place = source.partition(":")
    readers = {**WORLDS, **_ON_DISK}
    if kind not in readers:
        kinds = {".csv": "table", ".parquet": "parquet"}
        of_suffix = kinds.get(Path(source).suffix.lower())
        if source and not place and (of_suffix or Path(source).exists()):
            likely = "folder" if Path(source).is_dir() else of_suffix or "table"
            raise DataError(f"{source}: the kind of source is missing: write {likely}:{source}")
        raise DataError(f"no data source is called {kind!r}: {did_you_mean(kind, readers)}")
    reader = readers[kind]
    parameters = inspect.signature(reader).parameters
    known = [name for name in parameters if name != "skip_unreadable"]
    for name in settings:
        if name not in known:
            raise DataError(f"{kind}: no setting {name!r}: {did_you_mean(name, known)}")
    if kind in WORLDS:
        if place:
            raise DataError(f"{source}: {kind} is drawn, not read: write {kind}, without a path")
        return _read(reader, **settings)
    if bool(place) == ("root" in settings):
        raise DataError(f"{source}: needs one path: write {kind}:PATH, or name a root, not both")
    errors: list[ImageError] = []

    def skip(error: ImageError) -> None:
        if strict:
            cure = "remove the file, or read without strict, which leaves such files out"
            raise ImageError(f"{error}: {cure}") from error
        errors.append(error)

    if "skip_unreadable" in parameters:
        settings["skip_unreadable"] = skip
    loaded = _read(reader, place or settings.pop("root"), **settings)
    return replace(loaded, skipped=tuple(map(str, errors))) if errors else loaded


def _read(reader: Callable[..., LabelledImages], *place: str, **settings: Any) -> LabelledImages:
    """Calls a reader with settings of the right types. Raises ConfigError that names a wrong one."""
    try:
        return pydantic.validate_call(config={"arbitrary_types_allowed": True})(reader)(*place, **settings)
    except pydantic.ValidationError as error:
        problem = error.errors()[0]
        name = problem["loc"][-1]
        raise ConfigError(f"{reader.__name__}: {name}={problem['input']!r}: {problem['msg']}") from error
