"""What recognisers see: public weights, stolen embeddings, and the order that people have."""

import statistics
from typing import Any

from pydantic import Field

from results_page.figures import Interval, mean_of
from results_page.reading import Record, read, read_all
from sfumato.proportions import wilson
from sfumato.study.estimates import classifier_in_words

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


class Learned(Record):
    """One setting of the learned measure, each kind of distortion left out: agreement, and how far ahead."""

    agreement: dict[str, Agreed]
    ahead: Interval
    off: float


class Unlearned(Record):
    """A distance of equal weights, as it is."""

    agreement: dict[str, Agreed]
    ahead: Interval
    behind_chosen: list[Interval]


class LearnedRun(Record):
    """All settings, and the chosen, of one seed."""

    seed: int
    settings: dict[str, Learned]


class LearnedMeasure(Record):
    """The record of studies/people_learned.py."""

    images: dict[str, int]
    size: int
    runs: list[LearnedRun]
    distances: dict[str, Unlearned]

    @property
    def settings(self) -> list[str]:
        """Their names."""
        return list(self.runs[0].settings)

    def kendall(self, setting: str, experiment: str = "all") -> Interval:
        """With people, on average over seeds; so are the ends of the interval, which is over conditions."""
        return mean_of([run.settings[setting].agreement[experiment].kendall for run in self.runs])

    @property
    def least(self) -> float:
        """The lowest agreement of any setting within a kind of distortion, but for turned photographs."""
        return min(
            found.kendall.value
            for run in self.runs
            for setting in run.settings.values()
            for name, found in setting.agreement.items()
            if name not in ("all", "rotation")
        )

    def ahead(self, setting: str) -> Interval:
        """Of the unweighted distance, on average over seeds."""
        return mean_of([run.settings[setting].ahead for run in self.runs])

    def off(self, setting: str) -> float:
        """How far the probability is from the share that people recognised, on average over conditions."""
        return statistics.mean(run.settings[setting].off for run in self.runs)


class Asked(Record):
    """A judge on clean images."""

    name: str
    right: int
    trials: int

    @property
    def share(self) -> float:
        """That is right."""
        return self.right / self.trials


class Judges(Record):
    """The record of studies/judges.py."""

    size: int
    least_right: float
    least_judges: int
    tests: dict[str, list[Asked]]
    judges: dict[str, list[str]]
    left_out: list[str]


class Score(Record):
    """How often a classifier names people."""

    top1: float
    low: float
    high: float

    @property
    def named(self) -> Interval:
        """The share with its interval."""
        return Interval(value=self.top1, low=self.low, high=self.high)


class Strongest(Score):
    """The same of the strongest of several, which is named."""

    classifier: str

    @property
    def words(self) -> str:
        """The classifier, as reports call it."""
        return classifier_in_words(self.classifier)


class Point(Strongest):
    """At one value of what an adversary has."""

    at: int = Field(alias="value")
    flat: bool | None = None


class Compared(Record):
    """Classifiers of scikit-learn on the releases of one protection, and ours on their values."""

    outsiders: dict[str, Score]
    ours: Strongest

    @property
    def best(self) -> tuple[str, Score]:
        """The strongest of scikit-learn, and its name."""
        return max(self.outsiders.items(), key=lambda named: named[1].top1)


class Outsiders(Record):
    """A record of studies/outsiders.py."""

    study: str
    seed: int
    protections: dict[str, Compared]
    seconds: float

    @property
    def ahead(self) -> list[str]:
        """The protections of which scikit-learn names more, intervals apart."""
        return [spec for spec, each in self.protections.items() if each.best[1].low > each.ours.high]

    @property
    def most(self) -> int:
        """How many classifiers and readings a protection has met, at most."""
        return max(len(each.outsiders) for each in self.protections.values())


class Saturation(Record):
    """A record of studies/saturation.py: one world, and one of steps, copies and gallery."""

    world: str
    knob: str
    curves: dict[str, list[Point]]
    seed: int
    seconds: float

    @property
    def asked(self) -> list[int]:
        """The values, ascending."""
        return [point.at for point in next(iter(self.curves.values()))]

    @property
    def gains(self) -> list[float]:
        """What each protection's figure rises by, from the last value but one to the last."""
        return [curve[-1].top1 - curve[-2].top1 for curve in self.curves.values()]


def values() -> dict[str, Any]:
    """What templates may use."""
    stored = read_all("stored", Stored)
    return {
        "networks": read("face-networks", Networks),
        "stored": [[record for record in stored if (record.world, record.spec) == pair] for pair in STORED],
        "pooled": pooled,
        "saturation": read_all("saturation", Saturation),
        "outsiders": read_all("outsiders", Outsiders),
        "learned": read("people/learned", LearnedMeasure),
        "judges": read("judges", Judges),
        "people": {name: read(f"people/{name}", People) for name in MEASURES},
    }
