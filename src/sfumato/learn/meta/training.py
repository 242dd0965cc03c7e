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
from sfumato.learn.fit import Checkpoint, Progress, check_run, resuming, to_the_end
from sfumato.learn.meta.config import MetaConfig, digest_of_start
from sfumato.learn.meta.inner_noise import TaskNoise
from sfumato.learn.meta.model import MetaModel, inner_of_use, make_untrained, public_start
from sfumato.learn.meta.promises import Promise, fresh_generator
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
    observe: Callable[[Tensor, float | None], None] | None = None,
    note: Callable[[str], None] | None = None,
    device: torch.device | None = None,
) -> MetaModel:
    """Meta-learns, and returns the parameters after the last step: no step is chosen by looking at tasks.

    Args:
        data: clean images to train on; in a private run, those of the pool, whose classes are public.
        protection: protects every image anew in every task, by seeded noise: copies that stay here.
        target: the label to classify.
        seed: decides weights and fresh tasks; in a private run, the classes of each task of the pool. The
            participants and the noise come from the operating system there, and nothing repeats them: with
            their seed anybody could undo the noise.
        checkpoint: a file written every few hundred steps; training resumes from an existing one.
        observe: called for each step with the (P,) update, before the optimiser gets it, and the norm to
            which contributions were clipped, None in an open run. A private run releases only this of the
            tasks: the promise covers an observer of all of it, if it covers the policy. With a checkpoint it
            shows the steps that one has charged: after a crash, others are drawn anew, and nobody saw them.
        note: called at the end if contributions were not finite and counted as zero, with a sentence that
            says neither which nor how many. No noise covers it: log it next to the data.
        device: learns the tasks; None for the processor, which makes all draws and private noise.

    Raises:
        DataError: too few classes or images.
        ConfigError: a promise that cannot be kept, before any image is read.
    """
    image = tuple(data.images.shape[1:])
    training = Training(data, protection, config, target, seed, image, observe, device=device)
    training.holds_back = training.is_private and checkpoint is not None

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
        holds_back: whether steps are shown once a checkpoint has their cost.
    """

    def __init__(
        self,
        data: LabelledImages,
        protection: Protection,
        config: MetaConfig,
        target: str,
        seed: int,
        image: tuple[int, ...],
        observe: Callable[[Tensor, float | None], None] | None = None,
        *,
        device: torch.device | None = None,
    ) -> None:
        self._observe, self._unseen = observe, list[tuple[Tensor, float | None]]()
        self.holds_back = False
        self._data = data
        self._protection = protection
        self._config = config
        self._learner = make_untrained(config, image, seed, device)
        trained = self._learner.last(config.layers)
        start = self._learner.initial()
        if config.algorithm == "meta-sgd":
            start = torch.cat([start, torch.full_like(start, config.inner_rate)])
            trained = torch.cat([trained, trained])
        self._device = torch.device("cpu") if device is None else device
        self._trained = trained.to(self._device)  # (D,) bool
        self._all_trained = bool(trained.all())
        if config.start is not None:
            start = public_start(config, image)
        start = start.to(self._device)
        self._start = nn.Parameter(start)
        self._steady = config.private is not None and config.private.noise == "tree"
        self._optimiser: torch.optim.Optimizer = (
            torch.optim.SGD([self._start], lr=config.meta_rate, momentum=0.9)
            if self._steady
            else torch.optim.Adam([self._start], lr=config.meta_rate)
        )
        self._average = torch.zeros_like(start)  # of earlier parameters, yet to be divided by their weights
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
            "transductive": config.norm == "batch",
        }
        self.done = 0
        self._zeroed = torch.zeros((), dtype=torch.bool, device=self._device)

    @property
    def zeroed(self) -> bool:
        """Whether contributions were not finite, and counted as zero. It waits for the last step."""
        return bool(self._zeroed)

    def step(self) -> bool:
        """Makes one meta-step; a private run charges its account first. False: no room, the run is over."""
        taken: tuple[Tensor, float | None] | None
        if self._promise is not None:
            taken = self._private_step(self._promise)
        elif self._task_noise is not None:
            taken = self._noisy_step(self._task_noise)
        else:
            taken = self._open_step()
        if taken is None:
            return False
        direction, norm = taken
        if not self._steady:
            rate = self._config.meta_rate * (1 + math.cos(math.pi * self.done / self._config.steps)) / 2
            for group in self._optimiser.param_groups:
                group["lr"] = rate
        if self._observe is not None:
            self._unseen.append((direction.clone(), norm))
            if not self.holds_back:
                self._show()
        self._start.grad = torch.where(self._trained, direction, 0.0)
        self._optimiser.step()
        self._average = torch.lerp(self._start.detach(), self._average, self._config.average)
        self.done += 1
        return True

    def _show(self) -> None:
        """Shows the steps that the observer has not seen."""
        for update, norm in self._unseen:
            assert self._observe is not None
            self._observe(update, norm)
        self._unseen.clear()

    @property
    def is_private(self) -> bool:
        """Whether the run keeps a promise."""
        return self._promise is not None

    def _open_step(self) -> tuple[Tensor, None]:
        config = self._config
        order = torch.Generator().manual_seed(seed_of(self._seed, self.done))
        rows = self._sampler.draw(config.tasks, order)
        noise = seeded_noise(self._seed, self.done)
        parts = (self._tasks(some, noise, order) for some in rows.split(_TOGETHER))
        total = torch.stack([self._sum(self._contributions(tasks, config.inner)) for tasks in parts]).sum(0)
        return total / config.tasks, None

    def _private_step(self, promise: Promise) -> tuple[Tensor, float] | None:
        promise.begin(self._norms)
        if not promise.charge():
            return None
        rows, norm = promise.draw(self._config.shape), promise.policy.norm
        outcome = promise.release(self._parts(promise, rows))
        self._zeroed |= outcome.zeroed
        direction = torch.zeros_like(self._start)
        direction[self._trained] = outcome.update.to(direction)
        return direction, norm

    def _parts(self, promise: Promise, rows: Tensor) -> Iterator[Tensor]:
        """The contributions of a private step's tasks to the trained parameters, some tasks at a time."""
        noise = fresh_noise()
        for some in rows.split(_TOGETHER):  # one part if there are no tasks
            tasks = self._tasks(some, noise, promise.draws)
            # No name for large tensors: it would keep them while the next part is computed.
            yield self._cut(self._contributions(tasks, *self._inner(promise, len(tasks)))).cpu()

    def _cut(self, contributed: Tensor) -> Tensor:
        """Drops the columns of parameters that are not trained."""
        if self._all_trained:
            return contributed
        size = len(self._trained)
        return torch.cat([contributed[:, :size][:, self._trained], contributed[:, size:]], 1)

    def _inner(self, promise: Promise, tasks: int) -> tuple[Inner, Tensor | None]:
        """The settings of learning a task at this step of a private run, and its (T, steps, P) noise."""
        inner, noise = self._config.inner, promise.inner_noise
        if not promise.follows_norm:
            return inner, None
        inner = replace(inner, clipping_norm=promise.policy.norm, noise_multiplier=noise)
        return inner, self._normal(tasks, promise.draws) if noise else None

    def _noisy_step(self, noise: TaskNoise) -> tuple[Tensor, float]:
        noise.begin(self._inner_norms)
        order = torch.Generator().manual_seed(seed_of(self._seed, self.done))
        rows = noise.draw(self._config.shape, order)
        tasks = self._tasks(rows, seeded_noise(self._seed, self.done), order)
        normal, norm = self._normal(len(tasks), order), noise.policy.norm
        frame = noise.frame
        if frame is not None:
            frame = Frame(to_device(frame.shift, self._device), to_device(frame.scale, self._device))
        contributed = self._contributions(tasks, noise.inner, normal, frame)
        gradients = contributed[:, :0]
        if noise.policy.follows_gradients:
            gradients = inner_gradients(self._learner, self._start.detach(), tasks, noise.inner)
        noise.learn(gradients.cpu(), normal[:, 0].cpu(), contributed[:, -1].cpu())
        return self._sum(contributed[:, :-1]) / self._config.tasks, norm

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

    def _norms(self, pool: TaskPool) -> Tensor:
        """(T,) norms of every task's contribution before the first step; see Private.start_noise."""
        if self._promise is not None and self._promise.follows_norm:
            return self._inner_norms(pool)
        parts = [self._contributions(tasks, self._config.inner) for tasks in self._all(pool)]
        return torch.cat([part[:, self._trained].double().norm(dim=1) for part in parts]).cpu()

    def _inner_norms(self, pool: TaskPool) -> Tensor:
        """(T,) norms of every task's first inner gradient, before the first step."""
        start, inner = self._start.detach(), self._config.inner
        parts = [inner_gradients(self._learner, start, tasks, inner) for tasks in self._all(pool)]
        return torch.cat([part.double().norm(dim=1) for part in parts]).cpu()

    def _all(self, pool: TaskPool) -> Iterator[Tasks]:
        """Every task of a pool once, some at a time."""
        for numbers in torch.arange(len(pool)).split(self._config.tasks):
            draws, noise = fresh_generator(), fresh_noise()
            if self._promise is None:  # repeatable
                first = int(numbers[0])
                draws, noise = torch.Generator().manual_seed(seed_of(self._seed, first)), seeded_noise(first)
            yield self._tasks(pool.draw(numbers, self._config.shape, draws), noise, draws)

    def model(self) -> MetaModel:
        """The model at this step."""
        card = {**self._card, "steps": self.done}
        frame = None if self._task_noise is None else self._task_noise.frame
        card["computed"] = fastest(self._learner, self._config.inner, self._start.device, frame)
        card["precision"] = resolve(self._config.precision, self._device)
        if self._promise is None:  # a digest would reveal which of two pools it was; a number often too
            card["data"] = {**card["data"], "digest": self._data.digest, "images": len(self._data)}
        card["privacy"] = None if self._promise is None else self._promise.card(card["computed"])
        if self._promise is not None and self._promise.follows_norm:
            card["inner_norm"] = self._promise.policy.norm  # as in training
        if self._task_noise is not None:
            card["inner_noise"] = self._task_noise.card(self.done)
            card["inner_norm"] = self._task_noise.policy.norm
        inner = inner_of_use(self._config, card.get("inner_norm"))
        return MetaModel(self._learner, self._average_parameters().cpu(), inner, card, frame)

    def _average_parameters(self) -> Tensor:
        """The parameters, or their mean over steps if `average` is set."""
        share = self._config.average
        if not share or not self.done:
            return self._start.detach().clone()
        return self._average / (1 - share**self.done)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a checkpoint, whole or not at all. It may hold secrets."""
        state = self._optimiser.state[self._start]
        tensors = {"start": self._start.detach(), **{f"adam.{name}": state[name] for name in self._moments}}
        if self._config.average:
            tensors["average"] = self._average
        card = {"kind": _CHECKPOINT, "run": self._identity(), "done": self.done}
        card["digest"] = self._data.digest
        if self._promise is not None:
            promise = self._promise.state()
            parted = {name: _split_lists(name, promise[name]) for name in _LONG}
            card["promise"] = {**promise, **{name: short for name, (short, _) in parted.items()}}
            for _, long in parted.values():
                tensors |= long
        if self._task_noise is not None:
            card["task_noise"], long = _split_lists("policy", self._task_noise.state())
            tensors |= long
        artefacts.save(path, tensors, card)
        self._show()

    @torch.no_grad()
    def resume(self, path: str | os.PathLike[str]) -> None:
        """Resumes from a checkpoint, and continues counting. Raises ArtefactError for that of another run."""
        tensors, card = artefacts.load(path, kind=_CHECKPOINT, schema=_Checkpoint)
        check_run(path, card["run"], self._identity())  # settings first: the digest reads the images
        check_run(path, card["digest"], self._data.digest)
        with resuming(path):
            self._start.copy_(tensors["start"])
            moments = {name: tensors[f"adam.{name}"] for name in self._moments}
            # The number of steps stays on the processor.
            moments = {k: v if k == "step" else v.to(self._device) for k, v in moments.items()}
            if self._config.average:
                self._average.copy_(tensors["average"])
            self.done = card["done"]
            if self._promise is not None:
                state = card["promise"]
                long = {name: _join_lists(name, state.get(name, {}), tensors) for name in _LONG}
                self._promise.restore({**state, **long}, self.done)
            if self._task_noise is not None:
                self._task_noise.restore(_join_lists("policy", card["task_noise"], tensors))
        self._optimiser.state[self._start] = moments

    @property
    def _moments(self) -> tuple[str, ...]:
        """The state of the optimiser."""
        return ("momentum_buffer",) if self._steady else ("step", "exp_avg", "exp_avg_sq")

    def _identity(self) -> Any:
        return json.loads(json.dumps(self._card))


_LONG = ("policy", "tree")  # of a promise's state: they may have a value for each parameter


def _split_lists(part: str, state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Splits a part of a state into the part without its lists, and these, too long for a card."""
    lists = {name: each for name, each in state.items() if isinstance(each, list)}
    tensors = {f"{part}.{name}": torch.tensor(each, dtype=torch.float64) for name, each in lists.items()}
    return {name: each for name, each in state.items() if name not in lists}, tensors


def _join_lists(part: str, state: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Inverts `_split_lists`."""
    own = f"{part}."
    lists = {n.removeprefix(own): t.tolist() for n, t in tensors.items() if n.startswith(own)}
    return {**state, **lists}
