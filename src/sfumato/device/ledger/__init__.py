"""The ledger: which releases of which image left this device, at what cost, within which budgets."""

from sfumato.device.ledger.charges import Charge
from sfumato.device.ledger.ledger import Ledger, default_path

__all__ = ["Charge", "Ledger", "default_path"]
