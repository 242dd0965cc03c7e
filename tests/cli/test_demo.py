"""`sfumato demo` on images of somebody's own: which learner, at which size, for how long."""

import csv
import json
import re
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
import typer
import yaml
from encoders import Small, write_onnx
from tests.study import synthetic

from sfumato import images
from sfumato.cli import show
from sfumato.cli.demo import of_own_images
from sfumato.networks.weights import WheelFile

pytestmark = pytest.mark.usefixtures("quick_adversaries")

SPLITS = ("train", "validation", "test")


def photographs(root: Path, classes: dict[str, tuple[str, ...]], *, each: int = 2) -> str:
    """A table of photographs: so many of each class in each split that has it."""
    draw = torch.Generator().manual_seed(0)
    rows = []
    root.mkdir(exist_ok=True)
    for split, names in classes.items():
        for number in range(each * len(names)):
            file = f"{split}{number}.png"
            drawn = root / f"{split}{number % 60}.png"  # of many photographs the number is what counts
            if drawn.exists():
                (root / file).hardlink_to(drawn)
            else:
                images.write(drawn, torch.randint(0, 256, (3, 16, 16), dtype=torch.uint8, generator=draw))
            rows.append((file, names[number % len(names)], f"{split} person {number // 2}", split))
    with (root / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("file", "gender", "person", "split"), *rows])
    return f"table:{root / 'table.csv'}"


def test_known_classes_are_learned_by_a_classifier_and_new_ones_in_episodes(tmp_path, capsys):
    source = photographs(tmp_path, dict.fromkeys(SPLITS, ("female", "male")))
    settings = of_own_images(source, "gender", "auto", None)
    assert settings["learners"] == ["classifier-clean", "classifier-protected"]
    assert settings["data"] == {"source": source, "size": 64}
    same = "training and test images have the same classes of 'gender'\n"
    said = capsys.readouterr().err
    assert said == f"learner: an ordinary classifier, on images of 64x64: {same}"
    new = {"train": ("a", "b"), "validation": ("c", "d"), "test": ("e", "f")}
    settings = of_own_images(photographs(tmp_path / "new", new), "gender", "auto", None)
    assert settings["learners"] == ["clean", "protected", "denoised"]
    assert settings["data"]["size"] == 32
    said = capsys.readouterr().err
    assert "in episodes, on images of 32x32: training and test images have not the same" in said


@pytest.mark.parametrize(
    ("installed", "encoder", "words"),
    [
        (False, "drawn", "on the encoder that the library ships"),
        (True, "efficientnet-lite0", "on efficientnet-lite0, which is installed (--encoder drawn for the"),
    ],
)
def test_of_few_images_of_each_class_an_encoder_stays(
    tmp_path, capsys, monkeypatch, installed, encoder, words
):
    monkeypatch.setattr(WheelFile, "is_installed", lambda file: installed)
    names = [f"class {number}" for number in range(24)]
    source = photographs(tmp_path, {"train": names[:12], "validation": names[12:18], "test": names[18:]})
    settings = of_own_images(source, "gender", "auto", None)
    assert settings["training"]["encoder"] == encoder
    assert settings["data"]["size"] == 64
    said = capsys.readouterr().err
    assert f"learner: a few-shot classifier, tested in episodes {words}" in said
    assert "on images of 64x64: there are many classes of 'gender', with few images each" in said
    own = of_own_images(source, "gender", "auto", None, encoder="onnx:own.onnx,mean=0,std=1")
    assert own["training"].get("encoder") is None  # the command sets it, for every learner


@pytest.mark.parametrize(("each", "epochs"), [(2, 40), (300, 33), (1000, 10)])
def test_few_images_are_seen_more_often(tmp_path, each, epochs):
    source = photographs(tmp_path, {"train": ("a", "b"), "test": ("a", "b")}, each=each)
    assert of_own_images(source, "gender", "auto", 16)["classifier"]["epochs"] == epochs


def test_where_the_class_is_the_secret_no_feature_is_asked_to_remove_it(command, tmp_path):
    source = photographs(tmp_path, {"train": ("a", "b"), "validation": ("c", "d"), "test": ("e", "f")})
    alone = command("demo", "--data", source, "--target", "gender", "--print-config")
    both = command("demo", "--data", source, "--target", "gender", "--sensitive", "person", "--print-config")
    assert (alone.code, both.code) == (0, 0)
    assert "feature:" not in alone.out
    assert "feature:dimension=16,noise=0.3" in both.out


