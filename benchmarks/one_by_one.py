"""Many images through the networks of a code and a private feature one by one, recorded and by Python.

OMP_NUM_THREADS=1 python benchmarks/one_by_one.py
"""

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from sfumato.images import to_float
from sfumato.networks.code import make_code_network
from sfumato.networks.one_by_one import each_by_itself
from sfumato.protect.feature import make_sides

IMAGES, TURNS, SIDE = 1000, 2, 32
WIDTHS = [16, 16, 32, 32, 64, 64, 64]  # of the demo


def milliseconds(work: Callable[[], object]) -> float:
    """The least processor time of an image."""
    taken = []
    for _ in range(TURNS):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return 1e3 * min(taken) / IMAGES


@torch.no_grad()
def by_python(network: nn.Module, images: Tensor) -> Tensor:
    return torch.cat([network(to_float(image)) for image in images.split(1)])


def one_by_one(network: nn.Module, images: Tensor) -> Tensor:
    return torch.cat(each_by_itself(network, images))


@torch.no_grad()
def at_once(network: nn.Module, images: Tensor) -> Tensor:
    outputs: Tensor = network(to_float(images))
    return outputs


def main() -> None:
    torch.set_num_threads(1)
    images = torch.randint(0, 256, (IMAGES, 3, SIDE, SIDE)).to(torch.uint8)
    config = {"widths": WIDTHS, "cut": "conv7", "dimension": 16}
    card = {"shape": (3, SIDE, SIDE), "classes": {"hat": ["a", "b"]}, "config": config}
    networks = {
        "code": make_code_network("conv4", (3, SIDE, SIDE), dimension=16, seed=0),
        "feature": make_sides(card)[0],
    }
    for name, network in networks.items():
        network.eval()
        assert one_by_one(network, images).equal(by_python(network, images))
        ways = (by_python, one_by_one, at_once)
        figures = [milliseconds(partial(way, network, images)) for way in ways]
        words = "by Python {:.2f} ms, recorded {:.2f} ms; all at once, with other bits, {:.2f} ms"
        print(f"{name:8}", words.format(*figures))


if __name__ == "__main__":
    main()
