"""The parts that the kinds of cells share."""

import re
from typing import Annotated

import pydantic


class Model(pydantic.BaseModel):
    """A part of a record. It keeps keys that it does not name: other versions have other keys."""

    model_config = pydantic.ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)


class Guarantee(Model):
    """The guarantee of differential privacy for a release; see dp.guarantee."""

    text: str
    definition: str | None = None
    value: float | None = None
    whole_image: float | None = None
    source: str | None = None


_PICTURE = re.compile(r"data:image/png;base64,[A-Za-z0-9+/]+=*")


def _picture(uri: str) -> str:
    if not _PICTURE.fullmatch(uri):
        raise ValueError("a picture is not a PNG data: URI")
    return uri


# A report shows pictures as they are recorded: nothing else may be there.
Picture = Annotated[str, pydantic.AfterValidator(_picture)]
