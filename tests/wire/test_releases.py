"""What travels, byte for byte; and that other bytes are refused, whatever they are."""

import json
import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import DataError
from sfumato.protect import Release
from sfumato.protect.vectors import BitsRelease, FeatureRelease
from sfumato.wire import AnyRelease, BitsHeader, ImageHeader, decode, encode, header

DIGEST = "0123456789abcdef" * 4


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(seed)).to(torch.uint8)


def pixels(count: int = 2, cell: int = 1, size: tuple[int, int] = (5, 7), channels: int = 3) -> Release:
    rows, columns = -(-size[0] // cell), -(-size[1] // cell)
    return Release(numbers(count, channels, rows, columns), f"pixelize:cell={cell}", size, cell)


def masked(spec: str = "mask:artefact=m.safetensors") -> Release:
    shown = numbers(2, 1, 5, 7, seed=1) > 150
    return Release(numbers(2, 3, 5, 7) * shown, spec, (5, 7), shown=shown)


def feature() -> FeatureRelease:
    values = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    return FeatureRelease(values, "feature:artefact=f.safetensors,noise=0.5")


def code() -> BitsRelease:
    return BitsRelease(numbers(2, 12) < 128, "code:artefact=c.safetensors,flip=0.1")


def read(data: bytes, *, most_images: int = 8, most_pixels: int = 10_000) -> AnyRelease:
    return decode(data, most_images=most_images, most_pixels=most_pixels)


def assembled(said: dict[str, object] | bytes, packets: bytes = b"") -> bytes:
    text = said if isinstance(said, bytes) else json.dumps(said).encode()
    return b"SFMT\x01" + struct.pack("<I", len(text)) + text + packets


def said_of(data: bytes) -> dict[str, object]:
    return json.loads(data[9 : 9 + struct.unpack_from("<I", data, 5)[0]])


EACH = {
    "pixels": pixels(),
    "cells": pixels(cell=2),
    "grey": pixels(channels=1),
    "masked": masked(),
    "feature": feature(),
    "bits": code(),
}


@pytest.fixture(params=EACH)
def release(request: pytest.FixtureRequest) -> AnyRelease:
    return EACH[request.param]


def test_a_release_comes_back_as_it_was_sent(release: AnyRelease):
    found = read(encode(release))
    assert type(found) is type(release)
    for name, value in vars(release).items():
        other = getattr(found, name)
        assert np.array_equal(other, value)


def test_pixels_are_the_header_and_then_the_values_of_all_images():
    sent = pixels(cell=2)
    said = {
        **{"kind": "pixels", "spec": "pixelize:cell=2", "made_of": None, "count": 2},
        **{"channels": 3, "size": [5, 7], "cell": 2},
    }
    assert said_of(encode(sent)) == said
    assert encode(sent).endswith(sent.values.numpy().tobytes())
    assert torch.equal(read(assembled(said, sent.values.numpy().tobytes())).values, sent.values)


def test_masked_images_are_the_packets_that_leave_a_device_and_features_little_endian_numbers():
    data = encode(masked(), made_of=DIGEST)
    assert (said_of(data)["kind"], said_of(data)["made_of"]) == ("masked", DIGEST)
    assert data.endswith(b"".join(masked().pack()))
    sent = feature()
    data = encode(sent)
    assert (said_of(data)["dimension"], said_of(data)["dtype"]) == (4, "float32")
    assert data.endswith(struct.pack("<8f", *sent.values.flatten().tolist()))


def test_codes_are_their_bits_eight_a_byte():
    sent = code()
    data = encode(sent, made_of=DIGEST)
    assert said_of(data) == {"kind": "bits", "spec": sent.spec, "made_of": DIGEST, "count": 2, "bits": 12}
    text = "".join("".join("01"[int(bit)] for bit in row) + "0000" for row in sent.values)
    assert data.endswith(int(text, 2).to_bytes(4, "big"))
    assert isinstance(header(data), BitsHeader)


@settings(max_examples=200, deadline=None)
@given(bits=st.integers(1, 64), words=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=8))
def test_codes_of_any_bits_come_back_and_take_no_byte_more_than_they_need(bits: int, words: list[int]):
    values = torch.tensor([[word >> place & 1 for place in range(bits)] for word in words]).bool()
    data = encode(BitsRelease(values, "code:artefact=c.safetensors"))
    assert torch.equal(read(data).values, values)
    length = struct.unpack_from("<I", data, 5)[0]
    assert len(data) - 9 - length == len(words) * -(-bits // 8)


def test_the_header_is_read_without_the_images():
    said = header(encode(pixels(cell=2), made_of=DIGEST)[:-5])
    assert isinstance(said, ImageHeader)
    assert (said.spec, said.made_of, said.count) == ("pixelize:cell=2", DIGEST, 2)
    assert (said.size, said.cell) == ((5, 7), 2)


@pytest.mark.parametrize("path", ["/home/ada/secret club/m.safetensors", "C:\\ada\\m.safetensors"])
def test_no_folder_of_a_device_travels(path: str):
    assert read(encode(masked(spec=f"mask:artefact={path},keep=0.2"))).spec == (
        "mask:artefact=m.safetensors,keep=0.2"
    )


def test_a_release_that_is_longer_or_ends_anywhere_else_is_refused(release: AnyRelease):
    data = encode(release)
    with pytest.raises(DataError, match="bytes of images, and the header needs"):
        read(data + b"\0")
    for length in range(len(data)):
        with pytest.raises(DataError):
            read(data[:length])
    with pytest.raises(DataError, match="release of no image: release at least one"):
        encode(pixels(count=0))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "0 bytes are not a release"),
        (b"\x89PNG\r\n\x1a\n" + bytes(20), "these bytes are not a release"),
        (b"SFMT\x02" + bytes(20), "a release of version 2, and 1 is read here"),
        (b"SFMT\x01\xff\xff\xff\xff" + bytes(20), "a release of 29 bytes, with a header of 4294967295: "),
        # 4,096 bytes and no more: at the limit the header itself is read.
        (assembled(b"{" + b" " * 4096), "a header of 4097: damaged, or too long"),
        (assembled(b"{" + b" " * 4095), "header of a release: JSON: Invalid JSON"),
        (assembled(b"{"), "header of a release: JSON: Invalid JSON"),
        (assembled({"kind": "clear"}), "header of a release: JSON: Input tag 'clear'"),
    ],
)
def test_bytes_of_something_else_are_refused(data: bytes, message: str):
    with pytest.raises(DataError, match=message):
        read(data)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("cells", {"count": 0}, "pixels.count: Input should be greater than or equal to 1"),
        ("cells", {"count": 2.0}, "pixels.count: Input should be a valid integer"),
        ("cells", {"count": 1 << 31}, "pixels.count: Input should be less than"),
        ("cells", {"count": 9}, "a release of 9 images, of at most 8 at once: send fewer"),
        ("cells", {"channels": 2}, "pixels.channels: Input should be 1 or 3"),
        ("cells", {"size": [5, 0]}, "pixels.size.1: Input should be greater"),
        ("cells", {"size": [2000, 2000]}, "8000000 pixels or numbers, of at most 10000 at once"),
        ("cells", {"cell": 6}, "a cell of 6 in pixels of 5x7"),
        ("cells", {"kind": "masked"}, "a cell of 2 in masked of 5x7"),
        ("cells", {"made_of": "../" + DIGEST}, "pixels.made_of: String should match pattern"),
        ("cells", {"spec": "x" * 1001}, "pixels.spec: String should have at most 1000"),
        ("cells", {"owner": "ada"}, "pixels.owner: Extra inputs are not permitted"),
        ("bits", {"bits": 65}, "bits.bits: Input should be less than or equal to 64"),
        ("bits", {"bits": 17}, "4 bytes of images, and the header needs 6"),
    ],
)
def test_a_header_that_cannot_be_is_refused(name: str, change: dict[str, object], message: str):
    sent = EACH[name]
    with pytest.raises(DataError, match=message):
        read(assembled(said_of(encode(sent)) | change, b"".join(sent.pack())))


