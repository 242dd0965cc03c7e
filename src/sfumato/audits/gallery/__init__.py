"""The leaks of a gallery of enrolled classes: its people and its photographs."""

from sfumato.audits.gallery.audit import audit_gallery
from sfumato.audits.gallery.measure import Embedded, GalleryAuditConfig, Measured, measure

__all__ = ["Embedded", "GalleryAuditConfig", "Measured", "audit_gallery", "measure"]
