"""SemSim's embedding: reconstructions that people recognise lie near their originals, others far away.

Source: SemSim (docs/papers.md, "SemSim"), Sec. 4.3 and 5, App. B. It is used by `sfumato.assess.semsim`.

Where the paper is silent:

- An epoch shows each reconstruction once: as the positive or the negative of a triplet whose other side is
  drawn from the same original. Where people recognised all reconstructions of an original, the negative is
  one of another original, which does not show this one either. Where they recognised none, the positive is
  the original itself, at distance 0: the negative is still pushed away, and nothing is made up that people
  might recognise. Without such originals, the easiest and the hardest to reconstruct would be missing.
- Distances are plain, not squared, and embeddings are normalised, in training as in use.
- The learning rate is constant, images are not augmented, and the last epoch is kept.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sfumato import artefacts, images
from sfumato.data.listing import read_rows
from sfumato.episodes import seed_of
from sfumato.errors import ConfigError, DataError, ImageError, did_you_mean
from sfumato.images import check_batch, to_float, to_uint8
from sfumato.learn.cards import Checkpoint
from sfumato.learn.epochs import check_run, resuming, under
from sfumato.networks.embedding import NETWORKS, Embedding, to_squares
from sfumato.networks.weights import initial_weights
from sfumato.precision import autocast, resolve

_KIND = "semsim"
_CHECKPOINT = "semsim checkpoint"
_BATCH = 256
_LOSSES = ("triplet", "contrastive")
_COLUMNS = ("original", "reconstruction", "recognised", "source")
_PEOPLE = "people"
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


# Judgements


@dataclass(frozen=True)
class Judgements:
    """Which of M reconstructions of N originals people recognised.

    Attributes:
        originals: (N, C, H, W) uint8.
        reconstructions: (M, C, H, W) uint8.
        of: (M,) int64, the place in `originals` of what each reconstructs.
        recognised: (M,) bool, what the majority of annotators said.
        source: where they come from, such as the data set.
    """

    originals: Tensor
    reconstructions: Tensor
    of: Tensor
    recognised: Tensor
    source: str

    def __post_init__(self) -> None:
        for batch in (self.originals, self.reconstructions):
            check_batch(batch)
        if self.originals.shape[1:] != self.reconstructions.shape[1:]:
            raise DataError(
                f"{self.source}: originals of {tuple(self.originals.shape[1:])} and reconstructions of "
                f"{tuple(self.reconstructions.shape[1:])}: bring them to one size"
            )
        count = len(self.reconstructions)
        if self.of.shape != (count,) or self.recognised.shape != (count,):
            raise DataError(
                f"{self.source}: {count} reconstructions with {tuple(self.of.shape)} originals and "
                f"{tuple(self.recognised.shape)} judgements: give one of each"
            )
        if self.of.dtype != torch.int64 or self.recognised.dtype != torch.bool:
            raise DataError(
                f"{self.source}: `of` is int64 and `recognised` is bool, "
                f"got {self.of.dtype} and {self.recognised.dtype}"
            )
        if count and not 0 <= int(self.of.min()) <= int(self.of.max()) < len(self.originals):
            raise DataError(
                f"{self.source}: reconstructions of originals {int(self.of.min())} to {int(self.of.max())}, "
                f"and there are {len(self.originals)}: `of` counts them from 0"
            )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of pixels and judgements."""
        sha = hashlib.sha256(repr((self.originals.shape, self.reconstructions.shape)).encode())
        for part in (self.originals, self.reconstructions, self.of, self.recognised):
            sha.update(part.contiguous().numpy().data)
        return sha.hexdigest()


def combine(sets: Sequence[Judgements], *, size: int) -> Judgements:
    """The judgements of several sources as one, all images brought to 3 x size x size.

    Raises:
        DataError: there are none.
    """
    if not sets:
        raise DataError("no judgements to combine: name at least one source")
    alike = [_at(each, size) for each in sets]
    starts = [sum(len(each.originals) for each in alike[:number]) for number in range(len(alike))]
    return Judgements(
        torch.cat([each.originals for each in alike]),
        torch.cat([each.reconstructions for each in alike]),
        torch.cat([each.of + start for each, start in zip(alike, starts, strict=True)]),
        torch.cat([each.recognised for each in alike]),
        " + ".join(each.source for each in alike),
    )


def sample(judgements: Judgements, count: int, generator: torch.Generator) -> Judgements:
    """So many of the originals, drawn at random, with all reconstructions of each (Fig. 7A).

    Raises:
        DataError: there are fewer, or none is asked for.
    """
    available = len(judgements.originals)
    if not 1 <= count <= available:
        raise DataError(f"{judgements.source}: {count} of {available} originals: from 1 to {available}")
    kept = torch.randperm(available, generator=generator)[:count].sort().values
    place = torch.full((available,), -1)
    place[kept] = torch.arange(count)
    rows = place[judgements.of] >= 0
    return Judgements(
        judgements.originals[kept],
        judgements.reconstructions[rows],
        place[judgements.of[rows]],
        judgements.recognised[rows],
        judgements.source,
    )


