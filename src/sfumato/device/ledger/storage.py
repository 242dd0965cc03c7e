"""Storages for images and releases: a folder of this machine, or a URL that fsspec opens.

Both have the same methods. Names are paths below the storage, with "/" between folders.
"""

import os
from pathlib import Path

from sfumato.device.ledger.local import Entry, Folder
from sfumato.device.ledger.remote import Remote
from sfumato.device.ledger.scopes import is_url

__all__ = ["Entry", "Folder", "Remote", "Storage", "storage_of"]

Storage = Folder | Remote


def storage_of(where: str | os.PathLike[str]) -> Storage:
    """Return the storage at a path or a URL. `file://` names a local folder.

    Raises:
        ConfigError: a password in the URL is not quoted.
    """
    if not is_url(where):
        return Folder(Path(where))
    url = str(where)
    return Folder(Path(url.removeprefix("file://"))) if url.startswith("file://") else Remote(url)
