"""semsim-perceptual: the stages of a perceptual network that agree with people, learned from few judgements.

The network is not trained, and its distance has as many weights as it has terms: see networks.stage_distance.
They are learned by SemSim's triplet loss (docs/papers.md, "SemSim", Sec. 4.3), with this distance instead
of that of embeddings, and stay at 0 or above as in LPIPS (Zhang et al. 2018, App. B: clamped after each
step). Then a logistic curve (Platt 1999) over other originals turns the distance into the probability that a
person recognises the image.

A triplet's negative of another original counts by its distance to its own original: that distance should be
large, and one threshold should serve all images. For the others see `triplets`.
"""

import math
import os
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from sfumato.episodes import seed_of
from sfumato.errors import ConfigError, DataError
from sfumato.images import to_float
from sfumato.learn.fit import Progress
from sfumato.learn.method import check_known, check_least, in_batches
from sfumato.learn.semsim import SemSimModel, triplets
from sfumato.learn.semsim.judgements import Judgements, resize
from sfumato.networks import SqueezeNet
from sfumato.networks.encoders.squeeze_net import STAGES
from sfumato.networks.stage_distance import KINDS, LEAST_SIZE, StageDistance
from sfumato.networks.weights import initial_weights

KIND = "semsim-perceptual"
TERMS = {"relative": ("relative",), "placed": ("placed",), "both": KINDS}
_BATCH = 64
_HELD_OUT, _OTHERS = 1, 2  # draws from a seed, apart from those of epochs


@dataclass(frozen=True, kw_only=True)
class PerceptualConfig:
    """The settings of learning the weights."""

    terms: str = "relative"  # to other images; "placed" as in LPIPS, or "both": see networks.stage_distance
    stages: int = 3  # how many of the last stages of SqueezeNet count, 1 to 9
    others: int = 64  # the most originals that serve as other images
    margin: float = 1.0  # how much farther an unrecognised reconstruction must be
    size: int = 64  # side of the images in pixels, after resizing
    epochs: int = 100  # of all reconstructions; 0 leaves the weights equal: only the probability is learned
    batch: int = 128
    learning_rate: float = 0.05
    calibrated_on: float = 0.2  # the share of originals for the curve; no weight is learned from them

    def __post_init__(self) -> None:
        check_known("kind of terms", self.terms, TERMS)
        check_least(self, epochs=0, batch=1, others=2, stages=1, size=LEAST_SIZE)
        if self.stages > len(STAGES):
            raise ConfigError(f"stages={self.stages}: at most the {len(STAGES)} of SqueezeNet")
        if not 0 < self.margin < math.inf:
            raise ConfigError(f"margin={self.margin:g}: above 0, and finite")
        if not 0 < (share := self.calibrated_on) < 1:
            raise ConfigError(f"calibrated_on={share:g}: a share of originals, above 0 and below 1")


@dataclass(frozen=True)
class Looked:
    """Pairs as a network compares them, and the share of people who recognised each."""

    terms: Tensor  # (M, K) of `StageDistance.terms`, each reconstruction with its original
    of: Tensor  # (M,) int64, the index of each one's original
    shares: Tensor  # (M,) float from 0 to 1, of people who recognised it; a majority's word is 0 or 1
    originals: range  # their numbers, range(N)
    source: str  # of the images

    @property
    def recognised(self) -> Tensor:
        """(M,) bool, by the majority."""
        return self.shares > 0.5

    def of_originals(self, chosen: Tensor) -> "Looked":
        """Only the reconstructions of some originals, (n,) int64; numbers stay."""
        kept = torch.isin(self.of, chosen)
        return replace(self, terms=self.terms[kept], of=self.of[kept], shares=self.shares[kept])


def blank(backbone: str | os.PathLike[str], config: PerceptualConfig, others: Tensor) -> StageDistance:
    """The distance before anything is learned, by (G, C, H, W) uint8 other images: all terms weigh alike."""
    sizes = {"size": config.size, "stages": config.stages, "others": len(others)}
    with initial_weights():
        distance = StageDistance(kinds=TERMS[config.terms], **sizes)
    distance.backbone = SqueezeNet.load(backbone).requires_grad_(False)
    distance.others.copy_(in_batches(lambda part: distance.averages(to_float(part)), others, _BATCH))
    return distance.eval()