def read(path: str | os.PathLike[str], *, size: int) -> dict[str, Judgements]:
    """Read what annotators said from a CSV, as `sfumato annotate` exports it. -> source -> judgements.

    Args:
        path: the CSV, in UTF-8, with the columns `original` and `reconstruction`, files relative to its
            folder, `recognised`, true or false or 1 or 0, and `source`; others are not read, but for
            `annotators`: those who are not "people" are named with the source, and so in the artefact.
        size: all images are brought to 3 x size x size, as SemSim brings them when it is used.

    Raises:
        DataError: no such file, a missing column, no rows, or a row with an empty or wrong value or a file
            that is no image.
    """
    path = Path(path)
    _, rows = read_rows(path, columns=_COLUMNS, of="judgement")
    gathered: dict[str, _Gathered] = {}
    for line, row in rows:
        said = row["recognised"].lower()
        if said not in _TRUTHS:
            raise DataError(f"{line}: recognised={row['recognised']!r}: write one of {', '.join(_TRUTHS)}")
        source, annotators = row["source"], row.get("annotators") or _PEOPLE
        if annotators != _PEOPLE:
            source = f"{source} ({annotators} annotators)"
        try:
            gathered.setdefault(source, _Gathered(path.parent, size)).add(
                row["original"], row["reconstruction"], recognised=_TRUTHS[said]
            )
        except ImageError as error:
            raise DataError(f"{line}: {error}") from error
    return {source: each.judgements(source) for source, each in gathered.items()}


class _Gathered:
    """Judgements of one source as they are read. State: the images so far, each original once."""

    def __init__(self, folder: Path, size: int) -> None:
        self._folder, self._size = folder, size
        self._places: dict[str, int] = {}
        self._originals: list[Tensor] = []
        self._reconstructions: list[Tensor] = []
        self._of: list[int] = []
        self._recognised: list[bool] = []

    def add(self, original: str, reconstruction: str, *, recognised: bool) -> None:
        if original not in self._places:
            self._originals.append(self._image(original))
            self._places[original] = len(self._places)
        self._reconstructions.append(self._image(reconstruction))
        self._of.append(self._places[original])
        self._recognised.append(recognised)

    def judgements(self, source: str) -> Judgements:
        return Judgements(
            torch.cat(self._originals),
            torch.cat(self._reconstructions),
            torch.tensor(self._of),
            torch.tensor(self._recognised),
            source,
        )

    def _image(self, name: str) -> Tensor:
        return _squares(images.read(self._folder / name)[None], self._size)


def _at(judgements: Judgements, size: int) -> Judgements:
    """The judgements with all images brought to 3 x size x size."""
    return replace(
        judgements,
        originals=_squares(judgements.originals, size),
        reconstructions=_squares(judgements.reconstructions, size),
    )


def _squares(batch: Tensor, size: int) -> Tensor:
    return torch.cat([to_uint8(to_squares(to_float(part), size)) for part in batch.split(_BATCH)])


# Losses


def triplet_loss(anchors: Tensor, positives: Tensor, negatives: Tensor, *, margin: float) -> Tensor:
    """The mean of max(0, |a - p| - |a - n| + margin) over (B, D) embeddings (Sec. 4.3)."""
    near, far = (anchors - positives).norm(dim=1), (anchors - negatives).norm(dim=1)
    loss: Tensor = (near - far + margin).clamp(min=0).mean()
    return loss


def contrastive_loss(originals: Tensor, others: Tensor, recognised: Tensor, *, margin: float) -> Tensor:
    """The mean of d^2 over recognised pairs, and of max(0, margin - d)^2 over the others, d = |o - r|.

    Source: Hadsell, Chopra & LeCun 2006, Eq. (4), without its factor of 1/2. Of (B, D) embeddings.
    """
    distances = (originals - others).norm(dim=1)
    hinged = torch.where(recognised, distances, (margin - distances).clamp(min=0))  # (B,)
    return hinged.square().mean()


def triplets(judgements: Judgements, generator: torch.Generator) -> Tensor:
    """A triplet for each reconstruction, see the module.

    Returns:
        (M, 3) int64: anchor, positive and negative, as places among the originals, which come first, and the
        reconstructions after them.

    Raises:
        DataError: no reconstruction was recognised, or all were.
    """
    of, first = judgements.of, len(judgements.originals)
    positives = torch.arange(len(of)) + first
    negatives = positives.clone()
    recognised = judgements.recognised.nonzero().flatten()
    unrecognised = (~judgements.recognised).nonzero().flatten()
    drawn, own = _partners(judgements, unrecognised, among=recognised, generator=generator)
    positives[unrecognised] = torch.where(own, drawn + first, of[unrecognised])
    drawn, _ = _partners(judgements, recognised, among=unrecognised, generator=generator)
    negatives[recognised] = drawn + first
    return torch.stack([of, positives, negatives], dim=1)


