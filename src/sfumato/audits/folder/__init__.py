"""What a folder of released images still tells: its protection, its metadata, and who is on it."""

from sfumato.audits.folder.audit import audit_folder
from sfumato.audits.folder.naming import NamingConfig

__all__ = ["NamingConfig", "audit_folder"]
