"""Make the weights that trainings begin with, from drawn worlds: half an hour on two cores.

    python studies/drawn_start.py OUT [--set epochs=10] [--seed N]    # stopped, it goes on

The library ships such weights, see sfumato.learn.start; `--set encoder=drawn:OUT,rate=0.1` begins with yours.

One Conv-4 learns to name what is on images of three worlds, drawn faces, glyphs, and things in scenes: each
label of each world has a linear layer of its own, which is left out in the end. Images are cropped, mirrored,
shown in other colours and at other sizes, and two of five batches are released by a protection; half of
those that are pixelized are seen as the values of their cells, which are then halved less often.

Source: ours. Networks that learn from drawn shapes carry over to photographs (Baradad et al. 2021).
"""

import argparse
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from drawn_scenes import scenes
from torch import Tensor, nn
from torch.nn import functional

from sfumato import artefacts
from sfumato.base.hardware import autocast, resolve
from sfumato.base.settings import configure
from sfumato.data import LabelledImages, faces, glyphs
from sfumato.dp.mechanisms import seeded_noise
from sfumato.episodes import Sampler, Shape, seed_of
from sfumato.errors import ConfigError
from sfumato.images import to_float, to_uint8
from sfumato.learn.fit import Progress, Run, adam, fit
from sfumato.learn.prototypes import episode_accuracies
from sfumato.learn.start import KIND
from sfumato.networks.encoders.small import Conv4
from sfumato.networks.weights import initial_weights
from sfumato.protect import parse
from sfumato.protect.parameters import cell_in_pixels

_MAPS = 2  # maps are pooled to so many rows and columns before they are classified, whatever their size
_SIDE = 48  # images are drawn at this size
_SHARES = {"scenes": 0.6, "faces": 0.25, "glyphs": 0.15}  # how often a batch is of a world
_SIDES = (32, 32, 32, 40, 48)  # a batch is shown at one of these
_PROTECTIONS = (
    "blur:radius=1", "blur:radius=2", "blur:radius=3",
    "pixelize:cell=2", "pixelize:cell=4", "pixelize:cell=8",
    "gaussian:sigma=20", "gaussian:sigma=60", "gaussian:sigma=120",
    "dp-pix:cell=4,epsilon=3", "dp-pix:cell=8,epsilon=3", "dp-pix:cell=8,epsilon=1",
    "centre-blur:radius=3", "block:share=0.5",
)  # fmt: skip
_EPISODES = 200
_TESTED = Shape(way=5, shot=5, queries=10)

_Batch = tuple[Tensor, int, Mapping[str, Tensor]]  # images, how often they are halved, codes of their labels


@dataclass(frozen=True, kw_only=True)
class StartConfig:
    """How the start is trained; the defaults made the one that is shipped.

    Attributes:
        things, people, characters: how many are drawn of each world.
        epochs, steps, batch: `steps` batches of `batch` images an epoch.
        learning_rate: of Adam, at its highest: it rises over the first 200 steps, and falls along a cosine.
        protected: the share of batches that are released by a protection.
        world: the seed of what is drawn, kept apart from the worlds that studies use.
        precision: see `sfumato.base.hardware`.
    """

    things: int = 1200
    people: int = 500
    characters: int = 600
    epochs: int = 30
    steps: int = 400
    batch: int = 192
    learning_rate: float = 3e-3
    protected: float = 0.4
    world: int = 1_000_003
    precision: str = "auto"

    def __post_init__(self) -> None:
        for name in ("things", "people", "characters"):
            if getattr(self, name) < 40:
                raise ConfigError(
                    f"{name}={getattr(self, name)}: at least 40, so that 5 are left to validate"
                )
        for name in ("epochs", "steps", "batch"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)}: at least 1")
        if not 0 <= self.protected <= 1:
            raise ConfigError(f"protected={self.protected:g}: a share, from 0 to 1")
        if not 0 < self.learning_rate < math.inf:
            raise ConfigError(f"learning_rate={self.learning_rate:g}: above 0 (such as 0.003)")
        resolve(self.precision)


