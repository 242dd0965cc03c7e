"""What splits share: the same pictures, the same people, and one picture under two values of a label."""

from dataclasses import replace

import pytest
import torch

from sfumato.data.copies import find_shared, originals
from sfumato.data.labelled import LabelledImages, label_of

SPLITS = ("train", "validation", "test", "distractors")


def people(split_of: list[str], who: list[str], same: dict[int, int]) -> LabelledImages:
    """Pictures of noise, some of which are equal to others."""
    images = torch.randint(0, 256, (len(who), 3, 8, 8), generator=torch.Generator().manual_seed(0)).byte()
    for row, other in same.items():
        images[row] = images[other]
    labels = {"person": label_of(who), "hat": label_of(["cap", "hut"] * (len(who) // 2))}
    splits = {name: torch.tensor([r for r, s in enumerate(split_of) if s == name]) for name in SPLITS}
    splits = {name: rows for name, rows in splits.items() if len(rows)}
    files = tuple(f"{row}.png" for row in range(len(who)))
    return LabelledImages("table:t.csv", images, labels, splits, files=files)


APART = people(["train"] * 4 + ["test"] * 4, list("aabbccdd"), {})


def test_of_splits_without_a_common_picture_or_person_nothing_is_said():
    assert find_shared(APART, target="hat", secret="person") == []
    near = people(["train"] * 4 + ["test"] * 4, list("aabbccdd"), {4: 0})
    near.images[4, 0, 0, 0] ^= 1
    assert find_shared(APART) == find_shared(near) == []
    one_row = replace(APART, splits={"train": torch.arange(5), "test": torch.arange(4, 8)})
    (found,) = find_shared(one_row)
    assert found.finding == "1 of 4 images of test are the same pictures as in train"


@pytest.mark.parametrize("later", SPLITS[1:])
def test_pictures_of_one_split_in_another_are_counted_and_named(later: str):
    data = people(["train"] * 4 + [later] * 4, list("aabbccdd"), {4: 0, 6: 2, 7: 2})
    (found,) = find_shared(data, target="hat", secret="hat")[:1]
    assert found.finding == f"3 of 4 images of {later} are the same pictures as in train"
    assert found.example == "4.png and 0.png"
    assert "png" not in found.words


def test_people_in_two_splits_are_said_only_if_they_are_the_secret_and_not_the_task():
    data = people(["train", "test"] * 4, list("aabbccdd"), {})
    data = replace(data, labels={**data.labels, "who": label_of(list("ssttuuvv"))})
    (found,) = find_shared(data, target="hat", secret="person")
    assert found.finding == "4 of 4 people ('person') are in more than one split"
    assert "'a'" in str(found)
    assert "'a'" not in found.words
    assert (data.are_one("person", "who"), data.are_one("person", "hat")) == (True, False)
    for target, secret in (("person", "person"), ("who", "person"), ("hat", None), ("person", None)):
        assert find_shared(data, target=target, secret=secret) == []


def test_one_picture_under_two_people_is_said_also_without_splits():
    data = replace(people(["train"] * 8, list("aabbccdd"), {2: 0, 3: 1}), splits={})
    (found,) = find_shared(data, secret="person")
    assert str(found).startswith("2 pictures occur under two values of 'person' (such as 2.png ('b') and")
    assert find_shared(data, target="hat") == []


def test_images_have_one_original_if_pixels_or_the_label_of_copies_say_so():
    """0 and 4 are equal, 4 and 5 are copies by their label, and 5 and 6 are equal: all are one picture."""
    data = people(["train"] * 8, list("aabbccdd"), {4: 0, 6: 5})
    labels = {**data.labels, "original": label_of(list("abcdeefg"))}
    codes = originals(replace(data, labels=labels)).codes
    assert codes[[0, 4, 5, 6]].tolist() == [0] * 4
    assert len(codes.unique()) == 5
    assert len(originals(data).codes.unique()) == 6
