"""Signed tables for devices that send no query: all answers of a classifier, or its prototypes."""

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.errors import DataError, needs_extra
from sfumato.serve.gallery import Galleries
from sfumato.serve.served import Served, code_of
from sfumato.serve.store import Store
from sfumato.wire import tables
from sfumato.wire.messages import ClassifierInfo

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_PART = 4_096  # codes that are compared together


class AnswerTables:
    """Makes tables. State: the key that signs them, once read from the store."""

    def __init__(self, store: Store, galleries: Galleries) -> None:
        self._store, self._galleries = store, galleries

    def make(self, tenant: str, info: ClassifierInfo, model: Served) -> tables.Table | None:
        """Make the table of a classifier as it is now, see sfumato.wire.tables; None if it has no class.

        The answers are those of `Galleries.answer` for the same codes or features, `none of these` included.

        Args:
            tenant: the owner of the classifier.
            info: of the classifier.
            model: a model for which why_no_table has no reason.

        Raises:
            NotFoundError: no such classifier.
            DataError: more classes than a table can have.
        """
        codes, demand = model.codes, model.demands[0]
        assert demand.made_of is not None
        kept = self._galleries.cached(tenant, info.id, codes)
        most = min(tables.MOST_CLASSES, tables.MOST_NUMBERS // model.dimension)
        if kept is None or len(kept[0].labels) > most:
            raise DataError(f"a table of this model has at most {most:,} classes: classify by queries")
        stored, gallery = kept
        if not stored.labels:
            return None
        refusal = None if codes is None else codes.refusal_of(code_of(demand.spec))
        common: dict[str, Any] = {
            **{"classifier": info.id, "name": info.name, "version": stored.version, "model": model.name},
            **{"made_of": demand.made_of, "labels": stored.labels},
            "signer": self._private.public_key().public_bytes_raw().hex(),
        }
        if not has_answers(model):
            threshold = None if refusal is None else refusal.threshold
            said = tables.PrototypesHeader(**common, dimension=model.dimension, threshold=threshold)
            return tables.sign_prototypes(said, gallery.vectors, gallery.shots, self._private.sign)
        header = tables.Header(**common, bits=model.dimension, refuses=refusal is not None)
        rows, none = np.zeros(2**header.bits, np.int64), np.zeros(2**header.bits, bool)
        queries = _all_codes(header.bits)
        for start in range(0, len(queries), _PART):
            part = slice(start, start + _PART)
            named = gallery.name(queries[part], top=1, refusal=refusal)
            rows[part] = named.rows[:, 0]
            if named.none_of_these is not None:
                none[part] = named.none_of_these
        return tables.sign_table(header, rows, none, self._private.sign)

    @cached_property
    def _private(self) -> "Ed25519PrivateKey":
        with needs_extra("answer tables", "serve"):
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        return Ed25519PrivateKey.from_private_bytes(self._store.signing_key())


def has_answers(model: Served) -> bool:
    """Whether a table of the model has the answers to all codes: these are of at most 16 bits."""
    codes = model.codes
    return codes is not None and codes.bits is not None and codes.bits <= tables.MOST_BITS


def why_no_table(model: Served, *, confidence: str) -> str | None:
    """Say why devices get no table of a model, and name the cure; None if they get one.

    Args:
        model: see has_answers; of others the table has prototypes.
        confidence: of the service, see ServiceConfig.
    """
    if model.demands[0].kind == "pixels":
        return (
            f"the model {model.name} ({model.kind}) runs on the service alone, so that a device has nothing "
            "to look up: classify by queries, or by a code or a private feature, whose encoder is on the "
            "device (`sfumato train code`)"
        )
    if confidence != "exact" and not has_answers(model):
        return (
            f"the model {model.name} has prototypes for devices, which tell the probabilities and distances "
            f"that this service withholds (--confidence {confidence}): classify by queries, or use a code "
            f"of at most {tables.MOST_BITS} bits, whose table has labels alone"
        )
    return None


@lru_cache(maxsize=4)
def _all_codes(bits: int) -> np.ndarray:
    """Return all codes as they are compared: (2^b, b) float32, 1 and -1."""
    return 2 * tables.codes_of(bits).astype(np.float32) - 1
