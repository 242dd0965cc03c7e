"""The training of private features: Procedure 1 of Osia et al. 2018, stage by stage."""

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from sfumato.base.hardware import autocast, device_of, to_device
from sfumato.data.labelled import LabelledImages
from sfumato.episodes import seed_of
from sfumato.errors import DataError
from sfumato.learn.fit import Progress, Run, adam, fit
from sfumato.learn.method import as_input, check_apart, classes_of, count_in_words, training_card
from sfumato.learn.private_feature.config import FeatureConfig
from sfumato.learn.private_feature.losses import (
    information_bound,
    log_rank_loss,
    privacy_loss,
    reverse_gradient,
    silverman,
)
from sfumato.learn.private_feature.model import (
    LEARNER,
    FeatureModel,
    codes_of,
    evaluate,
    make_untrained,
)
from sfumato.learn.private_feature.stages import begin_with, embed, measure, pair, settle
from sfumato.networks.weights import initial_weights

_CHECKPOINT = "private feature checkpoint"
_PCA_IMAGES = 2048  # the most images for the principal components
_ADVERSARY_WIDTH = 128
_LOSSES = {"dpfe": privacy_loss, "log-rank": log_rank_loss}  # that need no adversary


def train(
    data: LabelledImages,
    config: FeatureConfig,
    *,
    targets: Sequence[str],
    sensitive: str,
    validation: LabelledImages | None = None,
    begin: FeatureModel | None = None,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    losses: Callable[[Tensor], None] | None = None,
    device: torch.device | None = None,
) -> FeatureModel:
    """Trains by Procedure 1 and returns the model of the last epoch.

    Args:
        data: clean images to train on.
        targets: the labels to keep.
        sensitive: the label to remove.
        validation: other images, whose accuracies go on the card; their identities may be new.
        begin: a model of the variant "network" or "simple", of the same data, seed and settings except those
            of later stages. Only these are then trained, with a new optimiser.
        seed, checkpoint, progress, losses, device: see learn.method.

    Raises:
        DataError: no target or one with fewer than two classes, a target that is also sensitive, no identity
            with two images, images that are too small, or classes that are only in `validation`.
        ConfigError: no such layer, or one whose output has fewer dimensions than the feature; or an
            unsuitable `begin`.
    """
    card = training_card(
        data,
        {**asdict(config), "widths": list(config.widths)},
        seed=seed,
        precision=config.precision,
        device=device,
        shape=list(data.images.shape[1:]),
        classes=trainable(data, config, targets, sensitive, validation),  # fails now, not after training
        sensitive=sensitive,
        validation=None if validation is None else validation.digest,
    )
    model = make_untrained(card, seed=seed)
    codes = codes_of(model, data)
    _, identities = data.label(sensitive).codes.unique(return_inverse=True)
    done = 0 if begin is None else begin_with(begin, model)
    if config.variant in ("adversarial", "information"):
        model.adversary = _adversary(config.dimension, int(identities.max()) + 1, seed=seed)
    run = Run(model, adam(config.learning_rate), kind=_CHECKPOINT, identity=model.card, device=device)
    run.epoch, sigma = done, silverman(len(data), config.dimension)

    def batches(epoch: int) -> Sequence[Tensor]:
        draw, order = _order(data, seed, epoch)
        if epoch == config.attribute_epochs:
            embed(model, data.images[order[:_PCA_IMAGES]])
        if config.stage(epoch) in ("network", "simple"):
            return order.tensor_split(-(-len(data) // config.batch))
        return pair(order, identities, batch=config.batch, pairs=config.pairs, draw=draw)

    def step(rows: Tensor) -> Tensor:
        batch = (data.images[rows], codes[rows], identities[rows])
        return run.minimise(stage_loss(model, config, config.stage(run.epoch), *batch, sigma=sigma))

    fit(
        run,
        batches,
        step,
        epochs=config.epochs,
        checkpoint=checkpoint,
        progress=progress,
        losses=losses,
    )
    model.adversary = None
    card["epochs"] = run.epoch
    settle(model, data.images[_order(data, seed, config.epochs)[1]], batch=config.batch)
    measure(model, data.images)
    card["accuracies"] = None if validation is None else evaluate(model, validation)
    return model


def trainable(
    data: LabelledImages,
    config: FeatureConfig,
    targets: Sequence[str],
    sensitive: str,
    *others: LabelledImages | None,
) -> dict[str, list[str]]:
    """Target -> its classes, if a feature can be trained on the images. Raises DataError: see train."""
    if not targets:
        raise DataError("no target: name the labels that the feature should keep")
    check_apart(data, targets, [sensitive], "feature")
    # Sorted, as on an artefact's card: the order is that of the network's outputs.
    classes = {target: list(classes_of(data, target, LEARNER, *others)) for target in sorted(targets)}
    _, counts = data.label(sensitive).codes.unique(return_counts=True)
    if config.variant not in ("network", "simple") and (len(counts) < 2 or int(counts.max()) < 2):
        raise DataError(
            f"{data.name}: label {sensitive!r} has {count_in_words(len(counts))}, and the largest has "
            f"{int(counts.max())} images; removing it takes 2 classes and 2 images of one: "
            "choose another label, or add images"
        )
    return classes


def stage_loss(
    model: FeatureModel,
    config: FeatureConfig,
    stage: str,
    images: Tensor,
    codes: Tensor,
    identities: Tensor,
    *,
    sigma: float,
) -> Tensor:
    """The loss of a stage: the attributes' cross-entropies, and the privacy of the variant.

    Args:
        model, config: in training.
        stage: see FeatureConfig.stage.
        images: (B, C, H, W) uint8.
        codes: (B, T) int64, the class of each target.
        identities: (B,) int64.
        sigma: of the kernels, see losses.silverman.
    """
    device = device_of(model)
    codes, identities = to_device(codes, device), to_device(identities, device)
    with autocast(model.card["precision"], device):
        ready = as_input(images, device)
        if stage == "network":
            logits = model.without_feature(ready)
        else:
            features = model.device(ready)
            logits = model.cloud(features)
    heads = model.by_target(logits.float()).values()
    loss = torch.stack(
        [functional.cross_entropy(head, code) for head, code in zip(heads, codes.T, strict=True)]
    ).sum()
    if stage in ("network", "simple"):
        return loss
    if stage in _LOSSES:
        return loss + _LOSSES[stage](features, identities, beta=config.beta, sigma=sigma)
    adversary = model.adversary
    assert adversary is not None
    if stage == "adversarial":
        guesses = adversary(reverse_gradient(features, config.beta))
        return loss + functional.cross_entropy(guesses, identities)
    taught = functional.cross_entropy(adversary(features.detach()), identities)
    fixed = {name: value.detach() for name, value in adversary.named_parameters()}
    guesses = functional_call(adversary, fixed, (features,))  # it does not learn to know nothing
    return loss + (taught + config.beta * information_bound(guesses.log_softmax(1), identities))


def _order(data: LabelledImages, seed: int, epoch: int) -> tuple[torch.Generator, Tensor]:
    """The generator of an epoch, and the (N,) rows in the order that it draws first."""
    draw = torch.Generator().manual_seed(seed_of(seed, epoch))
    return draw, torch.randperm(len(data), generator=draw)


def _adversary(dimension: int, identities: int, *, seed: int) -> nn.Module:
    with initial_weights(seed):
        return nn.Sequential(
            nn.Linear(dimension, _ADVERSARY_WIDTH), nn.ReLU(), nn.Linear(_ADVERSARY_WIDTH, identities)
        )
