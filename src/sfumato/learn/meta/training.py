"""Meta-training: step by step, on fresh tasks, or privately on those of a pool."""

import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor, nn

from sfumato import artefacts
from sfumato.base.hardware import resolve, to_device
from sfumato.data.labelled import LabelledImages
from sfumato.dp.mechanisms import Noise, fresh_noise, seeded_noise
from sfumato.episodes import Sampler, seed_of
from sfumato.images import to_float
from sfumato.learn.adaptation import contributions, fastest, inner_gradients
from sfumato.learn.augmentation import augment
from sfumato.learn.fit import (
    Checkpoint,
    Progress,
    check_run,
    optimiser_state,
    resuming,
    set_optimiser_state,
    to_the_end,
    under,
)
from sfumato.learn.meta.config import MetaConfig, digest_of_start
from sfumato.learn.meta.inner_noise import TaskNoise
from sfumato.learn.meta.model import MetaModel, inner_of_use, make_untrained, public_start
from sfumato.learn.meta.promises import Promise
from sfumato.learn.method import Count, kind_of
from sfumato.learn.task_pool import TaskPool, overlapping_pool
from sfumato.learn.tasks import Frame, Inner, Tasks, tasks_of
from sfumato.protect import Protection
from sfumato.protect.release import artefact_of

_CHECKPOINT = "meta checkpoint"
_SAVED_EVERY = 200  # steps
_TOGETHER = 32  # tasks whose contributions are in memory at once


def train(
    data: LabelledImages,
    protection: Protection,
    config: MetaConfig,
    *,
    target: str = "class",
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    note: Callable[[str], None] | None = None,
    device: torch.device | None = None,
) -> MetaModel:
    """Meta-learns, and returns the parameters after the last step: no step is chosen by looking at tasks.

    Args:
        data: clean images to train on; in a private run, those of the pool, whose classes are public.
        protection: protects every image anew in every task, by seeded noise: copies that stay here.
        seed: decides weights and fresh tasks; in a private run, the classes of each task of the pool. The
            participants and the noise come from the operating system there, and nothing repeats them: with
            their seed anybody could undo the noise.
        checkpoint: a file written every few hundred steps; training resumes from an existing one.
        note: called at the end if contributions were not finite and counted as zero, with a sentence that
            says neither which nor how many. No noise covers it: log it next to the data.
        device: learns the tasks; None for the processor, which makes all draws and private noise.

    Raises:
        DataError: too few classes or images.
        ConfigError: a promise that cannot be kept, before any image is read.
    """
    image = tuple(data.images.shape[1:])
    training = Training(data, protection, config, target, seed, image, device=device)

    def advance() -> bool:
        if training.done >= config.steps or not training.step():
            return False
        if progress is not None:
            progress(training.done, config.steps)
        return True

    # The checkpoint has every returned value: a second call gives the same model, rather than another one
    # made from a point that the account had already left behind.
    to_the_end(training, advance, checkpoint=checkpoint, every=_SAVED_EVERY)
    if training.zeroed and note is not None:
        note("some tasks gave values that are not finite, and counted as zero: lower inner_rate or meta_rate")
    return training.model()


class _Checkpoint(Checkpoint):
    done: Count
    digest: artefacts.Name
    promise: dict[str, Any] | None = None
    task_noise: dict[str, Any] | None = None


