"""Images read from a first linear layer: exact, one or a whole batch, and refused where they cannot be."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pictures
import pytest
import torch
from imprinted import imprint_
from torch import Tensor, nn
from torch.nn import functional

from sfumato.assess.matching import match
from sfumato.assess.similarity import psnr
from sfumato.attack import exact
from sfumato.attack.exact import detect_imprint, nearest, recover_batch, recover_imprinted, recover_one
from sfumato.attack.victim import share
from sfumato.errors import ConfigError, DataError
from sfumato.networks import ConvNet8, LeNet

SHAPE = (3, 8, 8)


def perceptron(*sizes: int, activation: type[nn.Module] = nn.ReLU) -> nn.Module:
    sizes = sizes or (192, 16, 8)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [layer for pair in pairwise(sizes) for layer in (nn.Linear(*pair), activation())]
        return nn.Sequential(nn.Flatten(), *layers, nn.Linear(sizes[-1], 10))


def noise(count: int = 1) -> Tensor:
    return torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(1))


def gradient(model: nn.Module, count: int = 1) -> dict[str, Tensor]:
    return share(model, noise(count), torch.arange(count))


def noisy(shared: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: each + 0.01 * torch.randn(each.shape, generator=generator) for name, each in shared.items()}


def spear(model: nn.Module, shared: dict[str, Tensor], **options: int) -> exact.Recovered:
    return recover_batch(model, shared, SHAPE, generator=torch.Generator().manual_seed(0), **options)


def same_images(originals: Tensor, found: Tensor) -> float:
    """The least PSNR of an image to that which it is matched with."""
    originals = originals.float()
    return psnr(originals, found[match(originals, found)]).min().item()


def photographs(folder, count: int) -> tuple[Tensor, Tensor]:
    labels = np.load(folder / "cifar10_jpeg_subset.npz")["label"].astype(np.int64)
    rows = torch.randperm(len(labels), generator=torch.Generator().manual_seed(count))[:count].numpy()
    images = pictures.photographs(folder, "cifar10_jpeg_subset", rows).double() / 255
    return images, torch.from_numpy(labels[rows])


@pytest.mark.parametrize("hidden", [(256, 128, 64, 64), (32,)])
def test_real_images_come_back_exactly(shared_data, hidden: tuple[int, ...]):
    model = perceptron(3072, *hidden)
    for original, label in zip(*photographs(shared_data, 4), strict=True):
        shared = share(model, original[None].float(), label[None])
        assert psnr(original[None].float(), recover_one(model, shared, (3, 32, 32))).item() > 45


def test_a_row_over_its_bias_is_the_image_as_published():
    model = perceptron()
    shared = gradient(model)
    row = int(shared["1.bias"].abs().argmax())
    published = (shared["1.weight"][row] / shared["1.bias"][row]).reshape(1, *SHAPE)
    torch.testing.assert_close(recover_one(model, shared, SHAPE), published)


def test_all_rows_together_are_hit_less_by_rounding_than_one():
    model, original = perceptron(), noise()
    shared = {name: each.half().float() for name, each in gradient(model).items()}
    together = (recover_one(model, shared, SHAPE) - original).norm()
    active = shared["1.bias"].nonzero().flatten()
    rows = shared["1.weight"][active] / shared["1.bias"][active, None]
    assert together < (rows - original.flatten()).norm(dim=1).mean()


def test_two_copies_of_one_image_or_another_loss_do_not_matter():
    model = perceptron()
    twice = share(model, noise().expand(2, -1, -1, -1), torch.tensor([0, 1]))
    functional.mse_loss(model(noise()), torch.ones(1, 10)).backward()
    for shared in twice, {name: each.grad for name, each in model.named_parameters()}:
        torch.testing.assert_close(recover_one(model, shared, SHAPE), noise(), rtol=0, atol=1e-4)


def test_a_model_that_is_one_layer_has_no_name_before_its_weights():
    layer, flat = nn.Linear(192, 10), noise().flatten(1)
    functional.cross_entropy(layer(flat), torch.tensor([3])).backward()
    shared = {"weight": layer.weight.grad, "bias": layer.bias.grad}
    torch.testing.assert_close(recover_one(layer, shared, SHAPE), noise(), rtol=0, atol=1e-4)


def test_the_nearest_image_is_the_image_where_one_is_behind_the_gradient_and_else_a_mixture():
    model = perceptron()
    image, apart, variance = nearest(model, gradient(model), SHAPE)
    torch.testing.assert_close(image, recover_one(model, gradient(model), SHAPE))
    assert max(apart, variance) < 1e-6
    found, images = nearest(model, gradient(model, 3), SHAPE)[0].flatten(), noise(3).flatten(1)
    shares = torch.linalg.lstsq(images.T, found[:, None]).solution[:, 0]
    torch.testing.assert_close(images.T @ shares, found, rtol=0, atol=1e-4)


def test_the_nearest_image_of_a_noisy_gradient_is_least_squares_by_numpy():
    shared = noisy(gradient(perceptron()), 2)
    weight, bias = shared["1.weight"].double().numpy(), shared["1.bias"].double().numpy()
    expected = np.linalg.lstsq(bias[:, None], weight, rcond=None)[0][0]
    image, _, variance = nearest(perceptron(), shared, SHAPE)
    np.testing.assert_allclose(image.flatten(), expected, rtol=1e-4, atol=1e-5)
    assert variance > 0.5 * float((image - noise()).square().mean())  # not nearer than it is


@pytest.mark.parametrize("count", [2, 4, 8])
def test_real_photographs_of_a_whole_batch_come_back_exactly(shared_data, count: int):
    model = perceptron(3072, 200, 200).double()
    images, labels = photographs(shared_data, count)
    shape, generator = (3, 32, 32), torch.Generator().manual_seed(0)
    found = recover_batch(model, share(model, images, labels), shape, generator=generator)
    assert found.match == 1
    assert same_images(images, found.images) > 140


@pytest.mark.parametrize("labels", [[0], [0, 1, 2], [0, 1, 2, 3, 4], [7, 7, 7, 7]])
def test_single_precision_is_enough_also_for_images_of_the_same_label(labels: list[int]):
    model, images = perceptron(192, 128), noise(len(labels))
    found = spear(model, share(model, images, torch.tensor(labels)))
    assert len(found.images) == len(labels)  # nobody said how many they are
    assert same_images(images, found.images) > 60
    if labels == [0]:
        torch.testing.assert_close(found.images, recover_one(model, gradient(model), SHAPE))


def test_without_a_relu_nothing_is_claimed():
    model = perceptron(192, 128, activation=nn.Sigmoid)
    with pytest.raises(DataError, match=r"no 4 images .* is not followed by a ReLU"):
        spear(model, gradient(model, 4), most=2048)


def test_noise_is_named_where_it_hides_the_rank_and_a_gradient_of_zero_holds_no_image():
    model = perceptron(192, 128)
    shared = gradient(model, 2)
    with pytest.raises(DataError, match=r"no gap below it: noise was added"):
        spear(model, noisy(shared, 0))
    with pytest.raises(DataError, match="is 0 everywhere: no image is in it"):
        spear(model, {name: torch.zeros_like(each) for name, each in shared.items()})


def imprinted(*, bins: int = 64) -> nn.Sequential:
    network = perceptron(192, bins)
    # Of images of its own, which the server needs for the thresholds.
    imprint_(network[1], network[3], of_brightness(500, seed=9).flatten(1).mean(1))
    return network.double()


def of_brightness(count: int, seed: int = 1) -> Tensor:
    """Of different brightness, as photographs are."""
    generator = torch.Generator().manual_seed(seed)
    levels = torch.rand(count, 1, 1, 1, generator=generator)
    return (0.7 * levels + 0.3 * torch.rand(count, *SHAPE, generator=generator)).double()


def test_images_that_are_alone_in_a_bin_come_back_exactly_from_a_batch_of_32():
    originals = of_brightness(32)
    network = imprinted(bins=512)
    found = recover_imprinted(network, share(network, originals, torch.arange(32) % 10), SHAPE)
    thresholds = -network[1].bias.detach()
    bins = torch.bucketize(originals.flatten(1).mean(1), thresholds)
    alone = bins.bincount(minlength=513)[bins] == 1
    right = (originals[:, None] - found).abs().flatten(2).amax(2).amin(1) < 1e-5
    assert int(alone.sum()) >= 24  # 32 in 512 bins
    assert bool(right[alone & (bins > 0)].all())


def test_two_images_in_a_bin_give_their_mixture():
    network = imprinted(bins=4)
    originals = of_brightness(1).repeat(2, 1, 1, 1)
    originals[1] = originals[1].flip(2)  # as bright, and another image
    (found,) = recover_imprinted(network, share(network, originals, torch.tensor([1, 1])), SHAPE)
    assert torch.cdist(originals.flatten(1).float(), found.flatten()[None]).min() > 0.1


def test_an_image_below_every_threshold_is_not_held():
    network, dark = imprinted(), torch.zeros(1, *SHAPE, dtype=torch.float64)
    with pytest.raises(DataError, match="no bin of 1 holds an image"):
        recover_imprinted(network, share(network, dark, torch.tensor([3])), SHAPE)


def test_the_layer_is_named_to_whoever_receives_it_also_scaled_and_shuffled():
    network = imprinted()
    assert detect_imprint(network) == ("1", 1.0)
    with torch.no_grad():
        order = torch.randperm(64, generator=torch.Generator().manual_seed(0))
        scale = torch.linspace(-3, 3, 64, dtype=torch.float64)[:, None]
        network[1].weight.copy_(scale * network[1].weight[order])
    assert detect_imprint(network) is not None


@pytest.mark.parametrize("honest", [perceptron, lambda: LeNet(SHAPE, 4), lambda: ConvNet8((3, 16, 16), 10)])
def test_networks_that_were_drawn_are_not_suspected(honest: Callable[[], nn.Module]):
    assert detect_imprint(honest()) is None


@pytest.mark.parametrize("read", [recover_one, recover_imprinted, lambda *given: spear(*given[:2])])
@pytest.mark.parametrize(
    ("model", "message"),
    [
        (LeNet(SHAPE, 10), "the first layer with parameters is Conv2d: .*gradient_inversion"),
        (nn.Flatten(), "is Flatten: inputs are read from"),
        (perceptron(191, 8), r"images of shape \(3, 8, 8\) are 192 numbers, and 1 takes 191: give"),
    ],
)
def test_a_model_that_sees_the_image_otherwise_is_refused(model: nn.Module, message: str, read: Callable):
    with pytest.raises(ConfigError, match=message):
        read(model, gradient(perceptron()), SHAPE)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"1.bias": None}, "the gradient lacks 1.bias: it is of another model, or the layer is not"),
        ({"1.weight": torch.ones(16, 59)}, r"of 1.weight is \(16, 59\) where the parameter is \(16, 192\)"),
        ({"1.weight": torch.full((16, 192), torch.inf)}, "of 1.weight has numbers that are not finite"),
        ({"1.bias": torch.zeros(16)}, "of 1.bias is 0 everywhere: no unit of this layer passed"),
        (gradient(perceptron(), 2), r"not parallel, \d+\.\d% of it lies apart: more than one image"),
    ],
)
def test_a_gradient_that_does_not_fit_is_refused(changed: dict[str, Tensor | None], message: str):
    shared = {name: each for name, each in (gradient(perceptron()) | changed).items() if each is not None}
    with pytest.raises(DataError, match=message):
        recover_one(perceptron(), shared, SHAPE)
