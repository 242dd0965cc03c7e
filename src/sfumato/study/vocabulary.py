"""Every protection, learner, attack, view and measure of a study, once: its name, its words and its look.

The engine, the recommendation, the charts and the report read from here the parts that exist and their names,
so that a new one is a file and a line of this module, or a package that registers it: see
docs/guides/own-parts.md. Nothing here needs PyTorch.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from sfumato.base.registry import Registry
from sfumato.protect import spec as protections
from sfumato.protect.release import KINDS, kind_of

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
GREY, BROWN = "#6b6f76", "#8c564b"

# The kinds of releases.
PIXELS, SHAPE, NUMBERS, BITS, ANSWER = "pixels", "shape", "numbers", "bits", "answer"
RELEASES = (PIXELS, SHAPE, NUMBERS, BITS, ANSWER)
IMAGES = (PIXELS, SHAPE)  # those that people can look at

# The code that trains and tests a learner: objects of study.measure, which need PyTorch.
FEW_SHOT = "sfumato.study.measure.accuracy:FEW_SHOT"
META = "sfumato.study.measure.accuracy:META"
CLASSIFIER = "sfumato.study.measure.accuracy:CLASSIFIER"
ANSWERER = "sfumato.study.measure.accuracy:ANSWERER"
RECOGNISER = "sfumato.study.measure.attack:RECOGNISER"
VALUES = "sfumato.study.measure.attack:VALUES"

GREY_IMAGES = "grey: networks take them as three equal channels"


@dataclass(frozen=True)
class Look:
    """The look of one series, everywhere in a report.

    Colour and mark are those of a protection. Line and fill distinguish learners and adversaries.

    Attributes:
        colour, marker: of its points.
        line: of Matplotlib; "" for points alone.
        fill: how much of a mark is coloured, a fill style of Matplotlib: "full", "left", ..., "none".
    """

    colour: str
    marker: str
    line: Any = ""
    fill: str = "full"


@dataclass(frozen=True)
class ProtectionWords:
    """The words of reports for a protection.

    Attributes:
        title: its name at the head of a chart.
        axes: parameter -> the name of an axis along which it varies, with its unit.
        release: the kind of its release, if its spec names no other; see `release_kind`.
        defaults: parameter -> its value if a spec has none, in words; "default" for others.
        leaves: its release, in a sentence for somebody who knows no spec.
        look: its colour and its mark, which no other protection has; None for one of `SPARE_LOOKS`.
    """

    title: str
    axes: dict[str, str] = field(default_factory=dict)
    release: str = PIXELS
    defaults: dict[str, str] = field(default_factory=dict)
    leaves: str = ""
    look: Look | None = None


# No light colours, which white paper swallows; marks that black and white print keeps apart.
SPARE_LOOKS = (Look(GREY, "8"), Look(GREEN, "H"), Look(PURPLE, "X"), Look(SKY, "s"), Look(BROWN, "o"))

PROTECTIONS = {
    "none": ProtectionWords(
        "No protection",
        leaves="Each image leaves as it is.",
        look=Look(BLACK, "*"),
    ),
    "blur": ProtectionWords(
        "Gaussian blur",
        {"radius": "radius r (pixels)"},
        leaves="Each image leaves blurred.",
        look=Look(BLUE, "o"),
    ),
    "pixelize": ProtectionWords(
        "Pixelization",
        {"cell": "side of a cell b (pixels)"},
        leaves="Each image leaves as a mosaic, each cell of which has one colour.",
        look=Look(VERMILION, "s"),
    ),
    "gaussian": ProtectionWords(
        "Gaussian noise",
        {"sigma": "noise σ (grey levels of 255)"},
        leaves="Each image leaves with noise on every pixel.",
        look=Look(GREEN, "D"),
    ),
    "dp-pix": ProtectionWords(
        "DP-Pix",
        {"cell": "side of a cell b (pixels)", "epsilon": "privacy ε", "pixels": "hidden pixels m"},
        leaves="Each image leaves as a mosaic with noise on every cell.",
        look=Look(PURPLE, "^"),
    ),
    "dp-pix-gaussian": ProtectionWords(
        "DP-Pix, Gaussian",
        {"cell": "side of a cell b (pixels)", "mu": "privacy μ", "pixels": "hidden pixels m"},
        leaves="Each image leaves as a mosaic with noise on every cell.",
        look=Look(PURPLE, "<"),
    ),
    "block": ProtectionWords(
        "Black block",
        {"share": "share of the image's side"},
        leaves="Each image leaves with a black centre.",
        look=Look(GREY, "p"),
    ),
    "centre-blur": ProtectionWords(
        "Blurred centre",
        {"radius": "radius r (pixels)", "share": "share of the image's side"},
        leaves="Each image leaves with a blurred centre.",
        look=Look(BLUE, "h"),
    ),
    "mask": ProtectionWords(
        "Learned mask",
        {"keep": "share of pixels kept", "values": "what is shown", "artefact": "mask"},
        defaults={"values": "hard"},
        leaves="The pixels of each image leave that a trained network chooses.",
        look=Look(ORANGE, "v"),
    ),
    "feature": ProtectionWords(
        "Private feature",
        {"dimension": "numbers released", "noise": "noise ratio r", "artefact": "feature"},
        NUMBERS,
        leaves="In place of an image a few numbers leave, which a trained network computes, and noise.",
        look=Look(SKY, "P"),
    ),
    "code": ProtectionWords(
        "Code",
        {
            "bits": "bits released",
            "numbers": "numbers released",
            "flip": "probability of a lie",
            "noise": "variance of the noise",
            "artefact": "encoder",
        },
        BITS,
        leaves="In place of an image a few bits or numbers leave, which a trained network computes from it.",
        look=Look(BROWN, "X"),
    ),
    "answer": ProtectionWords(
        "The answer alone",
        {"artefact": "classifier"},
        ANSWER,
        leaves="In place of an image the name of its class leaves, by a trained network on the device.",
        look=Look(VERMILION, ">"),
    ),
    "outside": ProtectionWords(
        "Outside tool",
        {"index": "tool"},
        leaves="Each image leaves as another tool made it.",
        look=Look(GREY, "d"),
    ),
}


# The methods that infer an attribute, by their names in records.
INFERRERS = {
    "values": "classifiers of what travelled",
    "network": "a network trained on releases",
}


def release_kind(spec: str) -> str:
    """The kind of a spec's release. For an unknown name: pixels.

    A code without `numbers` makes bits: a study writes that of a file into the spec; see specs.in_full.
    """
    name, _, rest = spec.partition(":")
    own = None if name in PROTECTIONS else protections.PROTECTIONS.get(name)
    if isinstance(getattr(own, "kind", None), property):  # which only an instance has
        return kind_of(protections.parse(spec, takes=KINDS))
    if name == "mask" and "values=shape" in rest.split(","):
        return SHAPE
    if name == "code":
        keys = {part.partition("=")[0] for part in rest.split(",")}
        return NUMBERS if keys & {"numbers", "norm", "noise"} else BITS
    return words_of(name).release


def words_of(name: str) -> ProtectionWords:
    """The words for a protection; one that others registered has its own `words`, or a `kind` alone."""
    if name in PROTECTIONS:
        return PROTECTIONS[name]
    own = protections.PROTECTIONS.get(name)
    kind = getattr(own, "kind", PIXELS)
    words: ProtectionWords = getattr(own, "words", ProtectionWords(name, release=kind))
    return words


@dataclass(frozen=True)
class LearnerWords:
    """One who learns the task from releases.

    Attributes:
        name: in study files.
        words: in a sentence about its accuracy.
        term: its meaning, in the glossary of a report.
        look: of its series; next to a protection in the colour and with the mark of that.
        method: the code that trains and tests it: a cells.Method, or a reference to one.
        releases: the kinds of releases that it takes.
        knows_classes: whether its classes are those of the training images; others are tested on episodes of
            new classes. Accuracies of the two are not comparable.
        trained_on: "clear" images, "released" ones, or the "shape" of a mask alone.
        of_service: whether a service can run it; others show the content of a release.
        default: whether a study has it that names no learners.
    """

    name: str
    words: str
    term: str
    look: Look = Look(GREY, "o", (0, (1, 1)), "none")
    method: object = None
    releases: tuple[str, ...] = IMAGES
    knows_classes: bool = False
    trained_on: str = "released"
    of_service: bool = True
    default: bool = False


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_Words = TypeVar("_Words", bound=_Named)


def _registry(group: str, noun: str, kind: type[_Words], entries: Iterable[_Words]) -> Registry[_Words]:
    """The entries of a kind, and those that others register."""

    def check(name: str, entry: object) -> str:
        if not isinstance(entry, kind):
            return f"it is {type(entry).__name__}: register a vocabulary.{kind.__name__}"
        return "" if entry.name == name else f"it calls itself {entry.name!r}: use one name"

    return Registry(group, noun, check, {entry.name: entry for entry in entries})


LEARNERS: Registry[LearnerWords] = _registry(
    "learners",
    "learner",
    LearnerWords,
    [
        LearnerWords(
            "clean",
            "trained on clean images",
            "A prototypical network trained on clean images only, and tested on protected ones.",
            Look(GREY, "o", (0, (5, 2)), "none"),
            FEW_SHOT,
            trained_on="clear",
            default=True,
        ),
        LearnerWords(
            "protected",
            "trained on protected images",
            "The same network trained and tested on protected images.",
            Look(GREY, "o", "-", "full"),
            FEW_SHOT,
            releases=(PIXELS, SHAPE, NUMBERS, BITS),
            default=True,
        ),
        LearnerWords(
            "denoised",
            "trained jointly with a denoiser",
            "The same network trained on protected images jointly with a denoiser, which restores each image "
            "before it is embedded; tested on protected images.",
            Look(GREY, "o", (0, (6, 1.5, 1.5, 1.5)), "left"),
            FEW_SHOT,
            default=True,
        ),
        LearnerWords(
            "meta",
            "meta-learned on protected images",
            "A network meta-learned on protected images. It learns each task anew, in a few steps on the "
            "support images, and names all queries of a task together, so that what one is called depends on "
            "the others; tested on protected images.",
            Look(GREY, "o", (0, (3, 1.5)), "top"),
            META,
        ),
        LearnerWords(
            "classifier-clean",
            "a classifier trained on clean images",
            "An ordinary network that learned all classes on clean images only; tested on protected images of"
            " them.",
            Look(GREY, "o", (0, (9, 1.5, 3, 1.5)), "none"),
            CLASSIFIER,
            knows_classes=True,
            trained_on="clear",
        ),
        LearnerWords(
            "classifier-protected",
            "a classifier trained on protected images",
            "The same network trained and tested on protected images. It is independent of what made a mask.",
            Look(GREY, "o", (0, (6, 1.5, 1.5, 1.5, 1.5, 1.5)), "full"),
            CLASSIFIER,
            releases=(PIXELS, SHAPE, NUMBERS, BITS),
            knows_classes=True,
        ),
        LearnerWords(
            "classifier-shape",
            "a classifier of the mask's shape alone",
            "The same network shown which pixels a mask reveals, white, and which it hides, black, and "
            "nothing else: what it tells, the shape of the mask tells.",
            Look(GREY, "o", (0, (1.5, 1.5)), "bottom"),
            CLASSIFIER,
            knows_classes=True,
            trained_on="shape",
            of_service=False,
        ),
        # For the protection "answer" alone; no study need name it.
        LearnerWords(
            "answer",
            "the device's own answer",
            "The device classifies, and releases the name of the class: nothing is learned from it.",
            Look(GREY, "o", (0, (2, 1)), "full"),
            ANSWERER,
            releases=(ANSWER,),
            trained_on="clear",
        ),
    ],
)


def classifiers() -> tuple[str, ...]:
    """The learners that know the classes."""
    return tuple(name for name, learner in LEARNERS.items() if learner.knows_classes)


@dataclass(frozen=True)
class View:
    """An adversary's view.

    Attributes:
        name: in records.
        words: after "adversary", in a sentence; "" for the release itself.
        short: for little room; after a comma.
        heading: at the head of a column.
        releases: the kinds of releases with such a view.
    """

    name: str
    words: str
    short: str
    heading: str
    releases: tuple[str, ...] = IMAGES


VIEWS: dict[str, View] = {
    view.name: view
    for view in (
        View("released", "", "", "released", RELEASES),
        View("denoised", " on denoised images", ", on denoised images", "denoised images"),
        View(
            "restored",
            " on images that they restored",
            ", on restored images",
            "restored images",
            (PIXELS, SHAPE, NUMBERS),
        ),
        View("shape", " on the mask's shape", ", on the shape alone", "shape alone"),
        View("values", " on the values that travelled", ", on values", "values", RELEASES),
        View("sorted", " on the values in order of size", ", on sorted values", "sorted values", RELEASES),
        View("fused", " who combines all others", ", all combined", "all combined", RELEASES),
    )
}


@dataclass(frozen=True)
class AttackWords:
    """An adversary who looks for people on releases, or on denoised or restored ones.

    Attributes:
        name: in study files.
        view: a name of VIEWS.
        adaptive: whether their own photographs are protected, and undone, in the same way; or clean (static).
        term: the adversary, for the chapter of a report on attacks.
        method: the code that makes it: a cells.Method, or a reference to one.
        default: whether a study has it that names no attacks.
        needed: the kinds of releases that are never recommended without a try of it.
        fuses: whether it combines all others of a study, so that two must take a release.
    """

    name: str
    view: str
    adaptive: bool
    term: str
    method: object = RECOGNISER
    default: bool = False
    needed: tuple[str, ...] = ()
    fuses: bool = False

    @property
    def words(self) -> str:
        """ "adaptive adversary on denoised images"."""
        return f"{'adaptive' if self.adaptive else 'static'} adversary{VIEWS[self.view].words}"

    @property
    def short(self) -> str:
        """ "adaptive, on denoised images"."""
        return f"{'adaptive' if self.adaptive else 'static'}{VIEWS[self.view].short}"

    @property
    def releases(self) -> tuple[str, ...]:
        """The kinds of releases it can attack: clean photographs are compared with images only."""
        kinds = VIEWS[self.view].releases
        return kinds if self.adaptive else tuple(kind for kind in kinds if kind in IMAGES)


ATTACKS: Registry[AttackWords] = _registry(
    "adversaries",
    "adversary",
    AttackWords,
    [
        AttackWords(
            "reidentify-static",
            "released",
            False,
            "The <em>static</em> adversary knows clean photographs only.",
            default=True,
        ),
        AttackWords(
            "reidentify-adaptive",
            "released",
            True,
            "The <em>adaptive</em> adversary has protected photographs of their own in the same way and "
            "trained on them: this is the one to fear.",
            default=True,
        ),
        AttackWords(
            "reidentify-denoised",
            "denoised",
            False,
            "The static adversary <em>on denoised images</em> looks at what the service’s denoiser makes of "
            "the protected photographs.",
        ),
        AttackWords(
            "reidentify-denoised-adaptive",
            "denoised",
            True,
            "The adaptive one <em>on denoised images</em> passes their own photographs through protection and"
            " denoiser as well.",
        ),
        AttackWords(
            "reidentify-restored",
            "restored",
            False,
            "The static adversary <em>on restored images</em> first undoes what they can by a network of "
            "their own, trained on photographs of other people.",
        ),
        AttackWords(
            "reidentify-restored-adaptive",
            "restored",
            True,
            "The adaptive one <em>on restored images</em> lets such a network undo the protection of their "
            "own photographs as well.",
            default=True,
            needed=IMAGES,
        ),
        # An adversary whose own photographs have no mask has no shapes to compare.
        AttackWords(
            "reidentify-shape",
            "shape",
            True,
            "The adaptive one <em>on the shape alone</em> is shown which pixels a mask reveals, and not what "
            "they are.",
        ),
        AttackWords(
            "reidentify-values",
            "values",
            True,
            "The adaptive one <em>on values</em> has no network: they learn what tells people apart from the "
            "cells, numbers or bits that travelled of others, by PLDA (Brümmer & de Villiers 2010) and by "
            "support vector machines.",
            VALUES,
            default=True,
            needed=RELEASES,
        ),
        AttackWords(
            "reidentify-sorted",
            "sorted",
            True,
            "The adaptive one <em>on the values in order of size</em> reads which values travelled, and not "
            "at which positions: a release that hides people by a secret order hides nothing from them.",
            "sfumato.study.measure.attack:SORTED",
        ),
        AttackWords(
            "reidentify-fused",
            "fused",
            True,
            "The adaptive one <em>who combines all others</em> adds up how alike all the others find a "
            "probe and a person (Caruana et al. 2004); the weights for one half of the people were chosen on "
            "the other half.",
            "sfumato.study.measure.attack:FUSED",
            default=True,
            fuses=True,
        ),
    ],
)
# The looks of the strongest of each kind, next to a protection in the colour and with the mark of that.
ADVERSARY_LOOKS = {"static": Look(GREY, "o", (0, (5, 2)), "none"), "adaptive": Look(GREY, "o", "-")}

# The ways to compare embeddings, by the words of records; studies of earlier versions have "linear".
IDENTIFIERS = {
    "svm": "SVM",
    "linear": "linear",
    "1-nn": "1-nn",
    "mean": "nearest-mean",
    "discriminant": "discriminant",
    "table": "counting",
    "rbf": "Gaussian-kernel SVM",
    "plda": "PLDA",
    "plda-rbf": "PLDA and Gaussian-kernel SVM",
    "cosine": "cosine",
    "fusion": "sum-of-scores",
}


@dataclass(frozen=True)
class MeasureWords:
    """How much of an image is left in a view of it.

    Attributes:
        name: in study files.
        words: in a report.
        form: of its value, "{:.2f}" say.
        term: its meaning, in the glossary of a report.
        function: of float images and their counterparts, (N, C, H, W) each, to (N,), or a reference to it;
            None for a measure by the recogniser of the adversary.
        default: whether a study has it that names no measures.
        beside_pictures: whether it stands there; not if another one already says the same.
    """

    name: str
    words: str
    form: str
    term: str
    function: object = None
    default: bool = True
    beside_pictures: bool = True


MEASURES: Registry[MeasureWords] = _registry(
    "measures",
    "measure",
    MeasureWords,
    [
        MeasureWords(
            "ssim",
            "SSIM",
            "{:.2f}",
            "Structural similarity (Wang et al. 2004): Gaussian window with σ = 1.5, data range 1. Equal "
            "images have 1.",
            "sfumato.assess.similarity:ssim",
        ),
        MeasureWords(
            "psnr",
            "PSNR",
            "{:.1f} dB",
            "Peak signal-to-noise ratio in dB, of each image, then averaged; infinite for equal images, and "
            "then left empty.",
            "sfumato.assess.similarity:psnr",
        ),
        MeasureWords(
            "mse",
            "MSE",
            "{:.3f}",
            "Mean squared error of values in [0, 1].",
            "sfumato.assess.similarity:mse",
            beside_pictures=False,
        ),
        MeasureWords(
            "face-similarity",
            "face similarity",
            "{:.2f}",
            "Mean cosine between the embeddings of a test image and of what was made of it, by the "
            "adversary’s recogniser of clean photographs; 1 for equal images. Beside it, what test images of "
            "two people have. Faces are cut out where they are on the original.",
            default=False,
        ),
    ],
)


@dataclass(frozen=True)
class ReconstructionWords:
    """A method that rebuilds images.

    Attributes:
        name: in study files.
        words: at the head of a table.
        term: the method, in the chapter of a report on reconstruction.
        releases: the kinds of releases it can rebuild from.
    """

    name: str
    words: str
    term: str
    releases: tuple[str, ...]


RECONSTRUCTIONS: Registry[ReconstructionWords] = _registry(
    "reconstructions",
    "reconstruction",
    ReconstructionWords,
    [
        ReconstructionWords(
            "invert-feature",
            "Feature inversion",
            "A decoder, trained on releases of other people’s images, draws the image that the numbers came "
            "from (Dosovitskiy & Brox 2016).",
            (NUMBERS,),
        ),
    ],
)
