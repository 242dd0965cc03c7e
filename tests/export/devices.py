"""What the tests of devices share: artefacts that nobody trained, of every kind that has a device side."""

from dataclasses import asdict
from functools import cache
from pathlib import Path

import onnx
import pytest
import torch
from torch import Tensor, nn

from sfumato import artefacts
from sfumato.export import graphs
from sfumato.learn import private_feature
from sfumato.learn.codebook import fit_codebook
from sfumato.learn.private_feature import FeatureConfig
from sfumato.networks.code import make_code_network
from sfumato.protect import mask as masks

SHAPE = (3, 18, 20)
WIDTHS = (4, 4, 8, 8, 8, 8, 8)
CLASSES = {"kind": ["flat", "round", "tall"], "light": ["dark", "bright"]}


def pictures(count: int = 5, seed: int = 0, shape: tuple[int, int, int] = SHAPE) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, *shape), generator=generator).to(torch.uint8)


def write_mask(path: Path, *, shape: tuple[int, int, int] = SHAPE, keep: float = 0.25) -> Path:
    """A masker with weights large enough that its scores differ."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        masker = masks.make_masker(shape[0], width=4, levels=1)
        for each in masker.modules():
            if isinstance(each, nn.BatchNorm2d):
                each.running_mean.normal_()
                each.running_var.uniform_(0.01, 0.1)
    card = {"kind": "mask", "shape": list(shape), "config": {"keep": keep, "masker_width": 4, "levels": 1}}
    artefacts.save(path, {f"masker.{name}": each for name, each in masker.state_dict().items()}, card)
    return path


def write_feature(
    path: Path, *, cut: str = "conv2", dimension: int = 3, shape: tuple[int, int, int] = SHAPE
) -> Path:
    """A model whose features have a variance of about 1, and whose targets have three and two classes."""
    config = FeatureConfig(widths=WIDTHS, cut=cut, dimension=dimension, variant="simple")
    card = {"config": {**asdict(config), "widths": list(WIDTHS)}, "shape": list(shape), "classes": CLASSES}
    model = private_feature.make_untrained(card, seed=0)
    images = pictures(64, shape=shape)
    with torch.no_grad():
        for each in model.parameters():
            each.mul_(2)
    private_feature.begin_auto_encoder(model, images)
    private_feature.settle(model, images, batch=32)
    model.device.covariance.copy_(torch.eye(dimension) / 2)
    model.save(path)
    return path


@cache
def _network_of_pictures(
    shape: tuple[int, int, int], side: int | None, dimension: int, directions: int | None, mirrored: bool
) -> dict[str, Tensor]:
    """The weights of a code's network whose batch norms, or words, have seen pictures."""
    sizes = {"dimension": dimension, "side": side, "directions": directions, "mirrored": mirrored}
    network = make_code_network("conv4", shape, **sizes, seed=0)
    with torch.no_grad():
        for seed in range(30):
            network(pictures(32, seed=seed, shape=shape).float() / 255)
    if network.codebook is not None:
        seen = pictures(120, seed=0, shape=shape).float() / 255
        with torch.no_grad():
            outputs = network.eval().encode(seen)
        fit_codebook(network, outputs, torch.arange(120) % 20, seed=0)
    return {f"network.{name}": each for name, each in network.state_dict().items()}


def write_code(
    path: Path,
    *,
    shape: tuple[int, int, int] = SHAPE,
    side: int | None = None,
    directions: int | None = None,
    mirrored: bool = False,
    **size: int,
) -> Path:
    """An encoder that nobody trained; `size` is bits=12, say, or numbers=6; with `directions`, of words."""
    config = {"encoder": "conv4", "side": side, "mirrored": mirrored, **size}
    config |= {} if directions is None else {"codebook": "means", "directions": directions}
    card = {"kind": "code", "config": config, "shape": list(shape)}
    artefacts.save(path, _network_of_pictures(shape, side, sum(size.values()), directions, mirrored), card)
    return path


_GRAPHS: dict[tuple[str, ...], onnx.ModelProto] = {}
_TO_ONNX = graphs.to_onnx


def remember_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each graph once: torch.onnx takes a second or more for the smallest."""

    def to_onnx(network: nn.Module, example: Tensor, *words, **settings) -> onnx.ModelProto:
        weights = [str((name, each.tolist())) for name, each in network.state_dict().items()]
        key = (repr(network), str(example.shape), *map(str, words), *weights)
        if key not in _GRAPHS:
            _GRAPHS[key] = _TO_ONNX(network, example, *words, **settings)
        return onnx.ModelProto.FromString(_GRAPHS[key].SerializeToString())

    monkeypatch.setattr(graphs, "to_onnx", to_onnx)
