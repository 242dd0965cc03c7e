"""The parameters of addresses: ids, labels, numbers and times, checked before a route sees them."""

import re
from typing import Annotated, Any

from sfumato import wire
from sfumato.errors import needs_extra
from sfumato.wire import labelled
from sfumato.wire.labels import LABEL, as_kept, normal

with needs_extra("the server", "serve"):
    from fastapi import Path
    from pydantic import AfterValidator, AwareDatetime, BeforeValidator


def _moment(text: Any) -> Any:
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)", str(text), re.ASCII):
        raise ValueError(
            "a time as ISO 8601 writes it, with its offset, such as 2026-01-31T09:30:00Z; in an address, + "
            "is written %2B"
        )
    return text


def _digits(text: Any) -> Any:
    if not re.fullmatch(r"[0-9]{1,9}", str(text)):
        raise ValueError("a whole number, written in digits alone")
    return text


ID = "^[A-Za-z0-9_-]{1,64}$"
Id = Annotated[str, Path(pattern=ID, description="An id, as the list of such objects has it.")]
Label = Annotated[
    str,
    Path(pattern=LABEL, description="The label of a class, 1 to 200 characters."),
    AfterValidator(as_kept),
]
Kept = Annotated[
    str,
    Path(pattern=LABEL, description="A name, as the list of such objects has it."),
    AfterValidator(normal),
]
DIGITS = BeforeValidator(_digits)
Moment = Annotated[AwareDatetime | None, BeforeValidator(_moment)]

_BYTES = {"schema": {"type": "string", "format": "binary"}}
RELEASE_BODY = {"requestBody": {"required": True, "content": {wire.MEDIA_TYPE: _BYTES}}}
LABELLED_BODY = {"requestBody": {"required": True, "content": {labelled.MEDIA_TYPE: _BYTES}}}
