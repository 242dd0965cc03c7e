"""A client's update, recorded around its own training loop, with its training."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, is_grad_enabled, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim import SGD, Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from sfumato.attack.updates.update import LocalTraining, Noise, Update, of_states
from sfumato.errors import DataError


@dataclass
class Watch:
    """A record of this process's optimisers. State: the observations.

    Attributes:
        steps: of any optimiser.
        rates: the learning rates of these.
        batches: the size of the first batch of a module in training mode before each step.
        plain: whether all optimisers are SGD without momentum, weight decay or several groups.
    """

    steps: int = 0
    rates: set[float] = field(default_factory=set)
    batches: list[int] = field(default_factory=list)
    plain: bool = True

    def training(self, images: int | None) -> LocalTraining:
        """Return the observed training; `images` None: those of its one step.

        Raises:
            DataError: nothing was trained, or the number of images is unknown.
        """
        if not self.steps:
            raise DataError("no optimiser made a step in this block: train in it, with torch.optim")
        together = max(self.batches, default=None) if len(self.batches) == self.steps else None
        if images is None and self.steps == 1:
            images = together
        if images is None:
            raise DataError("the number of images is unknown after several steps: pass images=N")
        return LocalTraining(
            images=images,
            steps=self.steps,
            rate=next(iter(self.rates)),
            batch=None if together is None or together >= images else together,
            plain=self.plain and len(self.rates) == 1,
        )


@contextmanager
def watching() -> Iterator[Watch]:
    """Watch all optimisers of this process, and the batches of modules in training mode, for a block."""
    watch = Watch()
    since: list[int] = []  # batches since the last step

    def stepped(optimiser: Optimizer, *_: Any) -> None:
        watch.steps += 1
        watch.batches += since[:1]
        since.clear()
        for group in optimiser.param_groups:
            watch.rates.add(float(group["lr"]))
            watch.plain &= type(optimiser) is SGD and not group["momentum"] and not group["weight_decay"]

    def seen(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if module.training and is_grad_enabled() and inputs and isinstance(inputs[0], Tensor):
            since.append(len(inputs[0]))

    hooks = [register_optimizer_step_post_hook(stepped), register_module_forward_pre_hook(seen)]
    try:
        yield watch
    finally:
        for hook in hooks:
            hook.remove()


@dataclass
class Recording:
    """The result of `record`. State: the update, after the block has ended well."""

    _update: Update | None = None

    @property
    def update(self) -> Update:
        """The client's update. Raises DataError while it trains."""
        if self._update is None:
            raise DataError("nothing is recorded yet: read the update after the block of `record`")
        return self._update


@contextmanager
def record(
    model: nn.Module, *, images: int | None = None, optimiser: object | None = None
) -> Iterator[Recording]:
    """Record the update of a model trained in a block, with its steps, rate and batches.

        with record(model, images=len(photographs)) as recording:
            train(model, photographs)
        audit_update(model, recording.update, shape=(3, 32, 32))

    Args:
        model: the model trained in the block.
        images: the client's number of images; None: those of the one step.
        optimiser: if it is Opacus's DPOptimizer, its noise and clipping norm are recorded.

    Raises:
        DataError: see Watch.training.
    """
    recording = Recording()
    before = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    with watching() as watch:
        yield recording
    recording._update = of_states(
        before, model.state_dict(), watch.training(images), noise=noise_of(optimiser)
    )


def noise_of(optimiser: object | None) -> Noise | None:
    """Return the noise of Opacus's DPOptimizer; None if an optimiser adds none."""
    multiplier, norm = (getattr(optimiser, name, 0.0) for name in ("noise_multiplier", "max_grad_norm"))
    return Noise(noise_multiplier=float(multiplier), clipping_norm=float(norm)) if multiplier else None
