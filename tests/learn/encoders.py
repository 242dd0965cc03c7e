"""A small encoder that was trained before, as a module and as the ONNX file that users would have of it."""

from pathlib import Path

import torch
from torch import Tensor, nn

from sfumato.export.graphs import to_onnx
from sfumato.networks.weights import initial_weights

SIDE = 24
SETTINGS = f"size={SIDE},mean=0.5/0.4/0.3,std=0.2/0.25/0.3"


class Small(nn.Module):
    """Two convolutions: (N, 3, h, w) -> (N, 12, y, x), or their mean over pixels."""

    def __init__(self, *, maps: bool = False) -> None:
        super().__init__()
        with initial_weights(7):
            self.first = nn.Conv2d(3, 8, 3, stride=2)
            self.second = nn.Conv2d(8, 12, 3)
        self.maps = maps

    def forward(self, images: Tensor) -> Tensor:
        maps = self.second(self.first(images).relu()).relu()
        return maps if self.maps else maps.mean((2, 3))


_GRAPHS: dict[tuple[type, bool, int, bool], bytes] = {}  # exporting takes most of a second


def write_onnx(path: Path, network: nn.Module, *, side: int = SIDE, any_batch: bool = True) -> str:
    """The network as an ONNX file, and as settings name it. Networks of a class have the same weights."""
    kind = (type(network), getattr(network, "maps", False), side, any_batch)
    if kind not in _GRAPHS:
        example = torch.zeros(2 if any_batch else 1, 3, side, side)
        model = to_onnx(network, example, "pixels", ["features"], any_batch=any_batch)
        _GRAPHS[kind] = model.SerializeToString()
    path.write_bytes(_GRAPHS[kind])
    return f"onnx:{path},{SETTINGS}"
