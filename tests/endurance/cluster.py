"""A study on a Ray cluster that loses workers, a node and its driver."""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import yaml
from harness import LeftOut, Trial, scenario
from ray_nodes import RayCluster
from service import command

from sfumato.study import grid, report, run
from sfumato.study.records import write_json

FEW = {"way": 2, "shot": 2, "queries": 2}
STUDY = {
    "name": "cluster",
    "data": {"source": "faces", "identities": 24, "images_per_identity": 9, "headwear": 18, "size": 24},
    "task": {"target": "headwear", "sensitive": "identity", **FEW, "episodes": 100},
    "protections": ["blur:radius=1,2", "pixelize:cell=4", "dp-pix:cell=4,epsilon=3"],
    "training": {
        **FEW,
        **{"epochs": 2, "episodes_per_epoch": 20, "denoiser_depth": 2, "denoiser_width": 8},
        **{f"validation_{name}": value for name, value in FEW.items()},
        "validation_episodes": 20,
    },
    "adversary": {"steps": 20, "adaptive_steps": 10, "batch": 16, "gallery": 6, "probes": 3, "copies": 2},
}


class Spread:
    """A study that runs on a cluster. State: its driver."""

    def __init__(self, folder: Path, address: str) -> None:
        self.out = folder / "spread"
        where = ("--out", self.out, "--engine", "ray", "--address", address)
        self._words = command("study", "run", folder / "study.yaml", *where)
        self.driver = self.begin()

    def begin(self) -> "subprocess.Popen[bytes]":
        """Start the driver, again if need be."""
        self.driver = subprocess.Popen(self._words, stdout=subprocess.DEVNULL)
        return self.driver

    def wait_for(self, count: float) -> None:
        """Wait until so many records are there."""
        while len(records(self.out)) < count:
            if self.driver.poll() is not None:
                raise RuntimeError(
                    f"it ended with {self.driver.returncode} at {len(records(self.out))} records"
                )
            time.sleep(0.02)


def records(directory: Path) -> dict[str, int]:
    """The records that are there, each with the time at which it was written."""
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


@scenario(
    "A study on a cluster",
    "workers are killed in the middle of their cells, the driver is killed and started again, a node is lost "
    "and another joins",
    "no record is lost or made again; but for times the report is byte for byte that of one quiet process",
)
def cluster(trial: Trial) -> None:
    folder = trial.folder
    (folder / "study.yaml").write_text(yaml.safe_dump(STUDY))
    run.run(grid.load(folder / "study.yaml"), folder / "quiet")
    total = len(records(folder / "quiet"))
    try:
        nodes = RayCluster()
    except ImportError:
        raise LeftOut("ray is not installed") from None
    study = Spread(folder, nodes.address)

    def lose(share: float, name: str, how: Callable[[], object]) -> None:
        study.wait_for(share * total)
        how()
        trial.count(name)

    try:
        for share in (0.1, 0.2, 0.3):
            lose(share, "workers killed", nodes.kill_worker)
        lose(0.4, "drivers killed", study.driver.kill)
        study.driver.wait()
        before = records(study.out)
        study.begin()
        lose(0.6, "nodes lost", nodes.remove_node)
        nodes.add_node()
        lose(0.8, "workers killed", nodes.kill_worker)
        trial.check(study.driver.wait() == 0, f"the study ended with {study.driver.returncode}")
        done, first = records(study.out), (study.out / "report.html").read_bytes()
        trial.check(study.begin().wait() == 0, "a run with nothing to do failed")
    finally:
        study.driver.kill()
        nodes.shut_down()
    trial.check(
        (study.out / "report.html").read_bytes() == first, "a run with nothing to do changed the report"
    )
    again = [name for name, written in (before | done).items() if records(study.out).get(name) != written]
    again += [name for name, written in before.items() if done.get(name) != written]
    trial.check(not again and len(done) == total, f"{len(done)} records of {total}; made again: {again}")
    same = timeless(folder / "quiet", folder / "a") == timeless(study.out, folder / "b")
    trial.check(same, "the report differs from that of the quiet run")
    trial.figures |= {"cells": total, "made again": len(again)}
