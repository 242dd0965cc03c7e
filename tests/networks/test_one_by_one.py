"""Images through a network one by one: many of them give the bits that each gives alone."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from sfumato.images import to_float
from sfumato.networks import one_by_one
from sfumato.networks.classifiers import make_classifier
from sfumato.networks.code import make_code_network
from sfumato.networks.one_by_one import each_by_itself
from sfumato.protect.feature import make_sides
from sfumato.protect.mask import make_masker

FEATURE = {
    "shape": (3, 32, 32),
    "classes": {"hat": ["a", "b"]},
    "config": {"widths": [4, 4, 8, 8, 8, 8, 16], "cut": "conv7", "dimension": 4},
}
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "code": lambda: make_code_network("conv4", (3, 32, 32), dimension=4, seed=0),
    "small code": lambda: make_code_network("conv4", (3, 32, 32), dimension=4, side=16, seed=0),
    "feature": lambda: make_sides(FEATURE)[0],
    "mask": lambda: make_masker(3, width=4, levels=2),
    "answer": lambda: make_classifier("conv4", (3, 32, 32), 5),
}


class ByBrightness(nn.Module):
    """A user's network that decides by the pixels."""

    def forward(self, images: Tensor) -> Tensor:
        return images.mean((1, 2, 3)) if images.mean() > 0.3 else -images.amax((1, 2, 3))


@pytest.fixture
def images() -> Tensor:
    return torch.randint(0, 256, (9, 3, 32, 32), generator=torch.Generator().manual_seed(0)).to(torch.uint8)


@pytest.mark.parametrize("name", NETWORKS)
def test_many_images_give_the_bits_that_each_gives_alone(
    name: str, images: Tensor, monkeypatch: pytest.MonkeyPatch
):
    network = NETWORKS[name]().eval()
    with torch.no_grad():
        alone = [network(to_float(image)) for image in images.split(1)]
    monkeypatch.setattr(one_by_one, "_MANY", len(images))
    together = each_by_itself(network, images)
    assert all(one.equal(other) for one, other in zip(alone, together, strict=True))


def test_a_network_of_a_user_runs_anew_for_each_image(images: Tensor, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(one_by_one, "_MANY", 1)
    images[::2] //= 4
    outputs = torch.cat(each_by_itself(ByBrightness(), images))
    assert (outputs < 0).tolist() == [row % 2 == 0 for row in range(len(images))]
