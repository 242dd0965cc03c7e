"""A malicious server's imprint layer: images come back one by one; who receives the model can tell."""

import pytest
import torch
from torch import Tensor, nn

from sfumato.assess.matching import match
from sfumato.assess.similarity import psnr
from sfumato.attack.imprint import detect, imprint_, recover
from sfumato.attack.victim import share
from sfumato.errors import ConfigError, DataError
from sfumato.networks import ConvNet8, LeNet

SHAPE = (3, 8, 8)


def model(*, bins: int = 64, made: bool = True) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Flatten(), nn.Linear(192, bins), nn.ReLU(), nn.Linear(bins, 10))
    if made:
        # Of images of its own, which the server needs for the thresholds.
        imprint_(network[1], network[3], photographs(500, seed=9).flatten(1).mean(1))
    return network.double()


def photographs(count: int, seed: int = 1) -> Tensor:
    """Of different brightness, as photographs are."""
    generator = torch.Generator().manual_seed(seed)
    levels = torch.rand(count, 1, 1, 1, generator=generator)
    return (0.7 * levels + 0.3 * torch.rand(count, *SHAPE, generator=generator)).double()


def test_images_that_are_alone_in_a_bin_come_back_exactly_from_a_batch_of_32():
    originals = photographs(32)
    network = model(bins=512)
    found = recover(network, share(network, originals, torch.arange(32) % 10), SHAPE)
    thresholds = -network[1].bias.detach()
    bins = torch.bucketize(originals.flatten(1).mean(1), thresholds)
    alone = bins.bincount(minlength=513)[bins] == 1
    exact = (originals[:, None] - found).abs().flatten(2).amax(2).amin(1) < 1e-5
    assert int(alone.sum()) >= 24  # 32 in 512 bins
    assert bool(exact[alone & (bins > 0)].all())


def test_two_images_in_a_bin_give_their_mixture():
    network = model(bins=4)
    originals = photographs(1).repeat(2, 1, 1, 1)
    originals[1] = originals[1].flip(2)  # as bright, and another image
    (found,) = recover(network, share(network, originals, torch.tensor([1, 1])), SHAPE)
    assert torch.cdist(originals.flatten(1).float(), found.flatten()[None]).min() > 0.1


def test_a_single_image_comes_back():
    network, original = model(), photographs(1)
    found = recover(network, share(network, original, torch.tensor([3])), SHAPE)
    assert psnr(original.float(), found[match(original.float(), found)]).item() > 80


def test_an_image_below_every_threshold_is_not_held():
    network = model()
    dark = torch.zeros(1, *SHAPE, dtype=torch.float64)
    with pytest.raises(DataError, match="no bin of 1 holds an image"):
        recover(network, share(network, dark, torch.tensor([3])), SHAPE)


def test_the_layer_is_named_to_whoever_receives_it_also_scaled_and_shuffled():
    network = model()
    suspect = detect(network)
    assert suspect is not None
    assert (suspect.layer, suspect.share) == ("1", 1.0)
    with torch.no_grad():
        order = torch.randperm(64, generator=torch.Generator().manual_seed(0))
        scale = torch.linspace(-3, 3, 64, dtype=torch.float64)[:, None]
        network[1].weight.copy_(scale * network[1].weight[order])
    assert detect(network) is not None


@pytest.mark.parametrize(
    "honest", [lambda: model(made=False), lambda: LeNet(SHAPE, 4), lambda: ConvNet8((3, 16, 16), 10)]
)
def test_networks_that_were_drawn_are_not_suspected(honest):
    assert detect(honest()) is None


def test_a_layer_without_a_bias_or_of_other_images_is_refused():
    with pytest.raises(ConfigError, match="an imprint layer needs a bias"):
        imprint_(nn.Linear(4, 4, bias=False), nn.Linear(4, 2), torch.rand(10))
    with pytest.raises(ConfigError, match="4 bins, and the next layer takes 5"):
        imprint_(nn.Linear(4, 4), nn.Linear(5, 2), torch.rand(10))
    network = model()
    with pytest.raises(ConfigError, match=r"images of shape \(1, 8, 8\) are 64 numbers, and 1 takes 192"):
        recover(network, {}, (1, 8, 8))
