"""Several processes, each with a device of its own, that train one model as a single process would.

Every process makes the same draws for all of a step, computes its share of it, and adds its gradients to
those of the others: what is learned does not depend on their number, but for rounding. Lightning Fabric
starts the processes and connects them. Its wrapped modules are not used: they average what processes do,
which is right for shares of the same size alone, and send what a step has no gradient of.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn
from torch.autograd.function import once_differentiable
from torch.multiprocessing import SimpleQueue, get_context
from torch.multiprocessing.spawn import ProcessRaisedException

from sfumato.errors import ConfigError, SfumatoError, needs_extra

if TYPE_CHECKING:
    from lightning_fabric import Fabric

ACCELERATORS = ("auto", "cpu", "gpu")

# How long a process waits for another, which may be validating. One that fails is noticed at once.
_PATIENCE = timedelta(days=1)


@dataclass(frozen=True)
class Devices:
    """One of the processes that train a model together, as it sees the others.

    Every process must make the same calls in the same order: each but `share` waits for the others.

    Attributes:
        count: how many processes there are.
        rank: which of them this is, from 0.
        device: where it computes; None for where the model already is.
    """

    count: int = 1
    rank: int = 0
    device: torch.device | None = None

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and prints."""
        return self.rank == 0

    def share(self, items: int, *, what: str, setting: str) -> slice:
        """Which items of a step are this one's: those of all processes are even, in order, and all there are.

        Args:
            items: of a step.
            what: how errors call them.
            setting: which decides how many they are.

        Raises:
            ConfigError: fewer items than processes.
        """
        if items < self.count:
            raise ConfigError(
                f"{self.count} processes are to share a step of {items} {what}: "
                f"use at most {items}, or a larger {setting}"
            )
        each, more = divmod(items, self.count)
        start = self.rank * each + min(self.rank, more)
        return slice(start, start + each + (self.rank < more))

    @torch.no_grad()
    def align(self, model: nn.Module) -> None:
        """Bring a model to the device, in memory of its own, with the weights it has in the first process."""
        if self.device is not None:
            model.to(self.device)
        if self.count == 1:
            return
        tensors = [*model.parameters(), *model.buffers()]
        for each in tensors:
            each.data = each.data.clone()  # what a process is given when it starts, others may share
            if not self.first:
                each.zero_()
        self.sum_(tensors)

    @torch.no_grad()
    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Make tensors the sums, over all processes, of what each has under the same place."""
        if self.count == 1:
            return
        for dtype in dict.fromkeys(each.dtype for each in tensors):
            alike = [each for each in tensors if each.dtype == dtype]
            joined = torch.cat([each.flatten() for each in alike])
            distributed.all_reduce(joined)
            for each, part in zip(alike, joined.split([each.numel() for each in alike]), strict=True):
                each.copy_(part.view(each.shape))

    def add_up(self, parameters: Iterable[nn.Parameter], loss: Tensor) -> Tensor:
        """Add up the gradients of all processes, in place, and return the sum of their losses.

        Where the loss of each is its share of the loss of the step, both are those of the step.
        """
        total = loss.detach().clone()
        self.sum_([total, *(each.grad for each in parameters if each.grad is not None)])
        return total

    def gathered(self, rows: Tensor, mine: slice, items: int) -> Tensor:
        """The rows of all processes. (n, ...) -> (items, ...), with gradient.

        Promises: where the losses of the processes add up to the loss of the step, so do the gradients.

        Args:
            rows: of this process.
            mine: which of all they are, see `share`.
            items: how many there are in all.
        """
        if self.count == 1:
            return rows
        before = rows.new_zeros(mine.start, *rows.shape[1:])
        after = rows.new_zeros(items - mine.stop, *rows.shape[1:])
        total: Tensor = _Sum.apply(torch.cat([before, rows, after]))  # type: ignore[no-untyped-call]
        return total

    def of_first(self, function: Callable[[], float]) -> float:
        """What a function returns in the first process, which alone calls it."""
        if self.count == 1:
            return function()
        value = torch.tensor(function() if self.first else 0.0, dtype=torch.float64, device=self.device)
        distributed.broadcast(value, 0)
        return value.item()


ALONE = Devices()


class _Sum(torch.autograd.Function):
    """The sum over all processes; its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        total = tensor.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total)
        return total


def launch(function: Callable[..., None], *, processes: int, accelerator: str = "auto", **given: Any) -> None:
    """Call function(devices, **given) in so many processes, and wait until all are done.

    They are started here, unless torchrun started this one: then it is one of them. The processor is divided
    among those of a machine, unless OMP_NUM_THREADS says how many threads each has.

    Args:
        function: of a module, since other processes import it. What it raises of `sfumato.errors` is raised
            here.
        processes: how many.
        accelerator: "cpu", where they share the processor; "gpu", one of CUDA for each; or "auto": that
            where there is any.
        given: must be fit for pickle; processes share the memory of tensors that are not in a model.

    Raises:
        ConfigError: no such accelerator, or fewer than processes; or torchrun started another number.
        MissingExtraError: Lightning Fabric is not installed.
    """
    if processes < 1:
        raise ConfigError(f"{processes} processes: at least 1")
    inside = distributed.is_torchelastic_launched()
    started = int(os.environ["WORLD_SIZE"]) if inside else processes
    if processes != started:
        raise ConfigError(f"{processes} processes, and torchrun started {started}: ask for as many")
    here = int(os.environ["LOCAL_WORLD_SIZE"]) if inside else processes
    kind = _kind(accelerator, here)
    with needs_extra("training on several devices", "fabric"):
        from lightning_fabric import Fabric
        from lightning_fabric.plugins.environments.lightning import LightningEnvironment
        from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
        from lightning_fabric.strategies.ddp import DDPStrategy

    if inside:
        strategy: Any = DDPStrategy(cluster_environment=TorchElasticEnvironment(), timeout=_PATIENCE)
    elif processes > 1:
        strategy = DDPStrategy(
            cluster_environment=LightningEnvironment(), timeout=_PATIENCE, start_method="spawn"
        )
    else:
        strategy = "auto"
    fabric = Fabric(accelerator=kind, devices=here, num_nodes=started // here, strategy=strategy)
    errors = get_context("spawn").SimpleQueue()
    try:
        fabric.launch(partial(_in_process, function=partial(function, **given), errors=errors))
    except ProcessRaisedException:
        if errors.empty():
            raise
        raise errors.get() from None


def _in_process(
    fabric: "Fabric", *, function: Callable[[Devices], None], errors: "SimpleQueue[Exception]"
) -> None:
    try:
        function(Devices(fabric.world_size, fabric.global_rank, fabric.device))
    except SfumatoError as error:
        errors.put(error)
        raise
    fabric.barrier()  # the first process holds what connects the others


def _kind(accelerator: str, processes: int) -> str:
    """Fabric's word for an accelerator. Raises ConfigError where there are fewer than processes."""
    if accelerator not in ACCELERATORS:
        raise ConfigError(f"accelerator={accelerator}: choose {', '.join(ACCELERATORS)}")
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if accelerator == "cpu" or (accelerator == "auto" and not there):
        return "cpu"
    if there < processes:
        raise ConfigError(
            f"{processes} processes on as many GPUs, and {there} can be used here: "
            f"{f'use at most {there} processes' if there else 'install a PyTorch with CUDA'}, "
            "or accelerator=cpu"
        )
    return "cuda"
