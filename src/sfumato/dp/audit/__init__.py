"""Audits: proved lower bounds on how well releases distinguish neighbours.

An audit sees a mechanism as a black box, so its proof holds for the code that ran. It can only convict: a
bound below the stated value means that no fault was found, not that the mechanism has no fault. `audit` is
for protections of images, which are cheap to try; `one_run` bounds how much one training leaks about many
canaries in it.
"""

from sfumato.dp.audit.evidence import round_down
from sfumato.dp.audit.images import AuditConfig, AuditResult, audit
from sfumato.dp.audit.neighbours import Mechanism
from sfumato.dp.audit.one_run import OneRunAudit

__all__ = ["AuditConfig", "AuditResult", "Mechanism", "OneRunAudit", "audit", "round_down"]
