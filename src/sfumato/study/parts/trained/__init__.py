"""Protections that a study trains itself: a spec without `artefact=`, such as "mask:keep=0.1,0.25".

Each is trained on the training images of the study, with the settings that the study file has for its kind,
and leaves an artefact that `sfumato protect`, `train` and `serve` take. A module a recipe.
"""

from collections.abc import Mapping
from typing import Any

from sfumato import protect
from sfumato.protect.release import KINDS
from sfumato.protect.spec import expand_as
from sfumato.study.parts.trained.answer import AnswerRecipe
from sfumato.study.parts.trained.code import CodeRecipe
from sfumato.study.parts.trained.feature import FeatureRecipe
from sfumato.study.parts.trained.mask import MaskRecipe
from sfumato.study.parts.trained.recipe import Recipe, same_classes

__all__ = ["RECIPES", "Recipe", "expand", "recipe_of", "same_classes"]

RECIPES: Mapping[str, Any] = {
    recipe.name: recipe for recipe in (MaskRecipe, FeatureRecipe, CodeRecipe, AnswerRecipe)
}


def expand(spec: str) -> list[Any]:
    """The protections of a spec of a study, whose keys may list values: those to train are recipes.

    Raises:
        SpecError: see protect.expand.
    """
    name, _, rest = spec.strip().partition(":")
    keys = {part.partition("=")[0].strip() for part in rest.split(",") if "=" in part}
    if name in RECIPES and "artefact" not in keys:
        return expand_as(spec, RECIPES)
    return protect.expand(spec, takes=KINDS)


def recipe_of(spec: str) -> Recipe | None:
    """The recipe of one canonical spec of a study; None where nothing is to be trained for it."""
    (protection,) = expand(spec)
    is_recipe = isinstance(protection, tuple(RECIPES.values()))
    recipe: Recipe | None = protection if is_recipe else None
    return recipe
