"""What hostile servers, lost ledgers and damaged files get out of a device, and what they do not.

    python studies/hostile.py [--seed 0]

Writes studies/results/hostile.json. Each part is a claim with its figures, and the problems that were found:

- averager: a service changes its demand in the last digit, a hundred times. How near the mean of what left comes
  to what the image would be without noise, with the budgets of a new ledger and without any.
- servers: a real server demands what protects nothing, or changes its demand. What left that nobody had chosen.
- vanishing: the ledger is moved away in the middle of folder jobs, at random moments. What was written whose
  charge is in no ledger; and whether the next run began another one.
- flipped: one bit of a ledger is flipped, then all its images are asked for again. Whether an image comes back
  with noise that was drawn anew, in silence.
- cards: bits of artefacts of every served kind are flipped, and bytes of their cards replaced.
"""

import argparse
import json
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from kills import photographs
from torch import Tensor

import sfumato
from sfumato import data, images
from sfumato.device import releasing, witness
from sfumato.device.client import Client
from sfumato.device.ledger import Ledger
from sfumato.errors import ArtefactError, BudgetExceededError, LedgerError, SfumatoError
from sfumato.files import whole
from sfumato.learn import few_shot, private_feature
from sfumato.learn.few_shot import FewShotConfig
from sfumato.learn.private_feature import FeatureConfig
from sfumato.protect import parse
from sfumato.serve import models

SPEC = "dp-pix:cell=4,epsilon=3"
RECORD = Path(__file__).parent / "results" / "hostile.json"


def averager(seed: int) -> dict[str, Any]:
    """Ask for one face a hundred times, by specs that differ in the last digit."""
    face = data.load("faces", identities=3, images_per_identity=1, size=64, seed=seed).images[0]
    clear = parse("pixelize:cell=8").release(face[None], None).values.double()
    figures: dict[str, Any] = {}
    for name in ("a new ledger", "no budgets"):
        with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "ledger.db") as ledger:
            if name == "no budgets":
                ledger.set_budget(None)
            drawn = []
            for step in range(100):
                protection = parse(f"dp-pix:cell=8,epsilon={3 + step * 1e-6:.6f}")
                try:
                    release = releasing.release(protection, face[None], ledger, folders=["/"])
                except BudgetExceededError:
                    continue
                drawn.append(release.values.double())
        mean = torch.stack(drawn).mean(0)
        figures[name] = {
            "releases": len(drawn),
            "rms_error_of_one": round(rms(drawn[0], clear), 2),
            "rms_error_of_the_mean": round(rms(mean, clear), 2),
        }
    return figures


def rms(first: Tensor, second: Tensor) -> float:
    """Root mean square difference, in grey levels."""
    return float((first - second).square().mean().sqrt())


DEMANDS = [
    "none",
    "pixelize:cell=1",
    "blur:radius=0.01",
    "gaussian:sigma=0.001",
    "gaussian:sigma=1e-320",
    "dp-pix:cell=1,epsilon=1000000",
    "dp-pix-gaussian:cell=1,rho=1e9",
    "block:share=1e-9",
    "centre-blur:radius=0.01",
    "mask:artefact=/etc/passwd",
    "feature:artefact=f.safetensors,noise=0",
    "outside:index=i.json",
    "pixelize:cell=2",  # protects a little: accepted by whoever is asked, and nobody is asked here
    "x" * 1_000_000,
    "\x1b[2Jblur:radius=3",
]


