"""Audits of protections of images by a few releases: every cell of a release is a canary."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.dp.audit.neighbours import GREY, Mechanism, size_of_release
from sfumato.dp.audit.one_run import Guesses, OneRunAudit, conclude, guess, plan_guesses, proves
from sfumato.dp.guarantee import Guarantee
from sfumato.errors import ConfigError

_WHITE = 255
_LEAST = 20  # canaries: fewer prove nothing


@dataclass(frozen=True, kw_only=True)
class OneReleaseConfig:
    """The settings of an audit by a few releases.

    Attributes:
        shape: (C, H, W) of the audited images. A guarantee holds for every shape; large ones have many cells.
        pixels: m, how many pixels a canary has.
        releases: of one image each.
        confidence: the bound holds with at least this probability.
        delta: of the (ε, δ) that zCDP converts to: no bound on ρ itself is known from one run.
        seed: of the coins, not of the mechanism's noise.
    """

    shape: tuple[int, int, int] = (3, 224, 224)
    pixels: int = 1
    releases: int = 1
    confidence: float = 0.99
    delta: float = 1e-5
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.shape) < 1:
            raise ConfigError(f"shape: channels, height and width are at least 1, got {self.shape}")
        if self.pixels < 1:
            raise ConfigError(f"pixels={self.pixels}: a canary has at least 1 pixel")
        if self.releases < 1:
            raise ConfigError(f"releases={self.releases}: at least 1")


def audit_release(mechanism: Mechanism, stated: Guarantee | None, config: OneReleaseConfig) -> OneRunAudit:
    """Proves a lower bound on how much a mechanism leaks of m pixels, by a few releases.

    A grey image has m pixels of each cell black or white, by a coin each; of each group of cells, if m is
    more than a cell holds. To guess the coins is to guess many independent bits, each of which the guarantee
    protects. A canary's score is the mean of the release at its position, minus the median of all; or that of
    the difference to a grey image released next to it, or in another call, if differences vary less, as they
    do when noise is reused. The coins are read last.

    Smaller cells at a border are left out, and so are neighbours of other kinds: `audit` tries more,
    with many more releases.

    Arguments are those of `audit`. Raises ConfigError: too few cells, or see size_of_release.
    """
    size = size_of_release(mechanism, stated, config.shape, config.pixels)
    if stated is not None and stated.definition == "concentrated":
        stated = stated.to("approximate", delta=config.delta)
    definition, delta = (stated.definition, stated.delta) if stated else ("pure", 0.0)
    grey = torch.full((1, *config.shape), GREY, dtype=torch.uint8)
    cells = _cells(config, size[1:])  # (n, pixels of a group of cells)
    places = cells[:, : config.pixels]
    if len(places) * config.releases < _LEAST:
        raise ConfigError(
            f"{len(places)} canaries in a release and {config.releases} releases: fewer than {_LEAST} "
            "canaries prove nothing; take a larger shape, or more releases"
        )
    # For the number of guesses: it decides how much is proved, and not whether the bound holds.
    mu = 2.0 if stated is None else stated.value / (1 if stated.definition == "gaussian" else 2)
    each = plan_guesses(
        len(places) * config.releases,
        mu=mu,
        bound=lambda guesses: proves(guesses, definition, delta=delta, confidence=config.confidence),
    )
    coins = torch.Generator().manual_seed(config.seed)
    together = Guesses(canaries=0, guesses=0, right=0)
    for _ in range(config.releases):
        white = torch.rand(len(places), generator=coins) < 0.5
        image = grey.clone().flatten(2)
        image[:, :, places.flatten()] = (
            torch.where(white, _WHITE, 0).to(torch.uint8).repeat_interleave(config.pixels)
        )
        scores = _scores(mechanism, image.view_as(grey), grey, places)
        together += guess(scores, white, guesses=max(1, each // config.releases))
    return conclude(
        together,
        definition=definition,
        stated=stated.value if stated else None,
        delta=delta,
        confidence=config.confidence,
        runs=config.releases,
        run="release",
    )


def _cells(config: OneReleaseConfig, size: torch.Size) -> Tensor:
    """(n, k) the pixels of whole cells: k pixels in as many cells together as m pixels need."""
    height, width = config.shape[1:]
    cell = -(-height // size[0])
    pixels = torch.arange(height * width).view(height, width)
    pixels = pixels[: height // cell * cell, : width // cell * cell]
    whole = pixels.unfold(0, cell, cell).unfold(1, cell, cell).flatten(0, 1).flatten(1)  # (cells, cell^2)
    together = -(-config.pixels // cell**2)
    groups = len(whole) // together
    return whole[: groups * together].reshape(groups, -1)


def _scores(mechanism: Mechanism, image: Tensor, grey: Tensor, places: Tensor) -> Tensor:
    """(n,) the scores of one release, above 0 for a canary that seems white."""
    first, again = mechanism(torch.cat([image, grey])), mechanism(torch.cat([grey, grey]))
    own, beside, other = (
        _means_at(values, image.shape, places) for values in (first[0], first[1], again[0])
    )  # (n,) each
    view = min((own, own - beside, own - other), key=lambda values: values.var().item())
    return view - view.median()


def _means_at(values: Tensor, shape: torch.Size, places: Tensor) -> Tensor:
    """(C', h, w) values -> (n,) their means at each canary."""
    height, width = shape[2:]
    rows = places // width * values.shape[1] // height
    columns = places % width * values.shape[2] // width
    return values.double().mean(0)[rows, columns].mean(1)
