"""Few-shot training: Algorithm 1 of Parnami et al. 2022, on episodes that are protected anew each time."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.base.hardware import to_device
from sfumato.data.labelled import LabelledImages, split_by_class
from sfumato.dp.mechanisms import Noise, seeded_noise
from sfumato.episodes import Sampler, Shape, seed_of
from sfumato.learn.augmentation import augment
from sfumato.learn.calibration import measure_refusal
from sfumato.learn.few_shot import mixed
from sfumato.learn.few_shot.config import FewShotConfig
from sfumato.learn.few_shot.model import FewShotModel, make_untrained
from sfumato.learn.fit import Progress, Run, adam, fit
from sfumato.learn.method import training_card
from sfumato.learn.prototypes import episode_accuracies, prototype_logits, support_weights
from sfumato.learn.start import begin
from sfumato.networks.encoders.pretrained import PretrainedEncoder, on_card
from sfumato.protect import Protection
from sfumato.protect.release import artefact_of

_CHECKPOINT = "few-shot checkpoint"


def train(
    data: LabelledImages,
    protection: Protection | Sequence[Protection],
    config: FewShotConfig,
    *,
    target: str = "class",
    validation: LabelledImages | None = None,
    encoder: nn.Module | None = None,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    losses: Callable[[Tensor], None] | None = None,
    device: torch.device | None = None,
) -> FewShotModel:
    """Trains by Algorithm 1 and returns the model of the epoch with the best validation accuracy.

    Every image is protected anew in every episode, by seeded noise: these copies stay with the trainer.

    Args:
        data: clean images to train on.
        protection: of the images; `Clear()` gives the clean-trained baseline. Several of one
            family give one model for a range: each image is protected by one of them, at random, and the
            networks get its parameters.
        target: the label to classify.
        validation: images of other classes for early stopping; None holds back 15% of the classes.
        encoder: any module from (N, C, H, W) float images to (N, D); None for the one that config names.
            It is trained in place, except for parameters without requires_grad, and sees every pixel unless
            config.cell is set. For a range of protections, one more plane for each parameter that differs
            comes after the channels.
        seed, checkpoint, progress, losses, device: see learn.method.

    Raises:
        DataError: too few classes or images for an episode, or no label `config.within`.
        ConfigError: several protections of different families.
    """
    protections = list(protection) if isinstance(protection, Sequence) else [protection]
    if validation is None:
        data, validation = _hold_out(data, target, seed)
    source = _Source(data, protections, config, target, seed)
    named = on_card(config.encoder)
    card = training_card(
        data,
        {**asdict(config), "encoder": named},
        seed=seed,
        precision=config.precision,
        device=device,
        specs=[protection.spec for protection in protections],
        encoder=named if encoder is None else type(encoder).__name__,
        channels=data.images.shape[1],
        target=target,
    )
    channels, height, width = data.images.shape[1:]
    model = make_untrained(
        channels, config, protections, encoder=encoder, card=card, seed=seed, size=(height, width)
    )
    if encoder is None:
        card["start"] = begin(model.encoder, config.start)
    judge = _Validation(validation, target, protections, config, seed)
    model.to(device)
    _fit_encoder(model, data, protections[0], source.codes, seed)
    if any(parameter.requires_grad for parameter in model.parameters()):
        classifier = None
        if config.pretraining_epochs:
            size = model.embed(data.images[:1], protections[0]).shape[1]
            classifier = torch.zeros(source.classes, size)
        training = Training(model, config, classifier, device=device)

        def batches(epoch: int) -> Iterator[list[Batch]]:
            training.start_epoch()
            return source.steps(epoch)

        def episodes(done: int, planned: int) -> None:
            if progress is not None:
                progress(done * config.episodes_per_step, planned * config.episodes_per_step)

        fit(
            training.run,
            batches,
            training.step,
            epochs=config.epochs,
            steps=config.episodes_per_epoch // config.episodes_per_step,
            judge=lambda: judge.accuracy(model),
            patience=config.patience,
            patient_from=config.pretraining_epochs,
            checkpoint=checkpoint,
            progress=episodes,
            losses=losses,
        )
        card |= {**training.run.outcome, "curve": training.run.curve}
        if isinstance(model.encoder, PretrainedEncoder) and not model.encoder.encoder.rate:
            _fit_encoder(model, data, protections[0], source.codes, seed)  # to the denoised images
    else:  # every learning part was computed in closed form
        card |= {"epochs": 0, "validation_accuracy": judge.accuracy(model)}
    judge.measure(model)
    card["shape"] = list(data.images.shape[1:])
    card["made_of"] = [artefact_of(protection) for protection in protections]
    return model


def _fit_encoder(
    model: FewShotModel, data: LabelledImages, protection: Protection, codes: Tensor, seed: int
) -> None:
    """Fits an encoder that was trained before to the released images; others do not change."""
    if isinstance(model.encoder, PretrainedEncoder):
        released = protection.release(data.images, seeded_noise(seed, 0)).images()
        model.fit_encoder(released, codes)


@dataclass(frozen=True)
class Batch:
    """The images of an episode, or, in pretraining, of a batch of the same size."""

    clean: Tensor  # (B, C, H, W) uint8
    released: Tensor  # the same
    which: Tensor | None = None  # (B,) the protection of each among those of the model; None for the first
    codes: Tensor | None = None  # (B,) the class of each image, for pretraining; None for an episode


def fs_pic_loss(
    model: FewShotModel, clean: Tensor, released: Tensor, shape: Shape, positions: Tensor
) -> Tensor:
    """The joint loss of one episode: denoising loss + mean negative log-likelihood of the queries.

    Source: Parnami et al. 2022, Eq. (7), on values in [0, 1]. The denoising loss is Eq. (6): half the
    squared error of an image, SUMMED over its values, mean over images. Algorithm 1 there writes MSE; with
    a mean over the values the weight is so small that the denoiser serves only the classifier, and its
    output is less like the original than its input.

    Args:
        clean, released: (N * (K + Q), C, H, W) uint8, class by class, support before queries.
        positions: (N * (K + Q), P), `Conditions.position` of the protection of each image.
    """
    denoised, embeddings = model(model.prepare(released), positions)
    by_class = embeddings.unflatten(0, (shape.way, -1))  # (N, K + Q, D)
    means = by_class[:, : shape.shot].mean(1)  # (N, D)
    logits = prototype_logits(by_class[:, shape.shot :].flatten(0, 1), means)  # (N * Q, N)
    labels = torch.arange(shape.way, device=logits.device).repeat_interleave(shape.queries)
    return functional.cross_entropy(logits, labels) + _denoising_loss(model, denoised, clean)


def _denoising_loss(model: FewShotModel, denoised: Tensor, clean: Tensor) -> Tensor:
    """Half the squared error of an image, summed over its values, mean over images; 0 without a denoiser."""
    if model.denoiser is None:
        return denoised.new_zeros(())
    return (denoised - model.prepare(clean)).square().flatten(1).sum(1).mean() / 2


class Training:
    """The steps of training. State: that of the run, its weights and optimiser."""

    def __init__(
        self,
        model: FewShotModel,
        config: FewShotConfig,
        classifier: Tensor | None = None,
        *,
        device: torch.device | None = None,
    ) -> None:
        """Prepares to train `model`; `classifier`: (classes, D) first weights of the layer of pretraining."""
        self._model = model
        self._config = config
        self._pretraining = nn.ParameterDict({} if classifier is None else {"classifier": classifier})
        self.run = Run(
            model,
            adam(config.learning_rate),
            kind=_CHECKPOINT,
            identity={"cell": model.cell, **model.card},
            beside=self._pretraining,
            device=device,
        )

    def start_epoch(self) -> None:
        """Sets the learning rate, and the networks to training mode."""
        self._model.train()
        self.run.set_rate(self._config.learning_rate * 0.5 ** (self.run.epoch // self._config.halve_every))

    def step(self, batches: Sequence[Batch]) -> Tensor:
        """Makes one step of Adam on the mean loss of episodes or pretraining batches, which it returns."""
        mean = torch.zeros((), device=self.run.device)
        for batch in batches:
            loss = self._loss(batch) / len(batches)
            loss.backward()
            mean += loss.detach()
        return self.run.update(mean)

    def _loss(self, batch: Batch) -> Tensor:
        device = self.run.device
        clean, released = to_device(batch.clean, device), to_device(batch.released, device)
        conditions = self._model.conditions
        positions = torch.stack([conditions.position(each) for each in conditions.protections])  # (P, K)
        which = torch.zeros(len(clean), dtype=torch.int64) if batch.which is None else batch.which
        positions = to_device(positions[which], device)
        if batch.codes is None:
            return fs_pic_loss(self._model, clean, released, self._config.episode, positions)
        denoised, embeddings = self._model(self._model.prepare(released), positions)
        logits = embeddings @ self._pretraining["classifier"].T
        loss = functional.cross_entropy(logits, to_device(batch.codes, device), label_smoothing=0.1)
        return loss + _denoising_loss(self._model, denoised, clean)


def _hold_out(data: LabelledImages, target: str, seed: int) -> tuple[LabelledImages, LabelledImages]:
    """Training images, and validation images of other classes."""
    parts = split_by_class(data.label(target).codes, shares=(0.85, 0.15, 0.0), seed=seed)
    return data.rows(parts["train"]), data.rows(parts["validation"])


def _sampler(data: LabelledImages, target: str, config: FewShotConfig, shape: Shape) -> Sampler:
    return Sampler(data.label(target), shape, None if config.within is None else data.label(config.within))


class _Source:
    """The training images, by episodes. State: none that changes."""

    def __init__(
        self,
        data: LabelledImages,
        protections: Sequence[Protection],
        config: FewShotConfig,
        target: str,
        seed: int,
    ) -> None:
        self._data, self._protections, self._config, self._seed = data, protections, config, seed
        self._sampler = _sampler(data, target, config, config.episode)
        classes, self.codes = data.label(target).codes.unique(return_inverse=True)
        self.classes = len(classes)

    def steps(self, epoch: int) -> Iterator[list[Batch]]:
        """The episodes, or pretraining batches, of each step of an epoch, protected anew."""
        config, order = self._config, torch.Generator().manual_seed(seed_of(self._seed, epoch))
        noise = seeded_noise(self._seed, epoch)
        pretraining = epoch < config.pretraining_epochs
        if pretraining:
            size = config.way * (config.shot + config.queries)
            rows = torch.randint(len(self._data), (config.episodes_per_epoch, size), generator=order)
        else:
            rows = self._sampler.draw(config.episodes_per_epoch, order).flatten(1)  # (E, N * (K + Q))
        for step in rows.split(config.episodes_per_step):
            yield [self._batch(episode, order, noise, pretraining=pretraining) for episode in step]

    def _batch(self, rows: Tensor, order: torch.Generator, noise: Noise, *, pretraining: bool) -> Batch:
        config = self._config
        images = augment(
            self._data.images[rows], order, flips=config.flips, shifts=config.shifts, warps=config.warps
        )
        which = mixed.choose(len(images), len(self._protections), order)
        released = mixed.release(images, self._protections, which, noise)
        return Batch(images, released, which, self.codes[rows] if pretraining else None)


class _Validation:
    """One fixed set of validation episodes, of images protected once each."""

    def __init__(
        self,
        data: LabelledImages,
        target: str,
        protections: Sequence[Protection],
        config: FewShotConfig,
        seed: int,
    ) -> None:
        sampler = _sampler(data, target, config, config.validation_episode)
        generator = torch.Generator().manual_seed(seed)
        drawn, self._rows = sampler.draw(config.validation_episodes, generator).unique(return_inverse=True)
        # The last number separates this noise from that of every epoch.
        noise = seeded_noise(seed, config.epochs)
        self._which = mixed.choose(len(drawn), len(protections), generator)
        self._released = mixed.release(data.images[drawn], protections, self._which, noise)
        self._protections = protections
        self._codes = data.label(target).codes[drawn]
        self._shot = config.validation_shot

    def accuracy(self, model: FewShotModel) -> float:
        """Mean over the episodes, all support images weighing the same."""
        scores = episode_accuracies(self._embed(model), self._rows, shot=self._shot)
        return scores.mean().item()

    def measure(self, model: FewShotModel) -> None:
        """Adds to a model's card its weights, see FewShotModel.weight, and its refusal, see prototypes."""
        embeddings = self._embed(model)
        # An episode has two images or more of each class.
        weights = support_weights(embeddings, self._codes, self._which)
        model.card["weights"] = dict(zip(model.specs, weights.tolist(), strict=True))
        of_specs = torch.tensor([model.card["weights"][spec] for spec in model.specs])
        measured, reason = measure_refusal(
            *(embeddings.numpy(), self._codes.numpy()),
            way=self._rows.shape[1],
            shot=self._shot,
            weights=of_specs[self._which].numpy(),
        )
        model.card |= {"refusal": None if measured is None else measured.card(), "no_refusal": reason}

    def _embed(self, model: FewShotModel) -> Tensor:
        return mixed.embed(model, self._released, self._protections, self._which)