def pairs(judgements: Judgements) -> Tensor:
    """Each reconstruction with its original. -> (M, 2) int64, places as in triplets."""
    rows = torch.arange(len(judgements.of)) + len(judgements.originals)
    return torch.stack([judgements.of, rows], dim=1)


def _partners(
    judgements: Judgements, rows: Tensor, *, among: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """For each of (n,) rows one of the (m,) others: of the same original, or of any where that has none.

    Returns:
        The (n,) partners, and (n,) bool: whether each is of the same original.
    """
    of = judgements.of
    if not len(among):
        found, wanted = ("all", "harder") if judgements.recognised.any() else ("none", "easier")
        raise DataError(
            f"{judgements.source}: people recognised {found} of the {len(of)} reconstructions, which gives "
            f"nothing to tell apart: add judgements of reconstructions that are {wanted} to recognise"
        )
    among = among[of[among].argsort(stable=True)]  # those of an original side by side
    counts = of[among].bincount(minlength=len(judgements.originals))
    starts = counts.cumsum(0) - counts
    own = counts[of[rows]] > 0
    start, count = starts[of[rows]].where(own, 0), counts[of[rows]].where(own, len(among))
    share = torch.rand(len(rows), generator=generator, dtype=torch.float64)
    return among[start + (share * count).long()], own


# Training


@dataclass(frozen=True, kw_only=True)
class SemSimConfig:
    """How SemSim is trained. The defaults are those of the paper, as far as it gives them.

    Attributes:
        network: "resnet50", "resnet18" or "lenet".
        loss: "triplet" or "contrastive".
        margin: how much farther an unrecognised reconstruction must be; in the contrastive loss, how far.
        normalised: whether embeddings have length 1, and distances are at most 2.
        size: side of the images in pixels, to which all are brought.
        epochs: of all reconstructions.
        batch: reconstructions a step, at most: an epoch is cut into equal parts. Each comes with its original
            and, in a triplet, with a partner.
        learning_rate: of SGD; the published code has 0.05, over 100 epochs.
        momentum: Nesterov's, of which the paper says nothing; the published code has it.
        precision: of training, see `sfumato.precision`; SemSim is used in float32.
    """

    network: str = "resnet50"
    loss: str = "triplet"
    margin: float = 1.0
    normalised: bool = True
    size: int = 32
    epochs: int = 200
    batch: int = 128
    learning_rate: float = 0.1
    momentum: float = 0.0
    precision: str = "auto"

    def __post_init__(self) -> None:
        for what, value, known in (("network", self.network, NETWORKS), ("loss", self.loss, _LOSSES)):
            if value not in known:
                raise ConfigError(f"no {what} is called {value!r}: {did_you_mean(value, known)}")
        for name in ("epochs", "batch"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)}: at least 1")
        if self.size < 8:
            raise ConfigError(f"size={self.size}: at least 8 pixels, which a ResNet halves 3 times")
        for name in ("margin", "learning_rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name}={getattr(self, name):g}: above 0, and finite")
        if not 0 <= self.momentum < 1:
            raise ConfigError(f"momentum={self.momentum:g}: from 0 to below 1 (such as 0.9)")
        resolve(self.precision)


SEMSIM = SemSimConfig()


