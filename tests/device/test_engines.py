"""Folders and tar shards on engines and at URLs: the same releases wherever the work is done, each once.

The Ray cluster is a real one, of two nodes in processes of this machine. A real object store is not here: see
test_storage.py.
"""

import io
import json
import sqlite3
import tarfile
import threading
import time
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from PIL import Image

from sfumato.base import engines
from sfumato.base.engines import EngineConfig
from sfumato.base.files import PART
from sfumato.device.jobs.folder import FolderConfig, Outcome, protect_folder
from sfumato.device.ledger import Ledger
from sfumato.device.ledger.budgets import Budget
from sfumato.device.storage import Storage
from sfumato.errors import ConfigError, DataError
from sfumato.protect import parse

pytestmark = pytest.mark.xdist_group("ray")

HERE = EngineConfig(workers=1)
EXACT, NOISY = "pixelize:cell=4", "dp-pix:cell=4,epsilon=3"
SECONDS = 120  # what needs longer hangs


def picture(seed: int, size: tuple[int, int] = (20, 17)) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return buffer.getvalue()


def shard(*seeds: int, size: tuple[int, int] = (20, 17)) -> bytes:
    """In the manner of WebDataset: samples of several files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as out:
        for seed in seeds:
            for name, content in ((f"{seed:03}.png", picture(seed, size)), (f"{seed:03}.cls", b"7")):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                out.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def files_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def write(root: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def something() -> dict[str, bytes]:
    """8 different pictures, a copy, what is no picture, and two shards of 6 and 1 more."""
    files = {f"{i % 2}/{i}.png": picture(i, (20, 17 + i % 3)) for i in range(8)}
    files |= {"copy.png": picture(3, (20, 17)), "bad.png": b"no picture", "notes.txt": b"hi"}
    return files | {"a.tar": shard(*range(20, 26)), "b/b.tar": shard(30)}


def charges(ledger: Path) -> list[tuple[Any, ...]]:
    database = sqlite3.connect(ledger)
    rows = database.execute(
        "select images.image, spec, channels, height, width, guarantees, scope, release from charges "
        "join terms on terms.id = terms "
        "join images on images.id = charges.image left join people using (image)"
    ).fetchall()
    database.close()
    return sorted(rows, key=repr)


def check_whole(target: Path, count: int) -> None:
    """Every output is there, as in the manifest, and no halves are."""
    outputs = files_of(target)
    manifest = json.loads(outputs.pop("manifest.json"))
    assert manifest["images"] == count
    assert {entry["file"]: entry["bytes"] for entry in manifest["outputs"]} == {
        name: len(content) for name, content in outputs.items()
    }
    assert not list(target.rglob(PART))


@pytest.fixture(scope="module")
def on_ray(ray_cluster):
    return EngineConfig(name="ray", address=ray_cluster.address)


@pytest.fixture(scope="module")
def both(tmp_path_factory, on_ray) -> tuple[Path, list[Outcome]]:
    """The same job in this process and on the cluster, in tasks of a few files: their folder and outcomes.

    Of the pictures in `limited`, which are others than elsewhere, a budget allows their person 7.
    """
    root = tmp_path_factory.mktemp("both")
    write(root / "photos", something())
    write(root / "photos" / "limited", {f"{i:02}.png": picture(100 + i) for i in range(12)})
    outcomes = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sfumato.device.jobs.folder._CHUNK_FILES", 4)
        patch.chdir(root)  # relative paths are those of the process that was started
        for name, engine in (("here", HERE), ("ray", on_ray)):
            with Ledger(f"{name}.db") as ledger:
                ledger.set_budget(Budget.parse("releases=7"), person="limited")
            config = FolderConfig(people=True)
            outcomes.append(protect_folder("photos", name, parse(EXACT), f"{name}.db", config, engine=engine))
    return root, outcomes


LIMITED = "over the budget of a person: at most 7 different releases"


def test_a_cluster_gives_the_files_manifest_and_charges_of_this_process(both):
    root, (here, ray) = both
    assert here.charged == ray.charged == 15 + 7
    here.failures.pop(LIMITED, None), ray.failures.pop(LIMITED, None)
    assert here.failures == ray.failures

    def unlimited(name: str) -> list[Any]:
        """Which of the limited pictures come first is a matter of chance."""
        files = {file: each for file, each in files_of(root / name).items() if "limited/" not in file}
        manifest = json.loads(files.pop("manifest.json"))
        manifest["outputs"] = [row for row in manifest["outputs"] if "limited/" not in row["file"]]
        assert len(files) == 11
        rows = [row for row in charges(root / f"{name}.db") if b"person:limited" not in row]
        return [files, manifest, rows]

    assert unlimited("here") == unlimited("ray")


def test_a_budget_stops_the_workers_of_a_cluster_together(both):
    root, outcomes = both
    for name, outcome in zip(("here", "ray"), outcomes, strict=True):
        assert len(list((root / name / "limited").glob("*.png"))) == 7
        check_whole(root / name, outcome.shapes.total())
        assert outcome.shapes.total() == 16 + 7


SHARDS, EACH = 10, 6


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory, on_ray, ray_cluster) -> tuple[Path, Outcome]:
    """A job at URLs, of shards, in which first a worker is killed and then a node is lost: its folder."""
    root = tmp_path_factory.mktemp("disturbed")
    pictures = {f"{i:02}.tar": shard(*range(EACH * i, EACH * (i + 1))) for i in range(SHARDS)}
    write(root / "photos", pictures)

    def disturb() -> None:
        until = time.monotonic() + SECONDS
        while len(list((root / "ray").glob("*.tar"))) < 3 and time.monotonic() < until:
            time.sleep(0.005)
        ray_cluster.kill_worker()
        (root / "ray" / PART.replace("*", "0123456789abcdef")).write_bytes(b"half")  # as it may leave one
        ray_cluster.remove_node()

    disturber = threading.Thread(target=disturb, daemon=True)
    disturber.start()
    try:
        urls = f"local://{root}/photos", f"local://{root}/ray"
        outcome = protect_folder(*urls, parse(NOISY), root / "l.db", engine=on_ray)
        disturber.join(SECONDS)
        assert not disturber.is_alive()
    finally:
        ray_cluster.add_node()
    return root, outcome


def test_though_a_worker_is_killed_and_a_node_is_lost_everything_is_there_once_with_its_noise(disturbed):
    root, outcome = disturbed
    assert outcome.failures == {}
    check_whole(root / "ray", SHARDS * EACH)
    assert len(charges(root / "l.db")) == SHARDS * EACH
    # The ledger has what is in the files: what a cluster does again draws no noise anew.
    protect_folder(root / "photos", root / "here", parse(NOISY), root / "l.db", engine=HERE)
    assert files_of(root / "here") == files_of(root / "ray")
    assert len(charges(root / "l.db")) == SHARDS * EACH


def test_a_target_that_a_node_has_for_itself_is_told(tmp_path, monkeypatch):
    """Its driver notices; the engine of this process stands for the cluster."""
    photos = write(tmp_path / "photos", {"a.png": picture(0)})
    here = engines.engine
    monkeypatch.setattr(engines, "engine", lambda config, **settings: here(HERE, **settings))
    # As this process sees it: the node wrote to a disk of its own.
    monkeypatch.setattr(Storage, "size", lambda *_: None)
    with pytest.raises(
        DataError, match=r"a.png: written by a node of the cluster, and not here: name URLs, or"
    ):
        protect_folder(
            photos, tmp_path / "ray", parse(EXACT), tmp_path / "l.db", engine=EngineConfig(name="ray")
        )


class Memory:
    """A source and a target in the memory of this process, which stands for an object store."""

    def __init__(self, root: Path) -> None:
        self.files = fsspec.filesystem("memory")
        self.root = root
        self.source, self.target = f"memory:/{root}/source", f"memory:/{root}/target"

    def write(self, files: dict[str, bytes]) -> None:
        for name, content in files.items():
            self.files.pipe_file(f"{self.root}/source/{name}", content)

    def run(self, spec: str = EXACT, config: FolderConfig | None = None) -> Outcome:
        ledger = self.root / "l.db"
        return protect_folder(self.source, self.target, parse(spec), ledger, config, engine=HERE)

    def outputs(self) -> dict[str, bytes]:
        found = self.files.find(f"{self.root}/target")
        return {path.removeprefix(f"{self.root}/target/"): self.files.cat_file(path) for path in found}


@pytest.fixture
def memory(tmp_path: Path):
    yield Memory(tmp_path)
    fsspec.filesystem("memory").store.clear()


@pytest.mark.parametrize("config", [FolderConfig(), FolderConfig(format_name="WEBP", cells=True)])
def test_urls_give_the_files_and_the_manifest_of_folders(tmp_path, memory, config):
    memory.write(something())
    photos, ledger = write(tmp_path / "photos", something()), tmp_path / "f.db"
    folders = protect_folder(photos, tmp_path / "out", parse(EXACT), ledger, config, engine=HERE)
    urls = memory.run(config=config)
    assert memory.outputs() == files_of(tmp_path / "out")
    assert (urls.failures, urls.left_out, urls.shapes) == (folders.failures, folders.left_out, folders.shapes)
    assert urls.manifest == f"{memory.target}/manifest.json"
    # A source and a target may be of two kinds.
    protect_folder(memory.source, tmp_path / "from a URL", parse(EXACT), ledger, config, engine=HERE)
    assert files_of(tmp_path / "from a URL") == memory.outputs()


def test_at_a_url_a_second_run_does_what_is_new_changed_or_gone(memory):
    memory.write(something())
    first = memory.run(NOISY)
    before = memory.outputs()
    memory.files.rm_file(f"{memory.root}/target/copy.png")
    memory.files.pipe_file(f"{memory.root}/target/0/0.png", b"cut off")
    memory.write({"new.png": picture(90), "0/2.png": picture(91), "0/4.png": b"no picture any more"})
    again = memory.run(NOISY)
    assert (first.charged, again.charged) == (15, 2)
    after = memory.outputs()
    assert set(before) - set(after) == {"0/4.png"}
    assert set(after) - set(before) == {"new.png"}
    same = set(before) & set(after) - {"0/2.png", "manifest.json"}
    assert {name: before[name] for name in same} == {name: after[name] for name in same}
    assert after["0/2.png"] != before["0/2.png"]


def test_a_url_that_holds_files_of_others_or_that_a_run_writes_to_is_refused(memory):
    memory.write({"a.png": picture(1)})
    memory.files.pipe_file(f"{memory.root}/target/thesis.txt", b"chapter 1")
    with pytest.raises(DataError, match="is not empty and not from an earlier run: name a new folder"):
        memory.run()
    assert memory.outputs() == {"thesis.txt": b"chapter 1"}
    memory.files.rm_file(f"{memory.root}/target/thesis.txt")
    refused = []

    def again(*_: int) -> None:
        with pytest.raises(DataError, match="another run is writing here") as raised:
            memory.run()
        refused.append(raised)

    ledger = memory.root / "l.db"
    protect_folder(memory.source, memory.target, parse(EXACT), ledger, engine=HERE, report=again)
    assert refused
    with pytest.raises(DataError, match="holds a run with format PNG, not BMP: name a new folder"):
        memory.run(config=FolderConfig(format_name="BMP"))


def test_no_password_of_a_url_is_kept_or_shown(memory):
    memory.write({"a.png": picture(1), "bad.png": b"no picture"})
    for name in ("source", "target"):
        secret = getattr(memory, name).replace("memory:/", "memory://anna:s3cret@host")
        setattr(memory, name, secret)
    for path in memory.files.find(f"{memory.root}/source"):
        memory.files.pipe_file(f"/anna:s3cret@host{path}", memory.files.cat_file(path))
    outcome = memory.run()
    assert outcome.charged == 1
    kept = [content for name, content in files_of(memory.root).items()]
    kept += [memory.files.cat_file(path) for path in memory.files.find("/anna:s3cret@host")]
    kept.append(repr(outcome).encode())
    assert not [one for one in kept if b"s3cret" in one or b"s3cret".hex().encode() in one]


@pytest.mark.parametrize("engine", [EngineConfig(), EngineConfig(workers=2), EngineConfig(name="ray")])
def test_what_lies_in_the_memory_of_this_process_is_not_given_to_others(memory, engine):
    memory.write({"a.png": picture(1)})
    with pytest.raises(ConfigError, match="is in the memory of this process: use the engine local with"):
        protect_folder(memory.source, memory.target, parse(EXACT), memory.root / "l.db", engine=engine)
    assert memory.outputs() == {}
