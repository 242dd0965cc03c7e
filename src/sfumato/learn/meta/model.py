"""The meta-learned model: its use, test and artefact, and the promise on its card."""

import hashlib
import os
from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch
from pydantic import Field, model_validator
from torch import Tensor

from sfumato import artefacts
from sfumato.base.hardware import resolve
from sfumato.data.labelled import Label, LabelledImages
from sfumato.dp.guarantee import round_up
from sfumato.dp.mechanisms import seeded_noise
from sfumato.episodes import Sampler, Shape
from sfumato.errors import ArtefactError, ConfigError
from sfumato.images import to_float
from sfumato.learn.adaptation import Learner, adapt
from sfumato.learn.meta.config import NETWORKS, MetaConfig, config_of
from sfumato.learn.method import Spec, describing, make_portable, protection_of
from sfumato.learn.prototypes import Accuracy
from sfumato.learn.tasks import Frame, Inner, tasks_of
from sfumato.networks.weights import initial_weights, no_larger_than
from sfumato.protect import Protection, parse

_KIND = "meta"


@dataclass(frozen=True)
class MetaModel:
    """Parameters to start from, and the settings of learning a task from them.

    Attributes:
        learner: the network.
        start: (P,) parameters; (2P,) with the rates of Meta-SGD.
        inner: the settings of learning a task in use.
        card: its settings, data digest, privacy spent and its unit.
        frame: for AdaClip, the coordinates in which inner gradients are clipped and noised; else None.
        norms: the clipping norms of the steps of this training, if it had some; a file does not keep them.
    """

    learner: Learner
    start: Tensor
    inner: Inner
    card: dict[str, Any]
    frame: Frame | None = None
    norms: tuple[float, ...] = ()

    def classify(
        self,
        support: Tensor,
        labels: Tensor,
        queries: Tensor,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Learns a task from released images and names others. -> (Q,) int64 labels.

        Queries are normalised together (transductive), so the class of one depends on the others.

        Args:
            support, queries: (N * K, C, H, W) and (Q, C, H, W) uint8 released images.
            labels: (N * K,) int64, from 0 to N - 1.
            generator: of the noise with which a model of Meta-Clip as published learns a task; others have
                no noise. None for torch's own.
        """
        learned = adapt(
            self.learner,
            self.start,
            to_float(support),
            labels,
            self.inner,
            generator=generator,
            frame=self.frame,
        )
        with torch.no_grad():
            return self.learner.logits(learned, to_float(queries)).argmax(1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model as an artefact."""
        frame = {} if self.frame is None else {"shift": self.frame.shift, "scale": self.frame.scale}
        artefacts.save(path, {"start": self.start, **frame}, {"kind": _KIND, **make_portable(self.card)})


class _Card(artefacts.Card):
    config: MetaConfig
    image: artefacts.ImageShape
    spec: Spec = "none"
    made_of: artefacts.Sha256 | None = None
    inner_norm: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _computes_in_bounds(self) -> "_Card":
        if self.config.width is not None:
            artefacts.check_map(self.config.width, self.image)
        return self


def load(path: str | os.PathLike[str]) -> MetaModel:
    """Reads a model that `MetaModel.save` wrote. Raises ArtefactError: damaged, or foreign."""
    tensors, card = artefacts.load(path, kind=_KIND, schema=_Card)
    if "spec" in card:
        card["spec"] = protection_of(card["spec"], card.get("made_of"), path).spec
    with describing(path, _KIND), no_larger_than(tensors):
        config = config_of(card["config"])
        learner = make_untrained(config, tuple(card["image"]))
    size = learner.size * (2 if config.algorithm == "meta-sgd" else 1)
    framed = config.inner_noise is not None and config.inner_noise.clipping == "adaclip"
    shapes = {"start": (size,), **(dict.fromkeys(("shift", "scale"), (learner.size,)) if framed else {})}
    if {name: tuple(each.shape) for name, each in tensors.items()} != shapes:
        raise ArtefactError(f"{path}: damaged: the parameters do not fit the network")
    frame = Frame(tensors["shift"], tensors["scale"]) if framed else None
    return MetaModel(learner, tensors["start"], inner_of_use(config, card.get("inner_norm")), card, frame)


def public_start(config: MetaConfig, image: tuple[int, ...]) -> Tensor:
    """The (D,) parameters of the file that `config.start` names.

    Raises:
        ConfigError: it belongs to another network, algorithm, way or kind of image, or was itself trained on
            private tasks, whose budget this run does not know.
    """
    assert config.start is not None
    model = load(config.start)
    other = config_of(model.card["config"])
    for name in ("network", "width", "algorithm", "way"):
        theirs, ours = getattr(other, name), getattr(config, name)
        if theirs != ours:
            raise ConfigError(f"start={config.start}: its {name} is {theirs}, and here it is {ours}")
    if tuple(model.card["image"]) != tuple(image):
        raise ConfigError(
            f"start={config.start}: its images are {model.card['image']}, and here they are {list(image)}"
        )
    if model.card["privacy"] is not None:
        raise ConfigError(
            f"start={config.start}: it was trained privately, and that cost is not counted here: begin "
            "with a model of public images"
        )
    return model.start


def promise(card: dict[str, Any]) -> str:
    """The promise of a model's card to the tasks of its training, in words."""
    private, noise = card["privacy"], card.get("inner_noise")
    if noise is not None:
        stated = noise["conditional"]["gdp"]
        epsilon = "no finite eps" if stated is None else f"eps = {stated:.3g}"
        return (
            f"nothing is promised: no noise covers {noise['not_covered'][0]} (were all of these public, the "
            f"paper's accounting would state {epsilon})"
        )
    if private is None:
        return "nothing is promised to the images that it was trained on"
    return (
        f"eps = {round_up(private['epsilon'])} at delta = {private['delta']:g} for {private['unit']} "
        f"({private['accountant']}, {card['steps']} steps, noise multiplier {private['noise_multiplier']:g}, "
        f"{private['pool']} tasks); not covered: {'; '.join(private['not_covered'])}"
    )


def evaluate(
    model: MetaModel,
    data: LabelledImages,
    *,
    queries: int = 15,
    episodes: int = 600,
    target: str = "class",
    protection: Protection | None = None,
    seed: int = 0,
) -> Accuracy:
    """Mean accuracy over test tasks of the model's way and shot, images protected once each.

    `data` are clean images of new classes; `protection`: None for that of the training.

    Raises:
        DataError: too few classes or images for a task.
        ConfigError: the model was trained privately, and on classes of these names. Its accuracy on them
            would be an answer about private images that no budget covers.
    """
    _refuse_pool(model.card, data, target)
    config = config_of(model.card["config"])
    protection = parse(model.card["spec"]) if protection is None else protection
    sampler = Sampler(data.label(target), Shape(way=config.way, shot=config.shot, queries=queries))
    rows = sampler.draw(episodes, torch.Generator().manual_seed(seed))
    drawn, tasks = rows.unique(return_inverse=True)
    released = protection.release(data.images[drawn], seeded_noise(seed)).images()
    scores, draws = [], torch.Generator().manual_seed(seed)
    for task in tasks:
        asked = tasks_of(released[task][None], config.shot)
        named = model.classify(asked.support[0], asked.support_labels[0], asked.queries[0], generator=draws)
        scores.append((named == asked.query_labels[0]).double().mean())
    return Accuracy.over(torch.stack(scores), sampler.shape, protection.spec)


def make_untrained(
    config: MetaConfig, image: tuple[int, ...], seed: int = 0, device: torch.device | None = None
) -> Learner:
    """Makes the network of some settings for images of (C, H, W), with weights from `seed`, for a device."""
    channels, height, width = image
    with initial_weights(seed):
        settings = {} if config.width is None else {"width": config.width}
        network = NETWORKS[config.network]((channels, height, width), config.way, **settings)
    return Learner(network, precision=resolve(config.precision, device))


def inner_of_use(config: MetaConfig, clipping_norm: float | None) -> Inner:
    """The settings of learning a task in use."""
    noise = 0.0 if config.inner_noise is None else config.inner_noise.noise_multiplier
    return replace(
        config.inner,
        steps=config.test_steps,
        batches=1,
        clipping_norm=clipping_norm,
        noise_multiplier=noise,
    )


def class_digests(label: Label) -> list[str]:
    """Digests of the names of the classes with images: public, but not for everybody to read."""
    return sorted(
        hashlib.sha256(label.names[code].encode()).hexdigest()[:16] for code in label.codes.unique()
    )


def _refuse_pool(card: dict[str, Any], data: LabelledImages, target: str) -> None:
    """Refuses a test on the classes of a private pool, whose images no budget covers then."""
    if card["privacy"] is None:
        return
    seen = set(class_digests(data.label(target))) & set(card["privacy"]["classes"])
    if seen:
        raise ConfigError(
            f"{len(seen)} classes of {target!r} are among those that the model was privately trained on: how "
            "well it does there is an answer about private images that no budget covers; test on others"
        )
