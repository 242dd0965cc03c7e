"""The client of a service: it protects on the device, charges the ledger, and sends."""

from sfumato.device.client.client import Client, Enrolled, Guess, look_up, read_table
from sfumato.device.client.connection import ServiceError
from sfumato.device.client.demands import Demanded

__all__ = ["Client", "Demanded", "Enrolled", "Guess", "ServiceError", "look_up", "read_table"]
