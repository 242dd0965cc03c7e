"""Re-identification: name the person on a protected photograph, from a gallery of known people.

Source: Parnami et al. 2022, Sec. V, whose adversary knows clean photographs only (static). One who
protects his own photographs in the same way (adaptive) is stronger (McPherson, Shokri & Shmatikov 2016),
and is the one to fear. Both are the same code on different images: what the adversary saw is decided by
the caller, who passes released images, never a protection.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.errors import ConfigError, DataError, needs_extra
from sfumato.images import to_float
from sfumato.networks import Conv4
from sfumato.precision import autocast, resolve

_EMBED_BATCH = 256


@dataclass(frozen=True, kw_only=True)
class AdversaryConfig:
    """How strong the adversary is.

    Attributes:
        steps: of training the recogniser.
        adaptive_steps: of training it further on protected photographs.
        batch: images a step.
        learning_rate: of Adam, falling to 0 along a cosine.
        gallery: photographs of each identity that the adversary holds; the paper has 20.
        probes: released photographs of each identity to name; the paper has 10.
        copies: how often an adaptive adversary protects each gallery photograph; fresh noise each time.
    """

    steps: int = 1000
    adaptive_steps: int = 500
    batch: int = 128
    learning_rate: float = 2e-3
    gallery: int = 20
    probes: int = 10
    copies: int = 4

    def __post_init__(self) -> None:
        for name in ("steps", "adaptive_steps", "batch", "gallery", "probes", "copies"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)}: at least 1")
        if not 0 < self.learning_rate < math.inf:
            raise ConfigError(f"learning_rate={self.learning_rate:g}: above 0")


@dataclass(frozen=True)
class Score:
    """Closed-set top-1 accuracy of one classifier, with its 95% Wilson interval over the probes."""

    classifier: str
    top1: float
    low: float
    high: float


@dataclass(frozen=True)
class Reidentification:
    """What an adversary reached, and what guessing reaches.

    Attributes:
        scores: one a classifier; the strongest is what counts.
        chance: the accuracy of always naming the identity with the most probes.
    """

    scores: tuple[Score, ...]
    chance: float
    identities: int
    gallery: int
    probes: int

    @property
    def strongest(self) -> Score:
        """The classifier to fear."""
        return max(self.scores, key=lambda score: score.top1)


class Recogniser(nn.Module):
    """An encoder whose embeddings of one identity point the same way. State: its weights."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        """(N, C, H, W) float -> (N, D) float32 of unit length."""
        with autocast(resolve("auto"), images.device):
            embeddings = self.encoder(images.contiguous(memory_format=torch.channels_last))
        return functional.normalize(embeddings.float(), dim=1)

    @torch.no_grad()
    def embed(self, images: Tensor) -> Tensor:
        """(N, C, H, W) uint8 -> (N, D) float32 of unit length."""
        self.eval()
        return torch.cat([self(to_float(part)) for part in images.split(_EMBED_BATCH)])


def split_gallery(codes: Tensor, *, gallery: int, probes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Deal the photographs of each identity to the adversary's gallery and to the probes.

    Args:
        codes: (N,) identity of each photograph.
        gallery, probes: how many of each identity; with fewer photographs than both, each side gets its
            share. Identities with a single photograph are left out.
        seed: decides which.

    Returns:
        Rows of the gallery and rows of the probes, (n,) and (m,) int64, disjoint.
    """
    generator = torch.Generator().manual_seed(seed)
    known, asked = [], []
    for code in codes.unique().tolist():
        rows = (codes == code).nonzero().flatten()
        if len(rows) < 2:
            continue
        rows = rows[torch.randperm(len(rows), generator=generator)]
        held = min(gallery, max(1, len(rows) * gallery // (gallery + probes)))
        known.append(rows[:held])
        asked.append(rows[held : held + probes])
    if len(known) < 2:
        raise DataError("re-identification needs two identities with two photographs each: add photographs")
    return torch.cat(known), torch.cat(asked)


def train_recogniser(
    seen: Callable[[int], Tensor],
    identities: Tensor,
    config: AdversaryConfig,
    *,
    encoder: nn.Module | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Recogniser:
    """Train an encoder to tell people apart, on people who are not in the gallery.

    Softmax over cosine similarities to one learned direction an identity (Wang et al. 2018, without the
    margin), on images shifted by a few pixels.

    Args:
        seen: pass -> (N, C, H, W) uint8, the training images as the adversary sees them on that pass
            over the data: clean, or protected with fresh noise each time.
        identities: (N,) int64 code of each.
        config: see AdversaryConfig.
        encoder: any module from float images to (N, D); trained further in place. None starts a Conv-4.
        seed: decides weights and order.
        progress: called after each step with the numbers done and planned.
    """
    codes, labels = identities.unique(return_inverse=True)
    if len(codes) < 2:
        raise DataError("a recogniser is trained on two identities or more: name more data, or another label")
    generator = torch.Generator().manual_seed(seed)
    images, passes = seen(0), 1
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        recogniser = Recogniser(Conv4(images.shape[1]) if encoder is None else encoder)
        dimension = recogniser.embed(images[:1]).shape[1]
        directions = nn.Parameter(torch.randn(len(codes), dimension) / math.sqrt(dimension))
    optimiser = torch.optim.Adam([*recogniser.parameters(), directions], lr=config.learning_rate, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, config.steps)
    recogniser.train()
    order = torch.empty(0, dtype=torch.int64)
    for step in range(config.steps):
        if len(order) < min(config.batch, len(images)):
            if step > 0:
                images, passes = seen(passes), passes + 1
            order = torch.randperm(len(images), generator=generator)
        rows, order = order[: config.batch], order[config.batch :]
        cosines = recogniser(_shifted(to_float(images[rows]), generator)) @ functional.normalize(directions).T
        loss = functional.cross_entropy(_COSINE_SCALE * cosines, labels[rows], label_smoothing=0.1)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        schedule.step()
        if progress is not None:
            progress(step + 1, config.steps)
    return recogniser.eval()


_COSINE_SCALE = 16.0  # large enough that a wrong identity can get a probability near 0


def _shifted(images: Tensor, generator: torch.Generator) -> Tensor:
    """Move the whole batch by up to a sixteenth of its side, edges repeated."""
    reach = max(1, images.shape[-1] // 16)
    y, x = (int(v) for v in torch.randint(0, 2 * reach + 1, (2,), generator=generator))
    height, width = images.shape[2:]
    padded = functional.pad(images, (reach, reach, reach, reach), mode="replicate")
    return padded[:, :, y : y + height, x : x + width]


def reidentify(
    gallery: Tensor, gallery_identities: Tensor, probes: Tensor, probe_identities: Tensor
) -> Reidentification:
    """Name every probe by a linear classifier fitted on the gallery, and by its nearest neighbour there.

    Args:
        gallery: (n, D) embeddings of known people, from any encoder.
        gallery_identities: (n,) int64.
        probes: (m, D) embeddings of released photographs.
        probe_identities: (m,) int64, the truth.

    Raises:
        MissingExtraError: scikit-learn is not installed.
    """
    with needs_extra("re-identification", "study"):
        from sklearn.linear_model import LogisticRegression
        from sklearn.neighbors import KNeighborsClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

    classifiers = {
        "linear": make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=200, tol=1e-3)),
        "1-nn": KNeighborsClassifier(1, metric="cosine", algorithm="brute"),
    }
    scores = []
    for name, classifier in classifiers.items():
        classifier.fit(gallery.numpy(), gallery_identities.numpy())
        hits = int((classifier.predict(probes.numpy()) == probe_identities.numpy()).sum())
        scores.append(Score(name, hits / len(probes), *wilson(hits, len(probes))))
    _, counts = probe_identities.unique(return_counts=True)
    return Reidentification(
        tuple(scores),
        chance=counts.max().item() / len(probes),
        identities=len(gallery_identities.unique()),
        gallery=len(gallery),
        probes=len(probes),
    )


def wilson(hits: int, trials: int) -> tuple[float, float]:
    """95% interval of a proportion. Wilson 1927: right also near 0, where a safe setting should be."""
    z = 1.959964
    share = hits / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, centre - half), min(1.0, centre + half)
