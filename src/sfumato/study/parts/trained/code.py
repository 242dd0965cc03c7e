"""A code that a study trains."""

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from sfumato.data.labelled import LabelledImages
from sfumato.data.worlds import same_scenes
from sfumato.episodes import Sampler, fit_episodes
from sfumato.errors import ConfigError, SpecError
from sfumato.learn import code
from sfumato.networks.encoders.pretrained import is_frozen
from sfumato.protect.code import Code
from sfumato.protect.release import canonical
from sfumato.study.cells import non_defaults
from sfumato.study.lab.models import with_checkpoint
from sfumato.study.parts.trained.common import NO_FILE, same_classes, task_settings

if TYPE_CHECKING:
    from sfumato.study.grid import StudyConfig
    from sfumato.study.lab.lab import Lab


@dataclass(frozen=True)
class CodeRecipe:
    """A code of bits or numbers; see protect.code.Code. It is trained through its noise."""

    bits: int | None = None
    numbers: int | None = None
    flip: float | None = None
    epsilon: float | None = None
    norm: float | None = None
    noise: float | None = None

    name: ClassVar[str] = "code"

    def __post_init__(self) -> None:
        try:
            code.check_size(bits=self.bits, numbers=self.numbers)
            self._with_noise(code.CodeConfig(bits=1))
        except ConfigError as error:
            raise SpecError(f"code: {error}") from error
        Code(NO_FILE, flip=self.flip, epsilon=self.epsilon, norm=self.norm, noise=self.noise)  # checks them

    @property
    def spec(self) -> str:
        """See Recipe."""
        return canonical(self.name, self)

    @property
    def kind(self) -> str:
        """See Recipe."""
        return "numbers" if self.bits is None else "bits"

    def settings(self, config: "StudyConfig") -> dict[str, Any]:
        """See Recipe."""
        settings = {"codes": non_defaults(self._with_noise(config.codes)), **task_settings(config)}
        if not config.episodic:  # few classes, whose episodes were smaller in earlier versions
            settings["filled"] = True
        return {**settings, "sensitive": self._sensitive(config)}

    def check(self, lab: "Lab") -> None:
        """See Recipe."""
        target = lab.config.task.target
        config = _fitting(lab.train, None, target, self._with_noise(lab.config.codes))
        Sampler(lab.train.label(target), config.episode)
        if config.same_scenes:
            same_scenes.check(lab.train)

    def train(self, lab: "Lab", seed: int, path: Path) -> None:
        """See Recipe."""
        config = lab.config
        training, validation = lab.train, lab.validation
        if not config.episodic:
            training, validation = same_classes(lab)
        scenes = None
        if config.codes.same_scenes:
            scenes = same_scenes.draw_sets(training, seed=config.data.get("seed", 0))
        codes = _fitting(training, validation, config.task.target, self._with_noise(config.codes))
        with_checkpoint(
            lambda checkpoint: code.train(
                training,
                codes,
                target=config.task.target,
                sensitive=self._sensitive(config),
                validation=validation,
                same_scenes=scenes,
                seed=seed,
                pretraining=self._pretraining(lab, training, codes, seed),
                checkpoint=checkpoint,
                progress=lab.progress.within,
                device=lab.device,
            )
        )(path)

    def _pretraining(
        self, lab: "Lab", data: LabelledImages, codes: code.CodeConfig, seed: int
    ) -> Path | None:
        """The file of an encoder that learned to classify, from which all codes of a study begin.

        None without such epochs, and for a frozen encoder, which learns nothing.
        """
        if not codes.pretraining_epochs or is_frozen(codes.encoder):
            return None
        settings = {
            **task_settings(lab.config),
            "codes": non_defaults(code.of_any_length(codes)),
            "images": data.digest,
            "seed": seed,
        }
        make = with_checkpoint(
            lambda checkpoint: code.pretrain(
                data,
                codes,
                target=lab.config.task.target,
                seed=seed,
                checkpoint=checkpoint,
                progress=lab.progress.within,
                device=lab.device,
            )
        )
        return lab.models.artefact("pretraining", settings, make)

    def with_artefact(self, path: str) -> str:
        """See Recipe."""
        return Code(path, **asdict(self)).spec

    def _with_noise(self, config: code.CodeConfig) -> code.CodeConfig:
        flip = self.flip
        if self.epsilon is not None and self.bits is not None:
            # If a word is replaced with this probability, half of its bits change.
            flip = (2**self.bits - 1) / (math.exp(self.epsilon) + 2**self.bits - 1) / 2
        return replace(
            config, bits=self.bits, numbers=self.numbers, flip=flip, norm=self.norm, noise=self.noise
        )

    def _sensitive(self, config: "StudyConfig") -> tuple[str, ...]:
        if not config.codes.against:
            return ()
        return tuple(label for label in config.task.secrets if label != config.task.target)


def _fitting(
    data: LabelledImages, validation: LabelledImages | None, target: str, codes: code.CodeConfig
) -> code.CodeConfig:
    """The settings with episodes that fit the classes of the images."""
    label = data.label(target)
    codes = fit_episodes(code.fill_queries(codes, len(label.codes.unique())), label.codes)
    if validation is None:
        return codes
    return fit_episodes(codes, validation.label(target).codes, prefix="validation_")
