"""FER2013 and FER+: faces in a CSV, votes beside it, and what a majority of ten is."""

from pathlib import Path

import numpy as np
import pytest
import torch
from layouts import values

from sfumato.data import fer, load
from sfumato.data.readers.fer import EMOTIONS, majority
from sfumato.errors import DataError, SfumatoError

SIDE = 48

# Usage, FER's emotion, and the ten votes of FER+ in its order.
ROWS = [
    ("Training", 3, [0, 10, 0, 0, 0, 0, 0, 0, 0, 0]),
    ("Training", 0, [6, 0, 0, 0, 4, 0, 0, 0, 0, 0]),
    ("Training", 6, [5, 5, 0, 0, 0, 0, 0, 0, 0, 0]),  # no single majority
    ("PublicTest", 5, [0, 0, 7, 0, 0, 0, 3, 0, 0, 0]),
    ("PublicTest", 2, [1, 0, 0, 0, 0, 0, 0, 0, 9, 0]),  # unknown
    ("PrivateTest", 4, [0, 0, 0, 8, 0, 0, 0, 0, 0, 2]),
    ("PrivateTest", 1, [0, 0, 0, 0, 0, 0, 0, 0, 0, 10]),  # not a face
]
HEADER = "Usage,Image name,neutral,happiness,surprise,sadness,anger,disgust,fear,contempt,unknown,NF"


def faces() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (len(ROWS), SIDE, SIDE), np.uint8)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """fer2013.csv as the challenge gives it."""
    lines = ["emotion,pixels,Usage"]
    for (usage, emotion, _), face in zip(ROWS, faces(), strict=True):
        lines.append(f"{emotion},{' '.join(map(str, face.flatten()))},{usage}")
    (tmp_path / "fer2013.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.fixture
def plus(root: Path) -> Path:
    """fer2013new.csv beside it; FER+ gives no name where it found no face."""
    lines = [HEADER]
    for i, (usage, _, votes) in enumerate(ROWS):
        name = "" if votes[-1] == 10 else f"fer{i:07d}.png"
        lines.append(f"{usage},{name},{','.join(map(str, votes))}")
    (root / "fer2013new.csv").write_text("\n".join(lines) + "\n")
    return root


def test_faces_are_48_pixels_wide_and_grey_with_their_emotion_and_usage(root: Path):
    data = load(f"fer:{root}")
    assert torch.equal(data.images, torch.from_numpy(faces())[:, None])
    assert values(data, "emotion") == [EMOTIONS[emotion] for _, emotion, _ in ROWS]
    assert [rows.tolist() for rows in data.splits.values()] == [[0, 1, 2], [3, 4], [5, 6]]
    assert set(data.labels) == {"emotion"}  # without votes there is no second one
    assert values(fer(root, emotions=["sad", "happy"]), "emotion") == ["happy", "sad"]


def test_with_votes_faces_without_a_majority_are_left_out_and_some_emotions_can_be_kept(plus: Path):
    data = fer(plus)
    assert values(data, "emotion_plus") == ["happiness", "neutral", "surprise", "sadness"]
    assert values(data, "emotion") == ["happy", "angry", "surprise", "sad"]
    assert torch.equal(data.images, torch.from_numpy(faces())[[0, 1, 3, 5], None])
    splits = {name: rows.tolist() for name, rows in data.splits.items()}
    assert splits == {"train": [0, 1], "validation": [2], "test": [3]}
    kept = load(f"fer:{plus}", emotions=["happiness", "surprise"])
    assert values(kept, "emotion_plus") == ["happiness", "surprise"]


# The majority


@pytest.mark.parametrize(
    ("votes", "emotion"),
    [
        ([6, 4, 0, 0, 0, 0, 0, 0, 0, 0], "neutral"),
        ([5, 4, 1, 0, 0, 0, 0, 0, 0, 0], ""),  # the most votes, but not more than half
        ([5, 5, 0, 0, 0, 0, 0, 0, 0, 0], ""),
        ([0, 0, 0, 0, 0, 0, 0, 6, 4, 0], "contempt"),
        ([0, 0, 0, 0, 0, 0, 0, 0, 6, 4], ""),
        ([0, 0, 0, 0, 0, 0, 0, 0, 0, 10], ""),
        ([5, 0, 4, 0, 0, 0, 0, 0, 0, 0], "neutral"),  # one row of FER+ has nine votes
        ([0] * 10, ""),
    ],
)
def test_a_majority_is_more_than_half_of_the_votes(votes: list[int], emotion: str):
    assert majority(votes) == emotion


def test_the_published_votes_have_as_many_majorities_as_we_say(shared_data: Path):
    """The paper of the learned masks counts 15,616, 1,943 and 1,930 by a rule that it does not give."""
    table = dict(np.load(shared_data / "ferplus_votes.npz"))
    named = np.array([majority(votes) for votes in table["votes"].tolist()])
    wanted = np.isin(named, ["neutral", "happiness", "surprise"])
    assert [int((wanted & (table["usage"] == usage)).sum()) for usage in range(3)] == [17_320, 2_288, 2_149]


# What is refused


def test_a_missing_file_is_answered_with_where_it_is_had(tmp_path: Path):
    with pytest.raises(DataError, match=r"no fer2013\.csv .*fer2013\.tar\.gz there, from"):
        fer(tmp_path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("7,0 0,Training", r"fer2013\.csv, line 9: emotion '7' instead of 0 to 6"),
        ("happy,0 0,Training", r"line 9: emotion 'happy'"),
        ("3,0 0,Test", r"line 9: Usage 'Test' instead of Training or PublicTest or PrivateTest"),
        ("3,1 2 3,Training", r"line 9: 3 pixels instead of 2304"),
        ("3,1 256,Training", r"line 9: a pixel '256' instead of a whole number of 0 to 255"),
        ("3,1 x,Training", r"line 9: a pixel 'x'"),
        ("3,Training", r"line 9: 2 values instead of 3, as in the header"),
    ],
)
def test_a_malformed_row_is_named_with_its_line(root: Path, row: str, message: str):
    with (root / "fer2013.csv").open("a") as opened:
        opened.write(row + "\n")
    with pytest.raises(DataError, match=message):
        fer(root)


OTHERS = r"fer2013new\.csv: its rows are not those of fer2013\.csv"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[:-1], OTHERS),
        (lambda lines: [*lines, lines[-1]], OTHERS),
        (lambda lines: [lines[0], *reversed(lines[1:])], OTHERS),
        (
            lambda lines: [line.replace("6,0,0,0,4", "6,0,0,0,four") for line in lines],
            r"fer2013new\.csv, line 3: votes .* instead of ten counts",
        ),
        (lambda lines: [lines[0].replace("contempt", "scorn"), *lines[1:]], r"csv: no column 'contempt'"),
    ],
    ids=["fewer rows", "more rows", "another order", "no count", "no column"],
)
def test_votes_that_are_no_counts_or_of_other_rows_are_refused(plus: Path, change, message: str):
    path = plus / "fer2013new.csv"
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")
    with pytest.raises(DataError, match=message):
        fer(plus)


@pytest.mark.parametrize(
    ("emotions", "message"),
    [
        (["happy"], "no emotion 'happy': did you mean 'happiness'"),
        ("sad", "emotions"),
        (["contempt"], "no face has one of the wanted emotions"),
    ],
)
def test_emotions_that_cannot_be_kept_are_refused(plus: Path, emotions: object, message: str):
    with pytest.raises(SfumatoError, match=message):
        load(f"fer:{plus}", emotions=emotions)
