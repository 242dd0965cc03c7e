"""`sfumato export`: what it prints, and that mistakes leave nothing."""

from pathlib import Path

import pytest
from commands import Command
from devices import remember_graphs, write_code, write_feature, write_mask

from sfumato.export.card import session
from sfumato.serve import models

SHAPE = (3, 16, 16)


@pytest.fixture(autouse=True)
def remembered(monkeypatch: pytest.MonkeyPatch):
    remember_graphs(monkeypatch)


def test_a_feature_is_exported_and_said_to_be_without_noise(command: Command, tmp_path: Path):
    write_feature(tmp_path / "f.safetensors")
    said = command("export", "f.safetensors")
    assert (said.code, said.err) == (0, "")
    checked, difference, noise, exported = said.out.splitlines()
    assert checked == "checked on 64 images of random noise (name data with --check)"
    assert difference.startswith("largest difference of a number of a feature from PyTorch: ")
    assert noise == "noise: not in the graph: draw it on the device, before the feature leaves"
    size = (tmp_path / "f.onnx").stat().st_size
    assert exported == f"exported: f.onnx ({size:,} bytes, float32)"
    (output,) = session(tmp_path / "f.onnx").session.get_outputs()
    assert (output.name, output.shape) == ("feature", [1, 3])


def test_a_code_is_exported_and_said_to_release_bits_alone(command: Command, tmp_path: Path):
    write_code(tmp_path / "c.safetensors", shape=SHAPE, bits=16)
    said = command("export", "c.safetensors")
    assert (said.code, said.err) == (0, "")
    _, difference, bits, release, noise, exported = said.out.splitlines()
    assert difference.startswith("largest difference of a number of a code from PyTorch: ")
    assert bits == "bits that differ: 0% of all"
    assert release == "release: which numbers are above 0, and not the numbers"
    assert noise == "noise: not in the graph: draw it on the device, before the code leaves"
    assert exported.startswith("exported: c.onnx (")
    (output,) = session(tmp_path / "c.onnx").session.get_outputs()
    assert (output.name, output.shape) == ("numbers", [1, 16])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gone"], "gone: no such file"),
        (["m.safetensors", "--side", "cloud"], "has no cloud side"),
        (["m.safetensors", "--side", "clout"], "did you mean 'cloud'"),
        (["m.safetensors", "m.safetensors"], "is the artefact itself"),
        (["m.safetensors", "--check", "fases"], "did you mean 'faces'"),
        (["m.safetensors", "m.tflite"], "m.tflite: an export is a file whose name ends with .onnx"),
        (["m.safetensors", "m"], "m: an export is a file whose name ends with .onnx"),
    ],
)
def test_a_mistake_is_answered_in_one_line_and_nothing_is_written(
    command: Command, tmp_path: Path, words: list[str], message: str
):
    write_mask(tmp_path / "m.safetensors", shape=SHAPE)
    said = command("export", *words)
    assert (said.code, said.out) == (1, "")
    (line,) = said.err.splitlines()
    assert line.startswith("sfumato: ")
    assert message in line
    assert {each.name for each in tmp_path.iterdir()} == {"m.safetensors"}


def test_the_service_hands_out_the_export_of_a_code(command: Command, tmp_path: Path):
    code = write_code(tmp_path / "c.safetensors", shape=SHAPE, bits=4)
    assert models.load(code).device_side is None
    assert command("export", code).code == 0
    assert models.load(code).device_side == (tmp_path / "c.onnx").read_bytes()


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (
            ("train", "code", "--data", "faces", "--target", "hat", "--set=bits=4", "--out", "c.onnx"),
            "c.safetensors",
        ),
        (("train", "meta", "--data", "faces", "--out", "m.v2"), "m.safetensors"),
        (("audit", "protection", "blur:radius=3", "--html", "r.pdf"), "r.html"),
        (("audit", "vectors", "gone.npz", "--pdf", "r.html"), "r.pdf"),
        (("study", "report", "gone", "--pdf", "r.html"), "r.pdf"),
        (("show", "gone.safetensors", "--html", "card.md"), "card.html"),
        (("show", "gone.safetensors", "--markdown", "card.txt"), "card.md"),
    ],
)
def test_no_file_gets_a_name_of_another_format(
    command: Command, tmp_path: Path, words: tuple[str, ...], name: str
):
    said = command(*words)
    assert said.code == 1
    assert f"file would be written: name it {name}" in said.err
    assert list(tmp_path.iterdir()) == []
