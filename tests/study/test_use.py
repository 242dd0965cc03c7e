"""How to use what a study recommends: commands that name files which are there."""

from pathlib import Path
from typing import Any

import pytest
import synthetic
import torch

from sfumato import artefacts
from sfumato.study.choose.frontier import Setting
from sfumato.study.choose.use import commands
from sfumato.study.records import Record

PIXELS = "dp-pix:cell=4,epsilon=3"


def recommended(
    spec: str, artefact: str | None = None, width: int = 32
) -> tuple[dict[str, Any], list[Record], Setting]:
    """A study whose only record is what is proved of a setting, and the setting."""
    cell = {"protection": spec, "seed": 0}
    study = {"cells": [{"kind": "proved", "cell": cell, "digest": "ab"}], "data": {"shape": [3, 24, width]}}
    result = {"release": "pixels", "bytes_per_image": 2, "artefact": artefact}
    record = {"kind": "proved", "cell": cell, "digest": "ab", "seconds": 0.0, "result": result}
    setting = Setting(spec, "protected", None, None, None, (), (), (), complete=True, on_frontier=True)
    return study, synthetic.typed([record]), setting


def few_shot(folder: Path, spec: str) -> None:
    """A few-shot artefact that was trained on releases of a protection."""
    card = {"kind": "few-shot", "spec": spec, "config": {"denoiser_depth": None}, "seed": 0}
    artefacts.save(folder / "models" / "few-shot-ab.safetensors", {"weight": torch.zeros(1)}, card)


def test_pixels_are_protected_by_their_spec_and_served_by_the_model_that_was_trained_on_them(tmp_path: Path):
    few_shot(tmp_path, PIXELS)
    assert commands(tmp_path, *recommended(PIXELS)) == [
        f"on a device: sfumato protect PHOTOS RELEASED --with {PIXELS}   # images of 32x24",
        f"in a cloud: sfumato serve {tmp_path}/recommended.safetensors",
    ]
    assert (tmp_path / "recommended.safetensors").exists()


def test_square_images_are_made_by_the_command_of_the_device(tmp_path: Path):
    few_shot(tmp_path, PIXELS)
    device, _ = commands(tmp_path, *recommended(PIXELS, width=24))
    assert device == f"on a device: sfumato protect PHOTOS RELEASED --with {PIXELS} --size 24"


def test_a_code_is_protected_and_served_by_its_encoder(tmp_path: Path):
    path = tmp_path / "models" / "code-ab.safetensors"
    path.parent.mkdir()
    path.touch()
    device, cloud = commands(tmp_path, *recommended("code:bits=16", "code-ab.safetensors"))
    assert f"--with code:artefact={path},bits=16 " in device
    assert cloud == f"in a cloud: sfumato serve {path}"


def test_what_holds_only_by_a_table_begins_with_the_query_that_sends_nothing(tmp_path: Path):
    path = tmp_path / "models" / "code-ab.safetensors"
    path.parent.mkdir()
    path.touch()
    code = recommended("code:bits=16", "code-ab.safetensors")
    query, cloud, enrolled = commands(tmp_path, *code, table="needed")
    assert query.startswith("queries, which send nothing: sfumato classify ")
    assert query.endswith("--table CLASSIFIER.table")
    assert cloud == f"in a cloud: sfumato serve {path}"
    assert enrolled.startswith("the few images that are sent: sfumato enrol ")
    assert commands(tmp_path, *code, table="possible")[2].startswith("queries that send nothing: ")


def test_a_mask_is_served_by_the_model_that_was_trained_on_what_it_shows(tmp_path: Path):
    path = tmp_path / "models" / "mask-ab.safetensors"
    few_shot(tmp_path, "mask:artefact=mask-ab.safetensors,keep=0.1")
    path.touch()
    device, cloud = commands(tmp_path, *recommended("mask:keep=0.1", "mask-ab.safetensors"))
    assert f"--with mask:artefact={path},keep=0.1 " in device
    assert cloud == f"in a cloud: sfumato serve {tmp_path}/recommended.safetensors"


def test_an_answer_needs_no_cloud(tmp_path: Path):
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "answer-ab.safetensors").touch()
    lines = commands(tmp_path, *recommended("answer", "answer-ab.safetensors"), artefacts=shared)
    assert len(lines) == 1
    assert f"--with answer:artefact={shared}/answer-ab.safetensors " in lines[0]


@pytest.mark.parametrize("artefact", [None, "code-gone.safetensors"])
def test_nothing_is_said_where_the_file_is_gone(tmp_path: Path, artefact: str | None):
    assert commands(tmp_path, *recommended("code:bits=16", artefact)) == []


def test_what_is_not_recommended_says_so_in_each_line_and_in_the_name_of_its_file(tmp_path: Path):
    few_shot(tmp_path, PIXELS)
    study, records, setting = recommended(PIXELS, width=24)
    device, cloud = commands(tmp_path, study, records, setting, reason="no adversary was measured")
    comment = "   # not recommended: no adversary was measured"
    assert device == (
        f"to try it nevertheless, on a device: sfumato protect PHOTOS RELEASED --with {PIXELS} --size 24"
        + comment
    )
    assert cloud == (
        f"to try it nevertheless, in a cloud: sfumato serve {tmp_path}/not-recommended.safetensors{comment}"
    )
    assert not (tmp_path / "recommended.safetensors").exists()
