"""Meta-training, on fresh tasks or on those of a pool: privately, or with Meta-Clip as it was published."""

import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sfumato.base.hardware import resolve, to_device
from sfumato.data.copies import originals
from sfumato.data.labelled import LabelledImages
from sfumato.dp import accounting, clipping
from sfumato.dp.mechanisms import Noise, fresh_noise, seeded_noise
from sfumato.episodes import Sampler, seed_of
from sfumato.errors import BudgetExceededError, ConfigError
from sfumato.images import to_float
from sfumato.learn import fit
from sfumato.learn.adaptation import contributions, fastest, inner_gradients
from sfumato.learn.augmentation import augment
from sfumato.learn.meta.model import MetaConfig, MetaModel, class_digests, first_point, make_untrained
from sfumato.learn.method import finite, source_name
from sfumato.learn.tasks import Frame, Inner, TaskPool, Tasks, deal_pool, overlap_of, poisson, tasks_of
from sfumato.protect import Protection
from sfumato.protect.release import artefact_digest, artefact_of

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
    progress: fit.Progress | None = None,
    note: Callable[[str], None] | None = None,
    device: torch.device | None = None,
) -> MetaModel:
    """Meta-learns: the parameters after the last step, since no step is chosen by looking at tasks.

    Args:
        data: clean images to train on; in a private run, those of the pool, whose classes are public.
        protection: protects every image anew in every task, by seeded noise: copies that stay here.
        seed: decides weights and fresh tasks; in a private run, the classes of each task. Participants and
            noise come from the operating system there: with their seed anybody could undo the noise.
        note: called at the end with a sentence if contributions were not finite, and counted as zero. It
            says neither which nor how many. No noise covers it: log it next to the data.

    A promise that cannot be kept is a ConfigError, before any image is read.
    """
    training = Training(data, protection, config, target, seed, device=device)
    # The checkpoint has every returned value: a second call gives the same model, rather than another one
    # made from a point that the account had already left behind.
    saved: dict[str, Any] = {"checkpoint": checkpoint, "every": _SAVED_EVERY, "progress": progress}
    fit.fit(training.run, training.begin, training.follow, epochs=config.steps, steps=1, **saved)
    if training.zeroed and note is not None:
        note("some tasks gave values that are not finite, and counted as zero: lower inner_rate or meta_rate")
    return training.model()


