"""The leaks of a federated client's update to a server that only reads it."""

from sfumato.audits.update.audit import audit_update
from sfumato.audits.update.case import Case, Truth, UpdateAuditConfig, make_case
from sfumato.audits.update.search import CAME_BACK

__all__ = ["CAME_BACK", "Case", "Truth", "UpdateAuditConfig", "audit_update", "make_case"]