class Start(nn.Module):
    """A Conv-4 that learns from drawn worlds. State: its weights.

    Attributes:
        card: what is known of its making.
    """

    def __init__(self, card: dict[str, Any]) -> None:
        super().__init__()
        self.encoder = Conv4(3)
        self.card = card
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor, pools: int = 4) -> Tensor:
        """(N, 3, H, W) float images, halved so often -> (N, 256) float32."""
        with autocast(self.card["precision"], images.device):
            maps = images.contiguous(memory_format=torch.channels_last)
            for number, block in enumerate(self.encoder.blocks):
                convolution, norm, pool, relu = block.children()
                maps = norm(convolution(maps))
                maps = relu(pool(maps) if number >= 4 - pools else maps)
        return functional.adaptive_avg_pool2d(maps.float(), _MAPS).flatten(1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the encoder alone, in half precision, as the artefact that `start` ships."""
        weights = _as_small_as_random(self.encoder).items()
        halves = {name: each.half() if each.is_floating_point() else each for name, each in weights}
        artefacts.save(path, halves, {"kind": KIND, **self.card})


def train(
    config: StartConfig,
    *,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Start:
    """Draw the worlds, train on them, and return the encoder as of the best epoch.

    The best is that which best tells new things apart, 5-way 5-shot by prototypes, in clear.

    Args:
        config: see StartConfig.
        seed: decides weights and order. The same seed, machine and thread count repeat a run.
        checkpoint, progress: see fit.fit.

    Raises:
        ArtefactError: the checkpoint belongs to another run.
    """
    worlds = _drawn(config)
    with initial_weights(seed):
        settings = {**asdict(config), "precision": resolve(config.precision)}
        drawn = {name: world.digest for name, world in worlds.items()}
        model = Start({"config": settings, "precision": settings["precision"], "drawn": drawn, "seed": seed})
        heads = nn.ModuleDict(
            {
                f"{name} {label}": nn.Linear(64 * _MAPS**2, len(world.labels[label].names))
                for name, world in worlds.items()
                for label in world.labels
            }
        )
    train_of = {name: world.split("train") for name, world in worlds.items()}
    judge = _Judge(worlds["scenes"].split("validation"))
    run = Run(model, adam(config.learning_rate), kind="start checkpoint", identity=model.card, beside=heads)

    def batches(epoch: int) -> Iterator[_Batch]:
        draw = torch.Generator().manual_seed(seed_of(seed, epoch))
        for step in range(config.steps):
            run.set_rate(_rate(config, epoch * config.steps + step))
            name = list(_SHARES)[int(torch.multinomial(torch.tensor([*_SHARES.values()]), 1, generator=draw))]
            data = train_of[name]
            rows = torch.randint(len(data), (config.batch,), generator=draw)
            images, pools = _shown(data.images[rows], config, draw, noise=seed_of(seed, epoch, step))
            yield images, pools, {f"{name} {label}": data.labels[label].codes[rows] for label in data.labels}

    def step(batch: _Batch) -> Tensor:
        images, pools, labels = batch
        features = model(images, pools)
        losses = [functional.cross_entropy(heads[name](features), codes) for name, codes in labels.items()]
        return run.minimise(torch.stack(losses).sum())

    fit(
        run,
        batches,
        step,
        epochs=config.epochs,
        steps=config.steps,
        judge=lambda: judge.accuracy(model),
        checkpoint=checkpoint,
        progress=progress,
    )
    model.card |= {**run.outcome, "curve": run.curve}
    return model


def _drawn(config: StartConfig) -> dict[str, LabelledImages]:
    """The three worlds, in colour."""
    seed = config.world
    letters = glyphs(classes=config.characters, drawers=16, size=_SIDE, seed=seed)
    return {
        "scenes": scenes(things=config.things, images_per_thing=30, size=_SIDE, seed=seed),
        "faces": faces(
            identities=config.people, images_per_identity=24, headwear=config.people, size=_SIDE, seed=seed
        ),
        "glyphs": LabelledImages(
            letters.name, letters.images.expand(-1, 3, -1, -1), letters.labels, letters.splits
        ),
    }


def _shown(images: Tensor, config: StartConfig, draw: torch.Generator, *, noise: int) -> tuple[Tensor, int]:
    """(N, 3, H, W) uint8 -> (N, 3, h, w) float in [0, 1], as a batch is shown; how often it is halved."""
    side = _SIDES[int(torch.randint(len(_SIDES), (), generator=draw))]
    cut = int(torch.randint(2 * _SIDE // 3, _SIDE + 1, (), generator=draw))
    top, left = torch.randint(_SIDE - cut + 1, (2,), generator=draw).tolist()
    shown = to_float(images[:, :, top : top + cut, left : left + cut])
    if torch.rand((), generator=draw) < 0.5:
        shown = shown.flip(3)
    shown = functional.interpolate(
        shown, (side, side), mode="bilinear", align_corners=False, antialias=cut > side
    )
    shown = _recoloured(shown, draw)
    if torch.rand((), generator=draw) >= config.protected:
        return shown, 4
    protection = parse(_PROTECTIONS[int(torch.randint(len(_PROTECTIONS), (), generator=draw))])
    released = to_float(protection.release(to_uint8(shown), seeded_noise(noise)).images())
    if protection.cell == 1 or torch.rand((), generator=draw) < 0.5:
        return released, 4
    cell = cell_in_pixels(protection, side, side)
    return functional.avg_pool2d(released, cell), 4 - round(math.log2(cell))


def _recoloured(images: Tensor, draw: torch.Generator) -> Tensor:
    """Colours mixed, every fourth image grey, one in seven a negative; other contrast and brightness."""
    count = len(images)
    mixes = torch.eye(3) + 0.25 * torch.randn(count, 3, 3, generator=draw)
    mixes = mixes / mixes.sum(2, keepdim=True).clamp(min=0.3)
    grey = torch.rand(count, 1, 1, generator=draw) < 0.25
    mixes = torch.where(grey, torch.full((3, 3), 1 / 3), mixes)
    mixed = torch.einsum("nij,njhw->nihw", mixes, images)
    negative = (torch.rand(count, 1, 1, 1, generator=draw) < 0.15).float()
    mixed = mixed + negative * (1 - 2 * mixed)
    contrast = 0.6 + 0.8 * torch.rand(count, 1, 1, 1, generator=draw)
    brightness = 0.3 * torch.rand(count, 1, 1, 1, generator=draw) - 0.15
    return ((mixed - 0.5) * contrast + 0.5 + brightness).clamp(0, 1)


def _rate(config: StartConfig, step: int) -> float:
    share = step / (config.epochs * config.steps)
    return config.learning_rate * min(1.0, (step + 1) / 200) * (0.01 + (1 + math.cos(math.pi * share)) / 2)


@torch.no_grad()
def _as_small_as_random(encoder: Conv4) -> dict[str, Tensor]:
    """The weights of a network that gives the same, whose filters are no larger than random ones.

    Batch norm undoes the size of a filter, which grows in training all the same; but a step of Adam changes a
    filter by the learning rate whatever its size: one seven times as large learns as much more slowly.
    """
    weights = encoder.state_dict()
    for name in [name for name in weights if weights[name].ndim == 4]:
        block = name.removesuffix("0.weight")
        fan_in = weights[name][0].numel()
        drawn = math.sqrt(weights[name].numel() / (3 * fan_in))  # the norm of PyTorch's initial filters
        share = drawn / weights[name].norm()
        weights[name] = share * weights[name]
        weights[f"{block}1.running_mean"] = share * weights[f"{block}1.running_mean"]
        weights[f"{block}1.running_var"] = share**2 * weights[f"{block}1.running_var"]
    return weights


class _Judge:
    """Episodes of things that were never trained on. State: none that changes."""

    def __init__(self, data: LabelledImages) -> None:
        self._images = data.images
        sampler = Sampler(data.label("class"), _TESTED)
        self._rows = sampler.draw(_EPISODES, torch.Generator().manual_seed(0))

    @torch.no_grad()
    def accuracy(self, model: Start) -> float:
        model.eval()
        features = torch.cat([model(to_float(part)) for part in self._images.split(256)])
        return episode_accuracies(features, self._rows, shot=_TESTED.shot).mean().item()


def main() -> None:
    """Train, and write the weights."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="the .safetensors file to write")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    checkpoint = options.out.with_suffix(".checkpoint")
    model = train(
        configure(StartConfig, options.set),
        seed=options.seed,
        checkpoint=checkpoint,
        progress=lambda done, planned: print(f"{done} of {planned} steps", end="\r", flush=True),
    )
    model.save(options.out)
    checkpoint.unlink(missing_ok=True)
    right = 100 * model.card["validation_accuracy"]
    print(
        f"new drawn things told apart, 5-way 5-shot, before any is trained on: {right:.1f}% (guessing: 20%)"
    )


if __name__ == "__main__":
    main()
