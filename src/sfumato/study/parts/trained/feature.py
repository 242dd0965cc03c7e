"""A private feature that a study trains."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from sfumato.errors import SpecError, did_you_mean
from sfumato.learn import private_feature
from sfumato.protect.feature import Feature
from sfumato.protect.release import canonical
from sfumato.study.cells import non_defaults
from sfumato.study.lab.models import with_checkpoint
from sfumato.study.parts.trained.common import NO_FILE, same_classes, task_settings

if TYPE_CHECKING:
    from sfumato.study.grid import StudyConfig
    from sfumato.study.lab.lab import Lab


@dataclass(frozen=True)
class FeatureRecipe:
    """A private feature; see protect.feature.Feature. One artefact serves all noise.

    Attributes:
        dimension, variant: of the feature; None for those of the study's settings.
    """

    noise: float
    dimension: int | None = None
    norm: float | None = None
    variant: str | None = None

    name: ClassVar[str] = "feature"
    kind: ClassVar[str] = "numbers"

    def __post_init__(self) -> None:
        Feature(NO_FILE, noise=self.noise, norm=self.norm)  # checks them
        if self.dimension is not None and self.dimension < 1:
            raise SpecError(f"feature: dimension={self.dimension}: at least 1 number")
        if self.variant is not None and self.variant not in (known := private_feature.VARIANTS[1:]):
            raise SpecError(f"feature: variant={self.variant}: {did_you_mean(self.variant, known)}")

    @property
    def spec(self) -> str:
        """See Recipe."""
        return canonical(self.name, self)

    def settings(self, config: "StudyConfig") -> dict[str, Any]:
        """See Recipe."""
        return {
            "features": non_defaults(self._config(config)),
            "sensitive": config.task.sensitive,
            **task_settings(config),
        }

    def check(self, lab: "Lab") -> None:
        """See Recipe."""
        target = lab.config.task.target
        private_feature.trainable(lab.train, self._config(lab.config), [target], self._sensitive(lab))

    def train(self, lab: "Lab", seed: int, path: Path) -> None:
        """See Recipe."""
        training, validation = same_classes(lab)
        with_checkpoint(
            lambda checkpoint: private_feature.train(
                training,
                self._config(lab.config),
                targets=[lab.config.task.target],
                sensitive=self._sensitive(lab),
                validation=validation,
                seed=seed,
                checkpoint=checkpoint,
                progress=lab.progress.within,
                device=lab.device,
            )
        )(path)

    def with_artefact(self, path: str) -> str:
        """See Recipe."""
        return Feature(path, noise=self.noise, norm=self.norm).spec

    def _sensitive(self, lab: "Lab") -> str:
        task = lab.config.task
        if task.sensitive is None or task.sensitive == task.target:
            raise SpecError(
                f"{self.spec}: a feature removes a label: name one as task.sensitive, not the target"
            )
        return task.sensitive

    def _config(self, config: "StudyConfig") -> private_feature.FeatureConfig:
        features = config.features
        dimension = features.dimension if self.dimension is None else self.dimension
        return replace(features, dimension=dimension, variant=self.variant or features.variant)
