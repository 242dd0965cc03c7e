"""DPFE: features that keep attributes of an image and lose who it shows.

Source: Osia et al. 2018 (docs/papers.md, "DPFE"), Procedure 1. An attribute network is trained and cut at a
layer; a linear auto-encoder, begun with the principal components of that layer's output, is put in between;
its normalised hidden layer is the private feature. Fine-tuned for the attributes, that is the paper's Simple
model; fine-tuned further by Eq. (7), the DPFE model. What comes before the feature runs on the device, what
comes after it in the cloud.

Where the paper is silent: every batch of DPFE fine-tuning has a number of pairs of one identity; the last
epoch is kept, since the most accurate one would be the least private; the convolutions are not frozen; and in
the end every batch norm takes its statistics of the training images.

Beyond the paper, in place of Eq. (7): `variant="adversarial"` reverses the gradient of a network that names
identities (Ganin & Lempitsky 2015); `variant="information"` minimises what such a network says of the mutual
information of feature and identity (Cheng et al. 2020).
"""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from sfumato import artefacts
from sfumato.data.labelled import LabelledImages
from sfumato.episodes import seed_of
from sfumato.errors import ConfigError, DataError
from sfumato.images import check_batch, to_float
from sfumato.learn import epochs
from sfumato.learn.batch_norm import of_whole_batches
from sfumato.learn.cards import Precision, kind_of
from sfumato.learn.devices import ALONE, Devices
from sfumato.learn.epochs import Epochs
from sfumato.networks.weights import initial_weights
from sfumato.precision import autocast, resolve
from sfumato.protect.feature import KIND, DeviceSide, FeatureCard, untrained_sides

VARIANTS = ("network", "simple", "dpfe", "adversarial", "information")

_CHECKPOINT = "private feature checkpoint"
_LEARNER = "private feature"
_BATCH = 256
_PCA_IMAGES = 2048  # from so many at most the principal components are computed
_ADVERSARY_WIDTH = 128


@dataclass(frozen=True, kw_only=True)
class FeatureConfig:
    """How a private feature is trained. The paper gives `dimension`, the networks, and Adam.

    Attributes:
        widths: of the attribute network, see TinyDarknet.
        cut: the layer whose output is encoded; conv4_2, conv5_1, conv6_1 and conv7 in the paper.
        dimension: d, of the feature.
        variant: "network" stops after the first stage, and has no feature yet; "simple" stops before the
            last; "dpfe", "adversarial" and "information" say what that is.
        beta: the weight of privacy in the last stage. Of "dpfe" it is β/N of Eq. (7): the attributes' loss is
            its mean over a batch here, and their sum there. Of "adversarial" it is what the gradient is
            reversed with; of "information" it multiplies the bound, in nats.
        attribute_epochs: the first stage, of the network without auto-encoder.
        simple_epochs: the second stage, for the attributes alone.
        private_epochs: the last stage, which "simple" has not.
        batch: images a step. There is no accumulation over parts of a batch, of which batch norm and Eq. (7)
            would see each by itself. Devices can share it.
        pairs: so many images of a batch, in the last stage, are there for one of the same identity. Eq. (7)
            has them as chance would: hardly any, with many identities.
        learning_rate: of Adam.
        precision: see `sfumato.precision`.
    """

    widths: tuple[int, ...] = (16, 32, 64, 128, 128, 64, 64)
    cut: str = "conv7"
    dimension: int = 10
    variant: str = "dpfe"
    beta: float = 0.1
    attribute_epochs: int = 20
    simple_epochs: int = 5
    private_epochs: int = 10
    batch: int = 64
    pairs: int = 16
    learning_rate: float = 1e-3
    precision: str = "auto"

    def __post_init__(self) -> None:
        if len(self.widths) != 7 or min(self.widths) < 1:
            raise ConfigError(f"widths={self.widths}: seven numbers of at least 1, as TinyDarknet takes them")
        if self.variant not in VARIANTS:
            raise ConfigError(f"variant={self.variant}: choose {', '.join(VARIANTS)}")
        if not 0 <= self.beta < math.inf:
            raise ConfigError(f"beta={self.beta:g}: at least 0, for no privacy")
        for name in ("dimension", "attribute_epochs", "simple_epochs", "private_epochs", "pairs"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)}: at least 1")
        least = max(4, 2 * self.pairs)
        if self.batch < least:
            raise ConfigError(
                f"batch={self.batch}: at least {least}, for pairs={self.pairs} and for batch norm"
            )
        if not 0 < self.learning_rate < math.inf:
            raise ConfigError(f"learning_rate={self.learning_rate:g}: above 0 (such as 0.001)")
        resolve(self.precision)

    @property
    def epochs(self) -> int:
        """Of all stages."""
        stages = (self.attribute_epochs, self.simple_epochs, self.private_epochs)
        return sum(stages[: {"network": 1, "simple": 2}.get(self.variant, 3)])

    def stage(self, epoch: int) -> str:
        """The stage of an epoch, counted from 0: "network", "simple", or the variant."""
        if epoch < self.attribute_epochs:
            return "network"
        return "simple" if epoch < self.attribute_epochs + self.simple_epochs else self.variant


