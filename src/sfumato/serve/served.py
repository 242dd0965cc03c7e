"""A model as the service runs it: one function from releases to embeddings.

An embedding depends on its own image alone, up to rounding. Networks compute in float32 on every machine, so
that an image enrolled through one server is recognised through another.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from sfumato.learn.code_prototypes import CodePrototypes
from sfumato.learn.refusal import Refusal
from sfumato.protect import Protection
from sfumato.protect.code import KIND as CODE
from sfumato.protect.code import Code
from sfumato.protect.release import Release
from sfumato.protect.spec import parse_as
from sfumato.wire import AnyRelease

if TYPE_CHECKING:
    from torch import nn

EXPORTED = ".onnx"  # the suffix of the files that `sfumato export` writes, see serve.exported

_BATCH, _PIXELS = 16, 1 << 20  # of an example; batches of large images are smaller


@lru_cache(maxsize=256)
def code_of(spec: str) -> Code:
    """Parse the spec of a code; cached, since a device sends the same one often. Raises SpecError."""
    code: Code = parse_as(spec, {CODE: Code})
    return code


def as_it_came(inputs: np.ndarray) -> np.ndarray:
    """Return what came: the `run` of a model whose releases are its embeddings."""
    return inputs


Kind = Literal["few-shot", "meta", "private feature", "code"]


@dataclass(frozen=True)
class Demand:
    """A protection that a model was trained for.

    Attributes:
        spec: as it travels, see sfumato.protect.spec.portable.
        made_of: the digest of the artefact that the spec names; None without one, or if unknown.
        protection: None for a private feature or a code, whose noise is the device's choice.
        kind: of the releases; "pixels" with or without a mask.
    """

    spec: str
    made_of: str | None
    protection: Protection | None
    kind: Literal["pixels", "numbers", "bits"] = "pixels"


@dataclass(frozen=True)
class Served:
    """A model that a server runs.

    Attributes:
        name, kind: the name that clients know, and the kind of the artefact.
        demand: the protection that it was trained for.
        shape, dimension: C, H and W of the originals, and D of an embedding, or of a code as it comes.
        refusal: decides when an answer is "none of these"; None if never measured. See refusal_of.
        prepare: makes the input of `run`, (N, ...) float32, from a release by the demand.
        run: (N, ...) float32 of any releases -> (N, D) float32.
        network: the network that `run` computes, for export; None if it computes nothing.
        by: the library that computes it.
        codes: for a code, the way of making prototypes; None for means.
        digest: the SHA-256 of the artefact's file; None if it was not read from one.
        device_side: for a code, the file of `sfumato export` by which a browser makes it; None without one.
        cell: of the input of the network, see input_maker.
    """

    name: str
    kind: Kind
    demand: Demand
    shape: tuple[int, int, int]
    dimension: int
    refusal: Refusal | None
    prepare: Callable[[AnyRelease], np.ndarray]
    run: Callable[[np.ndarray], np.ndarray]
    network: "nn.Module | None" = None
    by: str = "PyTorch"
    codes: CodePrototypes | None = None
    digest: str | None = None
    device_side: bytes | None = None
    cell: int = 1

    def weight(self, release: AnyRelease) -> float:
        """Return the weight of each image of a release in a prototype."""
        return 1.0 if self.codes is None else self.codes.weight(code_of(release.spec))

    def refusal_of(self, release: AnyRelease) -> Refusal | None:
        """Return the refusal for these queries, "none of these"; None if never measured."""
        return self.refusal if self.codes is None else self.codes.refusal_of(code_of(release.spec))


def example(served: Served) -> np.ndarray:
    """Make an input of `run` from a batch of black images."""
    _, height, width = served.shape
    batch = min(_BATCH, max(2, _PIXELS // (height * width)))
    images = np.zeros((batch, *served.shape), np.uint8)
    return served.prepare(Release(images, served.demand.spec, (height, width)))


def input_maker(cell: int) -> Callable[..., np.ndarray]:
    """Return a function that makes the input of a network, (N, C, h, w) float32, from a release.

    `cell`: the side of the squares of pixels whose means the network sees.
    """

    def prepare(release: AnyRelease) -> np.ndarray:
        assert isinstance(release, Release)
        if release.cell == cell:  # the release already has the means of cells
            return release.array.astype(np.float32) / np.float32(255)
        return _means(release.pictures(), cell)

    return prepare


def _means(images: np.ndarray, cell: int) -> np.ndarray:
    """Average cells: (N, C, H, W) uint8 -> (N, C, h, w) float32 in [0, 1]; cells are cut at the border."""
    if cell == 1:
        return images.astype(np.float32) / np.float32(255)
    height, width = images.shape[2:]
    tops, lefts = np.arange(0, height, cell), np.arange(0, width, cell)
    sums = np.add.reduceat(np.add.reduceat(images, tops, 2, np.uint32), lefts, 3, np.uint32)
    areas = np.diff([*tops, height])[:, None] * np.diff([*lefts, width])
    found: np.ndarray = (sums / (255 * areas)).astype(np.float32)
    return found
