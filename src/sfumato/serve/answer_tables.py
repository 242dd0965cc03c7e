"""All answers of a classifier of short codes, signed by the key of the service."""

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import DataError, needs_extra
from sfumato.serve.gallery import Galleries
from sfumato.serve.served import Served, code_of
from sfumato.serve.store import Store
from sfumato.wire import tables
from sfumato.wire.messages import ClassifierInfo

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class AnswerTables:
    """Makes answer tables. State: the key that signs them, once read from the store."""

    def __init__(self, store: Store, galleries: Galleries) -> None:
        self._store, self._galleries = store, galleries

    def make(self, tenant: str, info: ClassifierInfo, model: Served) -> tables.AnswerTable | None:
        """Make the table of a classifier as it is now, see sfumato.wire.tables; None if it has no class.

        The answers are those of `Galleries.answer` for the same codes, `none of these` included.

        Args:
            tenant: the owner of the classifier.
            info: of the classifier.
            model: a model for codes of at most 16 bits; see has_table.

        Raises:
            NotFoundError: no such classifier.
            DataError: more classes than a table can name.
        """
        codes, demand = model.codes, model.demands[0]
        assert codes is not None
        assert codes.bits is not None
        assert demand.made_of is not None
        clean = code_of(demand.spec)
        refusal = codes.refusal_of(clean)
        queries = codes.embed(_all_codes(codes.bits), clean)
        found = self._galleries.name_all(tenant, info.id, queries, refusal=refusal, codes=codes)
        if found is None or len(found[0].labels) > tables.MOST_CLASSES:
            raise DataError(f"a table names at most {tables.MOST_CLASSES:,} classes: classify by queries")
        stored, rows, none = found
        if not stored.labels:
            return None
        header = tables.Header(
            classifier=info.id,
            name=info.name,
            version=stored.version,
            model=model.name,
            made_of=demand.made_of,
            bits=codes.bits,
            refuses=refusal is not None,
            labels=stored.labels,
            signer=self._private.public_key().public_bytes_raw().hex(),
        )
        return tables.sign_table(header, rows, none, self._private.sign)

    @cached_property
    def _private(self) -> "Ed25519PrivateKey":
        with needs_extra("answer tables", "serve"):
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        return Ed25519PrivateKey.from_private_bytes(self._store.signing_key())


def has_table(model: Served) -> bool:
    """Whether the classifiers of a model have answer tables: its codes have at most 16 bits."""
    codes = model.codes
    few = codes is not None and codes.bits is not None and codes.bits <= tables.MOST_BITS
    return few and model.demands[0].made_of is not None


@lru_cache(maxsize=4)
def _all_codes(bits: int) -> np.ndarray:
    """Return all codes as they are compared: (2^b, b) float32, 1 and -1."""
    return 2 * tables.codes_of(bits).astype(np.float32) - 1
