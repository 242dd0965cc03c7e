"""Data sets, each as LabelledImages: images, a table of named labels, and splits."""

import inspect
from collections.abc import Callable
from typing import Any

from sfumato.data.faces import faces
from sfumato.data.folder import folder
from sfumato.data.glyphs import glyphs
from sfumato.data.labelled import Label, LabelledImages
from sfumato.data.omniglot import omniglot
from sfumato.data.table import table
from sfumato.errors import DataError, did_you_mean

__all__ = ["Label", "LabelledImages", "faces", "folder", "glyphs", "load", "omniglot", "table"]

_WORLDS: dict[str, Callable[..., LabelledImages]] = {"faces": faces, "glyphs": glyphs}
_ON_DISK: dict[str, Callable[..., LabelledImages]] = {"folder": folder, "omniglot": omniglot, "table": table}


def load(source: str, **settings: Any) -> LabelledImages:
    """Load the data that a string names: "faces", "glyphs", "folder:DIR", "table:FILE", "omniglot:DIR".

    Args:
        source: a world, or a kind of source and where it lies.
        settings: keyword arguments of the function of that name in this package, such as size=64.

    Raises:
        DataError: no such source, or a setting that it does not have; the nearest is named.
    """
    kind, _, place = source.partition(":")
    readers = {**_WORLDS, **_ON_DISK}
    if kind not in readers:
        raise DataError(f"no data source is called {kind!r}: {did_you_mean(kind, readers)}")
    reader = readers[kind]
    known = [name for name in inspect.signature(reader).parameters if name != "skip_unreadable"]
    for name in settings:
        if name not in known:
            raise DataError(f"{kind}: no setting {name!r}: {did_you_mean(name, known)}")
    if kind in _WORLDS:
        if place:
            raise DataError(f"{source}: {kind} is drawn, not read: write {kind}, with no place")
        return reader(**settings)
    if not place and "root" not in settings:
        raise DataError(f"{source}: where does it lie? Write {kind}:PATH")
    return reader(place or settings.pop("root"), **settings)
