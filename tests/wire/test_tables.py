"""Answer tables as bytes: signed, bounded, and read back as they were."""

import struct
import zlib

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from sfumato.errors import DataError
from sfumato.wire import tables
from sfumato.wire.tables import AnswerTable, Header

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


def made(bits: int, labels: int, *, seed: int = 0, **changed: object) -> AnswerTable:
    header = Header(
        **{
            **{"classifier": "c1", "name": "hats", "version": 7, "model": "code", "made_of": "ab" * 32},
            **{"bits": bits, "refuses": True, "labels": tuple(f"hat {row}" for row in range(labels))},
            **{"signer": KEY.public_key().public_bytes_raw().hex()},
            **changed,
        }
    )
    return tables.sign_table(header, *given_answers(bits, labels, seed), KEY.sign)


def given_answers(bits: int, labels: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A class for each code, and whether it is of none."""
    draw = np.random.default_rng(seed)
    return draw.integers(0, labels, 1 << bits), draw.random(1 << bits) < 0.2


@given(bits=st.integers(1, 10), labels=st.integers(1, 40), seed=st.integers(0, 99))
def test_a_table_comes_back_as_it_was(bits: int, labels: int, seed: int):
    table = made(bits, labels, seed=seed)
    read = tables.decode(table.content)
    assert read.header == table.header
    rows, none = given_answers(bits, labels, seed)
    assert read.look_up(tables.codes_of(bits)) == [
        (f"hat {row}", refused) for row, refused in zip(rows.tolist(), none.tolist(), strict=True)
    ]


def test_the_first_bit_of_a_code_is_the_highest_of_its_number():
    table = made(3, 40)
    codes = tables.codes_of(3)
    assert codes[6].tolist() == [True, True, False]
    answers = [(table.header.labels[word & 0x7FFF], bool(word >> 15)) for word in table.answers.tolist()]
    assert table.look_up(codes) == answers
    assert table.look_up(codes[[6, 1]]) == [answers[6], answers[1]]


@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_one_changed_bit_anywhere_is_noticed(place: float, bit: int):
    content = bytearray(made(4, 3).content)
    content[int(place * len(content))] ^= 1 << bit
    with pytest.raises(DataError):
        tables.decode(bytes(content))


@given(content=st.binary(max_size=300), known=st.booleans())
def test_any_bytes_are_a_table_or_an_error(content: bytes, known: bool):
    with pytest.raises(DataError):
        tables.decode(b"SFMA\x01" * known + content)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (zlib.compress(bytes(100_000_000), 9), "are not 8 bytes"),
        (zlib.compress(bytes(8))[:-2], "are not 8 bytes"),
        (zlib.compress(bytes(8)) + b"more", "are not 8 bytes"),
        (b"no zlib at all", "cannot be unpacked"),
        (zlib.compress(b"\x00\x00\x02\x80\x03\x80\x01\x00"), "names a class that is not among its 3"),
    ],
)
def test_answers_that_a_service_signed_are_still_bounded(answers: bytes, message: str):
    text = made(2, 3).header.model_dump_json().encode()
    content = struct.pack("<4sBI", b"SFMA", 1, len(text)) + text + answers
    with pytest.raises(DataError, match=message):
        tables.decode(content + KEY.sign(content))


def test_a_table_that_another_key_signed_is_refused():
    content = made(2, 3).content[:-64]
    other = Ed25519PrivateKey.generate()
    with pytest.raises(DataError, match="another signature than its own"):
        tables.decode(content + other.sign(content))
