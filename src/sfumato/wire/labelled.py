"""Examples to enrol, as bytes: a release, after the label and an id of each image.

    "SFML", version 1 (one byte), length of the labels (uint32, little-endian), labels (JSON), release

The labels are an array of objects, {"label": ..., "id": ...}, one for each image in order. By its id a
service recognises an example that is sent twice. The id says nothing about the image: equal releases of two
images have two ids, and count as two examples.
"""

import json
from collections.abc import Sequence
from typing import Annotated

import pydantic
from pydantic import ConfigDict, Field

from sfumato.wire.frames import Frame, parse
from sfumato.wire.labels import Label

MEDIA_TYPE = "application/vnd.sfumato.labelled-release"

_FRAME = Frame(
    magic=b"SFML",
    most=200_000,  # bytes of labels: of 64 images, with any letters
    name="a labelled release",
)


class Labelled(pydantic.BaseModel):
    """The class of one image, and its id in this class."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    label: Label
    id: Annotated[str, Field(pattern="^[0-9A-Za-z_-]{1,64}$")]


def join(examples: Sequence[tuple[str, str]], release: bytes) -> bytes:
    """The bytes of an encoded release with the label and the id of each image."""
    said = [{"label": label, "id": number} for label, number in examples]
    return _FRAME.join(json.dumps(said, ensure_ascii=False).encode(), release)


def split(data: bytes) -> tuple[list[Labelled], bytes]:
    """The label and the id of each image, labels normalised, and the encoded release.

    The caller compares their number with the images after decoding the release. Raises DataError.
    """
    text, end = _FRAME.split(data)
    return parse(list[Labelled], text, "the labels of a release"), data[end:]
