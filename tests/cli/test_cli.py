"""The command line: instant help, one line for a mistake, and Ctrl-C that loses nothing.

Most commands run inside the test, through the function behind the script; a process is started where
the process is the point.
"""

import contextlib
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from commands import SCRIPT, Command, check_mistake

import sfumato
from sfumato import data, images
from sfumato.cli import main, show
from sfumato.cli.app import app
from sfumato.cli.left import LEFT
from sfumato.study import grid

pytestmark = pytest.mark.usefixtures("quick_adversaries")

SECONDS = 120  # a process that needs longer hangs


# Help


def walk(command: Any, parent: Any = None, path: str = "sfumato") -> Iterator[tuple[str, Any, Any]]:
    """All commands and families: the words that call one, itself, and the context around it."""
    yield path, command, parent
    context = typer.Context(command, info_name=path.split()[-1], parent=parent)
    for name, inner in getattr(command, "commands", {}).items():
        yield from walk(inner, context, f"{path} {name}")


COMMANDS = list(walk(typer.main.get_command(app)))


def test_every_command_has_help_that_shows_how_to_call_it(command: Command):
    for path, _, _ in COMMANDS:
        said = command(*path.split()[1:], "--help")
        assert said.code == 0
        assert path in said.out


def test_no_help_imports_what_is_slow_to_import():
    source = "import sys; from sfumato.cli.app import app; app(['--help'], standalone_mode=False); "
    source += "print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    slow = {"torch", "numpy", "pandas", "scipy", "sklearn", "matplotlib", "PIL"}
    assert slow & set(done.stdout.split()) == set()


def test_every_argument_and_option_is_explained_in_sentences():
    options = [each for _, command, _ in COMMANDS for each in command.params if each.name != "help"]
    assert len(options) > 200
    assert [each.name for each in options if not (each.help or "").endswith(".")] == []


def test_every_command_has_an_example_that_it_parses():
    """The last line of its docstring, `Example: sfumato COMMAND ...`; parsed as the program does, not run."""
    for path, command, parent in COMMANDS:
        if hasattr(command, "commands"):
            continue
        last = (command.help or "").rstrip().rpartition("\n\n")[2]
        assert last.startswith(f"Example: {path}"), f"{path}: its docstring ends with `Example: {path} ...`"
        assert "\n" not in last
        command.make_context(path, shlex.split(last)[1 + len(path.split()) :], parent=parent)


