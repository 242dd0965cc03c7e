"""Run a study on a real Ray cluster, kill workers, a node and the driver, and check that nothing is lost or done twice.

    python studies/cluster.py

Writes studies/results/cluster.json. The study has some 70 cells on the drawn faces. It runs once by itself, one
cell after another in one process; and once on two nodes, while worker processes are killed in the middle of
their cells, the driver is killed with -9 and started again, and a node is lost and another joins. What is checked:
no record that was there when something was killed is made again; in the end all records are there, each equal to
that of the quiet run; and the two reports are the same byte for byte once all times are set to nought.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import yaml

import sfumato
from sfumato.files import whole
from sfumato.study import grid, report, run
from sfumato.study.records import write_json

sys.path.append(str(Path(__file__).parents[1] / "tests" / "clusters"))
from ray_nodes import RayCluster

RECORD = Path(__file__).parent / "results" / "cluster.json"
STUDY = {
    "name": "cluster",
    "data": {"source": "faces", "identities": 24, "images_per_identity": 9, "headwear": 18, "size": 24},
    "task": {
        "target": "headwear",
        "sensitive": "identity",
        "way": 3,
        "shot": 2,
        "queries": 3,
        "episodes": 200,
    },
    "protections": ["blur:radius=1,2", "pixelize:cell=2,4", "gaussian:sigma=40", "dp-pix:cell=4,epsilon=3,1"],
    "training": {
        "way": 3,
        "shot": 2,
        "queries": 3,
        "epochs": 3,
        "episodes_per_epoch": 20,
        "validation_way": 2,
        "validation_shot": 2,
        "validation_queries": 2,
        "validation_episodes": 20,
        "denoiser_depth": 2,
        "denoiser_width": 8,
    },
    "adversary": {"steps": 20, "adaptive_steps": 10, "batch": 16, "gallery": 6, "probes": 3, "copies": 2},
}


def records(directory: Path) -> dict[str, int]:
    """The records that are there, each with the time when it was written."""
    return {path.name: path.stat().st_mtime_ns for path in (directory / "records").glob("*.json")}


def timeless(directory: Path, copy: Path) -> bytes:
    """The report of a run whose times are all nought."""

    def without(value: object, name: str = "") -> object:
        if isinstance(value, dict):
            return {key: without(each, key) for key, each in value.items()}
        if isinstance(value, list):
            return [without(each) for each in value]
        return 0.0 if name.endswith("seconds") else value

    for path in [directory / "study.json", *(directory / "records").glob("*.json")]:
        write_json(copy / path.relative_to(directory), without(json.loads(path.read_text())))
    return report.write(copy).read_bytes()


def wait_for(count: int, directory: Path, driver: subprocess.Popen) -> None:
    """Wait until so many records are there."""
    while len(records(directory)) < count:
        if driver.poll() is not None:
            raise SystemExit(f"the study ended with {len(records(directory))} records: {driver.returncode}")
        time.sleep(0.02)


def main() -> None:
    """Run, kill, start again, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", type=Path, default=RECORD)
    options = parser.parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp())
    (folder / "study.yaml").write_text(yaml.safe_dump(STUDY))
    quiet, spread = folder / "quiet", folder / "spread"
    run.run(grid.load(folder / "study.yaml"), quiet)
    total = len(records(quiet))
    cluster = RayCluster()
    command = [sys.executable, "-c", "from sfumato.cli import main; main()", "study", "run"]
    command += [folder / "study.yaml", "--out", spread, "--engine", "ray", "--address", cluster.address]
    start = lambda: subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: E731
    made_again, killed = [], {"workers": 0, "drivers": 0, "nodes": 0}

    def nothing_made_again(before: dict[str, int]) -> None:
        now = records(spread)
        made_again.extend(name for name, written in before.items() if now.get(name) != written)

    driver = start()
    for share in (0.1, 0.2, 0.3):
        wait_for(int(share * total), spread, driver)
        cluster.kill_worker()
        killed["workers"] += 1
    wait_for(int(0.4 * total), spread, driver)
    driver.kill()
    driver.wait()
    killed["drivers"] += 1
    before = records(spread)
    driver = start()
    wait_for(int(0.6 * total), spread, driver)
    cluster.remove_node()
    killed["nodes"] += 1
    cluster.add_node()
    wait_for(int(0.8 * total), spread, driver)
    cluster.kill_worker()
    killed["workers"] += 1
    if driver.wait() != 0:
        raise SystemExit(f"the study failed: {driver.returncode}")
    nothing_made_again(before)
    done = records(spread)
    # A second run has nothing to do, and makes the same report.
    first = (spread / "report.html").read_bytes()
    if (ended := start().wait()) != 0:
        raise SystemExit(f"a run with nothing to do failed: {ended}")
    (folder / "first.html").write_bytes(first)
    if (spread / "report.html").read_bytes() != first:
        raise SystemExit(f"a run with nothing to do made another report than {folder / 'first.html'}")
    nothing_made_again(done)
    cluster.shut_down()
    same = timeless(quiet, folder / "a") == timeless(spread, folder / "b")
    result = {
        "cells": total,
        "records": len(done),
        "killed": killed,
        "made_again": made_again,
        "report_is_the_same_but_for_times": same,
        "wall_s": round(time.monotonic() - began, 1),
        "version": sfumato.__version__,
    }
    with whole(options.record) as temporary:
        temporary.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    shutil.rmtree(folder)
    if made_again or not same or len(done) != total:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