def test_bits_beyond_the_last_are_refused():
    for place in (-1, -3):  # the last byte of each image has four bits of none
        damaged = bytearray(encode(code()))
        damaged[place] |= 1
        with pytest.raises(DataError, match="a code of 12 bits has bits beyond the last: damaged"):
            read(bytes(damaged))


def test_as_many_images_and_numbers_as_may_come_at_once_are_taken():
    assert len(read(encode(code()), most_images=2, most_pixels=24).values) == 2
    for limit in ({"most_images": 1}, {"most_pixels": 23}):
        with pytest.raises(DataError, match="at once: send fewer"):
            read(encode(code()), **limit)


@pytest.mark.parametrize("width", range(1, 9))
def test_each_bit_of_a_mask_beyond_the_image_is_refused_and_each_within_is_a_pixel(width: int):
    """The byte is of `width` pixels, the first in its highest bit; a shown pixel has a value after it."""
    values, shown = torch.zeros(2, 1, 1, 1, width, dtype=torch.uint8)
    data = encode(Release(values, "mask:keep=0.1", (1, width), shown=shown.bool()))
    for bit in range(8):
        changed = data[:-1] + bytes([1 << bit])
        if bit < 8 - width:
            with pytest.raises(DataError, match="shows pixels that the image does not have"):
                read(changed)
        else:
            release = read(changed + b"\x09")
            assert release.shown.flatten().nonzero().flatten().tolist() == [7 - bit]
            assert int(release.values.sum()) == 9


def test_numbers_that_are_not_finite_are_refused():
    sent = feature()
    sent.values[1, 2] = float("nan")
    with pytest.raises(DataError, match="not finite: release it again"):
        read(encode(sent))


@settings(max_examples=300, deadline=None)
@given(
    name=st.sampled_from(sorted(EACH)),
    places=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_changed_bytes_give_a_release_of_the_limits_or_are_refused(name: str, places: list[tuple[int, int]]):
    data = bytearray(encode(EACH[name]))
    for place, value in places:
        data[place % len(data)] = value
    try:
        found = read(bytes(data))
    except DataError:
        return
    assert len(found.values) <= 8
    assert found.values.numel() <= 3 * 10_000
