"""Codes: train the encoder of a few bits or numbers, in episodes, on other classes than those of its use.

Source: ours; docs/papers.md, "Codes". It joins the episodes of prototypical networks (Snell, Swersky & Zemel
2017) to the device side of private features: the output never contains what the task does not need.

An episode is N classes of K support and Q query images. A class is the mean of its support codes, a query's
logits are minus its squared distances to these means, times a learned scale. The sign of a bit has the
gradient of its number (straight-through: Bengio, Léonard & Courville 2013). Training draws release noise.
"""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato import artefacts
from sfumato.base.hardware import device_of, to_device
from sfumato.data.labelled import LabelledImages
from sfumato.data.worlds.same_scenes import Sets
from sfumato.dp.naming.period import share_codes
from sfumato.episodes import Sampler, Shape, seed_of
from sfumato.errors import ConfigError, DataError
from sfumato.images import to_float
from sfumato.learn import method
from sfumato.learn.augmentation import augment
from sfumato.learn.code_prototypes import CodePrototypes, of_card
from sfumato.learn.codebook import fit_codebook
from sfumato.learn.fit import Progress, Run, adam, fit
from sfumato.learn.gallery import answers_of_episodes, measure_prototypes
from sfumato.learn.private_feature import adversary, reverse_gradient
from sfumato.learn.prototypes import Accuracy, episode_accuracies, prototypical_loss
from sfumato.learn.start import START_FIELD, begin
from sfumato.networks.classifiers import ENCODERS, check_network
from sfumato.networks.code import CodeNetwork, make_code_network
from sfumato.networks.encoders.pretrained import PretrainedEncoder, is_frozen, on_card
from sfumato.networks.weights import initial_weights
from sfumato.protect.code import KIND, MEANS, MOST_WORD, SIGNS, Code, Common, check_noise, signs, words_of
from sfumato.protect.vectors import MOST_BITS
from sfumato.wire.tables import codes_of

AUTO = "auto"  # see CodeConfig.codebook
_CHECKPOINT, _PRETRAINING = "code checkpoint", "code pretraining"
# Of the costs of the same scenes; others were compared by studies/accelerator/releases.py at 258aef2f.
_PAIRS, _SETS = 5.0, 100.0
_COMMITMENT = 0.25
_DELTA = 0.01  # the chance that a reference misleads about common codes
_Of = Callable[[Tensor], Tensor] | None
_LEAST_CLASSES = 5  # of training images, for words
_SLOWLY = 0.05  # share of the learning rate for words on a frozen encoder, which soon know the classes
_KEPT = 3  # sets of a frozen encoder's outputs
_FROM, _UNTIL = 0.2, 0.5  # shares of a training, between which the weight of these rises


