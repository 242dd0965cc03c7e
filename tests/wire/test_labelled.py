"""Labels, requests that have them, and releases with a label of each image, as bytes."""

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from sfumato.errors import DataError
from sfumato.wire import labelled
from sfumato.wire.labels import Label
from sfumato.wire.messages import NewClassifier, NewKey

LABELS = st.sampled_from(["anna", "é", "日本", 'a "b"', "\U0001f3fa", "x" * 200])
EXAMPLES = st.lists(st.tuples(LABELS, st.from_regex("[0-9a-f]{32}", fullmatch=True)), max_size=64)

read_label: Any = TypeAdapter(Label).validate_python


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
        (b"SFML\x02" + joined("a")[5:], "of version 2, and 1 is read here: update the older side"),
        (joined("a")[:-1], r"a labelled release of \d+ bytes, with a header of \d+: damaged, or too long"),
        (joined(*["x" * 200] * 1000), "damaged, or too long"),
        (joined(".."), "the labels of a release: 0.label: .*one or two dots; rename it"),
        (joined("a", "b/c"), "the labels of a release: 1.label: "),
        (joined("anna\u200b"), "is invisible, or turns the text around it"),
        (joined(" anna"), "begins or ends with a space, which nobody sees"),
    ],
)
def test_labels_that_cannot_be_are_refused_with_what_to_do(data: bytes, message: str):
    with pytest.raises(DataError, match=message):
        labelled.split(data)


def test_a_label_has_1_to_200_characters_as_it_is_kept_without_a_control_character_or_a_slash():
    """U+0958 is one character and two in NFC, which keeps it apart for ever."""
    assert read_label("x" * 200) == "x" * 200
    assert len(read_label("\u0958" * 100)) == 200
    with pytest.raises(ValidationError, match="202 characters, in Unicode's NFC: choose at most 200"):
        read_label("\u0958" * 101)
    for label in ("", "x" * 201, "a\x00b", "a\x1fb", "a/b", "a\x7fb", "a\x9fb"):
        with pytest.raises(ValidationError):
            read_label(label)
    assert read_label("a\xa1b")  # the first letter after them


def test_64_labels_fit_whatever_their_letters_with_ids_of_64_letters_digits_and_dashes_at_most():
    examples = [("\U0001f3fa" * 200, "x-_9" * 16)] * 64
    said, rest = labelled.split(labelled.join(examples, b"release"))
    assert (len(said), said[0].id, rest) == (64, "x-_9" * 16, b"release")
    for number in ("", "x" * 65, "a.b", "a/b", "a b"):
        with pytest.raises(DataError, match=r"the labels of a release: 0\.id: "):
            labelled.split(labelled.join([("a", number)], b""))


def test_messages_with_words_that_nobody_knows_are_refused():
    for message in (NewClassifier, NewKey):
        with pytest.raises(ValidationError, match="Extra inputs"):
            message.model_validate({"name": "a", "model": "m", "tenant": "other"})


@pytest.mark.parametrize(("field", "least", "most"), [("rate", 1, 2**31 - 1), ("quota", 0, 2**31 - 1)])
def test_rates_and_quotas_of_a_key_have_bounds(field: str, least: int, most: int):
    for value in (least, most, None):
        assert getattr(NewKey.model_validate({"name": "a", field: value}), field) == value
    for value in (least - 1, most + 1):
        with pytest.raises(ValidationError):
            NewKey.model_validate({"name": "a", field: value})
