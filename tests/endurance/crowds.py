"""A service that more ask than it can answer, and clients that want nothing of it but its time and memory."""

import asyncio
import contextlib
import io
import multiprocessing
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx
import numpy as np
from harness import Trial, scenario
from PIL import Image
from service import SIDE, SPEC, Device, device, nginx

from sfumato import wire
from sfumato.serve.config import ServiceConfig

GROUP = "A service with too many clients"
OTHERS = "all questions of others are answered, it stays below 1 GB, and writes next to no log"
HEALTH = b"GET /health/live HTTP/1.1\r\nhost: here\r\n\r\n"
MOST_MB = 1000


class Answer(NamedTuple):
    """What a connection got: a status, or why none; seconds until then; whether it says when to ask again."""

    status: str
    seconds: float
    retry: bool


async def ask(
    port: int, sent: bytes, *, until: float, drip: bytes = b"", stay: bool = False, read: bool = True
) -> Answer:
    """Send bytes on a connection of their own, then `drip` a byte a second; take the head of the answer.

    `until` is on the monotonic clock; `stay` keeps the connection after the answer, `read=False` never reads.
    """
    began, status, head = time.monotonic(), "no connection", b""
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        began, status = time.monotonic(), "not read"
        try:
            async with asyncio.timeout(until - began):
                writer.write(sent)
                await writer.drain()
                if not read:
                    await asyncio.sleep(until - began)
                status, answer = "still open at the end", asyncio.ensure_future(reader.read(4096))
                for byte in drip:
                    if (await asyncio.wait([answer], timeout=1))[0]:
                        break
                    writer.write(bytes([byte]))
                head = await answer
                status = head[9:12].decode("latin-1") or "closed"
                if stay:
                    await reader.read()
        except TimeoutError:
            pass
        except OSError:
            status = status if head else "closed"
        finally:
            writer.transport.abort()
    return Answer(status, time.monotonic() - began, b"\r\nretry-after: " in head.lower())


