"""What the update of a federated client gives away, to a server that does no more than read it."""

from sfumato.audits.update.audit import audit_update
from sfumato.audits.update.case import Case, Truth, UpdateAuditConfig
from sfumato.audits.update.search import CAME_BACK

__all__ = ["CAME_BACK", "Case", "Truth", "UpdateAuditConfig", "audit_update"]
