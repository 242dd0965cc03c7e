"""Labelled images: labels by name, splits, a digest of the data alone, whole classes in each split."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from sfumato.cli.data import contact_sheet
from sfumato.data.labelled import Label, LabelledImages, draw_rows, label_of, split_by_class
from sfumato.errors import DataError, ImageError

SIX = LabelledImages(
    "six",
    torch.arange(6 * 3 * 2 * 4).view(6, 3, 2, 4).byte(),
    {"class": label_of(["b", "a", "b", "c", "a", "b"]), "hat": label_of(["x", "x", "y", "y", "x", "y"])},
    {"train": torch.tensor([0, 2, 5]), "test": torch.tensor([4, 1])},
)


# Labels and splits


@given(st.lists(st.text(max_size=3)))
def test_a_label_has_its_names_in_order_and_gives_back_the_values_that_it_was_made_of(values: list[str]):
    label = label_of(values)
    assert label.names == tuple(sorted(set(values)))
    assert [label.names[int(code)] for code in label.codes] == values
    assert label.codes.dtype == torch.int64


def test_rows_keep_images_and_labels_together_and_drop_the_splits():
    part = SIX.rows(torch.tensor([3, 0]))
    assert torch.equal(part.images, SIX.images[[3, 0]])
    assert part.label("class").codes.tolist() == [2, 1]
    assert part.label("hat").codes.tolist() == [1, 0]
    assert part.splits == {}


def test_grey_images_are_known_by_their_equal_channels():
    grey = torch.randint(0, 256, (9, 1, 4, 4), dtype=torch.uint8)
    colour = grey.repeat(1, 3, 1, 1)
    assert LabelledImages("grey", colour, {}).are_grey
    assert not LabelledImages("one channel", grey, {}).are_grey
    colour[4, 0, 0, 0] ^= 1
    assert not LabelledImages("one pixel of colour", colour, {}).are_grey
    many = torch.zeros(1000, 3, 4, 4, dtype=torch.uint8)
    many[997, 0] = 9
    assert not LabelledImages("one of a thousand", many, {}).are_grey


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(1, 100), st.integers(0, 3))
def test_rows_are_drawn_from_every_class_by_its_share_and_not_by_their_order(counts, most, seed):
    codes = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    rows = draw_rows(codes, most, seed=seed)
    assert rows.equal(rows.unique())
    assert len(rows) == min(most, len(codes))
    drawn = codes[rows].bincount(minlength=len(counts))
    assert int((drawn > 0).sum()) == min(len(counts), len(rows))
    if len(rows) > len(counts):
        fair = torch.tensor(counts) * len(rows) / len(codes)
        assert (drawn - fair).max() <= 1 + len(counts) / 2
    assert rows.equal(draw_rows(codes, most, seed=seed))


def test_each_row_of_a_class_is_drawn_as_often_as_another():
    codes = torch.tensor([0] * 30 + [1] * 10)
    drawn = torch.zeros(40)
    for seed in range(2000):
        drawn[draw_rows(codes, 8, seed=seed)] += 1
    assert (drawn[:30] / 2000 - 6 / 30).abs().max() < 0.05  # five standard deviations
    assert (drawn[30:] / 2000 - 2 / 10).abs().max() < 0.05


def test_a_split_holds_its_rows_in_their_order_and_the_names_of_all_classes():
    part = SIX.split("test")
    assert torch.equal(part.images, SIX.images[[4, 1]])
    assert part.label("class").names == ("a", "b", "c")
    assert part.classes("class").tolist() == [0]


def test_an_unknown_label_or_split_is_answered_with_the_nearest():
    with pytest.raises(DataError, match="six: no label 'clas': did you mean 'class'"):
        SIX.label("clas")
    with pytest.raises(DataError, match="six: no split 'tets': did you mean 'test'"):
        SIX.split("tets")


def test_a_label_needs_a_code_for_every_image_and_these_are_uint8():
    with pytest.raises(DataError, match="label 'hat' has 2 codes for 6 images"):
        LabelledImages("six", SIX.images, {"hat": label_of(["x", "y"])})
    with pytest.raises(ImageError, match="uint8"):
        LabelledImages("six", SIX.images.float(), {})


# The digest


(CLASS, HAT), (TRAIN, TEST) = SIX.labels.values(), SIX.splits.values()
DIFFERENT: dict[str, Callable[[LabelledImages], LabelledImages]] = {
    "a pixel": lambda data: replace(data, images=changed(data.images, (5, 2, 1, 3))),
    "the shape": lambda data: replace(data, images=data.images.view(6, 3, 4, 2)),
    "the order of images": lambda data: replace(data, images=data.images[[1, 0, 2, 3, 4, 5]]),
    "a code": lambda data: with_label(data, codes=changed(CLASS.codes, 3, 0)),
    "a name": lambda data: with_label(data, names=("a", "b", "d")),
    "a label less": lambda data: replace(data, labels={"class": CLASS}),
    "the name of a label": lambda data: replace(data, labels={"clasz": CLASS, "hat": HAT}),
    "labels exchanged": lambda data: replace(data, labels={"class": HAT, "hat": CLASS}),
    "no splits": lambda data: replace(data, splits={}),
    "a row less in a split": lambda data: replace(data, splits={"train": TRAIN, "test": torch.tensor([4])}),
    "splits exchanged": lambda data: replace(data, splits={"train": TEST, "test": TRAIN}),
    "the name of a split": lambda data: replace(data, splits={"train": TRAIN, "exam": TEST}),
}


@pytest.mark.parametrize("change", DIFFERENT.values(), ids=DIFFERENT)
def test_the_digest_changes_with(change: Callable[[LabelledImages], LabelledImages]):
    assert change(copy_of(SIX)).digest != SIX.digest


EQUAL: dict[str, Callable[[LabelledImages], LabelledImages]] = {
    "nothing": lambda data: data,
    "the name": lambda data: replace(data, name="seven"),
    "the order of labels": lambda data: replace(data, labels=dict(reversed(data.labels.items()))),
    "the order of splits": lambda data: replace(data, splits=dict(reversed(data.splits.items()))),
    "memory layout": lambda data: replace(
        data, images=data.images.contiguous(memory_format=torch.channels_last)
    ),
    "strides of codes": lambda data: with_label(data, codes=CLASS.codes.repeat_interleave(2)[::2]),
}


@pytest.mark.parametrize("change", EQUAL.values(), ids=EQUAL)
def test_the_digest_does_not_change_with(change: Callable[[LabelledImages], LabelledImages]):
    assert change(copy_of(SIX)).digest == SIX.digest


# Whole classes to each split

SHARES = st.tuples(st.integers(0, 10), st.integers(0, 10), st.integers(0, 10)).filter(any)
USED = [(0.6, 0.15, 0.25), (0.64, 0.16, 0.2), (0.85, 0.15, 0.0)]  # by folders, glyphs, and held-back classes


def as_shares(parts: tuple[int, int, int]) -> tuple[float, float, float]:
    train, validation, test = (part / sum(parts) for part in parts)
    return train, validation, test


@given(
    codes=st.lists(st.integers(0, 40), max_size=60).map(lambda codes: torch.tensor(codes, dtype=torch.int64)),
    parts=SHARES,
    seed=st.integers(0, 99),
)
def test_splits_hold_whole_classes_are_disjoint_and_cover_all(codes, parts, seed):
    splits = split_by_class(codes, shares=as_shares(parts), seed=seed)
    assert set(splits) == {"train", "validation", "test"}
    rows = torch.cat(list(splits.values()))
    assert sorted(rows.tolist()) == list(range(len(codes)))
    classes = [set(codes[part].tolist()) for part in splits.values()]
    assert sum(len(part) for part in classes) == len(set(codes.tolist()))


def test_another_seed_gives_other_splits_and_the_same_one_the_same():
    tests = [
        tuple(split_by_class(torch.arange(40), shares=USED[0], seed=seed)["test"].tolist())
        for seed in (*range(10), *range(10))
    ]
    assert len(set(tests)) == 10
    assert tests[:10] == tests[10:]


def test_how_many_images_a_class_has_does_not_decide_where_it_goes():
    few, many = torch.arange(30), torch.arange(30).repeat_interleave(torch.arange(1, 31))
    for name, rows in split_by_class(few, shares=USED[0], seed=3).items():
        of_many = many[split_by_class(many, shares=USED[0], seed=3)[name]]
        assert set(of_many.tolist()) == set(rows.tolist())


@pytest.mark.parametrize("shares", USED)
def test_splits_have_their_shares_of_many_classes(shares: tuple[float, float, float]):
    splits = split_by_class(torch.arange(1000), shares=shares, seed=0)
    assert [len(rows) / 1000 for rows in splits.values()] == pytest.approx(list(shares))


@given(classes=st.integers(2, 60), parts=SHARES, seed=st.integers(0, 9))
def test_with_two_classes_for_each_split_that_has_a_share_each_gets_two(classes, parts, seed):
    """An episode needs two classes, so a split with fewer is of no use."""
    assume(classes >= 2 * sum(part > 0 for part in parts))
    splits = split_by_class(torch.arange(classes), shares=as_shares(parts), seed=seed)
    for part, rows in zip(parts, splits.values(), strict=True):
        assert len(rows) >= 2 if part else len(rows) == 0


# The contact sheet


def test_a_contact_sheet_has_a_row_for_each_value_and_is_white_where_there_are_no_more_images():
    sheet = contact_sheet(SIX, "class", rows=2, columns=2)
    assert sheet.shape == (3, 2 * 2, 2 * 4)
    assert torch.equal(sheet[:, :2, :4], SIX.images[1])  # the first "a"
    assert torch.equal(sheet[:, 2:, 4:], SIX.images[2])  # the second "b"
    sheet = contact_sheet(SIX, "class", rows=10, columns=5)
    assert sheet.shape == (3, 3 * 2, 5 * 4)  # there are three classes, not ten
    assert (sheet[:, 4:, 4:] == 255).all()  # of "c" there is one image


# Helpers


def copy_of(data: LabelledImages) -> LabelledImages:
    labels = {name: Label(label.codes.clone(), label.names) for name, label in data.labels.items()}
    splits = {name: rows.clone() for name, rows in data.splits.items()}
    return LabelledImages(data.name, data.images.clone(), labels, splits)


def changed(values: Tensor, place: int | tuple[int, ...], to: int = 77) -> Tensor:
    values = values.clone()
    assert values[place] != to
    values[place] = to
    return values


def with_label(data, *, codes=None, names=None) -> LabelledImages:
    old = data.labels["class"]
    label = Label(old.codes if codes is None else codes, old.names if names is None else names)
    return replace(data, labels={**data.labels, "class": label})
