"""Folders that have a budget, looked through: which images lie there, before anything of them is released.

Without it, a copy of an image in another folder would have a budget of its own, as long as the original was
never released.
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
    """Write down in a ledger the images of its budgeted folders that are new or changed there.

    Folders of this machine alone; of tar files and URLs, an image counts from its first release on. Outside
    of the root nothing lies on this machine: it is not looked through. Files that are not images are passed
    over: nothing can be released of them.

    Returns:
        how many images were read.
    """
    read = 0
    for folder in ledger.budgeted_folders():
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
    """Images below a folder that were not surveyed since they were changed, with their stamps."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(parent, name)
            if name.startswith(".") or path.suffix.lower() not in images.SUFFIXES:
                continue
            try:
                status = path.stat()
            except OSError:
                continue
            if not stat.S_ISREG(status.st_mode):
                continue
            stamp = f"{status.st_mtime_ns}:{status.st_size}"
            if ledger.surveyed(os.fsencode(path)) != stamp:
                yield path, stamp
