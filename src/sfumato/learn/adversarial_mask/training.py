"""The training of masks: two kinds of steps in turn, by the shown and by the hidden pixels.

If a mask is trained against naming people, an adversary's reversed gradient joins the first kind.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.base.hardware import autocast, to_device
from sfumato.data.labelled import LabelledImages
from sfumato.episodes import Sampler, seed_of
from sfumato.errors import ConfigError, DataError
from sfumato.learn.adversarial_mask.adversary import Adversary, episodes_of_people
from sfumato.learn.adversarial_mask.config import MaskConfig, adversarial_at, keep_at
from sfumato.learn.adversarial_mask.model import MaskModel, evaluate, make_untrained
from sfumato.learn.augmentation import augment
from sfumato.learn.fit import Progress, Run, adam, fit
from sfumato.learn.method import as_input, check_shape, classes_of, codes_of, training_card
from sfumato.learn.private_feature import reverse_gradient
from sfumato.protect.mask import pixels_shown, top_pixels

_CHECKPOINT = "mask checkpoint"


def train(
    data: LabelledImages,
    config: MaskConfig,
    *,
    target: str,
    sensitive: str | None = None,
    people: LabelledImages | None = None,
    validation: LabelledImages | None = None,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    losses: Callable[[Tensor], None] | None = None,
    device: torch.device | None = None,
) -> MaskModel:
    """Trains masker and predictor and returns them as of the best epoch.

    Args:
        data: clean images to train on.
        target: the label that the task needs.
        sensitive: the label of the person, if `config.against` is above 0.
        people: images with that label, for the adversary, whom the mask learns to reveal less; they
            need not have the target. None for `data`.
        validation: other images of the same classes. Their accuracy under the mask of `keep` chooses the best
            epoch, with an adversary among those of the second half; None for the last epoch.
        seed, checkpoint, progress, losses, device: see learn.method.

    Raises:
        DataError: fewer than two classes, images that are too small, classes that are only in `validation`,
            people of another size than the images, or fewer than two people with two images.
        ConfigError: `keep` is less than a pixel of these images, a step has fewer images than processes, or
            one of `config.against` and `sensitive` is given without the other.
    """
    classes = trainable(data, config, target, validation)  # fails now, not after an epoch
    codes = codes_of(data, target, classes, "mask")
    people = data if people is None else people
    sampler = _sampler(people, config, target=target, sensitive=sensitive, shape=data.images.shape[1:])
    card = training_card(
        data,
        asdict(config),
        seed=seed,
        precision=config.precision,
        device=device,
        shape=list(data.images.shape[1:]),
        classes=list(classes),
        target=target,
        sensitive=sensitive,
        people=None if sampler is None else people.digest,
        validation=None if validation is None else validation.digest,
    )
    model = make_untrained(card, config, seed=seed)
    training = Training(model, config, device=device)
    steps = -(-len(data) // config.batch)  # of an epoch
    of_people = torch.Generator()

    def batches(epoch: int) -> Iterator[tuple[int, Tensor, Tensor]]:
        """The number of a step over all epochs, its images and their codes."""
        training.start_epoch()
        order = torch.Generator().manual_seed(seed_of(seed, epoch))
        of_people.manual_seed(seed_of(seed, epoch, 1))  # the order is the same without an adversary
        rows = torch.randperm(len(data), generator=order).tensor_split(steps)
        for number, batch in enumerate(rows, epoch * steps):
            yield number, augment(data.images[batch], order, flips=config.flips), codes[batch]

    def step(batch: tuple[int, Tensor, Tensor]) -> Tensor:
        number, images, wanted = batch
        if adversarial_at(config, number):
            return training.obfuscator_step(images)
        if sampler is None:
            return training.predictor_step(images, wanted)
        rows = sampler.draw(1, of_people)[0]  # (N, 1 + Q)
        shown = augment(people.images[rows.flatten()], of_people, flips=config.flips)
        return training.predictor_step(images, wanted, shown, way=len(rows))

    def judge() -> float:
        # An early epoch is as accurate, but before the adversary had time: it would be the least private.
        early = sampler is not None and training.run.epoch < config.epochs // 2
        return 0.0 if early or validation is None else evaluate(model, validation)

    fit(
        training.run,
        batches,
        step,
        epochs=config.epochs,
        steps=steps,
        judge=None if validation is None else judge,
        checkpoint=checkpoint,
        progress=progress,
        losses=losses,
    )
    card |= training.run.outcome
    return model


def _sampler(
    people: LabelledImages, config: MaskConfig, *, target: str, sensitive: str | None, shape: torch.Size
) -> Sampler | None:
    """The adversary's episodes; None without an adversary. Raises DataError and ConfigError: see train."""
    if (config.against > 0) != (sensitive is not None):
        raise ConfigError(
            f"against={config.against:g} and sensitive={sensitive}: give both, a weight and the label that "
            "names the person, or neither"
        )
    if sensitive is None:
        return None
    if sensitive == target:
        raise DataError(f"{target!r} is target and sensitive: a mask cannot both show and hide it")
    check_shape(people.images, shape, "mask", f"{people.name}: ")
    return episodes_of_people(people, sensitive, batch=config.batch)


