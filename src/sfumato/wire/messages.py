"""Requests and answers of the API, as JSON."""

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from sfumato.dp.naming import histogram_of
from sfumato.wire.labels import Label, as_kept  # noqa: F401  # others look for it here

MOST_GUESSES = 100  # classes of an answer


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True)


class ProblemDetails(_Message):
    """RFC 9457: the problem, and in `detail` what to do."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str


class ModelInfo(_Message):
    """A model that the server runs.

    Attributes:
        spec: the protection whose releases it accepts.
        naming: the proved bound on naming the person on one release, in words; noise that a device adds by
            its own choice may prove more.
        made_of: the SHA-256 of the artefact that the spec names; null if it names none, or it is unknown.
        shape: channels, height and width of images.
        dimension: of embeddings.
        device_side: whether the service hands out the file by which a browser makes codes.
        refusal: how often "none of these" is right, in words; null if the model never answers so. A code
            refuses only queries with the noise of its training.
    """

    name: str
    kind: str
    spec: str
    naming: str = ""
    made_of: str | None
    shape: tuple[int, int, int]
    dimension: int
    device_side: bool = False
    refusal: str | None


class NewClassifier(_Message):
    """A new classifier."""

    model_config = ConfigDict(extra="forbid")

    name: Label
    model: Annotated[str, Field(min_length=1, max_length=64)]


class _Classifier(_Message):
    id: str
    name: str
    created: datetime
    version: int
    classes: int
    may_enrol: bool = True


class ClassifierInfo(_Classifier):
    """A classifier and the number of its classes.

    Attributes:
        model: the name of its model.
        version: grows with every enrolment and forgetting.
        may_enrol: whether this key may enrol and forget.
    """

    model: str


class ClassifierDetails(_Classifier):
    """A classifier with all that a device needs to know about its model."""

    model: ModelInfo


class ClassSummary(_Message):
    """A class, and the number of its examples."""

    label: str
    examples: int
    created: datetime


class EnrolledClass(_Message):
    """The result of enrolling the images of one request in the class with this label.

    Attributes:
        new: how many were enrolled now.
        known: how many were enrolled before, or occurred twice; with `new`, all that were sent.
        total: how many examples the class has now.
        examples: the ids of the new examples, in order, then of the others.
    """

    new: int
    known: int
    total: int
    examples: list[str]
    label: str


class EnrolledClasses(_Message):
    """The result of one call: each class that it named, in order."""

    classes: list[EnrolledClass]


class Forgotten(_Message):
    """How many examples were forgotten.

    `logged_as` replaces the label of a removed class in the audit log from now on; null if no class was
    removed, or the log no longer names it.
    """

    forgotten: int
    logged_as: str | None = None


class GuessedClass(_Message):
    """A class; its probability among all; the squared Euclidean distance from its prototype.

    The service may withhold a value, as null: see serve.config.
    """

    label: str
    probability: float | None
    distance: float | None


class ImageAnswer(_Message):
    """The nearest classes of an image, and whether it belongs to none: null if the model cannot tell.

    It cannot if that was never measured, or, for codes, with other noise than that of the query.
    """

    guesses: list[GuessedClass]
    none_of_these: bool | None


class Answers(_Message):
    """An answer for each image, in order."""

    images: list[ImageAnswer]


Period = Literal["day", "week", "month", "quarter", "year"]


class Shares(_Message):
    """How often a device saw each answer in a period, in L-ths of all; or an alarm, of one label and L = 1.

    Attributes:
        labels: the answers; null for "none of these".
        parts: L.
        per: the period; a device sends one histogram in each.
        histogram: its number among all of L parts, see dp.naming.number_histogram: no message tells more.
    """

    model_config = ConfigDict(extra="forbid")

    labels: Annotated[list[Label | None], Field(min_length=1, max_length=100)]
    parts: Annotated[int, Field(ge=1, le=100)]
    per: Period
    histogram: Annotated[int, Field(ge=0)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(set(self.labels)) < len(self.labels):
            raise ValueError("labels: each answer once")
        self.parts_of_each()
        return self

    def parts_of_each(self) -> list[int]:
        """The parts of each label, whose sum is L. Raises ConfigError if no histogram has the number."""
        return histogram_of(self.histogram, values=len(self.labels), parts=self.parts)


class KeptShares(Shares):
    """What a device sent, under its id; `counts` are the parts of each label."""

    id: str
    key: str
    received: datetime
    counts: list[int]


class AuditLine(_Message):
    """Who changed what, and when."""

    time: datetime
    key: str
    action: str
    classifier: str | None
    label: str | None
    example: str | None
    examples: int


class NewKey(_Message):
    """A key to make.

    `rate` is requests a minute, `quota` examples stored; null for any number. `expires` is the end of the
    key, with a time zone, such as 2027-01-31T00:00:00Z; null for never.
    """

    model_config = ConfigDict(extra="forbid")

    name: Label
    role: Literal["read", "write", "admin"] = "write"
    rate: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    quota: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    expires: AwareDatetime | None = None


class KeyInfo(_Message):
    """A key of the tenant: its rights, and their end; never its secret."""

    id: str
    name: str
    role: str
    rate: int | None
    quota: int | None
    created: datetime
    expires: datetime | None
    revoked: datetime | None


class MadeKey(KeyInfo):
    """A new key, and its secret, which nothing shows again."""

    secret: str
