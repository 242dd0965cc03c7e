"""What a gallery of enrolled classes gives away of who and which photographs are in it."""

from sfumato.audits.gallery.audit import audit_gallery
from sfumato.audits.gallery.measure import Embedded, GalleryAuditConfig, Measured, measure

__all__ = ["Embedded", "GalleryAuditConfig", "Measured", "audit_gallery", "measure"]
