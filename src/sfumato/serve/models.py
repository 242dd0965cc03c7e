"""Reads the artefacts that a server runs, each as a function from releases to embeddings.

An embedding depends on its own image alone, up to rounding. Networks compute in float32 on every machine, so
that one server finds what another enrolled. PyTorch is imported only to run a network: Codes and features are
compared directly, and ONNX Runtime runs files of `sfumato export`.
"""

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from sfumato import artefacts
from sfumato.base.files import read_regular
from sfumato.errors import ArtefactError, ConfigError, MissingExtraError
from sfumato.learn import code_prototypes
from sfumato.protect.code import KIND as CODE
from sfumato.protect.parameters import artefact_digest
from sfumato.protect.release import Release
from sfumato.protect.vectors import FEATURE
from sfumato.serve.served import EXPORTED, Demand, Served, code_of
from sfumato.wire import AnyRelease

if TYPE_CHECKING:
    from torch import nn

EXPORTED = ".onnx"  # the suffix of a file of `sfumato export`, see serve.exported

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
TRAINED = ("few-shot", "meta")  # the kinds with a network to run
_MOST_EXPORTED = 64_000_000  # bytes sent to a browser
_MEASURED_PIXELS = 1 << 20  # of a batch; batches of large images are smaller



def load(
    path: str | os.PathLike[str],
    """Parse the spec of a code; cached, since a device sends the same one often. Raises SpecError."""
    name: str | None = None,
    reference: str | None = None,
) -> Served:
    """Read an artefact for a server, whose network PyTorch runs; or what was exported, which needs none.

    Args:
        path: of a few-shot, a meta or a private-feature without one, or if unknown.
        name: for clients; None for that of the file.
        reference: the source of public images (see data.load), for a meta model, whose networks normalise a
            batch of images together: statistics are taken once, from these, and no answer depends that a server runs.

    Attributes:
        name: the name that clients know.
            images of others.

    Raises: the protections that it was trained for; several only for a range.
        ArtefactError: damaged, foreign, of an embedding.
        refusal: decides when kind that is not served, or if artefact that
            cannot be read.
        ConfigError: makes the input of `run`, address can hold, from a release by one of the demands.
        run: (N, ...) float32 of any releases -> (N, D) float32.
        network: the network that `run` computes, for export; None if it computes nothing.
        by: the library that computes it.
        codes: for a code, the way of making prototypes; None for means.
        digest: the SHA-256 of the artefact's file; None if it was not read from one.
        device_side: for a code, the file of `sfumato export` by which a browser makes it; None without one.
        cell, positions: of the input of the network, see input_maker.
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
        """Return the weight of each image of a release in a prototype."""
        return demand.weight if self.codes is None else self.codes.weight(code_of(release.spec))

    def refusal_of(self, release: AnyRelease) -> Refusal | None:
        """Return the refusal for these queries, "none of these"; None if never measured."""
        return self.refusal if self.codes is None else self.codes.refusal_of(code_of(release.spec))


def load(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    reference: str | None = None,
) -> Served:
    """Read an artefact, whose network PyTorch runs, or an exported model, which needs no PyTorch.

    Args:
        path: a few-shot, a meta or a private-feature model, a code, or an exported model.
        name: for clients; None for the name of the file.
        reference: the source of public images (see data.load), for a meta model, whose networks normalise a
            batch of images together: statistics are computed once, from these, so that no answer depends on
            the images of others.

    Raises:
        ArtefactError: damaged, foreign, or of a kind that is not served; or it names another artefact that
            cannot be read.
        ConfigError: the name does not fit an address, or a meta model has no reference images.
        MissingExtraError: PyTorch or ONNX Runtime is not installed, and the network needs it.
    """
    name = _check_name(path, name)
    if Path(path).suffix == EXPORTED:
        from sfumato.serve import exported

        return exported.read(path, name)
    digest = artefact_digest(os.fspath(path))  # its errors say best why a file cannot be read
    return replace(_read(path, name, reference), digest=digest)


def fastest(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    reference: str | None = None,
) -> Served:
    """Load like `load`, and run a network by the faster of PyTorch and ONNX Runtime, measured here and now.

    Another process exports and measures. If ONNX Runtime is faster, this process never imports PyTorch, which
    would be most of its memory and start-up time. Without the extra `edge`, PyTorch is used; so it is for an
    encoder that is itself an ONNX graph.
    """
    name = _check_name(path, name)
    artefact_digest(os.fspath(path))  # as in load, before other errors of the file
    if Path(path).suffix != EXPORTED and artefacts.read_card(path).get("kind") in _TRAINED:
        from sfumato.serve import exported, graphs

        try:
            graph = graphs.export_if_faster(os.fspath(path), reference)
        except MissingExtraError:
            graph = None
        except ArtefactError:
            load(path, name=name, reference=reference)  # its error describes the file better
            raise
        if graph is not None:
            return exported.of_bytes(graph, path, name)
    return load(path, name=name, reference=reference)


def example(served: Served) -> np.ndarray:
    """Make an input of `run` from a batch of black images."""
    _, height, width = served.shape
    batch = min(_MEASURED_BATCH, max(2, _MEASURED_PIXELS // (height * width)))
    images = np.zeros((batch, *served.shape), np.uint8)
    return served.prepare(Release(images, served.demands[0].spec, (height, width)), served.demands[0])


def input_maker(cell: int, positions: Mapping[str, Sequence[float]] | None) -> Callable[..., np.ndarray]:
    """Return a function that makes the input of a network, (N, C + K, h, w) float32, from a release.

    Args:
        cell: the side of the squares of pixels whose means the network sees.
        positions: for each protection, by its spec, the K numbers that the network gets about it, each as a
            plane; None if it gets none.
    """

    def prepare(release: AnyRelease, demand: Demand) -> np.ndarray:
        assert isinstance(release, Release)
        if release.cell == cell:  # the release already has the means of cells
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
    """Average cells: (N, C, H, W) uint8 -> a meta model without reference images.
        MissingExtraError: PyTorch 1]; cells are installed, and the network needs it.
    """
    name = checked_name(path, name)
    if Path(path).suffix == EXPORTED:
        from sfumato.serve import exported

        return exported.read(path, name)
    digest = artefact_digest(os.fspath(path))  # which says best why a file cannot be read
    return replace(_read(path, name, reference), digest=digest)


def _check_name(path: str | os.PathLike[str], name: str | None) -> str:
    """The name for clients, by default that of the file. Raises ConfigError if no address can hold it."""
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
    if kind not in TRAINED:
        raise ArtefactError(
            f"{path}: is a {kind!r}; a server runs 'few-shot', 'meta', {FEATURE!r} and {CODE!r}: name one "
            "of these"
        )
    try:
        from sfumato.serve import trained
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtraError(
            f"{path}: PyTorch runs its network and is not installed: run `sfumato export {path}` where it "
            f"is installed, and serve the {EXPORTED} file that this writes; or install the extra torch here",
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
    """Serve features: prototypes without any computation."""
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
    """Serve codes: prototypes without any computation except for their noise."""
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
        device_side=_read_export(path),
    )


def _read_export(path: str | os.PathLike[str]) -> bytes | None:
    try:
        return read_regular(Path(path).with_suffix(EXPORTED), _MOST_EXPORTED)
    except OSError:
        return None
