"""Files of weights that installed packages carry, each known by its digest.

A package is never imported: none of its code runs, and its own imports need not be installed.
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from sfumato.errors import ArtefactError, MissingExtraError


@dataclass(frozen=True, kw_only=True)
class WheelFile:
    """A file of weights in a package of a registry."""

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
            digest = _digest(path, path.stat().st_mtime_ns)
        except OSError as error:
            raise ArtefactError(f"{path}: cannot be read ({error.strerror}): {self.cure()}") from error
        if digest != self.sha256:
            raise ArtefactError(
                f"{path}: its SHA-256 is {digest}, and {self.what} is {self.sha256}: it is not read. Remove "
                f"{self.distribution}, and {self.cure()}"
            )
        return path


@lru_cache(maxsize=8)
def _digest(path: Path, changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
