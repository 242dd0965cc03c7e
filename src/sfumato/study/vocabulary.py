"""Every protection, learner, attack, view and measure of a study, once: its name, its words and its look.

The engine, the recommendation, the charts and the report read from here the parts that exist and their names,
so that a new one is a file and a line of this module, or a package that registers it: see
docs/guides/own-parts.md. Nothing here needs PyTorch.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

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
_ADVERSARIES = "sfumato.study.measure.attack"
RECOGNISER, VALUES, STUDENT = (f"{_ADVERSARIES}:{name}" for name in ("RECOGNISER", "VALUES", "STUDENT"))

GREY_IMAGES = "grey: networks take them as three equal channels"


@dataclass(frozen=True)
class Look:
    """The look of one series in a report: colour and mark of a protection, line and fill of who uses it."""

    colour: str
    marker: str
    line: Any = ""  # of Matplotlib; "" for points alone
    fill: str = "full"  # how much of a mark is coloured, a fill style of Matplotlib: "left", "none", ...


@dataclass(frozen=True)
class ProtectionWords:
    """The words of reports for a protection."""

    title: str  # at the head of a chart
    axes: dict[str, str] = field(default_factory=dict)  # parameter -> the axis it varies along, with unit
    release: str = PIXELS  # the kind of its release, if its spec names no other; see `release_kind`
    defaults: dict[str, str] = field(default_factory=dict)  # parameter -> its value if a spec has none
    leaves: str = ""  # its release, in a sentence for somebody who knows no spec
    look: Look | None = None  # its colour, and its mark alone; None for one of `SPARE_LOOKS`


# No light colours, which white paper swallows; marks that black and white print keeps apart.
SPARE_LOOKS = (Look(GREY, "8"), Look(GREEN, "H"), Look(PURPLE, "X"), Look(SKY, "s"), Look(BROWN, "o"))

_CELL, _RADIUS, _SIDE = "side of a cell b (pixels)", "radius r (pixels)", "share of the image's side"
_CODE_AXES = {"bits": "bits released", "numbers": "numbers released", "flip": "probability of a lie"}
_CODE_AXES |= {"noise": "variance of the noise", "artefact": "encoder"}
_DP_PIX_AXES = {"cell": _CELL, "pixels": "hidden pixels m"}
# Title, look and axes; and the release in a sentence.
_PROTECTIONS: dict[str, tuple[str, Look, dict[str, str]]] = {
    "none": ("No protection", Look(BLACK, "*"), {}),
    "blur": ("Gaussian blur", Look(BLUE, "o"), {"radius": _RADIUS}),
    "pixelize": ("Pixelization", Look(VERMILION, "s"), {"cell": _CELL}),
    "gaussian": ("Gaussian noise", Look(GREEN, "D"), {"sigma": "noise σ (grey levels of 255)"}),
    "dp-pix": ("DP-Pix", Look(PURPLE, "^"), {"epsilon": "privacy ε", **_DP_PIX_AXES}),
    "dp-pix-gaussian": ("DP-Pix, Gaussian", Look(PURPLE, "<"), {"mu": "privacy μ", **_DP_PIX_AXES}),
    "block": ("Black block", Look(GREY, "p"), {"share": _SIDE}),
    "centre-blur": ("Blurred centre", Look(BLUE, "h"), {"radius": _RADIUS, "share": _SIDE}),
    "mask": (
        *("Learned mask", Look(ORANGE, "v")),
        {"keep": "share of pixels kept", "values": "what is shown", "artefact": "mask"},
    ),
    "feature": (
        *("Private feature", Look(SKY, "P")),
        {"dimension": "numbers released", "noise": "noise ratio r", "artefact": "feature"},
    ),
    "code": ("Code", Look(BROWN, "X"), _CODE_AXES),
    "answer": ("The answer alone", Look(VERMILION, ">"), {"artefact": "classifier"}),
    "avatar": ("Avatar", Look(SKY, "H"), {"bits": "bits shown", "artefact": "encoder"}),
    "outside": ("Outside tool", Look(GREY, "d"), {"index": "tool"}),
}
_LEAVES = {
    "none": "Each image leaves as it is.",
    "blur": "Each image leaves blurred.",
    "pixelize": "Each image leaves as a mosaic, each cell of which has one colour.",
    "gaussian": "Each image leaves with noise on every pixel.",
    "dp-pix": "Each image leaves as a mosaic with noise on every cell.",
    "dp-pix-gaussian": "Each image leaves as a mosaic with noise on every cell.",
    "block": "Each image leaves with a black centre.",
    "centre-blur": "Each image leaves with a blurred centre.",
    "mask": "The pixels of each image leave that a trained network chooses.",
    "feature": "In place of an image a few numbers leave, which a trained network computes, and noise.",
    "code": "In place of an image a few bits or numbers leave, which a trained network computes from it.",
    "answer": "In place of an image the name of its class leaves, by a trained network on the device.",
    "avatar": "In place of an image a drawn face leaves, which few bits or the answer of a network decide.",
    "outside": "Each image leaves as another tool made it.",
}
_RELEASED = {"feature": NUMBERS, "code": BITS, "answer": ANSWER}  # others release pixels
PROTECTIONS = {
    name: ProtectionWords(
        *(title, axes, _RELEASED.get(name, PIXELS)),
        defaults={"values": "hard"} if name == "mask" else {},
        leaves=_LEAVES[name],
        look=look,
    )
    for name, (title, look, axes) in _PROTECTIONS.items()
}


# The methods that infer an attribute, by their names in records.
INFERRERS = {"values": "classifiers of what travelled", "network": "a network trained on releases"}


def release_kind(spec: str) -> str:
    """The kind of a spec's release. For an unknown name: pixels.

    A code without `numbers` makes bits: a study writes that of a file into the spec; see `in_full`.
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
    by_name = ProtectionWords(name, release=getattr(own, "kind", PIXELS))
    words: ProtectionWords = getattr(own, "words", by_name)
    return words


