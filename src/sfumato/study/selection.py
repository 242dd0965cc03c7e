"""The learners, attacks and views that make sense for a protection of a study."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sfumato.study.vocabulary import ATTACKS, CLASSIFIER, FEW_SHOT, IMAGES, LEARNERS, release_kind

if TYPE_CHECKING:
    from sfumato.study.grid import StudyConfig


def learners_of(config: "StudyConfig", spec: str) -> list[str]:
    """The learners that a study trains for a protection.

    On clear images all few-shot learners would be the clean one, as classifiers would. The device's own
    answer leaves nothing to learn.
    """
    kind = release_kind(spec)
    if kind == "answer":
        return ["answer"]
    wanted = config.learners
    if spec == "none":
        chosen = ["clean"] if config.episodic else []
        if {"classifier-clean", "classifier-protected"}.intersection(wanted):
            chosen.append("classifier-clean")
        # Methods of their own, as meta-learning, have no other learner of clear images.
        chosen += [name for name in wanted if LEARNERS[name].method not in (FEW_SHOT, CLASSIFIER)]
        return chosen
    return [
        name
        for name in wanted
        if kind in LEARNERS[name].releases and (LEARNERS[name].trained_on != "shape" or has_shape(spec))
    ]


def attacks_of(config: "StudyConfig", spec: str) -> list[str]:
    """The attacks that a study makes on a protection.

    On clear images there is nothing to adapt to, but on a board they are the control of every adversary; and
    a single attack has nothing to fuse with.
    """
    if config.task.sensitive is None:
        return []
    wanted = set(config.attacks)
    if spec == "none" and not config.board:
        wanted &= {"reidentify-static"}
    if "denoised" not in learners_of(config, spec):
        wanted = {name for name in wanted if ATTACKS[name].view != "denoised"}
    elif "reidentify-static" in wanted:
        wanted.add("reidentify-denoised")
    if not has_shape(spec):
        wanted = {name for name in wanted if ATTACKS[name].view != "shape"}
    kind = release_kind(spec)
    made = [name for name, attack in ATTACKS.items() if name in wanted and kind in attack.releases]
    alone = [name for name in made if not ATTACKS[name].fuses]
    return made if len(alone) > 1 else alone


def views_of(config: "StudyConfig", spec: str) -> list[str]:
    """The views of a protection: images that are released, denoised or restored."""
    kind = release_kind(spec)
    views = ["released"] if kind in IMAGES else []
    if spec != "none" and "denoised" in learners_of(config, spec):
        views.append("denoised")
    if any(ATTACKS[name].view == "restored" for name in attacks_of(config, spec)):
        views.append("restored")
    return views


def not_taken(what: str, table: Mapping[str, Any], names: list[str], spec: str) -> dict[str, tuple[str, ...]]:
    """The names that cannot use a protection's releases -> the kinds of releases that they take.

    Args:
        what: their kind, as "learner".
        table: of the vocabulary.
        names: of the study.
        spec: of the protection.
    """
    kind = release_kind(spec)
    taken = {name: table[name].releases for name in names}
    return {f"the {what} {name!r}": kinds for name, kinds in taken.items() if kind not in kinds}


def has_shape(spec: str) -> bool:
    """Whether a protection shows some pixels and hides others, and says which."""
    return spec.partition(":")[0] == "mask"
