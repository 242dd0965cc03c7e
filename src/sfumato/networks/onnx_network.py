"""A graph of ONNX as a module of PyTorch, run by ONNX Runtime: no gradients, and no weights but its bytes."""

from typing import Any

import torch
from torch import Tensor, nn

from sfumato.base.onnx_graphs import Graph
from sfumato.errors import ArtefactError


class OnnxNetwork(nn.Module):
    """(N, 3, h, w) float32 -> a graph's first output. State: its bytes, so that an artefact holds it."""

    file: Tensor

    def __init__(self, content: bytes | int) -> None:
        """The bytes of a file, or their number, for a state dict to fill."""
        super().__init__()
        kind = torch.uint8
        if isinstance(content, int):
            self.register_buffer("file", torch.zeros(content, dtype=kind))
        else:
            self.register_buffer("file", torch.frombuffer(bytearray(content), dtype=kind))
        self._session: Graph | None = None

    @property
    def content(self) -> bytes:
        """The bytes of the file."""
        return self.file.numpy().tobytes()

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Runs the graph on float images; one at a time, if it takes one."""
        if self._session is None:
            self._session = onnx_session(self.content)
        name = self._session.session.get_inputs()[0].name
        batch = self._session.session.get_inputs()[0].shape[0]
        parts = images.split(batch) if isinstance(batch, int) else [images]
        outputs = [
            torch.from_numpy(self._session.run(None, {name: part.contiguous().cpu().numpy()})[0])
            for part in parts
        ]
        return torch.cat(outputs) if outputs else images.new_empty(0)

    def _load_from_state_dict(self, *arguments: Any) -> None:
        self._session = None
        super()._load_from_state_dict(*arguments)

    def __getstate__(self) -> dict[str, Any]:
        """Without the session: a copy, and another process, make their own."""
        return {**self.__dict__, "_session": None}


def onnx_session(content: bytes) -> Graph:
    """A graph that encodes images. Raises ArtefactError for one that cannot, or that `Graph` refuses."""
    graph = Graph(content, extra=("an encoder of ONNX", "edge"), threads=torch.get_num_threads())
    inputs = graph.session.get_inputs()
    if len(inputs) != 1 or len(inputs[0].shape) != 4 or inputs[0].type != "tensor(float)":
        found = "; ".join(f"{each.name} {each.type} {each.shape}" for each in inputs)
        raise ArtefactError(
            f"the ONNX graph takes {found}: an encoder takes one tensor(float) of (N, 3, H, W): export it so"
        )
    return graph
