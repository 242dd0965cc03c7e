"""The audit of embeddings from any model: whom they name, link and verify, and what they tell."""

from sfumato.audits.vectors.audit import audit_vectors
from sfumato.audits.vectors.reading import Vectors, read

__all__ = ["Vectors", "audit_vectors", "read"]