def privacy_loss(features: Tensor, identities: Tensor, *, beta: float, sigma: float) -> Tensor:
    """β / (2σN²) · [Σ_{y_i≠y_j} |f_i - f_j|² + Σ_{y_i=y_j} (c - |f_i - f_j|²)], over pairs of a batch.

    Source: Osia et al. 2018, Eq. (7), second term, with i and j in both orders, as the paper's U2 in Eq. (5)
    has them, and i ≠ j. Its B.3 is an identity with each pair once: β here is half of β there. c =
    2dN(N - 1) / k, k the number of pairs of one identity (Appendix B.4): it has no
    gradient, and makes both sums estimates of the same.

    Promises: its gradient pulls images of different identities together, and pushes images of one apart.

    Args:
        features: (N, d), of variance 1.
        identities: (N,).
        beta: β.
        sigma: σ, the variance of the kernels.
    """
    count, dimension = features.shape
    # Of differences: |f|² + |g|² - 2fg would lose the digits of near features, which the loss is about.
    squares = (features[:, None] - features[None]).square().sum(2)  # (N, N), 0 for i = j
    same = identities[:, None] == identities[None]
    pairs = same.sum() - count
    total = torch.where(same, -squares, squares).sum()
    constant = torch.where(pairs > 0, 2.0 * dimension * count * (count - 1), 0.0)  # c·k
    return beta / (2 * sigma * count**2) * (total + constant)


def silverman(count: int, dimension: int) -> float:
    """σ of Eq. (7): the variance of Gaussian kernels for N features of variance 1, by Silverman's rule."""
    return float((4 / (count * (dimension + 2))) ** (2 / (dimension + 4)))


def information_bound(log_posteriors: Tensor, identities: Tensor) -> Tensor:
    """1/N Σ_i [ln q(y_i|f_i) - 1/N Σ_j ln q(y_j|f_i)], in nats: CLUB, of feature and identity.

    Source: Cheng et al. 2020, "CLUB: a contrastive log-ratio upper bound of mutual information", Eq. (14).
    An upper bound where q is the true posterior, and an estimate where it was learned.

    Args:
        log_posteriors: (N, c), ln q of each identity.
        identities: (N,).
    """
    right = log_posteriors.gather(1, identities[:, None])[:, 0]
    return (right - log_posteriors[:, identities].mean(1)).mean()


def reversed_gradient(features: Tensor, beta: float) -> Tensor:
    """The same numbers, whose gradient is multiplied by -β. Ganin & Lempitsky 2015, Eq. (13)."""
    return features.detach() * (1 + beta) - beta * features


