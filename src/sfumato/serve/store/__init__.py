"""The store of the cloud: tenants, keys, classifiers, embeddings of examples, and the log of their changes.

One schema in SQLite, a file on the machine of the service, or in PostgreSQL with pgvector, which several
machines may share. An acknowledged change is completely on the disk; another is complete or absent. Every
query names the tenant, and to one tenant the objects of another are missing, not forbidden.
"""

from sfumato.errors import needs_extra

with needs_extra("the store", "serve"):
    from sfumato.serve.store.database import ConflictError, NotFoundError, QuotaError, StoreError
    from sfumato.serve.store.keys import Key, Role
    from sfumato.serve.store.store import Example, Prototypes, Store

__all__ = [
    "ConflictError",
    "Example",
    "Key",
    "NotFoundError",
    "Prototypes",
    "QuotaError",
    "Role",
    "Store",
    "StoreError",
]
