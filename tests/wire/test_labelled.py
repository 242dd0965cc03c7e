"""Releases with a label of each image, as bytes."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import DataError
from sfumato.wire import labelled

LABELS = st.lists(st.sampled_from(["anna", "é", "日本", 'a "b"', "\U0001f3fa", "x" * 200]), max_size=64)


@given(labels=LABELS, release=st.binary(max_size=50))
@settings(max_examples=50)
def test_what_was_joined_is_split_again(labels: list[str], release: bytes):
    assert labelled.split(labelled.join(labels, release)) == (labels, release)


@given(data=st.binary(max_size=40), known=st.booleans())
@settings(max_examples=100)
def test_any_bytes_are_labels_and_a_release_or_an_error_of_ours(data: bytes, known: bool):
    with contextlib.suppress(DataError):
        labelled.split(b"SFML\x01" * known + data)


def test_a_label_in_two_spellings_is_one():
    assert labelled.split(labelled.join(["e\u0301", "\u00e9"], b""))[0] == ["\u00e9"] * 2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"SFML", "4 bytes are not a labelled release"),
        (b"SFMT" + labelled.join(["a"], b"")[4:], "not a labelled release: they begin otherwise"),
        (
            b"SFML\x02" + labelled.join(["a"], b"")[5:],
            "of version 2, and 1 is read here: update the older side",
        ),
        (labelled.join(["a"], b"")[:-1], "labels of 5 bytes in a body of 13: damaged, or too long"),
        (labelled.join(["x" * 200] * 1000, b""), "damaged, or too long"),
        (labelled.join([".."], b""), "the labels of a release: 0: .*one or two dots: choose another"),
        (labelled.join(["a", "b/c"], b""), "the labels of a release: 1: "),
        (labelled.join(["anna\u200b"], b""), "is invisible, or turns the text around it"),
    ],
)
def test_labels_that_cannot_be_are_refused_with_what_to_do(data: bytes, message: str):
    with pytest.raises(DataError, match=message):
        labelled.split(data)
