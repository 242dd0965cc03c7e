"""A mask that a study trains."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from sfumato.errors import SpecError
from sfumato.learn import adversarial_mask
from sfumato.protect.mask import Mask
from sfumato.protect.release import canonical, kind_of
from sfumato.study.cells import non_defaults
from sfumato.study.lab.models import with_checkpoint
from sfumato.study.parts.trained.common import NO_FILE, same_classes, task_settings

if TYPE_CHECKING:
    from sfumato.study.grid import StudyConfig
    from sfumato.study.lab.lab import Lab


@dataclass(frozen=True)
class MaskRecipe:
    """A mask; see protect.mask.Mask. One artefact serves all `values`.

    Attributes:
        keep, values: of its releases.
        adversarial ("yes" or "no"), selection, against: of its training, in place of those in `masks`.
    """

    keep: float
    values: str = "hard"
    adversarial: str | None = None
    selection: str | None = None
    against: float | None = None

    name: ClassVar[str] = "mask"

    def __post_init__(self) -> None:
        Mask(NO_FILE, keep=self.keep, values=self.values)  # checks them
        if self.adversarial not in (None, "yes", "no"):
            raise SpecError(f"mask: adversarial={self.adversarial}: write yes or no")

    @property
    def spec(self) -> str:
        """See Recipe."""
        return canonical(self.name, self)

    @property
    def kind(self) -> str:
        """See Recipe."""
        return kind_of(Mask(NO_FILE, values=self.values))

    def settings(self, config: "StudyConfig") -> dict[str, Any]:
        """See Recipe."""
        masks = self._config(config)
        against = {"sensitive": self._sensitive(config)} if masks.against else {}
        return {"masks": non_defaults(masks), **against, **task_settings(config)}

    def check(self, lab: "Lab") -> None:
        """See Recipe."""
        adversarial_mask.trainable(lab.train, self._config(lab.config), lab.config.task.target)
        if sensitive := self._sensitive(lab.config):
            adversarial_mask.episodes_of_people(
                lab.adversaries.others, sensitive, batch=lab.config.masks.batch
            )

    def train(self, lab: "Lab", seed: int, path: Path) -> None:
        """See Recipe."""
        training, validation = same_classes(lab)
        sensitive = self._sensitive(lab.config)
        with_checkpoint(
            lambda checkpoint: adversarial_mask.train(
                training,
                self._config(lab.config),
                target=lab.config.task.target,
                sensitive=sensitive,
                people=lab.adversaries.others if sensitive else None,
                validation=validation,
                seed=seed,
                checkpoint=checkpoint,
                progress=lab.progress.within,
                device=lab.device,
            )
        )(path)

    def with_artefact(self, path: str) -> str:
        """See Recipe."""
        return Mask(path, keep=self.keep, values=self.values).spec

    def _config(self, config: "StudyConfig") -> adversarial_mask.MaskConfig:
        own: dict[str, Any] = {"selection": self.selection, "against": self.against}
        if self.adversarial is not None:
            own["adversarial"] = self.adversarial == "yes"
        given = {name: value for name, value in own.items() if value is not None}
        return replace(config.masks, keep=self.keep, **given)

    def _sensitive(self, config: "StudyConfig") -> str | None:
        task = config.task
        weight = self._config(config).against
        if not weight:
            return None
        if task.sensitive is None or task.sensitive == task.target:
            raise SpecError(
                f"{self.spec}: against={weight:g} is against telling a label: name one "
                "as task.sensitive, not the target"
            )
        return task.sensitive
