"""What a stranger's JSON costs is bounded by its bytes, whatever it holds."""

import tracemalloc
from typing import Any

import pydantic
import pytest

from sfumato.base.files import has_more_values, parse_json
from sfumato.base.schemas import validate_json
from sfumato.wire.messages import Answers, ClassifierInfo, ClassSummary, EnrolledClasses, ModelInfo

HOSTILE: list[tuple[Any, bytes, bytes, bytes]] = [
    (list[ModelInfo], b"[", b"{},", b"{}]"),
    (ModelInfo, b'{"shape":[', b"0,", b"0]}"),
    (Answers, b'{"images":[', b"{},", b"{}]}"),
    (Answers, b'{"images":[{"none_of_these":null,"guesses":[', b"[],", b"0]}]}"),
    (EnrolledClasses, b'{"classes":[', b'{"examples":[0,0]},', b"{}]}"),
    (ClassifierInfo, b"{", b'"a":0,', b'"b":0}'),
    (list[ClassSummary], b'["', b'\\"', b""),
    (list[ClassSummary], b"", b"[", b""),
]


@pytest.mark.parametrize(("kind", "begin", "part", "end"), HOSTILE)
@pytest.mark.parametrize("length", [40_000, 1_000_000])
def test_another_text_has_few_errors_and_takes_little_memory(kind, begin, part, end, length):
    text = begin + part * (length // len(part)) + end
    tracemalloc.start()
    with pytest.raises(pydantic.ValidationError) as refused:
        validate_json(kind, text, most_values=40_000)
    assert tracemalloc.get_traced_memory()[1] < 8 * length + 1_000_000
    tracemalloc.stop()
    assert refused.value.error_count() < 10 or length // len(part) < 40_000


def test_an_answer_that_fits_is_read_as_before():
    text = b'[{"label": "a, b: c", "examples": 3, "created": "2026-01-01T00:00:00Z"}]'
    assert validate_json(list[ClassSummary], text)[0].label == "a, b: c"


def test_values_are_counted_before_anything_is_made_of_them_and_not_inside_strings():
    text = '["' + ',:\\"' * 1000 + '", 1, 2]'
    assert has_more_values(text, 1)
    assert not has_more_values(text, 2)
    with pytest.raises(ValueError, match="more than 5,000,000 values"):
        parse_json("[" + "0," * 5_000_001 + "0]")
