"""The cloud: a few-shot classifier that never sees a clean image, and the client that protects for it."""

_OF_CLIENT = ("AsyncClient", "Client", "Guess", "ServiceError")


def __getattr__(name: str) -> object:
    # Not at import: the client brings in all that protects images, which the server's store has no use for.
    if name in _OF_CLIENT:
        from sfumato.device import client

        return getattr(client, name)
    raise AttributeError(name)
