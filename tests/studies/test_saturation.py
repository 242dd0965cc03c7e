"""The curves of adversaries are drawn on the protections that the study of their world trained."""

import pytest
import saturation

from sfumato.study import grid
from sfumato.study.specs import recipe_of


@pytest.mark.parametrize("world", saturation.WORLDS)
@pytest.mark.parametrize("knob", saturation.KNOBS)
def test_what_is_trained_is_trained_as_in_the_study_of_the_world(world: str, knob: str):
    """Else a curve would read no artefact of that study's run, and would be of another protection."""
    own = grid.load(saturation.WORLDS[world][0])
    protections = saturation.protections_of(world, knob)
    curve = saturation.study_of(world, knob, 5, protections)
    recipes = [recipe for spec in protections if (recipe := recipe_of(spec))]
    assert {recipe.spec for recipe in recipes} <= set(own.specs)
    assert [recipe.settings(curve) for recipe in recipes] == [recipe.settings(own) for recipe in recipes]
    assert curve.episodic == own.episodic


@pytest.mark.parametrize("world", saturation.WORLDS)
@pytest.mark.parametrize("knob", saturation.KNOBS)
def test_a_curve_is_of_one_attack_and_changes_one_number_of_its_adversary(world: str, knob: str):
    (attack,) = saturation.study_of(world, knob, 5, ["pixelize:cell=8"]).attacks
    assert attack == saturation.ATTACKS[knob]
    few, many = (saturation.study_of(world, knob, value, ["pixelize:cell=8"]).adversary for value in (5, 7))
    changed = {name for name in vars(few) if getattr(few, name) != getattr(many, name)}
    assert changed == ({"steps", "adaptive_steps"} if knob == "steps" else {knob})
