"""The results of a study, read once, with the commands that use what they recommend."""

import os
from functools import cached_property
from pathlib import Path
from typing import Any

from sfumato.errors import DataError
from sfumato.study.choose.figures import Figures, is_known, percent
from sfumato.study.choose.recommend import Recommendation, recommend
from sfumato.study.records import CURE, Record, names_of, parse, read_run, rename
from sfumato.study.vocabulary import expand, is_recipe

_SERVED = ("code", "feature")  # a service needs only their artefact
# Kind of a record -> its result without pictures.
_BARE: dict[str, dict[str, Any]] = {
    "examples": {"examples": ()},
    "pictures": {"original": [], "released": [], "denoised": None},
    "reconstruction": {"originals": (), "pictures": ()},
}


class Results(Figures):
    """A study, the figures of its records, and what they recommend."""

    @cached_property
    def advice(self) -> Recommendation:
        """The setting to use."""
        return recommend(self)

    def without_pictures(self) -> "Results":
        """The same, with every number and no image: neither original ones nor derived ones."""
        bare = (
            record.model_copy(update={"result": record.result.model_copy(update=_BARE.get(record.kind, {}))})
            for record in self.records
        )
        return Results(self.study, bare)


def load(directory: str | os.PathLike[str]) -> Results:
    """Reads a study and the records of its cells, from the folder of a run or a file of its rows.

    Raises DataError as load_all does; or if the study varies a setting, so that each value has its result.
    """
    results, *others = load_all(directory)
    if others:
        varied = ", ".join(results.study["varied"])
        raise DataError(
            f"{directory}: this run varies {varied}, and each value has its own result: read them by "
            "`sfumato study report`, or run a study file without vary, with the value of your choice"
        )
    return results


def load_all(directory: str | os.PathLike[str]) -> list[Results]:
    """Reads what `load` does, for a study with `vary` once for each combination of its values.

    Files of protections have their names, without folders of any machine. It raises DataError if there is
    no study, or if a record is damaged or two are of the same cell: it names them.
    """
    (path, study), *contents = read_run(Path(directory))
    for key in ("name", "title", "data", "task", "protections", "learners", "seeds", "cells"):
        if key not in study:
            raise DataError(f"{path}: {key!r} is missing: run the study again")
    listed = {cell["digest"] for cell in study["cells"]}
    names = names_of(study["protections"])
    records: dict[tuple[str, str], tuple[str, Record]] = {}
    for path, content in contents:
        if "kind" in content and not is_known(content):
            continue
        try:
            record = parse(rename(content, names))
            if record.kind == "accuracy" and record.cell.learner == "meta" and not record.result.privacy:
                raise DataError("result has no promise under 'privacy'")
        except DataError as error:
            raise DataError(f"{path}: a damaged record ({error}): {CURE}") from error
        # Records of an earlier version of the study may lie here still, and be wanted again.
        if record.digest not in listed:
            continue
        entry = str(record.varied), record.name
        if entry in records:
            raise DataError(
                f"{records[entry][0]} and {path.rpartition('/')[2]} record the same cell: "
                "delete the one that is out of date"
            )
        records[entry] = (path, record)
    made = []
    for own in study.get("vary", [{}]):
        varied = own.get("varied", {})
        cells = [cell for cell in study["cells"] if cell.get("varied", {}) == varied]
        kept = [record for (values, _), (_, record) in records.items() if values == str(varied)]
        made.append(Results(rename({**study, **own, "cells": cells}, names), kept))
    return made


def next_commands(directory: Path, results: Results, *, artefacts: Path | None = None) -> list[str]:
    """A line for the device, one for the cloud and one for queries; fewer if the files are gone.

    A setting that holds only if queries are looked up begins with the query, and no line sends others. Each
    line of the nearest, which is not recommended, says so in a shell comment. It copies the few-shot model
    of the setting; see lab.keep_recommended. `artefacts`: the folder of trained protections, if elsewhere.
    """
    from sfumato.study.lab.lab import keep_recommended  # it needs PyTorch, which reports do without

    advice = results.advice
    setting = advice.setting or advice.nearest
    if setting is None:
        return []
    spec, (_, height, width) = setting.protection, results.study["data"]["shape"]
    (named,), model = expand(spec), None
    if is_recipe(named):
        proof = results.proofs.get(spec)
        path = (artefacts or directory / "models") / ((proof and proof.artefact) or "")
        if not path.is_file():
            return []
        spec = named.with_artefact(str(path))
        model = path if named.name in _SERVED else None
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
        where = f"study {results.study['name']!r}, {setting.protection}"
        if setting.protection in specs and setting.accuracy is not None:
            right = percent(setting.accuracy.value)
            sentences.append(f"{right} of images are classified correctly ({where}).")
        if setting.protection in specs and (risk := setting.risk) is not None:
            sentences.append(
                f"{percent(risk.top1.value)} of releases are named by the strongest adversary, "
                f"{risk.adversary} ({percent(risk.top1.low)} to {percent(risk.top1.high)}; guessing: "
                f"{percent(risk.chance)}; {where}). A stronger adversary may find more."
            )
    return sentences
