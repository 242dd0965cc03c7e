"""Images through a network one by one, as a device releases them."""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

from sfumato.images import to_float
from sfumato.networks.encoders.pretrained import PretrainedEncoder

_MANY = 200  # images; recording costs what it saves on as many


@torch.no_grad()
def each_by_itself(
    network: nn.Module, images: Tensor, prepare: Callable[[Tensor], Tensor] = to_float
) -> list[Tensor]:
    """The outputs of a network in evaluation mode for each of (N, C, H, W) uint8 images, (1, ...) each.

    A batch would round differently, and an output would depend on the other images. If they are many, the
    operations are recorded on the first, and repeated without Python between them: outputs stay the same.
    `prepare`: (1, C, H, W) uint8 -> the network's input.
    """
    rows = images.split(1)
    run: Callable[[Tensor], Tensor] = network
    if len(rows) >= _MANY and _may_be_recorded(network):
        with warnings.catch_warnings():
            # It is deprecated for torch.compile, which computes other bits; and it warns of checks of sizes.
            warnings.simplefilter("ignore")
            run = torch.jit.trace(network, prepare(rows[0]), check_trace=False)
    with torch.jit.optimized_execution(False):  # type: ignore[attr-defined]  # no other operations
        return [run(prepare(image)) for image in rows]


def _may_be_recorded(network: nn.Module) -> bool:
    """Whether the same operations suit every image: a user's module may decide by the pixels."""
    modules = list(network.modules())
    own = all(type(each).__module__.partition(".")[0] in {"torch", "sfumato"} for each in modules)
    return own and not any(isinstance(each, PretrainedEncoder) for each in modules)
