"""Meta-training: step by step, on fresh tasks, or privately on those of a pool."""

import json
import math
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor, nn

from sfumato import artefacts
from sfumato.data.labelled import LabelledImages
from sfumato.dp.mechanisms import Noise, fresh_noise, seeded_noise
from sfumato.episodes import Sampler, seed_of
from sfumato.images import to_float
from sfumato.learn.adaptation import Inner, contributions, fastest, tasks_of
from sfumato.learn.augmentation import augmented
from sfumato.learn.cards import Checkpoint, Count, kind_of
from sfumato.learn.fit import Progress, check_run, resuming, to_the_end
from sfumato.learn.meta.config import MetaConfig
from sfumato.learn.meta.model import MetaModel, inner_of_use, untrained
from sfumato.learn.meta.promises import Promise, fresh_generator
from sfumato.learn.task_pool import TaskPool
from sfumato.precision import resolve
from sfumato.protect import Protection
from sfumato.protect.release import made_of

_CHECKPOINT = "meta checkpoint"
_SAVED_EVERY = 200  # steps


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
) -> MetaModel:
    """Meta-learn, and return the parameters after the last step: no step is chosen by looking at tasks.

    Args:
        data: clean images to train on; in a private run, those of the pool, whose classes are public.
        protection: every image is protected anew in every task, by seeded noise: copies that stay here.
        config: see MetaConfig.
        target: the label to classify.
        seed: decides weights and fresh tasks; in a private run, which classes are a task of the pool. Who
            takes part and the noise come from the operating system there, and nothing repeats it: whoever
            knew a seed of these could undo the noise.
        checkpoint: a file written every few hundred steps; where it exists, training goes on from it.
        progress: called after each step with the numbers done and planned.
        observe: called in each step with the (P,) update, before the optimiser has it, and the norm to which
            contributions were clipped, None in an open run. This is all that a private run releases of the
            tasks: the promise covers who sees all of it, where it covers the policy.
        note: called at the end where contributions were not finite and counted as zero, with a sentence that
            tells neither which nor how many. No noise covers it: for a log that stays with the data.

    Raises:
        DataError: too few classes or images.
        ConfigError: a promise that cannot be kept, said before any image is looked at.
        ArtefactError: the checkpoint belongs to another run.
    """
    training = Training(data, protection, config, target, seed, tuple(data.images.shape[1:]), observe)

    def advance() -> bool:
        if training.done >= config.steps or not training.step():
            return False
        if progress is not None:
            progress(training.done, config.steps)
        return True

    # Whatever is returned is in the checkpoint: a second call gives the same model, rather than another one
    # made from a point that the account had already left behind.
    to_the_end(training, advance, checkpoint=checkpoint, every=_SAVED_EVERY)
    if training.zeroed and note is not None:
        note("some tasks gave values that are not finite, and counted as zero: lower inner_rate or meta_rate")
    return training.model()


class _Checkpoint(Checkpoint):
    done: Count
    digest: artefacts.Name
    promise: dict[str, Any] | None = None


