"""Small networks of the papers: encoders of few-shot learning, and victims of gradient attacks."""

from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.errors import ConfigError, DataError, did_you_mean

DARKNET_WIDTHS = (16, 32, 128, 256, 512, 128, 1000)

_COLOURS = 3
_CONVNET_LEAST = 9  # pixels a side: two max-pools of 3x3 leave one value
_LENET_FILTERS, _LENET_SPREAD = 12, 0.5
_SMALL = 64  # the longest side, in pixels, for which the stem of a ResNet keeps the resolution
# For each depth: blocks a stage, channels of the first stage, and how much a block widens its output.
_FORMS = {
    18: ((2, 2, 2, 2), 64, 1),
    20: ((3, 3, 3), 16, 1),
    50: ((3, 4, 6, 3), 64, 4),
    152: ((3, 8, 36, 3), 64, 4),
}


def check_size(images: Tensor, pools: int) -> None:
    """Raises DataError unless (N, C, H, W) images can be halved `pools` times."""
    height, width = images.shape[2:]
    if min(height, width) < 2**pools:
        raise DataError(
            f"images of {height}x{width}: the encoder halves them {pools} times, and needs at least "
            f"{2**pools}x{2**pools}: load them at a larger size"
        )


def halve(maps: Tensor) -> Tensor:
    """2x2 max-pool: (N, C, H, W) -> (N, C, H // 2, W // 2).

    On a processor PyTorch's own takes half as long as the convolution before it: it visits one value after
    the other, and notes where each came from. Without gradients two maxima of whole rows give the same values
    in a tenth of that. What is exported keeps the one operator.
    """
    if maps.device.type != "cpu" or torch.is_grad_enabled() or torch.compiler.is_exporting():
        return functional.max_pool2d(maps, 2)
    height, width = maps.shape[-2] // 2 * 2, maps.shape[-1] // 2 * 2
    rows = torch.maximum(maps[..., :height:2, :width], maps[..., 1:height:2, :width])
    return torch.maximum(rows[..., ::2], rows[..., 1::2])


class Halve(nn.MaxPool2d):
    """The layer of `halve`."""

    def __init__(self) -> None:
        super().__init__(2)

    def forward(self, maps: Tensor) -> Tensor:
        """Halves both sides."""
        return halve(maps)


def convolution(
    inputs: int, outputs: int, kernel: int = 3, stride: int = 1, *, running: bool = True
) -> tuple[nn.Module, nn.Module]:
    """A padded convolution without a bias, which the batch norm after it would undo, and that norm.

    `running`: the norm keeps running statistics; otherwise it normalises each batch by itself.
    """
    layer = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return layer, nn.BatchNorm2d(outputs, track_running_stats=running)


class Conv4(nn.Module):
    """Four blocks of 3x3 convolution, batch norm and ReLU, the last `pools` with 2x2 max-pool; then flat.

    Source: Snell, Swersky & Zemel 2017, Sec. 3.1; Parnami et al. 2022, Fig. 10a. There all four pool. Images
    with one value for each cell of pixels are small already, and need fewer.

    (N, C, H, W) -> (N, width * floor(H / 2^pools) * floor(W / 2^pools)); H and W are at least 2^pools.
    """

    def __init__(self, channels: int, *, width: int = 64, pools: int = 4, running: bool = True) -> None:
        """`running`: see `convolution`."""
        super().__init__()
        self.width, self.pools = width, pools
        blocks = []
        for place, inputs in enumerate((channels, width, width, width)):
            # The pool comes before the ReLU, which then has a quarter of the work; outputs and gradients are
            # equal to the bit.
            pool = [Halve()] if place >= 4 - pools else []
            blocks.append(nn.Sequential(*convolution(inputs, width, running=running), *pool, nn.ReLU()))
        self.blocks = nn.Sequential(*blocks)

    def forward(self, images: Tensor) -> Tensor:
        """Embeds float images. Raises DataError for images that the halvings reduce to nothing."""
        check_size(images, self.pools)
        return torch.flatten(self.blocks(images), 1)


