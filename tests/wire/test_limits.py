"""Where what travels ends: the last label, byte, bit and number that is taken, and the first that is not."""

import struct
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from sfumato import wire
from sfumato.errors import DataError
from sfumato.protect import Release
from sfumato.wire import ImageHeader, decode, encode, labelled
from sfumato.wire.labels import Label
from sfumato.wire.messages import ModelInfo, NewClassifier, NewKey

read_label: Any = TypeAdapter(Label).validate_python


def test_a_label_has_1_to_200_characters_as_it_is_kept():
    assert read_label("x" * 200) == "x" * 200
    for label in ("", "x" * 201):
        with pytest.raises(ValidationError):
            read_label(label)


def test_a_label_that_grows_beyond_200_characters_in_unicodes_normal_form_is_refused():
    """U+0958 is one character and two in NFC, which keeps it apart for ever."""
    assert len(read_label("\u0958" * 100)) == 200
    with pytest.raises(ValidationError, match="202 characters, in Unicode's NFC: choose at most 200"):
        read_label("\u0958" * 101)


@pytest.mark.parametrize("code", [0x00, 0x1F, 0x2F, 0x7F, 0x9F])
def test_no_control_character_and_no_slash_is_in_a_label(code: int):
    with pytest.raises(ValidationError):
        read_label(f"a{chr(code)}b")
    assert read_label(f"a{chr(0xA1)}b")  # the first letter after them


@pytest.mark.parametrize(
    "code", [0x00A0, 0x00AD, 0x034F, 0x061C, 0x200B, 0x200D, 0x2028, 0x202E, 0x2800, 0x3164, 0xFE0F, 0xE0041]
)
def test_what_nobody_sees_in_a_label_is_named(code: int):
    with pytest.raises(ValidationError, match=f"U[+]{code:04X} is invisible, or turns the text around it"):
        read_label(f"a{chr(code)}b")


@pytest.mark.parametrize("label", [" anna", "anna ", "\u3000anna"])
def test_a_space_at_an_end_of_a_label_is_refused(label: str):
    with pytest.raises(ValidationError, match="begins or ends with a space, which nobody sees"):
        read_label(label)


def test_the_labels_of_64_images_fit_whatever_their_letters():
    examples = [("\U0001f3fa" * 200, "f" * 64)] * 64
    said, rest = labelled.split(labelled.join(examples, b"release"))
    assert (len(said), rest) == (64, b"release")


@pytest.mark.parametrize("number", ["", "x" * 65, "a.b", "a/b", "a b"])
def test_an_id_is_64_letters_digits_and_dashes_at_most(number: str):
    assert labelled.split(labelled.join([("a", "x-_9" * 16)], b""))[0][0].id == "x-_9" * 16
    with pytest.raises(DataError, match=r"the labels of a release: 0\.id: "):
        labelled.split(labelled.join([("a", number)], b""))


def test_a_server_that_does_not_say_so_hands_out_no_file():
    said = {"name": "m", "kind": "code", "specs": [], "made_of": [], "shape": (1, 2, 2), "dimension": 4}
    assert ModelInfo(**said, refusal=None).device_side is False


def test_messages_with_words_that_nobody_knows_are_refused():
    with pytest.raises(ValidationError, match="Extra inputs"):
        NewClassifier.model_validate({"name": "a", "model": "m", "role": "admin"})
    with pytest.raises(ValidationError, match="Extra inputs"):
        NewKey.model_validate({"name": "a", "tenant": "other"})


@pytest.mark.parametrize(("field", "least", "most"), [("rate", 1, 2**31 - 1), ("quota", 0, 2**31 - 1)])
def test_rates_and_quotas_of_a_key_have_bounds(field: str, least: int, most: int):
    for value in (least, most, None):
        assert getattr(NewKey.model_validate({"name": "a", field: value}), field) == value
    for value in (least - 1, most + 1):
        with pytest.raises(ValidationError):
            NewKey.model_validate({"name": "a", field: value})


def test_what_was_read_does_not_change():
    key = NewKey(name="a", role="read")
    with pytest.raises(ValidationError, match="frozen"):
        key.role = "admin"  # type: ignore[misc]
    (said,), _ = labelled.split(labelled.join([("a", "0")], b""))
    with pytest.raises(ValidationError, match="frozen"):
        said.label = "b"  # type: ignore[misc]


def test_no_name_is_made_up():
    assert not hasattr(wire, "nothing")


# Headers


