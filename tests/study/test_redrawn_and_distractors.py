"""What a study asks of a protection once and only once, and whom its proof counts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.study.test_run import SETTINGS, cartoons
from torch import Tensor

from sfumato.attack.ensemble import GALLERY, PROBES
from sfumato.learn import code
from sfumato.learn.code import CodeConfig
from sfumato.study import cells as kinds
from sfumato.study import grid
from sfumato.study.cells import Cell
from sfumato.study.lab.lab import Lab, Progress
from sfumato.study.measure import attack, proofs


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A code of two bits that are flipped, of an encoder that learned nothing."""
    path = tmp_path_factory.mktemp("code") / "code.safetensors"
    settings: dict[str, Any] = {"target": "headwear", "sensitive": (), "validation": None, "seed": 0}
    code.make_untrained(cartoons(), CodeConfig(bits=2), **settings).save(path)
    return f"code:artefact={path},flip=0.1"


def study_of(spec: str, **changes: Any) -> grid.StudyConfig:
    wanted = {"protections": [spec], "learners": ["protected"], "attacks": ["reidentify-values"]}
    return grid.parse({**SETTINGS, **wanted, **changes})


def test_the_exact_table_counts_each_release_of_a_photograph_once(spec: str, tmp_path: Path):
    """Eight of each, of which others have two: a release that counts twice is no new one."""
    drawn: dict[int, list[int]] = {GALLERY: [], PROBES: []}

    class Counted(Lab):
        def release(self, cell: Cell, clean: Tensor, stream: int = 0, number: int = 0) -> Any:
            drawn.setdefault(stream, []).append(number)
            return super().release(cell, clean, stream, number)

    lab = Counted(study_of(spec), cartoons(), tmp_path, Progress())
    (cell,) = (cell for cell in kinds.cells(lab.config) if (cell.kind, cell.protection) == ("attack", spec))
    (table,) = (
        score for score in attack.VALUES.measure(lab, cell)["scores"] if score["classifier"] == "table"
    )
    assert 0 < table["in_sample"] <= 1
    assert sorted(drawn[GALLERY]) == sorted(drawn[PROBES]) == list(range(8))


def test_distractors_are_no_people_of_a_proof(spec: str, tmp_path: Path):
    """A probe shows somebody of the test images: the chance that is proved is among them alone."""
    loaded = cartoons()
    people = len(loaded.split("test").classes("identity"))
    rows, train = loaded.splits["train"], loaded.split("train")
    strangers = torch.isin(train.label("identity").codes, train.classes("identity")[:3])
    with_distractors = replace(loaded, splits={**loaded.splits, "distractors": rows[strangers]})
    lab = Lab(study_of(spec), with_distractors, tmp_path, Progress())
    result = proofs.PROVED.measure(lab, Cell("proved", spec, 0))
    assert result["people"] == people == 6
    assert min(naming["candidates"] for naming in result["naming"]) == people
