"""The frame of the methods: cards, inputs and classes of models, and what every training takes.

`train(data, config, ...)` of every method returns a model, and takes, apart from arguments of its own:

- data: clean images to train on; target or targets: the labels to learn.
- validation: other images of the same classes, whose accuracy chooses the best epoch; None for the last one.
- seed: decides weights, order, episodes and noise. The same seed, machine and thread count repeat a run.
- checkpoint, progress: see fit.fit. It raises ArtefactError for the checkpoint of another run.
- device: trains the model, and keeps it; None for the processor, which makes all draws.

Settings of the same name mean the same in all methods:

- epochs, patience: epochs at most; those without a better validation accuracy before training stops.
- episodes_per_epoch, way, shot, queries: of training, N, K and Q of an episode; `validation_` of measuring.
- batch: images a step, at most: an epoch is cut into equal parts.
- learning_rate, halve_every: of Adam, unless said otherwise; the epochs after which it is halved.
- flips, shifts, warps: see learn.augmentation.augment. start: see learn.start. precision: see base.hardware.

A model has a card: its settings, seed, data, accuracy on validation images, and privacy spent. A card says
nothing of the folders of this machine: data is known by its kind and the digest of its images, an artefact
by the name of its file and its digest. A model finds another artefact that it needs in its own folder.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import torch
from pydantic import AfterValidator, Field
from torch import Tensor, nn

from sfumato import artefacts
from sfumato.base.hardware import device_of, resolve, to_device
from sfumato.data.labelled import LabelledImages
from sfumato.episodes import Shape
from sfumato.errors import ArtefactError, ConfigError, DataError, did_you_mean
from sfumato.images import to_float
from sfumato.learn.start import check_start
from sfumato.networks.weights import no_larger_than, take_weights
from sfumato.protect import Protection, parse
from sfumato.protect.release import artefact_digest
from sfumato.protect.spec import check_portable, portable

_M = TypeVar("_M", bound="Model")


def _is_spec(text: str) -> str:
    parse(text)
    return check_portable(text)


Spec = Annotated[str, Field(max_length=4096), AfterValidator(_is_spec)]
Names = Annotated[list[artefacts.Name], Field(min_length=1)]
Count = Annotated[int, Field(ge=0, le=1 << 53)]
Precision = Literal["float32", "bfloat16"]


def source_name(data: LabelledImages) -> str:
    """The name of a source on a card: "folder" for "folder:photos/anna", "faces" for "faces"."""
    kind = data.name.partition(":")[0]
    return "images" if {"/", "\\"} & set(kind) else kind


def training_card(
    data: LabelledImages, config: Any, *, seed: int, device: torch.device | None = None, **more: Any
) -> dict[str, Any]:
    """The training part of a model's card, with `more` of a method's own; of `validation`, the digest."""
    settings = dataclasses.asdict(config)
    if "validation" in more:
        more["validation"] = None if more["validation"] is None else more["validation"].digest
    if "precision" in settings:
        more["precision"] = resolve(config.precision, device)
    return {
        "config": {k: list(v) if isinstance(v, tuple) else v for k, v in settings.items()},
        "shape": list(data.images.shape[1:]),
        "data": {"name": source_name(data), "digest": data.digest, "images": len(data)},
        "seed": seed,
        "privacy_spent": None,  # of the TRAINING images: these methods protect users' images, not these
        **more,
    }


class Episodic:
    """Settings of a training in episodes: their shapes, and the learning rate, which is halved at times."""

    @property
    def episode(self: Any) -> Shape:
        """The shape of a training episode."""
        return Shape(way=self.way, shot=self.shot, queries=self.queries)

    @property
    def validation_episode(self: Any) -> Shape:
        """The shape of a validation episode."""
        return Shape(way=self.validation_way, shot=self.validation_shot, queries=self.validation_queries)

    def rate_at(self: Any, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0."""
        return float(self.learning_rate * 0.5 ** (epoch // self.halve_every))


def check_least(config: Any, **least: int) -> None:
    """Raises ConfigError for settings below their least value, unless None, and for wrong common ones."""
    for name, bound in least.items():
        value = getattr(config, name)
        if value is not None and not bound <= value < math.inf:
            raise ConfigError(f"{name}={value:g}: at least {bound}")
    if not hasattr(config, "learning_rate"):  # a part of a training, or meta-learning
        return
    if not 0 < config.learning_rate < math.inf:
        raise ConfigError(f"learning_rate={config.learning_rate:g}: above 0 (such as 0.001)")
    if hasattr(config, "start"):
        check_start(config.start)
    if hasattr(config, "precision"):
        resolve(config.precision)
    if isinstance(config, Episodic):
        _ = config.episode, config.validation_episode  # a Shape checks itself


def check_known(kind: str, name: str, known: Collection[str]) -> None:
    """Raises ConfigError for a name that is not known."""
    if name not in known:
        raise ConfigError(f"no {kind} is called {name!r}: {did_you_mean(name, known)}")


def finite(number: float) -> float | None:
    """A number for a card, whose file has no infinity: None replaces it, or NaN."""
    return number if math.isfinite(number) else None


def make_portable(card: Mapping[str, Any]) -> dict[str, Any]:
    """A card for saving: its spec without folders."""
    return {key: portable(value) if key == "spec" else value for key, value in card.items()}


def protection_of(spec: str, digest: str | None, path: str | os.PathLike[str]) -> Protection:
    """The protection of a saved spec, with the artefact next to the model, if that has the digest."""
    protection = parse(spec)
    named = getattr(protection, "artefact", None)
    if named is None or digest is None:
        return protection
    beside = Path(path).parent / Path(named).name
    try:
        if "," not in os.fspath(beside) and artefact_digest(os.fspath(beside)) == digest:
            return dataclasses.replace(protection, artefact=os.fspath(beside))  # type: ignore[type-var]
    except ArtefactError:
        pass  # it is missing: its user reports it
    return protection


class Model(nn.Module):
    """The networks of a method, and the card of their training. State: their weights."""

    kind: str  # of its artefact
    card: dict[str, Any]

    def __init__(self, card: dict[str, Any], **parts: nn.Module | Tensor | None) -> None:
        super().__init__()
        self.card = card
        for name, part in parts.items():
            setattr(self, name, part)
        # Measurably faster on a processor, the more so in bfloat16 (benchmarks/episode.py).
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @property
    def classes(self) -> Any:
        """The names of the classes; of several targets, those of each."""
        names = self.card["classes"]
        return {k: tuple(v) for k, v in names.items()} if isinstance(names, dict) else tuple(names)

    @torch.no_grad()
    def infer(self, function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """The result of a function for all rows, in evaluation mode, 256 at a time on the model's device."""
        device = device_of(self.eval())
        return in_batches(lambda part: function(to_device(part, device)).to(rows.device), rows)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model as an artefact."""
        artefacts.save(path, self.state_dict(), {"kind": self.kind, **make_portable(self.card)})


def load_model(
    path: str | os.PathLike[str],
    *,
    kind: str,
    schema: type[artefacts.Card],
    untrained: Callable[[dict[str, Any]], _M],
    cure: str = "",
) -> _M:
    """Reads an artefact into the model that `untrained` makes of its card; ArtefactError for others."""
    tensors, card = artefacts.load(path, kind=kind, schema=schema)
    with describing(path, kind), no_larger_than(tensors):
        model = untrained(card)
    take_weights(model, tensors, path, cure=cure)
    return model.eval()


@contextmanager
def describing(path: str | os.PathLike[str], kind: str) -> Iterator[None]:
    """Wraps making a network by a card that fits its schema. Raises ArtefactError."""
    try:
        yield
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise ArtefactError(
            f"{path}: damaged, or of another version: its card does not describe a {kind}: {error}"
        ) from error


def in_batches(function: Callable[[Tensor], Tensor], rows: Tensor, most: int = 256) -> Tensor:
    """The result of a function for all rows, computed for 256 at a time."""
    return torch.cat([function(part) for part in rows.split(most)])


def as_input(images: Tensor, device: torch.device) -> Tensor:
    """(N, C, H, W) uint8 -> float32 on a device, in the fastest order of memory for convolutions."""
    return to_float(to_device(images, device)).contiguous(memory_format=torch.channels_last)


def check_shape(images: Tensor, shape: Sequence[int], learner: str, source: str = "") -> None:
    """Raises DataError unless images have the (C, H, W) of a model's training."""
    if list(images.shape[1:]) != list(shape):
        given, wanted = ("x".join(map(str, sizes)) for sizes in (images.shape[1:], shape))
        raise DataError(f"{source}images of {given}: this {learner} was trained on {wanted}: resize them")


def count_in_words(classes: int) -> str:
    """Such as "1 class"."""
    return "1 class" if classes == 1 else f"{classes} classes"


def check_apart(data: LabelledImages, targets: Sequence[str], sensitive: Sequence[str], learner: str) -> None:
    """Raises DataError for a label to keep and to remove, under one name or two."""
    for target, name in product(targets, sensitive):
        if data.are_one(target, name):
            alias = "" if name == target else f" under the name {name!r}"
            raise DataError(
                f"{target!r} is a target and sensitive{alias}: a {learner} cannot both keep and remove it"
            )


def classes_of(
    data: LabelledImages, target: str, learner: str, *others: LabelledImages | None
) -> tuple[str, ...]:
    """The names of the classes to learn, ascending by code. DataError for fewer than two, and others."""
    label = data.label(target)
    classes = tuple(label.names[code] for code in data.classes(target).tolist())
    if len(classes) < 2:
        raise DataError(
            f"{data.name}: label {target!r} has {count_in_words(len(classes))} in {len(data)} training "
            f"images, and a {learner} needs at least 2: choose another label, or add images"
        )
    for other in filter(None, others):
        codes_of(other, target, classes, learner)
    return classes


def codes_of(data: LabelledImages, target: str, classes: Sequence[str], learner: str) -> Tensor:
    """(N,) int64, the number in `classes` of the class of each image. Raises DataError for other classes."""
    label = data.label(target)
    number = {name: i for i, name in enumerate(classes)}
    present = [label.names[code] for code in data.classes(target).tolist()]
    foreign = [name for name in present if name not in number]
    if foreign:
        raise DataError(
            f"{data.name}: {len(foreign)} classes of {target!r}, such as {foreign[0]!r}, are in no training "
            f"image: a {learner} is tested on new images of the same classes, so split the data by another "
            "label"
        )
    return torch.tensor([number.get(name, -1) for name in label.names])[label.codes]