class Training:
    """Training under way. State: the parameters, the optimiser, and the promise of a private run.

    Attributes:
        done: the number of steps.
        update: (D,) of the last one. A private run releases only these of its tasks: the promise covers who
            sees all of them, if it covers the policy.
        norms: to which contributions were clipped, of each step made here; empty in an open run.
    """

    def __init__(
        self,
        data: LabelledImages,
        protection: Protection,
        config: MetaConfig,
        target: str,
        seed: int,
        image: tuple[int, ...],
        *,
        device: torch.device | None = None,
    ) -> None:
        self.update, self.norms = torch.zeros(0), list[float]()
        self._data = data
        self._protection = protection
        self._config = config
        self._learner = make_untrained(config, image, seed, device)
        start = self._learner.initial()
        if config.algorithm == "meta-sgd":
            start = torch.cat([start, torch.full_like(start, config.inner_rate)])
        self._device = torch.device("cpu") if device is None else device
        if config.start is not None:
            start = public_start(config, image)
        self._start = nn.Parameter(start.to(self._device))
        self._optimiser = torch.optim.Adam([self._start], lr=config.meta_rate)
        self._seed = seed
        self._promise: Promise | None = None
        self._task_noise: TaskNoise | None = None
        if config.inner_noise is not None:
            label, original = data.label(target), data.labels.get("original")
            tasks = config.inner_noise.pool_tasks
            pool = overlapping_pool(label, config.shape, tasks=tasks, seed=seed, original=original)
            self._task_noise = TaskNoise(
                config.inner_noise, pool, config.tasks, config.inner, self._learner.size
            )
        elif config.private is None:
            self._sampler = Sampler(data.label(target), config.shape)
        else:
            self._promise = Promise(config.private, config, data, target, seed)
        self._card: dict[str, Any] = {
            "config": {**asdict(config), "start": digest_of_start(config.start)},
            "spec": protection.spec,
            "made_of": artefact_of(protection),
            "image": list(image),
            "target": target,
            "data": {"name": kind_of(data)},
            "seed": seed,
            "transductive": True,
        }
        self.done = 0
        self._zeroed = torch.zeros((), dtype=torch.bool, device=self._device)

    @property
    def zeroed(self) -> bool:
        """Whether contributions were not finite, and counted as zero. It waits for the last step."""
        return bool(self._zeroed)

    def step(self) -> bool:
        """Makes one meta-step; a private run charges its account first. False: no room, the run is over."""
        if self._promise is not None:
            direction = self._private_step(self._promise)
        elif self._task_noise is not None:
            direction = self._noisy_step(self._task_noise)
        else:
            direction = self._open_step()
        if direction is None:
            return False
        rate = self._config.meta_rate * (1 + math.cos(math.pi * self.done / self._config.steps)) / 2
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        self.update = self._start.grad = direction.to(self._start)
        self._optimiser.step()
        self.done += 1
        return True

    def _open_step(self) -> Tensor:
        config = self._config
        order = torch.Generator().manual_seed(seed_of(self._seed, self.done))
        rows = self._sampler.draw(config.tasks, order)
        noise = seeded_noise(self._seed, self.done)
        parts = (self._tasks(some, noise, order) for some in rows.split(_TOGETHER))
        total = torch.stack([self._sum(self._contributions(tasks, config.inner)) for tasks in parts]).sum(0)
        return total / config.tasks

    def _private_step(self, promise: Promise) -> Tensor | None:
        if not promise.charge():
            return None
        self.norms.append(promise.policy.norm)
        outcome = promise.release(self._parts(promise, promise.draw(self._config.shape)))
        self._zeroed |= outcome.zeroed
        return outcome.update

    def _parts(self, promise: Promise, rows: Tensor) -> Iterator[Tensor]:
        """The contributions of a private step's tasks, some tasks at a time."""
        noise = fresh_noise()
        for some in rows.split(_TOGETHER):  # one part if there are no tasks
            tasks = self._tasks(some, noise, promise.draws)
            # No name for large tensors: it would keep them while the next part is computed.
            yield self._contributions(tasks, *self._inner(promise, len(tasks))).cpu()

    def _inner(self, promise: Promise, tasks: int) -> tuple[Inner, Tensor | None]:
        """The settings of learning a task at this step of a private run, and its (T, steps, P) noise."""
        inner, noise = self._config.inner, promise.inner_noise
        if not promise.policy.follows_norm:
            return inner, None
        inner = replace(inner, clipping_norm=promise.policy.norm, noise_multiplier=noise)
        return inner, self._normal(tasks, promise.draws) if noise else None

    def _noisy_step(self, noise: TaskNoise) -> Tensor:
        noise.begin(self._inner_norms)
        order = torch.Generator().manual_seed(seed_of(self._seed, self.done))
        rows = noise.draw(self._config.shape, order)
        tasks = self._tasks(rows, seeded_noise(self._seed, self.done), order)
        normal = self._normal(len(tasks), order)
        self.norms.append(noise.policy.norm)
        frame = noise.frame
        if frame is not None:
            frame = Frame(to_device(frame.shift, self._device), to_device(frame.scale, self._device))
        contributed = self._contributions(tasks, noise.inner, normal, frame)
        gradients = contributed[:, :0]
        if noise.follows_gradients:
            gradients = inner_gradients(self._learner, self._start.detach(), tasks, noise.inner)
        noise.learn(gradients.cpu(), normal[:, 0].cpu(), contributed[:, -1].cpu())
        return self._sum(contributed[:, :-1]) / self._config.tasks

    def _normal(self, tasks: int, generator: torch.Generator) -> Tensor:
        """(T, steps, P) of a standard normal distribution."""
        normal = torch.randn(tasks, self._config.inner_steps, self._learner.size, generator=generator)
        return to_device(normal, self._device)

    def _sum(self, contributed: Tensor) -> Tensor:
        """(T, P) -> (P,), the sum of finite rows."""
        finite = (0 * contributed).sum(1) == 0  # 0 · inf is not a number; several times as fast as isfinite
        self._zeroed |= ~finite.all()
        return torch.where(finite[:, None], contributed, 0.0).sum(0)

    def _tasks(self, rows: Tensor, noise: Noise, generator: torch.Generator) -> Tasks:
        """(T, N, K + Q) rows -> protected tasks."""
        images = augment(self._data.images[rows.flatten()], generator, shifts=self._config.shifts)
        released = images if not len(images) else self._protection.release(images, noise).images()
        return tasks_of(
            to_float(to_device(released, self._device)).unflatten(0, rows.shape), self._config.shot
        )

    def _contributions(
        self, tasks: Tasks, inner: Inner, noise: Tensor | None = None, frame: Frame | None = None
    ) -> Tensor:
        """-> (T, D)."""
        return contributions(self._learner, self._start.detach(), tasks, inner, noise=noise, frame=frame)

    def _inner_norms(self, pool: TaskPool) -> Tensor:
        """(T,) norms of every task's first inner gradient, before the first step."""
        start, parts = self._start.detach(), []
        for numbers in torch.arange(len(pool)).split(self._config.tasks):
            first = int(numbers[0])
            draws, noise = torch.Generator().manual_seed(seed_of(self._seed, first)), seeded_noise(first)
            tasks = self._tasks(pool.draw(numbers, self._config.shape, draws), noise, draws)
            parts.append(
                inner_gradients(self._learner, start, tasks, self._config.inner).double().norm(dim=1)
            )
        return torch.cat(parts).cpu()

    def model(self) -> MetaModel:
        """The model at this step."""
        card = {**self._card, "steps": self.done}
        frame = None if self._task_noise is None else self._task_noise.frame
        card["computed"] = fastest(self._learner, self._config.inner, self._device, frame)
        card["precision"] = resolve(self._config.precision, self._device)
        if self._promise is None:  # a digest would reveal which of two pools it was; a number often too
            card["data"] = {**card["data"], "digest": self._data.digest, "images": len(self._data)}
        card["privacy"] = None if self._promise is None else self._promise.card(card["computed"])
        if self._promise is not None and self._promise.policy.follows_norm:
            card["inner_norm"] = self._promise.policy.norm  # as in training
        if self._task_noise is not None:
            card["inner_noise"] = self._task_noise.card(self.done)
            card["inner_norm"] = self._task_noise.policy.norm
        inner = inner_of_use(self._config, card.get("inner_norm"))
        return MetaModel(
            self._learner, self._start.detach().cpu().clone(), inner, card, frame, tuple(self.norms)
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a checkpoint, whole or not at all. It may hold secrets."""
        tensors = {"start": self._start.detach(), **optimiser_state(self._optimiser, [self._start])}
        card = {"kind": _CHECKPOINT, "run": self._identity(), "done": self.done}
        card["digest"] = self._data.digest
        if self._promise is not None:
            card["promise"] = self._promise.state()
            card["promise"]["policy"], long = _split_lists(card["promise"]["policy"])
            tensors |= long
        if self._task_noise is not None:
            card["task_noise"], long = _split_lists(self._task_noise.state())
            tensors |= long
        artefacts.save(path, tensors, card)

    @torch.no_grad()
    def resume(self, path: str | os.PathLike[str]) -> None:
        """Resumes from a checkpoint, and continues counting. Raises ArtefactError for that of another run."""
        tensors, card = artefacts.load(path, kind=_CHECKPOINT, schema=_Checkpoint)
        check_run(path, card["run"], self._identity())  # settings first: the digest reads the images
        check_run(path, card["digest"], self._data.digest)
        with resuming(path):
            self._start.copy_(tensors["start"])
            set_optimiser_state(self._optimiser, [self._start], tensors)
            self.done = card["done"]
            if self._promise is not None:
                state = card["promise"]
                self._promise.restore(state | {"policy": _join_lists(state["policy"], tensors)}, self.done)
            if self._task_noise is not None:
                self._task_noise.restore(_join_lists(card["task_noise"], tensors))

    def _identity(self) -> Any:
        return json.loads(json.dumps(self._card))


def _split_lists(state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Splits the state of a policy into that without its lists, and these, too long for a card."""
    lists = {name: each for name, each in state.items() if isinstance(each, list)}
    tensors = {f"policy.{name}": torch.tensor(each, dtype=torch.float64) for name, each in lists.items()}
    return {name: each for name, each in state.items() if name not in lists}, tensors


def _join_lists(state: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Inverts `_split_lists`."""
    return {**state, **{name: tensor.tolist() for name, tensor in under("policy.", tensors).items()}}