def trainable(
    data: LabelledImages, config: MaskConfig, target: str, *others: LabelledImages | None
) -> tuple[str, ...]:
    """The classes of the training images, if a mask can be trained on them. Raises as train does."""
    classes = classes_of(data, target, "mask", *others)
    height, width = data.images.shape[2:]
    least = max(2**config.levels, 16)
    if min(height, width) < least:
        raise DataError(
            f"{data.name}: images of {height}x{width}: halved {max(config.levels, 4)} times by the networks, "
            f"which need at least {least}x{least}: load them at a larger size"
        )
    if not pixels_shown(config.keep, (height, width)):
        raise ConfigError(
            f"keep={config.keep:g} of {height}x{width} pixels is less than one: "
            f"choose at least {1 / (height * width):.2g}"
        )
    return classes


def split(scores: Tensor, *, count: int, selection: str) -> tuple[Tensor, Tensor]:
    """(N, 1, H, W) scores m -> the masks of the shown and of the hidden pixels: m_top and m - m_top.

    Source: the mask paper, Sec. II-A. The selection itself has no gradient, and there:

    - "soft", as published: m_top is m for the K highest of its image, and 0 elsewhere. A hidden
      pixel learns nothing from the main loss; if it reveals the class, it learns from the adversarial loss
      to have a LOWER score, which darkens it, though it ought to be shown.
    - "straight-through": m_top is 1 and 0, and m is 1, with the gradient of m in m_top (Bengio, Leonard &
      Courville 2013, Sec. 3.1). A hidden pixel that reveals the class then learns to have a higher score.
    """
    top = top_pixels(scores.detach(), count=count)
    if selection == "soft":
        revealed = scores * top
        return revealed, scores - revealed
    revealed = top + (scores - scores.detach())  # the bracket is exactly 0
    return revealed, 1 - revealed


def uniform_cross_entropy(logits: Tensor) -> Tensor:
    """Mean over images of -Σ_c 1/C · log softmax(logits)_c: at least ln C, reached if all classes are equal.

    Source: the mask paper, Sec. II-B, L_Obfuscator of (N, C) logits, whose sum over N is over the classes.
    """
    return -logits.log_softmax(1).mean()


class Training:
    """The two kinds of steps. State: that of the run, and the number of shown pixels."""

    def __init__(self, model: MaskModel, config: MaskConfig, *, device: torch.device | None = None) -> None:
        self.model = model
        beside = nn.ModuleDict()
        if config.against > 0:
            beside["adversary"] = Adversary(model.card["shape"][0], seed=model.card["seed"])
        self.run = Run(
            model,
            adam(config.learning_rate),
            kind=_CHECKPOINT,
            identity=model.card,
            beside=beside,
            device=device,
        )
        self._config = config
        self._beside = beside
        self._count = 0

    def start_epoch(self) -> None:
        """Sets K, and the networks to training mode."""
        _, height, width = self.model.card["shape"]
        self._count = pixels_shown(keep_at(self._config, self.run.epoch), (height, width))
        self.model.train()

    def predictor_step(
        self, images: Tensor, codes: Tensor, people: Tensor | None = None, *, way: int = 0
    ) -> Tensor:
        """Updates Φ and masker to minimise the cross-entropy of Φ(x_p), which it returns.

        It adds the loss of an adversary, if any: they minimise it, and the masker does the opposite.

        `people`: (N * (1 + Q), C, H, W) uint8, the adversary's episode; None without an adversary.
        """
        revealed, _ = self._mask(images)
        with self._autocast():
            logits = self.model.predictor(revealed)
        loss = functional.cross_entropy(logits.float(), to_device(codes, self.run.device))
        return self.run.minimise(loss if people is None else loss + self._adversarys_loss(people, way))

    def _adversarys_loss(self, people: Tensor, way: int) -> Tensor:
        """The loss of the adversary; its gradient reaches the masker reversed."""
        adversary = self._beside["adversary"]
        assert isinstance(adversary, Adversary)
        revealed, _ = self._mask(people)
        with self._autocast():
            restored, embedded = adversary(reverse_gradient(revealed, self._config.against))
        restoring = functional.mse_loss(restored, as_input(people, self.run.device))
        return restoring + adversary.naming_loss(embedded, way)

    def obfuscator_step(self, images: Tensor) -> Tensor:
        """Updates only the masker to minimise the cross-entropy of Φ(x_o) with the uniform distribution.

        Returns the loss. Neither parameters of Φ move nor its running statistics, which are of shown images.
        """
        _, hidden = self._mask(images)
        # By the statistics of shown images, as in use. With those of the batch, which undo an equal darkening
        # of all hidden pixels, the mask covered much less of the class.
        self.model.predictor.eval()
        with self._autocast():
            logits = self.model.predictor(hidden)
        self.model.predictor.train()
        loss = uniform_cross_entropy(logits.float())
        # Adam skips parameters without gradients, those of Φ.
        loss.backward(inputs=list(self.model.masker.parameters()))
        return self.run.update(loss)

    def _mask(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, H, W) uint8 -> x_p and x_o, float32; for a shape, the masks themselves."""
        ready = as_input(images, self.run.device)
        with self._autocast():
            unbounded = self.model.masker(ready)
        scores = unbounded.float().sigmoid()
        revealed, hidden = split(scores, count=self._count, selection=self._config.selection)
        if self._config.values == "shape":
            return revealed.expand_as(ready), hidden.expand_as(ready)
        return revealed * ready, hidden * ready

    def _autocast(self) -> AbstractContextManager[None]:
        return autocast(self.model.card["precision"], self.run.device)
