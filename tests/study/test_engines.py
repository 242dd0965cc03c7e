"""Studies whose cells run at once. The engines themselves: tests/base/test_engines.py."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque

import pytest
import torch
from tests.study.conftest import few_shot_settings

from sfumato.base.engines import EngineConfig
from sfumato.base.files import claim
from sfumato.errors import BusyError, SfumatoError
from sfumato.study import grid, report, run
from sfumato.study.cells import Cell, digest_of
from sfumato.study.lab import lab as labs
from sfumato.study.records import CONTENT

pytestmark = pytest.mark.xdist_group("ray")

EPISODES = {"way": 2, "shot": 1, "queries": 2, "episodes": 10}
SETTINGS = {
    "data": {"source": "faces", "identities": 12, "images_per_identity": 6, "headwear": 12, "size": 16},
    "task": {"target": "headwear", "sensitive": "identity", **EPISODES},
    "protections": ["pixelize:cell=4", "dp-pix:cell=4,epsilon=3"],
    "attacks": ["reidentify-static"],
    "measures": ["mse"],
    "training": few_shot_settings(2, 1, 2, validation_episodes=4),
    "adversary": {"steps": 2, "adaptive_steps": 0, "batch": 8, "known": 3, "probes": 2, "copies": 1},
}


def results_of(directory):
    """What the records of a run say, but for times and versions."""

    def timeless(value):
        if not isinstance(value, dict):
            return value
        left_out = ("versions", CONTENT)  # the digest is of times, too
        return {k: timeless(v) for k, v in value.items() if not k.endswith("seconds") and k not in left_out}

    return {path.name: timeless(json.loads(path.read_text())) for path in (directory / "records").iterdir()}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A run in this process, cell after cell, with the one thread that tasks of an engine have."""
    directory, before = tmp_path_factory.mktemp("alone"), torch.get_num_threads()
    torch.set_num_threads(1)
    yield run.run(grid.parse(SETTINGS), directory)
    torch.set_num_threads(before)


def test_two_processes_or_two_runs_in_one_directory_make_the_records_of_one(alone, tmp_path):
    config = grid.parse(SETTINGS)
    run.run(config, tmp_path / "workers", engine=EngineConfig(workers=2))
    other = threading.Thread(target=run.run, args=(config, tmp_path / "shared"))
    other.start()
    run.run(config, tmp_path / "shared")
    other.join()
    assert results_of(tmp_path / "workers") == results_of(tmp_path / "shared") == results_of(alone)


def test_a_lost_process_ends_the_run_and_the_next_one_goes_on(alone, tmp_path):
    def kill_one():
        while not list((tmp_path / "records").glob("*.json")):
            time.sleep(0.01)
        os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_one)
    killer.start()
    with pytest.raises(SfumatoError, match=r"a worker process was killed.*run the same command again to"):
        run.run(grid.parse(SETTINGS), tmp_path, engine=EngineConfig(workers=2))
    killer.join()
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "records").glob("*.json")}
    run.run(grid.parse(SETTINGS), tmp_path)
    assert results_of(tmp_path) == results_of(alone)
    assert all(path.stat().st_mtime_ns == written for path, written in kept.items())


def test_a_network_that_another_process_makes_is_not_made_twice(tmp_path):
    networks = labs.Models(tmp_path, "data")
    name = f"few-shot-{digest_of({'results': labs.RESULTS, 'kind': 'few-shot', 'data': 'data'})}.safetensors"
    with claim(tmp_path / name), pytest.raises(BusyError, match="another process is writing"):
        networks.once("few-shot", {}, lambda path: pytest.fail("made"), lambda path: None)


def test_a_claim_ends_with_the_process_that_had_it(tmp_path):
    path = tmp_path / "record.json"
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom sfumato.base.files import claim\n"
        "with claim(Path(sys.argv[1])): print('claimed', flush=True), time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script, path], stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"claimed\n"
        with pytest.raises(BusyError), claim(path):
            pass
        holder.kill()
    with claim(path):
        path.write_text("made")
    assert [each.name for each in tmp_path.iterdir()] == ["record.json"]  # no lock is left


def test_a_ray_cluster_makes_the_same_records_though_a_worker_is_killed(alone, tmp_path, ray_cluster):
    killer = threading.Thread(target=ray_cluster.kill_worker)
    killer.start()
    run.run(grid.parse(SETTINGS), tmp_path, engine=EngineConfig(name="ray", address=ray_cluster.address))
    killer.join()
    assert results_of(tmp_path) == results_of(alone)
    assert report.write(tmp_path).exists()


def test_a_worker_stays_with_its_protection_then_takes_one_of_its_own_then_any():
    waiting = deque((Cell("attack", spec, 0, (("attack", spec),)), {}) for spec in "abca")
    taken = [run._take_next(waiting, own, {"a", "b"})[0].protection for own in ("a", "a", "a", None)]
    assert taken == ["a", "a", "c", "b"]
