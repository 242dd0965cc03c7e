"""What `sfumato demo` says of a stranger's photographs, with its defaults, as a command of its own.

    python studies/unpack.py lfw ../shared/data runs/data/lfw          # and caltech101, and cmu
    python studies/strangers.py gender gender-encoder smile sunglasses objects objects-encoder sixty

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
}


def tables() -> None:
    """Write the tables.

    The training photographs of LFW whose smile is known, 710; 60 of them, half of each gender; the faces of CMU;
    ten images of each class of Caltech-101.
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


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _write(path: Path, rows: Sequence[dict[str, str]]) -> None:
    with whole(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def demo(name: str) -> None:
    """Run the command, read its report as a program would, and write the record."""
    case, out = CASES[name], RUNS / name
    command = ["demo", "--data", f"table:{DATA / case.table}", "--target", case.target, *case.more]
    if case.sensitive is not None:
        command += ["--sensitive", case.sensitive]
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
        "task": {key: study["task"][key] for key in ("target", "way", "shot")},
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
    parser.add_argument("names", nargs="+", choices=list(CASES))
    options = parser.parse_args()
    tables()
    for name in options.names:
        demo(name)


if __name__ == "__main__":
    main()