@dataclass(frozen=True)
class LearnerWords:
    """One who learns the task from releases."""

    name: str  # in study files
    words: str  # in a sentence about its accuracy
    term: str  # its meaning, in the glossary of a report
    look: Look = Look(GREY, "o", (0, (1, 1)), "none")  # in the colour and with the mark of a protection
    method: object = None  # trains and tests it: a cells.Method, or a reference to one
    releases: tuple[str, ...] = IMAGES  # the kinds of releases that it takes
    knows_classes: bool = False  # of the training images; others, whose accuracies differ, learn new ones
    trained_on: str = "released"  # images, or "clear" ones, or the "shape" of a mask alone
    of_service: bool = True  # whether a service can run it; others show the content of a release
    default: bool = False  # whether a study has it that names no learners


def _registry(group: str, noun: str, kind: type[Any], entries: Iterable[Any]) -> Registry[Any]:

    def check(name: str, entry: Any) -> str:
        if not isinstance(entry, kind):
            return f"it is {type(entry).__name__}: register a vocabulary.{kind.__name__}"
        return "" if entry.name == name else f"it calls itself {entry.name!r}: use one name"

    return Registry(group, noun, check, {entry.name: entry for entry in entries})


# The lines and fills of learners, in their order.
_LINES: tuple[tuple[Any, str], ...] = (
    ((0, (5, 2)), "none"),
    ("-", "full"),
    ((0, (6, 1.5, 1.5, 1.5)), "left"),
    ((0, (3, 1.5)), "top"),
    ((0, (1, 2)), "right"),
    ((0, (9, 1.5, 3, 1.5)), "none"),
    ((0, (6, 1.5, 1.5, 1.5, 1.5, 1.5)), "full"),
    ((0, (1.5, 1.5)), "bottom"),
    ((0, (2, 1)), "full"),
)
_few_shot = partial(LearnerWords, method=FEW_SHOT, default=True)
_classifier = partial(LearnerWords, method=CLASSIFIER, knows_classes=True)
_LEARNERS = (
    _few_shot(
        *("clean", "trained on clean images"),
        "A prototypical network trained on clean images only, and tested on protected ones.",
        trained_on="clear",
    ),
    _few_shot(
        *("protected", "trained on protected images"),
        "The same network trained and tested on protected images.",
        releases=(PIXELS, SHAPE, NUMBERS, BITS),
    ),
    _few_shot(
        *("denoised", "trained jointly with a denoiser"),
        "The same network trained on protected images jointly with a denoiser, which restores each image "
        "before it is embedded; tested on protected images.",
    ),
    LearnerWords(
        *("meta", "meta-learned on protected images"),
        "A network meta-learned on protected images. It learns each task anew, in a few steps on the "
        "support images, and names all queries of a task together, so that what one is called depends on "
        "the others; tested on protected images.",
        method=META,
    ),
    LearnerWords(
        *("meta-open", "meta-learned without a promise"),
        "The same without the promise to the training images that the settings of meta-learning name.",
        method=META,
    ),
    _classifier(
        *("classifier-clean", "a classifier trained on clean images"),
        "An ordinary network that learned all classes on clean images only; tested on protected images of "
        "them.",
        trained_on="clear",
    ),
    _classifier(
        *("classifier-protected", "a classifier trained on protected images"),
        "The same network trained and tested on protected images. It is independent of what made a mask.",
        releases=(PIXELS, SHAPE, NUMBERS, BITS),
    ),
    _classifier(
        *("classifier-shape", "a classifier of the mask's shape alone"),
        "The same network shown which pixels a mask reveals, white, and which it hides, black, and "
        "nothing else: what it tells, the shape of the mask tells.",
        trained_on="shape",
        of_service=False,
    ),
    LearnerWords(  # for the protection "answer" alone; no study need name it
        *("answer", "the device's own answer"),
        "The device classifies, and releases the name of the class: nothing is learned from it.",
        method=ANSWERER,
        releases=(ANSWER,),
        trained_on="clear",
    ),
)
LEARNERS: Registry[LearnerWords] = _registry(
    *("learners", "learner", LearnerWords),
    (replace(each, look=Look(GREY, "o", *line)) for each, line in zip(_LEARNERS, _LINES, strict=True)),
)


