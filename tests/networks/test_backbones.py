import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional

from sfumato.errors import DataError
from sfumato.networks.encoders.backbones import VGG16, AlexNet, SqueezeNet11

ALL = (AlexNet, VGG16, SqueezeNet11)

# torchvision's `features`, layer by layer: what each is, and where a stage ends.
CONV, RELU, POOL2, POOL3, POOL3_UP, FIRE = "conv", "relu", "pool 2", "pool 3", "pool 3, rounding up", "fire"
LAYERS = {
    AlexNet: [CONV, RELU, POOL3, CONV, RELU, POOL3, CONV, RELU, CONV, RELU, CONV, RELU],
    VGG16: [
        *[CONV, RELU, CONV, RELU, POOL2] * 2,
        *[CONV, RELU, CONV, RELU, CONV, RELU, POOL2] * 2,
        *[CONV, RELU, CONV, RELU, CONV, RELU],
    ],
    SqueezeNet11: [CONV, RELU, *[POOL3_UP, FIRE, FIRE] * 3, FIRE, FIRE],
}
ENDS = {AlexNet: (1, 4, 7, 9, 11), VGG16: (3, 8, 15, 22, 29), SqueezeNet11: (1, 4, 7, 9, 10, 11, 12)}
STRIDES = {(AlexNet, 0): (4, 2), (AlexNet, 3): (1, 2), (SqueezeNet11, 0): (2, 0)}  # stride, padding; or 1, 1
CLASSIFIERS = {AlexNet: (1, 4, 6), VGG16: (0, 3, 6), SqueezeNet11: (1,)}


@pytest.fixture(scope="module", params=ALL, ids=lambda kind: kind.__name__)
def network(request):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return request.param()


def published_names(kind):
    """The parameters that torchvision's file has in `features`."""
    parts = []
    for place, layer in enumerate(LAYERS[kind]):
        if layer == CONV:
            parts.append(f"features.{place}")
        if layer == FIRE:
            parts += [f"features.{place}.{part}" for part in ("squeeze", "expand1x1", "expand3x3")]
    return {f"{part}.{name}" for part in parts for name in ("weight", "bias")}


def by_hand(network, images):
    """The stages in float64, from the table above and the weights by their published names."""
    kind = type(network)
    weights = {name: value.double() for name, value in network.state_dict().items()}
    mean = torch.tensor([0.485, 0.456, 0.406], dtype=torch.float64)[:, None, None]
    maps = (images.double() - mean) / torch.tensor([0.229, 0.224, 0.225], dtype=torch.float64)[:, None, None]

    def conv(name, maps, stride, padding):
        return functional.conv2d(maps, weights[f"{name}.weight"], weights[f"{name}.bias"], stride, padding)

    stages = []
    for place, layer in enumerate(LAYERS[kind]):
        name = f"features.{place}"
        if layer == CONV:
            maps = conv(name, maps, *STRIDES.get((kind, place), (1, 1)))
        elif layer == RELU:
            maps = maps.clamp(min=0)
        elif layer == FIRE:
            small = conv(f"{name}.squeeze", maps, 1, 0).clamp(min=0)
            wide = [conv(f"{name}.expand1x1", small, 1, 0), conv(f"{name}.expand3x3", small, 1, 1)]
            maps = torch.cat(wide, 1).clamp(min=0)
        else:
            size = 2 if layer == POOL2 else 3
            maps = functional.max_pool2d(maps, size, 2, ceil_mode=layer == POOL3_UP)
        if place in ENDS[kind]:
            stages.append(maps)
    return stages


@torch.no_grad()
def test_stages_are_those_of_torchvisions_layers(network):
    images = torch.rand(2, 3, 45, 52, generator=torch.Generator().manual_seed(0))
    stages = network(images)
    assert len(stages) == len(network.widths)
    for stage, width, expected in zip(stages, network.widths, by_hand(network, images), strict=True):
        assert stage.shape[1] == width
        torch.testing.assert_close(stage.double(), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "published", "classifier"),
    # torchvision's num_params, and those of the layers behind the stages.
    [
        (AlexNet, 61_100_840, 9216 * 4096 + 4096 * 4096 + 4096 * 1000 + 2 * 4096 + 1000),
        (VGG16, 138_357_544, 25088 * 4096 + 4096 * 4096 + 4096 * 1000 + 2 * 4096 + 1000),
        (SqueezeNet11, 1_235_496, 512 * 1000 + 1000),
    ],
)
def test_it_has_the_parameters_that_were_published(kind, published, classifier):
    assert sum(p.numel() for p in kind().parameters()) == published - classifier


def test_a_published_file_is_read_without_its_classifier(network, tmp_path):
    kind = type(network)
    weights = network.state_dict()
    assert set(weights) == published_names(kind)
    behind = {
        f"classifier.{n}.{part}": torch.zeros(1) for n in CLASSIFIERS[kind] for part in ("weight", "bias")
    }
    save_file(weights | behind, tmp_path / "weights.safetensors")
    loaded = kind.load(tmp_path / "weights.safetensors")
    assert all(torch.equal(value, weights[name]) for name, value in loaded.state_dict().items())
    assert not loaded.training


def test_the_least_size_is_the_least_that_its_layers_can_read(network):
    least = network.least
    assert network(torch.rand(1, 3, least, least))[-1].numel() > 0
    with pytest.raises(RuntimeError, match="too small"):
        network.features(torch.rand(1, 3, least - 1, least))


def test_small_and_grey_images_are_refused(network):
    least = network.least
    for shape in ((3, least - 1, 80), (1, 80, 80)):
        with pytest.raises(DataError, match=rf"reads \(3, H, W\) from {least}x{least}: enlarge"):
            network(torch.rand(1, *shape))
