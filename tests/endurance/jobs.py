"""A folder job that is killed, and a ledger that is lost, damaged or read-only under it."""

import hashlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import tarfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from harness import Trial, scenario
from PIL import Image
from service import DECADE, command, environment, read_only

from sfumato import data, images
from sfumato.base.files import PART
from sfumato.device.jobs import releasing
from sfumato.device.ledger import Ledger
from sfumato.errors import SfumatoError
from sfumato.protect import parse

GROUP = "A folder job and its ledger"
SPEC = "dp-pix:cell=4,epsilon=3"


class Job:
    """`sfumato protect` on a folder of photographs. State: its files, and which outputs were seen before."""

    def __init__(self, folder: Path, count: int, seed: int) -> None:
        self.source, self.target = folder / "source", folder / "target"
        self.ledger = folder / "device" / "ledger.db"
        self._seen: dict[Path, bytes] = {}
        photographs(self.source, count, np.random.default_rng(seed))

    def command(self) -> list[str]:
        """What runs it."""
        words = ("protect", self.source, self.target, "--with", SPEC, "--ledger", self.ledger)
        return command(*words, "--workers", 2)

    def begin(self, *, shift: int = 0) -> subprocess.Popen[str]:
        """Start it, in a group of processes of its own."""
        quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        return subprocess.Popen(self.command(), start_new_session=True, env=environment(shift=shift), **quiet)

    def outputs(self) -> list[Path]:
        """The images and shards that are there."""
        found = [*self.target.rglob("*.png"), *self.target.rglob("*.tar")]
        return sorted(path for path in found if not path.name.startswith("."))

    def problems(self, *, again: bool = False) -> list[str]:
        """What is wrong with new outputs (or all, `again`): not charged; with others: not what they were."""
        kept, problems = self.releases(), []
        for path in self.outputs():
            encoded = [path.read_bytes()]
            if path.suffix == ".tar":
                with tarfile.open(path) as shard:
                    encoded = [shard.extractfile(member).read() for member in shard]
            digest = hashlib.sha256(b"".join(encoded)).digest()
            if self._seen.get(path, digest) != digest:
                problems.append(f"{path.name} is another release than before")
            if path not in self._seen or again:
                uncharged = [one for one in encoded if _digest(images.read(one).numpy()) not in kept]
                problems += [f"{path.name} was not charged"] * len(uncharged)
            self._seen[path] = digest
        return problems

    def releases(self) -> set[bytes]:
        """Digests of all releases in the ledger, as they look with cells enlarged."""
        if not self.ledger.exists():
            return set()
        with closing(sqlite3.connect(self.ledger)) as database:
            query = "select release, channels, height, width from charges join terms on terms.id = terms"
            rows = database.execute(query).fetchall()
        found = set()
        for release, channels, height, width in rows:
            values = np.frombuffer(release, np.uint8).reshape(channels, -(-height // 4), -(-width // 4))
            found.add(_digest(values.repeat(4, 1).repeat(4, 2)[:, :height, :width]))
        return found

    def finish(self, trial: Trial) -> None:
        """Run it to its end, and compare what it says, the manifest, the folder and the ledger."""
        last = self.begin()
        said = last.communicate()[0]
        trial.check(last.returncode == 0, f"the last run ended with {last.returncode}: {said}")
        trial.problems += self.problems(again=True)
        manifest = json.loads((self.target / "manifest.json").read_text())
        named = {entry["file"]: entry["sha256"] for entry in manifest["outputs"]}
        files = [path for path in self.target.rglob("*") if path.is_file() and path.name != "manifest.json"]
        digests = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
        there = {str(path.relative_to(self.target)): digest for path, digest in digests.items()}
        differing = set(named.items()) ^ set(there.items())
        trial.check(not differing, f"the manifest differs from the folder in {sorted(differing)[:3]}")
        trial.check(not list(self.target.rglob(PART)), "a half-written file was left")
        originals = {images.digest(images.read(path, channels=None)) for path in self.source.rglob("*.jpg")}
        with closing(sqlite3.connect(self.ledger)) as database:
            rows = database.execute("select image from images where id in (select image from charges)")
            charged = [image for (image,) in rows]
        problem = f"{len(charged)} charges for {len(originals)} different images"
        trial.check(sorted(charged) == sorted(originals), problem)
        trial.figures |= {"different images": len(originals), "charges": len(charged), "outputs": len(there)}


def _digest(pixels: np.ndarray) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(pixels).data).digest()


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


@scenario(
    GROUP,
    "`sfumato protect` is killed with -9 and started again, half of the time with its clock ten years back",
    "nothing leaves uncharged, nothing is released twice with other noise, nothing is lost, counts are true",
)
def job_killed(trial: Trial) -> None:
    job = Job(trial.folder, trial.size(3000), trial.seed)
    for number in range(trial.size(20)):
        process, before = job.begin(shift=-DECADE if trial.dice.getrandbits(1) else 0), len(job.outputs())
        # Half of the kills come anywhere from the start on, half while releases are being written; half of
        # them take the workers along, half leave them behind for a moment.
        while number % 2 == 0 and process.poll() is None and len(job.outputs()) == before:
            time.sleep(0.01)
        time.sleep(trial.dice.uniform(0, 0.5 if number % 2 == 0 else 2))
        if process.poll() is not None:
            break  # it is done: the kills until here count
        (os.killpg if trial.dice.getrandbits(1) else os.kill)(process.pid, signal.SIGKILL)
        process.wait()
        trial.count("kills")
        trial.problems += job.problems()
    job.finish(trial)
    enough = trial.figures["kills"] >= trial.size(12)
    trial.check(enough, "the job was done before it was killed: more images")


@scenario(
    GROUP,
    "the file system of the ledger, then that of the outputs is read-only",
    "`sfumato protect` says so and leaves nothing uncharged, and it resumes once it may write",
)
def job_read_only(trial: Trial) -> None:
    job = Job(trial.folder, 60, trial.seed)
    job.begin().wait()
    first = len(job.outputs())
    for folder in (job.ledger.parent, job.target):
        photographs(job.source / folder.name, 30, np.random.default_rng([trial.seed, len(job.outputs())]))
        words, quiet = read_only(folder, job.command()), {"capture_output": True, "text": True}
        run = subprocess.run(words, env=environment(), check=False, **quiet)
        trial.check(run.returncode == 1, f"it ended with {run.returncode}: {run.stdout}")
        said = re.findall("^sfumato: .*(?:read-only|written|writing).*$", run.stderr, flags=re.M | re.I)
        trial.check(len(said) == 1 and "Traceback" not in run.stderr, f"it says {run.stderr[-300:]!r}")
        more = len(job.outputs()) - first
        trial.check(not more, f"{more} outputs with {folder.name} locked")
        trial.problems += job.problems()
        trial.count("runs refused")
        job.begin().wait()
        first = len(job.outputs())
    job.finish(trial)


@scenario(
    GROUP,
    "one bit of a ledger of 40 images is flipped, and all of them are asked for again",
    "they come back as they were, or the damage is named; no other error comes",
)
def ledger_damaged(trial: Trial) -> None:
    faces = data.load("faces", identities=40, images_per_identity=1, size=32, seed=trial.seed).images
    whole, used = trial.folder / "whole", trial.folder / "used"

    def ask() -> torch.Tensor:
        with Ledger(used / "ledger.db") as ledger:
            return releasing.release(parse(SPEC), faces, ledger).values

    first = ask()
    shutil.copytree(used, whole)
    content = (whole / "ledger.db").read_bytes()
    outcomes: Counter[str] = Counter()
    for _ in range(trial.size(1000)):
        shutil.rmtree(used)
        shutil.copytree(whole, used)
        flipped = bytearray(content)
        flipped[trial.dice.randrange(len(flipped))] ^= 1 << trial.dice.randrange(8)
        (used / "ledger.db").write_bytes(flipped)
        try:
            outcomes["unchanged" if torch.equal(first, ask()) else "drawn anew in silence"] += 1
        except SfumatoError:
            outcomes["named"] += 1
        except Exception as error:
            trial.problems.append(f"{type(error).__name__}: {error}")
    trial.figures |= {"flips": outcomes.total(), **outcomes}
