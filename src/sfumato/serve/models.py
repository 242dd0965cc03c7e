"""The artefacts that a server runs, each as one function from what was released to embeddings.

An embedding depends on its own image alone, up to rounding. Networks compute in float32, on whatever machine:
what is enrolled through one server is found through another.
"""

import math
import os
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from sfumato import artefacts, data
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ArtefactError, ConfigError, MissingExtraError, needs_extra
from sfumato.images import to_float
from sfumato.learn import code_prototypes, few_shot, meta
from sfumato.learn.code_prototypes import CodePrototypes
from sfumato.learn.few_shot import FewShotModel
from sfumato.learn.prototypes import Refusal
from sfumato.networks import Convolutional, FullyConnected, Linear, Strided
from sfumato.networks.onnx_network import OnnxNetwork
from sfumato.networks.weights import initial_weights
from sfumato.protect import Protection, parse
from sfumato.protect.code import KIND as CODE
from sfumato.protect.code import Code, load_encoder
from sfumato.protect.feature import KIND as FEATURE
from sfumato.protect.feature import load_extractor
from sfumato.protect.parameters import artefact_digest
from sfumato.protect.release import Release, made_of
from sfumato.protect.spec import parse_as
from sfumato.serve.graphs import Origin, exported
from sfumato.wire import AnyRelease, portable

MOST_REFERENCE = 512  # reference images that statistics are taken from

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MEASURED_BATCH = 16
_MEASURED_PIXELS = 1 << 20  # of a batch, of large images fewer
_MEASURED_RUNS = 5


@lru_cache(maxsize=256)
def code_of(spec: str) -> Code:
    """The code that a spec names; a device sends the same one again and again. Raises SpecError."""
    code: Code = parse_as(spec, {CODE: Code})
    return code


Kind = Literal["few-shot", "meta", "private feature", "code"]


@dataclass(frozen=True)
class Demand:
    """A protection that a model was trained for.

    Attributes:
        spec: as it travels, see sfumato.wire.portable.
        made_of: the digest of the artefact that the spec names; None where it names none, or nobody knows.
        protection: None for a private feature or a code, whose noise is the device's choice.
        weight: of a support image in a prototype, see FewShotModel.weight.
        kind: of the releases: "pixels", with or without a mask, "numbers" or "bits".
    """

    spec: str
    made_of: str | None
    protection: Protection | None
    weight: float = 1.0
    kind: Literal["pixels", "numbers", "bits"] = "pixels"


@dataclass(frozen=True)
class Served:
    """A model under the name that clients know.

    Attributes:
        name: see above.
        kind: of the artefact.
        demands: the protections that it was trained for; one, but for a range.
        shape: C, H and W of the originals.
        dimension: D, of an embedding.
        refusal: when an answer is "none of these"; None where that was never measured. See refusal_of.
        prepare: a release by one of the demands -> (N, ...) float32, what `run` takes.
        run: (N, ...) float32 of any releases -> (N, D) float32.
        network: what `run` computes, for other ways to compute it; None where it computes nothing.
        by: what computes it.
        codes: how prototypes are made, of a code; None for means.
        origin: what it was read from; None where from nothing.
    """

    name: str
    kind: Kind
    demands: tuple[Demand, ...]
    shape: tuple[int, int, int]
    dimension: int
    refusal: Refusal | None
    prepare: Callable[[AnyRelease, Demand], Tensor]
    run: Callable[[Tensor], Tensor]
    network: nn.Module | None = None
    by: str = "PyTorch"
    codes: CodePrototypes | None = None
    origin: Origin | None = None

    @property
    def digest(self) -> str | None:
        """The SHA-256 of the artefact's file; None where it was not read from one."""
        return None if self.origin is None else self.origin.digest

    def weight(self, release: AnyRelease, demand: Demand) -> float:
        """What each image of a release weighs in a prototype."""
        return demand.weight if self.codes is None else self.codes.weight(code_of(release.spec))

    def refusal_of(self, release: AnyRelease) -> Refusal | None:
        """When an answer to these queries is "none of these"; None where that was never measured."""
        return self.refusal if self.codes is None else self.codes.refusal_of(code_of(release.spec))


def load(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    reference: str | None = None,
    size: tuple[int, int] | None = None,
) -> Served:
    """Read an artefact for a server.

    Args:
        path: of a few-shot, a meta or a private-feature model, or of a code.
        name: for clients; None for that of the file.
        reference: the source of public images (see data.load), for a meta model, whose networks normalise a
            batch of images together: statistics are taken once, from these, and no answer depends on the
            images of others.
        size: H and W, for a few-shot model of an earlier version, whose card does not tell.

    Raises:
        ArtefactError: damaged, foreign, of a kind that is not served, or it names another artefact that
            cannot be read.
        ConfigError: a name that no address can hold, or a meta model without reference images.
    """
    name = Path(path).stem if name is None else name
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not a name for a model: at most 64 letters, digits, '.', '_' and '-'; name it as "
            "NAME=ARTEFACT"
        )
    origin = Origin(os.fspath(path), reference, size, artefact_digest(os.fspath(path)))
    return replace(_read(path, name, reference, size), origin=origin)