@dataclass(frozen=True, kw_only=True)
class CodeConfig(method.Episodic):
    """The settings of training the encoder of a code; for those that are not here see learn.method.

    Attributes:
        codebook: "signs": a bit is the sign of a number. "means": the bits, at most 16, number the nearest of
            2^b words, which a receiver decodes. "auto": means, if the code can have words and its encoder was
            trained before and is frozen; signs otherwise.
        directions: the numbers of a word, fewer with few classes.
        encoder: a name of networks.classifiers.ENCODERS; or one that was trained before, see
            networks.pretrained, which is frozen unless its `rate` is set.
        balance: the weight of the imbalance of bits, which should be 1 as often as -1 and independent of
            each other, in an episode.
        common: the least share of a reference of people that has a code, or another is sent; or None.
        against: the weight of the reversed gradient of adversaries, who name the sensitive labels
            from the code; 0 for no adversaries.
        norm, noise: numbers are clipped to this L2 norm, with Gaussian noise of this variance in training.
    """

    bits: int | None = None  # b, of a code of bits, up to 64; or
    numbers: int | None = None  # d, of a code of numbers
    codebook: str = SIGNS
    directions: int = 40
    encoder: str = "conv4"
    start: str = field(default="drawn", metadata=START_FIELD)
    mirrored: bool = False  # the encoder sees every image twice, once mirrored, and its outputs are averaged
    side: int | None = None  # images are shrunk to this height and width first, or not at all
    way: int = 20
    shot: int = 5
    queries: int = 5
    pretraining_epochs: int = 0  # the first ones, which train the encoder to classify; see pretrain
    epochs: int = 60
    episodes_per_epoch: int = 25
    patience: int = 12
    validation_way: int = 5
    validation_shot: int = 5
    validation_queries: int = 10
    validation_episodes: int = 200
    learning_rate: float = 2e-3
    halve_every: int = 12
    balance: float = 0.1
    same_scenes: float = 0.0  # the weight of `same_scenes_cost`, or 0 to leave it out: for drawn people
    common: float | None = None
    against: float = 0.0
    flip: float | None = None  # each bit is flipped with this probability in training
    norm: float | None = None
    noise: float | None = None
    flips: bool = False
    shifts: int = 0

    def __post_init__(self) -> None:
        check_size(bits=self.bits, numbers=self.numbers)
        check_network(self.encoder, ENCODERS, what="encoder")
        method.check_known("codebook", self.codebook, (SIGNS, MEANS, AUTO))
        if self.codebook == MEANS and (why := self.why_no_words):
            raise ConfigError(f"codebook=means: {why}: write codebook=signs, or auto")
        check_noise(flip=self.flip, epsilon=None, norm=self.norm, noise=self.noise)
        if (self.flip is not None and self.bits is None) or (self.norm is not None and self.numbers is None):
            raise ConfigError("flip is for bits, norm and noise are for numbers: leave out the others")
        least = dict.fromkeys(("epochs", "episodes_per_epoch", "patience", "halve_every", "directions"), 1)
        method.check_least(
            self, **least, shifts=0, validation_episodes=2, balance=0, same_scenes=0, against=0
        )
        share = self.common
        if share is not None and (why := self.why_no_words or "above 0 and at most 1" * (not 0 < share <= 1)):
            raise ConfigError(f"common={share:g}: {why}: it is a share of people, such as 0.01, for bits")
        if not 0 <= self.pretraining_epochs < self.epochs:
            raise ConfigError(
                f"pretraining_epochs={self.pretraining_epochs}: from 0 to {self.epochs - 1}, below epochs"
            )

    @property
    def dimension(self) -> int:
        """b or d."""
        return self.bits or self.numbers or 0

    @property
    def why_no_words(self) -> str:
        """Why codes of this length and noise cannot have words; "" if they can."""
        if self.bits is None or self.bits > MOST_WORD:
            return f"{self.bits or 'no'} bits, and words are numbered by 1 to {MOST_WORD}"
        return "" if self.flip is None else f"flip={self.flip:g} turns bits one by one, and a word needs all"


def fill_queries(config: CodeConfig, classes: int) -> CodeConfig:
    """The settings for fewer classes than the way: a step has as many images, by more queries of each."""
    if not 2 <= classes < config.way:
        return config
    each = config.way * (config.shot + config.queries) // classes
    return replace(config, way=classes, queries=each - config.shot)


def check_size(*, bits: int | None, numbers: int | None) -> None:
    """Raises ConfigError unless a code has 1 to 64 bits, or 1 to 4096 numbers."""
    if (bits is None) == (numbers is None):
        raise ConfigError("a code is of bits or of numbers: write bits=16, or numbers=16")
    if bits is not None and not 1 <= bits <= MOST_BITS:
        raise ConfigError(f"bits={bits}: from 1 to {MOST_BITS}; 16 keep most tasks, 5 prove most")
    if numbers is not None and not 1 <= numbers <= 4096:
        raise ConfigError(f"numbers={numbers}: from 1 to 4096")


