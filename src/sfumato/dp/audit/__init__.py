"""Audits: how well neighbours are told apart by what is released, as a lower bound that is itself proved.

An audit sees a mechanism as a black box, so that what it proves holds for the code that ran. It can only
convict: a bound below the stated value says that no fault was found, not that there is none. `audit` is for
protections of images, which are cheap to try; `audit_runs` for whole runs, of which each gives one number;
`one_run` bounds what one run gives away of many canaries in it; `audit_naming` names people from many
releases, and convicts an assumption that does not hold of them.
"""

from sfumato.dp.audit.evidence import divergence, lower_limit, rounded_down, upper_limit
from sfumato.dp.audit.images import AuditConfig, AuditResult, audit
from sfumato.dp.audit.naming import NamingAudit, audit_naming
from sfumato.dp.audit.neighbours import Mechanism, neighbours
from sfumato.dp.audit.one_release import OneReleaseConfig, audit_release
from sfumato.dp.audit.one_run import Guesses, OneRunAudit, concluded, guess
from sfumato.dp.audit.runs import RunAudit, audit_runs

__all__ = [
    "AuditConfig",
    "AuditResult",
    "Guesses",
    "Mechanism",
    "NamingAudit",
    "OneReleaseConfig",
    "OneRunAudit",
    "RunAudit",
    "audit",
    "audit_naming",
    "audit_release",
    "audit_runs",
    "concluded",
    "divergence",
    "guess",
    "lower_limit",
    "neighbours",
    "rounded_down",
    "upper_limit",
]