def paired(
    order: Tensor, identities: Tensor, *, batch: int, pairs: int, draw: torch.Generator
) -> list[Tensor]:
    """The rows of batches in which some images have another one of the same identity beside them.

    Promises: leaving out the last `pairs` of each batch, every row occurs once, but for a rest that is
    smaller than a batch; these last are of the identities of the first that have another image, in turn.

    Args:
        order: (N,), the rows, shuffled.
        identities: (N,), the identity of each row.
        batch: rows of a batch, all together.
        pairs: P.
        draw: chooses among the images of an identity.
    """
    _, codes, counts = identities.unique(return_inverse=True, return_counts=True)
    by_identity = codes.argsort(stable=True)
    place = by_identity.argsort()  # where a row stands there
    starts = counts.cumsum(0) - counts
    size = min(batch - pairs, len(order))
    batches = []
    for rows in order[: len(order) // size * size].split(size):
        known = rows[counts[codes[rows]] > 1]
        if not len(known):
            continue  # nobody is there twice: nothing to learn of one identity
        anchors = known.repeat(-(-pairs // len(known)))[:pairs]
        of, start = counts[codes[anchors]], starts[codes[anchors]]
        # One of the others: from 1 to n - 1 places further, round in a ring.
        step = 1 + (torch.rand(len(anchors), generator=draw) * (of - 1)).long()
        batches.append(torch.cat([rows, by_identity[start + (place[anchors] - start + step) % of]]))
    return batches


class CloudSide(nn.Module):
    """The network after the private feature. State: its weights. (N, d) -> (N, outputs) logits.

    Attributes:
        decoder: linear, from the feature to what the layer put out.
        analyser: the layers after the cut.
    """

    def __init__(self, analyser: nn.Module, between: torch.Size, *, dimension: int) -> None:
        super().__init__()
        self.decoder = nn.Linear(dimension, between.numel())
        self.analyser = analyser
        self._between = between

    def forward(self, features: Tensor) -> Tensor:
        """The logits of all attributes, one after the other."""
        return torch.as_tensor(self.analyser(self.decoder(features).unflatten(1, self._between)))


class FeatureModel(nn.Module):
    """A device side that extracts a private feature, and a cloud side that reads attributes from it.

    State: their weights, and those of an adversary while it is trained.

    Attributes:
        card: what is known of its making: settings, data digest, accuracies.
    """

    def __init__(self, device: DeviceSide, cloud: CloudSide, *, card: dict[str, Any]) -> None:
        super().__init__()
        self.device = device
        self.cloud = cloud
        self.card = card
        self.adversary: nn.Module | None = None
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @property
    def classes(self) -> dict[str, tuple[str, ...]]:
        """Target -> the names that it is one of."""
        return {target: tuple(names) for target, names in self.card["classes"].items()}

    @property
    def covariance(self) -> Tensor:
        """(d, d), of the features of the training images: C of Procedure 2."""
        return self.device.covariance

    @torch.no_grad()
    def features(self, images: Tensor) -> Tensor:
        """(N, C, H, W) uint8 -> (N, d) float32, without noise. Raises DataError for other sizes."""
        check_batch(images)
        self._check(images)
        if self.is_network:
            raise ConfigError("a network without auto-encoder has no feature: train a simple variant of it")
        self.eval()
        place = _place(self)
        return torch.cat([self.device(_ready(part, place)) for part in images.split(_BATCH)]).to(
            images.device
        )

    @property
    def is_network(self) -> bool:
        """Whether this is the attribute network alone, before there is a feature."""
        return bool(self.card["config"]["variant"] == "network")

    def outputs(self, images: Tensor) -> Tensor:
        """(N, C, H, W) float32 -> (N, outputs) logits of all attributes, in the mode that it is in."""
        return (
            self.without_feature(images)
            if self.is_network
            else torch.as_tensor(self.cloud(self.device(images)))
        )

    def without_feature(self, images: Tensor) -> Tensor:
        """The same by the attribute network alone, past the auto-encoder."""
        return torch.as_tensor(self.cloud.analyser(self.device.extractor(images)))

    @torch.no_grad()
    def classify(self, images: Tensor) -> dict[str, Tensor]:
        """(N, C, H, W) uint8 -> target -> (N, classes) float32 logits, by the whole of it, without noise.

        Raises DataError for other sizes.
        """
        self._check(images)
        self.eval()
        place = _place(self)
        logits = torch.cat([self.outputs(_ready(part, place)) for part in images.split(_BATCH)])
        return self.by_target(logits.to(images.device))

    def _check(self, images: Tensor) -> None:
        check_batch(images)
        if list(images.shape[1:]) != list(self.card["shape"]):
            found, wanted = ("x".join(map(str, each)) for each in (images.shape[1:], self.card["shape"]))
            raise DataError(f"images of {found}: this extractor was trained on {wanted}: resize them")

    @torch.no_grad()
    def attributes(self, features: Tensor) -> dict[str, Tensor]:
        """(N, d) features, noisy or not -> target -> (N, classes) float32 logits.

        Raises:
            ConfigError: this is a network, which reads no features.
            DataError: features of another dimension, or that are no finite numbers.
        """
        if self.is_network:
            raise ConfigError(
                "a network without auto-encoder reads no features: train a simple variant of it"
            )
        wanted = self.card["config"]["dimension"]
        if features.ndim != 2 or features.shape[1] != wanted:
            raise DataError(f"features of {tuple(features.shape)}: this model reads (N, {wanted})")
        if not features.isfinite().all():
            raise DataError("features that are no finite numbers: leave these images out")
        self.eval()
        place = _place(self)
        logits = torch.cat([self.cloud(part.to(place)) for part in features.split(_BATCH)])
        return self.by_target(logits.to(features.device))

    def by_target(self, logits: Tensor) -> dict[str, Tensor]:
        """(N, outputs) -> target -> its columns."""
        sizes = [len(names) for names in self.card["classes"].values()]
        return dict(zip(self.card["classes"], logits.split(sizes, dim=1), strict=True))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as an artefact, whose device side `protect.feature` applies."""
        artefacts.save(path, self.state_dict(), {"kind": KIND, **self.card})


class _Card(FeatureCard):
    """Of both sides: the device side asks for less."""

    config: FeatureConfig  # type: ignore[assignment]
    precision: Precision = "float32"  # of the training: a loaded model computes in float32


def load(path: str | os.PathLike[str]) -> FeatureModel:
    """Read a model that `FeatureModel.save` wrote. Raises ArtefactError: damaged, foreign, another kind."""
    return epochs.load_model(path, kind=KIND, schema=_Card, untrained=lambda card: untrained(card, seed=0))


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
    progress: Callable[[int, int], None] | None = None,
    losses: Callable[[float], None] | None = None,
    devices: Devices | None = None,
) -> FeatureModel:
    """Train by Procedure 1 and return the model of the last epoch.

    Args:
        data: clean images to train on.
        config: see FeatureConfig.
        targets: the labels to keep.
        sensitive: the label to remove.
        validation: other images, whose accuracies go on the card; their identities may be new.
        begin: a model of the variant "network" or "simple", of the same data, seed and settings but for those
            of later stages, which alone are trained then, with an optimiser that begins anew.
        seed: decides weights and order. The same seed, machine and thread count repeat a run.
        checkpoint: a file written after each epoch. Where it exists, training goes on from it, exactly as
            if it had not stopped; it is removed by the caller when no longer needed.
        progress: called after each epoch with the numbers done and planned.
        losses: called after each step with its loss.
        devices: where this is one of several processes, see `devices.launch`, that share the images of a
            batch. All are given the same data and settings, and return the same model; the first writes the
            checkpoint, which all can read. Losses, the pairs of Eq. (7), and batch norm are those of whole
            batches: they do not depend on how many processes there are, but for rounding.

    Raises:
        DataError: no target or one with fewer than two classes, a target that is also sensitive, no identity
            with two images, images that are too small, or classes that are in `validation` alone.
        ConfigError: no such layer, or one whose output has fewer dimensions than the feature; or `begin` is
            not what it has to be; or a step has fewer images than processes.
        ArtefactError: the checkpoint belongs to another run.
    """
    devices = devices or ALONE
    card: dict[str, Any] = {
        "config": {**asdict(config), "widths": list(config.widths)},
        "shape": list(data.images.shape[1:]),
        "classes": trainable(data, config, targets, sensitive),
        "sensitive": sensitive,
        "data": {"name": kind_of(data), "digest": data.digest, "images": len(data)},
        "validation": None if validation is None else validation.digest,
        "seed": seed,
        "precision": resolve(config.precision),
        "privacy_spent": None,  # of the TRAINING images: this method protects those of users, not these
    }
    model = untrained(card, seed=seed)
    codes = _codes(model, data)
    if validation is not None:
        _codes(model, validation)  # fails now, not after training
    _, identities = data.label(sensitive).codes.unique(return_inverse=True)
    if begin is not None:
        _check_begin(begin.card, card)
        _take_over(begin, model)
        model.card["begun"] = begin.card["config"]["variant"]
    if config.variant in ("adversarial", "information"):
        model.adversary = _adversary(config.dimension, int(identities.max()) + 1, seed=seed)
    devices.align(model)
    run = Training(model, config, sigma=silverman(len(data), config.dimension), devices=devices)
    if begin is not None:
        run.skip(config_of(begin.card).epochs)
    if checkpoint is not None and devices.of_first(Path(checkpoint).exists):
        run.resume(checkpoint)
    while run.epoch < config.epochs:
        draw = torch.Generator().manual_seed(seed_of(seed, run.epoch))
        order = torch.randperm(len(data), generator=draw)
        if run.epoch == config.attribute_epochs:
            embed(model, data.images[order[:_PCA_IMAGES]])
            devices.align(model)
        if config.stage(run.epoch) in ("network", "simple"):
            batches = list(order.tensor_split(-(-len(data) // config.batch)))
        else:
            batches = paired(order, identities, batch=config.batch, pairs=config.pairs, draw=draw)
        run.start_epoch()
        for rows in batches:
            loss = run.step(data.images[rows], codes[rows], identities[rows])
            if losses is not None:
                losses(loss.item())
        run.finish_epoch()
        if checkpoint is not None and devices.first:
            run.save(checkpoint)
        if progress is not None:
            progress(run.epoch, config.epochs)
    model = run.last_model()
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed_of(seed, run.epoch)))
    settle(model, data.images[order], batch=config.batch)
    if not model.is_network:
        features = model.features(data.images).double()
        model.device.covariance.copy_(features.T.cov().reshape_as(model.device.covariance))
    model.card["accuracies"] = None if validation is None else evaluate(model, validation)
    return model


def evaluate(model: FeatureModel, data: LabelledImages, features: Tensor | None = None) -> dict[str, float]:
    """Target -> the share of images whose attribute is named rightly.

    Args:
        model: from `train` or `load`.
        data: clean images, and their labels.
        features: (N, d) of these images, with noise for example; None for those without.

    Raises:
        DataError: no images, or of another size, or of classes that were never trained on; features that are
            not one an image, or as `attributes` says.
    """
    codes = _codes(model, data)
    if not len(data) or (features is not None and len(features) != len(data)):
        count = len(data) if features is None else len(features)
        raise DataError(f"{count} features of {len(data)} images: one of each, and at least one")
    logits = model.classify(data.images) if features is None else model.attributes(features)
    guesses = torch.stack([each.argmax(1) for each in logits.values()], 1)  # (N, T)
    return dict(zip(logits, (guesses == codes).double().mean(0).tolist(), strict=True))


def config_of(card: dict[str, Any]) -> FeatureConfig:
    """The settings of a model's card."""
    return FeatureConfig(**card["config"] | {"widths": tuple(card["config"]["widths"])})


def trainable(
    data: LabelledImages, config: FeatureConfig, targets: Sequence[str], sensitive: str
) -> dict[str, list[str]]:
    """Target -> its classes, where a feature can be trained on the images. Raises DataError: see train."""
    if not targets:
        raise DataError("no target: name the labels that the feature is to keep")
    if sensitive in targets:
        raise DataError(f"{sensitive!r} is a target and sensitive: a feature cannot both keep and remove it")
    # Sorted, as an artefact's card has them: the order is that of the network's outputs.
    classes = {target: list(epochs.classes_of(data, target, _LEARNER)) for target in sorted(targets)}
    _, counts = data.label(sensitive).codes.unique(return_counts=True)
    if config.variant not in ("network", "simple") and (len(counts) < 2 or int(counts.max()) < 2):
        raise DataError(
            f"{data.name}: label {sensitive!r} has {len(counts)} classes, of which the largest has "
            f"{int(counts.max())} images, and to remove it takes 2 classes and 2 images of one: "
            "choose another label, or add images"
        )
    return classes


def untrained(card: dict[str, Any], *, seed: int) -> FeatureModel:
    """The model of a card's settings, with initial weights that `seed` decides.

    Raises:
        ConfigError, DataError: see train.
    """
    dimension = card["config"]["dimension"]
    with initial_weights(seed):
        device, analyser, between = untrained_sides(card)
        cloud = CloudSide(analyser, between, dimension=dimension)
    if dimension > between.numel():
        raise ConfigError(
            f"dimension={dimension} is more than the {between.numel()} numbers that layer "
            f"{card['config']['cut']} puts out: choose fewer, or another cut"
        )
    return FeatureModel(device, cloud, card=card)


@torch.no_grad()
def embed(model: FeatureModel, images: Tensor) -> None:
    """Begin the auto-encoder with the principal components of the layer's output on some images.

    Source: Osia et al. 2018, Procedure 1. Promises: with as many dimensions as the output has, the network
    computes what it did without auto-encoder; with fewer, decoder and encoder are the best linear ones.

    Args:
        model: whose extractor is trained.
        images: (N, C, H, W) uint8.

    Raises:
        DataError: the images have no more directions than N - 1, and the feature has.
    """
    model.eval()
    place = _place(model)
    parts = [model.device.extractor(_ready(part, place)).flatten(1) for part in images.split(_BATCH)]
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
        # Of images that are alike there may be no further direction: orthonormal ones all the same.
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
    """Give every batch norm its statistics over some images, with the weights as they are.

    Running averages lag behind weights that still move. The loss of Eq. (7) moves what it is computed from,
    a feature of variance 1, and a lag that does no harm to a classifier makes features of another variance.

    Args:
        model: trained.
        images: (N, C, H, W) uint8, shuffled.
        batch: images of a batch, at most.
    """
    norms = [each for each in model.modules() if isinstance(each, nn.BatchNorm1d | nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean over all batches
    model.train()
    for part in images.tensor_split(-(-len(images) // batch)):
        model.outputs(_ready(part, _place(model)))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.eval()


class Training:
    """Training under way. State: weights, optimiser, epoch.

    Attributes:
        model: in training.
    """

    def __init__(
        self, model: FeatureModel, config: FeatureConfig, *, sigma: float, devices: Devices = ALONE
    ) -> None:
        self.model = model
        self._config = config
        self._sigma = sigma
        self._devices = devices
        self._parameters = list(model.parameters())
        self._place = _place(model)
        self._epochs = Epochs(model, self._parameters, kind=_CHECKPOINT, rate=config.learning_rate)

    @property
    def epoch(self) -> int:
        """How many epochs are finished."""
        return self._epochs.done

    def skip(self, epochs: int) -> None:
        """Go on as after so many epochs: the model has had them elsewhere."""
        self._epochs.done = epochs

    def start_epoch(self) -> None:
        """Set the networks to training mode."""
        self.model.train()

    def step(self, images: Tensor, codes: Tensor, identities: Tensor) -> Tensor:
        """Follow the gradient of the stage's loss, which is returned.

        Args:
            images: (B, C, H, W) uint8, the whole batch, of which this process takes its share.
            codes: (B, T) int64, the class of each target.
            identities: (B,) int64.
        """
        loss = self.loss(images, codes, identities)
        loss.backward()
        whole = self._devices.add_up(self._parameters, loss)
        self._epochs.step()
        return whole

    def loss(self, images: Tensor, codes: Tensor, identities: Tensor) -> Tensor:
        """What the stage minimises: the attributes' cross-entropies, and the privacy of the variant.

        Of several processes, the losses add up to that of the batch.
        """
        mine = self._devices.share(len(images), what="images", setting="batch")
        codes, identities = codes[mine].to(self._place), identities.to(self._place)
        stage, model = self._config.stage(self.epoch), self.model
        with (
            of_whole_batches(model, self._devices),
            autocast(model.card["precision"], self._place),
        ):
            ready = _ready(images[mine], self._place)
            if stage == "network":
                logits = model.without_feature(ready)
            else:
                features = model.device(ready)
                logits = model.cloud(features)
        heads = model.by_target(logits.float()).values()
        loss = torch.stack(
            [functional.cross_entropy(head, code) for head, code in zip(heads, codes.T, strict=True)]
        ).sum() * (len(codes) / len(images))
        if stage in ("network", "simple"):
            return loss
        # Each process has an equal part in what is of pairs of images, or of them and all identities.
        features = self._devices.gathered(features, mine, len(images))
        return loss + self._privacy(stage, features, identities) / self._devices.count

    def _privacy(self, stage: str, features: Tensor, identities: Tensor) -> Tensor:
        if stage == "dpfe":
            return privacy_loss(features, identities, beta=self._config.beta, sigma=self._sigma)
        adversary = self.model.adversary
        assert adversary is not None
        if stage == "adversarial":
            guesses = adversary(reversed_gradient(features, self._config.beta))
            return functional.cross_entropy(guesses, identities)
        taught = functional.cross_entropy(adversary(features.detach()), identities)
        fixed = {name: each.detach() for name, each in adversary.named_parameters()}
        guesses = functional_call(adversary, fixed, (features,))  # it is not taught to know nothing
        return taught + self._config.beta * information_bound(guesses.log_softmax(1), identities)

    def finish_epoch(self) -> None:
        """Keep the weights."""
        self._epochs.finish(None)

    def last_model(self) -> FeatureModel:
        """The model of the last epoch, without adversary, ready for use."""
        self._epochs.take_best()
        del self.model.card["validation_accuracy"]  # nothing was chosen by one
        self.model.adversary = None
        return self.model.eval()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint, whole or not at all."""
        self._epochs.save(path)

    def resume(self, path: str | os.PathLike[str]) -> None:
        """Go on from a checkpoint. Raises ArtefactError for that of another run."""
        self._epochs.resume(path)


def _ready(images: Tensor, place: torch.device) -> Tensor:
    return to_float(images.to(place)).contiguous(memory_format=torch.channels_last)


def _place(model: FeatureModel) -> torch.device:
    """Where it computes; `device` is its device side."""
    return next(model.parameters()).device


def _codes(model: FeatureModel, data: LabelledImages) -> Tensor:
    """(N, T) int64, the class of each target. Raises DataError for classes that were not trained on."""
    columns = [epochs.codes_of(data, target, names, _LEARNER) for target, names in model.classes.items()]
    return torch.stack(columns, 1)


# What a stage and those after it are set by.
_OF_LATER_STAGES = {
    "simple": {"variant", "beta", "private_epochs", "pairs"},
    "network": {"variant", "beta", "private_epochs", "pairs", "simple_epochs", "cut", "dimension"},
}


def _check_begin(begun: dict[str, Any], card: dict[str, Any]) -> None:
    """Raises ConfigError unless the one is the card of the other before its later stages."""
    variant, asked = begun["config"]["variant"], card["config"]["variant"]
    if variant not in _OF_LATER_STAGES or VARIANTS.index(variant) >= VARIANTS.index(asked):
        raise ConfigError(
            f"a {asked} model cannot begin with a {variant} one: begin with a network, or a simple model "
            "where there are stages after it"
        )

    def settings(of: dict[str, Any]) -> dict[str, Any]:
        config = {name: each for name, each in of["config"].items() if name not in _OF_LATER_STAGES[variant]}
        config |= {name: of[name] for name in ("shape", "classes", "sensitive", "seed", "precision")}
        return config | {"data": of["data"]["digest"]}

    theirs, ours = settings(begun), settings(card)
    differ = [name for name in ours if theirs[name] != ours[name]]
    if differ:
        raise ConfigError(
            f"a model to begin with of {differ[0]}={theirs[differ[0]]}, and {ours[differ[0]]} is asked for: "
            "train both with the same data and settings"
        )


def _take_over(begin: FeatureModel, model: FeatureModel) -> None:
    """Give a model the weights of one of an earlier stage, which may be cut elsewhere if it is a network."""
    if not begin.is_network:
        model.load_state_dict(begin.state_dict())
        return
    weights = begin.device.extractor.state_dict() | begin.cloud.analyser.state_dict()
    for half in (model.device.extractor, model.cloud.analyser):
        half.load_state_dict({name: weights[name] for name in half.state_dict()})


def _adversary(dimension: int, identities: int, *, seed: int) -> nn.Module:
    with initial_weights(seed):
        return nn.Sequential(
            nn.Linear(dimension, _ADVERSARY_WIDTH), nn.ReLU(), nn.Linear(_ADVERSARY_WIDTH, identities)
        )
