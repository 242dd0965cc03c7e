"""The training loop of every method: epochs of batches, a judge, the best weights, a file to resume from.

A method brings its networks, the batches of an epoch, and a step: what follows the gradients of its losses by
`Run.update`. `fit` does the rest. Nothing in here knows what is learned.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from sfumato import artefacts
from sfumato.base import memory
from sfumato.base.placement import device_of, fuses
from sfumato.errors import ArtefactError
from sfumato.learn.cards import Checkpoint

_Batch = TypeVar("_Batch")

# What is called with the numbers of steps, or of epochs, done and planned.
Progress = Callable[[int, int], None]
StrPath = str | os.PathLike[str]
Optimiser = Callable[[list[nn.Parameter]], torch.optim.Optimizer]

_GIVEN_BACK = (
    30.0  # seconds after which what a training keeps of freed memory is given back; it grows otherwise
)


def adam(rate: float) -> Optimiser:
    """Adam at a learning rate; at a share of it for parameters that have one, see networks.pretrained."""

    def make(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        groups: dict[float, list[nn.Parameter]] = {}
        for parameter in parameters:
            groups.setdefault(getattr(parameter, "share_of_rate", 1.0), []).append(parameter)
        return torch.optim.Adam(
            [{"params": own, "lr": rate * share, "share": share} for share, own in groups.items()],
            fused=fuses(parameters),
        )

    return make


class Run:
    """A training under way. State: weights, optimiser, the validation curve, and the best weights so far.

    Attributes:
        model: in training.
        parameters: all that are trained; not those that are frozen.
        device: where they are.
        epoch: how many epochs are finished.
        curve: what the judge said after each of them; empty where nothing is validated.
    """

    def __init__(
        self,
        model: nn.Module,
        optimiser: Optimiser,
        *,
        kind: str,
        identity: Mapping[str, Any],
        beside: nn.Module | None = None,
        device: torch.device | None = None,
    ) -> None:
        """Prepare to train.

        Args:
            model: to train.
            optimiser: makes one of all parameters, such as `adam`.
            kind: of its checkpoints.
            identity: what must be equal for a checkpoint to go on as this run: settings, data, seed.
            beside: layers that are trained with the model and left out of it in the end, such as an
                adversary. No name of theirs begins with "model", "best" or "optimiser".
            device: where to train; None for where the model is.
        """
        self.model = model if device is None else model.to(device)
        self.device = device_of(model)
        self._beside = nn.Module() if beside is None else beside.to(self.device)
        every = [*model.parameters(), *self._beside.parameters()]
        self.parameters = [parameter for parameter in every if parameter.requires_grad]
        self.epoch = 0
        self.curve: list[float] = []
        self._optimiser = optimiser(self.parameters)
        self._kind = kind
        self._identity = json.loads(json.dumps(identity))  # as a checkpoint gives it back
        self._best: dict[str, Tensor] | None = None  # None for those that the model has

    @property
    def stale(self) -> int:
        """How many epochs ago the best one was; 0 where nothing was validated."""
        return len(self.curve) - 1 - self.curve.index(max(self.curve)) if self.curve else 0

    @property
    def outcome(self) -> dict[str, Any]:
        """What a card says of the epochs."""
        return {"epochs": self.epoch, "validation_accuracy": max(self.curve, default=None)}

    def set_rate(self, rate: float) -> None:
        """Change the learning rate."""
        for group in self._optimiser.param_groups:
            group["lr"] = rate * group.get("share", 1.0)

    def minimise(self, loss: Tensor) -> Tensor:
        """Follow the gradient of a loss, which is returned."""
        loss.backward()
        return self.update(loss)

    def update(self, loss: Tensor) -> Tensor:
        """Follow the gradients that are there; parameters without are left alone. See minimise."""
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        return loss.detach()

    def finish(self, value: float | None) -> None:
        """Note what the judge says of an epoch, 0 to 1, and the weights where they are the best so far."""
        self.epoch += 1
        if value is not None:
            self.curve.append(value)
            if self.stale == 0:
                self._best = {k: v.clone() for k, v in self.model.state_dict().items()}

    def take_best(self) -> None:
        """Give the model its best weights, and make it ready for use."""
        if self._best is not None:
            self.model.load_state_dict(self._best)
        self.model.eval()

    def save(self, path: StrPath) -> None:
        """Write a checkpoint, whole or not at all."""
        tensors = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        if self._best is not None and self.stale:
            tensors |= {f"best.{k}": v for k, v in self._best.items()}
        tensors |= self._beside.state_dict()
        tensors |= optimiser_state(self._optimiser, self.parameters)
        progress = {"epoch": self.epoch, "accuracies": self.curve}
        artefacts.save(path, tensors, {"kind": self._kind, "run": self._identity, **progress})

    def resume(self, path: StrPath) -> None:
        """Resume from a checkpoint. Raises ArtefactError for that of another run."""
        tensors, card = artefacts.load(path, kind=self._kind, schema=Checkpoint)
        check_run(path, card["run"], self._identity)
        # Of SemSim, before there was one loop.
        momenta = {f"optimiser.{i}.momentum_buffer": v for i, v in under("momentum.", tensors).items()}
        with resuming(path):
            self.curve = card.get("accuracies", [])
            self.epoch = card["epoch"] if "epoch" in card else len(card["accuracies"])
            weights = under("model.", tensors)
            best = under("best.", tensors) if self.stale else weights
            self.model.load_state_dict(best)  # as a check: it is needed at the end
            self.model.load_state_dict(weights)
            self._beside.load_state_dict({k: tensors[k] for k in self._beside.state_dict()})
            set_optimiser_state(self._optimiser, self.parameters, tensors | momenta)
            self._best = best if self.curve else None


def fit(
    run: Run,
    batches: Callable[[int], Iterable[_Batch]],
    step: Callable[[_Batch], Tensor],
    *,
    epochs: int,
    steps: int | None = None,
    judge: Callable[[], float | None] | None = None,
    patience: int | None = None,
    patient_from: int = 0,
    checkpoint: StrPath | None = None,
    progress: Progress | None = None,
    losses: Callable[[Tensor], None] | None = None,
) -> None:
    """Train to the end, and leave the model with its best weights, ready for use.

    Promises: where `batches` and `step` draw from nothing but what follows from the epoch, a training that
    was stopped resumes from its checkpoint exactly as if it had not stopped.

    Args:
        run: what is trained.
        batches: epoch -> its batches, one a step. It is called before the networks are in training mode.
        step: follows the gradients of one batch by `Run.update`, and returns the loss.
        epochs: at most so many.
        steps: of an epoch; None where epochs differ.
        judge: says how good the model is now, the more the better, from 0 to 1. The weights of the best epoch
            are kept; without a judge, those of the last. None for an epoch that does not count.
        patience: epochs without a better one before training stops; None for all epochs.
        patient_from: the epoch from which they count.
        checkpoint: a file written after each epoch. Where it exists, training resumes from it; it is removed
            by the caller when no longer needed.
        progress: called after each step with the numbers done and planned; where epochs differ, after each
            epoch with those of epochs.
        losses: called after each step with its loss, where the model computes: to read its number waits for
            the step.

    Raises:
        ArtefactError: the checkpoint belongs to another run.
    """

    def advance() -> bool:
        waited = min(run.stale, run.epoch - patient_from)
        if run.epoch >= epochs or (patience is not None and waited >= patience):
            return False
        parts = batches(run.epoch)
        run.model.train()
        for number, batch in enumerate(parts, 1):
            loss = step(batch)
            if losses is not None:
                losses(loss.detach())
            if progress is not None and steps is not None:
                progress(run.epoch * steps + number, epochs * steps)
        run.finish(None if judge is None else judge())
        return True

    def saved() -> None:
        if progress is not None and steps is None:
            progress(run.epoch, epochs)

    to_the_end(run, advance, saved, checkpoint=checkpoint)
    run.take_best()


class Resumable(Protocol):
    """What can be stopped, and go on."""

    def save(self, path: StrPath) -> None:
        """Write a checkpoint, whole or not at all."""

    def resume(self, path: StrPath) -> None:
        """Resume from a checkpoint. Raises ArtefactError for that of another run."""


def to_the_end(
    run: Resumable,
    advance: Callable[[], bool],
    saved: Callable[[], None] = lambda: None,
    *,
    checkpoint: StrPath | None,
    every: int = 1,
) -> None:
    """Advance until there is nowhere to go, from a checkpoint where there is one. Whatever is done is saved.

    Args:
        run: what advances.
        advance: by an epoch, or by a step; False where the run is over, and nothing was done.
        saved: called after each that was done, with the checkpoint written where there is one.
        checkpoint: the file.
        every: how many are done between two checkpoints.
    """
    if checkpoint is not None and Path(checkpoint).exists():
        run.resume(checkpoint)
    unsaved, more, given_back = 0, True, time.monotonic()
    with memory.keep_freed():
        while more:
            more = advance()
            unsaved += more
            if checkpoint is not None and unsaved >= (every if more else 1):
                run.save(checkpoint)
                unsaved = 0
            if more:
                saved()
            if time.monotonic() - given_back > _GIVEN_BACK:
                memory.give_back()
                given_back = time.monotonic()


# Checkpoints


def check_run(path: StrPath, run: Any, identity: Any) -> None:
    """Raise ArtefactError where a checkpoint is not of the run that is to go on."""
    if run != identity:
        raise ArtefactError(f"{path}: the checkpoint of another run: delete it, or name another file")


@contextmanager
def resuming(path: StrPath) -> Iterator[None]:
    """Around what takes a checkpoint's numbers. Raises ArtefactError where they do not fit."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
        raise ArtefactError(f"{path}: damaged: start anew, or from an older checkpoint") from error


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
    optimiser: torch.optim.Optimizer, parameters: Sequence[nn.Parameter], tensors: Mapping[str, Tensor]
) -> None:
    """Give an optimiser back what `optimiser_state` wrote."""
    for i, parameter in enumerate(parameters):
        # The fused optimiser walks through memory: its state must lie as the parameter does.
        optimiser.state[parameter] = {
            k: torch.empty_like(parameter).copy_(v) if v.shape == parameter.shape else v.to(parameter.device)
            for k, v in under(f"optimiser.{i}.", tensors).items()
        }


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those tensors whose names begin so, without it."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