class Training:
    """Training under way. State: the parameters, the optimiser, and the promise of a private run.

    Attributes:
        run: the parameters and the optimiser, with the number of steps as its epochs.
        update: (D,) of the last one. A private run releases only these of its tasks: the promise covers who
            sees all of them, if it covers the policy.
        norms: to which contributions were clipped, of each step made here; empty in an open run.
        zeroed: whether contributions were not finite, and counted as zero.
    """

    def __init__(
        self,
        data: LabelledImages,
        protection: Protection,
        config: MetaConfig,
        target: str = "class",
        seed: int = 0,
        *,
        device: torch.device | None = None,
    ) -> None:
        self.update, self.norms = torch.zeros(0), list[float]()
        self._data, self._protection, self._config, self._seed = data, protection, config, seed
        self._device = torch.device("cpu") if device is None else device
        self.zeroed = torch.zeros((), dtype=torch.bool, device=self._device)
        image = tuple(data.images.shape[1:])
        self._learner = make_untrained(config, image, seed, device)
        self._start = nn.Parameter(first_point(config, self._learner, image).to(self._device))
        pool = config, data, target, seed
        self._promise = None if config.private is None else Promise(*pool)
        self._task_noise = None if config.inner_noise is None else TaskNoise(*pool)
        self._clipped = self._promise or self._task_noise
        if self._clipped is None:
            self._sampler = Sampler(data.label(target), config.shape)
        self._card: dict[str, Any] = {
            "config": {**asdict(config), "start": config.start and artefact_digest(config.start)},
            "spec": protection.spec,
            "made_of": artefact_of(protection),
            "image": list(image),
            "target": target,
            "data": {"name": source_name(data)},
            "seed": seed,
            "transductive": True,
        }
        more = {"kind": "meta checkpoint", "identity": self._card, "carries": self}
        self.run = fit.Run(nn.ParameterDict({"start": self._start}), torch.optim.Adam, **more)

    def step(self) -> bool:
        """Makes one meta-step. False: the budget has no room for it."""
        numbers = self.begin(self.run.epoch)
        for number in numbers or ():
            self.follow(number)
            self.run.finish(None)
        return numbers is not None

    def begin(self, step: int) -> list[int] | None:
        """Charges the account of a private run before a step. -> its number; None if there is no room."""
        return None if self._promise is not None and not self._promise.charge() else [step]

    def follow(self, step: int) -> Tensor:
        """Follows the contributions of a step's tasks. -> the update."""
        order = torch.Generator().manual_seed(seed_of(self._seed, step))
        if self._promise is not None:
            direction = self._private_step(self._promise)
        elif self._task_noise is not None:
            direction = self._noisy_step(self._task_noise, order)
        else:
            rows, noise = self._sampler.draw(self._config.tasks, order), seeded_noise(self._seed, step)
            parts = self._parts(rows, noise, order, self._config.inner)
            direction = torch.stack([self._sum(part) for part in parts]).sum(0) / self._config.tasks
        self.run.set_rate(self._config.meta_rate * (1 + math.cos(math.pi * step / self._config.steps)) / 2)
        self.update = self._start.grad = direction.to(self._start)
        return self.run.update(self.update)

    def _private_step(self, promise: "Promise") -> Tensor:
        self.norms.append(promise.policy.norm)
        drawn = poisson(len(promise.pool), promise.rate)
        rows = promise.pool.draw(drawn, self._config.shape, promise.draws)
        parts = self._parts(rows, fresh_noise(), promise.draws, promise.inner(self._config.inner))
        outcome = promise.release(map(Tensor.cpu, parts))
        self.zeroed |= outcome.zeroed
        return outcome.update

    def _noisy_step(self, noised: "TaskNoise", order: torch.Generator) -> Tensor:
        if not self.run.epoch and noised.seeks_start:
            noised.begin(self._inner_norms(noised.pool))
        self.norms.append(noised.policy.norm)
        inner = replace(self._config.inner, clipping_norm=noised.policy.norm, noise_multiplier=noised.sigma)
        frame = noised.frame(self._learner.size, self._device)
        bits = partial(
            torch.randint, 256, dtype=torch.uint8, generator=order
        )  # repeatable: nothing is secret
        drawn = poisson(len(noised.pool), noised.rate, lambda count: bits((count,)).numpy().tobytes())
        rows = noised.pool.draw(drawn, self._config.shape, order)
        tasks = self._tasks(rows, seeded_noise(self._seed, self.run.epoch), order)
        normal, learned = self._normal(len(tasks), order), (self._learner, self._start.detach(), tasks, inner)
        contributed = contributions(*learned, noise=normal, frame=frame)
        gradients = inner_gradients(*learned) if noised.follows_gradients else contributed[:, :0]
        noised.learn(gradients.cpu(), normal[:, 0].cpu(), contributed[:, -1].cpu())
        return self._sum(contributed[:, :-1]) / self._config.tasks

    def _parts(self, rows: Tensor, noise: Noise, draws: torch.Generator, inner: Inner) -> Iterator[Tensor]:
        """(t, D) contributions of tasks, some at a time; one part if there are no tasks."""
        for some in rows.split(_TOGETHER):
            learned = self._learner, self._start.detach(), self._tasks(some, noise, draws), inner
            # No name for large tensors: it would keep them while the next part is computed.
            yield contributions(
                *learned, noise=self._normal(len(some), draws) if inner.noise_multiplier else None
            )

    def _normal(self, tasks: int, generator: torch.Generator) -> Tensor:
        """(T, steps, P) of a standard normal distribution."""
        normal = torch.randn(tasks, self._config.inner_steps, self._learner.size, generator=generator)
        return to_device(normal, self._device)

    def _sum(self, contributed: Tensor) -> Tensor:
        """(T, P) -> (P,), the sum of finite rows."""
        valid = (0 * contributed).sum(1) == 0  # 0 · inf is not a number; several times as fast as isfinite
        self.zeroed |= ~valid.all()
        return torch.where(valid[:, None], contributed, 0.0).sum(0)

    def _tasks(self, rows: Tensor, noise: Noise, generator: torch.Generator) -> Tasks:
        """(T, N, K + Q) rows -> protected tasks."""
        images = augment(self._data.images[rows.flatten()], generator, shifts=self._config.shifts)
        if len(images):
            images = self._protection.release(images, noise).images()
        return tasks_of(to_float(to_device(images, self._device)).unflatten(0, rows.shape), self._config.shot)

    def _inner_norms(self, pool: TaskPool) -> Tensor:
        """(T,) norms of every task's first inner gradient, before the first step."""
        start, parts = self._start.detach(), []
        for numbers in torch.arange(len(pool)).split(self._config.tasks):
            first = int(numbers[0])
            draws, noise = torch.Generator().manual_seed(seed_of(self._seed, first)), seeded_noise(first)
            tasks = self._tasks(pool.draw(numbers, self._config.shape, draws), noise, draws)
            gradients = inner_gradients(self._learner, start, tasks, self._config.inner)
            parts.append(gradients.double().norm(dim=1))
        return torch.cat(parts).cpu()

    def model(self) -> MetaModel:
        """The model at this step."""
        promise, noised = self._promise, self._task_noise
        frame = None if noised is None else noised.frame(self._learner.size, torch.device("cpu"))
        computed = fastest(self._learner, self._config.inner, self._device, frame)
        precision = resolve(self._config.precision, self._device)
        card = {**self._card, "steps": self.run.epoch, "computed": computed, "precision": precision}
        card["privacy"] = None if promise is None else promise.card(computed)
        if promise is None:  # a digest would reveal which of two pools it was; a number often too
            card["data"] = {**card["data"], "digest": self._data.digest, "images": len(self._data)}
        elif promise.policy.follows_norm:
            card["inner_norm"] = promise.policy.norm  # as in training
        if noised is not None:
            card |= {"inner_noise": noised.card(self.run.epoch), "inner_norm": noised.policy.norm}
        inner, start = self._config.inner_of_use(card.get("inner_norm")), self._start.detach().cpu().clone()
        return MetaModel(self._learner, start, inner, card, frame, tuple(self.norms))

    def state(self) -> dict[str, Any]:
        """The part of a checkpoint that is about tasks. It may hold secrets."""
        policy = {} if self._clipped is None else self._clipped.policy.state()
        lists = {k: torch.tensor(v, dtype=torch.float64) for k, v in policy.items() if type(v) is list}
        return {**self._origin(), **policy, **lists}  # lists are too long for a card

    def restore(self, state: dict[str, Any]) -> bool:
        """Continues, and continues counting. False: it is of other images, or of other noise."""
        if any(state[k] != v for k, v in self._origin().items()):
            return False
        if self._promise is not None:
            self._promise.account.restore(self.run.epoch)
        if self._clipped is not None:
            lists = {k: v.tolist() for k, v in state.items() if isinstance(v, Tensor)}
            self._clipped.policy.restore(state | lists)
        return True

    def _origin(self) -> dict[str, Any]:
        return {"digest": self._data.digest, "noise": None if self._promise is None else self._promise.noise}


