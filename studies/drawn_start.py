"""Make the weights that trainings begin with, from drawn worlds: half an hour on two cores.

    python studies/drawn_start.py OUT [--set epochs=10] [--seed N]    # stopped, it goes on

The library ships such weights, see sfumato.learn.start; `--set encoder=drawn:OUT,rate=0.1` begins with yours.

One Conv-4 learns to name what is on images of three worlds, drawn faces, glyphs, and things in scenes: each
label of each world has a linear layer of its own, which is left out in the end. Images are cropped, mirrored,
shown in other colours and at other sizes, and two of five batches are released by a protection. Clutter in scenes has
the spectrum of photographs (Lee, Mumford & Huang 2001). Source: ours, after Baradad et al. 2021.
"""

import argparse
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato import artefacts
from sfumato.base.hardware import autocast, resolve
from sfumato.base.settings import configure
from sfumato.data import LabelledImages, faces, glyphs
from sfumato.data.labelled import Label, split_by_class
from sfumato.data.worlds.drawing import PATTERNS, between, coverage, pattern, sensor_noise, uniforms
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

SHARES = (0.64, 0.16, 0.20)  # of the things: train, validation, test

_PARTS = 5  # of a thing, its body among them
_CLUTTER = 12  # shapes behind a thing
_LAYER = 19  # numbers in [0, 1) that a layer is made from
_CHUNK_PIXELS = 16 * 64 * 64  # drawn at a time: they fit a core's cache

_Batch = tuple[Tensor, int, Mapping[str, Tensor]]  # images, how often they are halved, codes of their labels


@dataclass(frozen=True, kw_only=True)
class StartConfig:
    """How the start is trained; the defaults made the one that is shipped."""

    things: int = 1200  # drawn
    people: int = 500
    characters: int = 600
    epochs: int = 30
    steps: int = 400  # of an epoch, a batch each
    batch: int = 192
    learning_rate: float = 3e-3  # of Adam, at its highest: it rises over 200 steps, and falls along a cosine
    protected: float = 0.4  # the share of batches that are released by a protection
    world: int = 1_000_003  # the seed of what is drawn, kept apart from the worlds that studies use
    precision: str = "auto"  # see `sfumato.base.hardware`

    def __post_init__(self) -> None:
        for name in ("things", "people", "characters"):
            if (count := getattr(self, name)) < 40:
                raise ConfigError(f"{name}={count}: at least 40, so that 5 are left to validate")
        for name in ("epochs", "steps", "batch"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)}: at least 1")
        if not 0 <= self.protected <= 1:
            raise ConfigError(f"protected={self.protected:g}: a share, from 0 to 1")
        if not 0 < self.learning_rate < math.inf:
            raise ConfigError(f"learning_rate={self.learning_rate:g}: above 0 (such as 0.003)")
        resolve(self.precision)


