"""The results of cells, by kind: the types in records. Reports read them without PyTorch."""

import math
import re
from typing import Annotated

import pydantic
from pydantic import Field

from sfumato.assess.hits import Hits, Means
from sfumato.dp.naming.period import bound_posterior
from sfumato.study.vocabulary import MEASURES

CANDIDATES = (100, 1_000, 10_000, 1_000_000)  # equally likely people, besides those on the test images
_PICTURE = re.compile(r"data:image/png;base64,[A-Za-z0-9+/]+=*")


class Model(pydantic.BaseModel):
    """A part of a record. It keeps keys that it does not name: other versions have other keys."""

    model_config = pydantic.ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)


def _picture(uri: str) -> str:
    if not _PICTURE.fullmatch(uri):
        raise ValueError("a picture is not a PNG data: URI")
    return uri


# A report shows pictures as they are recorded: nothing else may be there.
Picture = Annotated[str, pydantic.AfterValidator(_picture)]


class Guarantee(Model):
    """The guarantee of differential privacy for a release; see dp.guarantee."""

    text: str
    definition: str | None = None
    value: float | None = None
    whole_image: float | None = None
    source: str | None = None


class Promise(Model):
    """The promise of a meta-learned model to its training images; see learn.meta."""

    promise: str  # in words; without a promise the others are None
    clipping: str | None = None  # the policy
    epsilon: float | None = None  # of `unit`; None if the policy is not covered
    delta: float | None = None
    rdp: float | None = None  # by the other accountants
    gdp_approximation: float | None = None
    image_epsilon: float | None = None  # of an image that is in several tasks; None if no bound is known
    epsilon_if_the_norm_were_public: float | None = None  # its hypothetical value, if it is not covered
    unit: str | None = None  # whose price ε is
    not_covered: list[str] = Field(default_factory=list)  # the exceptions

    @pydantic.model_validator(mode="after")
    def _is_whole(self) -> "Promise":
        needed = {"clipping", "epsilon", "delta", "unit", "not_covered"}
        if len(self.model_fields_set) > 1 and not needed <= self.model_fields_set:
            raise ValueError(f"it has no {min(needed - self.model_fields_set)!r}")
        return self


class Half(Model):
    """An accuracy on one half of the test images, with its 95% interval."""

    accuracy: float
    low: float
    high: float


class Served(Half):
    """A service's answers on test images, with the training images enrolled."""

    accepted_right: float | None = None  # right without "none of these"; None if it refuses nothing


class Accuracy(Model):
    """How often a learner names the target correctly from releases.

    The 95% interval is over episodes, for learners of new classes, or over test images, for learners that
    know the classes.
    """

    accuracy: float
    half_width: float | None = None  # of the interval over episodes
    episodes: int | None = None
    low: float | None = None  # of the interval over images
    high: float | None = None
    images: int | None = None
    chance: float | None = None  # the share of the commonest class
    accepted_right: float | None = None  # the share that a service names correctly without "none of these"
    accepted_right_half_width: float | None = None
    served: Served | None = None  # if classes are known beforehand; for bits and numbers
    train_seconds: float | None = None
    precision: str | None = None
    operations: int | None = None  # multiply-adds of a query
    curve: tuple[float, ...] = ()  # validation accuracy after each epoch of training, for few-shot learners
    halves: tuple[Half, Half] | tuple[()] = ()  # on two halves of the test images; none in older records
    privacy: Promise | None = None  # of a model to its training images
    hits: tuple[float, ...] = ()  # of each test person, if the study compares groups of them
    probes: tuple[float, ...] = ()  # the same: how often their images were asked

    @pydantic.model_validator(mode="after")
    def _has_an_interval(self) -> "Accuracy":
        over_images = (self.low, self.high, self.images, self.chance)
        if None in over_images and None in (self.half_width, self.episodes):
            raise ValueError(
                "it has neither half_width and episodes nor low, high, images and chance of its interval"
            )
        return self


class Score(Model):
    """How often one way to compare releases is right; top-1 with its 95% interval over people."""

    classifier: str  # the same for all seeds
    top1: float
    low: float
    high: float
    top5: float | None = None
    top10: float | None = None
    hits: tuple[float, ...] | None = None  # of each of the people; None if only their sum is known
    log_rank: tuple[float, float, float] | None = None  # with its 95% interval; None in older records
    reading: str = ""  # the part that it read of a release, if it chose; as "2x2 means"