@dataclass(frozen=True)
class View:
    """An adversary's view."""

    name: str  # in records
    words: str  # after "adversary", in a sentence; "" for the release itself
    short: str  # for little room; after a comma
    heading: str  # of a column
    releases: tuple[str, ...] = IMAGES  # the kinds with such a view


_VIEWS = (
    View("released", "", "", "released", RELEASES),
    View("denoised", " on denoised images", ", on denoised images", "denoised images"),
    View(
        *("restored", " on images that they restored", ", on restored images", "restored images"),
        (PIXELS, SHAPE, NUMBERS),
    ),
    View("student", " whose network learned to see through it", ", by a student", "by a student", IMAGES),
    View("shape", " on the mask's shape", ", on the shape alone", "shape alone"),
    View("values", " on the values that travelled", ", on values", "values", RELEASES),
    View("sorted", " on the values in order of size", ", on sorted values", "sorted values", RELEASES),
    View("fused", " who combines all others", ", all combined", "all combined", RELEASES),
)
VIEWS = {view.name: view for view in _VIEWS}


@dataclass(frozen=True)
class AttackWords:
    """An adversary who looks for people on releases, or on denoised ones."""

    name: str  # in study files
    view: str  # of VIEWS
    adaptive: bool  # whether their photographs are protected in the same way; or clean (static)
    term: str  # the adversary, for the chapter of a report on attacks
    method: object = RECOGNISER  # a cells.Method, or a reference to one; None if only kept records have it
    default: bool = False  # whether a study has it that names no attacks
    costly: bool = False  # whether it has it so on an accelerator alone
    needed: tuple[str, ...] = ()  # the kinds of releases that are never recommended without a try of it
    fuses: bool = False  # whether it combines all others of a study, so that two must take a release

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
        kinds = VIEWS[self.view].releases if self.method is not None else ()
        return kinds if self.adaptive else tuple(kind for kind in kinds if kind in IMAGES)


# A view, and adaptive or not. Nobody is static on values, nor on shapes: clean photographs have none.
_ATTACKS = {
    "static": "The <em>static</em> adversary knows clean photographs only.",
    "adaptive": "The <em>adaptive</em> adversary has protected photographs of their own in the same way and "
    "trained on them: this is the one to fear.",
    "denoised": "The static adversary <em>on denoised images</em> looks at what the service’s denoiser makes "
    "of the protected photographs.",
    "denoised-adaptive": "The adaptive one <em>on denoised images</em> passes their own photographs through "
    "protection and denoiser as well.",
    "restored": "The static adversary <em>on restored images</em> first undoes what they can by a network.",
    "restored-adaptive": "The adaptive one <em>on restored images</em> lets one undo their own. Both left.",
    "student": "The adaptive one <em>whose network learned to see through it</em> trains all layers of "
    "a network to give, from a protected photograph, what it gives of the clear one, and compares it with "
    "protected photographs.",
    "shape": "The adaptive one <em>on the shape alone</em> is shown which pixels a mask reveals, and not "
    "what they are.",
    "values": "The adaptive one <em>on values</em> has no network: they learn what tells people apart from "
    "the cells, numbers or bits that travelled of others, by PLDA (Brümmer & de Villiers 2010) and by "
    "support vector machines.",
    "sorted": "The adaptive one <em>on the values in order of size</em> reads which values travelled, and "
    "not at which positions: a release that hides people by a secret order hides nothing from them.",
    "fused": "The adaptive one <em>who combines all others</em> adds up how alike all the others find a "
    "probe and a person (Caruana et al. 2004); the weights for one half of the people were chosen on the "
    "other half.",
}
_BY_DEFAULT = ("static", "adaptive", "values", "fused")
_NEEDED = {"adaptive": IMAGES, "values": RELEASES}
_METHODS = {
    **{"values": VALUES, "sorted": f"{_ADVERSARIES}:SORTED", "fused": f"{_ADVERSARIES}:FUSED"},
    **{"student": STUDENT, "restored": None},
}


