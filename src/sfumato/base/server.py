"""A port for a service, and uvicorn on it."""

import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from sfumato.errors import ConfigError, needs_extra

File: TypeAlias = str | os.PathLike[str] | None


def listen(host: str, port: int) -> socket.socket:
    """Takes a port, 0 for any free one. Raises ConfigError if it cannot be had on this host."""
    if not 0 <= port < 65536:
        raise ConfigError(f"--port {port}: 0 to 65535 (such as 8000)")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
        # Connections inherit it; asyncio sets it only for its own. Without, a second packet waits for 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        reason = str(error.strerror).partition(" (while")[0]  # the rest repeats the address
        cure = "choose another with --port, or 0 for any that is free, and a --host of this machine"
        raise ConfigError(f"cannot serve on port {port} of {host} ({reason}): {cure}") from error


def address_of(listener: socket.socket, scheme: str = "http") -> str:
    """The address of this port for a browser, without a path."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def serve(app: Any, listener: socket.socket, *, certificate: File = None, private_key: File = None) -> None:
    """Serves an application of ASGI until stopped, and finishes accepted requests within 30 s.

    It waits for slow clients without end: on an address that others reach, a proxy belongs before it. Raises
    ConfigError for a certificate or key (PEM) that cannot be used.
    """
    with needs_extra("a server", "serve"):
        import uvicorn
    if (certificate is None) != (private_key is None):
        raise ConfigError("a certificate and its private key come together: name both, or neither")
    config = uvicorn.Config(
        app,
        loop="asyncio",
        http="h11",
        ws="none",
        log_config=None,
        access_log=False,  # its lines hold labels, or links
        server_header=False,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=30,
        h11_max_incomplete_event_size=16_384,  # bytes of an unfinished header
        ssl_certfile=certificate,
        ssl_keyfile=private_key,
    )
    try:
        config.load()
    except OSError as error:
        words = f"{certificate}: not a certificate that can be used with {private_key} ({error})"
        raise ConfigError(f"{words}: name PEM files that belong together") from error
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # strangers could fill the log with warnings
    uvicorn.Server(config).run(sockets=[listener])


@contextmanager
def running(application: Any, port: int = 0) -> Iterator[str]:
    """Serves an application of ASGI during a block, for programs and tests. Yields its address."""
    import uvicorn

    with listen("127.0.0.1", port) as listener:
        config = uvicorn.Config(application, log_config=None, access_log=False, ws="none", lifespan="on")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield address_of(listener)
        finally:
            server.should_exit = True
            thread.join()