def image(shape: tuple[int, int, int] = (1, 5, 7), **changes: Any) -> ImageHeader:
    said = {"kind": "pixels", "spec": "none", "made_of": None, "count": 1, "channels": shape[0]}
    return ImageHeader.model_validate({**said, "size": shape[1:], "cell": 1, **changes})


@pytest.mark.parametrize("field", ["count", "cell"])
def test_no_number_of_a_header_is_2_to_the_31_or_more(field: str):
    assert getattr(image(**{field: 2**31 - 1}), field) == 2**31 - 1
    for value in (2**31, 0):
        with pytest.raises(ValidationError):
            image(**{field: value})


def masked(height: int, width: int) -> Release:
    shown = torch.zeros(1, 1, height, width, dtype=torch.bool)
    return Release(
        torch.zeros(1, 1, height, width, dtype=torch.uint8), "mask:keep=0.1", (height, width), shown=shown
    )


@pytest.mark.parametrize("width", range(1, 9))
def test_each_bit_of_a_mask_beyond_the_image_is_refused_and_each_within_is_a_pixel(width: int):
    """The byte is of `width` pixels, the first in its highest bit; a shown pixel has a value after it."""
    data = encode(masked(1, width))
    for bit in range(8):
        changed = data[:-1] + bytes([1 << bit])
        if bit < 8 - width:
            with pytest.raises(DataError, match="shows pixels that the image does not have"):
                decode(changed, most_images=1, most_pixels=8)
        else:
            release = decode(changed + b"\x09", most_images=1, most_pixels=8)
            assert isinstance(release, Release)
            assert release.shown is not None
            assert release.shown.flatten().nonzero().flatten().tolist() == [7 - bit]
            assert int(release.values.sum()) == 9


def test_as_many_images_and_pixels_as_may_come_at_once_are_taken_and_no_more():
    sent = Release(torch.zeros(3, 1, 4, 5, dtype=torch.uint8), "none", (4, 5))
    assert len(decode(encode(sent), most_images=3, most_pixels=60).values) == 3
    with pytest.raises(DataError, match="of 3 images, of at most 2 at once"):
        decode(encode(sent), most_images=2, most_pixels=60)
    with pytest.raises(DataError, match="of 60 pixels or numbers, of at most 59 at once"):
        decode(encode(sent), most_images=3, most_pixels=59)


def test_a_header_of_4096_bytes_is_read_and_a_longer_one_is_not():
    text = encode(Release(torch.zeros(1, 1, 2, 2, dtype=torch.uint8), "none", (2, 2)))[9:-4]
    for length, message in ((4096, None), (4097, "a header of 4097 bytes in a release of 4110: damaged")):
        data = b"SFMT\x01" + struct.pack("<I", length) + text + b" " * (length - len(text)) + bytes(4)
        if message is None:
            assert len(decode(data, most_images=1, most_pixels=4).values) == 1
        else:
            with pytest.raises(DataError, match=message):
                decode(data, most_images=1, most_pixels=4)


def test_bytes_that_end_within_the_header_say_how_long_it_was_to_be():
    data = encode(Release(torch.zeros(1, 1, 2, 2, dtype=torch.uint8), "none", (2, 2)))
    with pytest.raises(DataError, match=r"a header of \d+ bytes in a release of 40: damaged, or too long"):
        decode(data[:40], most_images=1, most_pixels=4)


@pytest.mark.parametrize(
    ("size", "cell", "taken"), [((4, 6), 4, True), ((4, 6), 5, False), ((6, 4), 5, False)]
)
def test_a_cell_is_as_large_as_the_shorter_side_at_most(size: tuple[int, int], cell: int, taken: bool):
    rows, columns = -(-size[0] // cell), -(-size[1] // cell)
    sent = Release(torch.zeros(1, 1, rows, columns, dtype=torch.uint8), "pixelize:cell=4", size, cell)
    if taken:
        assert decode(encode(sent), most_images=1, most_pixels=24).cell == cell  # type: ignore[union-attr]
    else:
        with pytest.raises(
            DataError, match=f"a cell of {cell} in pixels of {size[0]}x{size[1]}: no protection"
        ):
            decode(encode(sent), most_images=1, most_pixels=24)


def test_a_mask_of_cells_is_no_release():
    data = encode(masked(4, 6))
    assert b'"cell":1' in data
    with pytest.raises(DataError, match="a cell of 2 in masked of 4x6: no protection makes such releases"):
        decode(data.replace(b'"cell":1', b'"cell":2'), most_images=1, most_pixels=24)