class Training:
    """Training under way. State: the parameters, the optimiser, and the promise of a private run.

    Attributes:
        done: how many steps are.
        zeroed: whether contributions were not finite, and counted as zero.
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
    ) -> None:
        self._observe = observe
        self._data = data
        self._protection = protection
        self._config = config
        self._learner = untrained(config, image, seed)
        start = self._learner.initial()
        if config.algorithm == "meta-sgd":
            start = torch.cat([start, torch.full_like(start, config.inner_rate)])
        self._start = nn.Parameter(start)
        self._optimiser = torch.optim.Adam([self._start], lr=config.meta_rate)
        self._seed = seed
        self._promise: Promise | None = None
        if config.private is None:
            self._sampler = Sampler(data.label(target), config.shape)
        else:
            self._promise = Promise(config.private, config, data, target, seed)
        self._card: dict[str, Any] = {
            "config": asdict(config),
            "spec": protection.spec,
            "made_of": made_of(protection),
            "image": list(image),
            "target": target,
            "data": {"name": kind_of(data)},
            "seed": seed,
            "transductive": True,
        }
        self.done = 0
        self.zeroed = False

    def step(self) -> bool:
        """One meta-step; in a private run the account is charged first. False: no room, the run is over."""
        config, promise = self._config, self._promise
        inner, norm = config.inner, None
        if promise is None:
            order = torch.Generator().manual_seed(seed_of(self._seed, self.done))
            rows = self._sampler.draw(config.tasks, order)
            noise = seeded_noise(self._seed, self.done)
            contributed = self._contributions(rows, noise, inner, order)
            finite = contributed.isfinite().all(1)
            self.zeroed |= not bool(finite.all())
            direction = torch.where(finite[:, None], contributed, 0.0).mean(0)
        else:
            promise.begin(self._norms)
            if not promise.charge():
                return False
            rows, noise = promise.draw(config.shape), fresh_noise()
            norm = promise.policy.norm
            if promise.follows_norm:
                inner = replace(inner, clipping_norm=norm)
            outcome = promise.release(self._contributions(rows, noise, inner, promise.draws))
            self.zeroed |= outcome.zeroed
            direction = outcome.update.to(self._start.dtype)
        for group in self._optimiser.param_groups:
            group["lr"] = config.meta_rate * (1 + math.cos(math.pi * self.done / config.steps)) / 2
        if self._observe is not None:
            self._observe(direction.clone(), norm)
        self._start.grad = direction
        self._optimiser.step()
        self.done += 1
        return True

    def _contributions(self, rows: Tensor, noise: Noise, inner: Inner, generator: torch.Generator) -> Tensor:
        """(T, N, K + Q) rows -> (T, D)."""
        images = augmented(self._data.images[rows.flatten()], generator, shifts=self._config.shifts)
        released = images if not len(images) else self._protection.release(images, noise).images()
        tasks = tasks_of(to_float(released).unflatten(0, rows.shape), self._config.shot)
        return contributions(self._learner, self._start.detach(), tasks, inner)

    def _norms(self, pool: TaskPool) -> Tensor:
        """(T,) of what every task of the pool contributes before the first step."""
        parts = []
        for numbers in torch.arange(len(pool)).split(self._config.tasks):
            draws = fresh_generator()
            rows = pool.draw(numbers, self._config.shape, draws)
            contributed = self._contributions(rows, fresh_noise(), self._config.inner, draws)
            parts.append(contributed.double().norm(dim=1))
        return torch.cat(parts)

    def model(self) -> MetaModel:
        """The model as it is now."""
        card = {**self._card, "steps": self.done}
        card["computed"] = fastest(self._learner, self._config.inner, self._start.device)
        card["precision"] = resolve(self._config.precision)
        if self._promise is None:  # a digest tells which of two pools it was, and a number of images often
            card["data"] = {**card["data"], "digest": self._data.digest, "images": len(self._data)}
        card["privacy"] = None if self._promise is None else self._promise.card(card["computed"])
        if self._promise is not None and self._promise.follows_norm:
            card["inner_norm"] = self._promise.policy.norm  # a task is learned as it was in training
        inner = inner_of_use(self._config, card.get("inner_norm"))
        return MetaModel(self._learner, self._start.detach().clone(), inner, card)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint, whole or not at all. It may hold what must not be published."""
        adam = self._optimiser.state[self._start]
        tensors = {"start": self._start.detach(), **{f"adam.{k}": v for k, v in adam.items()}}
        card = {"kind": _CHECKPOINT, "run": self._identity(), "done": self.done}
        card["digest"] = self._data.digest
        if self._promise is not None:
            card["promise"] = self._promise.state()
        artefacts.save(path, tensors, card)

    @torch.no_grad()
    def resume(self, path: str | os.PathLike[str]) -> None:
        """Go on from a checkpoint, and go on counting. Raises ArtefactError for that of another run."""
        tensors, card = artefacts.load(path, kind=_CHECKPOINT, schema=_Checkpoint)
        check_run(path, card["run"], self._identity())  # settings first: the digest looks at the images
        check_run(path, card["digest"], self._data.digest)
        with resuming(path):
            self._start.copy_(tensors["start"])
            adam = {name: tensors[f"adam.{name}"] for name in ("step", "exp_avg", "exp_avg_sq")}
            self.done = card["done"]
            if self._promise is not None:
                self._promise.restore(card["promise"], self.done)
        self._optimiser.state[self._start] = adam

    def _identity(self) -> Any:
        return json.loads(json.dumps(self._card))
