"""What the kinds of cells share."""

import re
from typing import Annotated

import pydantic


class Model(pydantic.BaseModel):
    """A part of a record. What it does not name is kept: versions before and after have other keys."""

    model_config = pydantic.ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)


class Guarantee(Model):
    """What differential privacy proves of a release; see dp.guarantee."""

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


# A report shows pictures as they are recorded: nothing else may stand there.
Picture = Annotated[str, pydantic.AfterValidator(_picture)]
