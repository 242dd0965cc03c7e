"""`sfumato export`: what it prints, and that mistakes leave nothing."""

from pathlib import Path

import pytest
from commands import Command, check_mistake
from devices import remember_graphs, write_code, write_feature, write_mask

from sfumato.export.card import session
from sfumato.serve import models

SHAPE = (3, 16, 16)


@pytest.fixture(autouse=True)
def remembered(monkeypatch: pytest.MonkeyPatch):
    remember_graphs(monkeypatch)


@pytest.mark.parametrize(
    ("write", "name", "numbers", "more"),
    [
        (write_feature, "feature", 3, []),
        (write_code, "code", 16, ["release: which numbers are above 0, and not the numbers"]),
    ],
)
def test_a_feature_and_a_code_are_exported_and_said_to_be_without_noise(command, write, name, numbers, more):
    write("m.safetensors", **({"shape": SHAPE, "bits": numbers} if name == "code" else {}))
    assert models.load("m.safetensors").device_side is None
    said = command("export", "m.safetensors")
    assert (said.code, said.err) == (0, "")
    checked, difference, *lines, noise, exported = said.out.splitlines()
    assert checked == "checked on 64 images of random noise (name data with --check)"
    assert difference.startswith(f"largest difference of a number of a {name} from PyTorch: ")
    assert lines == (["bits that differ: 0% of all", *more] if more else [])
    assert noise == f"noise: not in the graph: draw it on the device, before the {name} leaves"
    assert exported == f"exported: m.onnx ({Path('m.onnx').stat().st_size:,} bytes, float32)"
    (output,) = session(Path("m.onnx")).session.get_outputs()
    assert (output.name, output.shape) == ("numbers" if more else "feature", [1, numbers])
    assert models.load("m.safetensors").device_side == (
        Path("m.onnx").read_bytes() if more else None
    )  # of a code


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
def test_a_mistake_is_answered_in_one_line_and_nothing_is_written(command, tmp_path, words, message):
    write_mask(tmp_path / "m.safetensors", shape=SHAPE)
    check_mistake(command("export", *words), message)
    assert {each.name for each in tmp_path.iterdir()} == {"m.safetensors"}


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("train code --data faces --target hat --set=bits=4 --out c.onnx", "c.safetensors"),
        ("train meta --data faces --out m.v2", "m.safetensors"),
        ("audit protection blur:radius=3 --html r.pdf", "r.html"),
        ("audit vectors gone.npz --pdf r.html", "r.pdf"),
        ("study report gone --pdf r.html", "r.pdf"),
        ("show gone.safetensors --html card.md", "card.html"),
    ],
)
def test_no_file_gets_a_name_of_another_format(command: Command, tmp_path: Path, words: str, name: str):
    said = command(*words.split())
    assert said.code == 1
    assert f"file would be written: name it {name}" in said.err
    assert list(tmp_path.iterdir()) == []