def _pool_of(
    config: MetaConfig, data: LabelledImages, target: str, seed: int, tasks: int | None
) -> tuple[TaskPool, float]:
    """The pool of a run, and the rate at which each of its tasks takes part in a step."""
    pool = deal_pool(data.label(target), config.shape, seed=seed, tasks=tasks)
    if config.tasks > len(pool):
        raise ConfigError(
            f"tasks={config.tasks}: the pool has {len(pool)} tasks, and a step can have no more"
        )
    return pool, config.tasks / len(pool)


class Promise:
    """The promise of a private run to the tasks of its pool. State: the account, the policy, who takes part.

    All its draws come from the operating system.
    """

    def __init__(self, config: MetaConfig, data: LabelledImages, target: str, seed: int) -> None:
        private = config.private
        assert private is not None
        self._data, self._classes = data, class_digests(data.label(target))
        self.pool, self.rate = _pool_of(config, data, target, seed, private.pool_tasks)
        # Parsed here, so that a wrong setting fails before any image is read.
        self.policy = clipping.parse(private.clipping, private.settings)
        self._inner_noise, noise = private.inner_noise, private.noise_multiplier
        budget = private.epsilon, private.delta
        self.noise = accounting.calibrate(*budget, self.rate, config.steps) if noise is None else noise
        self.account = accounting.Accountant(
            *budget, len(self.pool), noise_multiplier=self.noise, rate=self.rate
        )
        self.draws = torch.Generator().manual_seed(int.from_bytes(os.urandom(7), "big"))

    def charge(self) -> bool:
        """Charges a step, before a task is drawn for it; False if the budget has no room for it."""
        try:
            self.account.step()
        except BudgetExceededError:
            if not self.account.done:
                raise  # not even one step: the user has to know
            return False
        return True

    def inner(self, inner: Inner) -> Inner:
        """The settings of learning a task at this step."""
        if not self.policy.follows_norm:
            return inner
        return replace(inner, clipping_norm=self.policy.norm, noise_multiplier=self._inner_noise)

    def release(self, contributed: Iterable[Tensor], draw: clipping.Draw | None = None) -> clipping.Outcome:
        """(t, D) contributions of some tasks at a time -> the noised mean, all that is seen of them."""

        def split(part: Tensor) -> clipping.Part:  # the derivatives by C come last
            return (part[:, :-1], part[:, -1]) if self.policy.follows_norm else (part, None)

        return self.policy.step_over(
            map(split, contributed),
            noise_multiplier=self.noise,
            public_count=self.rate * len(self.pool),
            draw=draw or clipping.fresh_gaussian,
        )

    def card(self, computed: str) -> dict[str, Any]:
        """The promise and its limits; `computed` is the way of computing contributions."""
        # Equal pixels are one picture, too; the pool was made before any image was looked at.
        overlap = overlap_of(self.pool, originals(self._data))
        images = "with all images of its classes"
        if overlap > 1:
            images = f"while its images stay in up to {overlap - 1} others; of an image see image_epsilon, "
            images += "null where nothing finite is proved"
        not_covered = [
            "the support and query images of those who use the model",
            "the number of tasks, which classes there are, which of them have enough images, and in how many "
            "tasks a picture is",
        ]
        if computed != "loop":
            not_covered.append(
                "floating point: tasks are computed in one call, where rounding may tell who else is there"
            )
        card: dict[str, Any] = {
            "unit": f"one task of the pool, added or removed, {images}",
            "pool": len(self.pool),
            "clipping": self.policy.name,
            "noise_multiplier": self.noise,
            "rate": self.rate,
            "accountant": "PLD",
            "epsilon": self.account.cost(),
            "delta": self.account.delta,
            "rdp": self.account.cost("rdp"),
            "gdp_approximation": self.account.cost("gdp"),
            "images_overlap": overlap,
            "classes": self._classes,
            "not_covered": not_covered,
        }
        if overlap > 1:
            grouped = [stretch.of_group(overlap) for stretch in self.account.stretches]
            card["image_epsilon"] = finite(accounting.epsilon(grouped, self.account.delta))
        return card


