"""What the cloud keeps: tenants, keys, classifiers, embeddings of examples, and who enrolled and forgot what.

One schema in SQLite, a file beside the service, or in PostgreSQL with pgvector, which several machines may
share. What a method acknowledged is on the disk, whole; what it did not acknowledge is there whole or not at
all. Every query names the tenant, and to one tenant the objects of another are missing, not forbidden.

There are no images and no releases here, and of a key the SHA-256 of its secret alone. Embeddings are private
all the same: see the threat model. What is forgotten is deleted: SQLite overwrites it with zeros in the file,
and empties its write-ahead log. PostgreSQL keeps deleted rows in its files until `VACUUM` has run, which it
does by itself, and in its write-ahead log until that is recycled; and no database reaches into backups that
were made before: keep those no longer than you may keep what is in them.
"""

from sfumato.serve.store.errors import ConflictError, NotFoundError, QuotaError, StoreError
from sfumato.serve.store.examples import Example
from sfumato.serve.store.rows import Key, Role
from sfumato.serve.store.search import Neighbour, Prototypes
from sfumato.serve.store.store import Store

__all__ = [
    "ConflictError",
    "Example",
    "Key",
    "Neighbour",
    "NotFoundError",
    "Prototypes",
    "QuotaError",
    "Role",
    "Store",
    "StoreError",
]
