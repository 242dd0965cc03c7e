"""Releases with a label of each image, as bytes."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import DataError
from sfumato.wire import labelled

LABELS = st.sampled_from(["anna", "é", "日本", 'a "b"', "\U0001f3fa", "x" * 200])
EXAMPLES = st.lists(st.tuples(LABELS, st.from_regex("[0-9a-f]{32}", fullmatch=True)), max_size=64)


def joined(*labels: str) -> bytes:
    return labelled.join([(label, "0") for label in labels], b"")


@given(examples=EXAMPLES, release=st.binary(max_size=50))
@settings(max_examples=50)
def test_what_was_joined_is_split_again(examples: list[tuple[str, str]], release: bytes):
    said, rest = labelled.split(labelled.join(examples, release))
    assert ([(each.label, each.id) for each in said], rest) == (examples, release)


@given(data=st.binary(max_size=40), known=st.booleans())
@settings(max_examples=100)
def test_any_bytes_are_labels_and_a_release_or_an_error_of_ours(data: bytes, known: bool):
    with contextlib.suppress(DataError):
        labelled.split(b"SFML\x01" * known + data)


def test_a_label_in_two_spellings_is_one():
    said, _ = labelled.split(joined("e\u0301", "\u00e9"))
    assert [each.label for each in said] == ["\u00e9"] * 2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"SFML", "4 bytes are not a labelled release"),
        (b"SFMT" + joined("a")[4:], "not a labelled release: they begin with other letters"),
        (
            b"SFML\x02" + joined("a")[5:],
            "of version 2, and 1 is read here: update the older side",
        ),
        (joined("a")[:-1], r"labels of \d+ bytes in a body of \d+: damaged, or too long"),
        (joined(*["x" * 200] * 1000), "damaged, or too long"),
        (joined(".."), "the labels of a release: 0.label: .*one or two dots; rename it"),
        (joined("a", "b/c"), "the labels of a release: 1.label: "),
        (labelled.join([("a", "")], b""), "the labels of a release: 0.id: "),
        (joined("anna\u200b"), "is invisible, or turns the text around it"),
    ],
)
def test_labels_that_cannot_be_are_refused_with_what_to_do(data: bytes, message: str):
    with pytest.raises(DataError, match=message):
        labelled.split(data)
