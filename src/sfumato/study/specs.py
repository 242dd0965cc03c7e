"""The protections that a study names: those of `protect`, and those that it trains itself.

A spec without `artefact=`, such as "mask:keep=0.1,0.25", names protections to train on the study's training
images, with the settings of its file for them. Each leaves an artefact that `sfumato protect`, `train`
and `serve` take.
"""

from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from sfumato import protect
from sfumato.base.registry import Registry
from sfumato.protect.release import KINDS
from sfumato.protect.spec import expand_as


@runtime_checkable
class Untrained(Protocol):
    """A protection that a study trains. Implementations are frozen dataclasses of its parameters."""

    name: str

    @property
    def spec(self) -> str:
        """As in the study file, and in its records."""

    @property
    def kind(self) -> str:
        """The kind of its release."""

    def settings(self, config: Any) -> dict[str, Any]:
        """The settings of a StudyConfig that decide its artefact, besides data and seed."""

    def with_artefact(self, path: str) -> str:
        """The spec of the trained protection."""


# The classes of lab.trained, which need PyTorch.
RECIPES: Registry[Any] = Registry(
    "recipes",
    "protection to train",
    lambda name, recipe: "",
    {
        "mask": "sfumato.study.lab.trained:MaskRecipe",
        "feature": "sfumato.study.lab.trained:FeatureRecipe",
        "code": "sfumato.study.lab.trained:CodeRecipe",
        "answer": "sfumato.study.lab.trained:AnswerRecipe",
    },
)


def expand(spec: str) -> list[Any]:
    """The protections of a spec of a study, whose keys may list values. Raises SpecError."""
    name, _, rest = spec.strip().partition(":")
    keys = {part.partition("=")[0].strip() for part in rest.split(",") if "=" in part}
    if name in RECIPES and "artefact" not in keys:
        return expand_as(spec, RECIPES)
    return protect.expand(spec, takes=KINDS)


def recipe_of(spec: str) -> Untrained | None:
    """The recipe of one canonical spec of a study; None if nothing is to be trained for it."""
    (named,) = expand(spec)
    return named if isinstance(named, Untrained) else None


def in_full(named: Any) -> Any:
    """A protection whose spec tells the kind of its release: that of a code of numbers has their count.

    Raises ArtefactError if the file of a code is missing, damaged or foreign.
    """
    from sfumato.protect.code import Code, load_encoder

    if not isinstance(named, Code) or named.bits or named.numbers:
        return named
    encoder = load_encoder(named.artefact)
    return named if encoder.bits else replace(named, numbers=encoder.dimension)
