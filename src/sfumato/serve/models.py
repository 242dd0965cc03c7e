"""The artefacts that a server runs, each as one function from what was released to embeddings.

An embedding depends on its own image alone, up to rounding. Networks compute in float32, on whatever machine:
what is enrolled through one server is found through another. PyTorch is imported only for a network that it
runs: codes and features are compared as they are, and what `sfumato export` wrote is run by ONNX Runtime.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from sfumato import artefacts
from sfumato.base.files import read_regular
from sfumato.errors import ArtefactError, ConfigError, MissingExtraError
from sfumato.learn import code_prototypes
from sfumato.learn.code_prototypes import CodePrototypes
from sfumato.learn.refusal import Refusal
from sfumato.protect import Protection
from sfumato.protect.code import KIND as CODE
from sfumato.protect.code import Code
from sfumato.protect.parameters import artefact_digest
from sfumato.protect.release import Release
from sfumato.protect.spec import parse_as
from sfumato.protect.vectors import FEATURE
from sfumato.wire import AnyRelease

if TYPE_CHECKING:
    from torch import nn

EXPORTED = ".onnx"  # the suffix of what `sfumato export` writes, see serve.exported

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TRAINED = ("few-shot", "meta")  # whose networks a server runs
_MEASURED_BATCH = 16
_MOST_EXPORTED = 64_000_000  # bytes that a browser is handed
_MEASURED_PIXELS = 1 << 20  # of a batch, of large images fewer


@lru_cache(maxsize=256)
def code_of(spec: str) -> Code:
    """The code that a spec names; a device sends the same one again and again. Raises SpecError."""
    code: Code = parse_as(spec, {CODE: Code})
    return code


Kind = Literal["few-shot", "meta", "private feature", "code"]


@dataclass(frozen=True)
class Demand:
    """A protection that a model was trained for.

    Attributes:
        spec: as it travels, see sfumato.protect.spec.portable.
        made_of: the digest of the artefact that the spec names; None where it names none, or nobody knows.
        protection: None for a private feature or a code, whose noise is the device's choice.
        weight: of a support image in a prototype, see FewShotModel.weight.
        kind: of the releases: "pixels", with or without a mask, "numbers" or "bits".
    """

    spec: str
    made_of: str | None
    protection: Protection | None
    weight: float = 1.0
    kind: Literal["pixels", "numbers", "bits"] = "pixels"


@dataclass(frozen=True)
class Served:
    """A model under the name that clients know.

    Attributes:
        name: see above.
        kind: of the artefact.
        demands: the protections that it was trained for; one, but for a range.
        shape: C, H and W of the originals.
        dimension: D, of an embedding.
        refusal: when an answer is "none of these"; None where that was never measured. See refusal_of.
        prepare: a release by one of the demands -> (N, ...) float32, what `run` takes.
        run: (N, ...) float32 of any releases -> (N, D) float32.
        network: what `run` computes, for other ways to compute it; None where it computes nothing.
        by: what computes it.
        codes: how prototypes are made, of a code; None for means.
        digest: the SHA-256 of the artefact's file; None where it was not read from one.
        device_side: of a code, the file of `sfumato export` by which a browser makes it; None without one.
        cell, positions: how `prepare` makes what a network sees, see seen.
    """

    name: str
    kind: Kind
    demands: tuple[Demand, ...]
    shape: tuple[int, int, int]
    dimension: int
    refusal: Refusal | None
    prepare: Callable[[AnyRelease, Demand], np.ndarray]
    run: Callable[[np.ndarray], np.ndarray]
    network: "nn.Module | None" = None
    by: str = "PyTorch"
    codes: CodePrototypes | None = None
    digest: str | None = None
    device_side: bytes | None = None
    cell: int = 1
    positions: Mapping[str, Sequence[float]] | None = None

    def weight(self, release: AnyRelease, demand: Demand) -> float:
        """What each image of a release weighs in a prototype."""
        return demand.weight if self.codes is None else self.codes.weight(code_of(release.spec))

    def refusal_of(self, release: AnyRelease) -> Refusal | None:
        """When an answer to these queries is "none of these"; None where that was never measured."""
        return self.refusal if self.codes is None else self.codes.refusal_of(code_of(release.spec))


def load(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    reference: str | None = None,
) -> Served:
    """Read an artefact for a server, whose network PyTorch runs; or what was exported, which needs none.

    Args:
        path: of a few-shot, a meta or a private-feature model, of a code, or of an exported model.
        name: for clients; None for that of the file.
        reference: the source of public images (see data.load), for a meta model, whose networks normalise a
            batch of images together: statistics are taken once, from these, and no answer depends on the
            images of others.

    Raises:
        ArtefactError: damaged, foreign, of a kind that is not served, or it names another artefact that
            cannot be read.
        ConfigError: a name that no address can hold, or a meta model without reference images.
        MissingExtraError: PyTorch or ONNX Runtime is not installed, and the network needs it.
    """
    name = _checked_name(path, name)
    if Path(path).suffix == EXPORTED:
        from sfumato.serve import exported

        return exported.read(path, name)
    digest = artefact_digest(os.fspath(path))  # which says best why a file cannot be read
    return replace(_read(path, name, reference), digest=digest)


def fastest(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    reference: str | None = None,
) -> Served:
    """As load; but a network is run by PyTorch or by ONNX Runtime: whichever is measured faster here, now.

    Another process exports and measures. Where ONNX Runtime is faster, this one never imports PyTorch, which
    would be most of its memory and start. Without the extra `edge`, by PyTorch; so is an encoder that is a
    graph of ONNX itself.
    """
    name = _checked_name(path, name)
    artefact_digest(os.fspath(path))  # as load does, before anything else is said of a file
    if Path(path).suffix != EXPORTED and artefacts.read_card(path).get("kind") in _TRAINED:
        from sfumato.serve import exported, graphs

        try:
            graph = graphs.faster(os.fspath(path), reference)
        except MissingExtraError:
            graph = None
        except ArtefactError:
            load(path, name=name, reference=reference)  # it says better what is wrong with the file
            raise
        if graph is not None:
            return exported.of_bytes(graph, path, name)
    return load(path, name=name, reference=reference)


def example(served: Served) -> np.ndarray:
    """What `run` takes, of a batch of black images."""
    _, height, width = served.shape
    batch = min(_MEASURED_BATCH, max(2, _MEASURED_PIXELS // (height * width)))
    images = np.zeros((batch, *served.shape), np.uint8)
    return served.prepare(Release(images, served.demands[0].spec, (height, width)), served.demands[0])


def seen(cell: int, positions: Mapping[str, Sequence[float]] | None) -> Callable[..., np.ndarray]:
    """What makes the input of a network of a release by one of its protections: (N, C + K, h, w) float32.

    Args:
        cell: the side of the squares of pixels whose means the network sees.
        positions: of each protection, by its spec, the K numbers that the network is told of it, each a
            plane; None where it is told none.
    """

    def prepare(release: AnyRelease, demand: Demand) -> np.ndarray:
        assert isinstance(release, Release)
        if release.cell == cell:  # the mean of a cell is what travelled
            images = release.array.astype(np.float32) / np.float32(255)
        else:
            images = _means(release.pictures(), cell)
        if positions is None:
            return images
        told = np.array(positions[demand.spec], np.float32)
        planes = np.broadcast_to(told[None, :, None, None], (len(images), len(told), *images.shape[2:]))
        return np.concatenate([images, planes], 1)

    return prepare


def _means(images: np.ndarray, cell: int) -> np.ndarray:
    """(N, C, H, W) uint8 -> (N, C, h, w) float32 in [0, 1], the means of cells, cut at the border."""
    if cell == 1:
        return images.astype(np.float32) / np.float32(255)
    height, width = images.shape[2:]
    tops, lefts = np.arange(0, height, cell), np.arange(0, width, cell)
    sums = np.add.reduceat(np.add.reduceat(images, tops, 2, np.uint32), lefts, 3, np.uint32)
    areas = np.diff([*tops, height])[:, None] * np.diff([*lefts, width])
    found: np.ndarray = (sums / (255 * areas)).astype(np.float32)
    return found


def _checked_name(path: str | os.PathLike[str], name: str | None) -> str:
    name = Path(path).stem if name is None else name
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not a name for a model: at most 64 letters, digits, '.', '_' and '-'; name it as "
            "NAME=ARTEFACT"
        )
    return name


def _read(path: str | os.PathLike[str], name: str, reference: str | None) -> Served:
    kind = artefacts.read_card(path).get("kind")
    if kind == FEATURE:
        return _feature(path, name)
    if kind == CODE:
        return _code(path, name)
    if kind not in _TRAINED:
        raise ArtefactError(
            f"{path}: is a {kind!r}, and served are 'few-shot', 'meta', {FEATURE!r} and {CODE!r}: name one "
            "of these"
        )
    try:
        from sfumato.serve import trained
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtraError(
            f"{path}: its network is run by PyTorch, which is not installed: run `sfumato export {path}` "
            f"where it is, and serve the {EXPORTED} file that this writes; or install the extra torch here",
            name="torch",
        ) from error
    if kind == "few-shot":
        return trained.of_few_shot(path, name)
    return trained.of_meta(path, name, reference)


class _Sizes(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    dimension: Annotated[int, Field(ge=1, le=1 << 16)]
    variant: Annotated[str, Field(max_length=64)] = ""


class _FeatureCard(artefacts.Card):
    config: _Sizes
    shape: artefacts.ImageShape


def _feature(path: str | os.PathLike[str], name: str) -> Served:
    """Prototypes of features: nothing is computed here."""
    card, shapes = artefacts.load_card(path, kind=FEATURE, schema=_FeatureCard)
    if card["config"].get("variant") == "network":
        raise ArtefactError(f"{path}: an attribute network without a feature: train a simple variant of it")

    def prepare(release: AnyRelease, demand: Demand) -> np.ndarray:
        assert not isinstance(release, Release)
        return release.numbers()

    digest = artefact_digest(os.fspath(path))
    demand = Demand(f"feature:artefact={Path(path).name}", digest, None, kind="numbers")
    (channels, height, width), dimension = card["shape"], card["config"]["dimension"]
    if shapes.get("device.covariance") != (dimension, dimension):
        raise ArtefactError(f"{path}: damaged: its weights do not fit features of {dimension} numbers")
    shape = (channels, height, width)
    return Served(
        name, "private feature", (demand,), shape, dimension, None, prepare, lambda values: values, by="NumPy"
    )


def _code(path: str | os.PathLike[str], name: str) -> Served:
    """Prototypes of codes: nothing is computed here but what is known of the noise."""
    made, shape = code_prototypes.read(path)

    def prepare(release: AnyRelease, demand: Demand) -> np.ndarray:
        assert not isinstance(release, Release)
        return made.embed(release.numbers(), code_of(release.spec))

    demand = Demand(
        f"{CODE}:artefact={Path(path).name}",
        artefact_digest(os.fspath(path)),
        None,
        kind="numbers" if made.bits is None else "bits",
    )
    return Served(
        *(name, "code", (demand,), shape, made.dimension, made.refusal, prepare),
        run=lambda values: values,
        by="NumPy",
        codes=made,
        device_side=_exported_beside(path),
    )


def _exported_beside(path: str | os.PathLike[str]) -> bytes | None:
    try:
        return read_regular(Path(path).with_suffix(EXPORTED), _MOST_EXPORTED)
    except OSError:
        return None
