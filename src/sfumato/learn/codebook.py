"""The start of a codebook: directions in which classes differ, and words among the images of all classes.

Source: linear discriminant analysis (Fisher 1936) for the directions; k-means (Lloyd 1982) for the words,
from the start of Arthur & Vassilvitskii 2007 (k-means++); a second table has words of the remainder.
Ours: directions are weighted, and words are of mixtures of two images, since new classes lie between others.
"""

import torch
from torch import Tensor

from sfumato.base.hardware import to_device
from sfumato.networks.code import CodeNetwork
from sfumato.networks.encoders.pretrained import PretrainedEncoder, Whitened

_MIXTURES, _ROUNDS = 8000, 12  # of k-means
_POWER = 2  # of a direction's share of variance between classes


@torch.no_grad()
def fit_codebook(network: CodeNetwork, outputs: Tensor, classes: Tensor, *, seed: int) -> None:
    """Fits the directions and the words of a network to (n, D) outputs of its encoder, of (n,) classes.

    A direction is scaled by (b / (b + w))²: the variances of the means of classes, and within classes. Of
    probabilities of classes it is one of most variance, as it is.
    """
    codebook, draw = network.codebook, torch.Generator().manual_seed(seed)
    assert codebook is not None
    outputs, device = outputs.cpu(), outputs.device
    matrix = torch.eye(outputs.shape[1])  # for an encoder that whitens
    if not isinstance(network.encoder, PretrainedEncoder):
        spread, whitened = outputs.std(0).clamp(min=1e-6), Whitened(outputs.shape[1])
        whitened.fit(outputs / spread, classes)
        matrix = whitened.matrix / spread[:, None]
    white = outputs @ matrix
    names, places = classes.unique(return_inverse=True)
    sums = torch.zeros(len(names), white.shape[1]).index_add_(0, places, white)
    means, count = sums / places.bincount()[:, None], network.project.out_features
    even = isinstance(network.encoder, PretrainedEncoder) and network.encoder.of_classes
    rows = white if even else means
    values, rows = torch.linalg.svd(rows - rows.mean(0), full_matrices=False)[1:]
    between, rows = values[:count].square() / len(names), rows[:count]
    within = ((white - means[places]) @ rows.T).square().mean()
    scales = torch.ones(count) if even else (between / (between + within)).pow(_POWER)
    weights = scales[:, None] * rows @ matrix.T
    network.project.weight.copy_(weights)
    network.project.bias.copy_(-weights @ outputs.mean(0).to(weights))
    pairs = torch.randint(len(outputs), (2, _MIXTURES), generator=draw)
    one, other = outputs[pairs]
    mixed = torch.lerp(one, other, torch.rand(_MIXTURES, 1, generator=draw))
    left = network.vectors(to_device(mixed, device)).cpu()
    for table in codebook.tables:
        words = k_means(left, len(table), draw)
        left = left - words[nearest(left, words)]
        table.copy_(words)


def k_means(rows: Tensor, count: int, draw: torch.Generator) -> Tensor:
    """(n, d) rows, of at least `count` different ones -> (count, d) means of clusters, no two the same."""
    chosen = torch.randint(len(rows), (1,), generator=draw)
    away = (rows - rows[chosen]).square().sum(1)
    for _ in range(count - 1):
        another = torch.multinomial(away, 1, generator=draw)
        chosen = torch.cat([chosen, another])
        away = torch.minimum(away, (rows - rows[another]).square().sum(1))
    words = rows[chosen]
    for _ in range(_ROUNDS):
        own = nearest(rows, words)
        counts = own.bincount(minlength=count)[:, None]
        sums = torch.zeros_like(words).index_add_(0, own, rows)
        words = torch.where(counts > 0, sums / counts.clamp(min=1), words)
    return words


def nearest(rows: Tensor, words: Tensor) -> Tensor:
    """The nearest word of each row: (n, d) and (K, d) -> (n,) int64."""
    return (words.square().sum(1) - 2 * rows @ words.T).argmin(1)
