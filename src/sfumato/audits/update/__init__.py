"""The leaks of a federated client's update to a server that only reads it."""

from sfumato.audits.update.audit import audit_update
from sfumato.audits.update.case import USUAL_SEARCH, Truth, UpdateAuditConfig
from sfumato.audits.update.search import CAME_BACK, report_images

__all__ = ["CAME_BACK", "USUAL_SEARCH", "Truth", "UpdateAuditConfig", "audit_update", "report_images"]
