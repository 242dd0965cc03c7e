"""How to use a study's recommendation, or the nearest setting: its files, and the commands that take them."""

from collections.abc import Sequence
from pathlib import Path

from sfumato.study.choose.estimates import Study, percent, proofs
from sfumato.study.choose.frontier import Setting, frontier
from sfumato.study.choose.recommend import Recommendation
from sfumato.study.records import Record
from sfumato.study.specs import recipe_of

_SERVED = ("code", "feature")  # a service needs only their artefact


def next_commands(
    directory: Path,
    study: Study,
    records: Sequence[Record],
    advice: Recommendation,
    *,
    artefacts: Path | None = None,
) -> list[str]:
    """The commands for a study's recommendation, or for the nearest setting; see `commands`."""
    setting = advice.setting or advice.nearest
    reason = "" if advice.setting else advice.headline.removeprefix("no recommendation: ")
    if setting is None:
        return []
    table = "" if not advice.has_table else "needed" if advice.by_table else "possible"
    return commands(directory, study, records, setting, artefacts=artefacts, reason=reason, table=table)


def commands(
    directory: Path,
    study: Study,
    records: Sequence[Record],
    setting: Setting,
    *,
    artefacts: Path | None = None,
    reason: str = "",
    table: str = "",
) -> list[str]:
    """A line for the device, one for the cloud and one for queries; fewer if the files are gone.

    A setting that holds only if queries are looked up begins with the query, and no line sends others.

    It copies the few-shot model of the setting, if there is one; see lab.keep_recommended. Each line
    of a setting that is not recommended says so, in a shell comment.

    Args:
        directory: of the run.
        study, records: loaded from it.
        setting: the recommended one, or the nearest.
        reason: why it is not recommended; "" if it is.
        artefacts: the folder of trained protections, if it is not that of the run.
        table: "possible" if an answer table can be made of its codes, "needed" if it must; or "".
    """
    from sfumato.study.lab.lab import keep_recommended  # it needs PyTorch, which reports do without

    spec, (_, height, width) = setting.protection, study["data"]["shape"]
    recipe, model = recipe_of(spec), None
    if recipe is not None:
        proof = proofs(study, records).get(spec)
        if proof is None or proof.artefact is None:
            return []
        path = (artefacts or directory / "models") / proof.artefact
        if not path.exists():
            return []
        spec = recipe.with_artefact(str(path))
        model = path if recipe.name in _SERVED else None
    model = model or keep_recommended(directory, spec, setting.learner, recommended=not reason)
    size = f" --size {width}" if width == height else f"   # images of {width}x{height}"
    lines = [f"on a device: sfumato protect PHOTOS RELEASED --with {spec}{size}"]
    if model is not None:
        lines.append(f"in a cloud: sfumato serve {model}")
        looked_up = f"sfumato classify URL CLASSIFIER PHOTO --with {spec} --table CLASSIFIER.table"
        if table == "possible":
            lines.append(f"queries that send nothing: {looked_up}")
        elif table:
            enrolled = f"the few images that are sent: sfumato enrol URL CLASSIFIER PHOTOS --with {spec}"
            lines = [f"queries, which send nothing: {looked_up}", lines[1], enrolled]
    if not reason:
        return lines
    return [f"to try it nevertheless, {line}   # not recommended: {reason}" for line in lines]


def describe_measurements(artefact: Path) -> list[str]:
    """The study's results on a protection that it trained, a sentence each.

    Nothing for an artefact outside the models of a run, or of another kind.

    Args:
        artefact: the file, as RUN/models/code-....safetensors.
    """
    run = artefact.absolute().parent.parent
    if artefact.absolute().parent.name != "models" or not (run / "study.json").is_file():
        return []
    from sfumato.study.choose.reading import load_all

    (study, records), *others = load_all(run)
    if others:
        return []  # each value of `vary` has a result of its own
    specs = {spec for spec, proof in proofs(study, records).items() if proof.artefact == artefact.name}
    sentences = []
    for setting in frontier(study, records):
        if setting.protection not in specs:
            continue
        where = f"study {study['name']!r}, {setting.protection}"
        if setting.accuracy is not None:
            sentences.append(
                f"{percent(setting.accuracy.value)} of images are classified correctly ({where})."
            )
        if setting.risk is not None:
            top1 = setting.risk.top1
            sentences.append(
                f"{percent(top1.value)} of releases are named by the strongest adversary, "
                f"{setting.risk.adversary} ({percent(top1.low)} to {percent(top1.high)}; "
                f"guessing: {percent(setting.risk.chance)}; {where}). A stronger adversary may find more."
            )
    return sentences
