"""studies/lake.py: tasks by the rule of Lake et al. 2015, and images that move."""

import lake
import pytest
import torch

from sfumato.data.labelled import LabelledImages, label_of

DRAWERS = 5
CHARACTERS = {"Greek": 8, "Futurama": 12, "Ge_ez": 4}


@pytest.fixture(scope="module")
def drawings() -> LabelledImages:
    """Every character once by each of five people of its alphabet."""
    rows = [
        (alphabet, character, person)
        for alphabet, count in CHARACTERS.items()
        for character in range(count)
        for person in range(DRAWERS)
    ]
    return LabelledImages(
        "omniglot",
        torch.zeros(len(rows), 1, 4, 4, dtype=torch.uint8),
        {
            "class": label_of([f"{alphabet}/{character}" for alphabet, character, _ in rows]),
            "alphabet": label_of([alphabet for alphabet, _, _ in rows]),
            "drawer": label_of([f"{alphabet}/{person}" for alphabet, _, person in rows]),
        },
        {},
    )


def test_a_task_is_of_one_alphabet_and_of_two_people_who_drew_each_of_its_characters(drawings):
    drawn = lake.tasks(drawings, way=6, count=40, generator=torch.Generator().manual_seed(0))
    assert drawn.shape == (40, 6, 2)
    codes = {name: drawings.label(name).codes[drawn] for name in ("class", "alphabet", "drawer")}
    for task in range(40):
        assert len(codes["alphabet"][task].unique()) == 1
        assert len(codes["class"][task, :, 0].unique()) == 6
        assert torch.equal(codes["class"][task, :, 0], codes["class"][task, :, 1])
        known, asked = codes["drawer"][task].T
        assert len(known.unique()) == len(asked.unique()) == 1
        assert known[0] != asked[0]


def test_alphabets_with_too_few_characters_have_no_tasks(drawings):
    drawn = lake.tasks(drawings, way=8, count=60, generator=torch.Generator().manual_seed(0))
    label = drawings.label("alphabet")
    assert {label.names[code] for code in label.codes[drawn].unique()} == {"Greek", "Futurama"}


def test_who_sees_which_character_it_is_errs_never_and_who_sees_nothing_in_all_but_one_of_n(drawings):
    drawn = lake.tasks(drawings, way=6, count=40, generator=torch.Generator().manual_seed(0))
    codes = drawings.label("class").codes
    telling = torch.nn.functional.one_hot(codes).float()
    assert lake.errors(telling, drawn) == {"error": 0.0, "half_width": 0.0}
    blind = torch.randn(len(codes), 30, generator=torch.Generator().manual_seed(1))
    found = lake.errors(blind, drawn)
    assert found["error"] == pytest.approx(5 / 6, abs=0.1)  # 240 questions
    assert 0 < found["half_width"] < 0.1


def test_an_image_is_moved_and_what_comes_in_is_empty():
    image = torch.arange(9).view(1, 1, 3, 3)
    assert lake.moved(image, 1, 0)[0, 0].tolist() == [[0, 0, 0], [0, 1, 2], [3, 4, 5]]
    assert lake.moved(image, 0, -1)[0, 0].tolist() == [[1, 2, 0], [4, 5, 0], [7, 8, 0]]
    assert torch.equal(lake.moved(image, 0, 0), image)
