"""studies/hair.py: whether it is dark above the forehead, and how often that looks right to the eye."""

from pathlib import Path

import hair
import numpy as np
import pytest

from sfumato.study.records import read_rows

LANDMARKS = np.array([[30.0, 38.0], [52.0, 38.0], [41.0, 50.0], [32.0, 60.0], [50.0, 60.0]])
PACKED = Path("../shared/data/lfw_faces_84.npz")
CHECKED = Path("studies/results/hair.jsonl")


def face(above: int, *, skin: int = 180) -> np.ndarray:
    """Skin, and hair from the 14th row up, in grey levels."""
    drawn = np.full((84, 84, 3), skin, np.uint8)
    drawn[:14] = above
    return drawn


@pytest.mark.parametrize(
    ("above", "skin", "expected"),
    [
        *((20, 180, hair.DARK), (70, 180, hair.DARK), (160, 180, hair.OTHER), (230, 180, hair.OTHER)),
        *((90, 180, hair.UNKNOWN), (100, 180, hair.UNKNOWN), (180, 180, hair.OTHER)),  # bald at the last
        *((60, 200, hair.DARK), (90, 100, hair.OTHER)),  # by the skin, and not by the light
    ],
)
def test_hair_is_dark_beside_the_skin_or_not_or_neither(above: int, skin: int, expected: str):
    assert hair.verdict(face(above, skin=skin), LANDMARKS) == expected


def test_half_dark_is_not_named():
    drawn = face(20)
    drawn[:14, 42:] = 200
    assert hair.verdict(drawn, LANDMARKS) == hair.UNKNOWN


@pytest.mark.parametrize(
    "landmarks",
    [
        LANDMARKS - [0, 25],  # the hair is above the picture
        LANDMARKS * [0.4, 1] + [25, 0],  # turned away
    ],
    ids=["outside", "turned"],
)
def test_a_face_that_does_not_show_its_hair_is_not_named(landmarks: np.ndarray):
    assert hair.verdict(face(20), landmarks) == hair.UNKNOWN


def test_a_face_in_the_dark_is_not_named():
    assert hair.verdict(face(10, skin=80), LANDMARKS) == hair.UNKNOWN


def test_the_hair_of_a_tilted_head_is_found():
    turned = np.rot90(face(20)).copy()  # by a quarter turn
    x, y = LANDMARKS.T
    assert hair.verdict(turned, np.stack([y, 83 - x], 1)) == hair.DARK


@pytest.mark.skipif(not PACKED.exists(), reason="the packed photographs of LFW are not here")
def test_those_that_look_wrong_to_the_eye_are_of_the_verdict_that_they_are_listed_under():
    table, ((_, checked),) = dict(np.load(PACKED)), read_rows(CHECKED, "")
    for which in (hair.DARK, hair.OTHER):
        rows = checked["wrong"][which] + checked["unclear"][which]
        assert len(set(rows)) == len(rows) < hair.CHECKED
        for row in rows:
            assert hair.verdict(np.array(hair.picture(table, row)), table["landmarks"][row]) == which