class Start(nn.Module):
    """A Conv-4 that learns from drawn worlds. State: its weights, and the card of their making."""

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

    The best is that which best tells new things apart, 5-way 5-shot by prototypes, in clear. The same seed, machine and
    thread count repeat a run. See fit.fit for checkpoint and progress; one of another run raises ArtefactError.
    """
    worlds = _drawn(config)
    with initial_weights(seed):
        settings = {**asdict(config), "precision": resolve(config.precision)}
        drawn = {name: world.digest for name, world in worlds.items()}
        model = Start({"config": settings, "precision": settings["precision"], "drawn": drawn, "seed": seed})
        heads = nn.ModuleDict()
        for name, world in worlds.items():
            for label, known in world.labels.items():
                heads[f"{name} {label}"] = nn.Linear(64 * _MAPS**2, len(known.names))
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


@cache
def _drawn(config: StartConfig) -> dict[str, LabelledImages]:
    seed = config.world
    letters = glyphs(classes=config.characters, drawers=16, size=_SIDE, seed=seed)
    people = {"identities": config.people, "headwear": config.people}
    return {
        "scenes": scenes(things=config.things, images_per_thing=30, size=_SIDE, seed=seed),
        "faces": faces(**people, images_per_identity=24, size=_SIDE, seed=seed),
        "glyphs": replace(letters, images=letters.images.expand(-1, 3, -1, -1)),
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


def scenes(
    *, things: int = 500, images_per_thing: int = 20, backgrounds: int = 40, size: int = 64, seed: int = 0
) -> LabelledImages:
    """Things, each in front of several kinds of background; the background is independent of the thing.

    The world is fixed by its seed; a larger one begins with the things of a smaller one.

    Returns:
        (things * images_per_thing, 3, size, size) images, by thing, labelled `class` and `background`,
        split into train, validation and test, which hold whole things.
    """
    codes = torch.arange(things).repeat_interleave(images_per_thing)
    looks = uniforms(seed, "things", things, 1 + _PARTS * _LAYER)
    kinds = uniforms(seed, "backgrounds", backgrounds, 12)
    whims = uniforms(seed, f"views, {images_per_thing} each", len(codes), 24 + (_CLUTTER + 1) * _LAYER)
    behind = (whims[:, 0] * backgrounds).long()
    images = torch.empty(len(codes), 3, size, size, dtype=torch.uint8)
    for rows in torch.arange(len(codes)).split(max(1, _CHUNK_PIXELS // size**2)):
        images[rows] = _draw(looks[codes[rows]], kinds[behind[rows]], whims[rows], size)
    labels = {
        "class": Label(codes, tuple(f"thing-{i:04d}" for i in range(things))),
        "background": Label(behind, tuple(f"background-{i:03d}" for i in range(backgrounds))),
    }
    return LabelledImages("scenes", images, labels, split_by_class(codes, shares=SHARES, seed=seed))


@dataclass(frozen=True)
class _Layer:
    """A textured shape of each of B images. (B,) each, unless said otherwise."""

    x: Tensor  # its middle
    y: Tensor
    frame: Tensor  # (B, 4), rows of the matrix from the plane to the shape's own axes
    radii: Tensor  # (B, 2) half-width and half-height
    norm: Tensor  # (B, 3) shares of a diamond, an ellipse and a box
    taper: Tensor  # how much narrower it is above than below
    hole: Tensor  # the share of it that is cut out, or -1
    pattern: Tensor  # (B, 6) row of PATTERNS
    waves: Tensor  # (B, 4), see `drawing.pattern`
    colours: Tensor  # (B, 2, 3)


def _layer(u: Tensor, *, x: Tensor, y: Tensor, radius: Tensor) -> _Layer:
    """(B, 19) numbers in [0, 1) and the given values -> a layer."""
    angle = math.tau * u[:, 0]
    norm = u[:, 3:6].square()
    waves = between(0.8, 4.5, u[:, 10].square()) / radius.clamp(min=0.15)
    lengths = torch.stack([waves, waves * between(0.6, 1.6, u[:, 12])], 1)
    return _Layer(
        x=x,
        y=y,
        frame=_turn(angle),
        radii=radius[:, None] * torch.stack([between(0.45, 1.0, u[:, 1]), between(0.45, 1.0, u[:, 2])], 1),
        norm=norm / norm.sum(1, keepdim=True).clamp(min=1e-6),
        taper=torch.where(u[:, 6] < 0.5, torch.zeros(()), between(-0.9, 0.9, u[:, 7])),
        hole=torch.where(u[:, 8] < 0.85, -torch.ones(()), between(0.35, 0.75, (u[:, 8] - 0.85) / 0.15)),
        pattern=PATTERNS[(u[:, 11] * len(PATTERNS)).long()],
        waves=torch.cat([_turn(math.tau * u[:, 9])[:, :2], lengths], 1),
        colours=_mute(u[:, 13:19].view(-1, 2, 3)),
    )


def _mute(colours: Tensor) -> Tensor:
    """(..., 3) of any colours -> colours as in photographs, most of them near grey."""
    grey = colours.mean(-1, keepdim=True)
    return grey + 0.6 * (colours - grey)


def _turn(angle: Tensor) -> Tensor:
    """(B,) angles -> (B, 4) rows of the rotations; in double, so that the last bit is always the same."""
    cos, sin = angle.double().cos().float(), angle.double().sin().float()
    return torch.stack([cos, sin, -sin, cos], 1)


def _draw(looks: Tensor, kinds: Tensor, whims: Tensor, size: int) -> Tensor:
    axis = (torch.arange(size) + 0.5) * (2 / size) - 1
    x, y = axis[None, None, :], axis[None, :, None]
    pixel = 2 / size
    kinds = torch.cat([_mute(kinds[:, :9].view(-1, 3, 3)).flatten(1), kinds[:, 9:]], 1)
    first, second, third = kinds[:, 0:3], kinds[:, 3:6], kinds[:, 6:9]
    # Lit from above or below; with a horizon, the ground has another colour than the sky.
    mix = ((y + 1) / 2).expand(len(whims), size, size)
    canvas = _mix(first, second, mix)
    horizon = between(-0.3, 0.9, whims[:, 1])
    ground = coverage(y - _column(horizon), pixel) * _column((kinds[:, 9] < 0.6).float())
    canvas = _over(canvas, third, ground.expand_as(mix))
    clutter = whims[:, 24:].view(len(whims), _CLUTTER + 1, _LAYER)
    crowded = between(0.4, 1.0, kinds[:, 10])
    for i in range(_CLUTTER):
        layer = _clutter(clutter[:, i], kinds)
        canvas = _paint(canvas, layer, x, y, pixel, seen=whims[:, 2 + i] < crowded)
    # The view: shifted, turned, nearer or farther, and every other time mirrored.
    cos, sin = _turn(between(-0.45, 0.45, whims[:, 14]))[:, :2].unbind(1)
    scale = between(0.55, 1.05, whims[:, 15])
    side = torch.where(whims[:, 16] < 0.5, -1.0, 1.0)
    wide = scale * between(0.82, 1.2, whims[:, 17])
    across = x - _column(between(-0.3, 0.3, whims[:, 18]))
    down = y - _column(between(-0.3, 0.3, whims[:, 19]))
    own_x = (across * _column(cos) + down * _column(sin)) * _column(side / wide)
    own_y = (down * _column(cos) - across * _column(sin)) * _column(1 / scale)
    faded = between(-0.12, 0.12, whims[:, 20:23])
    for layer, seen in _parts(looks):
        canvas = _paint(canvas, layer, own_x, own_y, pixel / 0.8, seen=seen, faded=faded)
    before = clutter[:, _CLUTTER]
    canvas = _paint(canvas, _clutter(before, kinds), x, y, pixel, seen=before[:, 18] < 0.25)
    light = between(0.75, 1.2, whims[:, 23])[:, None, None, None]
    shade = 1 + 0.25 * (_column(whims[:, 20] - 0.5) * x + _column(whims[:, 21] - 0.5) * y)
    grain = sensor_noise(whims[:, 22], 3 * size * size).view(-1, 3, size, size)
    values = canvas * light * shade[:, None] * 255.0 + 4.0 * grain
    return values.round_().clamp_(0, 255).to(torch.uint8)


def _clutter(u: Tensor, kinds: Tensor) -> _Layer:
    """Shapes of a background: few are large, many are small, and half their colours are the background's."""
    radius = 0.14 / (0.1 + u[:, 0])  # 0.13 to 1.4, density as r^-2
    layer = _layer(u.roll(3, 1), x=between(-1.1, 1.1, u[:, 1]), y=between(-1.1, 1.1, u[:, 2]), radius=radius)
    layer.colours.mul_(0.5).add_(0.5 * torch.stack([kinds[:, 0:3], kinds[:, 6:9]], 1))
    plain = (u[:, 5] < kinds[:, 11])[:, None]
    return _Layer(**{**vars(layer), "pattern": torch.where(plain, PATTERNS[0], layer.pattern)})


