"""Five strangers take README's path, each from an empty folder: what they type, what is said, and how long it takes.

    python studies/walks.py grey things phones sixty six --data ../shared/data

- grey: 400 grey photographs of 40 people with two labels, from `demo` to an answer of a service;
- things: 20 classes of things in folders, 30 photographs each, and a code that is trained on them;
- phones: 12 photographs of 12 megapixels, turned by EXIF, a third of them HEIC, with a position in them;
- sixty: 60 photographs with two labels;
- six: 180 photographs of 6 people.

Nothing was chosen for these data. Records: studies/results/walks.jsonl, a walk a line; one that is walked again takes
the place of its line.
"""

import argparse
import csv
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image
from rows import RESULTS, Rows
from unpack import picture, write_csv

import sfumato

ROOT = Path(__file__).parents[1]
RECORDS = Rows(RESULTS / "walks.jsonl")
LAST = 14  # lines of what a command said that are kept


@dataclass
class Walk:
    """One stranger in one folder. State: what they typed so far, and the service that they started.

    Attributes:
        name: of the walk.
        folder: where they are.
        photographs: how many they have.
        steps: command, exit code, seconds and the last lines of each.
        facts: what was counted of the outcome.
    """

    name: str
    folder: Path
    photographs: int = 0
    steps: list[dict[str, object]] = field(default_factory=list)
    facts: dict[str, float] = field(default_factory=dict)

    def type(self, command: str) -> str:
        """Run a `sfumato` command of README and return all that it said."""
        start = time.perf_counter()
        done = subprocess.run(
            _program(command), cwd=self.folder, env=self._environment(), capture_output=True, text=True
        )
        said = done.stderr + done.stdout
        self._note(command, done.returncode, time.perf_counter() - start, said)
        return said

    def serve(self, command: str) -> tuple[str, Callable[[], None]]:
        """Start a service; -> its address, and what stops it."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        start = time.perf_counter()
        log = (self.folder / "serve.log").open("w+")
        service = subprocess.Popen(
            [*_program(command), "--port", str(port)], cwd=self.folder, env=self._environment(),
            stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        while service.poll() is None:
            with socket.socket() as asked:
                if asked.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        seconds = time.perf_counter() - start

        def stop() -> None:
            service.send_signal(signal.SIGTERM)
            code = service.wait(60)
            log.seek(0)
            self._note(f"{command} &", code, seconds, log.read())
            log.close()

        return f"http://127.0.0.1:{port}", stop

    def key(self) -> None:
        """Make a key, as README has it."""
        said = self.type("sfumato -q keys create me laptop --new-tenant")
        os.environ["SFUMATO_KEY"] = said.strip().splitlines()[-1]
        self.steps[-1]["said"] = ["(a key)"]

    def _note(self, command: str, code: int, seconds: float, said: str) -> None:
        lines = [line.replace(str(self.folder), ".") for line in said.splitlines() if line.strip()]
        step = {"command": command, "code": code, "seconds": round(seconds, 1), "said": lines[-LAST:]}
        self.steps.append(step)
        print(f"[{self.name}] {command}  ({code}, {seconds:.1f} s)", flush=True)
        for line in lines[-LAST:]:
            print(f"    {line}", flush=True)

    def _environment(self) -> dict[str, str]:
        home = str(self.folder / "home")
        own = {"HOME": home, "XDG_DATA_HOME": f"{home}/data", "XDG_CACHE_HOME": f"{home}/cache"}
        return os.environ | own | {"SFUMATO_STORE": f"sqlite:///{self.folder}/store.db", "COLUMNS": "120"}


def _program(command: str) -> list[str]:
    return [sys.executable, "-m", "sfumato", *shlex.split(command)[1:]]


# The photographs.


def _by(values: np.ndarray, least: int) -> dict[int, list[int]]:
    """The rows of each value that has so many."""
    rows: dict[int, list[int]] = defaultdict(list)
    for row, value in enumerate(values.tolist()):
        rows[value].append(row)
    return {value: each for value, each in rows.items() if len(each) >= least}


def _faces(walk: Walk, data: Path, people: int, each: int) -> None:
    """Grey photographs of LFW, half of the people of each gender as far as there are any, and their table."""
    arrays = dict(np.load(data / "lfw_faces_84.npz"))
    of_gender: dict[int, list[int]] = {0: [], 1: []}
    by_person = _by(arrays["person"], each)
    for person in by_person:
        if (gender := int(arrays["gender"][person])) in of_gender:
            of_gender[gender].append(person)
    women = of_gender[0][: people // 2]
    rows = []
    (walk.folder / "photos").mkdir()
    for person in [*women, *of_gender[1][: people - len(women)]]:
        for number, row in enumerate(by_person[person][:each]):
            file = f"photos/p{person}_{number}.png"
            picture(arrays, row).convert("L").save(walk.folder / file)
            gender = ("female", "male")[int(arrays["gender"][person])]
            rows.append({"file": file, "gender": gender, "person": f"p{person}"})
    random.Random(0).shuffle(rows)
    write_csv(rows, walk.folder / "photos.csv")
    walk.photographs = len(rows)


# The walks.


def grey(walk: Walk, data: Path) -> None:
    """400 grey photographs with two labels: from `demo` to an answer."""
    _faces(walk, data, people=40, each=10)
    _demo_and_on(walk, "gender")


def sixty(walk: Walk, data: Path) -> None:
    """60 photographs with two labels."""
    _faces(walk, data, people=20, each=3)
    _demo_and_on(walk, "gender")


def six(walk: Walk, data: Path) -> None:
    """180 photographs of 6 people, with and without sunglasses."""
    with np.load(data / "cmu_faces_32x30.npz") as packed:
        images, person, glasses = packed["images"], packed["person"], packed["sunglasses"]
    (walk.folder / "photos").mkdir()
    rows = []
    for number, of_one in list(_by(person, 30).items())[:6]:
        for row in of_one[:30]:
            file = f"photos/{row}.png"
            Image.fromarray(images[row]).save(walk.folder / file)
            wears = ("none", "sunglasses")[int(glasses[row])]
            rows.append({"file": file, "glasses": wears, "person": f"p{number}"})
    write_csv(rows, walk.folder / "photos.csv")
    walk.photographs = len(rows)
    _demo_and_on(walk, "glasses")


def _demo_and_on(walk: Walk, target: str) -> None:
    """`demo`, and whatever its last lines say."""
    labels = f"--target {target} --sensitive person"
    walk.type("sfumato demo --data photos.csv")  # what README's reader types first
    walk.type(f"sfumato demo --data table:photos.csv {labels} --check")
    said = walk.type(f"sfumato demo --data table:photos.csv {labels} --out runs/mine")
    protect = re.search(r"sfumato protect PHOTOS RELEASED (--with \S+(?: --size \d+)?)", said)
    if protect is not None:
        walk.type(f"sfumato protect photos released {protect[1]}")
        walk.facts["released"] = len(list((walk.folder / "released").glob("p*")))
    if serve := re.search(r"(sfumato serve \S+)", said):
        model = serve[1].split()[-1]
        spec = re.search(r"--with (\S+)", protect[0])[1] if protect else f"code:artefact={model}"
        _serve_and_ask(walk, serve[1], spec, *_by_class(walk, target))


def _by_class(walk: Walk, target: str) -> tuple[Path, list[tuple[Path, str]]]:
    """Folders with 30 photographs of each class, and ten others of each with their class."""
    with (walk.folder / "photos.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    others: list[tuple[Path, str]] = []
    for name in sorted({row[target] for row in rows}):
        of_one = [walk.folder / row["file"] for row in rows if row[target] == name]
        (walk.folder / "classes" / name).mkdir(parents=True)
        kept = min(30, len(of_one) * 3 // 4)
        for path in of_one[:kept]:
            shutil.copy(path, walk.folder / "classes" / name)
        others += [(path, name) for path in of_one[kept : kept + 10]]
    return walk.folder / "classes", others


def _serve_and_ask(
    walk: Walk, command: str, spec: str, classes: Path, others: Sequence[tuple[Path, str]]
) -> None:
    """README's cloud: a key, a service, `enrol`, and `classify` of photographs that were not enrolled."""
    walk.key()
    url, stop = walk.serve(command)
    walk.type(f"sfumato enrol {url} mine {classes.relative_to(walk.folder)} --with {spec}")
    files = " ".join(str(path.relative_to(walk.folder)) for path, _ in others)
    said = walk.type(f"sfumato classify {url} mine {files} --with {spec}")
    walk.steps[-1]["command"] = f"sfumato classify {url} mine ... --with {spec}"
    stop()
    answers = dict(re.findall(r"^(\S+): (.+)$", said, re.MULTILINE))
    of_each = [(answers.get(str(path.relative_to(walk.folder)), ""), name) for path, name in others]
    walk.facts["asked"] = len(of_each)
    # A class may be called "none", as that of people without sunglasses.
    walk.facts["answered with a class"] = sum(
        bool(answer) and not answer.startswith("none of these") for answer, _ in of_each
    )
    walk.facts["right"] = sum(answer.startswith(f"{name} ") for answer, name in of_each)


