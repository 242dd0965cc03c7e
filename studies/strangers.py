"""What `sfumato demo` says of a stranger's photographs, with its defaults, as a command of its own.

    python studies/unpack.py lfw ../shared/data runs/data/lfw          # and caltech101, cmu, fer
    python studies/strangers.py                                         # all; or some by name, such as gender sixty
    python studies/strangers.py --check                                 # print what is said before the first minute

Each is a table as somebody would write it, without a split, and two runs of the command line: `--check` says within
seconds whether these data can end with a recommendation; only if they can, the study is run. Nothing was chosen for
these data. Encoders are those of the extra `encoders`. Records: studies/results/strangers.jsonl, a line each, with
the seconds of the wall and of the processor (on Linux). A run that was stopped goes on, and its seconds then are those
of the last part.
"""

import argparse
import csv
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rows import RESULTS, Rows
from unpack import write_csv

import sfumato

ROOT = Path(__file__).parents[1]
RECORDS = Rows(RESULTS / "strangers.jsonl")
DATA = ROOT / "runs" / "data"
RUNS = ROOT / "runs" / "strangers"


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


LITE = ("--encoder", "efficientnet-lite0")
CASES = {
    "gender": Photographs("lfw/710.csv", "gender", "person"),
    "gender-encoder": Photographs("lfw/710.csv", "gender", "person", more=LITE),
    "smile": Photographs("lfw/710.csv", "smile", "person"),
    "smile-encoder": Photographs("lfw/710.csv", "smile", "person", more=LITE),
    "sixty": Photographs("lfw/60.csv", "gender", "person"),
    "forty": Photographs("lfw/400.csv", "gender", "person"),
    "forty-encoder": Photographs("lfw/400.csv", "gender", "person", more=LITE),
    "six": Photographs("lfw/180.csv", "gender", "person"),
    "sunglasses": Photographs("cmu/624.csv", "sunglasses", "person"),
    "sunglasses-encoder": Photographs("cmu/624.csv", "sunglasses", "person", more=LITE),
    "emotion": Photographs("fer/2914.csv", "emotion"),
    "objects": Photographs("caltech101/ten.csv", "class", more=LITE),
}


def tables() -> None:
    """Write the tables.

    The training photographs of LFW whose smile is known, 710; 60 of them, half of each gender; ten of each of
    40 people and thirty of each of six, half of each gender; the faces of CMU; ten images of each class of
    Caltech-101; the faces of FER2013 without their splits.
    """
    faces = _rows(DATA / "lfw" / "attributes.csv")
    few = [row for row in faces if row["smile"] != "unknown" and row["split"] == "train"]
    people = [
        {key: row[key] for key in ("file", "gender", "smile")} | {"person": row["identity"]} for row in few
    ]
    write_csv(people, DATA / "lfw" / "710.csv")
    draw = random.Random(0)
    halves = [[row for row in people if row["gender"] == gender] for gender in ("female", "male")]
    write_csv([row for half in halves for row in draw.sample(half, 30)], DATA / "lfw" / "60.csv")
    write_csv(_of_many(faces, people=40, each=10), DATA / "lfw" / "400.csv")
    write_csv(_of_many(faces, people=6, each=30), DATA / "lfw" / "180.csv")
    cmu = _rows(DATA / "cmu" / "table.csv")
    write_csv(
        [{"file": row["file"], "sunglasses": row["sunglasses"], "person": row["identity"]} for row in cmu],
        DATA / "cmu" / "624.csv",
    )
    objects = defaultdict(list)
    for row in _rows(DATA / "caltech101" / "table.csv"):
        objects[row["class"]].append({"file": row["file"], "class": row["class"]})
    ten = [row for rows in objects.values() for row in draw.sample(rows, min(10, len(rows)))]
    write_csv(ten, DATA / "caltech101" / "ten.csv")
    emotions = _rows(DATA / "fer" / "table.csv")
    write_csv([{key: row[key] for key in ("file", "emotion")} for row in emotions], DATA / "fer" / "2914.csv")


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


def command_of(name: str) -> list[str]:
    """The command of a stranger."""
    case = CASES[name]
    command = ["demo", "--data", f"table:{DATA / case.table}", "--target", case.target, *case.more]
    return command if case.sensitive is None else [*command, "--sensitive", case.sensitive]


def demo(name: str) -> None:
    """Run the command, read its report as a program would, and write the record."""
    command = command_of(name)
    checked, checking = _sfumato(*command, "--check", "--json")
    preflight = json.loads(checked.stdout)
    record = {
        "name": name,
        "images": len(_rows(DATA / CASES[name].table)),
        "preflight": preflight,
        "check": checking,
        "seed": 0,
        "version": sfumato.__version__,
    }
    if preflight["fits"]:
        record |= _studied(command, RUNS / name)
    else:
        record["headline"] = _sfumato(*command, "--check")[0].stdout.splitlines()[-1]
    RECORDS[name] = record
    print(json.dumps({key: record[key] for key in ("name", "headline", "check")}), flush=True)


def _studied(command: Sequence[str], out: Path) -> dict[str, Any]:
    """Run the study, and read its report."""
    said, took = _sfumato(*command, "--out", str(out))
    report = json.loads(_sfumato("study", "report", str(out), "--json")[0].stdout)
    study = json.loads((out / "study.json").read_text(encoding="utf-8"))
    clean = [
        record["result"]
        for path in sorted((out / "records").glob("*.json"))
        for record in [json.loads(path.read_text(encoding="utf-8"))]
        if record["kind"] == "accuracy" and record["cell"]["protection"] == "none"
    ]
    return {
        "task": {key: study["task"][key] for key in ("target", "way", "shot", "folds")},
        "end": said.stdout.replace(str(ROOT), ".").splitlines(),
        "learner": next(line for line in said.stderr.splitlines() if line.startswith("learner: ")),
        "start": study["codes"]["start"],
        "clean": clean[0],
        "recommended": report["recommended"],
        "headline": report["headline"],
        "answers": report["answers"],
        "settings": report["settings"],
        **took,
    }


def _sfumato(*arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, float]]:
    """Run a command: what it said, and its seconds of the wall and of the processor, all its processes together."""
    command = [sys.executable, "-c", "from sfumato.cli import main; main()", *arguments]
    start = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        used: dict[tuple[str, str], float] = {}
        ended = threading.Event()
        watch = threading.Thread(target=_watch, args=(running.pid, used, ended))
        watch.start()
        out, error = running.communicate()
        ended.set()
        watch.join()
    if running.returncode:
        raise SystemExit(f"sfumato {' '.join(arguments)}: {error}")
    seconds = {
        "seconds": round(time.perf_counter() - start, 1),
        "processor_seconds": round(sum(used.values()), 1),
    }
    return subprocess.CompletedProcess(command, running.returncode, out, error), seconds


def _watch(session: int, used: dict[tuple[str, str], float], ended: threading.Event) -> None:
    """Note the processor's seconds of each process of a session, by its number and when it began."""
    while not ended.wait(0.1):
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text(encoding="utf-8").rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            if fields[3] == str(session):
                ticks = int(fields[11]) + int(fields[12])
                used[path.parent.name, fields[19]] = ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Make the tables, and run what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="print what is said before the first minute")
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *CASES])
    options = parser.parse_args()
    tables()
    for name in options.names or CASES:
        if options.check:
            print(name, _sfumato(*command_of(name), "--check")[0].stdout, sep="\n", flush=True)
        else:
            demo(name)


if __name__ == "__main__":
    main()
