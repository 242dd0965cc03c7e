"""Log-rank privacy as a cell of studies: a feature's curve of accuracy and privacy along its noise."""

from pathlib import Path
from typing import Any

import pytest
import synthetic
from tests.study.test_release_kinds import ALONE, KNOWN, results_of
from tests.study.test_report import page_of
from tests.study.test_run import cartoons

from sfumato import protect
from sfumato.errors import ConfigError, SpecError
from sfumato.study import grid, run
from sfumato.study.measure.log_rank import attribute_accuracies, rank_privacy
from sfumato.study.report import tables

SPECS = ["mask:keep=0.1", "feature:variant=simple,noise=0,30", "code:bits=3"]


def study(**changes: Any) -> grid.StudyConfig:
    settings = {**KNOWN, **ALONE, "protections": SPECS, "learners": [], "measures": [], "log_rank": True}
    settings["features"] = {**KNOWN["features"], "dimension": 4}
    return grid.parse({**settings, "adversary": {**KNOWN["adversary"], "known": 3, "probes": 3}, **changes})


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = {"protections": SPECS[1:], "learners": ["classifier-clean"], "pictures": 0}
    return run.run(study(**settings), tmp_path_factory.mktemp("ranked"))


def test_a_point_is_what_the_command_finds_of_the_same_feature(directory: Path):
    results = results_of(directory)
    (path,) = (directory / "models").glob("feature-*.safetensors")
    test = cartoons().split("test")
    known = {"known": 3, "asked": 3, "least": 3, "copies": study().adversary.copies}
    for noise in ("0", "30"):
        protection = protect.parse(f"feature:artefact={path},noise={noise}", takes=("numbers",))
        ranked = rank_privacy(protection, test.images, test.label("identity").codes, **known)
        result = results["log-rank", f"feature:noise={noise},variant=simple"]
        assert (result.strongest, result.lrp) == (ranked.strongest, ranked.adversaries[ranked.strongest].lrp)
        assert result.accuracy == attribute_accuracies(protection, test, 0)["expression"]
        assert (result.images, result.identities) == (len(test), len(test.classes("identity")))


def test_a_code_has_a_rank_and_no_accuracy_of_its_own(directory: Path):
    code = results_of(directory)["log-rank", "code:bits=3"]
    assert 0 <= code.low <= code.lrp <= code.high <= 1
    assert code.accuracy is None


def test_ranks_need_people_with_photographs_and_a_misspelt_variant_is_named_when_the_study_is_read():
    for changes, message in (
        ({"task": {"target": "expression"}}, "log_rank: sensitive=None, known=3: name the label"),
        ({"adversary": {"known": 1}}, "log_rank: sensitive=identity, known=1: .* at least 2 photographs"),
        ({"protections": ["feature:variant=dfpe,noise=0"]}, "feature: variant=dfpe: did you mean 'dpfe'"),
    ):
        with pytest.raises((ConfigError, SpecError), match=message):
            study(**changes)


def test_each_setting_has_its_rank_and_the_accuracy_of_its_own_classifier_over_the_seeds():
    measured = {  # of two seeds
        "feature:noise=1,variant=simple": [(0.6, 0.7), (0.6, 0.7)],
        "feature:noise=0,variant=simple": [(0.2, 0.9), (0.4, 0.8)],
        "feature:noise=0,variant=dpfe": [(0.5, 0.8), (0.5, 0.8)],
        "code:bits=8": [(0.7, None), (0.7, None)],
    }
    records = [
        synthetic.log_rank(spec, *of_seed, seed=seed)
        for spec, seeds in measured.items()
        for seed, of_seed in enumerate(seeds)
    ]
    cells = [{key: record[key] for key in ("digest", "kind", "cell")} for record in records]
    of = {**synthetic.study(protections=["none", *measured], seeds=[0, 1]), "cells": cells}
    page = page_of(of, records)
    rows = page.table("Table of log-rank privacy")[1:]
    assert rows[1] == ["feature: noise=0, variant=simple", "0.300 0.200–0.400", "density", "85.0% 80.0–90.0"]
    assert rows[-1] == ["code: bits=8", "0.700 0.700–0.700", "density", "–"]
    (table,) = [each for each in tables(synthetic.results(of, records)) if each.name == "log-rank"]
    assert (len(table.rows), table.names[2:4]) == (8, ("lrp", "low"))