def things(walk: Walk, data: Path) -> None:
    """20 classes of things in folders: README's code, service and answers."""
    arrays, others = dict(np.load(data / "caltech101_84.npz")), []
    for label, rows in list(_by(arrays["label"], 40).items())[:20]:
        name = str(arrays["classes"][label])
        (walk.folder / "photos" / name).mkdir(parents=True)
        for number, row in enumerate(rows[:40]):
            folder = walk.folder / ("photos/" + name if number < 30 else "")
            path = folder / f"{name}_{number}.jpg"
            picture(arrays, row).save(path, quality=92)
            if number >= 30:
                others.append((path, name))
    walk.photographs = 20 * 40
    walk.type(
        "sfumato train code --data folder:photos --target class --set bits=16 --size 84 --encoder efficientnet-lite0 "
        "--known --out code.safetensors"
    )
    _serve_and_ask(
        walk,
        "sfumato serve code.safetensors",
        "code:artefact=code.safetensors",
        walk.folder / "photos",
        others,
    )


def phones(walk: Walk, data: Path) -> None:
    """Photographs of a phone: large, turned, some HEIC, with a position."""
    import pillow_heif

    pillow_heif.register_heif_opener()
    arrays = dict(np.load(data / "caltech101_84.npz"))
    (walk.folder / "photos").mkdir()
    size, noise = (4032, 3024), np.random.default_rng(0)
    for number in range(12):
        large = picture(arrays, number * 300).resize(size, Image.Resampling.BICUBIC)
        grain = noise.integers(-6, 7, (size[1], size[0], 1), dtype=np.int16)
        pixels = (np.asarray(large, np.int16) + grain).clip(0, 255).astype(np.uint8)
        exif = Image.Exif()
        exif[0x0112] = (1, 6, 8, 3)[number % 4]  # which side is up
        exif.get_ifd(0x8825).update({1: "N", 2: (52.0, 30.0, 0.0), 3: "E", 4: (13.0, 24.0, 0.0)})
        heic = number % 3 == 2
        path = walk.folder / "photos" / f"IMG_{number:04}.{'HEIC' if heic else 'JPG'}"
        Image.fromarray(pixels).save(path, "HEIF" if heic else "JPEG", exif=exif.tobytes(), quality=90)
    walk.photographs = 12
    walk.type("sfumato protect photos released --with dp-pix:cell=1/8,epsilon=3")
    released = list((walk.folder / "released").glob("*.png"))
    opened = [Image.open(path) for path in released]
    walk.facts["released"] = len(released)
    walk.facts["with metadata"] = sum(bool(each.getexif()) or b"GPS" in path.read_bytes()
                                      for each, path in zip(opened, released, strict=True))  # fmt: skip
    walk.type("sfumato protect photos released-small --with dp-pix:cell=1/8,epsilon=3 --size 84")


WALKS = {"grey": grey, "things": things, "phones": phones, "sixty": sixty, "six": six}


def main() -> None:
    """Walk those that are asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="+", choices=list(WALKS))
    parser.add_argument("--data", type=Path, required=True, help="the folder of the packed photographs")
    options = parser.parse_args()
    for name in options.names:
        with tempfile.TemporaryDirectory() as folder:
            walk = Walk(name, Path(folder))
            WALKS[name](walk, options.data.absolute())
        seconds = round(sum(float(str(step["seconds"])) for step in walk.steps), 1)
        own = {key: value for key, value in asdict(walk).items() if key != "folder"}
        RECORDS[name] = own | {"seconds": seconds, "seed": 0, "version": sfumato.__version__}


if __name__ == "__main__":
    main()