class ResNet12(nn.Module):
    """Four residual blocks of three 3x3 convolutions, the last `pools` with 2x2 max-pool; then the mean.

    Source: Parnami et al. 2022, Fig. 10b and c: widths 64, 128, 256, 512. There all four pool.

    (N, C, H, W) -> (N, 512); H and W are at least 2^pools.
    """

    def __init__(
        self, channels: int, *, widths: tuple[int, int, int, int] = (64, 128, 256, 512), pools: int = 4
    ) -> None:
        super().__init__()
        self.pools = pools
        pairs = enumerate(zip((channels, *widths[:-1]), widths, strict=True))
        self.blocks = nn.Sequential(*(_Block12(i, o, pool=n >= 4 - pools) for n, (i, o) in pairs))

    def forward(self, images: Tensor) -> Tensor:
        """Embeds float images. Raises DataError as Conv4 does."""
        check_size(images, self.pools)
        return torch.as_tensor(self.blocks(images).mean((2, 3)))


class _Block12(nn.Module):
    def __init__(self, inputs: int, outputs: int, *, pool: bool) -> None:
        super().__init__()
        self.pool = pool
        self.convolutions = nn.Sequential(
            *(*convolution(inputs, outputs), nn.LeakyReLU(0.1)),
            *(*convolution(outputs, outputs), nn.LeakyReLU(0.1)),
            *convolution(outputs, outputs),
        )
        self.shortcut = nn.Sequential(*convolution(inputs, outputs, 1))

    def forward(self, features: Tensor) -> Tensor:
        joined = functional.leaky_relu(self.convolutions(features) + self.shortcut(features), 0.1)
        return halve(joined) if self.pool else joined