def _parts(looks: Tensor) -> list[tuple[_Layer, Tensor]]:
    """A thing's parts, the farthest first, and which things have them: its body, and others at its edge.

    Half of the others come in pairs, to the left and right.
    """
    count = len(looks)
    u = looks[:, 1:].view(count, _PARTS, _LAYER)
    has = 1 + looks[:, 0] * _PARTS  # 1 to 5 parts
    parts: list[tuple[_Layer, Tensor]] = []
    for i in range(1, _PARTS):
        angle = _turn(math.tau * u[:, i, 17])
        away = between(0.35, 0.75, u[:, i, 18])
        x, y = angle[:, 0] * away, angle[:, 1] * away
        radius = between(0.12, 0.45, u[:, i, 16])
        layer = _layer(u[:, i], x=x, y=y, radius=radius)
        present = has > i + 0.5
        parts.append((layer, present))
        mirrored = layer.frame * torch.tensor([-1.0, 1.0, -1.0, 1.0])
        parts.append((_Layer(**{**vars(layer), "x": -x, "frame": mirrored}), present & (u[:, i, 15] < 0.5)))
    zero = torch.zeros(count)
    body = _layer(u[:, 0], x=zero, y=zero, radius=between(0.4, 0.75, u[:, 0, 16]))
    # Parts lie behind the body or in front of it.
    behind = [(layer, present & (u[:, 1 + k // 2, 14] < 0.5)) for k, (layer, present) in enumerate(parts)]
    ahead = [(layer, present & (u[:, 1 + k // 2, 14] >= 0.5)) for k, (layer, present) in enumerate(parts)]
    return [*behind, (body, torch.ones(count, dtype=torch.bool)), *ahead]


def _paint(
    canvas: Tensor,
    layer: _Layer,
    x: Tensor,
    y: Tensor,
    pixel: float,
    *,
    seen: Tensor,
    faded: Tensor | None = None,
) -> Tensor:
    """Paints a layer over those images that show it, without work on the others."""
    rows = seen.nonzero().flatten()
    if not len(rows):
        return canvas
    layer = _Layer(**{name: column[rows] for name, column in vars(layer).items()})
    x, y = (c[rows] if len(c) > 1 else c for c in (x, y))
    across, down = x - _column(layer.x), y - _column(layer.y)
    a, b, c, d = (_column(k) for k in layer.frame.unbind(1))
    own_x, own_y = across * a + down * b, across * c + down * d
    rx, ry = (_column(r) for r in layer.radii.unbind(1))
    v = own_y * (1 / ry)
    u = (own_x * (1 / rx)).abs() * (1 / (1 + _column(layer.taper) * 0.5 * (v.clamp(-1, 1) + 1) * 0.9))
    v = v.abs()
    diamond, round_, square = (_column(k) for k in layer.norm.unbind(1))
    far = diamond * (u + v) + round_ * (u.square() + v.square()).sqrt() + square * torch.maximum(u, v)
    inside = torch.minimum(1 - far, far - _column(layer.hole)) * torch.minimum(rx, ry)
    share = pattern(layer.pattern, layer.waves, own_x, own_y, torch.zeros(1, 1, 1), pixel)
    colours = layer.colours if faded is None else (layer.colours + faded[rows, None]).clamp(0, 1)
    paint = _mix(colours[:, 1], colours[:, 0], share)
    cover = coverage(inside, pixel)[:, None]
    canvas[rows] = canvas[rows] * (1 - cover) + paint * cover
    return canvas


def _column(values: Tensor) -> Tensor:
    return values[:, None, None]


def _mix(first: Tensor, second: Tensor, share: Tensor) -> Tensor:
    """(B, 3) colours and (B, H, W) the share of the second -> (B, 3, H, W)."""
    first, second = first[:, :, None, None], second[:, :, None, None]
    return first + share[:, None] * (second - first)


def _over(canvas: Tensor, colour: Tensor, cover: Tensor) -> Tensor:
    cover = cover[:, None]
    return canvas * (1 - cover) + colour[:, :, None, None] * cover


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