def train(
    judgements: Judgements,
    config: PerceptualConfig,
    *,
    backbone: str | os.PathLike[str],
    seed: int = 0,
    progress: Progress | None = None,
) -> SemSimModel:
    """Learns the weights of stages from the judgements of people, and calibrates the distance.

    The weights of SqueezeNet 1.0 in `backbone` become part of the model. Raises DataError for fewer than two
    originals, and if no reconstruction for training was recognised, or all were.
    """
    order = torch.Generator().manual_seed(seed_of(seed, _OTHERS))
    chosen = torch.randperm(len(judgements.originals), generator=order)[: config.others]
    distance = blank(backbone, config, judgements.originals[chosen])
    alike = resize(judgements, distance.size)

    def compare(rows: Tensor) -> Tensor:
        originals, others = alike.originals[alike.of[rows]], alike.reconstructions[rows]
        return distance.terms(to_float(originals), to_float(others))

    # Each with its original, once: learning does not need the images again.
    terms = in_batches(compare, torch.arange(len(alike.of)), _BATCH)
    looked = Looked(terms, alike.of, alike.recognised.float(), range(len(alike.originals)), alike.source)
    foretold = learn(distance, looked, config, seed=seed, progress=progress)
    card = {"config": asdict(config), "data": judgements.card(), "seed": seed, "others": len(chosen)}
    return SemSimModel(KIND, distance, card | {"held_out": asdict(foretold)})


def learn(
    distance: StageDistance,
    looked: Looked,
    config: PerceptualConfig,
    *,
    seed: int,
    progress: Progress | None = None,
) -> "Foretold":
    """Fits a distance's weights and calibration, see train. -> The quality of held-out predictions."""
    seen = looked.of.unique()
    if len(seen) < 2:
        raise DataError(
            f"{looked.source}: reconstructions of {len(seen)} original: give those of 2 or more, since the "
            "probability is fitted to originals that the weights do not use"
        )
    order = seen[torch.randperm(len(seen), generator=torch.Generator().manual_seed(seed_of(seed, _HELD_OUT)))]
    held = min(max(1, round(config.calibrated_on * len(seen))), len(seen) - 1)
    asked = looked.of_originals(order[:held])
    looked = looked.of_originals(order[held:])
    optimiser = torch.optim.Adam([distance.weights], lr=config.learning_rate)
    steps = -(-len(looked.of) // config.batch)
    for epoch in range(config.epochs):
        order = torch.Generator().manual_seed(seed_of(seed, 0, epoch))
        recognised = torch.rand(len(looked.shares), generator=order) < looked.shares
        answered = replace(looked, shares=recognised.float())  # by one person each
        # (M, 2) reconstructions; below 0: an original itself
        groups = triplets(answered, order)[:, 1:] - len(looked.originals)
        for rows in torch.randperm(len(groups), generator=order).tensor_split(steps):
            values = looked.terms[groups[rows].clamp(min=0)] @ distance.weights  # (B, 2)
            near, far = torch.where(groups[rows] < 0, 0.0, values).unbind(1)
            loss = (near - far + config.margin).clamp(min=0).mean()
            (distance.weights.grad,) = torch.autograd.grad(loss, [distance.weights])
            optimiser.step()
            with torch.no_grad():
                distance.weights.clamp_(min=0)
        if progress is not None:
            progress(epoch + 1, config.epochs)
    with torch.no_grad():
        distances = asked.terms @ distance.weights
        distance.calibration.copy_(logistic(distances, asked.shares))
        return Foretold.of(distance.probability(distances), asked.shares, originals=held)


def logistic(distances: Tensor, shares: Tensor) -> Tensor:
    """a and b >= 0 of the probability 1 / (1 + exp(b d - a)) that fits (n,) shares best. -> (2,) float32.

    Source: Platt 1999, with that paper's targets, which keep the curve from becoming a step. By maximum
    likelihood; b is 0 if the recognised are not nearer.
    """
    values = distances.double()
    right, wrong = shares.double().sum(), (1 - shares.double()).sum()
    targets = torch.lerp(1 / (wrong + 2), (right + 1) / (right + 2), shares.double())
    middle, spread = values.mean(), values.std(correction=0).clamp(min=1e-12)
    scaled = (values - middle) / spread
    line = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([line], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        off = functional.binary_cross_entropy_with_logits(line[0] - line[1] * scaled, targets)
        off.backward()
        return off

    with torch.enable_grad():
        optimiser.step(loss)
    intercept, slope = line.detach()
    if slope <= 0:
        return torch.stack([torch.logit(targets.mean()), torch.zeros_like(slope)]).float()
    return torch.stack([intercept + slope * middle / spread, slope / spread]).float()


@dataclass(frozen=True)
class Foretold:
    """How well probabilities predict judgements of originals that decided the curve, and no weights."""

    originals: int
    reconstructions: int
    recognised: float  # the share of them
    brier: float  # the mean squared error of the probability (Brier 1950); 0 is best
    brier_of_share: float  # the same if each gets the overall share

    @classmethod
    def of(cls, probabilities: Tensor, shares: Tensor, *, originals: int) -> "Foretold":
        """Compares (n,) probabilities with (n,) shares."""

        def brier(given: Tensor) -> float:
            # For answers that are right or wrong, in a share of them.
            return (shares * (1 - given).square() + (1 - shares) * given.square()).double().mean().item()

        recognised = shares.double().mean()
        return cls(originals, len(shares), recognised.item(), brier(probabilities), brier(recognised))
