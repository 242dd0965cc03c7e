"""A device among services that demand, change or pretend, and artefacts that were damaged."""

import json
import os
import ssl
import subprocess
import sys
import threading
import time
import warnings
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from harness import Trial, scenario
from service import DECADE, environment

from sfumato import data
from sfumato.device.client import Client, ServiceError
from sfumato.device.jobs import releasing
from sfumato.device.ledger import Ledger
from sfumato.errors import BudgetExceededError
from sfumato.protect import parse

GROUP = "A device among strangers"
SPEC = "dp-pix:cell=4,epsilon=3"


class Stranger:
    """A service that answers as it likes. State: what came to it.

    Attributes:
        times: when each question came.
        refusal: the headers with which it refuses the next request by 503; None to answer.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.times: list[float] = []
        self.refusal: dict[str, str] | None = None
        stranger = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stranger.times.append(time.monotonic())
                model = {"name": "m", "kind": "few-shot", "spec": SPEC, "made_of": None}
                model |= {"shape": [3, 64, 64], "dimension": 8, "refusal": None}
                refusal, stranger.refusal = stranger.refusal, None
                body = json.dumps([model] if refusal is None else {}).encode()
                self.send_response_only(200 if refusal is None else 503)
                for name, said in {"content-length": str(len(body)), **(refusal or {})}.items():
                    self.send_header(name, said)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: Any) -> None:
                pass  # handshakes that fail, as they should

        self._server = Server(("127.0.0.1", 0), Handler)
        if context is not None:
            plain, how = self._server.socket, {"server_side": True, "do_handshake_on_connect": False}
            self._server.socket = context.wrap_socket(plain, **how)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> "Stranger":
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@scenario(
    GROUP,
    "a service asks for one face a hundred times, by demands that differ in the last digit, and averages",
    "with the budgets of a new ledger it is farther from the image than without any",
)
def averaging(trial: Trial) -> None:
    face = data.load("faces", identities=3, images_per_identity=1, size=64, seed=trial.seed).images[0]
    clear = parse("pixelize:cell=8").release(face[None], None).values.double()
    off = {}
    for name in ("a new ledger", "no budgets"):
        drawn = []
        with Ledger(trial.folder / name) as ledger:
            if name == "no budgets":
                ledger.set_budget(None)
            for step in range(100):
                protection = parse(f"dp-pix:cell=8,epsilon={3 + step * 1e-6:.6f}")
                try:
                    release = releasing.release(protection, face[None], ledger)
                except BudgetExceededError:
                    continue
                drawn.append(release.values.double())
        off[name] = float((torch.stack(drawn).mean(0) - clear).square().mean().sqrt())
        trial.figures[f"releases with {name}"] = len(drawn)
        trial.figures[f"grey levels off with {name}"] = round(off[name], 1)
    trial.check(off["a new ledger"] > 2 * off["no budgets"], f"the budgets hide little: {off}")


def certificates(folder: Path) -> None:
    """Write NAME.crt and NAME.key for localhost; of these, ca signs all but self-signed."""
    new = "openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {0}.key"
    subject = " -subj /CN={1} -addext subjectAltName=DNS:{1}"
    signed = "openssl x509 -req -in {0}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -copy_extensions copyall"

    def make(command: str, *words: str) -> None:
        subprocess.run(command.format(*words).split(), cwd=folder, check=True, capture_output=True)

    make(f"{new} -x509 -days 2 -out {{0}}.crt -subj /CN=ca", "ca")
    make(f"{new} -x509 -days 2 -out {{0}}.crt{subject}", "self-signed", "localhost")
    named = {"right": ("localhost", 2), "elsewhere": ("other.example", 2), "expired": ("localhost", -1)}
    for name, (host, days) in named.items():
        make(f"{new} -out {{0}}.csr{subject}", name, host)
        make(f"{signed} -days {days} -out {{0}}.crt", name)


CURES = {  # what is wrong with TLS -> what the client says that helps
    "expired": "renew",
    "self-signed": "SSL_CERT_FILE",
    "elsewhere": "another host",
    "right, TLS 1.0 alone": "TLS 1.2",
}


@scenario(
    GROUP,
    "a service has a certificate that expired, signed itself or is for another host, or speaks TLS 1.0 alone",
    "the client sends no byte of a request, at once, and says what is wrong and what to do",
)
def wrong_tls(trial: Trial) -> None:
    certificates(trial.folder)

    def ask(name: str) -> tuple[str, int]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        file = trial.folder / name.partition(",")[0]
        context.load_cert_chain(f"{file}.crt", f"{file}.key")
        if "1.0" in name:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1
            context.set_ciphers("ALL:@SECLEVEL=0")
        with Stranger(context) as server:
            url, ledger = f"https://localhost:{server.port}", trial.folder / "ledger.db"
            try:
                with Client(url, key="k" * 32, ledger=ledger) as client:
                    client.models()
                said = ""
            except ServiceError as error:
                said = str(error)
            return said, len(server.times)

    with mock.patch.dict(os.environ, SSL_CERT_FILE=str(trial.folder / "ca.crt")):
        trial.check(ask("right") == ("", 1), f"a right certificate: {ask('right')}")
        for name, cure in CURES.items():
            began = time.monotonic()
            said, asked = ask(name)
            trial.most("s until it says so, at most", time.monotonic() - began)
            trial.check(cure in said and not asked, f"{name}: {asked} requests; it says {said!r}")
            trial.count("services refused")


@scenario(
    GROUP,
    "a service is busy until a date (Retry-After), and the device's clock is ten years behind, or ahead",
    "the client waits as long as the service means by its own clock, and asks again",
)
def retry_by_another_clock(trial: Trial) -> None:
    words = "import sys; from sfumato.device.client import Client; "
    words += "Client(sys.argv[1], key='k' * 32, ledger='ledger.db').models()"
    for shift in (0, -DECADE, DECADE):
        with Stranger() as server:
            now = time.time()
            dates = {"date": now, "retry-after": now + 3}
            server.refusal = {name: formatdate(then, usegmt=True) for name, then in dates.items()}
            command = [sys.executable, "-c", words, f"http://127.0.0.1:{server.port}"]
            quiet = {"cwd": trial.folder, "capture_output": True, "text": True, "check": False}
            run = subprocess.run(command, env=environment(shift=shift), **quiet)
            trial.check(run.returncode == 0, f"{shift} s off: {run.stderr[-300:]}")
            waited = server.times[-1] - server.times[0]
            trial.check(2 < waited < 10, f"{shift} s off, it waited for {waited:.1f} s")
            trial.count("clocks")
            trial.most("s waited for 3, at most", waited)
