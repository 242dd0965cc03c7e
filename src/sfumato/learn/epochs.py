"""Epochs of training on classes that are all known: which was best, and where to go on after a stop."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from sfumato import artefacts
from sfumato.data.labelled import LabelledImages
from sfumato.errors import ArtefactError, DataError
from sfumato.learn.cards import Checkpoint
from sfumato.networks.weights import no_larger_than, take_weights

_Model = TypeVar("_Model", bound=nn.Module)


class Carded(Protocol):
    """A network with a card of how it was made."""

    card: dict[str, Any]

    def state_dict(self) -> dict[str, Tensor]:
        """All that it is."""

    def load_state_dict(self, state_dict: dict[str, Tensor]) -> Any:
        """Become another."""


class Epochs:
    """Epochs of training on one model. State: weights, optimiser, accuracies, and the best weights so far.

    Attributes:
        done: how many epochs are finished.
    """

    def __init__(
        self,
        model: Carded,
        parameters: Sequence[nn.Parameter],
        *,
        kind: str,
        rate: float,
        optimiser: torch.optim.Optimizer | None = None,
    ) -> None:
        """Train `parameters` by `optimiser`, or by Adam at a rate; of checkpoints only `kind` is taken."""
        self.done = 0
        self._model = model
        self._kind = kind
        self._parameters = list(parameters)
        self._optimiser = optimiser or torch.optim.Adam(self._parameters, lr=rate, fused=True)
        self._best = {k: v.clone() for k, v in model.state_dict().items()}
        self._accuracies: list[float] = []

    @property
    def stale(self) -> int:
        """How many epochs ago the best one was; 0 where nothing was validated."""
        return self.done - 1 - self._accuracies.index(max(self._accuracies)) if self._accuracies else 0

    def step(self, rate: float | None = None) -> None:
        """Follow the gradients that are there, from now on at `rate`; parameters without are left alone."""
        for group in self._optimiser.param_groups if rate is not None else ():
            group["lr"] = rate
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)

    def finish(self, accuracy: float | None) -> None:
        """Note the validation accuracy, and the weights where it is the best so far, or there is none."""
        self.done += 1
        if accuracy is not None:
            self._accuracies.append(accuracy)
        if accuracy is None or self.stale == 0:
            self._best = {k: v.clone() for k, v in self._model.state_dict().items()}

    def take_best(self) -> None:
        """Give the model its best weights, and its card what is known of them."""
        self._model.load_state_dict(self._best)
        self._model.card["epochs"] = self.done
        self._model.card["validation_accuracy"] = max(self._accuracies, default=None)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint, whole or not at all."""
        tensors = {f"model.{k}": v for k, v in self._model.state_dict().items()}
        tensors |= {f"best.{k}": v for k, v in self._best.items()}
        tensors |= optimiser_state(self._optimiser, self._parameters)
        progress = {"epoch": self.done, "accuracies": self._accuracies}
        artefacts.save(path, tensors, {"kind": self._kind, "run": self._identity(), **progress})

    def resume(self, path: str | os.PathLike[str]) -> None:
        """Go on from a checkpoint. Raises ArtefactError for that of another run."""
        tensors, card = artefacts.load(path, kind=self._kind, schema=Checkpoint)
        check_run(path, card["run"], self._identity())
        with resuming(path):
            best = under("best.", tensors)
            self._model.load_state_dict(best)  # as a check: it is needed at the end
            self._model.load_state_dict(under("model.", tensors))
            set_optimiser_state(self._optimiser, self._parameters, tensors)
            self._best, self.done, self._accuracies = best, card["epoch"], card["accuracies"]

    def _identity(self) -> Any:
        """What must be equal for a checkpoint to go on as this run, as JSON gives it back."""
        return json.loads(json.dumps(self._model.card))


def check_run(path: str | os.PathLike[str], run: Any, identity: Any) -> None:
    """Raise ArtefactError where a checkpoint is not of the run that is to go on."""
    if run != identity:
        raise ArtefactError(f"{path}: the checkpoint of another run: delete it, or name another file")


@contextmanager
def resuming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Around what takes a checkpoint's numbers. Raises ArtefactError where they do not fit."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
        raise ArtefactError(f"{path}: damaged: start anew, or from an older checkpoint") from error


def load_model(
    path: str | os.PathLike[str],
    *,
    kind: str,
    schema: type[artefacts.Card],
    untrained: Callable[[dict[str, Any]], _Model],
) -> _Model:
    """Read a model whose card says all that an untrained one of its settings is made of.

    Args:
        path: of the artefact.
        kind: of the artefact.
        schema: of its card.
        untrained: card -> a model to load the weights into.

    Raises:
        ArtefactError: damaged, foreign, or of another kind.
    """
    tensors, card = artefacts.load(path, kind=kind, schema=schema)
    with describing(path, kind), no_larger_than(tensors):
        model = untrained(card)
    take_weights(model, tensors, path)
    return model.eval()


@contextmanager
def describing(path: str | os.PathLike[str], kind: str) -> Iterator[None]:
    """Around the making of a network by a card that fits its schema. Raises ArtefactError."""
    try:
        yield
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise ArtefactError(
            f"{path}: damaged, or of another version: its card is of no {kind}: {error}"
        ) from error


def optimiser_state(
    optimiser: torch.optim.Optimizer, parameters: Sequence[nn.Parameter]
) -> dict[str, Tensor]:
    """What an optimiser remembers of each parameter, under names for a checkpoint."""
    return {
        f"optimiser.{i}.{k}": v
        for i, parameter in enumerate(parameters)
        for k, v in optimiser.state[parameter].items()
    }


@torch.no_grad()
def set_optimiser_state(
    optimiser: torch.optim.Optimizer, parameters: Sequence[nn.Parameter], tensors: dict[str, Tensor]
) -> None:
    """Give an optimiser back what `optimiser_state` wrote."""
    for i, parameter in enumerate(parameters):
        # The fused optimiser walks through memory: its state must lie as the parameter does.
        optimiser.state[parameter] = {
            k: torch.empty_like(parameter).copy_(v) if v.shape == parameter.shape else v.to(parameter.device)
            for k, v in under(f"optimiser.{i}.", tensors).items()
        }


def under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Those tensors whose names begin so, without it."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def classes_of(data: LabelledImages, target: str, learner: str) -> tuple[str, ...]:
    """The names of the classes to learn, ascending by code. Raises DataError for fewer than two."""
    label = data.label(target)
    classes = tuple(label.names[code] for code in data.classes(target).tolist())
    if len(classes) < 2:
        raise DataError(
            f"{data.name}: label {target!r} has {len(classes)} classes in {len(data)} training images, and a "
            f"{learner} needs at least 2 to tell apart: choose another label, or add images"
        )
    return classes


def codes_of(data: LabelledImages, target: str, classes: Sequence[str], learner: str) -> Tensor:
    """(N,) int64, the place in `classes` of the class of each image. Raises DataError for other classes."""
    label = data.label(target)
    place = {name: i for i, name in enumerate(classes)}
    foreign = [label.names[code] for code in data.classes(target).tolist() if label.names[code] not in place]
    if foreign:
        raise DataError(
            f"{data.name}: {len(foreign)} classes of {target!r}, such as {foreign[0]!r}, are in no training "
            f"image: a {learner} is tested on new images of the same classes, so split the data by another "
            "label"
        )
    return torch.tensor([place.get(name, -1) for name in label.names])[label.codes]
