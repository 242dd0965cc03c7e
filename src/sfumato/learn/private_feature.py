"""DPFE: features that keep attributes of an image and lose the person.

Source: Osia et al. 2018 (docs/papers.md, "DPFE"), Procedure 1. An attribute network is trained and cut at a
layer; a linear auto-encoder, begun with the principal components of that layer's output, is put in between;
its normalised hidden layer is the private feature. Fine-tuned for the attributes, that is the paper's Simple
model; fine-tuned further by Eq. (7), the DPFE model. The part before the feature runs on the device, the
part after it in the cloud.

Where the paper is silent, we decided: every batch of DPFE fine-tuning has a number of pairs of one identity;
the last epoch is kept, since the most accurate one would be the least private; the convolutions are not
frozen; and in the end every batch norm takes its statistics of the training images.

Beyond the paper, instead of Eq. (7): "log-rank" trains for the privacy that is measured, which Sec. 7 names
for learning to rank; "adversarial" reverses the gradient of a naming network (Ganin & Lempitsky 2015).
"""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.base.hardware import autocast, device_of, to_device
from sfumato.data.labelled import LabelledImages
from sfumato.episodes import seed_of
from sfumato.errors import ConfigError, DataError
from sfumato.images import check_batch
from sfumato.learn import method
from sfumato.learn.fit import Progress, Run, adam, fit
from sfumato.networks.weights import initial_weights
from sfumato.protect.feature import KIND, DeviceSide, FeatureCard, make_sides

VARIANTS = ("network", "simple", "dpfe", "log-rank", "adversarial")
LEARNER, _CHECKPOINT = "private feature", "private feature checkpoint"
_PCA_IMAGES = 2048  # the most images for the principal components
_ADVERSARY_WIDTH = 128


@dataclass(frozen=True, kw_only=True)
class FeatureConfig:
    """The settings of training a private feature; for those that are not here see learn.method.

    The paper gives `dimension`, the networks, and Adam.

    Attributes:
        variant: "network" stops after the first stage, and has no feature yet; "simple" stops before the
            last; "dpfe", "log-rank" and "adversarial" are variants of the last.
        beta: the weight of privacy in the last stage. For "dpfe" it is β/N of Eq. (7): the attributes' loss
            is its mean over a batch here, and their sum there. For "log-rank" it multiplies log-rank
            privacy; for "adversarial" it is the factor of the reversed gradient.
        pairs: the images of a batch, in the last stage, that are there for another of the same identity.
            Eq. (7) has them by chance: hardly any, with many identities.
    """

    widths: tuple[int, ...] = (16, 32, 64, 128, 128, 64, 64)  # of the attribute network, see TinyDarknet
    cut: str = "conv7"  # the layer whose output is encoded; conv4_2, conv5_1, conv6_1, conv7 in the paper
    dimension: int = 10  # d, of the feature
    variant: str = "dpfe"
    beta: float = 0.1
    attribute_epochs: int = 20  # the first stage, of the network without auto-encoder
    simple_epochs: int = 5  # the second stage, for the attributes alone
    private_epochs: int = 10  # the last stage, which "simple" skips
    batch: int = 64
    pairs: int = 16
    learning_rate: float = 1e-3
    precision: str = "auto"

    def __post_init__(self) -> None:
        if len(self.widths) != 7 or min(self.widths) < 1:
            raise ConfigError(f"widths={self.widths}: seven numbers of at least 1, as TinyDarknet takes them")
        if self.variant not in VARIANTS:
            raise ConfigError(f"variant={self.variant}: choose {', '.join(VARIANTS)}")
        stages = {"attribute_epochs": 1, "simple_epochs": 1, "private_epochs": 1}
        method.check_least(self, **stages, dimension=1, pairs=1, beta=0)
        least = max(4, 2 * self.pairs)
        if self.batch < least:
            raise ConfigError(
                f"batch={self.batch}: at least {least}, for pairs={self.pairs} and for batch norm"
            )

    @property
    def epochs(self) -> int:
        """The epochs of all stages."""
        stages = (self.attribute_epochs, self.simple_epochs, self.private_epochs)
        return sum(stages[: {"network": 1, "simple": 2}.get(self.variant, 3)])

    def stage(self, epoch: int) -> str:
        """The stage of an epoch, counted from 0: "network", "simple", or the variant."""
        if epoch < self.attribute_epochs:
            return "network"
        return "simple" if epoch < self.attribute_epochs + self.simple_epochs else self.variant


