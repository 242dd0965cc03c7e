"""How to use a study's recommendation, or the nearest setting: its files, and the commands that take them."""

from pathlib import Path

from sfumato.study.choose.figures import percent
from sfumato.study.choose.results import Results, load_all
from sfumato.study.vocabulary import recipe_of

_SERVED = ("code", "feature")  # a service needs only their artefact


def next_commands(directory: Path, results: Results, *, artefacts: Path | None = None) -> list[str]:
    """A line for the device, one for the cloud and one for queries; fewer if the files are gone.

    A setting that holds only if queries are looked up begins with the query, and no line sends others. Each
    line of a setting that is not recommended, but the nearest, says so, in a shell comment. It copies the
    few-shot model of the setting, if there is one; see lab.keep_recommended. `artefacts` is the folder of
    trained protections, if it is not that of the run.
    """
    from sfumato.study.lab.lab import keep_recommended  # it needs PyTorch, which reports do without

    advice = results.advice
    setting = advice.setting or advice.nearest
    if setting is None:
        return []
    spec, (_, height, width) = setting.protection, results.study["data"]["shape"]
    recipe, model = recipe_of(spec), None
    if recipe is not None:
        proof = results.proofs.get(spec)
        path = (artefacts or directory / "models") / ((proof and proof.artefact) or "")
        if not path.is_file():
            return []
        spec = recipe.with_artefact(str(path))
        model = path if recipe.name in _SERVED else None
    model = model or keep_recommended(directory, spec, setting.learner, recommended=not advice.reason)
    size = f" --size {width}" if width == height else f"   # images of {width}x{height}"
    lines = [f"on a device: sfumato protect PHOTOS RELEASED --with {spec}{size}"]
    if model is not None:
        lines.append(f"in a cloud: sfumato serve {model}")
        looked_up = f"sfumato classify URL CLASSIFIER PHOTO --with {spec} --table CLASSIFIER.table"
        if advice.by_table:
            enrolled = f"the few images that are sent: sfumato enrol URL CLASSIFIER PHOTOS --with {spec}"
            lines = [f"queries, which send nothing: {looked_up}", lines[1], enrolled]
        elif advice.has_table:
            lines.append(f"queries that send nothing: {looked_up}")
    if not advice.reason:
        return lines
    return [f"to try it nevertheless, {line}   # not recommended: {advice.reason}" for line in lines]


def describe_measurements(artefact: Path) -> list[str]:
    """The study's results on a protection that it trained, a sentence each.

    Nothing for an artefact outside the models of a run, RUN/models/code-....safetensors, or of another kind.
    """
    run = artefact.absolute().parent.parent
    if artefact.absolute().parent.name != "models" or not (run / "study.json").is_file():
        return []
    results, *others = load_all(run)
    if others:
        return []  # each value of `vary` has a result of its own
    specs = {spec for spec, proof in results.proofs.items() if proof.artefact == artefact.name}
    sentences = []
    for setting in results.settings:
        if setting.protection not in specs:
            continue
        where = f"study {results.study['name']!r}, {setting.protection}"
        if setting.accuracy is not None:
            right = percent(setting.accuracy.value)
            sentences.append(f"{right} of images are classified correctly ({where}).")
        if setting.risk is not None:
            top1 = setting.risk.top1
            sentences.append(
                f"{percent(top1.value)} of releases are named by the strongest adversary, "
                f"{setting.risk.adversary} ({percent(top1.low)} to {percent(top1.high)}; "
                f"guessing: {percent(setting.risk.chance)}; {where}). A stronger adversary may find more."
            )
    return sentences
