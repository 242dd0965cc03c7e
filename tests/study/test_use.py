"""How to use what a study recommends: commands that name files which are there."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sfumato import artefacts
from sfumato.study.choose.figures import Setting
from sfumato.study.choose.recommend import Recommendation
from sfumato.study.choose.results import next_commands
from sfumato.study.measure.results import Proved

PIXELS = "dp-pix:cell=4,epsilon=3"


def recommended(spec: str, artefact: str = "", *, width: int = 24, reason: str = "", table: str = "") -> Any:
    """What is known of a study whose records recommend a setting, or have a reason not to."""
    setting = Setting(spec, "protected", None, None, None, (), (), (), complete=True)
    chosen = None if reason else setting
    by_table = {"by_table": table == "needed", "has_table": table != ""}
    advice = Recommendation(chosen, (), reason, nearest=setting, **by_table)
    proof = Proved(release="pixels", bytes_per_image=2, artefact=artefact or None)
    return SimpleNamespace(advice=advice, study={"data": {"shape": [3, 24, width]}}, proofs={spec: proof})


def few_shot(folder: Path, spec: str) -> None:
    """A few-shot artefact that was trained on releases of a protection."""
    card = {"kind": "few-shot", "spec": spec, "config": {"denoiser_depth": None}, "seed": 0}
    artefacts.save(folder / "models" / "few-shot-ab.safetensors", {"weight": torch.zeros(1)}, card)


def file_in(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).touch()
    return folder / name


@pytest.mark.parametrize(("width", "size"), [(24, " --size 24"), (32, "   # images of 32x24")])
def test_pixels_are_protected_by_their_spec_and_served_by_the_model_trained_on_them(tmp_path, width, size):
    few_shot(tmp_path, PIXELS)
    assert next_commands(tmp_path, recommended(PIXELS, width=width)) == [
        f"on a device: sfumato protect PHOTOS RELEASED --with {PIXELS}{size}",
        f"in a cloud: sfumato serve {tmp_path}/recommended.safetensors",
    ]
    assert (tmp_path / "recommended.safetensors").exists()


def test_a_code_is_protected_and_served_by_its_encoder_or_queried_by_a_table_that_sends_nothing(tmp_path):
    path = file_in(tmp_path / "models", "code-ab.safetensors")
    (device, cloud), needed, possible = (
        next_commands(tmp_path, recommended("code:bits=16", path.name, table=table))
        for table in ("", "needed", "possible")
    )
    assert f"--with code:artefact={path},bits=16 " in device
    assert cloud == needed[1] == f"in a cloud: sfumato serve {path}"
    assert needed[0].startswith("queries, which send nothing: sfumato classify ")
    assert needed[0].endswith("--table CLASSIFIER.table")
    assert needed[2].startswith("the few images that are sent: sfumato enrol ")
    assert possible[2].startswith("queries that send nothing: ")
    for gone in ("", "code-gone.safetensors"):
        assert next_commands(tmp_path, recommended("code:bits=16", gone)) == []


def test_a_mask_is_served_by_the_model_that_was_trained_on_what_it_shows(tmp_path):
    few_shot(tmp_path, "mask:artefact=mask-ab.safetensors,keep=0.1")
    path = file_in(tmp_path / "models", "mask-ab.safetensors")
    device, cloud = next_commands(tmp_path, recommended("mask:keep=0.1", path.name))
    assert f"--with mask:artefact={path},keep=0.1 " in device
    assert cloud == f"in a cloud: sfumato serve {tmp_path}/recommended.safetensors"


def test_an_answer_needs_no_cloud(tmp_path):
    path = file_in(tmp_path / "shared", "answer-ab.safetensors")
    (line,) = next_commands(tmp_path, recommended("answer", path.name), artefacts=path.parent)
    assert f"--with answer:artefact={path} " in line


def test_what_is_not_recommended_says_so_in_each_line_and_in_the_name_of_its_file(tmp_path):
    few_shot(tmp_path, PIXELS)
    lines = next_commands(tmp_path, recommended(PIXELS, reason="no adversary was measured"))
    assert lines == [
        f"to try it nevertheless, {command}   # not recommended: no adversary was measured"
        for command in (
            f"on a device: sfumato protect PHOTOS RELEASED --with {PIXELS} --size 24",
            f"in a cloud: sfumato serve {tmp_path}/not-recommended.safetensors",
        )
    ]
    assert not (tmp_path / "recommended.safetensors").exists()
