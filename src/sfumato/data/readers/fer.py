"""FER2013 as its CSV, with the votes of FER+ if they are in the same folder."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from sfumato.data.labelled import LabelledImages, label_of, rows_by_split
from sfumato.data.readers.folder import Root
from sfumato.data.readers.official import bad_line, columns, optional, part
from sfumato.errors import ConfigError, DataError, did_you_mean

EMOTIONS = ("angry", "disgust", "fear", "happy", "sad", "surprise", "neutral")  # by their number in FER2013
EMOTIONS_PLUS = ("neutral", "happiness", "surprise", "sadness", "anger", "disgust", "fear", "contempt")

_VOTES = (*EMOTIONS_PLUS, "unknown", "NF")  # NF: not a face
_USAGE = {"Training": "train", "PublicTest": "validation", "PrivateTest": "test"}
_SIDE = 48
_LEVELS = {str(level): level for level in range(256)}  # quicker than int, on 83 million of them


def fer(root: Root, *, emotions: Sequence[str] | None = None) -> LabelledImages:
    """Reads FER2013 (Goodfellow et al. 2013), and FER+ (Barsoum et al. 2016) if fer2013new.csv exists.

    The people are unknown: one person may be in two splits.

    With FER+, a face has an emotion if it got more than half of the face's ten votes. Faces without one, and
    those whose majority is "unknown" or "not a face", are left out. On the published votes, neutral,
    happiness and surprise then have 17,320, 2,288 and 2,149 faces. The paper of the learned masks (Sec. IV-A)
    has 15,616, 1,943 and 1,930 by "the majority vote", which no rule that we tried gives.

    Args:
        root: the folder with fer2013.csv, and fer2013new.csv if FER+ is wanted.
        emotions: keep only faces with these: values of `emotion_plus` with FER+, else of `emotion`.

    Returns:
        48 x 48 grey faces with label `emotion`, and `emotion_plus` with FER+. Training, PublicTest and
        PrivateTest are train, validation and test.
    """
    path = part("fer", root, "fer2013.csv")
    votes_path = optional(root, "fer2013new.csv")
    known = EMOTIONS if votes_path is None else EMOTIONS_PLUS
    for name in emotions or ():
        if name not in known:
            raise ConfigError(f"fer: no emotion {name!r}: {did_you_mean(name, known)}")
    votes = None if votes_path is None else _votes(votes_path)
    faces, first, plus, splits = [], [], [], []
    row = -1
    for row, (number, (emotion, pixels, usage)) in enumerate(columns(path, "emotion", "pixels", "Usage")):
        if emotion not in map(str, range(len(EMOTIONS))):
            raise bad_line(path, number, f"emotion {emotion!r}", f"0 to {len(EMOTIONS) - 1}")
        if usage not in _USAGE:
            raise bad_line(path, number, f"Usage {usage!r}", " or ".join(_USAGE))
        value = named = EMOTIONS[int(emotion)]
        if votes is not None:
            if row >= len(votes) or votes[row][0] != usage:
                raise _strangers(votes_path)
            named = votes[row][1]
        if not named or (emotions is not None and named not in emotions):
            continue
        faces.append(_face(path, number, pixels))
        first.append(value)
        plus.append(named)
        splits.append(_USAGE[usage])
    if votes is not None and len(votes) != row + 1:
        raise _strangers(votes_path)
    if not faces:
        raise DataError(f"{path}: no face has one of the wanted emotions")
    labels = {"emotion": label_of(first)} | ({} if votes is None else {"emotion_plus": label_of(plus)})
    images = np.frombuffer(bytearray().join(faces), np.uint8).reshape(-1, 1, _SIDE, _SIDE)
    return LabelledImages("fer", torch.from_numpy(images), labels, rows_by_split(splits))


def majority(votes: Sequence[int]) -> str:
    """The emotion with more than half of a face's ten votes, or ""."""
    most = max(votes)
    place = votes.index(most)
    return _VOTES[place] if 2 * most > sum(votes) and place < len(EMOTIONS_PLUS) else ""


def _votes(path: Path) -> list[tuple[str, str]]:
    """Usage and majority of each row of FER+."""
    rows = []
    for number, (usage, *votes) in columns(path, "Usage", *_VOTES):
        if not all(vote.isdecimal() for vote in votes):
            raise bad_line(path, number, f"votes {' '.join(votes)!r}", "ten counts")
        rows.append((usage, majority([int(vote) for vote in votes])))
    return rows


def _face(path: Path, number: int, text: str) -> bytes:
    try:
        pixels = bytes(map(_LEVELS.__getitem__, text.split()))
    except KeyError as error:
        raise bad_line(path, number, f"a pixel {error}", "a whole number of 0 to 255") from error
    if len(pixels) != _SIDE**2:
        raise bad_line(path, number, f"{len(pixels)} pixels", f"{_SIDE**2}")
    return pixels


def _strangers(path: Path | None) -> DataError:
    return DataError(
        f"{path}: its rows are not those of fer2013.csv, which it follows line by line: "
        "take both files as they were published"
    )