class Trained(Model):
    """The training of a network of the adversary; see attack.saturation.Training."""

    network: str
    steps: int  # taken
    ceiling: int  # possible
    figure: str | None = None  # validated on held-out people; None if nobody could be held out
    curve: tuple[tuple[int, float], ...] = ()  # steps, and the figure then
    flat: bool | None = None  # whether it had stopped rising before the ceiling
    minutes: float | None = None  # the budget, if it ended the training


class Believed(Model):
    """How sure an adversary is, by calibrated probabilities; see assess.identity. Empty in older records."""

    bits: tuple[float, ...] = ()  # of identity, the mean of each person
    surest: tuple[float, ...] = ()  # right ones of the surest hundredth of all namings, by the person shown
    surest_of: tuple[int, ...] = ()  # and all of these


class Attack(Believed):
    """How often one adversary names the person on a release."""

    scores: Annotated[list[Score], Field(min_length=1)]  # of each of their classifiers
    chance: float  # of the best guess without looking
    identities: int  # people to name
    gallery: int | None = None  # known photographs
    others: int | None = None  # people to learn from; None in older records
    probes: int | None = None  # photographs to name
    people: tuple[int, ...] | None = None  # how many probes show each person, in the order of their names
    faces_found: float | None = None  # the share of probes in which a detector found a face
    verification_auc: float | None = None  # of one photograph of the gallery and one probe
    trained: tuple[Trained, ...] = ()  # networks that this study trained; none in older records

    @property
    def had(self) -> Means:
        """What the adversary had."""
        known = None if self.gallery is None else self.gallery / self.identities
        return Means(self.identities, known, self.others)


class Point(Believed):
    """The risk from n releases of one person."""

    releases: int  # n
    named: tuple[float, ...]  # per person: tries that name them, by the adversary whom the other half chose
    tries: tuple[int, ...]  # of each person
    chosen: tuple[str, str]  # that adversary, by the first half and by the second
    by_adversary: dict[str, float]  # the share of each, of all people
    accepted: float  # sets accepted as the right person's, at 1 in 100 false acceptances
    linked: tuple[float, ...]  # per person: tries that link labels of two services, n releases each
    panel: int | None = None  # people to choose from, if others are looked for than with the first number
    known: int | None = None  # pictures of each in a gallery, likewise


class Many(Model):
    """How naming grows with the number of releases of one person; see attack.sets."""

    points: tuple[
        Point, ...
    ]  # by rising n, of the same people unless they say so; none if fewer than four have two pictures
    panel: int  # people to choose from; guessing is right in 1/panel
    known: int | None = None  # pictures of each in a gallery; None in older records, as the next
    others: int | None = None  # people to learn from
    pictures: int  # of each person, some in a gallery and some to be named
    enough: dict[int, int]  # number of releases -> how many of `able` people have enough pictures for it
    able: int  # people who have two pictures, in two scenes
    stopped: bool = False  # of kept records: larger numbers were skipped, since smaller ones name too many


class LogRank(Model):
    """Log-rank privacy against the strongest of three adversaries; see assess.log_rank.LogRank."""

    lrp: float
    low: float  # of its 95% interval over people
    high: float
    guessing: float  # that of blind guessing
    strongest: str  # the adversary
    features: int  # releases to name
    identities: int  # people to choose from
    images: int  # test images for the accuracy
    chance: float  # the share of their commonest class
    accuracy: float | None = None  # of the feature's own classifier; codes have no classifier


class Similarity(Model):
    """How much of an image is left in a view of it: means by measure, None for infinite ones."""

    images: int
    bytes_per_image: int | None = None  # that travel; for releases alone, as is the guarantee
    guarantee: Guarantee | None = None

    @property
    def measures(self) -> dict[str, float | None]:
        """Name -> mean."""
        means = self.model_extra or {}
        return {name: means[name] for name in MEASURES if name in means}


class Pictures(Model):
    """Pictures of the same images in each list; None for no such view."""

    original: list[Picture]
    released: list[Picture]
    denoised: list[Picture] | None


class Example(Model):
    """An image, and its release: an image, or words for bits, numbers and the name of a class."""

    original: Picture
    released: Picture | None = None
    words: str = ""


class Examples(Model):
    """Some test images and their releases by the recommended setting, for the first screen of a report."""

    examples: tuple[Example, ...]


class Naming(Model):
    """A bound on anybody's chance to name the person on one release, on average over people."""

    candidates: int
    at_most: float
    source: str | None = None