class CodeModel(method.Model):
    """An encoder in training. State: its weights, the scale of distances, and adversaries."""

    kind = KIND
    network: CodeNetwork
    scale: nn.Parameter
    adversaries: nn.ModuleDict

    @property
    def config(self) -> CodeConfig:
        """The settings of its card."""
        return CodeConfig(**self.card["config"])

    @property
    def code(self) -> Code:
        """The protection by its codes, without a file."""
        of = self.config
        return Code("encoder", of.bits, of.numbers, of.flip, None, of.norm, of.noise)

    def numbers(self, images: Tensor) -> Tensor:
        """(N, C, H, W) uint8 -> (N, d) float32 from -1 to 1, before signs and noise."""
        return torch.as_tensor(self.network(method.as_input(images, device_of(self))))

    def encode(self, images: Tensor) -> Tensor:
        """(N, C, H, W) uint8 -> (N, D) float32, the output of the encoder."""
        return self.network.encode(method.as_input(images, device_of(self)))

    def codes(self, images: Tensor) -> Tensor:
        """(N, C, H, W) uint8 -> (N, d) float32 as a receiver computes with them, without noise."""
        return self.without_noise(self.infer(self.numbers, images))

    def without_noise(self, numbers: Tensor) -> Tensor:
        """(N, d) numbers before signs and noise -> `codes`."""
        config = self.config
        if config.bits is not None:
            return 2 * signs(numbers).float() - 1
        return numbers if config.norm is None else clip(numbers, config.norm)

    @property
    def prototypes(self) -> CodePrototypes:
        """Those that a receiver makes of the card and the words."""
        tables = () if self.network.codebook is None else self.network.codebook.tables
        return of_card(self.card, [each.detach().cpu().numpy() for each in tables])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the encoder as an artefact, for `code:artefact=FILE`."""
        network = {f"network.{name}": each for name, each in self.network.state_dict().items()}
        artefacts.save(path, network, {"kind": KIND, **method.make_portable(self.card)})


def of_any_length(config: CodeConfig) -> CodeConfig:
    """The settings of `pretrain`, which all lengths and noises share."""
    own = {"bits": 1, "codebook": SIGNS, "directions": CodeConfig.directions, "common": None}
    return replace(config, numbers=None, flip=None, norm=None, noise=None, **own)  # type: ignore[arg-type]


def pretrain(
    data: LabelledImages,
    config: CodeConfig,
    *,
    target: str,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    device: torch.device | None = None,
) -> Run:
    """Trains the encoder to classify training classes; `train` begins from its checkpoint, which stays."""
    config = of_any_length(config)
    model = make_untrained(data, config, target=target, seed=seed)
    classes, class_of = data.label(target).codes.unique(return_inverse=True)
    _fit_encoder(model, data, class_of)
    size = model.infer(model.encode, data.images[:1]).shape[1]
    beside = nn.ParameterDict({"classifier": torch.zeros(len(classes), size)})
    model.to(device)
    encoder, rate = model.network.encoder, adam(config.learning_rate)
    run = Run(encoder, rate, kind=_PRETRAINING, identity=model.card, beside=beside, device=device)
    draw = torch.Generator()

    def batches(epoch: int) -> Iterator[Tensor]:
        draw.manual_seed(seed_of(seed, epoch))
        run.set_rate(config.rate_at(epoch))
        for _ in range(config.episodes_per_epoch):
            yield torch.randint(len(data), (config.way * (config.shot + config.queries),), generator=draw)

    def step(rows: Tensor) -> Tensor:
        images = augment(data.images[rows], draw, flips=config.flips, shifts=config.shifts)
        guesses = model.encode(images) @ beside["classifier"].T
        wanted = to_device(class_of[rows], run.device)
        return run.minimise(functional.cross_entropy(guesses, wanted, label_smoothing=0.1))

    epochs, steps = config.pretraining_epochs, config.episodes_per_epoch
    fit(run, batches, step, epochs=epochs, steps=steps, checkpoint=checkpoint, progress=progress)
    return run


def train(
    data: LabelledImages,
    config: CodeConfig,
    *,
    target: str,
    sensitive: Sequence[str] = (),
    validation: LabelledImages | None = None,
    same_scenes: Sets | None = None,
    reference: Tensor | None = None,
    seed: int = 0,
    pretraining: str | os.PathLike[str] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    device: torch.device | None = None,
) -> CodeModel:
    """Trains an encoder and returns it as of the best epoch after pretraining. See also learn.method.

    `validation` are images of other classes, in episodes; with `same_scenes`, which chooses images of people
    in the same scenes, epochs count from the one in which their cost has its whole weight. Adversaries name
    the `sensitive` labels. `reference`, for codes that are `common`: (m, C, H, W), one of each of m others.
    `pretraining`: the checkpoint of `pretrain` on the same data and settings; None to pretrain for this code.

    Raises DataError for data without such episodes, and for a label that is target and sensitive.
    """
    classes = len(data.label(target).codes.unique())
    if config.codebook == AUTO:
        words = is_frozen(config.encoder) and not config.why_no_words and classes >= _LEAST_CLASSES
        config = replace(config, codebook=MEANS if words else SIGNS)
    if config.codebook == MEANS and classes < _LEAST_CLASSES:
        raise DataError(
            f"{data.name}: words need {_LEAST_CLASSES} classes, {target!r} has {classes}: take codebook=signs"
        )
    if config.codebook == MEANS:
        config = replace(config, directions=min(config.directions, classes - 1))
    for name, given, what in (
        ("against", bool(sensitive), "sensitive labels"),
        ("same_scenes", same_scenes is not None, "images of such scenes"),
        ("common", reference is not None, "reference of people"),
    ):
        value = getattr(config, name) or 0
        if (value > 0) != given:
            raise ConfigError(f"{name}={value:g} and {'' if given else 'no '}{what}: give both, or neither")
    method.check_apart(data, [target], sensitive, "code")
    label = data.label(target)
    sampler = Sampler(label, config.episode)
    model = make_untrained(data, config, target=target, sensitive=sensitive, validation=validation, seed=seed)
    model.to(device)
    class_of = label.codes.unique(return_inverse=True)[1]
    frozen, codebook = _fit_encoder(model, data, class_of), model.network.codebook
    if codebook is not None and frozen is not None:
        for parameter in (*model.network.project.parameters(), *codebook.parameters()):
            parameter.share_of_rate = _SLOWLY  # type: ignore[attr-defined]
    run = Run(model, adam(config.learning_rate), kind=_CHECKPOINT, identity=model.card, device=device)
    judge, finish = (None, None) if validation is None else _judge(model, validation, target)
    secrets = {name: data.label(name).codes.unique(return_inverse=True)[1] for name in sensitive}
    draw, more = torch.Generator(), dict[str, Any]()

    def batches(epoch: int) -> Iterator[Tensor]:
        draw.manual_seed(seed_of(seed, epoch))
        run.set_rate(config.rate_at(epoch))
        if codebook is not None and epoch == config.pretraining_epochs:
            return  # the words as they are fitted are judged first
        for _ in range(config.episodes_per_epoch):
            yield sampler.draw(1, draw)[0]

    def encode(rows: Tensor) -> Tensor:
        if frozen is not None:
            return to_device(frozen[torch.randint(len(frozen), rows.shape, generator=draw), rows], run.device)
        images = augment(data.images[rows], draw, flips=config.flips, shifts=config.shifts)
        return model.encode(images)

    def weight() -> float:
        done = (run.epoch - config.pretraining_epochs) / (config.epochs - config.pretraining_epochs)
        return config.same_scenes * height(done)

    def step(rows: Tensor) -> Tensor:
        outputs, of_set = encode(rows.flatten()), None
        if same_scenes is not None and weight():
            of_set = same_scenes(draw)  # (P, S, C, H, W)
            outputs = torch.cat([outputs, model.encode(of_set.flatten(0, 1))])
        if codebook is not None:
            outputs = mix_classes(outputs, rows.numel(), config.episode, draw)
        numbers = model.network.vectors(outputs)
        numbers, others = numbers[: rows.numel()], numbers[rows.numel() :]
        loss = episode_loss(model, numbers, config, draw)
        if of_set is not None:
            words = None if codebook is None else codebook.nearest(others)
            both = torch.stack([others, release_numbers(others, config, draw, words)])
            loss = loss + weight() * same_scenes_cost(*both.unflatten(1, of_set.shape[:2]))
        for name, codes in secrets.items():
            guesses = model.adversaries[f"of {name}"](reverse_gradient(numbers, config.against))
            loss = loss + functional.cross_entropy(guesses, to_device(codes[rows.flatten()], run.device))
        return run.minimise(loss)

    def judge_epoch() -> float | None:
        return judge() if judge is not None and weight() == config.same_scenes else None

    if not (checkpoint and Path(checkpoint).exists()):
        own, run.epoch = None, config.pretraining_epochs
        if config.pretraining_epochs and frozen is None:
            own = Path(f"{checkpoint}.pretraining") if checkpoint and not pretraining else None
            more = {"checkpoint": pretraining or own, "progress": progress, "device": device}
            of_classes = pretrain(data, config, target=target, seed=seed, **more)
            run.begin_from(of_classes, model.network.encoder)
        if codebook is not None:
            outputs = model.infer(model.encode, data.images)[None] if frozen is None else frozen
            fit_codebook(model.network, outputs.flatten(0, 1), class_of.repeat(len(outputs)), seed=seed)
        if checkpoint and own:
            run.save(checkpoint)
            own.unlink()
    # Without validation nobody knows whether episodes make the words of a frozen encoder better.
    alone = codebook is not None and frozen is not None and validation is None
    epochs = config.pretraining_epochs + 1 if alone else config.epochs
    patience = {"patience": config.patience, "patient_from": config.pretraining_epochs}
    more = {"judge": judge_epoch, "checkpoint": checkpoint, "progress": progress, **patience}
    fit(run, batches, step, epochs=epochs, steps=config.episodes_per_epoch, **more)
    model.card |= run.outcome
    model.card["prototypes"] = None
    if reference is not None:
        _share_codes(model, reference)
    if finish is not None:
        finish()
    return model


def _share_codes(model: CodeModel, reference: Tensor) -> None:
    """Lets codes leave that many of (m, C, H, W) images of people have: see naming.period.share_codes."""
    network, every = model.network, 2 * codes_of(model.network.dimension).astype(np.int8) - 1
    meant = every if model.prototypes.words is None else model.prototypes.words
    words = words_of(signs(model.infer(model.numbers, reference)))
    rule, share = share_codes(words.numpy(), meant, least=model.config.common or 0, delta=_DELTA)
    network.common = to_device(torch.from_numpy(every[rule]), device_of(model))
    model.card["common"] = asdict(Common(len(np.unique(rule)), share, len(reference), _DELTA))


def evaluate(
    model: CodeModel,
    data: LabelledImages,
    shape: Shape,
    *,
    target: str,
    episodes: int = 600,
    seed: int = 0,
    one_word: bool = False,
) -> Accuracy:
    """Mean accuracy of a service's answers in episodes of new classes, by codes with the training's noise.

    With `one_word`, of words, a class is the word nearest to the mean of its examples, which the device
    chooses: b bits, not b of each, so that counting bounds naming by 2^b / N for any number of examples.
    """
    rows = Sampler(data.label(target), shape).draw(episodes, torch.Generator().manual_seed(seed))
    config, noise, shot = model.config, torch.Generator().manual_seed(seed), shape.shot
    codes, places = release_numbers(_numbers(model, data), config, noise), rows
    if one_word:
        network, support = model.network, rows[:, :, :shot].flatten(0, 1)  # (E N, K)
        means = functional.normalize(_numbers(model, data, of=network.vectors)[support].mean(1))
        chosen = model.without_noise(model.infer(network.numbers, means))
        new = torch.arange(len(codes), len(codes) + len(chosen)).view(*rows.shape[:2], 1)
        codes, places, shot = torch.cat([codes, chosen]), torch.cat([new, rows[:, :, shot:]], 2), 1
    answers, size = _answers(model, codes, places, shot=shot), "bits" if config.bits else "numbers"
    return Accuracy.of_answers(answers, rows[:, :, shape.shot :], shape, f"{config.dimension} {size}")


def _answers(
    model: CodeModel, codes: Tensor, rows: Tensor, *, shot: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """The answers of a service to (n, d) codes with noise, in episodes of (E, N, K + Q) rows of them."""
    code, made = model.code, model.prototypes
    embedded, weights = made.unbias(codes.numpy(), code), np.full(len(codes), made.weight(code))
    more: dict[str, Any] = {"weights": weights, "codes": made, "refusal": made.refusal_of(code)}
    return answers_of_episodes(embedded, rows.numpy(), shot=shot, **more)


def episode_loss(model: CodeModel, numbers: Tensor, config: CodeConfig, draw: torch.Generator) -> Tensor:
    """Cross-entropy of the queries among (N·(K + Q), d) numbers of one episode; and the bits' imbalance.

    With a codebook: and the distance of numbers from their words (van den Oord et al. 2017, Eq. (3)).
    """
    codebook = model.network.codebook
    words = None if codebook is None else codebook.nearest(numbers)
    codes = release_numbers(numbers, config, draw, words)
    loss = prototypical_loss(codes, config.episode, model.scale.exp())
    if words is not None:
        apart = functional.mse_loss(words, numbers.detach()) + functional.mse_loss(words.detach(), numbers)
        return loss + _COMMITMENT * numbers.shape[1] * apart
    if config.balance and config.bits is not None:
        loss = loss + config.balance * imbalance(numbers)
    return loss


def _fit_encoder(model: CodeModel, data: LabelledImages, class_of: Tensor) -> Tensor | None:
    """Standardises and whitens an encoder that was trained before; -> the outputs of a frozen one.

    (V, N, D), for the images and, with `flips`, for the mirrored ones; None for a learning encoder.
    """
    encoder = model.eval().network.encoder
    if not isinstance(encoder, PretrainedEncoder):
        return None
    outputs = _raw(model, data, mirrored=model.config.flips or model.config.mirrored)
    encoder.fit(outputs.flatten(0, 1), class_of.repeat(len(outputs)))
    return None if encoder.encoder.rate else _finish(model, outputs)


_LAST: dict[tuple[Any, ...], Tensor] = {}  # results of _raw, which the codes of a study share


def _raw(model: CodeModel, data: LabelledImages, *, mirrored: bool) -> Tensor:
    """(V, N, D) of a pretrained encoder, not standardised: of images and, if asked for, mirrored ones."""
    network, device = model.network, device_of(model)
    key = (data.digest, model.config.encoder, model.config.side, mirrored, device)

    def raw(part: Tensor) -> Tensor:
        seen = network.shrink(to_float(to_device(part, device)))
        return cast(PretrainedEncoder, network.encoder).encoder.raw(seen)

    if key not in _LAST:
        for old in list(_LAST)[: 1 - _KEPT]:
            del _LAST[old]
        variants = (data.images, data.images.flip(3))[: 1 + mirrored]
        with torch.no_grad():
            _LAST[key] = torch.stack([method.in_batches(raw, each) for each in variants])
    return _LAST[key]


@torch.no_grad()
def _finish(model: CodeModel, raw: Tensor) -> Tensor:
    """(V, N, D) of `_raw` -> the same as `encode` gives it: (V, N, D), or their mean, (1, N, D)."""
    encoder = cast(PretrainedEncoder, model.network.encoder)
    made = torch.stack([encoder.whitened(encoder.encoder.scale(each)) for each in raw])
    return made.mean(0, keepdim=True) if model.config.mirrored else made


def _numbers(model: CodeModel, data: LabelledImages, rows: Tensor | None = None, of: _Of = None) -> Tensor:
    """(n, d) numbers of some rows, or `of` their outputs; a frozen encoder sees each once."""
    rows, of = torch.arange(len(data)) if rows is None else rows, of or model.network.code
    if not is_frozen(model.config.encoder):
        return model.infer(lambda part: of(model.encode(part)), data.images[rows])
    outputs = _finish(model.eval(), _raw(model, data, mirrored=model.config.mirrored))[0]
    return model.infer(of, outputs[rows.to(outputs.device)]).cpu()


def release_numbers(
    numbers: Tensor, config: CodeConfig, draw: torch.Generator, words: Tensor | None = None
) -> Tensor:
    """Numbers as a receiver has them: (N, d) from -1 to 1 -> (N, d), with the gradient of the numbers.

    With a codebook they are the unit vectors of CodeNetwork.vectors, and the receiver has their `words`.
    """
    if words is not None:
        return functional.normalize(words) + numbers - numbers.detach()
    if config.bits is not None:
        bits = 2 * signs(numbers).float() - 1
        if config.flip is not None:
            flips = torch.rand(bits.shape, generator=draw) < config.flip
            bits = bits * (1 - 2 * to_device(flips, bits.device).float())
        return numbers + (bits - numbers).detach()
    if config.norm is None or config.noise is None:
        return numbers
    noise = to_device(torch.randn(numbers.shape, generator=draw), numbers.device)
    return clip(numbers, config.norm) + math.sqrt(config.noise) * noise


def clip(numbers: Tensor, norm: float) -> Tensor:
    """(N, d) scaled to an L2 norm of at most `norm`."""
    shares: Tensor = norm / numbers.norm(dim=1, keepdim=True).clamp(min=1e-12)
    return numbers * shares.clamp(max=1.0)


def imbalance(numbers: Tensor) -> Tensor:
    """The deviation of (n, d) numbers from a mean of 0 and no correlation: the sum of mean squares."""
    mean = numbers.mean(0)
    about = functional.normalize(numbers - mean, dim=0)
    correlations = about.T @ about - torch.eye(numbers.shape[1], device=numbers.device)
    pairs = max(1, numbers.shape[1] * (numbers.shape[1] - 1))
    return mean.square().mean() + correlations.square().sum() / pairs


def mix_classes(outputs: Tensor, count: int, shape: Shape, draw: torch.Generator) -> Tensor:
    """Mixes three of four classes of `count` outputs, an episode, with the next one: new classes (ours)."""
    own = outputs[:count].unflatten(0, (shape.way, -1))  # (N, K + Q, D)
    shares = (
        torch.rand(shape.way, 1, 1, generator=draw) / 2 * (torch.rand(shape.way, 1, 1, generator=draw) < 0.75)
    )
    mixed = torch.lerp(own, own.roll(1, 0), to_device(shares, outputs.device))
    return torch.cat([mixed.flatten(0, 1), outputs[count:]])


def height(done: float) -> float:
    """The share of the same scenes' weight after this share of the training: the task comes first."""
    return min(1.0, max(0.0, (done - _FROM) / (_UNTIL - _FROM)))


