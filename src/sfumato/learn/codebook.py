"""The start of a codebook: directions in which classes differ, and words among the images of all classes.

Source: linear discriminant analysis (Fisher 1936) for the directions; k-means (Lloyd 1982) for the words,
from the start of Arthur & Vassilvitskii 2007 (k-means++); a second table has words of the remainder.
Ours: directions are weighted, and words are of mixtures of two images, since new classes lie between others;
of probabilities of classes, words are also of mixtures of the classes that the encoder knows.
"""

import torch
from torch import Tensor
from torch.nn import functional

from sfumato.base.hardware import to_device
from sfumato.networks.code import CodeNetwork
from sfumato.networks.encoders.pretrained import PretrainedEncoder, Whitened

_MIXTURES, _ROUNDS = 8000, 12  # of k-means
_OF_CLASSES = 16_000  # mixtures of the encoder's classes
_LEAST = 1e-6  # root of a probability
_POWER = 2  # of a direction's share of variance between classes


@torch.no_grad()
def fit_codebook(network: CodeNetwork, outputs: Tensor, classes: Tensor, *, seed: int) -> None:
    """Fits the directions and the words of a network to (n, D) outputs of its encoder, of (n,) classes.

    A direction is scaled by (b / (b + w))²: the variances of the means of classes, and within classes. If the
    outputs are probabilities of classes, it is one of most variance, as it is.
    """
    codebook, draw = network.codebook, torch.Generator().manual_seed(seed)
    assert codebook is not None
    outputs, device = outputs.cpu(), outputs.device
    matrix = torch.eye(outputs.shape[1])  # for an encoder that whitens
    known = network.encoder if isinstance(network.encoder, PretrainedEncoder) else None
    if known is None:
        spread, whitened = outputs.std(0).clamp(min=1e-6), Whitened(outputs.shape[1])
        whitened.fit(outputs / spread, classes)
        matrix = whitened.matrix / spread[:, None]
    white = outputs @ matrix
    places = classes.unique(return_inverse=True)[1]
    means, count = _means(white, places), network.project.out_features
    even = known is not None and known.of_classes
    rows = white if even else means
    values, rows = torch.linalg.svd(rows - rows.mean(0), full_matrices=False)[1:]
    between, rows = values[:count].square() / len(means), rows[:count]
    within = ((white - means[places]) @ rows.T).square().mean()
    scales = torch.ones(count) if even else (between / (between + within)).pow(_POWER)
    weights = scales[:, None] * rows @ matrix.T
    network.project.weight.copy_(weights)
    network.project.bias.copy_(-weights @ outputs.mean(0).to(weights))
    pairs = torch.randint(len(outputs), (2, _MIXTURES), generator=draw)
    one, other = outputs[pairs]
    mixed = torch.lerp(one, other, torch.rand(_MIXTURES, 1, generator=draw))
    if known is not None and even:
        mixed = torch.cat([mixed, _mix_known(outputs, places, known.encoder.centre.cpu(), draw)])
    left = network.vectors(to_device(mixed, device)).cpu()
    for table in codebook.tables:
        words = k_means(left, len(table), draw)
        left = left - words[nearest(left, words)]
        table.copy_(words)


def _mix_known(outputs: Tensor, places: Tensor, centre: Tensor, draw: torch.Generator) -> Tensor:
    """Outputs as if images showed mixtures of two of the D classes that the encoder knows: (m, D).

    To the mean of all logits a known class adds its row of their covariance within the training's classes, as
    long as these are far from that mean; an image adds what it differs by from its class.
    """
    ahead = functional.normalize(outputs)
    along = ahead @ centre
    reach = (along.square() + 1 - centre.square().sum()).sqrt() - along
    logits = (centre + reach[:, None] * ahead).clamp(min=_LEAST).log()  # roots have unit length
    logits -= logits.mean(1, keepdim=True)
    means = _means(logits, places)
    about, far = logits - means[places], (means - means.mean(0)).norm(dim=1).mean()
    known = about.T @ about
    known = far * functional.normalize(known - known.mean(0) - known.mean(1, keepdim=True))
    one, other = known[torch.randint(len(known), (2, _OF_CLASSES), generator=draw)]
    mixed = torch.lerp(one, other, 0.5 * torch.rand(_OF_CLASSES, 1, generator=draw))
    mixed += means.mean(0) + about[torch.randint(len(about), (_OF_CLASSES,), generator=draw)]
    roots = functional.normalize(mixed.exp())
    length: Tensor = outputs.norm(dim=1).mean()
    return length * functional.normalize(roots - centre)


def _means(rows: Tensor, places: Tensor) -> Tensor:
    """The mean of each class: (n, D), and their (n,) numbers -> (C, D)."""
    counts = places.bincount()[:, None]
    return torch.zeros(len(counts), rows.shape[1]).index_add_(0, places, rows) / counts


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
