"""What recognisers see: public weights, stolen embeddings, and the order that people have."""

from typing import Any

from pydantic import Field

from results_page.figures import Interval
from results_page.reading import Record, read, read_all
from sfumato.proportions import wilson

MEASURES = ("mse", "psnr", "ssim", "squeezenet", "semsim")
STORED = tuple(
    (world, spec)
    for world in ("faces", "lfw")
    for spec in ("none", "pixelize:cell=4", "dp-pix:cell=4,epsilon=3")
)


class Verified(Record):
    """Whether two photographs show one person."""

    accuracy: float
    standard_error: float
    auc: float
    tar: float = Field(alias="tar_at_far_1e-3")


class Landmarks(Record):
    """How far found landmarks are off, in pixels."""

    mean: float


class Detection(Record):
    """Of faces in crops."""

    central_face_found: float
    landmark_error_pixels: Landmarks


class Faces(Record):
    """MobileFaceNet and MTCNN."""

    images: int
    pairs: int
    verification: dict[str, Verified]
    detection: Detection


class Shots(Record):
    """Few-shot accuracy, and half its 95% interval."""

    accuracy: float
    half_width: float = Field(alias="half_width_95%")


class Networks(Record):
    """The record of studies/faces_networks.py."""

    faces: Faces
    objects: dict[str, int | Shots]
    seed: int
    seconds: float

    @property
    def shots(self) -> dict[str, Shots]:
        """SqueezeNet on objects, by size and task."""
        return {name: each for name, each in self.objects.items() if isinstance(each, Shots)}


class Counted(Record):
    """Hits of an attack."""

    hits: int
    trials: int


class Names(Record):
    """Of an example and of a prototype."""

    example: Counted
    prototype: Counted


class Alike(Record):
    """Of a rebuilt image to an original."""

    ssim: float


class Rebuilt(Names):
    """Images rebuilt of vectors, and the recogniser on originals."""

    alike: Alike
    by_chance: Alike = Field(alias="by chance")
    originals: Counted


class Membership(Record):
    """Which photograph is enrolled."""

    nearer: Counted
    found: Counted


class Stored(Record):
    """A record of studies/stored.py."""

    world: str
    spec: str
    seed: int
    people: int
    identity: Names
    inversion: Rebuilt
    membership: Membership
    seconds: float


def pooled(counted: list[Counted]) -> Interval:
    """A share over all records, with its interval."""
    hits, trials = sum(each.hits for each in counted), sum(each.trials for each in counted)
    return Interval(hits / trials, *wilson(hits, trials))


class Agreed(Record):
    """A measure's order with that of people, of one distortion."""

    kendall: Interval
    models: int


class People(Record):
    """The record of a measure of studies/people.py."""

    metric: str
    agreement: dict[str, Agreed]
    images: int
    seed: int


def values() -> dict[str, Any]:
    """What templates may use."""
    stored = read_all("stored/*.json", Stored)
    return {
        "networks": read("face-networks.json", Networks),
        "stored": [[record for record in stored if (record.world, record.spec) == pair] for pair in STORED],
        "pooled": pooled,
        "people": {name: read(f"people/{name}.json", People) for name in MEASURES},
    }
