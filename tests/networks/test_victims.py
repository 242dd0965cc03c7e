"""Networks that gradient attacks are tried on: their sizes, and that gradients of gradients go through."""

import pytest
import torch
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from sfumato.errors import ConfigError, DataError
from sfumato.networks import ConvNet8, LeNet, ResNet
from sfumato.networks.classifiers import make_classifier

SHAPE = (3, 32, 32)
# Small ones of each kind, for 16x16 pixels and 5 classes.
SMALL = {
    "resnet18": lambda: ResNet((3, 16, 16), 5, depth=18, width=4),
    "resnet20": lambda: ResNet((3, 16, 16), 5, depth=20, width=4),
    "resnet50": lambda: ResNet((3, 16, 16), 5, depth=50, width=4),
    "lenet": lambda: LeNet((3, 16, 16), 5),
    "convnet8": lambda: ConvNet8((3, 16, 16), 5, width=4),
}


def parameters(network) -> int:
    return sum(p.numel() for p in network.parameters())


def loss_of(network, weights, images, labels):
    return functional.cross_entropy(functional_call(network, weights, (images,)), labels)


@pytest.mark.parametrize(
    ("name", "millions"),  # resnet20 in He et al. 2016, Table 6
    [("resnet20", 0.27), ("resnet50", 23.52), ("resnet152", 58.16), ("convnet8", 2.88)],
)
def test_a_classifier_by_its_name_has_the_parameters_that_were_published_within_1_percent(name, millions):
    assert parameters(make_classifier(name, SHAPE, 10)) / 1e6 == pytest.approx(millions, rel=0.01)


@pytest.mark.parametrize(("depth", "large", "small"), [(18, 11_689_512, 11.17e6), (50, 25_557_032, 23.52e6)])
def test_a_resnet_has_the_parameters_known_for_imagenet_and_those_of_small_images(depth, large, small):
    assert parameters(ResNet((3, 224, 224), 1000, depth=depth)) == large
    assert parameters(ResNet(SHAPE, 10, depth=depth)) == pytest.approx(small, rel=0.01)


def test_projections_cost_depth_20_the_2752_parameters_that_the_docstring_says():
    # 3x3 convolutions with scale and shift of their batch norms, a linear layer, and nothing in shortcuts.
    convolutions = [(3, 16)] + [(16, 16)] * 6 + [(16, 32)] + [(32, 32)] * 5 + [(32, 64)] + [(64, 64)] * 5
    identities = sum(9 * i * o + 2 * o for i, o in convolutions) + 64 * 10 + 10
    assert parameters(ResNet(SHAPE, 10, depth=20)) == identities + 2752


def test_lenet_is_that_of_deep_leakage():
    network = LeNet(SHAPE, 100)
    assert parameters(network) == 25 * 3 * 12 + 12 + 2 * (25 * 12 * 12 + 12) + 768 * 100 + 100
    assert network.dimension == 768
    for parameter in network.parameters():
        assert parameter.abs().max() <= 0.5
    assert network.head.weight.var().item() == pytest.approx(1 / 12, rel=0.02)  # uniform, of width 1


def test_convnet8_ends_in_36_numbers_for_each_filter_of_its_first_layer():
    network = ConvNet8(SHAPE, 10)  # 36 · width, as in the published code
    assert network.head.in_features == 36 * 64
    convolutions = [m for m in network.modules() if isinstance(m, torch.nn.Conv2d)]
    assert [m.out_channels // 64 for m in convolutions] == [1, 2, 2, 4, 4, 4, 4, 4]


@pytest.mark.parametrize("depth", [18, 50])
def test_small_images_keep_their_places_in_the_stem_and_large_ones_lose_three_of_four_twice(depth):
    places = {}
    for side in (64, 65):
        network = ResNet((1, side, side), 2, depth=depth, width=2).eval()
        places[side] = network.stem(torch.rand(1, 1, side, side)).shape[2]
    assert places == {64: 64, 65: 17}


def test_a_bottleneck_has_its_stride_in_the_3x3_convolution():
    block = ResNet((3, 16, 16), 5, depth=50, width=4).blocks[3].convolutions
    convolutions = [m for m in block if isinstance(m, torch.nn.Conv2d)]
    assert [(m.kernel_size[0], m.stride[0]) for m in convolutions] == [(1, 1), (3, 2), (1, 1)]


@pytest.mark.parametrize("shape", [(1, 20, 27), (3, 33, 16)])
@pytest.mark.parametrize(
    "make", [lambda shape, classes: ResNet(shape, classes, depth=20, width=4), LeNet, ConvNet8]
)
def test_sides_may_be_uneven_and_images_grey(make, shape):
    assert make(shape, 4).eval()(torch.rand(2, *shape)).shape == (2, 4)


@pytest.mark.parametrize(
    ("make", "dimension"),
    [
        (lambda: ResNet(SHAPE, None, depth=18, width=4), 32),
        (lambda: ResNet(SHAPE, None, depth=50, width=4), 128),
        (lambda: LeNet(SHAPE, None), 768),
    ],
)
def test_without_classes_there_are_embeddings(make, dimension):
    network = make()
    assert network.dimension == dimension
    assert network.eval()(torch.rand(2, *SHAPE)).shape == (2, dimension)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", SMALL)
def test_the_gradient_of_a_distance_between_gradients_reaches_the_image(name, training):
    network = SMALL[name]().train(training)
    images = torch.rand(4, 3, 16, 16, requires_grad=True)
    loss = functional.cross_entropy(network(images), torch.arange(4))
    first = torch.autograd.grad(loss, list(network.parameters()), create_graph=True)
    (second,) = torch.autograd.grad(sum(g.square().sum() for g in first), images)
    assert second.isfinite().all()
    assert second.abs().max() > 0


@pytest.mark.parametrize("name", SMALL)
def test_gradients_of_single_images_by_vmap_are_those_of_one_image_at_a_time(name):
    # In float64: in float32 the two may round a value near a kink to its two sides.
    network = SMALL[name]().double().eval()
    weights = {k: v.detach() for k, v in network.named_parameters()}
    images, labels = torch.rand(3, 3, 16, 16, dtype=torch.float64), torch.arange(3)

    def one(weights, image, label):
        return loss_of(network, weights, image[None], label[None])

    together = vmap(grad(one), in_dims=(None, 0, 0))(weights, images, labels)
    for place in range(3):
        loss = functional.cross_entropy(network(images[place, None]), labels[place, None])
        alone = torch.autograd.grad(loss, list(network.parameters()))
        for mine, other in zip(together.values(), alone, strict=True):
            torch.testing.assert_close(mine[place], other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "side", "least"),
    [
        (lambda shape: ResNet(shape, 2, depth=20), 3, "4x4"),
        (lambda shape: ResNet(shape, 2, depth=18), 7, "8x8"),
        (lambda shape: LeNet(shape, 2), 3, "4x4"),
        (lambda shape: ConvNet8(shape, 2), 8, "9x9"),
    ],
)
def test_images_that_would_vanish_are_refused_before_there_is_one(make, side, least):
    with pytest.raises(DataError, match=f"images of {side}x32: .* at least {least}"):
        make((3, side, 32))
    make((3, side + 1, 32))


def test_depths_that_no_network_has_are_refused():
    with pytest.raises(ConfigError, match="depth=34: a ResNet has 18, 20, 50, 152 layers here"):
        ResNet(SHAPE, 2, depth=34)
