"""Protections of pixels take arrays as they take tensors, and what leaves of one image needs no PyTorch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import sfumato
from sfumato import images
from sfumato.device.jobs.releasing import square_difference
from sfumato.dp.mechanisms import seeded_noise
from sfumato.protect import parse

SPECS = [
    "none",
    "blur:radius=2",
    "centre-blur:radius=2",
    "block",
    "pixelize:cell=3",
    "gaussian:sigma=40",
    "dp-pix:cell=3,epsilon=3",
    "dp-pix:cell=3,epsilon=3,variant=published",
    "dp-pix-gaussian:cell=3,rho=0.5",
    "blur:radius=2@box:file=boxes.csv",
]
PROTECTS = """
import sys
from sfumato.cli import main
for number, spec in enumerate(sys.argv[1:]):
    where = ["--where", "box:boxes.csv"] if "@" in spec else []
    sys.argv = ["sfumato", "protect", "a.png", f"out-{number}.png", "--with", spec.partition("@")[0]]
    sys.argv += [*where, "--ledger", f"{number}.db"]
    try:
        main()
    except SystemExit as stop:
        assert not stop.code, spec
assert "torch" not in sys.modules
"""


@pytest.fixture
def photograph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (40, 52, 3), np.uint8)).save("a.png")
    Path("boxes.csv").write_text("left,top,right,bottom\n0.1,0.2,0.6,0.9\n", encoding="utf-8")
    return tmp_path / "a.png"


@pytest.mark.parametrize("spec", SPECS)
def test_an_array_has_the_release_of_the_tensor_of_its_memory(photograph: Path, spec: str):
    array = images.read_array(photograph)[None]
    tensor = images.read(photograph)[None]
    assert np.array_equal(array, tensor.numpy())
    ours, theirs = (parse(spec).release(batch, seeded_noise(3)) for batch in (array, tensor))
    assert torch.equal(ours.values, theirs.values)
    assert torch.equal(ours.images(), torch.from_numpy(theirs.pictures()))
    assert np.array_equal(array, tensor.numpy())  # the originals are as they were


def test_a_base_install_protects_a_folder_and_writes_its_manifest(photograph: Path, tmp_path: Path):
    """An environment of its own: the packages of this one, by links, without PyTorch and its metadata."""
    (tmp_path / "site").mkdir()
    for path in Path(np.__file__).parents[1].iterdir():
        if (
            not path.name.startswith(("torch", "functorch", "triton", "__editable__"))
            and path.suffix != ".pth"
        ):
            (tmp_path / "site" / path.name).symlink_to(path)
    (tmp_path / "photos").mkdir()
    photograph.rename(tmp_path / "photos" / "a.png")
    source = Path(sfumato.__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{tmp_path / 'site'}", "HOME": str(tmp_path)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-S", *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)

    assert "No module named 'torch'" in run("-c", "import torch").stderr
    version = "import importlib.metadata; importlib.metadata.version('torch')"
    assert "PackageNotFoundError" in run("-c", version).stderr
    ran = run("-m", "sfumato", "protect", "photos", "out", "--with", "pixelize:cell=16", "--ledger", "l.db")
    assert (ran.returncode, ran.stderr.count("PyTorch")) == (0, 0)
    versions = json.loads(Path("out/manifest.json").read_text())["versions"]
    assert versions["torch"] is None
    assert versions["numpy"] == np.__version__
    faces = run("-m", "sfumato", "protect", "photos", "on", "--with", "block", "--where", "faces")
    assert "this command needs PyTorch" in faces.stderr


def test_one_image_is_protected_without_pytorch(photograph: Path):
    specs = SPECS[1:]  # all but none
    subprocess.run([sys.executable, "-c", PROTECTS, *specs], check=True, timeout=120)
    for number, spec in enumerate(specs):
        protection = parse(spec)
        if not protection.draws_noise:
            released = protection.release(images.read(photograph)[None], seeded_noise(0)).images()[0]
            assert torch.equal(images.read(f"out-{number}.png"), released)


def test_the_difference_of_two_images_is_the_sum_of_squares_where_it_counts():
    rng = np.random.default_rng(1)
    one, other = rng.integers(0, 256, (2, 3, 9, 7)).astype(np.uint8)
    squares = (one.astype(int) - other) ** 2
    assert square_difference(one, other) == (squares.sum(), 3 * 9 * 7)
    covered = rng.random((1, 9, 7)) < 0.4
    assert square_difference(one, other, covered) == (squares[:, covered[0]].sum(), 3 * covered.sum())
    assert square_difference(one, other, np.zeros_like(covered)) == (0, 0)
