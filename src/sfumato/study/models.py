"""Networks that several cells of a study need: each is made once, and kept beside the records."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from sfumato.study.records import digest_of

# Raised when the same settings would give other results, so that older records are not taken for new ones.
RESULTS = 2

_Network = TypeVar("_Network")


class Models:
    """The networks of one study on one data set. State: a folder of artefacts, and those read so far."""

    def __init__(self, directory: Path, data: str) -> None:
        """Keep networks in `directory`, for the data of that digest."""
        self._directory = directory
        self._data = data
        self._read: dict[str, Any] = {}

    def once(
        self,
        kind: str,
        settings: dict[str, Any],
        make: Callable[[Path], None],
        read: Callable[[Path], _Network],
    ) -> _Network:
        """The network of these settings.

        Args:
            kind: what it is, for the name of its file.
            settings: all that decides it, beside the data.
            make: writes it to a path; called where an earlier cell or run has not.
            read: reads it from there.
        """
        digest = digest_of({"results": RESULTS, "kind": kind, "data": self._data, **settings})
        path = self._directory / f"{kind}-{digest}.safetensors"
        if path.name not in self._read:
            if not path.exists():
                make(path)
            self._read[path.name] = read(path)
        found: _Network = self._read[path.name]
        return found
