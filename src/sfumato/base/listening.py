"""A port for a service, until it is stopped."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sfumato.errors import ConfigError, SfumatoError

_WAITING = 2048  # connections that the system may hold until they are accepted


def listen(host: str, port: int) -> socket.socket:
    """Takes a port; 0 takes any free one.

    Raises:
        ConfigError: it is taken or not allowed, or the host is not this machine's.
    """
    if not 0 <= port < 65536:
        raise ConfigError(f"--port {port}: 0 to 65535 (such as 8000)")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=_WAITING)
        # Connections inherit it. asyncio sets it only for connections of its own listeners, and without it
        # the second of the two packets of an answer waits for 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        reason = str(error.strerror).partition(" (while")[0]  # the rest repeats the address
        raise ConfigError(
            f"cannot serve on port {port} of {host} ({reason}): choose another with --port, or 0 for "
            "any that is free, and a --host of this machine"
        ) from error


class _Stopped(BaseException):
    """A signal asks the service to stop. Not an error, so nothing handles it as one."""


_failed: list[str] = []  # why this process cannot serve any more


def stop_failed(reason: str) -> None:
    """Stops the service of this process as SIGTERM does, and makes until_stopped raise: it has failed."""
    _failed.append(reason)
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def until_stopped() -> Iterator[None]:
    """Runs a block until SIGTERM or Ctrl-C, says so, and continues: a stopped service has not failed.

    Raises:
        SfumatoError: `stop_failed` stopped it. The process ends with another status than 0, by which systemd
            and others know that it has to be started again.
    """

    def stop(*_: object) -> None:
        raise _Stopped

    before = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    except _Stopped:
        if _failed:
            raise SfumatoError(f"the service stopped: {_failed.pop()}: start it again") from None
        print("stopped", flush=True)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def running(application: Any, port: int = 0) -> Iterator[str]:
    """Serves an ASGI application during a block, from this process to this machine. Yields its address.

    For programs and tests that ask a service of their own. `sfumato serve` has the limits of a public one.
    """
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


def address_of(listener: socket.socket, scheme: str = "http") -> str:
    """The address of this port for a browser, without a path."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
