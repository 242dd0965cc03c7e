"""The results of a study: it is read once, and makes each figure and the recommendation once."""

import os
from functools import cached_property
from pathlib import Path
from typing import Any

from sfumato.errors import DataError
from sfumato.study.choose.figures import Figures, is_known
from sfumato.study.choose.recommend import Recommendation, recommend
from sfumato.study.records import CURE, Record, names_of, parse, read_run, rename

# Kind of a record -> its result without pictures.
_BARE: dict[str, dict[str, Any]] = {
    "examples": {"examples": ()},
    "pictures": {"original": [], "released": [], "denoised": None, "restored": None},
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
            record.model_copy(update={"result": record.result.model_copy(update=_BARE[record.kind])})
            if record.kind in _BARE
            else record
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
