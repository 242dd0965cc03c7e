"""Every setting of a study with its accuracy on the task and its risk for people; and which are best."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sfumato.study.choose.estimates import (
    Estimate,
    Inference,
    Risk,
    Study,
    accuracies,
    accuracy_halves,
    attacks_on,
    cell_name,
    cells_of,
    episodic,
    inferences,
    learners_of,
    missing,
    risks,
)
from sfumato.study.records import Record
from sfumato.study.vocabulary import ATTACKS, LEARNERS, SHAPE, has_shape, release_kind


@dataclass(frozen=True)
class Setting:
    """A protection with its best learner and its strongest adversary.

    Attributes:
        protection: the spec.
        learner: the best learner; None without a recorded accuracy.
        accuracy: the accuracy of that learner.
        halves: the same on two halves of the test images; None if they are not apart.
        risk: the strongest of the attacks that ran; None if none did.
        risks: of all attacks that ran.
        inferred: how often each attribute that must stay hidden is inferred.
        untried: the adversaries that must be tried on it, and that the study leaves out.
        complete: whether all attacks and inferences of the study ran, with all seeds; otherwise the risks
            are too low.
        on_frontier: no other complete setting is at least as good in both and better in one.
    """

    protection: str
    learner: str | None
    accuracy: Estimate | None
    halves: tuple[Estimate, Estimate] | None
    risk: Risk | None
    risks: tuple[Risk, ...]
    inferred: tuple[Inference, ...]
    untried: tuple[str, ...]
    complete: bool
    on_frontier: bool

    def upper_end(self, error: float) -> float:
        """A bound on every adversary's share, but for this probability; 1 if nobody looked.

        The strongest of them exceeds its own with this probability at most: their number needs no
        correction.
        """
        ends = [risk.upper_end(error) for risk in self.risks]
        return max(ends, default=1.0)

    def accuracy_on(self, half: int) -> Estimate | None:
        """Its accuracy on one half of the test images; on all if they are not apart."""
        return self.halves[half] if self.halves else self.accuracy

    def risk_on(self, half: int) -> Risk | None:
        """The strongest adversary on one half of the people; on all if they are not apart."""
        return max(
            (risk.of_half(half) for risk in self.risks), key=lambda risk: risk.top1.value, default=None
        )


def frontier(study: Study, records: Sequence[Record], attacks: Sequence[str] | None = None) -> list[Setting]:
    """Every protection of the study, in its order, with its best learner and its strongest adversary.

    Ordinary classifiers count if there are no others, and those of shapes never: they are not a service.

    Args:
        study: the loaded study.json.
        records: its loaded records; those of other protections or seeds do not count.
        attacks: only these adversaries; None for all.
    """
    accuracy, risk = accuracies(study, records), risks(study, records)
    halves, inferred = accuracy_halves(study, records), inferences(study, records)
    absent = set(missing(study, records))
    settings = []
    for protection in study["protections"]:
        learners = [
            name
            for name in learners_of(study, protection)
            if (protection, name) in accuracy and _counts(study, name)
        ]
        learner = max(learners, key=lambda name: accuracy[protection, name].value, default=None)
        # Clear images need no adaptation: the static adversary stands for all.
        every = attacks is None or protection == "none"
        wanted = [name for name in attacks_on(study, protection) if every or name in (attacks or ())]
        planned = [
            cell_name(entry)
            for entry in cells_of(study, "attack", protection)
            if entry["cell"]["attack"] in wanted
        ]
        planned += [cell_name(entry) for entry in cells_of(study, "inference", protection)]
        made = [risk[protection, attack] for attack in wanted if (protection, attack) in risk]
        settings.append(
            Setting(
                protection=protection,
                learner=learner,
                accuracy=accuracy[protection, learner] if learner else None,
                halves=halves.get((protection, learner)) if learner else None,
                risk=max(made, key=lambda risk: risk.top1.value, default=None),
                risks=tuple(made),
                inferred=tuple(each for (spec, _), each in inferred.items() if spec == protection),
                untried=tuple(
                    name
                    for name in mandatory_attacks(protection)
                    if name not in attacks_on(study, protection)
                ),
                complete=bool(planned) and absent.isdisjoint(planned),
                on_frontier=False,
            )
        )
    judged = [setting for setting in settings if setting.complete and setting.accuracy and setting.risk]
    return [
        replace(
            setting,
            on_frontier=setting in judged and not any(_beats(other, setting) for other in judged),
        )
        for setting in settings
    ]


def _counts(study: Study, learner: str) -> bool:
    """Whether a learner's accuracy is one of the study's task, by a service that can be run."""
    words = LEARNERS.get(learner)
    return words is None or (words.of_service and not (episodic(study) and words.knows_classes))


def _beats(setting: Setting, other: Setting) -> bool:
    if not (setting.accuracy and setting.risk and other.accuracy and other.risk):
        return False
    gain = setting.accuracy.value - other.accuracy.value
    relief = other.risk.top1.value - setting.risk.top1.value
    return gain >= 0 and relief >= 0 and (gain > 0 or relief > 0)


def mandatory_attacks(protection: str) -> list[str]:
    """The adversaries without whom a protection is never recommended."""
    kind = release_kind(protection)
    return [name for name, attack in ATTACKS.items() if kind in attack.needed and protection != "none"]


def not_tried_on(study: Study, protection: str) -> list[str]:
    """The adversaries that can look at a protection's releases, and that a study leaves out."""
    kind, tried = release_kind(protection), attacks_on(study, protection)
    if protection == "none":
        return []
    views = {"shape": kind == SHAPE or has_shape(protection), "denoised": "denoised" in study["learners"]}
    return [
        name
        for name, attack in ATTACKS.items()
        if kind in attack.releases and views.get(attack.view, True) and name not in tried
    ]