class TaskNoise:
    """Clipping and noise inside the learning of each task, as published. NOT private. State: the policy.

    Source: Meta-Clip (docs/papers.md), Algorithms 1 to 3. In every step of learning a task, its gradient g
    becomes g / max(1, |g| / C) + N(0, σ^2 C^2 I), in training and in use. The meta-update is the plain mean
    of the contributions; its gradient reaches C through C / |g| and through the scale of the noise.

    Where the paper is silent, we decided: for Reptile, whose update has no gradient of a loss, the derivative
    by C is that of the loss of all images of the task after learning; the first epoch is a look at every task
    of the pool, at the first parameters.

    Nothing is proved: see `not_covered` of the card. `conditional` is what the paper's accounting states.
    """

    def __init__(self, config: MetaConfig, data: LabelledImages, target: str, seed: int) -> None:
        asked = config.inner_noise
        assert asked is not None
        self._asked, self._tasks, self._steps = asked, config.tasks, config.inner_steps
        self.pool, self.rate = _pool_of(config, data, target, seed, asked.pool_tasks)
        self.sigma, self.seeks_start = asked.noise_multiplier, asked.seeks_start
        self.policy = asked.policy(1.0)
        self.follows_gradients = isinstance(self.policy, clipping.Quantile | clipping.AdaClip)

    def begin(self, norms: Tensor) -> None:
        """Before the first step: without a start, C is the median of the (T,) norms of the first epoch."""
        known = norms[norms.isfinite()].double()
        if not len(known) or not known.median() > 0:
            raise ConfigError("the median of the first epoch's norms is not above 0: give clipping a start")
        self.policy = self._asked.policy(float(known.quantile(0.5)))

    def frame(self, size: int, device: torch.device) -> Frame | None:
        """The coordinates of clipping P parameters: of AdaClip; the others have those of the gradients."""
        if not isinstance(self.policy, clipping.AdaClip):
            return None
        return Frame(*(to_device(each.float(), device) for each in self.policy.frame(size)))

    def learn(self, gradients: Tensor, noise: Tensor, slopes: Tensor) -> None:
        """Chooses the next C; a step without tasks changes nothing.

        (T, P) first inner gradients before they are clipped, if the policy follows them; (T, P) the standard
        normal noise added to them; (T,) derivatives of the loss after learning, by C.
        """
        policy, sigma, count = self.policy, self.sigma, len(slopes)
        if count and isinstance(policy, clipping.AdaClip):
            released = (policy.clip(gradients) + sigma * noise).mean(0)
            policy.learn(released, 0.0, sigma / math.sqrt(count))
        elif count:
            divisor = count if self.follows_gradients else self._tasks
            policy.learn(gradients, policy.vote(gradients, slopes).sum().item() / divisor, sigma)

    def card(self, steps: int) -> dict[str, Any]:
        """The bound of the paper's accounting after these steps (None: infinite), and what it leaves out."""
        stretches = [accounting.Stretch(self.sigma, self.rate, steps * self._steps)]
        delta = self._asked.delta
        return {
            "clipping": self.policy.name,
            "noise_multiplier": self.sigma,
            "norm": self.policy.norm,
            "pool": len(self.pool),
            "rate": self.rate,
            "delta": delta,
            "epsilon": None,
            "conditional": {k: finite(accounting.epsilon(stretches, delta, k)) for k in ("gdp", "pld")},
            "not_covered": [
                "the clipping norm, which follows private tasks without noise; the gradients of the queries, "
                "which reach the meta-update without noise; and the number of tasks of a step"
            ],
        }
