"""Kill `sfumato protect` with -9 at random moments, start it again, and check that nothing is lost or spent twice.

    python studies/kills.py --kills 20 --seed 0

Writes studies/results/kills.json. What is checked after the last run: every output is whole and is the release
that the ledger keeps; the manifest names exactly the outputs, with their digests; no image was charged twice;
after every kill, no output lies there whose release was not charged before.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

import sfumato
from sfumato import images
from sfumato.files import PART, whole

SPEC = "dp-pix:cell=4,epsilon=3"
RECORD = Path(__file__).parent / "results" / "kills.json"


def photographs(folder: Path, count: int, rng: np.random.Generator) -> None:
    """Smooth pictures in three folders, one in ten of them a copy of another, and two tar shards."""
    for i in range(count):
        side = int(rng.integers(60, 120))
        picture = np.cumsum(np.cumsum(rng.normal(0, 1, (side, side, 3)), 0), 1) / 2 + 128
        path = folder / f"{i % 3}" / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8)).save(path)
        if i % 10 == 0:
            (folder / "copies").mkdir(exist_ok=True)
            (folder / "copies" / path.name).write_bytes(path.read_bytes())
    for name in ("a", "b"):
        with tarfile.open(folder / f"{name}.tar", "w") as shard:
            for path in sorted((folder / "0").iterdir())[: count // 6]:
                shard.add(path, f"{name}/{path.name}")


def written(target: Path) -> list[Path]:
    """The outputs that are there."""
    found = [*target.rglob("*.png"), *target.rglob("*.tar")]
    return sorted(path for path in found if not path.name.startswith("."))


def uncharged(target: Path, ledger: Path, seen: dict[Path, bytes]) -> list[str]:
    """What is wrong with the outputs that were not seen before: not in the ledger; or seen, and now others."""
    kept = kept_releases(ledger)
    problems = []
    for path in written(target):
        if path.suffix == ".tar":
            with tarfile.open(path) as shard:
                encoded = [shard.extractfile(member).read() for member in shard]
        else:
            encoded = [path.read_bytes()]
        digest = hashlib.sha256(b"".join(encoded)).digest()
        if path in seen:
            if seen[path] != digest:
                problems.append(f"{path.name} is another release than before")
            continue
        seen[path] = digest
        problems += [
            f"{path.name} was not charged"
            for one in encoded
            if hashlib.sha256(images.read(one).numpy().data).digest() not in kept
        ]
    return problems


def kept_releases(ledger: Path) -> set[bytes]:
    """Digests of all releases in a ledger, as they look with cells enlarged."""
    if not ledger.exists():
        return set()
    with sqlite3.connect(ledger) as database:
        rows = database.execute(
            "select release, channels, height, width from charges join terms on terms.id = terms"
        ).fetchall()
    found = set()
    for release, channels, height, width in rows:
        values = np.frombuffer(release, np.uint8).reshape(channels, -(-height // 4), -(-width // 4))
        shown = values.repeat(4, 1).repeat(4, 2)[:, :height, :width]
        found.add(hashlib.sha256(shown.tobytes()).digest())
    return found


def main() -> None:
    """Kill, start again, check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", type=Path, default=RECORD)
    options = parser.parse_args()
    moments = random.Random(options.seed)
    began = time.monotonic()
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        source, target, ledger = (Path(folder) / name for name in ("source", "target", "device/ledger.db"))
        photographs(source, options.images, np.random.default_rng(options.seed))
        command = [
            sys.executable,
            "-c",
            "from sfumato.cli import main; main()",
            "protect",
            source,
            target,
            "--with",
            SPEC,
        ]
        command += ["--ledger", ledger, "--workers", "2"]
        run = lambda: subprocess.Popen(  # noqa: E731
            command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        killed, seen = [], {}
        for i in range(options.kills):
            process = run()
            # Half of the kills come anywhere from the start on, half while releases are being written; half
            # of them take the workers along, half leave them behind for a moment.
            before = len(written(target))
            if i % 2 == 0:
                while process.poll() is None and len(written(target)) == before:
                    time.sleep(0.01)
            after = moments.uniform(0, 0.5 if i % 2 == 0 else 2)
            time.sleep(after)
            everyone = bool(moments.getrandbits(1))
            if process.poll() is not None:
                raise SystemExit(f"the job was done before kill {i + 1}: give more --images")
            (os.killpg if everyone else os.kill)(process.pid, signal.SIGKILL)
            process.wait()
            killed.append(
                {
                    "during": "writing" if i % 2 == 0 else "anything",
                    "after_s": round(after, 2),
                    "workers_too": everyone,
                    "outputs": len(written(target)),
                }
            )
            problems += uncharged(target, ledger, seen)
            print(f"kill {i + 1}: {killed[-1]}, problems so far: {len(problems)}", flush=True)
        last = run()
        said = last.communicate()[0]
        problems += uncharged(target, ledger, seen)
        problems += uncharged(target, ledger, {})  # all of them once more
        manifest = json.loads((target / "manifest.json").read_text())
        named = {entry["file"]: entry["sha256"] for entry in manifest["outputs"]}
        there = {
            str(path.relative_to(target)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in target.rglob("*")
            if path.is_file() and path.name != "manifest.json"
        }
        if named != there:
            problems.append(
                f"the manifest differs from the folder in {set(named.items()) ^ set(there.items())}"
            )
        if list(target.rglob(PART)):
            problems.append("a half-written file was left")
        originals = {images.digest(images.read(path, channels=None)) for path in source.rglob("*.jpg")}
        with sqlite3.connect(ledger) as database:
            charged = [row[0] for row in database.execute("select image from charges")]
        if sorted(charged) != sorted(originals):
            problems.append(f"{len(charged)} charges for {len(originals)} different images")
        if last.returncode != 0:
            problems.append(f"the last run ended with {last.returncode}: {said}")
        record = {
            "kills": killed,
            "seed": options.seed,
            "files": sum(1 for path in source.rglob("*") if path.is_file()),
            "different_images": len(originals),
            "charges": len(charged),
            "outputs": len(there),
            "problems": problems,
            "version": sfumato.__version__,
            "wall_s": round(time.monotonic() - began, 1),
        }
    with whole(options.record) as temporary:
        temporary.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{len(killed)} kills, {record['charges']} charges for {record['different_images']} images")
    for problem in problems:
        print(f"problem: {problem}")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
