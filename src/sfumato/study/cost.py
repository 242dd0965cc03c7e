"""How long a study takes: the work of every cell, and the cost of a unit of each kind of work.

A forecast, not a measurement: training that stops early is counted in full. `benchmarks/forecast.py` measures
the constants; a core that trains a Conv-4 twice as fast takes half of them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sfumato.study.cells import Cell
from sfumato.study.parts import kinds
from sfumato.study.specs import Untrained
from sfumato.study.vocabulary import ATTACKS, CLASSIFIER, FEW_SHOT, IMAGES, LEARNERS, META, release_kind

if TYPE_CHECKING:
    from sfumato.episodes import Shape
    from sfumato.study.grid import StudyConfig

_RISING = 0.6  # of a classifier's epochs beyond its patience are trained: 28 of 40 in the median of a demo
_SAME_SCENES = 410  # images of the same scenes in each step: none in the first fifth, then 16 people in 32
SIDE = 64  # of the images that the constants count; work grows with pixels

STEP = 0.0024  # seconds of one core for an image that a Conv-4 is trained on, beside another such core
# Kind of work -> seconds of one core a unit, see `units`.
SECONDS: Mapping[str, float] = {
    "classifier": 0.0036,
    "few-shot": 0.0022,
    "denoised": 0.0028,
    "meta": 0.0022,  # as few-shot: no demo has it
    "code": 0.0052,
    "mask": 0.0057,
    "feature": 0.0014,
    "recogniser": 0.0025,
    "restorer": 0.02,
    "restored": 0.0032,
    "inverter": 0.0023,
    "shown": 0.0017,
    "values": 0.00033,
    "fused": 0.0,  # too little to measure
    "many": 0.00017,
    "tells": 0.000032,
    "ranks": 0.0007,
    "similarity": 0.0002,
    "cell": 0.05,
}
# The kinds of training, which the device of a study does. The rest is work of cores.
TRAINED = {"classifier", "few-shot", "denoised", "meta", "code", "mask", "feature"}
TRAINED |= {"recogniser", "restorer", "inverter"}


@dataclass(frozen=True)
class Sizes:
    """The size of everything that a study looks at.

    Attributes:
        side: of the images: the root of their pixels.
        train, validation, test: how many images.
        compared: photographs of the gallery, and probes.
        further: all pictures of the people to look for.
        labels: how many the data has.
    """

    side: float
    train: int
    validation: int
    test: int
    compared: int
    further: int
    labels: int

    @property
    def pixels(self) -> float:
        """The pixels of an image, in images of 64x64."""
        return (self.side / SIDE) ** 2


def seconds(
    work: Mapping[str, float],
    *,
    speed: float = 1.0,
    encoder: float = 0.0,
    processes: int = 1,
    card: float | None = None,
) -> float:
    """Seconds for some work.

    Args:
        work: see `units`.
        speed: of a core, in cores that measured the constants.
        encoder: seconds of the device that trains for one image through the pretrained encoder.
        processes: that share the work, a core each.
        card: speed of a GPU that trains for all of them in turn, in such cores; None if the cores train.
    """
    trained = sum(amount * SECONDS[kind] for kind, amount in work.items() if kind in TRAINED)
    rest = sum(amount * SECONDS[kind] for kind, amount in work.items() if kind not in {*TRAINED, "encoder"})
    encoded = work.get("encoder", 0.0) * encoder
    if card is None:
        return ((trained + rest) / speed + encoded) / processes
    return trained / card + encoded + rest / speed / processes


def units(config: "StudyConfig", sizes: Sizes) -> Iterator[tuple[Cell, dict[str, float]]]:
    """Each cell with its kinds of work; the first cell counts the networks that several share.

    The unit is an image of 64x64 that a network is trained on once ("classifier", "few-shot", "denoised",
    "meta", "code", "mask", "feature", "recogniser", "restorer", "inverter") or that is released and looked at
    ("shown", "restored", "values", "many", "tells", "ranks", "similarity"); a fusion; the rest of a cell;
    and an image through a frozen encoder ("encoder").
    """
    made: set[tuple[object, ...]] = set()
    for cell in kinds.cells(config):
        work: Counter[str] = Counter({"cell": 1.0})
        for needed, amounts in _parts(config, sizes, cell):
            if not needed or needed not in made:
                work.update(amounts)
            if needed:
                made.add(needed)
        yield cell, dict(work)


_Parts = Iterator[tuple[tuple[object, ...], dict[str, float]]]


def _parts(config: "StudyConfig", sizes: Sizes, cell: Cell) -> _Parts:
    """The parts of a cell: shared ones under a key, its own under ()."""
    spec = cell.protection
    if isinstance(recipe := config.named[spec], Untrained):
        made = str(recipe.settings(config))  # one feature serves all noise, one mask all it shows
        yield ("artefact", made, cell.seed), _artefact(config, sizes, recipe.name)
        if recipe.name == "code" and not is_frozen(config.codes.encoder):
            images = _of_codes(config, sizes, config.codes.pretraining_epochs)
            yield ("pretraining", cell.seed), {"code": images}
    everything = sizes.train + sizes.validation + sizes.test
    match cell.kind:
        case "accuracy":
            yield from _learner(config, sizes, cell)
        case "attack":
            yield from _attack(config, sizes, cell)
        case "many":
            yield (), {"many": sizes.further, "shown": sizes.further * sizes.pixels}
        case "inference":
            seen = release_kind(spec) in IMAGES
            yield (), _classifier(config, sizes) if seen else {"tells": everything}
        case "tells":
            yield (), {"tells": sizes.labels * everything}
        case "log-rank":
            yield (), {"ranks": sizes.compared * config.adversary.copies}
        case "similarity":
            yield (), {"similarity": sizes.test * sizes.pixels}
        case "reconstruction":
            yield ("undoer", spec, cell.seed), _undoer(config, sizes, spec)


def _learner(config: "StudyConfig", sizes: Sizes, cell: Cell) -> _Parts:
    """The images a learner is trained on, once for each protection that it sees; and its test."""
    name = cell.subject
    learner, spec = LEARNERS[name], cell.protection
    if learner.method not in (
        FEW_SHOT,
        META,
        CLASSIFIER,
    ):  # the answer, or somebody's own
        yield (), {"shown": sizes.test * sizes.pixels}
        return
    if release_kind(spec) not in IMAGES:
        yield (), {"tells": sizes.train + sizes.validation + sizes.test}
        return
    seen = "none" if learner.trained_on == "clear" else spec
    training, meta = config.training, config.meta
    if learner.method == CLASSIFIER:
        made = _classifier(config, sizes)
    elif learner.method == META:
        images = meta.steps * meta.tasks * _images(meta.shape) * (meta.inner_steps + 1)
        made = {"meta": images * sizes.pixels}
    elif is_frozen(training.encoder) and name != "denoised":
        made = {"encoder": sizes.train + sizes.validation}
    else:
        images = training.epochs * training.episodes_per_epoch * _images(training.episode)
        made = {"denoised" if name == "denoised" else "few-shot": images * sizes.pixels}
    yield (learner.method, learner.trained_on, name == "denoised", seen, cell.seed), made
    yield (), {"shown": sizes.test * sizes.pixels}


def _classifier(config: "StudyConfig", sizes: Sizes) -> dict[str, float]:
    classifier = config.classifier
    if is_frozen(classifier.network):
        return {"encoder": sizes.train * (1 + classifier.flips) + sizes.validation}
    patient = max(0, classifier.epochs - classifier.patience)
    epochs = min(classifier.epochs, classifier.patience) + _RISING * patient
    return {"classifier": epochs * sizes.train * sizes.pixels}


def _artefact(config: "StudyConfig", sizes: Sizes, recipe: str) -> dict[str, float]:
    """The images a protection is trained on. The answer is that of a learner."""
    if recipe == "code":
        codes = config.codes
        if is_frozen(codes.encoder):
            return {"encoder": sizes.train * (1 + codes.flips) + sizes.validation}
        epochs = codes.epochs - codes.pretraining_epochs
        return {"code": _of_codes(config, sizes, epochs, further=_SAME_SCENES if codes.same_scenes else 0)}
    if recipe == "mask":
        return {"mask": config.masks.epochs * sizes.train * sizes.pixels}
    if recipe == "feature":
        features = config.features
        epochs = features.attribute_epochs + features.simple_epochs + features.private_epochs
        return {"feature": epochs * sizes.train * sizes.pixels}
    return {}


def _of_codes(config: "StudyConfig", sizes: Sizes, epochs: int, *, further: int = 0) -> float:
    """The images of some epochs of a code, with `further` in each step."""
    codes = config.codes
    images = epochs * codes.episodes_per_epoch * (_images(codes.episode) + further)
    return images * (sizes.pixels if codes.side is None else (codes.side / SIDE) ** 2)


def _attack(config: "StudyConfig", sizes: Sizes, cell: Cell) -> _Parts:
    """The networks an adversary trains; and their comparisons."""
    spec, kind, adversary = cell.protection, ATTACKS[cell.subject], config.adversary
    if kind.fuses:
        yield (), {"fused": sizes.compared}
        return
    if kind.view in ("values", "sorted"):
        yield (), {"values": sizes.train + sizes.compared * adversary.copies}
        return
    further = adversary.adaptive_steps * adversary.batch
    seen = sizes.compared
    if kind.adaptive:  # fresh noise each time it sees an image
        noisy = getattr(config.named[spec], "draws_noise", False)
        seen = sizes.compared * (adversary.copies if noisy else 1) + (further if noisy else sizes.train)
    if kind.view == "restored":
        yield ("undoer", spec, cell.seed), _undoer(config, sizes, spec)
        if release_kind(spec) in IMAGES:
            yield (), {"restored": seen * sizes.pixels}
    elif release_kind(spec) not in IMAGES:
        yield (), {"tells": sizes.compared}
        return
    yield ("recogniser", cell.seed), {"recogniser": adversary.steps * adversary.batch * sizes.pixels}
    if kind.adaptive:
        yield (), {"recogniser": further * sizes.pixels}
    yield (), {"shown": seen * sizes.pixels}


def _undoer(config: "StudyConfig", sizes: Sizes, spec: str) -> dict[str, float]:
    """The network that undoes a protection."""
    if release_kind(spec) in IMAGES:
        return {"restorer": config.restoration.steps * config.restoration.batch * sizes.pixels}
    return {"inverter": config.inversion.steps * config.inversion.batch * sizes.pixels}


def _images(episode: "Shape") -> int:
    return episode.way * (episode.shot + episode.queries)


def is_frozen(encoder: str) -> bool:
    """See `pretrained.is_frozen`; PyTorch is imported here, and not with this module."""
    from sfumato.networks.encoders import pretrained

    return pretrained.is_frozen(encoder)
