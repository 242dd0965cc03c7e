"""The ledger: which releases of which image left this device, at what cost, within which budgets."""

from sfumato.device.ledger.charging import Charge
from sfumato.device.ledger.ledger import Ledger, Pin, default_path

__all__ = ["Charge", "Ledger", "Pin", "default_path"]