def _attack(name: str, term: str) -> AttackWords:
    view = name.removesuffix("-adaptive")
    return AttackWords(
        f"reidentify-{name}",
        view if view in VIEWS else "released",
        name.endswith("adaptive") or view in ("student", "shape", "values", "sorted", "fused"),
        term,
        _METHODS.get(view, RECOGNISER),
        default=name in _BY_DEFAULT,
        costly=name == "student",
        needed=_NEEDED.get(name, ()),
        fuses=view == "fused",
    )


ATTACKS: Registry[AttackWords] = _registry(
    "adversaries", "adversary", AttackWords, (_attack(*words) for words in _ATTACKS.items())
)

# The ways to compare embeddings, by the words of records; studies of earlier versions have "linear".
IDENTIFIERS = {
    **{"svm": "SVM", "mean": "nearest-mean", "table": "counting", "fusion": "sum-of-scores"},
    **{"rbf": "Gaussian-kernel SVM", "plda": "PLDA", "plda-rbf": "PLDA and Gaussian-kernel SVM"},
}


@dataclass(frozen=True)
class MeasureWords:
    """How much of an image is left in a view of it."""

    name: str  # in study files
    words: str  # in a report
    form: str  # of its value, "{:.2f}" say
    term: str  # its meaning, in the glossary of a report
    # Takes float images and their counterparts, (N, C, H, W) each, to (N,); or a reference to it. None for a
    function: object = None  # measure by the recogniser of the adversary.
    default: bool = True  # whether a study has it that names no measures
    beside_pictures: bool = True  # whether it stands there; not if another one already says the same
    of_file: bool = False  # whether "NAME:FILE" names it, and its function takes the file to such a function


_MEASURES = (
    MeasureWords(
        *("ssim", "SSIM", "{:.2f}"),
        "Structural similarity (Wang et al. 2004): Gaussian window with σ = 1.5, data range 1. Equal images "
        "have 1.",
        "sfumato.assess.similarity:ssim",
    ),
    MeasureWords(
        *("psnr", "PSNR", "{:.1f} dB"),
        "Peak signal-to-noise ratio in dB, of each image, then averaged; infinite for equal images, and then "
        "left empty.",
        "sfumato.assess.similarity:psnr",
    ),
    MeasureWords(
        *("mse", "MSE", "{:.3f}", "Mean squared error of values in [0, 1].", "sfumato.assess.similarity:mse"),
        beside_pictures=False,
    ),
    MeasureWords(
        *("face-similarity", "face similarity", "{:.2f}"),
        "Mean cosine between the embeddings of a test image and of what was made of it, by the adversary’s "
        "recogniser of clean photographs; 1 for equal images. Beside it, what test images of two people "
        "have. Faces are cut out where they are on the original.",
        default=False,
    ),
    MeasureWords(
        *("semsim", "SemSim", "{:.2f}"),
        "Mean distance from the original by a trained network, low if the content leaks and 0 for equal "
        "images; by a network of this study, which a recogniser judged in place of people, unless it names "
        "the file of one.",
        "sfumato.assess.semsim:measure",
        default=False,
        of_file=True,
    ),
)
MEASURES: Registry[MeasureWords] = _registry("measures", "measure", MeasureWords, _MEASURES)
JUDGED = {"face-similarity", "semsim"}  # by the adversary's recogniser


def split_measure(named: str) -> tuple[str, str]:
    """ "semsim:FILE", as a study names a measure, -> "semsim" and "FILE"; the file is "" if it has none."""
    name, _, file = named.partition(":")
    return (name, file) if name in MEASURES and MEASURES[name].of_file else (named, "")


