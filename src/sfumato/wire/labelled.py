"""How examples travel to be enrolled: a release, with the label and an id of each image before it.

    "SFML", version 1 (one byte), length of the labels (uint32, little-endian), labels (JSON), release

The labels are an array of objects, {"label": ..., "id": ...}, one for each image in order; the release is as
sfumato.wire.encode gives it. Labels are in the body here, and not in an address.

By its id a service knows an example again that is sent twice. It says nothing of the image: equal releases of
two images have two ids, and count as two examples.
"""

import json
from collections.abc import Sequence
from typing import Annotated

import pydantic
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter

from sfumato.wire.frames import Frame, parsed
from sfumato.wire.messages import Label, no_step

MEDIA_TYPE = "application/vnd.sfumato.labelled-release"

_FRAME = Frame(
    magic=b"SFML",
    most=200_000,  # bytes of labels: of 64 images, whatever their letters
    name="a labelled release",
    header="labels",
    whole="a body",
    cure="send those of sfumato.wire.labelled",
    otherwise="they begin otherwise",
)


class Labelled(pydantic.BaseModel):
    """What is said of one image: its class, and the id that it is known by in this class."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    label: Annotated[Label, AfterValidator(no_step)]
    id: Annotated[str, Field(pattern="^[0-9A-Za-z_-]{1,64}$")]


_READER = TypeAdapter(list[Labelled])


def join(examples: Sequence[tuple[str, str]], release: bytes) -> bytes:
    """The bytes in which a release travels with the label and the id of each image; `release`: encoded."""
    said = [{"label": label, "id": number} for label, number in examples]
    text = json.dumps(said, ensure_ascii=False).encode()
    return _FRAME.join(text, release)


def split(data: bytes) -> tuple[list[Labelled], bytes]:
    """What is said of each image, labels as they are kept, and the encoded release.

    Whether there are as many labels as images, the caller sees when the release is decoded.

    Raises:
        DataError: damaged, of another program or version, or a label that cannot be.
    """
    text, end = _FRAME.split(data)
    return parsed(_READER, text, "the labels of a release"), data[end:]