def _read(
    path: str | os.PathLike[str], name: str, reference: str | None, size: tuple[int, int] | None
) -> Served:
    kind = artefacts.read_card(path).get("kind")
    if kind == "few-shot":
        return _few_shot(path, name, size)
    if kind == "meta":
        return _meta(path, name, reference)
    if kind == FEATURE:
        return _feature(path, name)
    if kind == CODE:
        return _code(path, name)
    raise ArtefactError(
        f"{path}: is a {kind!r}, and served are 'few-shot', 'meta', {FEATURE!r} and {CODE!r}: name one of "
        "these"
    )


def fastest(served: Served) -> Served:
    """The same model, run by PyTorch or by ONNX Runtime: whichever is measured faster here, now.

    Both compute in float32. Without the extra `edge`, by PyTorch; an encoder that is a graph of ONNX is run
    by ONNX Runtime as it is.
    """
    if (
        served.network is None
        or served.origin is None
        or any(isinstance(part, OnnxNetwork) for part in served.network.modules())
    ):
        return served
    inputs = example(served)
    try:
        run = _by_onnx(served.origin)
    except MissingExtraError:
        return served
    times: dict[Callable[[Tensor], Tensor], list[float]] = {served.run: [], run: []}
    for compute in times:
        compute(inputs)  # what is done once, at the first call
    for _ in range(_MEASURED_RUNS):
        for compute, taken in times.items():
            start = time.perf_counter()
            compute(inputs)
            taken.append(time.perf_counter() - start)
    best = min(times, key=lambda compute: statistics.median(times[compute]))
    return replace(served, run=run, by="ONNX Runtime") if best is run else served


