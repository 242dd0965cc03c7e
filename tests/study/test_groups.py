"""Accuracy and naming by group of people: gaps that are there are found, and others are not."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.study.test_run import SETTINGS, cartoons

from sfumato.assess.hits import Hits
from sfumato.audits import evidence
from sfumato.audits.findings import as_text
from sfumato.data.labelled import Label
from sfumato.errors import ConfigError, DataError
from sfumato.study import grid, report, run
from sfumato.study.choose import groups
from sfumato.study.choose.groups import ByGroup
from sfumato.study.choose.results import load


def drawn(draws: np.random.Generator, people: int, share: float, *, each: int = 10) -> Hits:
    """Photographs of people of whom some are named often and others hardly ever."""
    hits = draws.binomial(each, draws.beta(2 * share, 2 * (1 - share), size=people))
    return Hits(tuple(map(float, hits)), (float(each),) * people, seeds=1)


def test_a_group_that_is_named_twice_as_often_is_found_with_the_gap():
    draws = np.random.default_rng(0)
    of = {"f": drawn(draws, 400, 0.2), "m": drawn(draws, 400, 0.4), "few": drawn(draws, 4, 0.9)}
    made = ByGroup("gender", "blur:radius=4", True, of)
    most, least, gap = made.gap
    assert (most, least) == ("m", "f")  # four people are too few to compare
    assert gap.value == pytest.approx(of["m"].share - of["f"].share)
    assert 0 < gap.low < 0.2 < gap.high < 0.4
    assert str(made).startswith(f"gender: m is named most, {100 * of['m'].share:.1f}%; more than f by ")
    assert ByGroup("gender", "none", True, {"f": of["f"], "few": of["few"]}).gap is None


@pytest.mark.parametrize("sizes", [(20, 30), (200, 60), (25, 25, 25, 25)])
def test_of_groups_without_a_gap_the_interval_covers_none_in_95_of_100_studies(sizes: tuple[int, ...]):
    draws, gaps = np.random.default_rng(1), []
    for _ in range(400):
        of = {str(number): drawn(draws, people, 0.15) for number, people in enumerate(sizes)}
        gaps.append(ByGroup("group", "none", True, of).gap[2])
    assert np.mean([gap.low <= 0 <= gap.high for gap in gaps]) >= 0.95 - 2 * (0.95 * 0.05 / 400) ** 0.5


def prepared(*, per_person: bool = True, **task: Any) -> run.Prepared:
    """Drawn faces of people of two teams; or of whom each is in both."""
    loaded, quick = cartoons(), {"attacks": ["reidentify-values"], "protections": ["pixelize:cell=4"]}
    who = loaded.label("identity").codes if per_person else torch.arange(len(loaded))
    teams = replace(loaded, labels={**loaded.labels, "team": Label(who % 2, ("east", "west"))})
    task = {**SETTINGS["task"], "groups": ["team"], **task}
    return run.prepare(grid.parse({**SETTINGS, **quick, "task": task, "pictures": 0}), loaded=teams)


@pytest.mark.usefixtures("quick_adversaries")
def test_a_study_counts_everybody_once_and_its_report_and_evidence_say_the_gap(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(groups, "FEWEST", 3)  # of six test people
    run.run(prepared(), tmp_path)
    results = load(tmp_path)
    made, of = list(groups.by_group(results)), {each.protection: each for each in results.settings}
    for each in made:
        counts = [(sum(hits.hits), sum(hits.probes)) for hits in each.groups.values()]
        right, asked = map(sum, zip(*counts, strict=True))
        whole = of[each.protection].risk.top1 if each.named else of[each.protection].accuracy
        assert (set(each.groups), right / asked) == ({"east", "west"}, pytest.approx(whole.value))
    assert {each.named for each in made} == {True, False}
    assert "named, by team" in report.write(tmp_path).read_text()
    said = as_text(evidence.make_report(evidence.read_case(results, tmp_path, protection="pixelize:cell=4")))
    assert f"By {made[1]}; {made[2]}." in said


def test_a_label_that_divides_the_photographs_of_a_person_names_no_group(tmp_path: Path):
    with pytest.raises(DataError, match=r"groups: team: .* people have more than one value: name a label of"):
        run.run(prepared(per_person=False), tmp_path)
    with pytest.raises(ConfigError, match="groups: identity is the target or the secret"):
        prepared(groups=["identity"])