class CloudSide(nn.Module):
    """The network after the private feature. State: its weights."""

    def __init__(self, analyser: nn.Module, between: torch.Size, *, dimension: int) -> None:
        super().__init__()
        self.decoder = nn.Linear(dimension, between.numel())  # from the feature to the layer's output
        self.analyser = analyser  # the layers after the cut
        self._between = between

    def forward(self, features: Tensor) -> Tensor:
        """(N, d) -> (N, outputs), the logits of all attributes."""
        return torch.as_tensor(self.analyser(self.decoder(features).unflatten(1, self._between)))


class FeatureModel(method.Model):
    """A device side that extracts a private feature, and a cloud side that reads attributes from it."""

    kind = KIND
    device: DeviceSide  # which `protect.feature` applies
    cloud: CloudSide
    adversary: nn.Module | None  # while it is trained

    def features(self, images: Tensor) -> Tensor:
        """(N, C, H, W) uint8 -> (N, d) float32, without noise. Raises DataError for other sizes."""
        if self.is_network:
            raise ConfigError("a network without auto-encoder has no feature: train a simple variant of it")
        return self._of_images(self.device, images)

    def classify(self, images: Tensor) -> dict[str, Tensor]:
        """(N, C, H, W) uint8 -> target -> (N, classes) float32 logits, by both sides, without noise."""
        return self.by_target(self._of_images(self.outputs, images))

    def _of_images(self, function: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        check_batch(images)
        method.check_shape(images, self.card["shape"], "extractor")
        return self.infer(lambda part: function(method.as_input(part, part.device)), images)

    @property
    def is_network(self) -> bool:
        """Whether this is the attribute network alone, before there is a feature."""
        return bool(self.card["config"]["variant"] == "network")

    def outputs(self, images: Tensor) -> Tensor:
        """(N, C, H, W) float32 -> (N, outputs) logits of all attributes, in the current mode."""
        if self.is_network:
            return self.without_feature(images)
        return torch.as_tensor(self.cloud(self.device(images)))

    def without_feature(self, images: Tensor) -> Tensor:
        """The same by the attribute network alone, past the auto-encoder."""
        return torch.as_tensor(self.cloud.analyser(self.device.extractor(images)))

    def attributes(self, features: Tensor) -> dict[str, Tensor]:
        """(N, d) finite features, noisy or not -> target -> (N, classes) float32 logits."""
        if self.is_network:
            raise ConfigError(
                "a network without auto-encoder reads no features: train a simple variant of it"
            )
        wanted = self.card["config"]["dimension"]
        if features.ndim != 2 or features.shape[1] != wanted:
            raise DataError(f"features of {tuple(features.shape)}: this model reads (N, {wanted})")
        if not features.isfinite().all():
            raise DataError("features that are not finite: leave these images out")
        return self.by_target(self.infer(self.cloud, features))

    def by_target(self, logits: Tensor) -> dict[str, Tensor]:
        """(N, outputs) -> target -> its columns."""
        sizes = [len(names) for names in self.card["classes"].values()]
        return dict(zip(self.card["classes"], logits.split(sizes, dim=1), strict=True))


class _Card(FeatureCard):
    config: FeatureConfig  # type: ignore[assignment]
    precision: method.Precision = "float32"  # of the training: a loaded model computes in float32


def load(path: str | os.PathLike[str]) -> FeatureModel:
    """Reads a saved model. Raises ArtefactError for any other file."""
    return method.load_model(path, kind=KIND, schema=_Card, untrained=make_untrained)


def evaluate(model: FeatureModel, data: LabelledImages, features: Tensor | None = None) -> dict[str, float]:
    """Target -> the share named correctly, by their features, or by (N, d) others, such as noisy."""
    codes, count = codes_of(model, data), len(data if features is None else features)
    if not len(data) or count != len(data):
        raise DataError(f"{count} features of {len(data)} images: one of each, and at least one")
    logits = model.classify(data.images) if features is None else model.attributes(features)
    guesses = torch.stack([scores.argmax(1) for scores in logits.values()], 1)  # (N, T)
    return dict(zip(logits, (guesses == codes).double().mean(0).tolist(), strict=True))


def make_untrained(card: dict[str, Any], *, seed: int = 0) -> FeatureModel:
    """Makes the model of a card's settings, with initial weights from `seed`."""
    dimension = card["config"]["dimension"]
    with initial_weights(seed):
        device, analyser, between = make_sides(card)
        cloud = CloudSide(analyser, between, dimension=dimension)
    if dimension > between.numel():
        raise ConfigError(
            f"dimension={dimension} is more than the {between.numel()} outputs of layer "
            f"{card['config']['cut']}: choose fewer, or another cut"
        )
    return FeatureModel(card, device=device, cloud=cloud, adversary=None)


def codes_of(model: FeatureModel, data: LabelledImages) -> Tensor:
    """(N, T) int64, the class of each target."""
    columns = [method.codes_of(data, target, names, LEARNER) for target, names in model.classes.items()]
    return torch.stack(columns, 1)


def privacy_loss(features: Tensor, identities: Tensor, *, beta: float, sigma: float) -> Tensor:
    """β / (2σN²) · [Σ_{y_i≠y_j} |f_i - f_j|² + Σ_{y_i=y_j} (c - |f_i - f_j|²)], over pairs of a batch.

    Source: Osia et al. 2018, Eq. (7), second term, with i and j in both orders, as the paper's U2 in Eq. (5)
    has them, and i ≠ j. Its B.3 is an identity with each pair once: β here is half of β there. c =
    2dN(N - 1) / k, k the number of pairs of one identity (Appendix B.4): it has no gradient, and makes both
    sums estimates of the same.

    Promises: its gradient pulls images of different identities together, and pushes images of one apart.

    Features are (N, d), of variance 1; identities (N,); σ is the variance of the kernels.
    """
    count, dimension = features.shape
    # By differences: |f|² + |g|² - 2fg would lose the digits of near features, which matter for the loss.
    squares = (features[:, None] - features[None]).square().sum(2)  # (N, N), 0 for i = j
    same = identities[:, None] == identities[None]
    pairs = same.sum() - count
    total = torch.where(same, -squares, squares).sum()
    constant = torch.where(pairs > 0, 2.0 * dimension * count * (count - 1), 0.0)  # c·k
    return beta / (2 * sigma * count**2) * (total + constant)


def log_rank_loss(
    features: Tensor, identities: Tensor, *, beta: float, sigma: float, temperature: float = 1.0
) -> Tensor:
    """-β · E[ln r] / ln c: log-rank privacy within a batch, with steps of the rank made smooth.

    Source: Osia et al. 2018, Definition 10, as Sec. 7 proposes it for training. p(y|f) is the kernel density
    of the other images of the batch, of c identities; r = 1 + Σ_y sigmoid((ln p(y|f) - ln p(y_i|f)) /
    temperature), over the other identities. Images without another of their identity have no rank.
    Arguments as of privacy_loss.

    Promises: at a temperature near 0 it is exact log-rank privacy, if no two identities are equally likely.
    """
    columns, codes = identities.unique(return_inverse=True)
    squares = (features[:, None] - features[None]).square().sum(2)  # (N, N)
    itself = torch.eye(len(features), dtype=torch.bool, device=features.device)
    of = functional.one_hot(codes, len(columns)).bool()[None] & ~itself[..., None]  # (N, N, c)
    logs = torch.where(of, -squares[..., None] / (2 * sigma), -math.inf).logsumexp(1)
    logs = logs - of.sum(1).clamp(min=1).log()  # (N, c)
    ranked = of.sum(1).gather(1, codes[:, None])[:, 0] > 0
    above = (logs[ranked] - logs[ranked].gather(1, codes[ranked, None])) / temperature
    # One half is the right identity's own, which is not above itself.
    ranks = 0.5 + above.sigmoid().sum(1)
    return -beta * ranks.log().sum() / max(1, int(ranked.sum())) / math.log(max(2, len(columns)))


def silverman(count: int, dimension: int) -> float:
    """σ of Eq. (7): the variance of Gaussian kernels for N features of variance 1, by Silverman's rule."""
    return float((4 / (count * (dimension + 2))) ** (2 / (dimension + 4)))


def reverse_gradient(features: Tensor, beta: float) -> Tensor:
    """The same numbers, with their gradient multiplied by -β. Ganin & Lempitsky 2015, Eq. (13)."""
    return features.detach() * (1 + beta) - beta * features


def pair(order: Tensor, identities: Tensor, *, batch: int, pairs: int, draw: torch.Generator) -> list[Tensor]:
    """The rows of batches in which some images have another one of the same identity, (N,) of each.

    Promises: without the last `pairs` of each batch, every row of `order` occurs once, except a rest that is
    smaller than a batch; these last have the identities of the first that have another image, in turn.
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
def begin_auto_encoder(model: FeatureModel, images: Tensor) -> None:
    """Begins the auto-encoder with the principal components of the layer's output on some images.

    Source: Osia et al. 2018, Procedure 1. Promises: with as many dimensions as the output has, the network
    computes the same as without auto-encoder; with fewer, decoder and encoder are the best linear ones.
    """
    device, extract = device_of(model), model.eval().device.extractor
    outputs = method.in_batches(lambda part: extract(method.as_input(part, device)).flatten(1), images)
    outputs = outputs.double()  # (N, D)
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
    assert norm.running_mean is not None and norm.running_var is not None  # noqa: PT018
    norm.running_mean.zero_()
    norm.running_var.copy_(values)
    decoder.weight.copy_(vectors * (values + norm.eps).sqrt())  # undoes the batch norm
    decoder.bias.copy_(mean)


@torch.no_grad()
def settle(model: FeatureModel, images: Tensor, *, batch: int) -> None:
    """Gives every batch norm its statistics over some images, with the present weights.

    Running averages lag behind weights that move: by Eq. (7) a feature would then not have variance 1.
    """
    norms = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean over all batches
    model.train()
    for part in images.tensor_split(-(-len(images) // batch)):
        model.outputs(method.as_input(part, device_of(model)))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.eval()


# The settings of a stage and those after it.
_OF_LATER_STAGES = {
    "simple": {"variant", "beta", "private_epochs", "pairs"},
    "network": {"variant", "beta", "private_epochs", "pairs", "simple_epochs", "cut", "dimension"},
}


def begin_with(begin: FeatureModel, model: FeatureModel) -> int:
    """Gives a model the weights of one of an earlier stage; returns the epochs of that one."""
    begun, card = begin.card, model.card
    variant, asked = begun["config"]["variant"], card["config"]["variant"]
    if variant not in _OF_LATER_STAGES or VARIANTS.index(variant) >= VARIANTS.index(asked):
        raise ConfigError(
            f"a {asked} model cannot begin with a {variant} one: begin with a network, or a simple model "
            "if there are stages after it"
        )
    theirs, ours = ({**each["config"], **each, "data": each["data"]["digest"]} for each in (begun, card))
    of_both = ("shape", "classes", "sensitive", "seed", "precision", "data")
    for name in [*(each for each in card["config"] if each not in _OF_LATER_STAGES[variant]), *of_both]:
        if theirs[name] != ours[name]:
            raise ConfigError(
                f"a model to begin with of {name}={theirs[name]}, and {ours[name]} is wanted: "
                "train both with the same data and settings"
            )
    take_over(begin, model)
    card["begun"] = variant
    return FeatureConfig(**begun["config"]).epochs


def take_over(begin: FeatureModel, model: FeatureModel) -> None:
    """Gives a model the weights of an earlier stage; a network may be cut elsewhere."""
    if not begin.is_network:
        model.load_state_dict(begin.state_dict())
        return
    weights = begin.device.extractor.state_dict() | begin.cloud.analyser.state_dict()
    for half in (model.device.extractor, model.cloud.analyser):
        half.load_state_dict({name: weights[name] for name in half.state_dict()})


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
    """Trains by Procedure 1 and returns the model of the last epoch. See also learn.method.

    It keeps the targets, and removes the `sensitive` label. The accuracies on `validation`, of any people, go
    on the card. `begin` is a model of an earlier stage, of the same data, seed and settings up to there: only
    later stages are then trained, with a new optimiser.

    Raises DataError for what `trainable` refuses, and ConfigError for no such layer, for one whose output has
    fewer dimensions than the feature, and for an unsuitable `begin`.
    """
    classes = trainable(data, config, targets, sensitive, validation)  # fails now, not after training
    own = {"classes": classes, "sensitive": sensitive, "validation": validation}
    card = method.training_card(data, config, seed=seed, device=device, **own)
    model = make_untrained(card, seed=seed)
    codes = codes_of(model, data)
    _, identities = data.label(sensitive).codes.unique(return_inverse=True)
    done = 0 if begin is None else begin_with(begin, model)
    if config.variant == "adversarial":
        with initial_weights(seed):
            model.adversary = adversary(config.dimension, int(identities.max()) + 1)
    run = Run(model, adam(config.learning_rate), kind=_CHECKPOINT, identity=model.card, device=device)
    run.epoch, sigma = done, silverman(len(data), config.dimension)

    def batches(epoch: int) -> Sequence[Tensor]:
        draw, order = _order(data, seed, epoch)
        if epoch == config.attribute_epochs:
            begin_auto_encoder(model, data.images[order[:_PCA_IMAGES]])
        if config.stage(epoch) in ("network", "simple"):
            return order.tensor_split(-(-len(data) // config.batch))
        return pair(order, identities, batch=config.batch, pairs=config.pairs, draw=draw)

    def step(rows: Tensor) -> Tensor:
        batch, stage = (data.images[rows], codes[rows], identities[rows]), config.stage(run.epoch)
        return run.minimise(stage_loss(model, config, stage, *batch, sigma=sigma))

    more: dict[str, Any] = {"checkpoint": checkpoint, "progress": progress, "losses": losses}
    fit(run, batches, step, epochs=config.epochs, **more)
    model.adversary = None
    card["epochs"] = run.epoch
    settle(model, data.images[_order(data, seed, config.epochs)[1]], batch=config.batch)
    if not model.is_network:  # C of Procedure 2
        features = model.features(data.images).double()
        model.device.covariance.copy_(features.T.cov().reshape_as(model.device.covariance))
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
    method.check_apart(data, targets, [sensitive], "feature")
    # Sorted, as on an artefact's card: the order is that of the network's outputs.
    classes = {target: list(method.classes_of(data, target, LEARNER, *others)) for target in sorted(targets)}
    _, counts = data.label(sensitive).codes.unique(return_counts=True)
    if config.variant not in ("network", "simple") and (len(counts) < 2 or int(counts.max()) < 2):
        raise DataError(
            f"{data.name}: label {sensitive!r} has {method.count_in_words(len(counts))}, and the largest has "
            f"{int(counts.max())} images; removing it takes 2 classes and 2 images of one: "
            "choose another label, or add images"
        )
    return classes


def stage_loss(
    model: FeatureModel, config: FeatureConfig, stage: str, *batch: Tensor, sigma: float
) -> Tensor:
    """The loss of a stage: the attributes' cross-entropies, and the privacy of the variant; see silverman.

    A batch: (B, C, H, W) uint8 images, (B, T) int64 codes of the targets, and (B,) int64 identities.
    """
    device = device_of(model)
    images, codes, identities = (to_device(part, device) for part in batch)
    with autocast(model.card["precision"], device):
        ready = method.as_input(images, device)
        if stage == "network":
            logits = model.without_feature(ready)
        else:
            features = model.device(ready)
            logits = model.cloud(features)
    heads = zip(model.by_target(logits.float()).values(), codes.T, strict=True)
    loss = torch.stack([functional.cross_entropy(head, code) for head, code in heads]).sum()
    if stage in ("network", "simple"):
        return loss
    if stage != "adversarial":
        privacy = privacy_loss if stage == "dpfe" else log_rank_loss
        return loss + privacy(features, identities, beta=config.beta, sigma=sigma)
    assert model.adversary is not None
    guesses = model.adversary(reverse_gradient(features, config.beta))
    return loss + functional.cross_entropy(guesses, identities)


def _order(data: LabelledImages, seed: int, epoch: int) -> tuple[torch.Generator, Tensor]:
    """The generator of an epoch, and the (N,) rows in the order that it draws first."""
    draw = torch.Generator().manual_seed(seed_of(seed, epoch))
    return draw, torch.randperm(len(data), generator=draw)


def adversary(dimension: int, classes: int) -> nn.Module:
    """A network that names one of some classes by a feature or a code."""
    return nn.Sequential(
        nn.Linear(dimension, _ADVERSARY_WIDTH), nn.ReLU(), nn.Linear(_ADVERSARY_WIDTH, classes)
    )
