"""The client of a service: it protects on the device, charges the ledger, and sends."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sfumato.device.client.client import AsyncClient, Client, Demanded, Enrolled, Guess, ServiceError

__all__ = ["AsyncClient", "Client", "Demanded", "Enrolled", "Guess", "ServiceError"]


def __getattr__(name: str) -> object:
    # Lazy: a look-up in an answer table needs no HTTP.
    if name in __all__:
        from sfumato.device.client import client

        return getattr(client, name)
    raise AttributeError(name)