def test_where_nobody_can_be_looked_for_that_is_said_and_there_are_no_adversaries(command, tmp_path):
    source = photographs(tmp_path, dict.fromkeys(SPLITS, ("female", "male")), each=1)
    said = command("demo", "--data", source, "--target", "gender", "--sensitive", "person", "--print-config")
    assert said.code == 0, said.err
    assert yaml.safe_load(said.out)["task"].get("sensitive") is None
    assert "person: fewer than two of its values have two test photographs" in said.err
    said = command("demo", "--data", source, "--target", "person", "--sensitive", "gender", "--print-config")
    assert "person has more values: is it the secret? --target gender --sensitive person" in said.err


def test_a_run_is_not_begun_among_other_files(command, tmp_path):
    source = photographs(tmp_path, {"train": ("a", "b"), "test": ("a", "b")})
    before = sorted(tmp_path.rglob("*"))
    said = command("demo", "--data", source, "--target", "gender", "--out", ".", "--yes")
    assert re.search("other files, such as .* and no run: name a new folder", said.err)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("test_classes", [("female", "male"), ("e", "f")])
def test_an_encoder_of_ones_own_reads_images_for_every_learner(command, tmp_path, test_classes):
    classes = {"train": ("female", "male"), "validation": ("female", "male"), "test": test_classes}
    source = photographs(tmp_path, classes)
    encoder = write_onnx(tmp_path / "small.onnx", Small())
    said = command("demo", "--data", source, "--target", "gender", "--encoder", encoder, "--print-config")
    assert said.code == 0, said.err
    settings = yaml.safe_load(said.out)
    assert settings["training"]["encoder"] == encoder
    assert settings["classifier"]["network"] == encoder
    assert settings["codes"]["encoder"] == encoder
    assert settings["data"]["size"] == 64
    assert "denoised" not in settings["learners"]
    assert "on your encoder, on images of 64x64" in said.err


def forty(root: Path, *, people: int = 40) -> str:
    """A table of four photographs of each of so many people, without splits."""
    draw = torch.Generator().manual_seed(0)
    rows = []
    for number in range(4 * people):
        file = f"{number}.png"
        images.write(root / file, torch.randint(0, 256, (1, 16, 16), dtype=torch.uint8, generator=draw))
        rows.append((file, ("female", "male")[number // 4 % 2], f"person {number // 4}"))
    with (root / "photos.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("file", "gender", "person"), *rows])
    return f"table:{root / 'photos.csv'}"


def test_check_says_what_the_data_can_show_and_trains_nothing(command, tmp_path):
    task = ("--target", "gender", "--sensitive", "person", "--size", "16", "--out", str(tmp_path / "run"))
    one = command("demo", "--data", forty(tmp_path), *task, "--check", "--folds", "1")
    assert one.code == 0, one.err
    assert "10 test people are too few: guessing is right in 10.0%" in one.out
    assert "--folds 2, by which all 40 people take turns as test people" in one.out
    said = command("demo", "--data", f"table:{tmp_path / 'photos.csv'}", *task, "--check", "--json")
    made = json.loads(said.out)
    assert "one split tests too few people: they take 2 turns (--folds 1: one split)" in said.err
    assert (made["fits"], made["floors"][0]["people"]) == (True, 40)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("terminal", [True, False])
def test_a_study_that_can_show_nothing_runs_after_an_answer_or_without_a_terminal(
    capsys, monkeypatch, terminal
):
    monkeypatch.setattr("sys.stdin.isatty", lambda: terminal, raising=False)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    with pytest.raises(typer.Exit) if terminal else nullcontext():
        show.go_on(yes=False)
    show.go_on(yes=True)
    alone = "" if terminal else "going on: there is no terminal to ask at. --check stops here\n"
    assert capsys.readouterr().err == f"{alone}going on (--yes)\n"


def test_without_pictures_neither_a_run_nor_its_report_nor_its_rows_show_any(command, tmp_path):
    whole = command("demo", "--print-config").out
    assert yaml.safe_load(whole)["pictures"] > 0
    (tmp_path / "study.yaml").write_text(whole)
    for words in ("demo", "study run study.yaml"):
        said = command(*words.split(), "--no-pictures", "--print-config")
        assert yaml.safe_load(said.out)["pictures"] == 0
    study = synthetic.study(protections=["none", "blur:radius=1"])
    run = synthetic.write_run(tmp_path / "run", study, synthetic.records(study))
    for options, shown in ((["--no-pictures"], False), ([], True)):
        assert command("study", "report", str(run), *options).code == 0
        page = (run / "report.html").read_text(encoding="utf-8")
        assert ("data:image/png" in page) == ("contains original images" in page) == shown
        rows = tmp_path / "rows.jsonl"
        said = command("study", "rows", str(run), str(rows), *options)
        assert said.out == f"{rows}: the study and {rows.read_text().count(chr(10)) - 1} records\n"
        assert ("data:image" in rows.read_text()) == shown