def elsewhere(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run a coroutine in another process, with all descriptors that the system gives. -> its result."""
    fork = multiprocessing.get_context("fork")
    results, ours = fork.Pipe(duplex=False)

    def send() -> None:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        ours.send(asyncio.run(work()))

    process = fork.Process(target=send)
    process.start()
    try:
        return results.recv()
    finally:
        process.join()


@contextmanager
def honest(trial: Trial, used: Device, ask: Callable[[], httpx.Response], name: str) -> Iterator[None]:
    """Ask a service one thing after another while the block runs, and look at its memory and its log."""
    waits: list[float] = []
    failures: Counter[str] = Counter()
    memory, stop = [used.service.memory()], threading.Event()
    before = used.service.log.stat().st_size

    def asking() -> None:
        while not stop.wait(0.05):
            start = time.perf_counter()
            try:
                reply = ask()
            except httpx.HTTPError as error:
                failures[type(error).__name__] += 1
                continue
            if reply.status_code == 200:
                waits.append(1000 * (time.perf_counter() - start))
            else:
                failures[str(reply.status_code)] += 1

    def looking() -> None:
        while not stop.wait(0.02):
            memory.append(used.service.memory())

    threads = [threading.Thread(target=each) for each in (asking, looking)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    log = used.service.log.stat().st_size - before
    trial.figures[name] = len(waits)
    _waits(trial, waits, "they")
    trial.figures["MB at most"] = round(max(memory))
    trial.check(bool(waits) and not failures, f"{len(waits)} {name}, and {dict(failures)}")
    trial.check(max(memory) <= MOST_MB, f"it took {max(memory):.0f} MB")
    trial.check(log < 10_000, f"it wrote {log} bytes of log")
    used.classify(1)  # and is well afterwards


def _waits(trial: Trial, waits: list[float], who: str) -> None:
    for name, share in (("median", 0.5), ("99th percentile", 0.99)):
        trial.figures[f"ms {who} wait ({name})"] = round(float(np.quantile(waits or [np.nan], share)), 1)


def beside(trial: Trial, used: Device) -> Any:
    """Honest questions, each on a connection of its own."""
    used.enrol("a", 1).raise_for_status()
    trial.figures["ms a question before (median)"] = round(float(np.median(used.classify(50))), 1)
    body = used.question(1).partition(b"\r\n\r\n")[2]
    return honest(trial, used, lambda: used.ask("POST", "/classify", body), "honest questions answered")


def attack(
    trial: Trial, used: Device, seconds: float, *parts: tuple[str, int, bytes, dict[str, Any]]
) -> dict[str, list[Answer]]:
    """Send all at once what the parts say: a name, how many, the bytes, options of `ask`. -> the answers.

    With `again=True`, what is closed comes again after 2 s.
    """

    port = used.service.proxy or used.service.port

    async def work() -> dict[str, list[Answer]]:
        until = time.monotonic() + seconds
        answers: dict[str, list[Answer]] = {}

        async def one(name: str, sent: bytes, *, again: bool = False, **how: Any) -> None:
            answers.setdefault(name, []).append(await ask(port, sent, until=until, **how))
            while again and time.monotonic() < until - 2:
                await asyncio.sleep(2)
                answers[name].append(await ask(port, sent, until=until, **how))

        await asyncio.gather(*(one(name, sent, **how) for name, n, sent, how in parts for _ in range(n)))
        return answers

    with beside(trial, used):
        answers: dict[str, list[Answer]] = elsewhere(work)
    for name, each in answers.items():
        trial.figures[f"{name} sent"] = len(each)
    return answers


def _post(used: Device, length: int, kind: str = wire.MEDIA_TYPE) -> bytes:
    """The header of a question with a body of so many bytes."""
    head = used.question(1).partition(b"content-type")[0]
    head = head.replace(b"classify", b"classify?spec=" + SPEC.encode())
    return head + f"content-type: {kind}\r\ncontent-length: {length}\r\n\r\n".encode()


@scenario(
    GROUP,
    "a siege of nginx as deploy/ sets it: half headers on 3,000 connections, 120 bodies of 16 MB that never "
    "end, 16 PNGs of 9000x9000 (8 say 16x16 first), 200 idle connections, 50 clients that never read 30 MB, "
    "200 requests of no HTTP",
    OTHERS,
)
def siege(trial: Trial) -> None:
    web = trial.folder / "web"
    web.mkdir()
    (web / "index.html").write_text("<title>sfumato</title>")
    (web / "large").write_bytes(bytes(30_000_000))
    with device(trial.folder, options=("--web", str(web))) as used, nginx(trial.folder, used.service):
        small, large = png(SIDE), png(9000)
        images = [large, large[:8] + small[8:33] + large[8:]]  # with a header of the small one first
        attack(
            *(trial, used, trial.size(20)),
            ("half headers", 3000, b"GET / HTTP/1.1\r\nhost: h", {"again": True}),
            ("unfinished bodies", 120, _post(used, 16_000_000) + bytes(15_999_999), {}),
            *(("images", 8, _post(used, len(image), "image/png") + image, {}) for image in images),
            ("idle connections", 200, HEALTH, {"stay": True}),
            ("unread answers", 50, HEALTH.replace(b"/health/live", b"/large"), {"read": False}),
            *(("broken requests", 20, each, {}) for each in broken(HEALTH)),
        )


def broken(request: bytes) -> list[bytes]:
    """Requests that are none, or more than one."""
    head = request.removesuffix(b"\r\n")
    chunked = head.replace(b"GET", b"POST") + b"transfer-encoding: chunked\r\n\r\n"
    return [
        bytes(range(256)) * 40,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",  # TLS, where none is spoken
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        head + b"a: b\r\n" * 20_000 + b"\r\n",
        head + b"a: " + b"b" * 100_000 + b"\r\n\r\n",
        head + b"content-length: 1\r\ncontent-length: 2\r\n\r\n",
        head + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n",
        chunked + b"zz\r\n",
        chunked + b"1\r\na\r\n" * 10_000,
        request * 500,
    ]


def png(side: int) -> bytes:
    """A black image of side x side pixels."""
    buffer = io.BytesIO()
    Image.new("RGB", (side, side)).save(buffer, "PNG")
    return buffer.getvalue()


@scenario(
    GROUP,
    "900 connections say nothing, and 50 clients send a byte a second",
    "all questions of others are answered; the slow are turned away with 408 in their time, and 5 s",
)
def slow_clients(trial: Trial) -> None:
    most = ServiceConfig().body_seconds + 5
    with device(trial.folder) as used:
        head, _, body = used.question(1).partition(b"\r\n\r\n")
        slow = ("slow clients", 50, head + b"\r\n\r\n", {"drip": body})
        answers = attack(trial, used, most + 5, slow, ("idle connections", 900, b"", {}))["slow clients"]
    statuses = Counter(each.status for each in answers)
    trial.most("s they stay, at most", max(each.seconds for each in answers))
    trial.check(set(statuses) == {"408"}, f"slow clients were answered by {dict(statuses)}")
    trial.check(trial.figures["s they stay, at most"] <= most, "a slow client stayed for longer")


@scenario(
    GROUP,
    "three times as many questions come as it answers at its best, of 16 images each",
    "each is answered, or refused by 503 with Retry-After; no answer takes longer than three full queues and "
    "1 s; /health/live answers all the while, and it stays below 1 GB",
)
def overload(trial: Trial) -> None:
    with device(trial.folder, depth=10) as used:
        used.enrol("a", 1).raise_for_status()
        port, question = used.service.port, used.question(*range(16))

        async def best() -> float:
            """Answers a second to 8 clients that ask one question after another."""
            until = time.monotonic() + trial.size(6)

            async def one() -> int:
                count = 0
                while time.monotonic() < until:
                    count += (await ask(port, question, until=until + 30)).status == "200"
                return count

            counts = await asyncio.gather(*(one() for _ in range(8)))
            return sum(counts) / trial.size(6)

        async def thrice(rate: float) -> list[Answer]:
            began, asked = time.monotonic(), []
            for number in range(round(rate * trial.size(20))):
                await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
                asked.append(asyncio.ensure_future(ask(port, question, until=time.monotonic() + 30)))
            return await asyncio.gather(*asked)

        capacity: float = elsewhere(best)
        live = f"{used.service.address}/health/live"
        with (
            httpx.Client(timeout=10, trust_env=False) as client,
            honest(trial, used, lambda: client.get(live), "signs of life"),
        ):
            began = time.monotonic()
            answers: list[Answer] = elsewhere(lambda: thrice(3 * capacity))
            seconds = time.monotonic() - began
    statuses = Counter(each.status for each in answers)
    waits = [1000 * each.seconds for each in answers if each.status == "200"]
    trial.figures |= {"questions a second at its best": round(capacity, 1), "asked": len(answers)}
    trial.figures |= {"asked a second": round(len(answers) / seconds, 1), "answered": statuses["200"]}
    trial.figures |= {"refused by 503": statuses["503"]}
    _waits(trial, waits, "those answered")
    config = ServiceConfig()
    longest = 1000 * (1 + 3 * (config.most_waiting + config.most_batch) / (16 * capacity))
    trial.check(set(statuses) == {"200", "503"}, f"the answers were {dict(statuses)}")
    trial.check(all(each.retry for each in answers if each.status == "503"), "a 503 without Retry-After")
    trial.check(max(waits, default=0) < longest, f"{max(waits, default=0):.0f} ms, not {longest:.0f} ms")
