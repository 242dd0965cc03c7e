"""Meta-learning: parameters from which a task is learned in a few steps, with or without a promise to tasks.

Source: Meta-Clip (docs/papers.md), which clips and noises inside MAML, Reptile and Meta-SGD. Here the unit of
privacy is one task of a fixed pool: tasks are Poisson-sampled, each contribution is clipped as one vector
over all layers, one noise is added to the sum, and an accountant stops the run before the step that would
pass the budget. `adaptation` computes a task's contribution, `dp.clipping` clips it. Without a promise, tasks
are fresh ones without end, or those of a pool with Meta-Clip as it was published: see `inner_noise`.
"""

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Annotated, Any

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from sfumato import artefacts
from sfumato.base.hardware import resolve, to_device
from sfumato.base.settings import check_settings
from sfumato.data.copies import originals
from sfumato.data.labelled import Label, LabelledImages
from sfumato.dp import accounting, clipping
from sfumato.dp.clipping.rows import check_above_0
from sfumato.dp.guarantee import round_up
from sfumato.dp.mechanisms import Noise, fresh_noise, seeded_noise
from sfumato.episodes import Sampler, Shape, seed_of
from sfumato.errors import ArtefactError, BudgetExceededError, ConfigError
from sfumato.images import to_float
from sfumato.learn import fit, method
from sfumato.learn.adaptation import Learner, adapt, contributions, fastest, inner_gradients
from sfumato.learn.augmentation import augment
from sfumato.learn.inner_noise import InnerNoise, TaskNoise
from sfumato.learn.prototypes import Accuracy
from sfumato.learn.tasks import Frame, Inner, TaskPool, Tasks, deal_pool, overlap_of, poisson, tasks_of
from sfumato.networks import Convolutional, FullyConnected, Linear, Strided
from sfumato.networks.weights import initial_weights, no_larger_than
from sfumato.protect import Protection, parse
from sfumato.protect.release import artefact_digest, artefact_of

_KIND = "meta"
_SAVED_EVERY = 200  # steps
_TOGETHER = 32  # tasks whose contributions are in memory at once

NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "fully-connected": FullyConnected,
    "convolutional": Convolutional,
    "strided": Strided,
    "linear": Linear,
}


@dataclass(frozen=True, kw_only=True)
class Private:
    """The promise to the tasks of a pool, and how it is kept.

    Attributes:
        noise_multiplier: the standard deviation of the noise in units of the clipping norm; None for the
            least with which all steps fit the budget. With more of it than fits, the run ends early.
        inner_noise: for "meta-clip", whose derivative means little if noise costs nothing: Gaussian noise
            of this standard deviation, in units of C, on every inner gradient in training. It proves nothing.
        pool_tasks: None for a pool of tasks that share no class; a number for that many overlapping ones,
            with the weaker promise to an image on the card.
    """

    epsilon: float  # with delta, the budget of the whole run, for one task added or removed
    delta: float
    clipping: str = "quantile"  # with its settings, of `dp.clipping`
    settings: dict[str, float] = field(default_factory=dict)
    noise_multiplier: float | None = None
    inner_noise: float = 0.0
    pool_tasks: int | None = None

    def __post_init__(self) -> None:
        accounting.check_budget(self.epsilon)
        accounting.check_delta(self.delta)
        if self.inner_noise and (not 0 < self.inner_noise < math.inf or self.clipping != "meta-clip"):
            raise ConfigError(
                f"inner_noise={self.inner_noise:g} with {self.clipping}: a number above 0, for meta-clip, "
                "which follows the cost of noise; leave it out"
            )


