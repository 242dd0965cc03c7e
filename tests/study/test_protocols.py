"""Study files of data that nobody may hand on: the papers' protocol, and that they run where files are."""

from collections.abc import Callable
from pathlib import Path

import pytest
from layouts import photograph

from sfumato.learn import few_shot
from sfumato.study import grid, report, run

STUDIES = Path(__file__).parents[2] / "studies"
PROTOCOLS = {"celeba": few_shot.FS_PIC_CELEBA, "miniimagenet": few_shot.FS_PIC_MINIIMAGENET}
HAIR = [f"{colour}_Hair" for colour in ("Black", "Blond", "Brown", "Gray")]
# What makes a study of one cell of training of what the files name.
TINY = [
    *("data.size=16", "protections=['dp-pix:cell=4,epsilon=3']", "learners=[protected]", "attacks=[]"),
    *("seeds=[0]", "pictures=0", "tells=false", "measures=[ssim]", "task.episodes=3", "training.epochs=1"),
    *(f"task.{key}=2" for key in ("way", "shot", "queries")),
    *(f"training.{key}=2" for key in ("way", "shot", "queries", "episodes_per_epoch", "validation_episodes")),
    *(f"training.validation_{key}=2" for key in ("way", "shot", "queries")),
]


def celeba_files(root: Path) -> None:
    """Twelve people of five photographs, in the official layout."""
    files = [f"{number:06d}.jpg" for number in range(60)]
    for number, file in enumerate(files):
        photograph(root / "img_align_celeba" / file, 4 * number, size=(178, 218))
    rows = [f"{file} -1 1 -1 -1\n" for file in files]
    (root / "list_attr_celeba.txt").write_text(f"60\n{' '.join(HAIR)}\n" + "".join(rows))
    lines = [f"{file} {number // 5}\n" for number, file in enumerate(files)]
    (root / "identity_CelebA.txt").write_text("".join(lines))


def miniimagenet_files(root: Path) -> None:
    """Three classes of five images in each split, as folders."""
    for start, part in enumerate(("train", "val", "test")):
        for own in range(3):
            wordnet = f"n{start}{own}"
            for number in range(5):
                photograph(root / part / wordnet / f"{wordnet}_{number}.jpg", 40 * own + number)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_study_file_has_the_settings_of_table_2_and_all_parameters_of_all_four_obfuscations(name: str):
    study, paper = grid.load(STUDIES / f"{name}.yaml"), PROTOCOLS[name]
    same = "way shot queries epochs episodes_per_epoch patience learning_rate halve_every"
    for key in same.split():
        assert getattr(study.training, key) == getattr(paper, key), key
    assert (study.training.denoiser_depth, study.training.denoiser_width) == (8, 64)
    assert (study.training.start, study.training.cell, study.training.encoder) == ("random", 1, "conv4")
    assert (study.task.way, study.task.shot, study.task.episodes) == (5, 5, 600)
    assert study.specs == [
        "none",
        *(f"blur:radius={r}" for r in range(1, 6)),
        *(f"pixelize:cell={b}" for b in range(2, 11, 2)),
        *(f"gaussian:sigma={sigma}" for sigma in range(40, 201, 40)),
        *(f"dp-pix:cell={b},epsilon=3" for b in range(2, 11, 2)),
    ]
    assert study.learners == ["clean", "protected", "denoised"]
    assert study.seeds == [0, 1, 2]
    people = {"size": 84, "crop": 176, "split": "identities", "least_images": 30}
    assert name != "celeba" or study.data.items() >= people.items()


@pytest.mark.parametrize(("name", "files"), [("celeba", celeba_files), ("miniimagenet", miniimagenet_files)])
def test_a_study_file_runs_where_the_files_are(name: str, files: Callable[[Path], None], tmp_path: Path):
    files(tmp_path / "data")
    less = ["data.least_images=5"] if name == "celeba" else []
    study = grid.load(STUDIES / f"{name}.yaml", [f"data.root={tmp_path / 'data'}", *TINY, *less])
    run.run(study, tmp_path / "run")
    accuracies = report.load(tmp_path / "run").group("accuracy")
    (accuracy,) = [made for (spec, _), (made,) in accuracies.items() if spec != "none"]
    assert 0 <= accuracy.accuracy <= 1
    assert "accuracy_1_shot" in accuracy.model_extra
