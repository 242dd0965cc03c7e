"""How to use what a study recommends: the files that it left, and the commands that take them."""

from collections.abc import Sequence
from pathlib import Path

from sfumato.study import trained
from sfumato.study.estimates import Study, proofs
from sfumato.study.frontier import Setting
from sfumato.study.models import keep_recommended
from sfumato.study.records import Record

_SERVED = ("code", "feature")  # whose artefact is all that a service needs


def commands(
    directory: Path,
    study: Study,
    records: Sequence[Record],
    setting: Setting,
    *,
    artefacts: Path | None = None,
) -> list[str]:
    """A line for the device and a line for the cloud; fewer where the files are gone.

    The few-shot model of the setting, where there is one, is copied to recommended.safetensors.

    Args:
        directory: of the run.
        study, records: what was loaded of it.
        setting: the recommended one.
        artefacts: the folder of trained protections, where it is not that of the run.
    """
    spec, (_, height, width) = setting.protection, study["data"]["shape"]
    recipe, model = trained.recipe_of(spec), None
    if recipe is not None:
        proof = proofs(study, records).get(spec)
        if proof is None or proof.artefact is None:
            return []
        path = (artefacts or directory / "models") / proof.artefact
        if not path.exists():
            return []
        spec = recipe.with_artefact(str(path))
        model = path if recipe.name in _SERVED else None
    model = model or keep_recommended(directory, spec, setting.learner)
    lines = [f"on a device: sfumato protect PHOTOS RELEASED --with {spec}   # images of {width}x{height}"]
    if model is not None:
        lines.append(f"in a cloud: sfumato serve {model}")
    return lines