class Proved(Model):
    """The proof for one release, and the number of its outputs; photographs count how rare one is alone."""

    release: str  # its kind
    bytes_per_image: int | None  # that travel
    guarantee: Guarantee | None = None  # None without differential privacy
    outputs: int | None = None  # how many different releases there are; None for too many to count
    naming: tuple[Naming, ...] = ()  # for each number of people; none without a proof
    people: int | None = None  # on the test images; None in older records
    artefact: str | None = None  # the file of a protection that the study trained
    rarest: float = 0.0  # the least chance of an output among other people, a 95% lower end; 0 if unknown
    likeliest: float = 1.0  # the largest chance of an output, of any image: below 1 by noise
    reference: int | None = None  # these people, one photograph of each

    def surest(self, people: int) -> float | None:
        """How sure of one of N people anybody can be after any release; None if nothing is proved."""
        bound = bound_posterior(people, self.rarest, self.likeliest)
        return bound if bound < 1 else None

    @property
    def asked(self) -> list[int]:
        """The numbers of people to bound it for."""
        own = [] if self.people is None else [self.people]
        return sorted({*CANDIDATES, *own, *(each.candidates for each in self.naming)})

    @property
    def bits(self) -> float | None:
        """The most bits of identity of one release, by proof: log2 F, if naming is at most F times a guess.

        Mutual information is at most the maximal leakage (Issa, Wagner & Kamath 2020). F grows with N.
        """
        proved = [each for each in self.naming if each.candidates == CANDIDATES[-1] and each.at_most < 1]
        ends = [math.log2(each.candidates * each.at_most) for each in proved]
        return min(ends + ([math.log2(self.outputs)] if self.outputs else []), default=None)

    @property
    def nothing_among(self) -> int | None:
        """The most people for whom nothing is proved; None if something is for each number.

        Among more people nobody is named more often: a proof for few holds for many.
        """
        fewest = min((each.candidates for each in self.naming if each.at_most < 1), default=None)
        return max((count for count in self.asked if fewest is None or count < fewest), default=None)


class Checks(Model):
    """The effects of a protection of a board on test images, besides the figures of adversaries."""

    milliseconds: float  # the median time for one image on this machine
    bytes_of_image: int
    bytes_declared: int  # of a release by its own word
    bytes_most: int  # of the longest release
    unchanged: float  # the share of images that are released as they are
    repeats: bool  # whether releases with the same noise are equal, and those without noise always are
    depends: float  # the share of images whose release depends on other images of the batch; 0 with noise
    # Whether the release is of a type that sfumato does not know, or of another spec: then the bytes that
    # travel may differ from the numbers that adversaries read.
    own_type: bool
    images: int


class Told(Model):
    """How often one label is inferred correctly, with a 95% interval over people; over images without any."""

    accuracy: float
    low: float
    high: float
    guessing: float  # the share of the commonest class
    classes: int
    images: int
    adversary: str  # the kind of classifier that was best on images of its own
    hits: tuple[float, ...] = ()  # right answers of each person, or of each image without a secret
    probes: tuple[float, ...] = ()  # images of each
    people: int | None = None  # in records without these two

    @property
    def counted(self) -> Hits:
        """Its hits; if only their sum is known, each person counts as one probe."""
        trials = self.people or self.images
        alike = (self.accuracy,) * trials, (1.0,) * trials
        return Hits(*((self.hits, self.probes) if self.probes else alike), seeds=1)


class Tells(Model):
    """How well a release tells every label of the data set."""

    labels: dict[str, Told]


class Inference(Attack):
    """How often an adversary infers an attribute of the people on test images; its identities are classes."""

    probes: int  # test images
    people: tuple[int, ...]  # how many images show each person, in the order of their names


class Reconstruction(Model):
    """An adversary's reconstructions of test images: means by measure, None for infinite ones."""

    measures: dict[str, float | None]
    images: int
    originals: tuple[Picture, ...] = ()  # some of them; none if a study wants no pictures
    pictures: tuple[Picture, ...] = ()


RESULTS: dict[str, type[Model]] = {
    "accuracy": Accuracy,
    "attack": Attack,
    "many": Many,
    "log-rank": LogRank,
    "similarity": Similarity,
    "pictures": Pictures,
    "examples": Examples,
    "proved": Proved,
    "checks": Checks,
    "tells": Tells,
    "inference": Inference,
    "reconstruction": Reconstruction,
}