def test_the_installed_script_prints_the_version():
    done = subprocess.run([SCRIPT, "--version"], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{sfumato.__version__}\n", "")


def test_a_call_that_is_not_complete_or_does_not_parse_is_answered_with_usage(command: Command):
    for words in (
        "",
        "study",
        "data",
        "train",
        "stduy",
        "study rnu",
        "study run",
        "study run a.yaml --ouT b",
    ):
        said = command(*words.split())
        assert "Usage: sfumato" in said.out + said.err
        assert said.code == 2
        assert "Traceback" not in said.err


@pytest.mark.parametrize("row", LEFT)
def test_what_left_names_what_it_is_today(command: Command, row: str):
    """Each command and option in backticks exists, and typing what left is answered with them."""
    for typed in re.findall("`(?:sfumato )?([^`]+)`", LEFT[row]):
        inner, words = typer.main.get_command(app), typed.split()
        if words[0].startswith("-"):
            words = row.partition(" -")[0].split() + words
        while words and (found := getattr(inner, "commands", {}).get(words[0])):
            inner, words = found, words[1:]
        options = {name for each in inner.params for name in each.opts}
        assert not hasattr(inner, "commands")
        assert {word for word in words if word.startswith("-")} <= options
    said = command(*row.split())
    assert said.code == 2
    assert said.err.endswith(f"\nsfumato: `{row}` is {LEFT[row]} now\n")


# What commands print


def test_data_is_counted_written_and_drawn(command: Command, tmp_path: Path):
    photos(tmp_path / "photos", classes=7, each=2)
    said = command("data", "info", "folder:photos")
    assert said.code == 0
    assert said.out.splitlines() == [
        "folder:photos: 14 images, all grey, read as 3 x 84 x 84",
        "label class: 7 values",
        "splits: none are named, so each training and study makes those that its task asks for",
    ]
    assert command("data", "write", "folder:photos", "copy", "--size", "8").out == "table: copy/table.csv\n"
    assert command("data", "info", "table:copy/table.csv").out.splitlines()[1:] == said.out.splitlines()[1:]
    assert "split" not in (tmp_path / "copy" / "table.csv").read_text().splitlines()[0]  # nobody named any
    names = sorted(path.relative_to(tmp_path) for path in (tmp_path / "photos").rglob("*.png"))
    rows = [f"{name},here,{'test' if row > 9 else 'train'}" for row, name in enumerate(names)]
    (tmp_path / "own.csv").write_text("\n".join(["file,place,split", *rows]))
    said = command("data", "info", "table:own.csv")
    assert said.out.splitlines()[-2:] == ["split train: 10 images", "split test: 4 images"]
    drawn = command(
        "data", "sheet", "folder:photos", "sheet.png", "--size", "8", "--rows", "3", "--columns", "4"
    )
    assert (drawn.code, drawn.out) == (0, "sheet: sheet.png\n")
    assert images.read(tmp_path / "sheet.png").shape == (3, 3 * 8, 4 * 8)


# Mistakes

GLYPHS = """
data: {source: glyphs, classes: 30, drawers: 4, size: 16}
task: {way: 2, shot: 1, queries: 1, episodes: 10}
protections: []
learners: [clean]
training: {way: 2, shot: 1, queries: 1, epochs: 1, episodes_per_epoch: 1,
           validation_way: 2, validation_shot: 1, validation_queries: 1, validation_episodes: 2}
"""

SMALL = "train few-shot --data folder:photos --size 16 --out m --way 2 --shot 1 --queries 1"
for _part in ("", "validation_"):
    SMALL += f" --set={_part}way=2 --set={_part}shot=1 --set={_part}queries=1"


@pytest.mark.parametrize(
    ("words", "message"),  # the files are made by `scene`
    [
        ("data info folder:gone", "gone: no such folder"),
        ("data sheet folder:photos sheet.png --label clas", "no label 'clas': did you mean 'class'"),
        ("demo --data folder:empty", "empty: no images"),
        ("demo --data folder:single", "0 classes have 10 images (shot 5 + queries 5) and the way is 2"),
        ("demo --data folder:lonely", "label 'class' has 1 class in 2 training images"),
        ("study run broken.yaml", "broken.yaml: not YAML"),
        ("study run empty", "empty: cannot be read (Is a directory)"),
        ("study run glyphs.yaml --set task.sensitive=drawer", "split the data by that label"),
        ("study report gone", "gone"),
        (f"{SMALL} --with pixelize:cell=96", "cell=96 is larger than the 16x16 images: choose a cell"),
        ("train meta --data glyphs --out m --with blur:radius=1,2", "names 2 protections: give one value"),
        ("train meta --data glyphs --out m --set=private.clipping=fixed", "private.epsilon is missing"),
        ("train meta --data glyphs --out m --set ways=3", "no key 'ways': did you mean 'way'"),
        ("audit folder photos --protection blur:radius=1", "and nothing else is looked at: give --known"),
    ],
)
def test_a_mistake_is_answered_in_one_line(command, tmp_path, monkeypatch, words: str, message: str):
    scene(tmp_path)
    monkeypatch.setitem(data.glyphs.__kwdefaults__, "classes", 150)  # drawn before the mistake
    check_mistake(command(*words.split()), message)
    assert not list(tmp_path.glob("m*"))  # neither a model nor a checkpoint


# Ctrl-C

# Two protections with a classifier each: seconds of work after the first records.
LONG = """
data: {source: glyphs, classes: 30, drawers: 6, size: 16}
task: {way: 2, shot: 1, queries: 2, episodes: 20}
protections: ["blur:radius=1", "pixelize:cell=4"]
learners: [clean, protected]
training: {way: 2, shot: 1, queries: 1, epochs: 6, patience: 6, episodes_per_epoch: 8,
           validation_way: 2, validation_shot: 1, validation_queries: 1, validation_episodes: 10}
pictures: 1
"""
# Accuracy of the clear image and of 2 x 2; similarity, pictures, proved, tells of these three.
CELLS = 1 + 2 * 2 + 3 * 4


def test_ctrl_c_stops_with_one_line_and_the_same_command_goes_on(command: Command, tmp_path: Path):
    (tmp_path / "long.yaml").write_text(LONG)
    arguments = ["study", "run", "long.yaml", "--out", "run"]
    with subprocess.Popen(
        [SCRIPT, *arguments],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # A process that starts in the background ignores Ctrl-C, and so do its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as running:
        # After the third, so that the interruption finds work and not an import.
        while len(records(tmp_path / "run")) < 3 and running.poll() is None:
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=SECONDS)
    assert running.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    assert [line for line in err.splitlines() if line.startswith("sfumato:")] == [
        "sfumato: stopped. Finished work is kept. Run the same command again to resume"
    ]
    finished = records(tmp_path / "run")
    assert 3 <= len(finished) < CELLS
    assert not (tmp_path / "run" / "report.html").exists()

    said = command(*arguments)
    assert said.code == 0
    assert "report: run/report.html\n" in said.out
    whole = records(tmp_path / "run")
    assert len(whole) == CELLS
    assert {path: whole[path] for path in finished} == finished


@pytest.mark.parametrize(
    ("keeps", "words"),
    [
        (show.keeping_work, "Finished work is kept. Run the same command again to resume"),
        (contextlib.nullcontext, "The same command begins anew"),
    ],
)
def test_ctrl_c_says_whether_work_is_kept(monkeypatch, capsys, keeps, words: str):
    def stopped(prog_name: str) -> None:
        with show.keeping_work():
            pass  # an earlier part, which is over
        with contextlib.suppress(KeyboardInterrupt), keeps():
            raise KeyboardInterrupt
        raise SystemExit(130)

    monkeypatch.setattr(show, "VOLUME", show.Volume())
    monkeypatch.setattr("sfumato.cli.app.app", stopped)
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err == f"\nsfumato: stopped. {words}\n"


# A stranger's own photographs


TINY = ["--set=epochs=1", "--set=episodes_per_epoch=1", "--set=validation_episodes=2", "--episodes", "2"]


def test_a_training_fits_its_episodes_and_leaves_out_what_cannot_be_read(command: Command, tmp_path: Path):
    photos(tmp_path / "photos", classes=7, each=3)
    (tmp_path / "photos" / "class-3" / "blurred.png").write_text("no image")
    model = ["--data", "folder:photos", "--size", "16", "--out", "m.safetensors", "--with", "none"]
    said = command("train", "few-shot", *model, *TINY, "--set=denoiser_depth=null")
    assert said.code == 0, said.err
    assert "left out: 1 of 22 files, which cannot be read: photos/class-3/blurred.png: " in said.err
    assert "training episodes: 3-way 2-shot with 1 query, the largest that the classes allow" in said.err
    assert "test episodes: 2-way 2-shot with 1 query" in said.err
    assert "2-way 2-shot" in said.out


def test_a_study_of_a_folder_fits_its_episodes_and_records_what_it_left_out(command: Command, tmp_path: Path):
    photos(tmp_path / "photos", classes=9, each=4)
    (tmp_path / "photos" / "class-3" / "blurred.png").write_text("no image")
    example = Path(__file__).parents[2] / "studies" / "example.yaml"
    fast = [
        "data.source=folder:photos",
        "task={target: class, sensitive: class, way: 5, shot: 5, queries: 5, episodes: 2}",
        "protections=['pixelize:cell=8']",
        "learners=[clean]",
        "attacks=[]",
        "pictures=0",
    ]
    fast += ["data.size=16", "tells=false", "measures=[ssim]", "training.epochs=1"]
    fast += ["training.episodes_per_epoch=1", "training.validation_episodes=2"]
    settings = [word for each in fast for word in ("--set", each)]
    said = command("study", "run", example, *settings)
    assert said.code == 0, said.err
    assert "left out: 1 of 37 files, which cannot be read: photos/class-3/blurred.png: " in said.err
    assert "test episodes: 2-way 3-shot with 1 query, the largest that the classes allow" in said.err
    assert (
        "Left out of the data: 1 of 37 files, which cannot be read."
        in (tmp_path / "runs" / "example" / "report.html").read_text()
    )
    strict = command("study", "run", example, "--strict", *settings)
    assert strict.code == 1
    assert "blurred.png: not an image" in strict.err


# What is said, and how


def test_quiet_says_results_and_errors_alone_and_verbose_where_an_error_comes_from(
    command: Command, tmp_path: Path
):
    photos(tmp_path / "photos", classes=2, each=3)
    assert "pairs" in command("assess", "images", "photos/class-0", "photos/class-1").err  # of the progress
    said = command("-q", "assess", "images", "photos/class-0", "photos/class-1")
    assert (said.code, said.err) == (0, "")
    assert "3 pairs of photos/class-0 and photos/class-1" in said.out
    (tmp_path / "photos" / "class-1" / "blurred.png").write_text("no image")
    assert command("-q", "data", "info", "folder:photos").err == ""
    assert "gone: no such folder" in command("-q", "data", "info", "folder:gone").err
    assert "left out: 1 of 7" in command("data", "info", "folder:photos").err  # -q was of one command
    assert "Traceback" in command("-v", "data", "info", "folder:gone").err
    assert "Traceback" not in command("data", "info", "folder:gone").err


def test_the_keys_of_set_are_listed_with_their_defaults(command: Command):
    for words, line in (("train code", "bits=null"), ("study run", "training.denoiser_depth=8")):
        said = command(*words.split(), "--settings")
        assert said.code == 0
        assert f"{line}  (int | null)" in said.out.splitlines()


def test_the_settings_that_would_be_used_are_printed_and_can_be_read_again(command: Command, tmp_path: Path):
    scene(tmp_path)
    said = command("study", "run", "glyphs.yaml", "--set", "task.shot=2", "--print-config")
    assert said.code == 0
    (tmp_path / "again.yaml").write_text(said.out)
    assert grid.load("again.yaml") == grid.load("glyphs.yaml", ["task.shot=2"])
    model = ["train", "few-shot", "--data", "gone", "--out", "m", "--with", "none", "--set", "way=3"]
    assert "way: 3\n" in command(*model, "--print-config").out
    assert not (tmp_path / "m").exists()


def test_without_pytorch_a_command_that_needs_it_names_the_extra(monkeypatch, capsys):
    def needs_it(**_: object) -> None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr("sfumato.cli.app.app", needs_it)
    with pytest.raises(SystemExit):
        main()
    cure = "in the clone of sfumato, run pip install -c constraints.txt -e '.[study]'\n"
    assert capsys.readouterr().err == f"sfumato: this command needs PyTorch: {cure}"


# Helpers


def photos(root: Path, *, classes: int, each: int) -> None:
    for name in range(classes):
        (root / f"class-{name}").mkdir(parents=True)
        for i in range(each):
            pixels = torch.full((3, 16, 16), 20 * name + i, dtype=torch.uint8)
            images.write(root / f"class-{name}" / f"{i}.png", pixels)


def scene(root: Path) -> None:
    """The files that the mistakes name."""
    (root / "empty").mkdir()
    photos(root / "photos", classes=7, each=2)
    (root / "photos" / "class-0" / "blurred.png").write_text("no image")
    photos(root / "single", classes=7, each=1)
    photos(root / "lonely", classes=1, each=4)
    (root / "glyphs.yaml").write_text(GLYPHS)
    (root / "broken.yaml").write_text("data: [glyphs\n")


def records(run: Path) -> dict[str, tuple[bytes, int]]:
    """The finished records of a run, with their content and when they were written."""
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in (run / "records").glob("*.json")
        if not path.name.startswith(".")
    }
