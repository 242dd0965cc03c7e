"""Reads the artefacts that a server runs.

PyTorch is imported only for a network that it runs. Codes and features are compared as they are, and ONNX
Runtime runs the files that `sfumato export` writes.
"""

import os
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from sfumato import artefacts
from sfumato.base.files import read_regular
from sfumato.errors import ArtefactError, ConfigError, MissingExtraError
from sfumato.learn import code_prototypes
from sfumato.protect.code import KIND as CODE
from sfumato.protect.release import Release, artefact_digest
from sfumato.protect.vectors import FEATURE
from sfumato.serve.served import EXPORTED, Demand, Served, as_it_came, code_of
from sfumato.wire import AnyRelease

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MOST_EXPORTED = 64_000_000  # bytes sent to a browser


def load(path: str | os.PathLike[str], *, name: str | None = None, reference: str | None = None) -> Served:
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
    name = Path(path).stem if name is None else name
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not a name for a model: at most 64 letters, digits, '.', '_' and '-'; name it as "
            "NAME=ARTEFACT"
        )
    if Path(path).suffix == EXPORTED:
        from sfumato.serve import exported

        return exported.read(path, name)
    digest = artefact_digest(os.fspath(path))  # its errors say best why a file cannot be read
    return replace(_read(path, name, reference), digest=digest)


def _read(path: str | os.PathLike[str], name: str, reference: str | None) -> Served:
    kind = artefacts.read_card(path).get("kind")
    if kind == FEATURE:
        return _feature(path, name)
    if kind == CODE:
        return _code(path, name)
    if kind not in ("few-shot", "meta"):
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
    return trained.of_few_shot(path, name) if kind == "few-shot" else trained.of_meta(path, name, reference)


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

    def prepare(release: AnyRelease) -> np.ndarray:
        assert not isinstance(release, Release)
        return release.numbers()

    digest = artefact_digest(os.fspath(path))
    demand = Demand(f"feature:artefact={Path(path).name}", digest, None, kind="numbers")
    (channels, height, width), dimension = card["shape"], card["config"]["dimension"]
    if shapes.get("device.covariance") != (dimension, dimension):
        raise ArtefactError(f"{path}: damaged: its weights do not fit features of {dimension} numbers")
    shape = (channels, height, width)
    return Served(name, "private feature", demand, shape, dimension, None, prepare, as_it_came, by="NumPy")


def _code(path: str | os.PathLike[str], name: str) -> Served:
    """Serve codes: prototypes without any computation except for their noise."""
    made, shape = code_prototypes.read(path)

    def prepare(release: AnyRelease) -> np.ndarray:
        assert not isinstance(release, Release)
        return made.unbias(release.numbers(), code_of(release.spec))

    device_side = None
    with suppress(OSError):
        device_side = read_regular(Path(path).with_suffix(EXPORTED), _MOST_EXPORTED)
    kind: Literal["numbers", "bits"] = "numbers" if made.bits is None else "bits"
    demand = Demand(f"{CODE}:artefact={Path(path).name}", artefact_digest(os.fspath(path)), None, kind=kind)
    return Served(
        *(name, "code", demand, shape, made.dimension, made.refusal, prepare),
        run=as_it_came,
        by="NumPy",
        codes=made,
        device_side=device_side,
    )
