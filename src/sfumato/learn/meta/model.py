"""Meta-learning's settings, and its model: use, test and artefact, and the promise on its card."""

import hashlib
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from sfumato import artefacts
from sfumato.base.hardware import resolve
from sfumato.base.settings import check_settings
from sfumato.data.labelled import Label, LabelledImages
from sfumato.dp import clipping
from sfumato.dp.accounting import check_budget, check_delta
from sfumato.dp.clipping import AdaClip, ClippingPolicy, Fixed, Quantile, policy_of
from sfumato.dp.clipping.rows import check_above_0
from sfumato.dp.guarantee import round_up
from sfumato.dp.mechanisms import seeded_noise
from sfumato.episodes import Sampler, Shape
from sfumato.errors import ArtefactError, ConfigError
from sfumato.images import to_float
from sfumato.learn.adaptation import Learner, adapt
from sfumato.learn.method import Spec, check_known, check_least, describing, make_portable, protection_of
from sfumato.learn.prototypes import Accuracy
from sfumato.learn.tasks import Frame, Inner, tasks_of
from sfumato.networks import Convolutional, FullyConnected, Linear, Strided
from sfumato.networks.weights import initial_weights, no_larger_than
from sfumato.protect import Protection, parse
from sfumato.protect.release import artefact_digest

_KIND = "meta"

NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "fully-connected": FullyConnected,
    "convolutional": Convolutional,
    "strided": Strided,
    "linear": Linear,
}


class MetaClip(clipping.MetaClip):
    """C ← C - η dL/dC, by the mean derivative over the expected number of tasks, as published. NOT private.

    With logarithm=1, beyond the paper, ln C ← ln C - η dL/d(ln C), by derivatives within [-1, 1]: the unit of
    gradients and the start matter little, and no task moves C far. Where the paper is silent, we decided: C
    does not fall below a thousandth of its start, and derivatives that are not finite count as zero.
    """

    def __init__(self, start: float, learning_rate: float = 0.05, logarithm: float = 0.0) -> None:
        if logarithm not in (0, 1):
            raise ConfigError(f"logarithm={logarithm:g}: 1 to learn ln C, or 0 to learn C")
        super().__init__(start, 1.0, learning_rate, smallest=start / 1000, largest=sys.float_info.max)
        self.share, self._logarithm = 0.0, bool(logarithm)  # nothing pays for the derivatives

    def vote(self, rows: Tensor, slopes: Tensor) -> Tensor:
        """The derivative, as it is; or that by ln C, clipped."""
        slopes = torch.where(slopes.isfinite(), slopes, 0.0).double()
        return (self.norm * slopes).clamp(-1, 1) if self._logarithm else slopes

    def learn(self, mean: Tensor, vote: float, sigma: float) -> Tensor:
        """Follows the derivative."""
        if not self._logarithm:
            return super().learn(mean, vote, sigma)
        self.norm *= math.exp(-self._learning_rate * vote)
        return mean


POLICIES: dict[str, type[ClippingPolicy]] = {each.name: each for each in (Fixed, Quantile, AdaClip, MetaClip)}


@dataclass(frozen=True, kw_only=True)
class InnerNoise:
    """The settings of clipping and noising inner gradients.

    Attributes:
        settings: of the policy. "fixed" needs clipping_norm. "quantile" and "meta-clip" take start (by
            default the median of the first epoch's norms) and learning_rate, the first also quantile, the
            other logarithm; "adaclip" takes mean_decay, variance_decay, smallest and largest.
    """

    noise_multiplier: float  # σ, the standard deviation of the noise in units of C
    clipping: str = "meta-clip"  # the choice of C: one of POLICIES
    settings: dict[str, float] = field(default_factory=dict)
    pool_tasks: int = 10_000  # overlapping ones, each of which takes part in a step independently
    delta: float = 1e-5  # of the bound of the paper's accounting

    def __post_init__(self) -> None:
        check_above_0("noise_multiplier", self.noise_multiplier)
        self.policy(1.0)

    @property
    def seeks_start(self) -> bool:
        """Whether the first C is the median of the norms of the first epoch."""
        return self.clipping in ("quantile", "meta-clip") and "start" not in self.settings

    def policy(self, median: float) -> ClippingPolicy:
        """The policy at its start; `median` replaces a missing start."""
        settings = {"start": median, **self.settings} if self.seeks_start else self.settings
        return policy_of(POLICIES, self.clipping, settings)


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
        check_budget(self.epsilon)
        check_delta(self.delta)
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
        start: a file of `sfumato train meta` whose network, images, way and algorithm are the same: training
            begins with its parameters. Its training data are public, and cost no budget here. None for
            random ones.
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
        check_known("network", self.network, NETWORKS)
        if self.width is not None and self.network in ("fully-connected", "linear"):
            raise ConfigError(f"width={self.width}: a {self.network} network has its own; give null")
        check_least(self, steps=1, tasks=1, test_steps=1, width=1, shifts=0)
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
        use = {"steps": self.test_steps, "batches": 1, "clipping_norm": norm, "noise_multiplier": noise}
        return replace(self.inner, **use)


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
        """Learns a task from released images and names others. -> (Q,) int64 labels.

        Images are (n, C, H, W) uint8, and labels (N * K,) from 0 to N - 1. Queries are normalised together
        (transductive): the class of one depends on the others. `generator`: of the noise of Meta-Clip as
        published, if the model has any; None for torch's own.
        """
        asked = (self.learner, self.start, to_float(support), labels, self.inner)
        learned = adapt(*asked, generator=generator, frame=self.frame)
        with torch.no_grad():
            return self.learner.logits(learned, to_float(queries)).argmax(1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model as an artefact."""
        frame = {} if self.frame is None else vars(self.frame)
        artefacts.save(path, {"start": self.start, **frame}, {"kind": _KIND, **make_portable(self.card)})


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


def load(path: str | os.PathLike[str]) -> MetaModel:
    """Reads a model that `MetaModel.save` wrote. Raises ArtefactError: damaged, or foreign."""
    tensors, card = artefacts.load(path, kind=_KIND, schema=_Card)
    if "spec" in card:
        card["spec"] = protection_of(card["spec"], card.get("made_of"), path).spec
    with describing(path, _KIND), no_larger_than(tensors):
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
    """The (D,) parameters to begin with: those of the network, or of the file that `config.start` names.

    Raises ConfigError for a file that does not fit, or that was trained on private tasks.
    """
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
        support, known, queried, labels = (
            each[0] for each in tasks_of(released[task][None], config.shot).parts
        )
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