def example(served: Served) -> Tensor:
    """What `run` takes, of a batch of black images."""
    _, height, width = served.shape
    batch = min(_MEASURED_BATCH, max(2, _MEASURED_PIXELS // (height * width)))
    images = np.zeros((batch, *served.shape), np.uint8)
    return served.prepare(Release(images, served.demands[0].spec, (height, width)), served.demands[0])


def _by_torch(network: nn.Module) -> Callable[[Tensor], Tensor]:
    network.eval()

    @torch.inference_mode()
    def run(inputs: Tensor) -> Tensor:
        if inputs.ndim == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        return torch.as_tensor(network(inputs))

    return run


def _by_onnx(origin: Origin) -> Callable[[Tensor], Tensor]:
    """Raises MissingExtraError where ONNX is not installed."""
    graph = exported(origin)
    with needs_extra("ONNX Runtime", "edge"):
        import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors: a machine without a graphics card is no news
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def run(inputs: Tensor) -> Tensor:
        (embeddings,) = session.run(None, {"images": inputs.contiguous().numpy()})
        return torch.from_numpy(embeddings)

    return run


class _Conditioned(nn.Module):
    """Denoiser and encoder of a few-shot model, as a function of one tensor. State: theirs.

    (N, C + K, h, w): the image as the networks see it, and a plane for each number that they are told.
    """

    def __init__(self, model: FewShotModel, channels: int) -> None:
        super().__init__()
        self.encoder = model.encoder
        self.denoiser = model.denoiser
        self.channels = channels

    def forward(self, inputs: Tensor) -> Tensor:
        if self.denoiser is None:
            return torch.as_tensor(self.encoder(inputs))
        denoised = self.denoiser(inputs)
        planes = inputs[:, self.channels :]
        return torch.as_tensor(
            self.encoder(torch.cat([denoised, planes], 1) if planes.shape[1] else denoised)
        )


def _few_shot(path: str | os.PathLike[str], name: str, size: tuple[int, int] | None) -> Served:
    model = few_shot.load(path)
    card = model.card
    if card.get("shape"):
        channels, height, width = card["shape"]
    elif size is not None:
        channels, (height, width) = card["channels"], size
    else:
        raise ArtefactError(
            f"{path}: of an earlier version, whose card does not tell the size of its images: say it with "
            "--size, such as 84x84, or train it again"
        )
    protections = model.conditions.protections
    weights: dict[str, float] = card.get("weights") or {}
    known = card.get("made_of") or [_made_of(protection) for protection in protections]
    demands = tuple(
        Demand(portable(protection.spec), digest, protection, weights.get(protection.spec, 1.0))
        for protection, digest in zip(protections, known, strict=True)
    )
    planes = {
        demand.spec: model.conditions.position(protection)[None, :, None, None]
        for demand, protection in zip(demands, protections, strict=True)
    }

    def prepare(release: AnyRelease, demand: Demand) -> Tensor:
        assert isinstance(release, Release)
        seen = model.seen(release.images())
        if not model.conditions.keys:
            return seen
        return torch.cat([seen, planes[demand.spec].expand(len(seen), -1, *seen.shape[2:])], 1)

    network = _Conditioned(model, channels)
    refusal = Refusal(**card["refusal"]) if card.get("refusal") else None
    return _measured(
        Served(
            name,
            "few-shot",
            demands,
            (channels, height, width),
            0,
            refusal,
            prepare,
            _by_torch(network),
            network,
        ),
        path,
    )


def _meta(path: str | os.PathLike[str], name: str, reference: str | None) -> Served:
    model = meta.load(path)
    if reference is None:
        raise ConfigError(
            f"{path}: a meta model, whose networks normalise a batch of images together: name public images "
            "to take the statistics from, by --reference"
        )
    channels, height, width = model.card["image"]
    # Other sources have the channels that they have.
    own = {"channels": channels} if reference.partition(":")[0] in ("folder", "table") else {}
    images = data.load(reference, size=height, **own).images
    if tuple(images.shape[1:]) != (channels, height, width):
        size = "x".join(map(str, images.shape[1:]))
        raise ConfigError(
            f"{reference}: images of {size} for a model of {channels}x{height}x{width}: name others"
        )
    if len(images) < 2:
        raise ConfigError(f"{reference}: {len(images)} images have no statistics: name a few hundred")
    protection = parse(model.card["spec"])
    # Equally spaced, since classes follow each other; by seeded noise, so that all servers have the same.
    chosen = torch.linspace(0, len(images) - 1, min(len(images), MOST_REFERENCE)).long()
    released = protection.release(images[chosen], seeded_noise(0)).images()
    network = frozen(model, to_float(released))

    def prepare(release: AnyRelease, demand: Demand) -> Tensor:
        assert isinstance(release, Release)
        return to_float(release.images())

    made = model.card.get("made_of") or _made_of(protection)
    demand = Demand(portable(protection.spec), made, protection)
    shape = (channels, height, width)
    served = Served(name, "meta", (demand,), shape, 0, None, prepare, _by_torch(network), network)
    return _measured(served, path)


@torch.no_grad()
def frozen(model: meta.MetaModel, reference: Tensor) -> nn.Module:
    """The network of a meta model up to its last layer, with the statistics of reference images.

    Source: Raghu et al. 2020 (ANIL), Sec. 4: what comes before the last layer hardly changes when a task is
    learned. There the last layer is learned from the support. Prototypes take its place here: they need no
    fixed number of classes, and name more queries rightly (5-way, Omniglot, 150 tasks of 75 queries: 96.1%
    against 45.9% with the learning steps of the model, 5-shot, strided; 92.8% against 89.2%, 1-shot, fully
    connected. Transductive, which a server must not be: 98.6% and 88.5%).

    Args:
        model: from learn.meta.
        reference: (n, C, H, W) float released images.
    """
    config = meta.config_of(model.card["config"])
    with initial_weights():
        network = meta.NETWORKS[config.network](
            tuple(model.card["image"]),
            config.way,
            **({} if config.width is None else {"width": config.width}),
        )
    start = model.start[: model.learner.size]
    nn.utils.vector_to_parameters(start, network.parameters())
    for module in list(network.modules()):
        for name, norm in list(module.named_children()):
            if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d):
                # A momentum of 1: what it keeps are the statistics of one batch, the reference.
                kept = type(norm)(norm.num_features, eps=norm.eps, momentum=1.0)
                kept.load_state_dict(norm.state_dict(), strict=False)
                setattr(module, name, kept)
    if isinstance(network, FullyConnected | Linear):
        network[-1] = nn.Identity()
    elif isinstance(network, Convolutional | Strided):
        network.head = nn.Identity()  # type: ignore[assignment]
    network.train()(reference)
    return network.eval().requires_grad_(False)


def _feature(path: str | os.PathLike[str], name: str) -> Served:
    extractor = load_extractor(os.fspath(path))

    def prepare(release: AnyRelease, demand: Demand) -> Tensor:
        return release.values

    demand = Demand(
        f"feature:artefact={Path(path).name}", artefact_digest(os.fspath(path)), None, kind="numbers"
    )
    dimension = len(extractor.network.covariance)
    return Served(
        name, "private feature", (demand,), extractor.shape, dimension, None, prepare, lambda values: values
    )


def _code(path: str | os.PathLike[str], name: str) -> Served:
    """Prototypes of codes: nothing is computed here but what is known of the noise."""
    encoder, made = load_encoder(os.fspath(path)), code_prototypes.load(path)

    def prepare(release: AnyRelease, demand: Demand) -> Tensor:
        return made.embed(release.vectors(), code_of(release.spec))

    demand = Demand(
        f"{CODE}:artefact={Path(path).name}",
        artefact_digest(os.fspath(path)),
        None,
        kind="numbers" if encoder.bits is None else "bits",
    )
    return Served(
        *(name, "code", (demand,), encoder.shape, encoder.dimension, made.refusal, prepare),
        run=lambda values: values,
        codes=made,
    )


def _made_of(protection: Protection) -> str | None:
    """The digest of what a protection names, where it lies here too."""
    try:
        return made_of(protection)
    except ArtefactError:
        return None


def _measured(served: Served, path: str | os.PathLike[str]) -> Served:
    """With the dimension that the network gives."""
    try:
        embedding = served.run(example(served)[:1])
    except (RuntimeError, ValueError) as error:
        size = "x".join(map(str, served.shape))
        raise ArtefactError(f"{path}: its networks take no images of {size}: check --size") from error
    return replace(served, dimension=math.prod(embedding.shape[1:]))
