"""Files that appear whole or not at all."""

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# A short name of its own: the name of the file itself may be as long as the system allows.
PART = ".sfumato-*.part"


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give a temporary path, for a file or a folder, that takes the place of `path` when the block ends well.

    When it does not, what was at `path` is untouched and the temporary is gone; only a process that is killed
    leaves it, under a name that matches PART. The folder of `path` is made where it is missing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(PART.replace("*", secrets.token_hex(8)))
    try:
        yield temporary
        temporary.replace(path)
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary)
        temporary.unlink(missing_ok=True)
