"""`sfumato serve`: what it prints and refuses, and that it answers over a real socket until stopped."""

import gc
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import torch
from cloud import encoder, untrained
from commands import Command, check_mistake

from sfumato import wire
from sfumato.base import server
from sfumato.base.server import listen
from sfumato.protect import Release
from sfumato.serve.http import app as service
from sfumato.serve.store import Store
from sfumato.wire import labelled

SPEC = "pixelize:cell=2"


@pytest.fixture
def artefact(tmp_path: Path) -> Path:
    untrained(tmp_path, "vases", SPEC)
    return tmp_path / "vases.safetensors"


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What the application was made of, which nobody serves."""
    found: list[object] = []
    monkeypatch.setattr(service, "create", lambda *arguments: found.extend(arguments))
    monkeypatch.setattr(server, "serve", lambda *_, **__: None)
    return found


def test_it_says_what_it_runs_and_where(command: Command, artefact: Path, given: list[object]):
    said = command("serve", artefact, f"pots={artefact}", "--store", "sqlite:///s.db", "--port", "0")
    assert (said.code, said.err) == (0, "")
    first, second, where = said.out.splitlines()
    assert first == f"model: vases (few-shot, 3x16x16, by PyTorch; takes {SPEC})"
    assert second.startswith("model: pots (")
    assert where.startswith("serving: http://127.0.0.1:")
    assert Path("s.db").exists()
    assert given[2] == service.ServiceConfig(web=service.page_of_package())


def test_while_it_serves_what_it_began_with_is_not_looked_through_for_cycles(
    command: Command, artefact: Path, monkeypatch: pytest.MonkeyPatch
):
    frozen: list[int] = []
    monkeypatch.setattr(server, "serve", lambda *_, **__: frozen.append(gc.get_freeze_count()))
    assert command("serve", artefact, "--store", "sqlite:///s.db", "--port", "0").code == 0
    assert frozen[0] > 10_000
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("given")
def test_a_server_that_others_reach_says_that_a_proxy_belongs_before_it(command: Command, artefact: Path):
    words = "slow clients can hold this server up: put a proxy before it, such as deploy/nginx.conf\n"
    for host, said in {"0.0.0.0": words, "127.0.0.1": ""}.items():
        served = command("serve", artefact, "--store", "sqlite:///s.db", "--port", "0", "--host", host)
        assert served.err == said


def test_what_an_answer_says_of_its_confidence_is_set_by_two_options(
    command: Command, artefact: Path, given: list[object]
):
    options = ["--confidence", "rounded", "--confidence-step", "0.25"]
    assert command("serve", artefact, "--store", "sqlite:///s.db", "--port", "0", *options).code == 0
    assert given[2] == service.ServiceConfig(
        web=service.page_of_package(), confidence="rounded", confidence_step=0.25
    )
    wrong = command("serve", artefact, "--store", "sqlite:///s.db", "--confidence", "lable")
    assert wrong.code == 1
    assert "confidence='lable': did you mean" in wrong.err


@pytest.mark.usefixtures("given")
def test_codes_are_served_from_the_artefact_of_their_encoder(command: Command, tmp_path: Path):
    path = encoder(tmp_path / "hats.safetensors", bits=12)
    said = command("serve", path, "--store", "sqlite:///s.db", "--port", "0")
    assert said.code == 0
    assert said.err == f"{path}: for codes on the web page, run `sfumato export {path}` and serve again\n"
    first, *_ = said.out.splitlines()
    assert first == "model: hats (code, 3x16x16, by NumPy; takes code:artefact=hats.safetensors)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.safetensors"], "missing.safetensors: cannot be read (No such file or directory)"),
        (["a b=vases.safetensors"], "'a b' is not a name for a model"),
        (["vases.safetensors", "vases.safetensors"], "2 models of 1 names"),
        (["vases.safetensors", "--allow-origin", "*"], "'*' is not an origin"),
        (["vases.safetensors", "--web", "nowhere"], "nowhere: has no index.html"),
        (["vases.safetensors", "--certificate", "c.pem"], "a certificate and its private key come together"),
        (
            ["vases.safetensors", "--certificate", "c.pem", "--private-key", "k.pem"],
            "c.pem: not a certificate that can be used with k.pem",
        ),
    ],
)
def test_a_mistake_is_one_line(command: Command, artefact: Path, arguments: list[str], message: str):
    said = command("serve", *arguments, "--store", "sqlite:///s.db", "--port", "0")
    check_mistake(replace(said, out=""), message)  # which may have named models


def test_a_port_that_is_taken_is_one_line(command: Command, artefact: Path):
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        said = command("serve", artefact, "--store", "sqlite:///s.db", "--port", str(port))
    assert f"cannot serve on port {port} of 127.0.0.1 (Address already in use)" in said.err


def test_it_answers_until_it_is_stopped_and_logs_json_without_a_label(artefact: Path, tmp_path: Path):
    url = f"sqlite:///{tmp_path}/s.db"
    with Store(url) as store:
        store.create_tenant("museum")
        _, secret = store.create_key("museum", role="write", name="camera")
    program = "import sys; from sfumato.cli import main; sys.argv = ['sfumato', *sys.argv[1:]]; main()"
    words = ("serve", artefact, "--store", url, "--port", "0", "--log-format", "json")
    with subprocess.Popen(
        [sys.executable, "-c", program, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        address = next(line for line in lines if line.startswith("serving: ")).split()[1]
        values = torch.arange(192, dtype=torch.uint8).reshape(1, 3, 8, 8)
        sent = wire.encode(Release(values, SPEC, (16, 16), 2))
        headers = {"x-api-key": secret, "content-type": wire.MEDIA_TYPE}
        with httpx.Client(base_url=address, timeout=30) as client:
            made = client.post(
                "/v1/classifiers", json={"name": "v", "model": "vases"}, headers=headers
            ).json()
            place = f"/v1/classifiers/{made['id']}"
            kind = {"content-type": labelled.MEDIA_TYPE}
            enrolled = labelled.join([("amphora", "1")], sent)
            client.post(f"{place}/examples", content=enrolled, headers=headers | kind).raise_for_status()
            reply = client.post(f"{place}/classify", content=sent, headers=headers)
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate(timeout=30)
    assert (process.returncode, rest) == (0, "stopped\n")
    assert reply.json()["images"][0]["guesses"][0]["label"] == "amphora"
    assert "server" not in reply.headers
    logged = [json.loads(line) for line in errors.splitlines()]
    (line,) = [line for line in logged if line["request"] == reply.headers["x-request-id"]]
    assert set(line) == {
        *("time", "level", "logger", "message", "request", "method", "route", "status", "seconds")
    }
    assert (line["level"], line["logger"]) == ("info", "sfumato.serve")
    assert line["message"] == "a request was answered"
    assert (line["method"], line["status"]) == ("POST", 200)
    assert line["route"] == "/v1/classifiers/{classifier}/classify"
    assert "amphora" not in errors
    assert secret not in errors
    assert "Traceback" not in errors
