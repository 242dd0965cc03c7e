"""The training loop of every method: epochs of batches, a judge, the best weights, a file to resume from.

A method brings its networks, the batches of an epoch, and a step, which follows gradients by `Run.update`.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import Field
from torch import Tensor, nn

from sfumato import artefacts
from sfumato.artefacts import StrPath
from sfumato.base import memory
from sfumato.base.hardware import device_of, fuses
from sfumato.errors import ArtefactError
from sfumato.learn.method import Count
from sfumato.learn.refusal import Share

_Batch = TypeVar("_Batch")

# A callback with the numbers of steps, or of epochs, done and planned.
Progress = Callable[[int, int], None]
Optimiser = Callable[[list[nn.Parameter]], torch.optim.Optimizer]

_GIVEN_BACK = 30.0  # seconds after which freed memory of a training is returned; it grows otherwise


class Checkpoint(artefacts.Card):
    """The card of a training under way."""

    run: Any
    epoch: Count = 0
    accuracies: list[Share] = Field(default=[])
    state: dict[str, Any] = Field(default={})


def adam(rate: float) -> Optimiser:
    """Adam at a learning rate; at a share of it for parameters that have one, see networks.pretrained."""

    def make(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        shares: dict[float, list[nn.Parameter]] = {}
        for parameter in parameters:
            shares.setdefault(getattr(parameter, "share_of_rate", 1.0), []).append(parameter)
        groups = [{"params": own, "lr": rate * share, "share": share} for share, own in shares.items()]
        return torch.optim.Adam(groups, fused=fuses(parameters))

    return make


class Run:
    """A training under way. State: weights, optimiser, the validation curve, and the best weights so far.

    `parameters` are those that are trained, without frozen ones; `epoch` counts finished epochs, and `curve`
    has the value of the judge after each of them.
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
        carries: Any = None,
    ) -> None:
        """Prepares to train a model on `device`, or on its own.

        To resume from a checkpoint of this `kind`, its `identity` must be equal: settings, data and seed.
        Layers `beside` are trained with the model and removed at the end, such as an adversary; their names
        do not begin with "model", "best", "optimiser" or "state". `carries` has more state of the run: the
        dict of tensors and plain JSON of its `state()`, of which `restore` returns whether it belongs here.
        """
        self.model = model if device is None else model.to(device)
        self.device = device_of(model)
        self._beside = nn.Module() if beside is None else beside.to(self.device)
        every = [*model.parameters(), *self._beside.parameters()]
        self.parameters = [parameter for parameter in every if parameter.requires_grad]
        self.epoch, self.curve = 0, list[float]()
        self._optimiser = optimiser(self.parameters)
        self._kind, self._carries = kind, carries
        self._identity = json.loads(json.dumps(identity))  # as a checkpoint returns it
        self._best: dict[str, Tensor] | None = None  # None for the present weights

    @property
    def stale(self) -> int:
        """The number of epochs since the best one; 0 without validation."""
        return len(self.curve) - 1 - self.curve.index(max(self.curve)) if self.curve else 0

    @property
    def outcome(self) -> dict[str, Any]:
        """The entries of a card about the epochs."""
        return {"epochs": self.epoch, "validation_accuracy": max(self.curve, default=None)}

    def set_rate(self, rate: float) -> None:
        """Sets the learning rate, of which a parameter may have a share."""
        for group in self._optimiser.param_groups:
            group["lr"] = rate * group.get("share", 1.0)

    def begin_from(self, other: "Run", part: nn.Module) -> None:
        """Gives a part of the model the weights and the momenta of an equal one that another run trained."""
        part.load_state_dict(other.model.state_dict())
        state = optimiser_state(other._optimiser, list(other.model.parameters()))
        set_optimiser_state(self._optimiser, list(part.parameters()), state)

    def minimise(self, loss: Tensor) -> Tensor:
        """Follows the gradient of a loss, which it returns."""
        loss.backward()
        return self.update(loss)

    def update(self, loss: Tensor) -> Tensor:
        """Follows the present gradients; parameters without gradients do not change. See minimise."""
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        return loss.detach()

    def finish(self, value: float | None) -> None:
        """Records the judge's value of an epoch, 0 to 1, and the weights if they are the best so far."""
        self.epoch += 1
        if value is not None:
            self.curve.append(value)
            if self.stale == 0:
                self._best = {k: v.clone() for k, v in self.model.state_dict().items()}

    def take_best(self) -> None:
        """Gives the model its best weights, and makes it ready for use."""
        if self._best is not None:
            self.model.load_state_dict(self._best)
        self.model.eval()

    def save(self, path: StrPath) -> None:
        """Writes a checkpoint, whole or not at all."""
        tensors = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        if self._best is not None and self.stale:
            tensors |= {f"best.{k}": v for k, v in self._best.items()}
        tensors |= self._beside.state_dict() | optimiser_state(self._optimiser, self.parameters)
        card = {"kind": self._kind, "run": self._identity, "epoch": self.epoch, "accuracies": self.curve}
        if self._carries is not None:
            state = self._carries.state()
            large = {k: v for k, v in state.items() if isinstance(v, Tensor)}
            tensors |= {f"state.{k}": v for k, v in large.items()}
            card["state"] = {k: v for k, v in state.items() if k not in large}
        artefacts.save(path, tensors, card)

    def resume(self, path: StrPath) -> None:
        """Resumes from a checkpoint. Raises ArtefactError for that of another run."""
        tensors, card = artefacts.load(path, kind=self._kind, schema=Checkpoint)
        try:
            self.epoch, self.curve = card["epoch"], card.get("accuracies", [])
            ours = card["run"] == self._identity
            if ours and self._carries is not None:  # afterwards, since it may read all images
                ours = self._carries.restore(card["state"] | under("state.", tensors))
            if ours:
                weights = under("model.", tensors)
                best = under("best.", tensors) if self.stale else weights
                self.model.load_state_dict(best)  # as a check: it is needed at the end
                self.model.load_state_dict(weights)
                self._beside.load_state_dict({k: tensors[k] for k in self._beside.state_dict()})
                set_optimiser_state(self._optimiser, self.parameters, tensors)
                self._best = best if self.curve else None
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
            raise ArtefactError(f"{path}: damaged: start anew, or from an older checkpoint") from error
        if not ours:
            raise ArtefactError(f"{path}: the checkpoint of another run: delete it, or name another file")


