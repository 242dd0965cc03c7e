"""The survey of folders that have a budget: their images are recorded before any is released.

Otherwise a copy of an image in another folder would have its own budget until the original is released.
"""

import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from sfumato import images
from sfumato.device.ledger import Ledger
from sfumato.device.ledger.fingerprints import fingerprints
from sfumato.errors import ImageError, MissingExtraError

_BATCH = 64  # files of one transaction


def survey(ledger: Ledger) -> int:
    """Record in a ledger the new and changed images of its folders with a budget.

    Only folders of this machine are surveyed; images in tar files and at URLs count from their first release
    on. The root alone is not surveyed. Files that are not images are skipped.

    Returns:
        the number of images read.
    """
    read = 0
    for folder in ledger.folders_with_budget():
        new = _new_files(Path(os.fsdecode(folder)), ledger)
        while files := list(islice(new, _BATCH)):
            seen = []
            for path, _ in files:
                try:
                    image = images.read_array(path, channels=None)
                except (ImageError, MissingExtraError):
                    continue
                seen.append((images.digest(image), fingerprints(image[None])[0], path))
            ledger.survey([(os.fsencode(path), stamp) for path, stamp in files], seen)
            read += len(seen)
    return read


def _new_files(folder: Path, ledger: Ledger) -> Iterator[tuple[Path, str]]:
    """Yield images below a folder that are new or changed since their survey, with their stamps."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(parent, name)
            if name.startswith("."):
                continue
            try:
                status = path.stat()
            except OSError:
                continue
            if not stat.S_ISREG(status.st_mode):
                continue
            stamp = f"{status.st_mtime_ns}:{status.st_size}"
            if ledger.read_stamp(os.fsencode(path)) != stamp and images.is_image(path):
                yield path, stamp
