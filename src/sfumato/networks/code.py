"""The encoder of codes: a few numbers between -1 and 1 of an image, or their signs; or the nearest word."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.base.hardware import float32
from sfumato.networks.classifiers import make_encoder
from sfumato.networks.encoders.pretrained import PretrainedEncoder
from sfumato.networks.weights import initial_weights

_MOST_OF_ONE = 8  # bits of one table of words


class Codebook(nn.Module):
    """2^b words, each the sum of one row of each table; the nearest to a vector is its code.

    Source: vector quantisation; with two tables, the additive quantisation of Babenko & Lempitsky 2014, whose
    search here is exact. State: the tables: one for up to 8 bits, and two of half as many for up to 16.
    """

    def __init__(self, bits: int, directions: int) -> None:
        """`bits`: b; `directions`: d, the numbers of a word."""
        super().__init__()
        self.widths = (bits,) if bits <= _MOST_OF_ONE else (bits - bits // 2, bits // 2)
        self.tables = nn.ParameterList(torch.zeros(1 << width, directions) for width in self.widths)

    def distances(self, vectors: Tensor) -> Tensor:
        """Squared distances of (N, d) vectors to all words, less their squared norms: (N, rows, ...)."""
        first, *second = ((table.square().sum(1), vectors @ table.T, table) for table in self.tables)
        away: Tensor = first[0] - 2 * first[1]
        for squares, products, table in second:
            pairs = 2 * first[2] @ table.T
            away = away[:, :, None] + (squares - 2 * products)[:, None] + pairs
        return away

    def margins(self, vectors: Tensor) -> Tensor:
        """(N, d) -> (N, b): how much nearer the nearest word with this bit is than that without it.

        So the signs are the bits of the nearest word, the highest first, and a small margin may turn.
        """
        away, margins = self.distances(vectors), []
        for place, width in enumerate(self.widths):
            rows = away if away.ndim == 2 else away.amin(2 - place)
            for bit in range(width):
                least = rows.unflatten(1, (1 << bit, 2, -1)).amin((1, 3))  # (N, 2), without it and with it
                margins.append(least[:, 0] - least[:, 1])
        return torch.stack(margins, 1)

    def nearest(self, vectors: Tensor) -> Tensor:
        """(N, d) -> (N, d), the nearest words, with the gradients of the tables."""
        rows = self.distances(vectors.detach()).flatten(1).argmin(1)
        parts = torch.unravel_index(rows, [len(table) for table in self.tables])
        words = [table[part] for table, part in zip(self.tables, parts, strict=True)]
        return torch.stack(words).sum(0)


class CodeNetwork(nn.Module):
    """An encoder, a linear layer, batch norm without scale and shift, and tanh; or a codebook in their place.

    Source: ours. Batch norm without scale and shift keeps each number's mean over training images at 0, so
    its sign is the most informative bit. Before a codebook, the linear layer's output has unit length.
    (N, C, H, W) float32 -> (N, d) float32. State: its weights.
    """

    common: Tensor | None  # (2^d, d) int8, the signs that are sent for each code

    def __init__(
        self,
        encoder: nn.Module,
        size: int,
        *,
        dimension: int,
        side: int | None = None,
        mirrored: bool = False,
        directions: int | None = None,
        common: bool = False,
    ) -> None:
        """`encoder`: images to (N, size); `dimension`: d; `side`: to which images are shrunk, or None.

        `mirrored`: whether outputs are means of those for an image and its mirror image; `directions`: the
        numbers of a word of a codebook, whose bits d counts; None without one; `common`: whether a table says
        what is sent for each code, so that none is rare.
        """
        super().__init__()
        self.encoder, self.dimension, self.side, self.mirrored = encoder, dimension, side, mirrored
        self.project = nn.Linear(size, directions or dimension)
        self.norm = None if directions else nn.BatchNorm1d(dimension, affine=False)
        self.codebook = Codebook(dimension, directions) if directions else None
        self.register_buffer("common", torch.zeros(1 << dimension, dimension).char() if common else None)

    def encode(self, images: Tensor) -> Tensor:
        """(N, D) float32 of float images: the encoder's output, before the code."""
        images = self.shrink(images)
        outputs: Tensor = self.encoder(images).float()
        return (outputs + self.encoder(images.flip(3)).float()) / 2 if self.mirrored else outputs

    def shrink(self, images: Tensor) -> Tensor:
        """(N, C, h, w) of float images: the encoder's input."""
        if self.side is None:
            return images
        return functional.interpolate(
            images, (self.side, self.side), mode="bilinear", align_corners=False, antialias=True
        )

    def forward(self, images: Tensor) -> Tensor:
        """The numbers of float images; their signs are bits. Layers after the encoder are in float32."""
        return self.code(self.encode(images))

    def code(self, outputs: Tensor) -> Tensor:
        """The numbers for the result of `encode`, see `numbers`."""
        return self.numbers(self.vectors(outputs))

    def numbers(self, vectors: Tensor) -> Tensor:
        """(N, d) of `vectors`: from -1 to 1, or margins of a codebook; their signs are never a rare code."""
        with float32(vectors.device):
            numbers = vectors if self.codebook is None else self.codebook.margins(vectors)
            if self.common is None:
                return numbers
            places = 2.0 ** torch.arange(self.dimension - 1, -1, -1, device=numbers.device)
            codes = self.common[((numbers > 0).float() @ places).long()]
            # As sure as the least sure bit; but not 0 or no number, whose signs would be the first code.
            least = numbers.abs().amin(1, keepdim=True)
            return codes * torch.where(least > 1e-6, least, 1e-6)

    def vectors(self, outputs: Tensor) -> Tensor:
        """What `code` is made of: the numbers, or the unit vector that a codebook has a word for."""
        with float32(outputs.device):
            numbers = self.project(outputs)
            return functional.normalize(numbers) if self.norm is None else torch.tanh(self.norm(numbers))


def make_code_network(
    encoder: str,
    shape: tuple[int, int, int],
    *,
    seed: int | None = None,
    side: int | None = None,
    **sizes: Any,
) -> CodeNetwork:
    """Makes the network of an encoder of `classifiers.make_encoder` for images of (C, H, W).

    `seed` decides the initial weights; None if others replace these at once; the others are of CodeNetwork.
    Raises DataError for images that are too small for the encoder.
    """
    channels, height, width = shape
    size = (height, width) if side is None else (side, side)
    with initial_weights(seed):
        network = make_encoder(encoder, channels)
        if isinstance(network, PretrainedEncoder):
            outputs = network.encoder.dimension
        else:
            with torch.no_grad():
                outputs = network.eval()(torch.zeros(1, channels, *size)).shape[1]
        return CodeNetwork(network.train(), outputs, side=side, **sizes)