def fit(
    run: Run,
    batches: Callable[[int], Iterable[_Batch] | None],
    step: Callable[[_Batch], Tensor],
    *,
    epochs: int,
    steps: int | None = None,
    judge: Callable[[], float | None] | None = None,
    patience: int | None = None,
    patient_from: int = 0,
    checkpoint: StrPath | None = None,
    every: int = 1,
    progress: Progress | None = None,
    losses: Callable[[Tensor], None] | None = None,
) -> None:
    """Trains to the end, and leaves the model with its best weights, ready for use.

    Promises: if the draws of `batches` and `step` follow only from the epoch, a stopped training
    resumes from its checkpoint exactly as if it had not stopped.

    Args:
        batches: epoch -> its batches, one a step; None to end before it. The networks do not train yet.
        step: follows the gradients of one batch by `Run.update`, and returns the loss.
        epochs, steps: at most, and of an epoch; None if epochs differ.
        judge: the quality of the model, from 0 to 1, larger is better; None for an epoch that does not count.
            The weights of the best epoch are kept; without a judge, those of the last.
        patience: epochs without a better one before training stops, counted from `patient_from`.
        checkpoint: a file written `every` so many epochs, and at the end. Training resumes from an
            existing one of the same run; the caller removes it when it is no longer needed.
        progress: called after each step (or unequal epoch) with the numbers done and planned.
        losses: called after each step with its loss, on the model's device: reading it waits for the step.
    """

    def advance() -> bool:
        waited = min(run.stale, run.epoch - patient_from)
        over = run.epoch >= epochs or (patience is not None and waited >= patience)
        if over or (parts := batches(run.epoch)) is None:
            return False
        run.model.train()
        for number, batch in enumerate(parts, 1):
            loss = step(batch)
            if losses is not None:
                losses(loss.detach())
            if progress is not None and steps is not None:
                progress(run.epoch * steps + number, epochs * steps)
        run.finish(None if judge is None else judge())
        return True

    if checkpoint is not None and Path(checkpoint).exists():
        run.resume(checkpoint)
    more, unsaved, given_back = True, 0, time.monotonic()
    with memory.keep_freed():
        while more:
            more = advance()
            unsaved += more
            if checkpoint is not None and unsaved >= (every if more else 1):
                run.save(checkpoint)
                unsaved = 0
            if more and progress is not None and steps is None:
                progress(run.epoch, epochs)
            if time.monotonic() - given_back > _GIVEN_BACK:
                memory.give_back()
                given_back = time.monotonic()
    run.take_best()


def optimiser_state(
    optimiser: torch.optim.Optimizer, parameters: Sequence[nn.Parameter]
) -> dict[str, Tensor]:
    """The state of an optimiser for each parameter, under names for a checkpoint."""
    states = (optimiser.state[parameter].items() for parameter in parameters)
    return {f"optimiser.{i}.{k}": v for i, state in enumerate(states) for k, v in state}


@torch.no_grad()
def set_optimiser_state(
    optimiser: torch.optim.Optimizer, parameters: Sequence[nn.Parameter], tensors: Mapping[str, Tensor]
) -> None:
    """Restores an optimiser from the result of `optimiser_state`."""
    for i, parameter in enumerate(parameters):
        # The fused optimiser walks through memory: its state must have the parameter's layout.
        optimiser.state[parameter] = {
            k: torch.empty_like(parameter).copy_(v) if v.shape == parameter.shape else v.to(parameter.device)
            for k, v in under(f"optimiser.{i}.", tensors).items()
        }


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with the prefix, without it."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
