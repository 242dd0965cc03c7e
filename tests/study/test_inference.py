"""Several secrets: who is on an image, and attributes that all people share."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.study.test_bounds_of_attributes import records_of_two, study_of_two
from tests.study.test_report import Page
from tests.study.test_run import SETTINGS, cartoons

from sfumato.data.labelled import Label, LabelledImages
from sfumato.errors import ConfigError, DataError
from sfumato.study import cells as kinds
from sfumato.study import grid, report, run
from sfumato.study.choose.results import Results
from sfumato.study.lab.lab import Lab, Progress

pytestmark = pytest.mark.usefixtures("quick_adversaries")

BADGE = {
    **SETTINGS,
    "task": {**SETTINGS["task"], "sensitive": ["identity", "badge"]},
    "protections": ["pixelize:cell=4", "block:share=0.9"],
    "attacks": ["reidentify-values"],
    "classifier": {"network": "conv4", "start": "random", "epochs": 2},
    "recommend": {"inference_at_most": {"badge": 0.8}},
}


def badged() -> LabelledImages:
    """Drawn faces, half of which have a white square in the corner, whoever it is."""
    loaded = cartoons()
    images, codes = loaded.images.clone(), torch.arange(len(loaded)) % 2
    images[codes == 1, :, :4, :4] = 255
    images[codes == 0, :, :4, :4] = 0
    return replace(loaded, images=images, labels={**loaded.labels, "badge": Label(codes, ("no", "yes"))})


def inferred(lab: Lab) -> dict[str, Any]:
    """Protection -> the result of the inference."""
    cells = [cell for cell in kinds.cells(lab.config) if cell.kind == "inference"]
    return {cell.protection: kinds.measure(lab, cell) for cell in cells}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    settings = {**BADGE, "protections": ["pixelize:cell=4", "code:bits=1"]}
    episodes = {"way": 3, "shot": 2, "queries": 2, "episodes_per_epoch": 2}
    settings |= {"codes": {"start": "random", "epochs": 1, **episodes}}
    return inferred(Lab(grid.parse(settings), badged(), tmp_path_factory.mktemp("badge"), Progress()))


def test_an_attribute_that_a_release_shows_is_inferred_of_people_whom_nobody_knows(results: dict[str, Any]):
    for spec in ("none", "pixelize:cell=4"):
        scores = {score["classifier"]: score for score in results[spec]["scores"]}
        assert list(scores) == ["values", "network"]
        assert scores["values"]["top1"] == 1.0
        assert results[spec]["chance"] == 28 / 54


def test_of_one_bit_nobody_infers_what_the_task_has_nothing_to_do_with(results: dict[str, Any]):
    (score,) = results["code:bits=1"]["scores"]
    assert score["classifier"] == "values"  # there is no image to show to a network
    assert score["low"] < 0.6 < 1.0
    assert sum(score["hits"]) == pytest.approx(score["top1"] * 54)


def test_a_study_of_two_secrets_runs_to_a_report_and_photographs_of_one_person_are_no_independent_trials(
    tmp_path: Path,
):
    settings = {**BADGE, "task": {**BADGE["task"], "sensitive": ["identity", "gender"]}, "pictures": 0}
    settings |= {"recommend": {"inference_at_most": {"gender": 0.95}}, "protections": []}
    directory = run.run(grid.parse(settings), tmp_path)
    assert "Attribute inference" in report.write(directory).read_text(encoding="utf-8")
    (result,) = [one.result for one in report.load(directory).records if one.kind == "inference"]
    score, people = max(result.scores, key=lambda score: score.top1), len(result.people)
    # Not narrower than of as many trials as people by much: a person is right or wrong as a whole.
    deviation = (score.top1 * (1 - score.top1) / people) ** 0.5
    assert score.high - score.low > 0.5 * 2 * 1.96 * deviation


def test_a_list_of_secrets_is_the_person_and_attributes():
    config, alone = grid.parse(BADGE), {**SETTINGS, "task": {**SETTINGS["task"], "sensitive": ["identity"]}}
    assert (config.task.sensitive, config.task.attributes) == ("identity", ("badge",))
    assert grid.parse(SETTINGS).task.attributes == ()
    assert grid.parse(alone) == grid.parse(SETTINGS)


def test_what_a_study_of_one_secret_has_measured_is_read_again_with_two(tmp_path: Path):
    alone = {"task": SETTINGS["task"], "recommend": {}}
    labs = [Lab(grid.parse({**BADGE, **more}), badged(), tmp_path, Progress()) for more in (alone, {})]
    digests = [{kinds.digest(lab, cell) for cell in kinds.cells(lab.config)} for lab in labs]
    assert digests[0] < digests[1]
    assert len(digests[1] - digests[0]) == 3  # an inference of each protection


BOUND_OF_ANOTHER = {"recommend": {"inference_at_most": {"badge": 0.8, "gender": 0.8}}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"recommend": {}}, r"sensitive: badge: say how often it may be inferred"),
        (BOUND_OF_ANOTHER, r"gender is not an attribute of the study: write sensitive: \[identity, gender\]"),
        ({"recommend": {"inference_at_most": {"badge": 1.5}}}, r"badge=1.5: .*less than or equal to 1"),
        ({"task": {**BADGE["task"], "sensitive": []}}, r"sensitive=\[\]: name a label"),
        ({"task": {**BADGE["task"], "sensitive": ["identity", "badge", "badge"]}}, "name each label once"),
        ({"task": {**BADGE["task"], "target": "badge"}}, "badge is the target"),
    ],
)
def test_secrets_that_make_no_sense_are_refused(change: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        grid.parse({**BADGE, **change})


def test_a_bound_that_guessing_breaks_and_classes_of_no_training_image_are_refused_first(tmp_path: Path):
    def check(**changes: Any) -> None:
        run.check(Lab(grid.parse({**BADGE, **changes}), badged(), tmp_path, Progress()))

    with pytest.raises(ConfigError, match=r"badge: 0.5: to name the commonest class is right in 0.519"):
        check(recommend={"inference_at_most": {"badge": 0.5}})
    task = {**BADGE["task"], "sensitive": ["identity", "headwear"], "target": "age"}
    with pytest.raises(DataError, match="headwear: an attribute has two classes or more"):
        check(task=task, recommend={"inference_at_most": {"headwear": 0.9}}, learners=[])


# What a report shows of them


def test_the_report_has_a_table_of_inferences_and_marks_what_is_above_the_bound():
    page = Page(report.render(Results(study_of_two(), records_of_two(0.8, 0.6))))
    rows = page.table("Table of inferences")
    assert rows[0] == ["setting", "gender at most 70.0%; guessing 50.0%"]
    assert [row[1].split(" 7")[0].startswith("▲") for row in rows[1:]] == [True, True, False]
    assert "how often an adversary finds out the identity or gender." in page.text
