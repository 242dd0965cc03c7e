"""What `sfumato demo` says of a stranger's photographs, with its defaults, as a command of its own.

    python studies/unpack.py lfw ../shared/data runs/data/lfw          # and caltech101, and cmu
    python studies/strangers.py gender gender-encoder smile sunglasses objects objects-encoder sixty forty six
    python studies/strangers.py --check gender smile ...               # print what is said before the first minute

Each is a table as somebody would write it, without a split, and one run of the command line; nothing was chosen for
these data. Records: studies/results/strangers/NAME.json, with the seconds of two cores. A run that was stopped goes
on, and its seconds then are those of the last part.
"""

import argparse
import csv
import json
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import sfumato
from sfumato.files import whole

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "studies" / "results" / "strangers"
DATA = ROOT / "runs" / "data"
RUNS = ROOT / "runs" / "strangers"
WEIGHTS = ROOT.parent / "shared" / "data" / "weights"


@dataclass(frozen=True)
class Photographs:
    """Whose photographs, and what they want.

    Attributes:
        table: made by `tables`.
        target, sensitive: the labels; no sensitive one where only the task counts.
        more: further options of the command.
    """

    table: str
    target: str
    sensitive: str | None = None
    more: tuple[str, ...] = ()


SQUEEZENET = f"squeeze-net:{WEIGHTS / 'squeezenet1_0_imagenet_deepcomp.npz'}"
FACES = f"mobile-face-net:{WEIGHTS / 'mobilefacenet_casia_112x96.safetensors'}"
CASES = {
    "gender": Photographs("lfw/710.csv", "gender", "person"),
    "gender-encoder": Photographs("lfw/710.csv", "gender", "person", more=("--encoder", FACES)),
    "smile": Photographs("lfw/710.csv", "smile", "person"),
    "sunglasses": Photographs("cmu/624.csv", "sunglasses", "person"),
    "objects": Photographs("caltech101/ten.csv", "class"),
    "objects-encoder": Photographs("caltech101/ten.csv", "class", more=("--encoder", SQUEEZENET)),
    "sixty": Photographs("lfw/60.csv", "gender", "person"),
    "forty": Photographs("lfw/400.csv", "gender", "person"),
    "six": Photographs("lfw/180.csv", "gender", "person"),
}


def tables() -> None:
    """Write the tables.

    The training photographs of LFW whose smile is known, 710; 60 of them, half of each gender; ten of each of
    40 people and thirty of each of six, half of each gender; the faces of CMU; ten images of each class of
    Caltech-101.
    """
    faces = _rows(DATA / "lfw" / "attributes.csv")
    few = [row for row in faces if row["smile"] != "unknown" and row["split"] == "train"]
    people = [
        {key: row[key] for key in ("file", "gender", "smile")} | {"person": row["identity"]} for row in few
    ]
    _write(DATA / "lfw" / "710.csv", people)
    draw = random.Random(0)
    halves = [[row for row in people if row["gender"] == gender] for gender in ("female", "male")]
    _write(DATA / "lfw" / "60.csv", [row for half in halves for row in draw.sample(half, 30)])
    _write(DATA / "lfw" / "400.csv", _of_many(faces, people=40, each=10))
    _write(DATA / "lfw" / "180.csv", _of_many(faces, people=6, each=30))
    cmu = _rows(DATA / "cmu" / "table.csv")
    _write(
        DATA / "cmu" / "624.csv",
        [{"file": row["file"], "sunglasses": row["sunglasses"], "person": row["identity"]} for row in cmu],
    )
    objects = defaultdict(list)
    for row in _rows(DATA / "caltech101" / "table.csv"):
        objects[row["class"]].append({"file": row["file"], "class": row["class"]})
    ten = [row for rows in objects.values() for row in draw.sample(rows, min(10, len(rows)))]
    _write(DATA / "caltech101" / "ten.csv", ten)


def _of_many(faces: Sequence[dict[str, str]], *, people: int, each: int) -> list[dict[str, str]]:
    """As many photographs of each of so many people, half of each gender."""
    draw, rows = random.Random(0), []
    photographs = defaultdict(list)
    for row in faces:
        photographs[row["gender"], row["identity"]].append(row["file"])
    for gender in ("female", "male"):
        known = [who for (which, who), files in photographs.items() if which == gender and len(files) >= each]
        for who in draw.sample(known, people // 2):
            files = draw.sample(photographs[gender, who], each)
            rows += [{"file": file, "gender": gender, "person": who} for file in files]
    return rows


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _write(path: Path, rows: Sequence[dict[str, str]]) -> None:
    with whole(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def command_of(name: str) -> list[str]:
    """The command of a stranger."""
    case = CASES[name]
    command = ["demo", "--data", f"table:{DATA / case.table}", "--target", case.target, *case.more]
    return command if case.sensitive is None else [*command, "--sensitive", case.sensitive]


def demo(name: str) -> None:
    """Run the command, read its report as a program would, and write the record."""
    case, out, command = CASES[name], RUNS / name, command_of(name)
    preflight = json.loads(_sfumato(*command, "--check", "--json").stdout)
    start = time.perf_counter()
    said = _sfumato(*command, "--out", str(out))
    seconds = time.perf_counter() - start
    report = json.loads(_sfumato("study", "report", str(out), "--json").stdout)
    study = json.loads((out / "study.json").read_text(encoding="utf-8"))
    clean = [
        record["result"]
        for path in sorted((out / "records").glob("*.json"))
        for record in [json.loads(path.read_text(encoding="utf-8"))]
        if record["kind"] == "accuracy" and record["cell"]["protection"] == "none"
    ]
    record = {
        "name": name,
        "images": len(_rows(DATA / case.table)),
        "task": {key: study["task"][key] for key in ("target", "way", "shot", "folds")},
        "preflight": preflight,
        "end": said.stdout.replace(str(ROOT), ".").splitlines(),
        "learner": next(line for line in said.stderr.splitlines() if line.startswith("learner: ")),
        "start": study["codes"]["start"],
        "clean": clean[0],
        "recommended": report["recommended"],
        "headline": report["headline"],
        "answers": report["answers"],
        "settings": report["settings"],
        "seconds": round(seconds, 1),
        "seed": 0,
        "version": sfumato.__version__,
    }
    RECORDS.mkdir(parents=True, exist_ok=True)
    with whole(RECORDS / f"{name}.json") as temporary:
        temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({"name": name, "clean": clean[0]["accuracy"], "seconds": record["seconds"]}), flush=True)


def _sfumato(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from sfumato.cli import main; main()", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"sfumato {' '.join(arguments)}: {done.stderr}")
    return done


def main() -> None:
    """Make the tables, and run what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="print what is said before the first minute")
    parser.add_argument("names", nargs="+", choices=list(CASES))
    options = parser.parse_args()
    tables()
    for name in options.names:
        if options.check:
            print(name, _sfumato(*command_of(name), "--check").stdout, sep="\n", flush=True)
        else:
            demo(name)


if __name__ == "__main__":
    main()