@dataclass(frozen=True, kw_only=True)
class MetaConfig:
    """The settings of meta-learning; the defaults are MAML's for Omniglot, fully connected.

    Attributes:
        network: "fully-connected", "convolutional" (MAML's for MiniImageNet), "strided" (for Omniglot) or
            "linear" (for audits).
        width: filters of each convolution; None for the 64 of the source. Noise grows with the root of the
            number of parameters, which grows with the square of this: private runs want it small.
        start: a file of `sfumato train meta` of the same network, images, way and algorithm, whose parameters
            come first; None for random ones. Its training data are public, and cost no budget here.
        inner_noise: clipping and noise inside the learning of each task, as Meta-Clip was published, on the
            tasks of a pool; nothing is promised. None without them.
    """

    algorithm: str = "maml"  # with the inner settings, see tasks.Inner
    inner_steps: int = 1
    inner_rate: float = 0.4
    inner_batches: int = 1
    test_steps: int = 3  # of learning a task in use
    way: int = 5  # N, K and Q of a task
    shot: int = 1
    queries: int = 5
    network: str = "fully-connected"
    width: int | None = None
    steps: int = 10_000  # of meta-learning
    tasks: int = 16  # of a meta-step; in a private run the expected number, since each takes part by chance
    meta_rate: float = 1e-3  # learning rate of Adam, falling to 0 along a cosine
    shifts: int = 0  # the most pixels that a training image is moved by along each axis, then protected
    start: str | None = field(default=None, metadata={"by_content": artefact_digest})
    private: Private | None = None  # the promise; None for a run without any, on endless fresh tasks
    inner_noise: InnerNoise | None = None
    precision: str = "float32"  # see base.hardware; bfloat16 gains with the wide convolutional network alone

    def __post_init__(self) -> None:
        method.check_known("network", self.network, NETWORKS)
        if self.width is not None and self.network in ("fully-connected", "linear"):
            raise ConfigError(f"width={self.width}: a {self.network} network has its own; give null")
        method.check_least(self, steps=1, tasks=1, test_steps=1, width=1, shifts=0)
        check_above_0("meta_rate", self.meta_rate)
        if self.private is not None and self.inner_noise is not None:
            raise ConfigError("private and inner_noise: give one, for nothing is promised with inner_noise")
        resolve(self.precision)
        self.shape, self.inner  # noqa: B018 - they check their part

    @property
    def shape(self) -> Shape:
        """The shape of a task."""
        return Shape(way=self.way, shot=self.shot, queries=self.queries)

    @property
    def inner(self) -> Inner:
        """The settings of learning a task."""
        steps, rate, batches = self.inner_steps, self.inner_rate, self.inner_batches
        return Inner(algorithm=self.algorithm, steps=steps, rate=rate, batches=batches)

    def inner_of_use(self, norm: float | None) -> Inner:
        """The settings of learning a task in use."""
        noise = 0.0 if self.inner_noise is None else self.inner_noise.noise_multiplier
        inner = replace(self.inner, steps=self.test_steps, batches=1)
        return replace(inner, clipping_norm=norm, noise_multiplier=noise)


def config_of(settings: dict[str, Any]) -> MetaConfig:
    """The configuration from a dict of `dataclasses.asdict`."""
    return check_settings(MetaConfig, settings, "the settings of the model")