@dataclass(frozen=True)
class ReconstructionWords:
    """A method that rebuilds images."""

    name: str  # in study files
    words: str  # at the head of a table
    term: str  # the method, in the chapter of a report on reconstruction
    releases: tuple[str, ...]  # the kinds it can rebuild from


_INVERT = ReconstructionWords(
    *("invert-feature", "Feature inversion"),
    "A decoder, trained on releases of other people’s images, draws the image that the numbers came from "
    "(Dosovitskiy & Brox 2016).",
    (NUMBERS,),
)
RECONSTRUCTIONS = _registry("reconstructions", "reconstruction", ReconstructionWords, [_INVERT])


# The protections that a study names. A spec without `artefact=`, such as "mask:keep=0.1,0.25", names those to
# train on the study's training images: each leaves an artefact that `sfumato protect` takes.
RECIPES: Registry[Any] = Registry(
    *("recipes", "protection to train", lambda name, recipe: ""),
    {
        name: f"sfumato.study.lab.trained:{name.title()}Recipe"
        for name in ("mask", "feature", "code", "answer", "avatar")
    },
)


def expand(spec: str) -> list[Any]:
    """The protections of a spec of a study, whose keys may list values. Raises SpecError."""
    name, _, rest = spec.strip().partition(":")
    keys = {part.partition("=")[0].strip() for part in rest.split(",") if "=" in part}
    if name in RECIPES and "artefact" not in keys:
        return protections.expand_as(spec, RECIPES)
    return protections.expand(spec, takes=KINDS)


def is_recipe(named: Any) -> bool:
    """Whether a study trains a protection: whether it is a lab.trained.Recipe."""
    return hasattr(named, "with_artefact")


def in_full(named: Any) -> Any:
    """A protection whose spec tells the kind of its release: that of a code of numbers has their count.

    Raises ArtefactError if the file of a code is missing, damaged or foreign.
    """
    from sfumato.protect.code import Code, load_encoder

    if not isinstance(named, Code) or named.bits or named.numbers:
        return named
    encoder = load_encoder(named.artefact)
    return named if encoder.bits else replace(named, numbers=encoder.dimension)


def learners_of(config: Any, spec: str) -> list[str]:
    """The learners that a study, a grid.StudyConfig, trains for a protection.

    On clear images all few-shot learners would be the clean one, as classifiers would. The device's own
    answer leaves nothing to learn.
    """
    kind = release_kind(spec)
    if kind == "answer":
        return ["answer"]
    wanted = config.learners
    if spec == "none":
        classify = {"classifier-clean", "classifier-protected"}.intersection(wanted)
        # Methods of their own, as meta-learning, have no other learner of clear images.
        others = [name for name in wanted if LEARNERS[name].method not in (FEW_SHOT, CLASSIFIER)]
        return [*["clean"] * config.episodic, *["classifier-clean"] * bool(classify), *others]
    return [
        name
        for name in wanted
        if kind in LEARNERS[name].releases and (LEARNERS[name].trained_on != "shape" or has_shape(spec))
    ]


def attacks_of(config: Any, spec: str) -> list[str]:
    """The attacks that a study makes on a protection: a single one has nothing to fuse with.

    On clear images there is nothing to adapt to, but on a board they are the control of every adversary.
    """
    if config.task.sensitive is None:
        return []
    wanted = set(config.attacks)
    if spec == "none" and not config.board:
        wanted &= {"reidentify-static"}
    if "denoised" not in learners_of(config, spec):
        wanted = {name for name in wanted if ATTACKS[name].view != "denoised"}
    elif "reidentify-static" in wanted:
        wanted.add("reidentify-denoised")
    kind, shape = release_kind(spec), has_shape(spec)
    wanted = {name for name in wanted if shape or ATTACKS[name].view != "shape"}
    made = [name for name, attack in ATTACKS.items() if name in wanted and kind in attack.releases]
    alone = [name for name in made if not ATTACKS[name].fuses]
    return made if len(alone) > 1 else alone


def views_of(config: Any, spec: str) -> list[str]:
    """The views of a protection's images: released or denoised."""
    kind = release_kind(spec)
    views = ["released"] if kind in IMAGES else []
    if spec != "none" and "denoised" in learners_of(config, spec):
        views.append("denoised")
    return views


def has_shape(spec: str) -> bool:
    """Whether a protection shows some pixels and hides others, and says which."""
    return spec.partition(":")[0] == "mask"
