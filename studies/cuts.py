"""What each cut of the paper's attribute network costs a device (paper: DPFE, Fig. 11).

    OMP_NUM_THREADS=1 python studies/cuts.py    # about two minutes on one quiet core

Tiny Darknet of the published widths, 1.05 million parameters, on colour images of 224 pixels, without the auto-encoder, as
the paper measures it: for each of its sixteen convolutions the layers up to it, and all layers. Each is exported to ONNX and
timed on one core in processes of its own, in turns, of which the fastest counts: other work on the machine makes all slower.
What a cut costs does not depend on the weights, which are not trained.

The record is studies/results/cuts.jsonl.
"""

from dataclasses import asdict
from pathlib import Path

import torch
from device_cost import Cost, cost_of
from torch import Tensor, nn

import sfumato
from sfumato.export.graphs import to_onnx
from sfumato.images import to_float
from sfumato.networks.encoders.small import DARKNET_WIDTHS, TinyDarknet
from sfumato.networks.weights import initial_weights
from sfumato.study.records import write_rows

RECORD = Path(__file__).parent / "results" / "cuts.jsonl"
SHAPE = (3, 224, 224)
TURNS, IMAGES = 3, 20
WHOLE = "all"


class FromPixels(nn.Module):
    """(1, C, H, W) uint8 -> what the last of some layers puts out."""

    def __init__(self, layers: nn.Sequential) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, images: Tensor) -> Tensor:
        """See the class."""
        outputs = to_float(images)
        for layer in self.layers:
            outputs = layer(outputs)
        return outputs


def cuts() -> dict[str, FromPixels]:
    """Name of a convolution -> the layers up to it; and all layers."""
    with initial_weights(0):
        network = TinyDarknet(SHAPE[0], 2, widths=DARKNET_WIDTHS)
    names = [name for name, _ in network.named_children()]
    ends = {name: place for place, name in enumerate(names, 1) if name.startswith("conv")}
    layers = list(network.children())
    return {
        name: FromPixels(nn.Sequential(*layers[:end])) for name, end in {**ends, WHOLE: len(layers)}.items()
    }


def main() -> None:
    """Measure, and write the record."""
    example = torch.zeros(1, *SHAPE, dtype=torch.uint8)
    parts = cuts()
    graphs = {name: to_onnx(part, example, "images", ["features"]) for name, part in parts.items()}
    costs: dict[str, list[Cost]] = {name: [] for name in parts}
    for turn in range(TURNS):
        for name, part in parts.items():
            with torch.no_grad():
                sent = 0 if name == WHOLE else 4 * part(example).numel()
            costs[name].append(cost_of("", name, graphs[name], part, sent=sent, images=IMAGES))
        print(f"turn {turn + 1} of {TURNS}", flush=True)
    fastest = {name: min(turns, key=lambda cost: cost.milliseconds) for name, turns in costs.items()}
    write_rows(
        RECORD,
        [
            {
                "shape": SHAPE,
                "widths": DARKNET_WIDTHS,
                "turns": TURNS,
                "images": IMAGES,
                "costs": [asdict(cost) for cost in fastest.values()],
                "version": sfumato.__version__,
                "threads": torch.get_num_threads(),
            }
        ],
    )
    print(RECORD)


if __name__ == "__main__":
    main()