def same_scenes_cost(numbers: Tensor, codes: Tensor) -> Tensor:
    """The cost of one set of people in the same scenes, of what codes tell of the person.

    Source: ours; docs/papers.md, "Codes". A code of a task still reveals a little of the person: each bit is
    set a few hundredths more often, or less, than in codes of others, and many releases add this up. Two
    images of one scene (the same hat, light, pose and background) differ only in the person: their codes
    should not differ. It is the variance between people in a scene, and that of people's mean codes.

    (P, S, d) of P people in the same S scenes: numbers before their sign, and codes as released.
    """
    return _PAIRS * numbers.var(0).mean() + _SETS * shift(codes)


def shift(codes: Tensor) -> Tensor:
    """The variance of people's mean codes, mean over bits. (P, S, d) in the same scenes, S even.

    The same scenes for everybody remove the task from it, and the product of the differences in two halves of
    the scenes has no bias from chance: it is 0 on average, and may be negative, if codes reveal no person.
    """
    halves = codes.unflatten(1, (2, -1)).mean(2)  # (P, 2, d)
    about = halves - halves.mean(0)
    return torch.as_tensor((about[:, 0] * about[:, 1]).sum(0).mean() / (len(codes) - 1))


def make_untrained(
    data: LabelledImages,
    config: CodeConfig,
    *,
    target: str,
    sensitive: Sequence[str] = (),
    validation: LabelledImages | None = None,
    seed: int = 0,
) -> CodeModel:
    """Makes the model of some data and settings, with their start and initial weights from `seed`."""
    own: dict[str, Any] = {"sensitive": list(sensitive), "validation": validation}
    card = method.training_card(data, config, seed=seed, target=target, **own)
    card["classes"] = len(method.classes_of(data, target, "code"))
    card["config"]["encoder"] = on_card(config.encoder)
    channels, height, width = data.images.shape[1:]
    try:
        sizes: dict[str, Any] = {"dimension": config.dimension, "side": config.side}
        words = config.directions if config.codebook == MEANS else None
        sizes |= {"mirrored": config.mirrored, "directions": words}
        network = make_code_network(config.encoder, (channels, height, width), seed=seed, **sizes)
    except DataError as error:
        raise DataError(f"{data.name}: {error}") from error
    with initial_weights(seed):
        classes = {name: len(data.label(name).codes.unique()) for name in sensitive}
        size = network.project.out_features
        adversaries = {f"of {name}": adversary(size, number) for name, number in classes.items()}
    factor = 0.0 if network.codebook is None else 1.8  # ln of that of squared distances
    scale = nn.Parameter(torch.tensor(factor))
    model = CodeModel(card, network=network, scale=scale, adversaries=nn.ModuleDict(adversaries))
    card["start"] = begin(network.encoder, config.start)
    return model