@dataclass(frozen=True)
class SemSimModel:
    """A trained embedding.

    Attributes:
        embedding: the network, in evaluation mode.
        card: what is known of its making: settings, data digest, seed.
    """

    embedding: Embedding
    card: dict[str, Any]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as an artefact, which `sfumato.assess.semsim.SemSim.load` reads."""
        artefacts.save(path, self.embedding.state_dict(), {"kind": _KIND, **self.card})


def train(
    judgements: Judgements,
    config: SemSimConfig,
    *,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SemSimModel:
    """Train an embedding on what people recognised.

    Args:
        judgements: of one source, or combined from several.
        config: see SemSimConfig.
        seed: decides weights, order and partners. The same seed, machine and thread count repeat a run.
        checkpoint: a file written after each epoch. Where it exists, training goes on from it, exactly as
            if it had not stopped; it is removed by the caller when no longer needed.
        progress: called after each step with the numbers done and planned.

    Raises:
        DataError: no reconstruction was recognised, or all were.
        ConfigError: training diverges.
        ArtefactError: the checkpoint belongs to another run.
    """
    triplets(judgements, torch.Generator().manual_seed(seed))  # fails now where there are none
    precision = resolve(config.precision)
    with initial_weights(seed):
        embedding = Embedding(config.network, size=config.size, normalised=config.normalised)
    card = {
        "config": asdict(config),
        "data": {
            "name": judgements.source,
            "digest": judgements.digest,
            "originals": len(judgements.originals),
            "reconstructions": len(judgements.reconstructions),
            "recognised": int(judgements.recognised.sum()),
        },
        "seed": seed,
        "precision": precision,
    }
    run = _Run(embedding, card, config)
    if checkpoint is not None and Path(checkpoint).exists():
        run.resume(checkpoint)
    judgements = _at(judgements, config.size)
    pool = torch.cat([judgements.originals, judgements.reconstructions])
    steps = -(-len(judgements.of) // config.batch)  # of an epoch
    embedding.train()
    while run.done < config.epochs:
        order = torch.Generator().manual_seed(seed_of(seed, run.done))
        groups = triplets(judgements, order) if config.loss == "triplet" else pairs(judgements)
        for step, rows in enumerate(torch.randperm(len(groups), generator=order).tensor_split(steps), 1):
            with autocast(precision, pool.device):
                embeddings = embedding(to_float(pool[groups[rows].flatten()]))
            run.step(embeddings.unflatten(0, groups[rows].shape), judgements.recognised[rows])
            if progress is not None:
                progress(run.done * steps + step, config.epochs * steps)
        run.done += 1
        if checkpoint is not None:
            run.save(checkpoint)
    return SemSimModel(embedding.eval(), card)


def leave_one_out(
    sets: Mapping[str, Judgements],
    config: SemSimConfig,
    *,
    seed: int = 0,
    checkpoints: str | os.PathLike[str] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, SemSimModel]:
    """For each set a model trained on all others, to be tested on it (Table 1).

    Args:
        sets: name -> judgements, two or more.
        config, seed: see train.
        checkpoints: a folder for the checkpoint of each.
        progress: called after each step with the name, and the numbers done and planned for it.

    Raises:
        DataError: fewer than two sets.
    """
    if len(sets) < 2:
        raise DataError(f"{len(sets)} set to leave one out of: give two or more")
    return {
        name: train(
            combine([each for other, each in sets.items() if other != name], size=config.size),
            config,
            seed=seed,
            checkpoint=None if checkpoints is None else Path(checkpoints) / f"without-{name}.checkpoint",
            progress=None if progress is None else partial(progress, name),
        )
        for name in sets
    }


class _Run:
    """Training under way. State: weights, momentum, and how many epochs are done."""

    def __init__(self, embedding: Embedding, card: dict[str, Any], config: SemSimConfig) -> None:
        self.done = 0
        self._embedding, self._config = embedding, config
        self._identity = json.loads(json.dumps(card))
        self._parameters = list(embedding.parameters())
        self._optimiser = torch.optim.SGD(
            self._parameters,
            lr=config.learning_rate,
            momentum=config.momentum,
            nesterov=config.momentum > 0,
        )

    def step(self, embeddings: Tensor, recognised: Tensor) -> None:
        """Learn from (B, 3, D) triplets or (B, 2, D) pairs."""
        if self._config.loss == "triplet":
            anchors, positives, negatives = embeddings.unbind(1)
            loss = triplet_loss(anchors, positives, negatives, margin=self._config.margin)
        else:
            originals, others = embeddings.unbind(1)
            loss = contrastive_loss(originals, others, recognised, margin=self._config.margin)
        if not loss.isfinite():
            raise ConfigError(
                f"training diverges in epoch {self.done + 1}: lower learning_rate="
                f"{self._config.learning_rate:g}, or set normalised=true"
            )
        loss.backward()
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint, whole or not at all."""
        tensors = {f"model.{k}": v for k, v in self._embedding.state_dict().items()}
        if self._config.momentum:
            buffers = [self._optimiser.state[each]["momentum_buffer"] for each in self._parameters]
            tensors |= {f"momentum.{i}": buffer for i, buffer in enumerate(buffers)}
        artefacts.save(path, tensors, {"kind": _CHECKPOINT, "run": self._identity, "epoch": self.done})

    def resume(self, path: str | os.PathLike[str]) -> None:
        """Go on from a checkpoint. Raises ArtefactError for that of another run."""
        tensors, card = artefacts.load(path, kind=_CHECKPOINT, schema=Checkpoint)
        check_run(path, card["run"], self._identity)
        with resuming(path):
            self._embedding.load_state_dict(under("model.", tensors))
            for i, buffer in under("momentum.", tensors).items():
                parameter = self._parameters[int(i)]
                # It lies in memory as the parameter does, so that steps round as if training had not stopped.
                aligned = torch.empty_like(parameter, requires_grad=False).copy_(buffer)
                self._optimiser.state[parameter]["momentum_buffer"] = aligned
            self.done = card["epoch"]
