"""Layer separation: both halves together are the whole, and share its weights."""

import re

import pytest
import torch
from torch import Tensor, nn

from sfumato.errors import ConfigError, DataError
from sfumato.networks import Conv4, ResNet12, TinyDarknet, cut

NARROW = (4, 4, 8, 8, 8, 8, 8)


def images(side: int = 32, count: int = 5) -> Tensor:
    return torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(0))


def network(name: str) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = {
            "tiny-darknet": lambda: TinyDarknet(3, 7, widths=NARROW),
            "conv4": lambda: Conv4(3, width=8),
            "resnet12": lambda: ResNet12(3, widths=(4, 8, 8, 8)),
        }[name]()
        made.train()(images())  # running statistics that are not those of new ones
    return made


class Skipping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.unused = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, values: Tensor) -> Tensor:
        first = self.scale * self.first(values)
        return self.scale * self.second(first) + first


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, values: Tensor) -> Tensor:
        return self.layer(self.layer(values))


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, values: Tensor) -> Tensor:
        return self.layer(values) if values.sum() > 0 else values


@pytest.mark.parametrize(
    ("name", "at"),
    [
        *(
            ("tiny-darknet", at)
            for at in ("conv1", "pool3", "conv4_2", "conv5_1", "conv6_1", "conv7", "head")
        ),
        *(("conv4", at) for at in ("blocks", "blocks.0", "blocks.2", "blocks.2.1", "blocks.3.3")),
        *(("resnet12", at) for at in ("blocks.0", "blocks.2", "blocks.3")),
    ],
)
@pytest.mark.parametrize("training", [True, False])
def test_both_halves_together_compute_exactly_what_the_whole_does(name: str, at: str, training: bool):
    whole = network(name).train(training)
    extractor, analyser = cut(whole, at)
    extractor.train(training), analyser.train(training)
    statistics = {k: v.clone() for k, v in whole.state_dict().items()}
    halves = analyser(extractor(images()))
    whole.load_state_dict(statistics)  # which the halves share, and moved in training
    assert torch.equal(halves, whole(images()))


def test_the_extractor_gives_what_the_layer_does():
    whole, seen = network("tiny-darknet").eval(), []
    whole.conv4_2.register_forward_hook(lambda module, inputs, output: seen.append(output))
    whole(images())
    assert torch.equal(cut(whole, "conv4_2")[0](images()), seen[0])


def test_the_halves_hold_the_weights_of_the_whole_and_each_its_own():
    whole = network("tiny-darknet")
    extractor, analyser = cut(whole, "conv5_1")
    own = dict(whole.named_parameters())
    first, second = dict(extractor.named_parameters()), dict(analyser.named_parameters())
    assert first.keys() & second.keys() == set()
    assert first.keys() | second.keys() == own.keys()
    assert all(own[name] is each for name, each in (first | second).items())


def test_the_check_of_the_size_of_images_stays_with_the_extractor():
    for name, at in (("conv4", "blocks.3"), ("tiny-darknet", "conv7")):
        with pytest.raises(DataError, match="images of 8x8"):
            cut(network(name), at)[0](images(8))


def test_parameters_that_both_halves_use_are_in_both():
    whole, values = Skipping(), torch.rand(4, 3)
    extractor, analyser = cut(whole, "first")
    assert torch.equal(analyser(extractor(values)), whole(values))
    assert extractor(values).shape == (4, 3)


def test_an_unknown_layer_names_those_that_exist():
    with pytest.raises(ConfigError, match="TinyDarknet has no layer 'conv4-2': did you mean 'conv4_2'"):
        cut(network("tiny-darknet"), "conv4-2")
    with pytest.raises(ConfigError, match=re.escape("Known: blocks, blocks.0, blocks.0.0")):
        cut(network("conv4"), "nowhere")


@pytest.mark.parametrize(
    ("whole", "at", "message"),
    [
        (Skipping(), "second", "'second' does not cut Skipping in two: the layers after it need"),
        (Skipping(), "unused", "calls layer 'unused' 0 times"),
        (Twice(), "layer", "calls layer 'layer' 2 times"),
        (Branching(), "layer", "Branching cannot be cut: torch.fx cannot trace its forward"),
        (network("resnet12"), "blocks.1.shortcut", "does not cut ResNet12 in two"),
    ],
)
def test_what_cannot_be_cut_is_refused(whole: nn.Module, at: str, message: str):
    with pytest.raises(ConfigError, match=message):
        cut(whole, at)
