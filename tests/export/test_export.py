"""Exported device sides: the release that PyTorch makes, in one file that says what it is."""

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from devices import CLASSES, SHAPE, pictures, remember_graphs, write_code, write_feature, write_mask
from encoders import Small, write_onnx
from torch import Tensor

import sfumato
from sfumato import artefacts
from sfumato.base.onnx_graphs import Graph
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ArtefactError, DataError, ImageError, MissingExtraError
from sfumato.export import graphs
from sfumato.export.card import EXTRA, Card, session
from sfumato.export.card import read as read_card
from sfumato.export.export import Exported, export
from sfumato.export.sides import MOST_CODES, MOST_NUMBERS, MOST_SCORES
from sfumato.learn import private_feature
from sfumato.networks.code import make_code_network
from sfumato.networks.encoders.pretrained import on_card
from sfumato.protect import parse
from sfumato.protect.code import Code, load_encoder, signs
from sfumato.protect.feature import Feature
from sfumato.protect.mask import load_masker, pixel_scores, top_pixels

PIXELS = 90  # a quarter of 18x20


@pytest.fixture(autouse=True, scope="module")
def remembered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        remember_graphs(monkeypatch)
        yield


@dataclass(frozen=True)
class Made:
    artefact: Path
    exported: Exported

    def run(self, images: Tensor) -> dict[str, Tensor]:
        """What the file says of images, one by one."""
        opened = session(self.exported.path)
        names = [each.name for each in opened.session.get_outputs()]
        rows = [opened.run(names, {"images": image.numpy()}) for image in images.split(1)]
        return {
            name: torch.from_numpy(np.concatenate(column))
            for name, column in zip(names, zip(*rows, strict=True), strict=True)
        }

    @property
    def card(self) -> dict[str, Any]:
        metadata = {each.key: each.value for each in onnx.load(self.exported.path).metadata_props}
        assert list(metadata) == ["sfumato"]
        card = json.loads(metadata["sfumato"])
        content = self.exported.path.read_bytes()
        assert read_card(Graph(content, extra=EXTRA), content, Card) == card  # by its digest
        return {key: value for key, value in card.items() if key not in ("format", "graph_bytes", "sha256")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("exports")


def made(artefact: Path, name: str, **settings: Any) -> Made:
    return Made(artefact, export(artefact, artefact.with_name(name), check=pictures(6, seed=1), **settings))


WRITE = {
    "mask": write_mask,
    "feature": write_feature,
    "bits": partial(write_code, bits=12),
    "numbers": partial(write_code, side=16, numbers=6),
    "words": partial(write_code, directions=5, mirrored=True, bits=10),
}


def fixture_of(kind: str) -> Any:
    @pytest.fixture(scope="module", name=kind)
    def exported(folder: Path) -> Made:
        return made(WRITE[kind](folder / f"{kind}.safetensors"), f"{kind}.onnx")

    return exported


mask, feature, bits, numbers, words = map(fixture_of, WRITE)


@pytest.fixture(scope="module")
def cloud(feature: Made) -> Made:
    return made(feature.artefact, "cloud.onnx", side="cloud")


# Masks


def test_an_exported_mask_makes_the_release_of_the_protection(mask: Made):
    images = pictures(20, seed=3)
    release = parse(f"mask:artefact={mask.artefact}").release(images, seeded_noise(0))
    found = mask.run(images)
    assert torch.equal(found["shown"], release.shown)
    assert torch.equal(found["values"], release.values)
    assert list(found) == ["values", "shown"]  # scores tell of hidden pixels
    assert (found["values"].dtype, found["shown"].dtype) == (torch.uint8, torch.bool)
    exported = mask.exported
    assert (exported.images, exported.bytes) == (6, exported.path.stat().st_size)
    assert (exported.difference.pixels, exported.difference.largest <= MOST_SCORES) == (0, True)


@pytest.mark.parametrize("scale", [0, 1e5], ids=["all equal", "many equal"])
def test_of_equal_scores_the_earlier_pixel_is_shown(mask: Made, tmp_path: Path, scale: float):
    images, network = pictures(3), load_masker(str(mask.artefact)).network
    network.last.weight.data *= scale  # scores of 0 and of 1, but for a few
    scores = pixel_scores(network, images)
    assert ((scores == scores.amax((1, 2, 3), keepdim=True)).sum((1, 2, 3)) > PIXELS).all()
    model = onnx.load(mask.exported.path)
    (last,) = [each for each in model.graph.initializer if each.name.endswith("last.weight")]
    last.CopyFrom(onnx.numpy_helper.from_array(network.last.weight.detach().numpy(), last.name))
    onnx.save(model, tmp_path / "equal.onnx")
    equal = Made(mask.artefact, replace(mask.exported, path=tmp_path / "equal.onnx"))
    assert torch.equal(equal.run(images)["shown"], top_pixels(scores, count=PIXELS))


# Features


def test_an_exported_feature_is_the_release_without_noise(feature: Made):
    images = pictures(20, seed=3)
    release = Feature(str(feature.artefact), noise=0.0).release(images, seeded_noise(0))
    found = feature.run(images)
    assert list(found) == ["feature"]
    assert release.values.std(0).min() > 0.3  # what is compared differs from image to image
    torch.testing.assert_close(found["feature"], release.values, atol=MOST_NUMBERS, rtol=0)
    assert feature.exported.difference.largest <= MOST_NUMBERS
    assert not [node for node in onnx.load(feature.exported.path).graph.node if "Random" in node.op_type]


def test_a_cloud_side_decides_as_pytorch_does_for_any_number_of_features(feature: Made, cloud: Made):
    model = private_feature.load(feature.artefact)
    opened = session(cloud.exported.path)
    for count in (1, 2, 7):
        noisy = model.features(pictures(count)) + torch.randn(count, 3)
        found = opened.run(["logits.kind", "logits.light"], {"feature": noisy.numpy()})
        for ours, theirs in zip(found, model.attributes(noisy).values(), strict=True):
            torch.testing.assert_close(torch.from_numpy(ours), theirs, atol=MOST_NUMBERS, rtol=0)
            assert (ours.argmax(1) == theirs.numpy().argmax(1)).all()
    assert cloud.exported.difference.largest <= MOST_NUMBERS
    assert cloud.exported.difference.decisions == 1


# Codes


def test_an_exported_code_or_its_signs_are_the_release_without_noise(bits: Made, numbers: Made):
    images = pictures(40, seed=3)  # of 18x20 pixels, which the graph of numbers itself shrinks to 16x16
    release = Code(str(bits.artefact)).release(images, seeded_noise(0))
    assert release.values.float().mean(0).min() < 0.5 < release.values.float().mean(0).max()
    found = bits.run(images)
    assert list(found) == ["numbers"]
    assert torch.equal(signs(found["numbers"]), release.values)
    assert (bits.exported.difference.bits, bits.exported.difference.largest <= MOST_CODES) == (0, True)
    values = Code(str(numbers.artefact)).release(images, seeded_noise(0)).values
    assert values.std(0).min() > 0.01  # what is compared differs from image to image
    torch.testing.assert_close(numbers.run(images)["numbers"], values, atol=MOST_CODES, rtol=0)


def test_an_exported_code_of_words_has_the_bits_of_the_release(words: Made):
    images = pictures(40, seed=3)
    release = Code(str(words.artefact)).release(images, seeded_noise(0))
    assert len(set(release.pack())) > 10
    assert torch.equal(signs(words.run(images)["numbers"]), release.values)
    assert (words.exported.difference.bits, words.exported.difference.largest <= MOST_CODES) == (0, True)


def test_an_encoder_of_onnx_cannot_see_images_twice(tmp_path: Path):
    spec, path = write_onnx(tmp_path / "small.onnx", Small()), tmp_path / "twice.safetensors"
    network = make_code_network(spec, SHAPE, dimension=5, side=16, mirrored=True, seed=0)
    config = {"encoder": on_card(spec), "side": 16, "bits": 5, "mirrored": True}
    tensors = {f"network.{name}": each for name, each in network.state_dict().items()}
    artefacts.save(path, tensors, {"kind": "code", "config": config, "shape": list(SHAPE)})
    with pytest.raises(ArtefactError, match="once: train with mirrored=false"):
        export(path, tmp_path / "twice.onnx", check=pictures(2))


def test_an_encoder_of_onnx_stands_in_the_exported_code_as_it_is(tmp_path: Path):
    spec = write_onnx(tmp_path / "small.onnx", Small())
    network = make_code_network(spec, SHAPE, dimension=5, side=16, seed=0)
    with torch.no_grad():
        for seed in range(30):
            network(pictures(32, seed=seed).float() / 255)
    card = {"kind": "code", "config": {"encoder": on_card(spec), "side": 16, "numbers": 5}}
    path = tmp_path / "onnx-code.safetensors"
    tensors = {f"network.{name}": each for name, each in network.state_dict().items()}
    artefacts.save(path, tensors, card | {"shape": list(SHAPE)})
    exported = made(path, "onnx-code.onnx")
    images = pictures(10, seed=3)
    expected = Code(str(path)).release(images, seeded_noise(0)).vectors()
    torch.testing.assert_close(exported.run(images)["numbers"], expected, atol=1e-4, rtol=0)
    assert exported.exported.difference.largest < 1e-4


def test_a_bit_that_rounding_may_turn_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of a code of two bits, the first number of which is one for all images, and whose graph is off."""
    path = write_code(tmp_path / "constant.safetensors", bits=2)
    tensors, card = artefacts.load(path, kind="code")
    tensors["network.project.weight"][0] = 0
    tensors["network.project.bias"][0] = 0.3 * MOST_CODES
    tensors["network.norm.running_mean"][0] = 0
    tensors["network.norm.running_var"][0] = 1
    artefacts.save(path, tensors, card)
    model = graphs.code_graph(load_encoder(str(path)))
    (linear,) = [node for node in model.graph.node if node.op_type == "Gemm"]
    (bias,) = [each for each in model.graph.initializer if each.name == linear.input[2]]
    moved = onnx.numpy_helper.to_array(bias) + np.float32([-0.6 * MOST_CODES, 0])
    bias.CopyFrom(onnx.numpy_helper.from_array(moved, bias.name))
    monkeypatch.setattr(graphs, "to_onnx", lambda *words: model)
    exported = export(path, tmp_path / "c.onnx", check=pictures())
    assert exported.difference.bits == 0.5  # one of two, of every image
    assert exported.difference.largest == pytest.approx(0.6 * MOST_CODES, rel=0.05)


# One image, one file, nothing else


def test_a_batch_of_two_is_refused_by_a_device_side(mask, feature):
    for each in (mask, feature):
        with pytest.raises(Exception, match="invalid dimensions for input: images"):
            session(each.exported.path).run(None, {"images": pictures(2).numpy()})


def test_the_card_says_what_the_file_is(mask, feature, cloud, bits, numbers):
    common = {"shape": list(SHAPE), "precision": "float32", "version": sfumato.__version__}
    of_mask, of_feature = (hashlib.sha256(each.artefact.read_bytes()).hexdigest() for each in (mask, feature))
    said = {"kind": "mask", "side": "device", "noise": "none: a mask adds none"}
    assert mask.card == {**common, **said, "artefact": of_mask, "keep": 0.25, "pixels": PIXELS}
    common_of_feature = {**common, "kind": "private feature", "artefact": of_feature, "dimension": 3}
    noise = "not in the graph: draw it on the device, before the feature leaves"
    said = {"side": "device", "covariance": (torch.eye(3) / 2).tolist(), "noise": noise}
    assert feature.card == {**common_of_feature, **said}
    said = {"side": "cloud", "classes": CLASSES, "noise": "none: the device has drawn it"}
    assert cloud.card == {**common_of_feature, **said}
    of_bits, of_numbers = (hashlib.sha256(each.artefact.read_bytes()).hexdigest() for each in (bits, numbers))
    noise = "not in the graph: draw it on the device, before the code leaves"
    code = {**common, "kind": "code", "side": "device", "noise": noise}
    release = "which numbers are above 0, and not the numbers"
    assert bits.card == {**code, "artefact": of_bits, "bits": 12, "release": release}
    assert numbers.card == {**code, "artefact": of_numbers, "numbers": 6, "release": "the numbers"}


def test_a_file_tells_nothing_of_the_machine_that_wrote_it(mask: Made):
    for word in (b".py", str(Path.cwd()).encode(), str(mask.artefact.parent).encode(), b"forward"):
        assert word not in mask.exported.path.read_bytes()


# Mistakes


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        (pictures(0), DataError, "no check images: give at least one"),
        (pictures(2, shape=(3, 20, 20)), DataError, "check images of 3x20x20: the artefact takes 3x18x20"),
        (pictures(2).float(), ImageError, "uint8"),
    ],
)
def test_images_that_say_nothing_of_the_artefact_are_refused(mask: Made, tmp_path, images, error, message):
    with pytest.raises(error, match=message):
        export(mask.artefact, tmp_path / "m.onnx", check=images)
    assert not list(tmp_path.iterdir())


def test_an_artefact_that_is_missing_damaged_or_foreign_is_refused(tmp_path: Path, mask: Made):
    tensors, card = artefacts.load(mask.artefact, kind="mask")
    artefacts.save(tmp_path / "other", {}, {"kind": "few-shot"})
    artefacts.save(tmp_path / "no-weights", {}, card)
    artefacts.save(tmp_path / "half", tensors, card | {"kind": "private feature"})
    artefacts.save(tmp_path / "whole", tensors, card | {"config": card["config"] | {"keep": 1e-4}})
    for name, message in {
        "gone": "gone: no such file",
        "other": "other: is a 'few-shot', and only a 'mask', a 'private feature' or a 'co",
        "no-weights": "no-weights: damaged: the weights do not fit the networks of its card: it lacks down",
        "half": "half: damaged, or of another version: config.widths in its card: Field required",
        "whole": "keep=0.0001 of 18x20 pixels is less than one",
    }.items():
        with pytest.raises(ArtefactError, match=message):
            export(tmp_path / name, tmp_path / "out" / "m.onnx", check=pictures())
    assert not (tmp_path / "out").exists()


def test_a_graph_that_computes_something_else_is_not_written(
    feature: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "f.onnx").write_bytes(b"what was there")
    for error in (2 * MOST_NUMBERS, np.nan):
        model = onnx.load(feature.exported.path)
        (bias,) = [each for each in model.graph.initializer if each.name == model.graph.node[-1].input[2]]
        moved = onnx.numpy_helper.to_array(bias) + np.float32(error)
        bias.CopyFrom(onnx.numpy_helper.from_array(moved, bias.name))
        monkeypatch.setattr(graphs, "to_onnx", lambda *words, model=model: model)
        with pytest.raises(ArtefactError, match=r"onnxruntime differs from PyTorch by (0.002|nan) on the ch"):
            export(feature.artefact, tmp_path / "f.onnx", check=pictures())
    assert (tmp_path / "f.onnx").read_bytes() == b"what was there"
    assert [each.name for each in tmp_path.iterdir()] == ["f.onnx"]


def test_without_the_extra_its_name_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(MissingExtraError, match=r"exporting needs onnxscript: .*-e '\.\[edge\]'"):
        graphs.to_onnx(torch.nn.Identity(), torch.zeros(1), "numbers", ["same"])
