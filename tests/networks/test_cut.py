"""Layer separation: both halves together are the whole, and share its weights."""

import pytest
import torch
from torch import Tensor

from sfumato.errors import ConfigError
from sfumato.networks import TinyDarknet


def images(side: int = 32, count: int = 5) -> Tensor:
    return torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(0))


def network() -> TinyDarknet:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = TinyDarknet(3, 7, widths=(4, 4, 8, 8, 8, 8, 8))
        made.train()(images())  # running statistics that are not those of new ones
    return made


@pytest.mark.parametrize("at", ["conv1", "pool3", "conv4_2", "conv5_1", "conv6_1", "conv7", "head"])
@pytest.mark.parametrize("training", [True, False])
def test_both_halves_together_compute_exactly_what_the_whole_does(at: str, training: bool):
    whole = network().train(training)
    extractor, analyser = whole.cut(at)
    extractor.train(training), analyser.train(training)
    statistics = {k: v.clone() for k, v in whole.state_dict().items()}
    halves = analyser(extractor(images()))
    whole.load_state_dict(statistics)  # which the halves share, and moved in training
    assert torch.equal(halves, whole(images()))


def test_the_extractor_gives_what_the_layer_does():
    whole, seen = network().eval(), []
    whole.conv4_2.register_forward_hook(lambda module, inputs, output: seen.append(output))
    whole(images())
    assert torch.equal(whole.cut("conv4_2")[0](images()), seen[0])


def test_the_halves_hold_the_weights_of_the_whole_and_each_its_own():
    whole = network()
    extractor, analyser = whole.cut("conv5_1")
    own = dict(whole.named_parameters())
    first, second = dict(extractor.named_parameters()), dict(analyser.named_parameters())
    assert first.keys() & second.keys() == set()
    assert first.keys() | second.keys() == own.keys()
    assert all(own[name] is each for name, each in (first | second).items())


def test_an_unknown_layer_names_those_that_exist():
    with pytest.raises(ConfigError, match="TinyDarknet has no layer 'conv4-2': did you mean 'conv4_2'"):
        network().cut("conv4-2")