def _judge(
    model: CodeModel, data: LabelledImages, target: str
) -> tuple[Callable[[], float], Callable[[], None]]:
    """Two functions: one compares epochs by validation images, the other completes the card in the end."""
    config, draw = model.config, torch.Generator().manual_seed(0)
    rows = Sampler(data.label(target), config.validation_episode).draw(config.validation_episodes, draw)
    drawn, places = rows.unique(return_inverse=True)
    classes, shot = data.label(target).codes[drawn], config.validation_shot

    def codes() -> Tensor:
        numbers = _numbers(model, data, drawn)
        return release_numbers(numbers, config, torch.Generator().manual_seed(0))

    def accuracy() -> float:
        """By plain means, in a tenth of the time of a service's answers."""
        made = codes()
        if model.network.codebook is not None:
            made = torch.from_numpy(model.prototypes.unbias(made.numpy(), model.code))
        return episode_accuracies(made, places, shot=shot).mean().item()

    def finish() -> None:
        """Measures the receivers' settings, see gallery.measure_prototypes, and their answers."""
        clean, way = model.without_noise(_numbers(model, data, drawn)), config.validation_way
        made: dict[str, Any] = {"code": model.code, "words": model.prototypes.words}
        model.card["prototypes"] = measure_prototypes(clean, codes(), classes, way=way, shot=shot, **made)
        answers, _ = _answers(model, codes(), places, shot=shot)
        model.card["validation_accuracy"] = float(answers.mean())

    return accuracy, finish
