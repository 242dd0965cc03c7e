"""The parts of a study, by type: kinds of cells, attacks, rebuilders, learners; recipes are in lab.lab.

Each is a few functions of a lab and a cell. `settings` gives all that decides a result besides the cell, its
data and its artefacts: any change there makes a new record, so that a version number belongs there too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from sfumato.base.registry import load
from sfumato.errors import ConfigError
from sfumato.study.cells import Cell
from sfumato.study.vocabulary import ATTACKS, LEARNERS, RECONSTRUCTIONS

if TYPE_CHECKING:
    import pydantic
    from torch import Tensor

    from sfumato.study.grid import StudyConfig
    from sfumato.study.lab.comparisons import Comparison
    from sfumato.study.lab.lab import Lab

Facts = dict[str, Any]  # fit for JSON: the settings that decide a result, or the result
_Settings = Callable[["Lab", Cell], Facts]
_Found = Callable[["Lab", Cell], Facts]
_Method = TypeVar("_Method")


def _none_left_out(config: "StudyConfig", spec: str) -> dict[str, tuple[str, ...]]:
    return {}


@dataclass(frozen=True)
class Kind:
    """A kind of cells.

    Attributes:
        result: the type of a record's result.
        cells: the cells of a study, of one protection and one seed.
        settings: those that decide the result of a cell.
        measure: the result, as `result` reads it.
        left_out: the parts of a study that are impossible with the releases of a protection, in words ->
            the possible kinds of releases.
    """

    result: type["pydantic.BaseModel"]
    cells: Callable[["StudyConfig", str, int], list[Cell]]
    settings: _Settings
    measure: _Found
    left_out: Callable[["StudyConfig", str], dict[str, tuple[str, ...]]] = _none_left_out


@dataclass(frozen=True)
class Learner:
    """The functions that train and test a learner of the vocabulary.

    Attributes:
        check: raises an error before anything is trained, if it cannot be.
        settings: those that decide the accuracy.
        accuracy: the result, see kinds.accuracy.Result.
    """

    check: Callable[["Lab"], None]
    settings: _Settings
    accuracy: _Found


@dataclass(frozen=True)
class Attack:
    """The functions of an attack of the vocabulary.

    Attributes:
        settings: those that decide the figures.
        attack: the result, see kinds.attack.Result.
        compared: the similarities for every probe, if attacks that combine others can use them.
    """

    settings: _Settings
    attack: _Found
    compared: "Callable[[Lab, Cell], Comparison] | None" = None


@dataclass(frozen=True)
class Rebuilder:
    """The functions of a reconstruction of the vocabulary.

    Attributes:
        settings: those that decide the images.
        rebuild: the images from releases of (N, C, H, W) uint8 images; of the same shape.
    """

    settings: _Settings
    rebuild: "Callable[[Lab, Cell, Tensor], Tensor]"


def learner_of(name: str) -> Learner:
    """The functions that train and test a learner of the vocabulary."""
    return _resolve(f"learner {name!r}", LEARNERS[name].method, Learner)


def attack_of(name: str) -> Attack:
    """The functions of an attack of the vocabulary."""
    return _resolve(f"adversary {name!r}", ATTACKS[name].method, Attack)


def rebuilder_of(name: str) -> Rebuilder:
    """The functions of a reconstruction of the vocabulary."""
    return _resolve(f"reconstruction {name!r}", RECONSTRUCTIONS[name].method, Rebuilder)


def _resolve(what: str, method: object, kind: type[_Method]) -> _Method:
    made = load(method) if isinstance(method, str) else method
    if not isinstance(made, kind):
        raise ConfigError(
            f"{what}: its method is {type(made).__name__}: give a study.protocol.{kind.__name__}"
        )
    return made