def servers() -> dict[str, Any]:
    """Demand what protects nothing of a device that named no protection; then change an accepted demand."""
    seen: list[int] = []
    state = {"spec": SPEC}

    class Hostile(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            model = {"name": "m", "kind": "few-shot", "specs": [state["spec"]], "made_of": [None]}
            model |= {"shape": [3, 64, 64], "dimension": 8, "refusal": None}
            classifier = {"id": "c", "name": "people", "model": "m", "version": 1}
            classifier["created"] = "2026-01-01T00:00:00Z"
            self._answer([model] if self.path.endswith("models") else [classifier])

        def do_POST(self) -> None:
            seen.append(len(self.rfile.read(int(self.headers["content-length"]))))
            self._answer({"new": 1, "known": 0, "examples": ["e"]}, 201)

        def _answer(self, value: Any, status: int = 200) -> None:
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    face = data.load("faces", identities=3, images_per_identity=1, size=64).images[0]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    problems: list[str] = []
    outcomes: Counter[str] = Counter()

    def ask(folder: str, spec: str, accept: Any = None) -> None:
        state["spec"] = spec
        before = len(seen)
        try:
            with Client(
                url, key="k" * 32, ledger=f"{folder}/l.db", classifier="people", accept=accept
            ) as client:
                client.enrol("anna", face)
        except SfumatoError as error:
            outcomes[type(error).__name__] += 1
        else:
            outcomes["sent"] += 1
        if len(seen) > before and spec != SPEC:
            problems.append(f"{spec[:60]!r}: {seen[-1]} bytes left")

    with tempfile.TemporaryDirectory() as folder:
        for spec in DEMANDS:
            ask(folder, spec)
            ask(folder, spec, accept=lambda demand: False)
        for spec in DEMANDS[:12]:
            ask(folder, spec, accept=lambda demand: True)  # even by who agrees to anything, unread
    with tempfile.TemporaryDirectory() as folder:
        ask(folder, SPEC, accept=lambda demand: True)
        accepted = len(seen)
        for step in range(1, 101):
            ask(folder, f"dp-pix:cell=4,epsilon={3 + step * 1e-6:.6f}")
        changed = len(seen) - accepted
    server.shutdown()
    return {
        "demands": len(DEMANDS),
        "sent_once_accepted": accepted,
        "sent_after_100_changes": changed,
        "outcomes": dict(outcomes),
        "problems": problems,
    }


PROTECT = "from sfumato.cli import main; main()"


def vanishing(times: int, seed: int) -> dict[str, Any]:
    """Move the ledger away in the middle of folder jobs."""
    import numpy as np

    moments = random.Random(seed)
    problems: list[str] = []
    exits: Counter[int] = Counter()
    refused = written = 0
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        photographs(source, 4000, np.random.default_rng(seed))
        for number in range(times):
            place = Path(folder) / f"run-{number}"
            ledger, target = place / "device" / "ledger.db", place / "target"
            command = [sys.executable, "-c", PROTECT, "protect", source, target, "--with", SPEC]
            command += ["--ledger", ledger, "--workers", "2"]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while process.poll() is None and not list(target.glob("[0-9]/*.png")):
                time.sleep(0.01)
            time.sleep(moments.uniform(0, 1.0))
            for file in [*ledger.parent.glob("ledger.db*")]:
                if file.is_file():
                    file.rename(place / file.name)
            exits[process.wait()] += 1
            outputs = [*target.glob("[0-9]/*.png"), *target.glob("copies/*.png")]
            kept = releases_of(place / "ledger.db")
            uncharged = [path for path in outputs if digest_of(path) not in kept]
            written += len(outputs)
            if uncharged:
                problems.append(
                    f"run {number + 1}: {len(uncharged)} of {len(outputs)} outputs are in no ledger"
                )
            try:
                Ledger(ledger).close()
                problems.append(f"run {number + 1}: another ledger was begun")
            except LedgerError:
                refused += 1
            shutil.rmtree(place)
    if exits[0]:
        problems.append(f"{exits[0]} runs ended with 0")
    return {
        "runs": times,
        "exits": {str(code): count for code, count in exits.items()},
        "outputs_before_the_loss": written,
        "refused_to_begin_another": refused,
        "problems": problems,
    }


def digest_of(path: Path) -> bytes:
    """Of the pixels of an output."""
    return images.digest(images.read(path))


def releases_of(ledger: Path) -> set[bytes]:
    """Digests of what the releases of a ledger look like, at 4x4 pixels a cell."""
    with sqlite3.connect(ledger) as database:
        rows = database.execute(
            "select release, channels, height, width from charges join terms on terms.id = terms"
        ).fetchall()
    database.close()
    found = set()
    for release, channels, height, width in rows:
        values = torch.frombuffer(bytearray(release), dtype=torch.uint8)
        values = values.reshape(channels, -(-height // 4), -(-width // 4))
        wide = values.repeat_interleave(4, 1).repeat_interleave(4, 2)[:, :height, :width]
        found.add(images.digest(wide.contiguous()))
    return found


def flipped(times: int, seed: int) -> dict[str, Any]:
    """Flip one bit of a ledger of 40 images, and ask for all of them again."""
    dice = random.Random(seed)
    faces = data.load("faces", identities=40, images_per_identity=1, size=32, seed=seed).images
    protection = parse(SPEC)
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        with Ledger(path) as ledger:
            first = releasing.release(protection, faces, ledger, folders=["/"] * 40).values
        whole_file = path.read_bytes()
        known = witness.read(path)
        for _ in range(times):
            raw = bytearray(whole_file)
            raw[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)
            for file in Path(folder).glob("ledger.db*"):
                if file.is_file():
                    file.unlink()
            path.write_bytes(raw)
            witness.write(path, known, None)
            try:
                with Ledger(path) as ledger:
                    again = releasing.release(protection, faces, ledger, folders=["/"] * 40).values
            except SfumatoError as error:
                outcomes[f"refused: {type(error).__name__}"] += 1
            except Exception as error:
                outcomes[f"FAILED: {type(error).__name__}"] += 1
            else:
                same = torch.equal(first, again)
                outcomes["the same releases" if same else "noise drawn anew in silence"] += 1
    problems = [name for name in outcomes if name.startswith("FAILED")]
    return {"flips": times, "bytes": len(whole_file), "outcomes": dict(outcomes), "problems": problems}


def cards(times: int, seed: int) -> dict[str, Any]:
    """Damage artefacts at random: no bit of one may change without notice."""
    dice = random.Random(seed)
    outcomes: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind, path in artefacts_in(Path(folder)).items():
            original = path.read_bytes()
            counted = outcomes[kind] = Counter()
            for number in range(times):
                raw = bytearray(original)
                head = 8 + int.from_bytes(raw[:8], "little")
                if number % 2:  # anywhere; else in the card
                    raw[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)
                else:
                    raw[dice.randrange(8, head)] = dice.choice(b'0123456789"{}[],:-.tfnx ')
                if bytes(raw) == original:
                    continue
                path.write_bytes(raw)
                try:
                    models.load(path)
                except ArtefactError:
                    counted["refused"] += 1
                except Exception as error:
                    counted[f"FAILED: {type(error).__name__}: {error}"[:120]] += 1
                else:
                    counted["read"] += 1
    problems = [
        f"{kind}: {count} {name}"
        for kind, counter in outcomes.items()
        for name, count in counter.items()
        if name != "refused"
    ]
    return {"outcomes": {kind: dict(counter) for kind, counter in outcomes.items()}, "problems": problems}


def artefacts_in(folder: Path) -> dict[str, Path]:
    """A small artefact of each kind that is served."""
    config = FewShotConfig(denoiser_depth=3, denoiser_width=4, precision="float32")
    card = {"config": asdict(config), "specs": ["pixelize:cell=4"], "channels": 3, "precision": "float32"}
    path = folder / "few-shot.safetensors"
    made = few_shot.untrained(3, config, [parse("pixelize:cell=4")], card=card | {"shape": [3, 16, 16]})
    made.save(path)
    of_feature = FeatureConfig(widths=(2, 2, 8, 8, 8, 4, 4), dimension=3, precision="float32")
    card = {"config": asdict(of_feature), "shape": [1, 16, 16], "classes": {"kind": ["a", "b"]}}
    feature = private_feature.untrained(card | {"precision": "float32"}, seed=0)
    feature.save(folder / "feature.safetensors")
    return {"few-shot": path, "private feature": folder / "feature.safetensors"}


def main() -> None:
    """Each part, its record, and what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--flips", type=int, default=2000)
    parser.add_argument("--cards", type=int, default=5000)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    record: dict[str, Any] = {}
    parts = {
        "averager": lambda: averager(options.seed),
        "servers": servers,
        "vanishing": lambda: vanishing(options.runs, options.seed),
        "flipped": lambda: flipped(options.flips, options.seed),
        "cards": lambda: cards(options.cards, options.seed),
    }
    for name, part in parts.items():
        start = time.monotonic()
        record[name] = part() | {"wall_s": round(time.monotonic() - start, 1)}
        print(f"{name}: {json.dumps(record[name])}", flush=True)
    record |= {"seed": options.seed, "version": sfumato.__version__}
    with whole(RECORD) as temporary:
        temporary.write_text(json.dumps(record, indent=1) + "\n")
    sys.exit(any(value.get("problems") for value in record.values() if isinstance(value, dict)))


if __name__ == "__main__":
    main()
