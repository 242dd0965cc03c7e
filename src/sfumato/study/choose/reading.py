"""The records of a run, read for its report: typed, of the study's cells, without folders of any machine."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pydantic

from sfumato.base.schemas import validate
from sfumato.errors import DataError
from sfumato.study.choose.estimates import Study
from sfumato.study.measure.results import RESULTS
from sfumato.study.records import CURE, Record, names_of, parse, read_run, rename
from sfumato.study.vocabulary import ATTACKS


def load(directory: str | os.PathLike[str]) -> tuple[Study, list[Record]]:
    """Reads a study and the records of its cells, from the folder of a run or a file of its rows.

    Raises:
        DataError: see load_all; or the study varies a setting, so that it has a result for each value.
    """
    made, *others = load_all(directory)
    if others:
        varied = ", ".join(made[0]["varied"])
        raise DataError(
            f"{directory}: this run varies {varied}, and each value has its own result: read them by "
            "`sfumato study report`, or run a study file without vary, with the value of your choice"
        )
    return made


def load_all(directory: str | os.PathLike[str]) -> list[tuple[Study, list[Record]]]:
    """Reads what `load` does, for a study with `vary` once for each combination of its values.

    Raises:
        DataError: there is no study; or a record is damaged, or two are of the same cell: it names them.
    """
    (path, study), *contents = read_run(Path(directory))
    for key in ("name", "title", "data", "task", "protections", "learners", "seeds", "cells"):
        if key not in study:
            raise DataError(f"{path}: {key!r} is missing: run the study again")
    listed = {cell["digest"] for cell in study["cells"]}
    names = names_of(study["protections"])
    records: dict[tuple[str, str], tuple[str, Record]] = {}
    for path, content in contents:
        try:
            record = parse_record(rename(content, names))
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
        kept = [records[entry][1] for entry in sorted(records) if entry[0] == str(varied)]
        made.append((rename({**study, **own, "cells": cells}, names), kept))
    return made


def parse_record(content: Mapping[str, Any]) -> Record:
    """The record of a loaded file; if its kind or attack is unknown to this version, its cell alone.

    Raises:
        DataError: it is damaged; the message says how.
    """
    cell = content.get("cell")
    attack = cell.get("attack") if isinstance(cell, dict) else None
    if "kind" in content and not is_known(content["kind"], attack):
        try:
            known: Record = validate(Record, {"seconds": 0.0, **content})
            return known
        except pydantic.ValidationError as error:
            raise DataError(error.errors()[0]["msg"]) from error
    record = parse(content)
    if record.cell.learner == "meta" and record.kind == "accuracy" and record.result.privacy is None:
        raise DataError("result has no promise under 'privacy'")
    return record


def is_known(kind: str, attack: str | None) -> bool:
    """Whether this version knows the kind of a cell; attacks on people have names of its vocabulary."""
    return kind in RESULTS and (kind != "attack" or attack is None or attack in ATTACKS)
