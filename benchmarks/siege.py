"""A besieged server: uvicorn and granian as they come, and uvicorn behind nginx.

    python benchmarks/siege.py [--connections 3000] [--seconds 30]

All serve one bare handler with 1,024 file descriptors. From one address, a crowd holds connections: a
quarter each sends nothing, half a header, a byte of a body a second, or never takes its answer; a closed
connection is opened anew. From another address, one client asks 20 times a second, on a new connection each.
granian needs `pip install granian`, nginx its program; what is absent is left out.
"""

import argparse
import asyncio
import importlib.util
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

DESCRIPTORS = 1024
TAKES = 5.0  # seconds after which the client gives up
APP = """
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    body = b"x" * (4_000_000 if scope["path"] == "/large" else 20)
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
"""
NGINX = """
worker_rlimit_nofile {descriptors};
pid {folder}/nginx.pid;
error_log /dev/null;
events {{ worker_connections {workers}; }}
http {{
    access_log off;
    limit_conn_zone $binary_remote_addr zone=connections:10m;
    client_header_timeout 10s;
    client_body_timeout 20s;
    send_timeout 20s;
    upstream app {{ server 127.0.0.1:{inner}; keepalive 32; }}
    server {{
        listen 127.0.0.1:{port};
        limit_conn connections {limit};
        location / {{ proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ""; }}
    }}
}}
"""
SIEGES = (
    (b"", b""),
    (b"GET / HTTP/1.1\r\nhost: here\r\n", b""),
    (b"POST / HTTP/1.1\r\nhost: here\r\ncontent-length: 10000\r\n\r\n", b"x"),
    (b"GET /large HTTP/1.1\r\nhost: here\r\n\r\n", b""),
)


def free_port() -> int:
    """A port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


@contextmanager
def served(name: str, folder: Path) -> Iterator[int]:
    """Run a server on a port."""
    (folder / "bare.py").write_text(APP)
    port, inner = free_port(), free_port()
    uvicorn = [sys.executable, "-m", "uvicorn", "bare:app", "--log-level", "critical", "--port"]
    granian = [sys.executable, "-m", "granian", "--interface", "asgi", "--no-log"]
    commands = {
        "uvicorn": [[*uvicorn, str(port)]],
        "granian": [[*granian, "--http1-header-read-timeout", "10000", "--port", str(port), "bare:app"]],
        "nginx, then uvicorn": [
            [*uvicorn, str(inner)],
            ["nginx", "-c", str(folder / "nginx.conf"), "-g", "daemon off;"],
        ],
    }[name]
    (folder / "nginx.conf").write_text(
        NGINX.format(
            folder=folder,
            port=port,
            inner=inner,
            descriptors=DESCRIPTORS,
            workers=DESCRIPTORS - 100,
            limit=200,
        )
    )
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))  # noqa: E731
    processes = [
        subprocess.Popen(each, cwd=folder, preexec_fn=limit, stderr=subprocess.DEVNULL) for each in commands
    ]
    try:
        for _ in range(200):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        time.sleep(1)
        yield port
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


async def besiege(port: int, sent: bytes, drip: bytes) -> None:
    """Hold a connection for ever, and open it anew if it is closed."""
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
            try:
                writer.write(sent)
                while not writer.transport.is_closing():
                    await asyncio.sleep(1)
                    if reader.at_eof():
                        break
                    if drip:
                        writer.write(drip)
            finally:
                writer.transport.abort()
        await asyncio.sleep(1)


async def ask(port: int) -> tuple[str, float]:
    """Ask once from another address. Returns the status and the milliseconds."""
    began, status = time.perf_counter(), "no answer"
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(TAKES):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
            writer.write(b"GET / HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n")
            status = (await reader.readline())[9:12].decode() or "closed"
            writer.close()
    return status, 1000 * (time.perf_counter() - began)


async def measure(port: int, connections: int, seconds: float) -> tuple[Counter[str], list[float]]:
    """Ask while the crowd holds its connections."""
    crowd = [asyncio.ensure_future(besiege(port, *SIEGES[i % len(SIEGES)])) for i in range(connections)]
    await asyncio.sleep(3 if connections else 0)
    asked = []
    for _ in range(round(seconds * 20)):
        asked.append(asyncio.ensure_future(ask(port)))
        await asyncio.sleep(0.05)
    answers = await asyncio.gather(*asked)
    for each in crowd:
        each.cancel()
    return Counter(status for status, _ in answers), [wait for status, wait in answers if status == "200"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--connections", type=int, default=3000)
    parser.add_argument("--seconds", type=float, default=30)
    arguments = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    there = {
        "uvicorn": True,
        "granian": importlib.util.find_spec("granian") is not None,
        "nginx, then uvicorn": shutil.which("nginx") is not None,
    }
    for name in (name for name, is_there in there.items() if is_there):
        for connections in (0, arguments.connections):
            with tempfile.TemporaryDirectory() as folder, served(name, Path(folder)) as port:
                statuses, waits = asyncio.run(measure(port, connections, arguments.seconds))
            median, late = np.percentile(waits, [50, 99]) if waits else (np.nan, np.nan)
            print(
                f"{name:20} {connections:5} held: {statuses['200'] / statuses.total():6.1%} answered, "
                f"median {median:6.1f} ms, 99% within {late:7.1f} ms; {dict(statuses)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
