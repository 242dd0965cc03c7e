"""The cloud: a few-shot classifier that never sees a clean image, and the client that protects for it."""

_OF_CLIENT = ("Client", "Guess", "ServiceError")


def __getattr__(name: str) -> object:
    # Lazy: the client imports everything that protects images, which the server's store does not need.
    if name in _OF_CLIENT:
        from sfumato.device import client

        return getattr(client, name)
    raise AttributeError(name)
