"""Meta-learning: parameters from which a task is learned in a few steps, with a promise to the tasks or not.

Source: Meta-Clip (docs/papers.md), which clips and noises inside MAML, Reptile and Meta-SGD. Here the unit of
privacy is one task of a fixed pool: tasks are Poisson-sampled, each contribution is clipped as one vector
over all layers, one noise is added to the sum, and an accountant stops the run before the step that would
pass the budget. What a task contributes is made in `adaptation`, how it is clipped in `dp.clipping`.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from sfumato import artefacts
from sfumato.data.labelled import Label, LabelledImages
from sfumato.dp import accounting, clipping
from sfumato.dp.clipping import PublishedMetaClip
from sfumato.dp.guarantee import rounded_up
from sfumato.dp.mechanisms import Noise, fresh_noise, seeded_noise
from sfumato.episodes import Sampler, Shape, seed_of
from sfumato.errors import ArtefactError, BudgetExceededError, ConfigError, did_you_mean
from sfumato.images import to_float
from sfumato.learn.adaptation import Inner, Learner, adapt, contributions, fastest, tasks_of
from sfumato.learn.augmentation import augmented
from sfumato.learn.cards import Checkpoint, Count, Spec, kind_of, protection_of, published
from sfumato.learn.epochs import check_run, describing, resuming
from sfumato.learn.few_shot import Accuracy
from sfumato.learn.task_pool import TaskPool, disjoint_pool, overlapping_pool, poisson
from sfumato.networks import Convolutional, FullyConnected, Strided
from sfumato.networks.weights import initial_weights, no_larger_than
from sfumato.precision import resolve
from sfumato.protect import Protection, parse
from sfumato.protect.release import made_of

NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "fully-connected": FullyConnected,
    "convolutional": Convolutional,
    "strided": Strided,
}

_STARTED = ("quantile", "meta-clip")  # the policies that need a first norm, and may find one privately
_KIND = "meta"
_CHECKPOINT = "meta checkpoint"


@dataclass(frozen=True, kw_only=True)
class Private:
    """What is promised to the tasks of a pool, and how it is kept.

    Attributes:
        epsilon, delta: the budget of the whole run, for one task added or removed.
        clipping: the name of a policy of `dp.clipping`.
        settings: of that policy.
        noise_multiplier: the standard deviation of the noise in units of the clipping norm; None for the
            least with which all steps fit the budget. With more of it than fits, the run ends early.
        start_noise: the policy's first norm is the median of the norms of all tasks of the pool, from a
            histogram with noise of this standard deviation, which is charged as a step of its own; None for
            a public one among the settings. `meta-clip-published` without a start takes the raw median.
        pool_tasks: None for a pool of tasks that share no class; a number for so many overlapping ones, of
            which an image gets the weaker promise that the card states.
    """

    epsilon: float
    delta: float
    clipping: str = "quantile"
    settings: dict[str, float] = field(default_factory=dict)
    noise_multiplier: float | None = None
    start_noise: float | None = None
    pool_tasks: int | None = None

    def __post_init__(self) -> None:
        if self.start_noise is not None and (self.clipping not in _STARTED or "start" in self.settings):
            raise ConfigError(
                f"start_noise={self.start_noise:g} with {self.clipping} and {self.settings}: it is for "
                f"{' and '.join(_STARTED)} without a start among their settings; leave one of the two out"
            )

    @property
    def seeks_start(self) -> bool:
        """Whether the first norm is found by looking at the tasks of the pool."""
        published = self.clipping == PublishedMetaClip.name and "start" not in self.settings
        return published or self.start_noise is not None


@dataclass(frozen=True, kw_only=True)
class MetaConfig:
    """How parameters are meta-learned; the defaults are MAML's for Omniglot, fully connected.

    Attributes:
        algorithm, inner_steps, inner_rate, inner_batches: see adaptation.Inner.
        test_steps: of learning a task when the model is used.
        way, shot, queries: N, K and Q of a task.
        network: "fully-connected", "convolutional" (MAML's for MiniImageNet) or "strided" (for Omniglot).
        width: filters of each convolution; None for the 64 of the source. Noise grows with the root of the
            number of parameters, which goes with the square of this: private runs want it small.
        steps: meta-steps.
        tasks: of a meta-step; in a private run how many are expected, since each comes by itself.
        meta_rate: learning rate of Adam, falling to 0 along a cosine.
        shifts: how many pixels every training image is moved by at most along each axis, before it is
            protected.
        private: what is promised; None for a run without any promise, on endless fresh tasks.
        precision: see `sfumato.precision`; bfloat16 is for the convolutional network.
    """

    algorithm: str = "maml"
    inner_steps: int = 1
    inner_rate: float = 0.4
    inner_batches: int = 1
    test_steps: int = 3
    way: int = 5
    shot: int = 1
    queries: int = 5
    network: str = "fully-connected"
    width: int | None = None
    steps: int = 10_000
    tasks: int = 16
    meta_rate: float = 1e-3
    shifts: int = 0
    private: Private | None = None
    precision: str = "float32"

    def __post_init__(self) -> None:
        if self.network not in NETWORKS:
            raise ConfigError(
                f"no network is called {self.network!r}: {did_you_mean(self.network, NETWORKS)}"
            )
        if self.width is not None and self.network == "fully-connected":
            raise ConfigError(f"width={self.width}: a fully connected network has its own; give null")
        for name in ("steps", "tasks", "test_steps", "width"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)}: at least 1")
        if not 0 < self.meta_rate < math.inf:
            raise ConfigError(f"meta_rate={self.meta_rate:g}: above 0")
        if self.shifts < 0:
            raise ConfigError(f"shifts={self.shifts}: at least 0 pixels")
        resolve(self.precision)
        self.shape, self.inner  # noqa: B018 - they check their part

    @property
    def shape(self) -> Shape:
        """The shape of a task."""
        return Shape(way=self.way, shot=self.shot, queries=self.queries)

    @property
    def inner(self) -> Inner:
        """How a task is learned."""
        return Inner(
            algorithm=self.algorithm,
            steps=self.inner_steps,
            rate=self.inner_rate,
            batches=self.inner_batches,
        )


class MetaModel:
    """Parameters to start from, and how a task is learned from them. State: none that changes.

    Attributes:
        learner: the network.
        start: (P,) parameters; (2P,) with the rates of Meta-SGD.
        inner: how a task is learned when the model is used.
        card: what is known of its making: settings, data digest, privacy spent and of what.
    """

    def __init__(self, learner: Learner, start: Tensor, inner: Inner, card: dict[str, Any]) -> None:
        self.learner = learner
        self.start = start
        self.inner = inner
        self.card = card

    def classify(self, support: Tensor, labels: Tensor, queries: Tensor) -> Tensor:
        """Learn a task from released images and name others. -> (Q,) int64 labels.

        Queries are normalised together (transductive): what one is called depends on the others.

        Args:
            support: (N * K, C, H, W) uint8 released images.
            labels: (N * K,) int64, from 0 to N - 1.
            queries: (Q, C, H, W) uint8 released images.
        """
        learned = adapt(self.learner, self.start, to_float(support), labels, self.inner)
        with torch.no_grad():
            return self.learner.logits(learned, to_float(queries)).argmax(1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as an artefact."""
        artefacts.save(path, {"start": self.start}, {"kind": _KIND, **published(self.card)})


class _Card(artefacts.Card):
    config: MetaConfig
    image: artefacts.ImageShape
    spec: Spec = "none"
    made_of: artefacts.Sha256 | None = None
    inner_norm: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _computes_in_bounds(self) -> "_Card":
        if self.config.width is not None:
            artefacts.check_map(self.config.width, self.image)
        return self


class _Checkpoint(Checkpoint):
    done: Count
    digest: artefacts.Name
    promise: dict[str, Any] | None = None


def load(path: str | os.PathLike[str]) -> MetaModel:
    """Read a model that `MetaModel.save` wrote. Raises ArtefactError: damaged, or foreign."""
    tensors, card = artefacts.load(path, kind=_KIND, schema=_Card)
    if "spec" in card:
        card["spec"] = protection_of(card["spec"], card.get("made_of"), path).spec
    with describing(path, _KIND), no_larger_than(tensors):
        config = config_of(card["config"])
        learner = _learner(config, tuple(card["image"]))
    size = learner.size * (2 if config.algorithm == "meta-sgd" else 1)
    if tensors.keys() != {"start"} or tensors["start"].shape != (size,):
        raise ArtefactError(f"{path}: damaged: the parameters do not fit the network")
    return MetaModel(learner, tensors["start"], _test_inner(config, card.get("inner_norm")), card)


def promise(card: dict[str, Any]) -> str:
    """What a model's card promises to the tasks that it was trained on, in words."""
    private = card["privacy"]
    if private is None:
        return "nothing is promised to the images that it was trained on"
    if private["epsilon"] is None:
        return (
            f"nothing is promised: {private['clipping']} is not covered "
            f"(eps = {private['epsilon_if_the_norm_were_public']:.3g} if its norm were public)"
        )
    return (
        f"eps = {rounded_up(private['epsilon'])} at delta = {private['delta']:g} for {private['unit']} "
        f"({private['accountant']}, {card['steps']} steps, noise multiplier {private['noise_multiplier']:g}, "
        f"{private['pool']} tasks); not covered: {'; '.join(private['not_covered'])}"
    )


def config_of(settings: dict[str, Any]) -> MetaConfig:
    """The configuration that `dataclasses.asdict` took apart."""
    private = settings["private"]
    return MetaConfig(**{**settings, "private": None if private is None else Private(**private)})


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
    """Mean accuracy over test tasks of the way and shot that the model is for, images protected once each.

    Args:
        model: from `train` or `load`.
        data: clean images of classes that were never trained on.
        queries, episodes: the test.
        target: the label to classify.
        protection: None for the one that the model was trained for.
        seed: of the tasks and of the noise.

    Raises:
        DataError: too few classes or images for a task.
        ConfigError: the model was trained privately, and on classes of these names. Its accuracy on them
            would be an answer about private images that no budget covers.
    """
    _refuse_pool(model.card, data, target)
    config = config_of(model.card["config"])
    protection = parse(model.card["spec"]) if protection is None else protection
    sampler = Sampler(data.label(target), Shape(way=config.way, shot=config.shot, queries=queries))
    rows = sampler.draw(episodes, torch.Generator().manual_seed(seed))
    drawn, places = rows.unique(return_inverse=True)
    released = protection.release(data.images[drawn], seeded_noise(seed)).images()
    scores = []
    for place in places:
        tasks = tasks_of(released[place][None], config.shot)
        named = model.classify(tasks.support[0], tasks.support_labels[0], tasks.queries[0])
        scores.append((named == tasks.query_labels[0]).double().mean())
    return Accuracy.over(torch.stack(scores), sampler.shape, protection.spec)


def train(
    data: LabelledImages,
    protection: Protection,
    config: MetaConfig,
    *,
    target: str = "class",
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
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
    channels, height, width = data.images.shape[1:]
    image = (channels, height, width)
    run = _Run(data, protection, config, target, seed, image, observe)
    if checkpoint is not None and Path(checkpoint).exists():
        run.resume(checkpoint)
    while run.done < config.steps and run.step():
        if progress is not None:
            progress(run.done, config.steps)
        if checkpoint is not None and run.done % _SAVED_EVERY == 0:
            run.save(checkpoint)
    if checkpoint is not None:
        # Whatever is returned is in the checkpoint: a second call gives the same model, rather than another
        # one made from a point that the account had already left behind.
        run.save(checkpoint)
    if run.zeroed and note is not None:
        note("some tasks gave values that are not finite, and counted as zero: lower inner_rate or meta_rate")
    return run.model()


class _Run:
    """Training under way. State: the parameters, the optimiser, and the promise of a private run."""

    def __init__(
        self,
        data: LabelledImages,
        protection: Protection,
        config: MetaConfig,
        target: str,
        seed: int,
        image: tuple[int, int, int],
        observe: Callable[[Tensor, float | None], None] | None = None,
    ) -> None:
        self._observe = observe
        self._data = data
        self._protection = protection
        self._config = config
        self._learner = _learner(config, image, seed)
        start = self._learner.initial()
        if config.algorithm == "meta-sgd":
            start = torch.cat([start, torch.full_like(start, config.inner_rate)])
        self._start = nn.Parameter(start)
        self._optimiser = torch.optim.Adam([self._start], lr=config.meta_rate)
        self._seed = seed
        self._promise: _Promise | None = None
        if config.private is None:
            self._sampler = Sampler(data.label(target), config.shape)
        else:
            self._promise = _Promise(config.private, config, data, target, seed)
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
            found = self._contributions(rows, noise, inner, order)
            finite = found.isfinite().all(1)
            self.zeroed |= not bool(finite.all())
            direction = torch.where(finite[:, None], found, 0.0).mean(0)
        else:
            promise.begin(self._norms)
            if not promise.charge():
                return False
            rows, noise = promise.draw(config.shape), fresh_noise()
            norm = promise.policy.norm
            if promise.follows_norm:
                inner = replace(inner, clipping_norm=norm)
            found = self._contributions(rows, noise, inner, promise.draws)
            outcome = promise.release(found)
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
            found = self._contributions(rows, fresh_noise(), self._config.inner, draws)
            parts.append(found.double().norm(dim=1))
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
        inner = _test_inner(self._config, card.get("inner_norm"))
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


class _Promise:
    """What a private run promises to the tasks of its pool. State: the account, the policy, who takes part.

    Everything here that is drawn comes from the operating system.
    """

    def __init__(
        self, private: Private, config: MetaConfig, data: LabelledImages, target: str, seed: int
    ) -> None:
        label, original, tasks = data.label(target), data.labels.get("original"), private.pool_tasks
        self.pool: TaskPool = (
            disjoint_pool(label, config.shape, seed=seed, original=original)
            if tasks is None
            else overlapping_pool(label, config.shape, tasks=tasks, seed=seed, original=original)
        )
        self._classes = _class_digests(label)
        self._rate = config.tasks / len(self.pool)
        if self._rate > 1:
            raise ConfigError(
                f"tasks={config.tasks}: the pool has {len(self.pool)} tasks, and a step can have no more"
            )
        self._account = accounting.Accountant(private.epsilon, private.delta, len(self.pool))
        self._private = private
        self._settings = private.settings
        # Parsed here, so that a wrong setting fails before any image is looked at.
        self._policy: clipping.ClippingPolicy | None = (
            None if private.seeks_start else clipping.parse(private.clipping, private.settings)
        )
        if private.seeks_start:
            clipping.parse(private.clipping, {**private.settings, "start": 1.0})
        self.follows_norm = clipping.POLICIES[private.clipping].follows_norm
        self._noise: float = (
            accounting.calibrate(private.epsilon, private.delta, self._rate, config.steps, self._before)
            if private.noise_multiplier is None
            else private.noise_multiplier
        )
        self.draws = fresh_generator()

    def begin(self, norms: Callable[[TaskPool], Tensor]) -> None:
        """Before the first step: find the first norm, where it is to be sought among the tasks."""
        if self._policy is not None:
            return
        asked = self._private.start_noise
        if asked is None:
            start = clipping.published_start(norms(self.pool))
        else:
            self._account.step(asked, 1.0)  # every task is looked at
            start = clipping.private_start(
                norms(self.pool), noise_multiplier=asked, draw=clipping.fresh_gaussian
            )
        self._take({**self._private.settings, "start": start})

    def _take(self, settings: dict[str, float]) -> None:
        self._settings = settings
        self._policy = clipping.parse(self._private.clipping, settings)

    @property
    def policy(self) -> clipping.ClippingPolicy:
        """The policy, once it has begun."""
        assert self._policy is not None
        return self._policy

    def charge(self) -> bool:
        """Charge a step, before a task is drawn for it; False where the budget has no room for it."""
        try:
            self._account.step(self._noise, self._rate)
        except BudgetExceededError:
            if self._account.stretches == tuple(self._before):
                raise  # not even one step: the user has to know
            return False
        return True

    def draw(self, shape: Shape) -> Tensor:
        """(T, N, K + Q) rows of the tasks that take part in this step; maybe none."""
        return self.pool.draw(poisson(len(self.pool), self._rate), shape, self.draws)

    def release(self, found: Tensor) -> clipping.Outcome:
        """(T, D) contributions -> the noised mean, all that is seen of them."""
        derivatives = found[:, -1] if self.follows_norm else None
        return self.policy.step(
            found[:, :-1] if self.follows_norm else found,
            noise_multiplier=self._noise,
            public_count=self._rate * len(self.pool),
            draw=clipping.fresh_gaussian,
            derivatives=derivatives,
        )

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "account": self._account.state,
            "settings": self._settings,
            "policy": self.policy.state(),
            "noise": self._noise,
        }

    def restore(self, state: dict[str, Any], done: int) -> None:
        """Go on counting from a checkpoint. Raises ValueError where the account has not all steps done."""
        self._account = accounting.Accountant.resume(state["account"])
        if sum(stretch.steps for stretch in self._account.stretches) != done + len(self._before):
            raise ValueError("steps were taken that the account knows nothing of, or the reverse")
        self._take(state["settings"])
        self.policy.restore(state["policy"])
        self._noise = state["noise"]

    @property
    def _before(self) -> list[accounting.Stretch]:
        """What the start costs."""
        noise = self._private.start_noise
        return [] if noise is None else [accounting.Stretch(noise, 1.0, 1)]

    def card(self, computed: str) -> dict[str, Any]:
        """What is promised, and what is not; `computed` is the way in which contributions were."""
        spent = self._account.spent()
        overlap, covered = self.pool.overlap, self.policy.covered
        card: dict[str, Any] = {
            "unit": (
                "one task of the pool, added or removed, with all images of its classes"
                if overlap == 1
                else f"one task of the pool, added or removed, while its images stay in up to {overlap - 1} "
                "others; an image has a weaker bound of its own"
            ),
            "pool": len(self.pool),
            "clipping": self.policy.name,
            "noise_multiplier": self._noise,
            "rate": self._rate,
            "accountant": "PLD",
            "epsilon": spent.pld if covered else None,
            "delta": spent.delta,
            "rdp": spent.rdp if covered else None,
            "gdp_approximation": spent.gdp if covered else None,
            "images_overlap": overlap,
            "classes": self._classes,
            "not_covered": [
                "the support and query images of those who use the model",
                "the number of tasks, which classes there are, and which of them have enough images",
            ],
        }
        if computed != "loop":
            card["not_covered"].append(
                "floating point: tasks are computed in one call, where rounding may tell who else is there"
            )
        if not covered:
            card["epsilon_if_the_norm_were_public"] = spent.pld
            card["gdp_approximation_if_the_norm_were_public"] = spent.gdp
            card["not_covered"].append(self.policy.not_covered)
        elif overlap > 1:
            stretches = self._account.stretches
            card["image_epsilon"] = accounting.image_epsilon(overlap, stretches, spent.delta)
        return card


def fresh_generator() -> torch.Generator:
    """For draws of tasks and images that nobody outside may know: seeded by the operating system."""
    return torch.Generator().manual_seed(int.from_bytes(os.urandom(7), "big"))


_SAVED_EVERY = 200


def _learner(config: MetaConfig, image: tuple[int, ...], seed: int = 0) -> Learner:
    channels, height, width = image
    with initial_weights(seed):
        settings = {} if config.width is None else {"width": config.width}
        network = NETWORKS[config.network]((channels, height, width), config.way, **settings)
    return Learner(network, precision=resolve(config.precision))


def _test_inner(config: MetaConfig, clipping_norm: float | None) -> Inner:
    return replace(config.inner, steps=config.test_steps, batches=1, clipping_norm=clipping_norm)


def _class_digests(label: Label) -> list[str]:
    """Of the names of the classes that there are images of: public, but not for everybody to read."""
    return sorted(
        hashlib.sha256(label.names[code].encode()).hexdigest()[:16] for code in label.codes.unique()
    )


def _refuse_pool(card: dict[str, Any], data: LabelledImages, target: str) -> None:
    """Refuse a test on the classes of a private pool, whose images no budget covers then."""
    if card["privacy"] is None:
        return
    seen = set(_class_digests(data.label(target))) & set(card["privacy"]["classes"])
    if seen:
        raise ConfigError(
            f"{len(seen)} classes of {target!r} are among those that the model was privately trained on: how "
            "well it does there is an answer about private images that no budget covers; test on others"
        )
