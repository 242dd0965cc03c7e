"""The cells of a study: each is one thing to find out, and has a digest of all that decides its result.

A kind of cells is functions of a lab and a cell, in a module of `measure`. All that decides a result, besides
the cell, its data and its artefacts, is in `settings`, version numbers too: a change there is a new record.
"""

import dataclasses
import hashlib
import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sfumato.base.registry import load
from sfumato.errors import ConfigError
from sfumato.study.vocabulary import ATTACKS, LEARNERS, RECONSTRUCTIONS, release_kind

if TYPE_CHECKING:
    from sfumato.study.grid import StudyConfig

Facts = dict[str, Any]  # fit for JSON: the settings that decide a result, or the result
Measured = Callable[[Any, "Cell"], Facts]  # of a lab.lab.Lab and a cell

# In the order in which they are measured for each protection; they need PyTorch, which reports do without.
KINDS = {
    "accuracy": "accuracy:ACCURACY",
    "attack": "attack:ATTACK",
    "many": "many:MANY",
    "log-rank": "log_rank:LOG_RANK",
    "similarity": "looks:SIMILARITY",
    "pictures": "looks:PICTURES",
    "examples": "looks:EXAMPLES",
    "proved": "proofs:PROVED",
    "checks": "checks:CHECKS",
    "tells": "inference:TELLS",
    "inference": "inference:INFERENCE",
    "reconstruction": "looks:RECONSTRUCTION",
}
_RELEASED = {"pixels": "pixels", "shape": "shapes", "numbers": "numbers", "bits": "bits", "answer": "answers"}


@dataclass(frozen=True)
class Cell:
    """One thing to find out: a kind, a protection, a seed, and which learner, attack or view."""

    kind: str
    protection: str
    seed: int
    which: tuple[tuple[str, str], ...] = ()

    @property
    def subject(self) -> str:
        """The name of its learner, attack, view or secret: it has one of them."""
        ((_, name),) = self.which
        return name

    @property
    def coordinates(self) -> dict[str, Any]:
        """The cell without its kind, as study.json and the records carry it."""
        return {"protection": self.protection, "seed": self.seed, **dict(self.which)}

    def __str__(self) -> str:
        return " ".join([self.kind, *(value for _, value in self.which), self.protection])


@dataclass(frozen=True)
class Kind:
    """A kind of cells; the results of `measure` have its type in `measure.results`."""

    cells: Callable[["StudyConfig", str, int], list[Cell]]  # of one protection and one seed
    settings: Measured  # those that decide the result of a cell
    measure: Measured  # the result


@dataclass(frozen=True)
class Method:
    """A learner or an adversary of the vocabulary: functions of a lab and a cell."""

    settings: Measured  # those that decide the result
    measure: Measured  # the result, see `measure.results`
    check: Callable[[Any], None] = lambda lab: None  # fails before anything is trained, if it cannot be
    compared: Callable[[Any, Cell], Any] | None = None  # the similarities to fuse: attack.Comparison


def method_of(words: Any) -> Method:
    """The functions of a learner or an adversary, by its entry of the vocabulary."""
    made = load(words.method) if isinstance(words.method, str) else words.method
    if not isinstance(made, Method):
        raise ConfigError(f"{words.name!r}: its method is {type(made).__name__}: give a study.cells.Method")
    return made


def kind_by_methods(
    kind: str, key: str, words: Mapping[str, Any], names: Callable[[Any, str], list[str]]
) -> Kind:
    """A kind with a cell for each learner or adversary, whose own functions make it."""
    return Kind(
        lambda config, spec, seed: [Cell(kind, spec, seed, ((key, name),)) for name in names(config, spec)],
        lambda lab, cell: method_of(words[cell.subject]).settings(lab, cell),
        lambda lab, cell: method_of(words[cell.subject]).measure(lab, cell),
    )


def kind_of(name: str) -> Kind:
    """The functions of a kind of cells."""
    kind: Kind = load(f"sfumato.study.measure.{KINDS[name]}")
    return kind


def cells(config: "StudyConfig") -> list[Cell]:
    """Every cell of a study, each after the cells that it needs."""
    every = (
        cell
        for seed in config.seeds
        for spec in config.specs
        for kind in KINDS
        for cell in kind_of(kind).cells(config, spec, seed)
    )
    return list(dict.fromkeys(every))  # a study may name something twice


def list_omissions(config: "StudyConfig") -> list[str]:
    """The impossible combinations that a study names and does not measure, a sentence each."""
    named: list[tuple[str, Any, list[str]]] = [
        ("learner", LEARNERS, config.learners),
        ("attack", ATTACKS, config.attacks if config.task.sensitive is not None else []),
        ("reconstruction", RECONSTRUCTIONS, config.reconstructions),
    ]
    specs: dict[tuple[str, str], list[str]] = defaultdict(list)
    for spec, (what, table, names) in itertools.product(config.specs, named):
        kind = release_kind(spec)
        if spec == "none" or (what, kind) == ("learner", "answer"):  # which brings a learner with it
            continue
        for name in names:
            if kind not in (kinds := table[name].releases):
                *first, last = (_RELEASED[each] for each in kinds)
                takes = f"{', '.join(first)} and {last}" if first else last
                specs[f"The {what} {name!r}", takes].append(spec)
    return [
        f"{subject} takes {takes}, and is left out where others are released: for {', '.join(without)}."
        for (subject, takes), without in specs.items()
    ]


def digest(lab: Any, cell: Cell) -> str:
    """The digest of all that decides the result of a cell; the name of its record."""
    digest: str = lab.digest(cell, kind_of(cell.kind).settings(lab, cell))
    return digest


def measure(lab: Any, cell: Cell) -> Facts:
    """The result of a cell. Raises BusyError if another process is making one of its parts."""
    return kind_of(cell.kind).measure(lab, cell)


def digest_of(settings: Any) -> str:
    """A short digest of settings that are fit for JSON; the order of keys does not matter."""
    text = json.dumps(settings, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def non_defaults(config: Any) -> dict[str, Any]:
    """The settings of a configuration that are not at their defaults, for a digest.

    So a new setting leaves the digests of studies that do not use it; another default, or other results of
    the same settings, need another `lab.RESULTS`. `before` in a field's metadata is its former default, which
    old digests stand for; `by_content` marks values that count by content.
    """
    plain = dataclasses.asdict(config)
    return {
        field.name: field.metadata.get("by_content", _by_content)(plain[field.name])
        for field in dataclasses.fields(config)
        if field.default is dataclasses.MISSING
        or getattr(config, field.name) != field.metadata.get("before", field.default)
    }


def _by_content(value: Any) -> Any:
    """A setting; for an encoder in a file, its content and not its path."""
    if not isinstance(value, str) or ":" not in value:
        return value
    from sfumato.networks.encoders.pretrained import on_card  # it needs PyTorch, which reports do without

    return on_card(value)
