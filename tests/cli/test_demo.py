"""`sfumato demo` on images of somebody's own: which learner, at which size, for how long."""

import csv
from pathlib import Path

import pytest
import torch

from sfumato import images
from sfumato.cli.demo import Learner, of_own_images
from sfumato.errors import DataError
from sfumato.study import grid

SPLITS = ("train", "validation", "test")


def photographs(root: Path, classes: dict[str, tuple[str, ...]], *, each: int = 2) -> str:
    """A table of photographs: so many of each class in each split that has it."""
    draw = torch.Generator().manual_seed(0)
    rows = []
    for split, names in classes.items():
        for number in range(each * len(names)):
            file = f"{split}{number}.png"
            images.write(root / file, torch.randint(0, 256, (3, 16, 16), dtype=torch.uint8, generator=draw))
            rows.append((file, names[number % len(names)], f"{split} person {number // 2}", split))
    with (root / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("file", "gender", "person", "split"), *rows])
    return f"table:{root / 'table.csv'}"


def learners(settings: dict) -> list[str]:
    settings["task"] |= {"target": "gender", "sensitive": "person"}
    return grid.parse(settings, "demo").learners


def test_classes_that_are_known_are_learned_by_a_classifier_at_64_pixels(tmp_path, capsys):
    source = photographs(tmp_path, dict.fromkeys(SPLITS, ("female", "male")))
    settings = of_own_images(source, "gender", Learner.auto, None)
    assert learners(settings) == ["classifier-clean", "classifier-protected"]
    assert settings["data"] == {"source": source, "size": 64}
    assert capsys.readouterr().err == (
        "learner: an ordinary classifier, on images of 64x64: training and test images have the same classes "
        "of 'gender'\n"
    )


def test_classes_that_are_new_are_learned_in_episodes_at_32_pixels(tmp_path, capsys):
    source = photographs(tmp_path, {"train": ("a", "b"), "validation": ("c", "d"), "test": ("e", "f")})
    settings = of_own_images(source, "gender", Learner.auto, None)
    assert learners(settings) == ["clean", "protected", "denoised"]
    assert settings["data"]["size"] == 32
    assert "in episodes, on images of 32x32: training and test images have not the same" in (
        capsys.readouterr().err
    )


def test_what_was_asked_for_is_done(tmp_path):
    source = photographs(tmp_path, dict.fromkeys(SPLITS, ("female", "male")))
    settings = of_own_images(source, "gender", Learner.episodes, 16)
    assert learners(settings) == ["clean", "protected", "denoised"]
    assert settings["data"]["size"] == 16


@pytest.mark.parametrize(("each", "epochs"), [(2, 40), (300, 33), (1000, 10)])
def test_few_images_are_seen_more_often(tmp_path, each, epochs):
    source = photographs(tmp_path, {"train": ("a", "b"), "test": ("a", "b")}, each=each)
    assert of_own_images(source, "gender", Learner.auto, 16)["classifier"]["epochs"] == epochs


def test_a_label_that_there_is_not_is_named(tmp_path):
    source = photographs(tmp_path, dict.fromkeys(SPLITS, ("female", "male")))
    with pytest.raises(DataError, match="no label 'sex'"):
        of_own_images(source, "sex", Learner.auto, None)