class ConvNet8(nn.Sequential):
    """Eight 3x3 convolutions with batch norm and ReLU, 3x3 max-pool after the sixth and eighth; linear.

    Source: Geiping, Bauermeister, Dröge & Moeller 2020, "ConvNet" of their published code; the "CoveNet8" of
    the SemSim paper (docs/papers.md, "SemSim"), Table 3. Convolutions have no bias here. There they have one,
    which the batch norm undoes: its gradient is 0.

    (N, C, H, W) float in [0, 1] -> (N, classes) logits.
    """

    def __init__(self, shape: tuple[int, int, int], classes: int, *, width: int = 64) -> None:
        """`shape`: (C, H, W); `width`: filters of the first layer. Raises DataError below 9x9 pixels."""
        channels, *sides = shape
        if min(sides) < _CONVNET_LEAST:
            raise DataError(
                f"images of {sides[0]}x{sides[1]}: ConvNet8 pools 3x3 values into one twice, and needs at "
                f"least {_CONVNET_LEAST}x{_CONVNET_LEAST}: load them at a larger size"
            )
        layers: list[nn.Module] = []
        for place, factor in enumerate((1, 2, 2, 4, 4, 4, 4, 4)):
            layers += [*convolution(channels, factor * width), nn.ReLU()]
            if place in (5, 7):
                layers.append(nn.MaxPool2d(3))
            channels = factor * width
        body = nn.Sequential(*layers, nn.Flatten())
        head = nn.Linear(channels * (sides[0] // 9) * (sides[1] // 9), classes)
        super().__init__(OrderedDict(body=body, head=head))


class LeNet(nn.Sequential):
    """Three 5x5 convolutions of 12 filters with sigmoids, of strides 2, 2 and 1, and a linear layer.

    Source: Zhu, Liu & Han 2019, Sec. 4.1: sigmoids, not ReLU, since the attack needs second derivatives. The
    rest is from their published code, for 32x32 pixels: strides, filters, and weights and biases
    that are uniform in [-0.5, 0.5]. Other sizes change only the linear layer. Weights this large matter:
    with PyTorch's own, sigmoids hardly pass the image on (from one image of noise to the next, features
    deviate by 0.0006, not 0.05).

    (N, C, H, W) float in [0, 1] -> (N, classes) logits, or (N, dimension) embeddings without classes: 768
    numbers for 32x32 pixels.
    """

    def __init__(self, shape: tuple[int, int, int], classes: int | None) -> None:
        """`shape`: (C, H, W); `classes`: None for embeddings. Raises DataError for images below 4x4."""
        channels, height, width = shape
        check_size(torch.empty(0, *shape), 2)
        filters, layers = _LENET_FILTERS, list[nn.Module]()
        for inputs, stride in ((channels, 2), (filters, 2), (filters, 1)):
            layers += [nn.Conv2d(inputs, filters, 5, stride, padding=2), nn.Sigmoid()]
        dimension = filters * -(-height // 4) * -(-width // 4)
        head = nn.Identity() if classes is None else nn.Linear(dimension, classes)
        super().__init__(OrderedDict(body=nn.Sequential(*layers, nn.Flatten()), head=head))
        self.dimension = dimension
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -_LENET_SPREAD, _LENET_SPREAD)


class ResNet(nn.Module):
    """Stages of residual blocks, each with twice the channels and half the sides of the one before; the mean.

    Source: He, Zhang, Ren & Sun 2016: depth 20 of Sec. 4.2, for CIFAR; 18, 50 and 152 of Table 1. The
    differences:

    - Shortcuts that change shape are projections (option B) at every depth. In Sec. 4.2 they are identities
      padded with zeros (A), which has 2,752 parameters less at depth 20. Published attacks use projections
      (Geiping et al. 2020).
    - Deep blocks have their stride in the 3x3 convolution, not in the first 1x1, as is usual now.
    - Images of up to 64 pixels, and all at depth 20, see a stem of one 3x3 convolution. Larger ones see that
      of Table 1: 7x7 with stride 2, and 3x3 max-pool with stride 2.

    (N, C, H, W) float in [0, 1] -> (N, classes) logits, or (N, dimension) embeddings without classes.
    """

    def __init__(
        self, shape: tuple[int, int, int], classes: int | None, *, depth: int, width: int | None = None
    ) -> None:
        """Makes the network for images of one shape (C, H, W); without classes it embeds.

        `depth`: 18, 20, 50 or 152, else ConfigError; `width`: channels of the first stage, by default the
        paper's, 16 at depth 20 and 64 otherwise. Raises DataError for images that would vanish.
        """
        super().__init__()
        if depth not in _FORMS:
            raise ConfigError(f"depth={depth}: a ResNet has {', '.join(map(str, _FORMS))} layers here")
        stages, published, expansion = _FORMS[depth]
        channels, *sides = shape
        large = max(sides) > _SMALL and depth != 20
        check_size(torch.empty(0, *shape), len(stages) - 1 + 2 * large)
        width = published if width is None else width
        pool = [nn.MaxPool2d(3, stride=2, padding=1)] if large else []
        stem = convolution(channels, width, 7, 2) if large else convolution(channels, width)
        self.stem = nn.Sequential(*stem, nn.ReLU(), *pool)
        blocks: list[nn.Module] = []
        inputs = width
        for stage, count in enumerate(stages):
            for block in range(count):
                stride = 2 if stage and not block else 1
                blocks.append(_Residual(inputs, width * 2**stage, expansion, stride))
                inputs = width * 2**stage * expansion
        self.blocks = nn.Sequential(*blocks)
        self.dimension = inputs
        self.head = nn.Identity() if classes is None else nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Classifies, or embeds, float images."""
        return torch.as_tensor(self.head(self.blocks(self.stem(images)).mean((2, 3))))


class _Residual(nn.Module):
    """A basic block of two 3x3 convolutions without expansion, else a bottleneck."""

    def __init__(self, inputs: int, width: int, expansion: int, stride: int) -> None:
        super().__init__()
        outputs = width * expansion
        if expansion == 1:
            layers = [*convolution(inputs, width, 3, stride), nn.ReLU(), *convolution(width, width)]
        else:
            layers = [
                *(*convolution(inputs, width, 1), nn.ReLU()),
                *(*convolution(width, width, 3, stride), nn.ReLU()),
                *convolution(width, outputs, 1),
            ]
        self.convolutions = nn.Sequential(*layers)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else nn.Sequential(*convolution(inputs, outputs, 1, stride))

    def forward(self, features: Tensor) -> Tensor:
        return functional.relu(self.convolutions(features) + self.shortcut(features))


class TinyDarknet(nn.Sequential):
    """Sixteen convolutions with batch norm and leaky ReLU, four max-pools, the mean, and a linear layer.

    Source: Redmon, Tiny Darknet (pjreddie.com/darknet/tiny-darknet), the network of Osia et al. 2018,
    Sec. 6.1. There conv7 has an output for each of 1000 classes, and the mean of these is the end; here a
    linear layer, `head`, comes after it, as attributes are fewer than a useful layer is wide.

    Layers in order, as names to cut it at: conv1, pool1, conv2, pool2, conv3_1 to conv3_4, pool3, conv4_1 to
    conv4_4, pool4, conv5_1 to conv5_4, conv6_1, conv7, mean, flat, head. In the stages 3 to 5 a 1x1
    convolution to an eighth of the width comes before each 3x3 convolution.

    (N, C, H, W) -> (N, outputs); H and W are at least 16. Raises DataError for smaller images.
    """

    def __init__(self, channels: int, outputs: int, *, widths: tuple[int, ...] = DARKNET_WIDTHS) -> None:
        """`widths`: of conv1, conv2, the 3x3 convolutions of stages 3, 4 and 5, conv6_1 and conv7."""
        first, second, *stages, sixth, seventh = widths
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        inputs = channels

        def convolve(name: str, width: int, *, side: int) -> None:
            nonlocal inputs
            layers[name] = nn.Sequential(*convolution(inputs, width, side), nn.LeakyReLU(0.1))
            inputs = width

        for number, width in ((1, first), (2, second)):
            convolve(f"conv{number}", width, side=3)
            layers[f"pool{number}"] = nn.MaxPool2d(2)
        for number, width in enumerate(stages, 3):
            for layer in (1, 3):
                convolve(f"conv{number}_{layer}", max(1, width // 8), side=1)
                convolve(f"conv{number}_{layer + 1}", width, side=3)
            if number < 5:
                layers[f"pool{number}"] = nn.MaxPool2d(2)
        convolve("conv6_1", sixth, side=1)
        convolve("conv7", seventh, side=1)
        layers |= {"mean": nn.AdaptiveAvgPool2d(1), "flat": nn.Flatten(), "head": nn.Linear(seventh, outputs)}
        super().__init__(layers)

    def forward(self, images: Tensor) -> Tensor:
        """Classifies float images."""
        check_size(images, 4)
        return torch.as_tensor(super().forward(images))  # type: ignore[no-untyped-call]

    def cut(self, at: str) -> tuple[nn.Sequential, nn.Sequential]:
        """Layer separation (Osia et al. 2018, Sec. 4.1): the layers up to one, and those after it.

        Both halves hold the layers themselves, under their names: training them trains the network. They do
        not check the size of images. Raises ConfigError for an unknown layer.
        """
        layers = dict(self.named_children())
        if at not in layers:
            raise ConfigError(f"TinyDarknet has no layer {at!r}: {did_you_mean(at, layers)}")
        end = list(layers).index(at) + 1
        first, second = (
            OrderedDict(part) for part in (list(layers.items())[:end], list(layers.items())[end:])
        )
        return nn.Sequential(first), nn.Sequential(second)


NETWORKS: dict[str, Callable[[tuple[int, int, int]], nn.Module]] = {
    "resnet50": lambda shape: ResNet(shape, None, depth=50),
    "resnet18": lambda shape: ResNet(shape, None, depth=18),
    "resnet152": lambda shape: ResNet(shape, None, depth=152),
    "lenet": lambda shape: LeNet(shape, None),
}


class Embedding(nn.Module):
    """(N, 1 or 3, H, W) float in [0, 1], of any size -> (N, D) float32, of length 1 if `normalised`."""

    def __init__(self, network: str, *, size: int, normalised: bool) -> None:
        """Makes a network of NETWORKS for images of size x size pixels."""
        super().__init__()
        self.network = NETWORKS[network]((_COLOURS, size, size))
        self._size = size
        self._normalised = normalised
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        """Embeds float images."""
        squares = to_squares(images, self._size).contiguous(memory_format=torch.channels_last)
        vectors = torch.as_tensor(self.network(squares)).float()
        return functional.normalize(vectors) if self._normalised else vectors


def to_squares(images: Tensor, size: int) -> Tensor:
    """(N, 1 or 3, H, W) float -> (N, 3, size, size): grey repeated, and other sizes resized.

    Bilinear; shrinking averages over all pixels that an output pixel covers (antialiased). Other shapes
    are squeezed to a square, not cropped: every part of a pair must be seen.
    """
    if images.shape[2:] != (size, size):
        images = functional.interpolate(
            images, (size, size), mode="bilinear", antialias=True, align_corners=False
        )
    return images.expand(-1, _COLOURS, -1, -1)
