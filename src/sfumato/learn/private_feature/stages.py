"""Between the stages of Procedure 1: the start of a later one, its pairs, and the final statistics."""

from typing import Any

import torch
from torch import Tensor, nn

from sfumato.base.hardware import device_of
from sfumato.errors import ConfigError, DataError
from sfumato.learn.method import as_input
from sfumato.learn.private_feature.config import VARIANTS, config_of
from sfumato.learn.private_feature.model import BATCH, FeatureModel


def pair(order: Tensor, identities: Tensor, *, batch: int, pairs: int, draw: torch.Generator) -> list[Tensor]:
    """The rows of batches in which some images have another one of the same identity.

    Promises: without the last `pairs` of each batch, every row occurs once, except a rest that is
    smaller than a batch; these last have the identities of the first that have another image, in turn.

    Args:
        order: (N,), the rows, shuffled.
        identities: (N,), the identity of each row.
        batch: rows of a batch, all together.
        pairs: P.
        draw: chooses among the images of an identity.
    """
    _, codes, counts = identities.unique(return_inverse=True, return_counts=True)
    by_identity = codes.argsort(stable=True)
    rank = by_identity.argsort()  # of a row there
    starts = counts.cumsum(0) - counts
    size = min(batch - pairs, len(order))
    batches = []
    for rows in order[: len(order) // size * size].split(size):
        known = rows[counts[codes[rows]] > 1]
        if not len(known):
            continue  # nobody occurs twice: nothing to learn about one identity
        anchors = known.repeat(-(-pairs // len(known)))[:pairs]
        of, start = counts[codes[anchors]], starts[codes[anchors]]
        # One of the others: from 1 to n - 1 steps further, round in a ring.
        step = 1 + (torch.rand(len(anchors), generator=draw) * (of - 1)).long()
        batches.append(torch.cat([rows, by_identity[start + (rank[anchors] - start + step) % of]]))
    return batches


@torch.no_grad()
def embed(model: FeatureModel, images: Tensor) -> None:
    """Begins the auto-encoder with the principal components of the layer's output on some images.

    Source: Osia et al. 2018, Procedure 1. Promises: with as many dimensions as the output has, the network
    computes the same as without auto-encoder; with fewer, decoder and encoder are the best linear ones.

    Raises:
        DataError: the images have no more directions than N - 1, and the feature has.
    """
    model.eval()
    device = device_of(model)
    parts = [model.device.extractor(as_input(part, device)).flatten(1) for part in images.split(BATCH)]
    outputs = torch.cat(parts).double()  # (N, D)
    dimension = model.device.encoder.out_features
    if dimension > len(outputs) - 1:
        raise DataError(
            f"{len(outputs)} images have {len(outputs) - 1} principal components, and the feature "
            f"{dimension} dimensions: give more images, or choose a smaller dimension"
        )
    mean = outputs.mean(0)
    centred = outputs - mean
    if len(outputs) >= outputs.shape[1]:
        values, vectors = torch.linalg.eigh(centred.T @ centred / len(outputs))
    else:  # the same directions, from a smaller matrix
        values, vectors = torch.linalg.eigh(centred @ centred.T / len(outputs))
        vectors = centred.T @ vectors[:, -dimension:]
        # Similar images may have no further direction: orthonormal ones all the same.
        vectors = torch.linalg.qr(vectors.flip(1)).Q.flip(1)
    values, vectors = values[-dimension:].flip(0).clamp(min=0), vectors[:, -dimension:].flip(1)
    encoder, norm, decoder = model.device.encoder, model.device.norm, model.cloud.decoder
    encoder.weight.copy_(vectors.T)
    encoder.bias.copy_(-mean @ vectors)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.zero_()
    norm.running_var.copy_(values)
    decoder.weight.copy_(vectors * (values + norm.eps).sqrt())  # undoes the batch norm
    decoder.bias.copy_(mean)


@torch.no_grad()
def settle(model: FeatureModel, images: Tensor, *, batch: int) -> None:
    """Gives every batch norm its statistics over some images, with the present weights.

    Running averages lag behind weights that still move. The loss of Eq. (7) moves its own input,
    a feature of variance 1, and a lag that is harmless to a classifier makes features of another variance.
    """
    norms = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean over all batches
    model.train()
    for part in images.tensor_split(-(-len(images) // batch)):
        model.outputs(as_input(part, device_of(model)))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.eval()


def measure(model: FeatureModel, images: Tensor) -> None:
    """Gives a model C of Procedure 2, of the features of (N, C, H, W) uint8 images; a network has none."""
    if model.is_network:
        return
    features = model.features(images).double()
    model.device.covariance.copy_(features.T.cov().reshape_as(model.device.covariance))


# The settings of a stage and those after it.
_OF_LATER_STAGES = {
    "simple": {"variant", "beta", "private_epochs", "pairs"},
    "network": {"variant", "beta", "private_epochs", "pairs", "simple_epochs", "cut", "dimension"},
}


def begin_with(begin: FeatureModel, model: FeatureModel) -> int:
    """Gives a model the weights of one of an earlier stage; returns the epochs of that one.

    Raises:
        ConfigError: it is of other data or settings, or not of an earlier stage.
    """
    check_begin(begin.card, model.card)
    take_over(begin, model)
    model.card["begun"] = begin.card["config"]["variant"]
    return config_of(begin.card).epochs


def check_begin(begun: dict[str, Any], card: dict[str, Any]) -> None:
    """Raises ConfigError unless the one is the card of the other before its later stages."""
    variant, asked = begun["config"]["variant"], card["config"]["variant"]
    if variant not in _OF_LATER_STAGES or VARIANTS.index(variant) >= VARIANTS.index(asked):
        raise ConfigError(
            f"a {asked} model cannot begin with a {variant} one: begin with a network, or a simple model "
            "if there are stages after it"
        )

    def settings(of: dict[str, Any]) -> dict[str, Any]:
        config = {name: v for name, v in of["config"].items() if name not in _OF_LATER_STAGES[variant]}
        config |= {name: of[name] for name in ("shape", "classes", "sensitive", "seed", "precision")}
        return config | {"data": of["data"]["digest"]}

    theirs, ours = settings(begun), settings(card)
    differ = [name for name in ours if theirs[name] != ours[name]]
    if differ:
        raise ConfigError(
            f"a model to begin with of {differ[0]}={theirs[differ[0]]}, and {ours[differ[0]]} is wanted: "
            "train both with the same data and settings"
        )


def take_over(begin: FeatureModel, model: FeatureModel) -> None:
    """Gives a model the weights of one of an earlier stage, which may be cut elsewhere if it is a network."""
    if not begin.is_network:
        model.load_state_dict(begin.state_dict())
        return
    weights = begin.device.extractor.state_dict() | begin.cloud.analyser.state_dict()
    for half in (model.device.extractor, model.cloud.analyser):
        half.load_state_dict({name: weights[name] for name in half.state_dict()})