@dataclass(frozen=True)
class MetaModel:
    """Parameters to start from, and the settings of learning a task from them."""

    learner: Learner
    start: Tensor  # (P,) parameters; (2P,) with the rates of Meta-SGD
    inner: Inner  # in use
    card: dict[str, Any]  # its settings, data digest, privacy spent and its unit
    frame: Frame | None = None  # for AdaClip
    norms: tuple[float, ...] = ()  # to which this training clipped, step by step; a file does not keep them

    def classify(
        self, support: Tensor, labels: Tensor, queries: Tensor, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """(n, C, H, W) uint8 released images, (N * K,) labels, queries alike -> (Q,) int64 their labels.

        Queries are normalised together (transductive): the class of one depends on the others. `generator`:
        of the noise of Meta-Clip as published, if the model has any; None for torch's own.
        """
        asked = (self.learner, self.start, to_float(support), labels, self.inner)
        learned = adapt(*asked, generator=generator, frame=self.frame)
        with torch.no_grad():
            return self.learner.logits(learned, to_float(queries)).argmax(1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model as an artefact."""
        tensors = {"start": self.start} | ({} if self.frame is None else vars(self.frame))
        artefacts.save(path, tensors, {"kind": _KIND, **method.make_portable(self.card)})


class _Card(artefacts.Card):
    config: MetaConfig
    image: artefacts.ImageShape
    spec: method.Spec = "none"
    made_of: artefacts.Sha256 | None = None
    inner_norm: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _computes_in_bounds(self) -> "_Card":
        if self.config.width is not None:
            artefacts.check_map(self.config.width, self.image)
        return self


def load(path: str | os.PathLike[str]) -> MetaModel:
    """Reads a model that `MetaModel.save` wrote. Raises ArtefactError: damaged, or foreign."""
    tensors, card = artefacts.load(path, kind=_KIND, schema=_Card)
    if "spec" in card:
        card["spec"] = method.protection_of(card["spec"], card.get("made_of"), path).spec
    with method.describing(path, _KIND), no_larger_than(tensors):
        config = config_of(card["config"])
        learner = make_untrained(config, tuple(card["image"]))
    framed = config.inner_noise is not None and config.inner_noise.clipping == "adaclip"
    shapes = dict.fromkeys(("shift", "scale") if framed else (), (learner.size,))
    shapes["start"] = (learner.size * (2 if config.algorithm == "meta-sgd" else 1),)
    if {name: tuple(each.shape) for name, each in tensors.items()} != shapes:
        raise ArtefactError(f"{path}: damaged: the parameters do not fit the network")
    start, frame = tensors.pop("start"), Frame(**tensors) if framed else None
    return MetaModel(learner, start, config.inner_of_use(card.get("inner_norm")), card, frame)


def first_point(config: MetaConfig, learner: Learner, image: tuple[int, ...]) -> Tensor:
    """(D,) parameters to begin with. Raises ConfigError for a start that does not fit, or cost a budget."""
    if config.start is None:
        start = learner.initial()
        sgd = config.algorithm == "meta-sgd"
        return torch.cat([start, torch.full_like(start, config.inner_rate)]) if sgd else start
    model = load(config.start)
    other = config_of(model.card["config"])
    pairs = [(n, getattr(other, n), getattr(config, n)) for n in ("network", "width", "algorithm", "way")]
    for name, theirs, ours in (*pairs, ("shape of images", list(model.card["image"]), list(image))):
        if theirs != ours:
            raise ConfigError(f"start={config.start}: its {name} is {theirs}, and here it is {ours}")
    if model.card["privacy"] is not None:
        raise ConfigError(
            f"start={config.start}: it was trained privately, and that cost is not counted here: begin "
            "with a model of public images"
        )
    return model.start


def promise(card: dict[str, Any]) -> str:
    """The promise of a model's card to the tasks of its training, in words."""
    private, noise = card["privacy"], card.get("inner_noise")
    if noise is not None:
        stated = noise["conditional"]["gdp"]
        epsilon = "no finite eps" if stated is None else f"eps = {stated:.3g}"
        words = f"nothing is promised: no noise covers {noise['not_covered'][0]} (were all of these public, "
        return f"{words}the paper's accounting would state {epsilon})"
    if private is None:
        return "nothing is promised to the images that it was trained on"
    return (
        f"eps = {round_up(private['epsilon'])} at delta = {private['delta']:g} for {private['unit']} "
        f"({private['accountant']}, {card['steps']} steps, noise multiplier {private['noise_multiplier']:g}, "
        f"{private['pool']} tasks); not covered: {'; '.join(private['not_covered'])}"
    )


def evaluate(
    model: MetaModel,
    data: LabelledImages,
    *,
    queries: int = 15,
    episodes: int = 600,
    target: str = "class",
    protection: Protection | None = None,
    seed: int = 0,
) -> Accuracy:
    """Mean accuracy over test tasks of the model's way and shot, images protected once each.

    `data` are clean images of new classes; `protection`: None for that of the training.
    """
    private = model.card["privacy"] or {"classes": []}
    if seen := set(class_digests(data.label(target))) & set(private["classes"]):
        raise ConfigError(
            f"{len(seen)} classes of {target!r} are among those that the model was privately trained on: how "
            "well it does there is an answer about private images that no budget covers; test on others"
        )
    config = config_of(model.card["config"])
    protection = parse(model.card["spec"]) if protection is None else protection
    sampler = Sampler(data.label(target), Shape(way=config.way, shot=config.shot, queries=queries))
    rows = sampler.draw(episodes, torch.Generator().manual_seed(seed))
    drawn, tasks = rows.unique(return_inverse=True)
    released = protection.release(data.images[drawn], seeded_noise(seed)).images()
    scores, draws = [], torch.Generator().manual_seed(seed)
    for task in tasks:
        parts = tasks_of(released[task][None], config.shot).parts
        support, known, queried, labels = (part[0] for part in parts)
        scores.append((model.classify(support, known, queried, generator=draws) == labels).double().mean())
    return Accuracy.over(torch.stack(scores), sampler.shape, protection.spec)


def make_untrained(
    config: MetaConfig, image: tuple[int, ...], seed: int = 0, device: torch.device | None = None
) -> Learner:
    """Makes the network of some settings for images of (C, H, W), with weights from `seed`, for a device."""
    with initial_weights(seed):
        width = {} if config.width is None else {"width": config.width}
        network = NETWORKS[config.network](image, config.way, **width)
    return Learner(network, precision=resolve(config.precision, device))


def class_digests(label: Label) -> list[str]:
    """Digests of the names of the classes with images: public, but not for everybody to read."""
    names = (label.names[code].encode() for code in label.codes.unique())
    return sorted(hashlib.sha256(name).hexdigest()[:16] for name in names)


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
            noise come from the operating system there: with a seed anybody could undo the noise.
        note: called at the end with a sentence if contributions were not finite, and counted as zero. It
            says neither which nor how many. No noise covers it: log it next to the data.

    A promise that cannot be kept is a ConfigError, before any image is read.
    """
    training = Training(data, protection, config, target, seed, device=device)
    # The checkpoint has every returned value: a second call gives the same model, not that of an older point.
    saved: dict[str, Any] = {"checkpoint": checkpoint, "every": _SAVED_EVERY, "progress": progress}
    fit.fit(training.run, training.begin, training.follow, epochs=config.steps, steps=1, **saved)
    if training.zeroed and note is not None:
        note("some tasks gave values that are not finite, and counted as zero: lower inner_rate or meta_rate")
    return training.model()


class Training:
    """Training under way. State: `run`, whose epochs are steps, and the promise of a private run.

    Attributes:
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
        self._promise = None if config.private is None else Promise(config, data, target, seed)
        self._task_noise: TaskNoise | None = None
        if (noise := config.inner_noise) is not None:
            drawn: dict[str, Any] = {"tasks": noise.pool_tasks, "step": config.tasks}
            pool = deal_pool(data.label(target), config.shape, seed=seed, **drawn)
            self._task_noise = TaskNoise(noise, pool, config.tasks, config.inner_steps)
        self._clipped = self._promise or self._task_noise
        if self._clipped is None:
            self._sampler = Sampler(data.label(target), config.shape)
        self._card: dict[str, Any] = {
            "config": {**asdict(config), "start": config.start and artefact_digest(config.start)},
            "spec": protection.spec,
            "made_of": artefact_of(protection),
            "image": list(image),
            "target": target,
            "data": {"name": method.source_name(data)},
            "seed": seed,
            "transductive": True,
        }
        more: dict[str, Any] = {"kind": "meta checkpoint", "identity": self._card, "carries": self}
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
        # Repeatable: nothing is secret.
        bits = partial(torch.randint, 256, dtype=torch.uint8, generator=order)
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
        computed = fastest(self._learner, self._device)
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


class Promise:
    """The promise of a private run to a pool, with secret draws. State: the account, and the policy."""

    def __init__(self, config: MetaConfig, data: LabelledImages, target: str, seed: int) -> None:
        private = config.private
        assert private is not None
        self._data, self._classes = data, class_digests(data.label(target))
        drawn: dict[str, Any] = {"tasks": private.pool_tasks, "step": config.tasks}
        self.pool = deal_pool(data.label(target), config.shape, seed=seed, **drawn)
        self.rate = config.tasks / len(self.pool)
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
            card["image_epsilon"] = method.finite(accounting.epsilon(grouped, self.account.delta))
        return card
