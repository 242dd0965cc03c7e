"""Seven adversaries who look for people: what each sees, and how many they name."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from results_page.engine import Study
from sfumato.study.estimates import Estimate

VIEWS = {
    "released": ("reidentify-static", "reidentify-adaptive"),
    "denoised": ("reidentify-denoised", "reidentify-denoised-adaptive"),
    "restored": ("reidentify-restored", "reidentify-restored-adaptive"),
}


@dataclass(frozen=True)
class Adversaries:
    """Seven adversaries on one protection: static and adaptive, on three views; and on the values."""

    studied: Study
    spec: str

    @cached_property
    def top1(self) -> list[Estimate | None]:
        """Of each, in the order of the views, static before adaptive; at last of the one on values."""
        attacks = [attack for pair in VIEWS.values() for attack in pair]
        return [self.studied.top1(self.spec, attack) for attack in [*attacks, "reidentify-values"]]

    @property
    def strongest(self) -> Estimate:
        """The one that names most."""
        return max((each for each in self.top1 if each), key=lambda each: each.value)

    @property
    def papers(self) -> Estimate:
        """The stronger of the paper's: static, on released and on denoised images."""
        made = [self.studied.top1(self.spec, VIEWS[view][0]) for view in ("released", "denoised")]
        return max((each for each in made if each), key=lambda each: each.value)

    @property
    def risen(self) -> float | None:
        """How much more the paper's static adversary names after the denoiser; None where it did not run."""
        released, denoised = (
            self.studied.top1(self.spec, VIEWS[view][0]) for view in ("released", "denoised")
        )
        return None if released is None or denoised is None else denoised.value - released.value

    @property
    def shown(self) -> list[str]:
        """The views that were looked at."""
        return [view for view, (static, _) in VIEWS.items() if self.studied.top1(self.spec, static)]

    @property
    def faces(self) -> list[float]:
        """How often a face is found, view by view."""
        return [self.studied.attack(self.spec, VIEWS[view][0]).faces_found or 0.0 for view in self.shown]

    @property
    def alike(self) -> list[float]:
        """SSIM to the original, view by view."""
        return [self.studied.similarity(self.spec, view).ssim for view in self.shown]


def adversaries(studied: Study) -> list[Adversaries]:
    """Of each protection of a study."""
    return [Adversaries(studied, spec) for spec in studied.file["protections"]]


def values() -> dict[str, Any]:
    """What templates may use."""
    return {"adversaries": adversaries}
