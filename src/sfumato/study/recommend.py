"""From the records of a study to the setting to use: pure functions, and the words that say so.

A setting is judged by its strongest adversary and by its best learner. What a recommendation promises is
no more than was measured: a bound on what THESE adversaries found, beside what is proved, if anything is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sfumato.dp.guarantee import rounded_up
from sfumato.study.estimates import (
    Estimate,
    Risk,
    Study,
    accuracies,
    attacks_on,
    cell_name,
    cells_of,
    episodic,
    learner_in_words,
    learners_of,
    missing,
    percent,
    proofs,
    risks,
)
from sfumato.study.kinds import proved
from sfumato.study.records import Record
from sfumato.study.vocabulary import ADAPTIVE, LEARNERS


@dataclass(frozen=True)
class Setting:
    """A protection with its best learner and its strongest adversary.

    Attributes:
        protection: the spec.
        learner: which learner was best; None where no accuracy is recorded.
        accuracy: the accuracy of that learner.
        risk: the strongest of the attacks that ran; None where none did.
        complete: whether all attacks of the study ran, with all seeds; where not, `risk` is too low.
        on_frontier: no other complete setting is at least as good in both and better in one.
    """

    protection: str
    learner: str | None
    accuracy: Estimate | None
    risk: Risk | None
    complete: bool
    on_frontier: bool


@dataclass(frozen=True)
class Recommendation:
    """The setting to use, or None with the reason.

    Attributes:
        setting: the recommended one.
        runner_up: the next most accurate setting under the bound.
        bound: the highest re-identification that the study accepts; None where it names none.
        headline: one line: "recommended: SPEC", or that and why there is none.
        details: what there is to know about it, a sentence a line.
    """

    setting: Setting | None
    runner_up: Setting | None
    bound: float | None
    headline: str
    details: tuple[str, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """What the command line prints."""
        return (self.headline, *self.details)


def frontier(study: Study, records: Sequence[Record], attacks: Sequence[str] | None = None) -> list[Setting]:
    """Every protection of the study, in its order, with its best learner and its strongest adversary.

    Ordinary classifiers count where there are no others, and those of shapes never: they are no service.

    Args:
        study: the loaded study.json.
        records: its loaded records; those of other protections or seeds do not count.
        attacks: only these adversaries; None for all.
    """
    accuracy, risk = accuracies(study, records), risks(study, records)
    absent = set(missing(study, records))
    settings = []
    for protection in study["protections"]:
        learners = [
            name
            for name in learners_of(study, protection)
            if (protection, name) in accuracy and _counts(study, name)
        ]
        learner = max(learners, key=lambda name: accuracy[protection, name].value, default=None)
        # Nobody need adapt to clear images: the static adversary stands for all.
        every = attacks is None or protection == "none"
        wanted = [name for name in attacks_on(study, protection) if every or name in (attacks or ())]
        planned = [
            cell_name(entry)
            for entry in cells_of(study, "attack", protection)
            if entry["cell"]["attack"] in wanted
        ]
        made = [risk[protection, attack] for attack in wanted if (protection, attack) in risk]
        settings.append(
            Setting(
                protection=protection,
                learner=learner,
                accuracy=accuracy[protection, learner] if learner else None,
                risk=max(made, key=lambda risk: risk.top1.value, default=None),
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
    """Whether the accuracy of a learner is one of the study's task, by a service that can be run."""
    words = LEARNERS.get(learner)
    return words is None or (words.of_service and not (episodic(study) and words.knows_classes))


def _beats(setting: Setting, other: Setting) -> bool:
    if not (setting.accuracy and setting.risk and other.accuracy and other.risk):
        return False
    gain = setting.accuracy.value - other.accuracy.value
    relief = other.risk.top1.value - setting.risk.top1.value
    return gain >= 0 and relief >= 0 and (gain > 0 or relief > 0)


def recommend(study: Study, records: Sequence[Record]) -> Recommendation:
    """The most accurate setting whose strongest re-identification is at or under the study's bound.

    There is none, and the reason is given, where the study has no bound, no secret or no attacks; where
    the secret is the task itself (an adaptive adversary then has at least the task's accuracy, so that no
    setting is both useful and safe against them); or where every setting is above the bound. A setting
    with attacks that did not run is never recommended.
    """
    bound = (study.get("recommend") or {}).get("reidentification_at_most")
    settings = frontier(study, records)
    reason = _no_recommendation(study, settings, bound)
    if reason:
        return Recommendation(None, None, bound, f"no recommendation: {reason[0]}", tuple(reason[1:]))
    assert bound is not None  # that would have been a reason
    # Among equal accuracies the lower risk; among equal risks the order of the study.
    safe = sorted(
        (entry for entry in _known(settings) if entry[1].top1.value <= bound),
        key=lambda entry: (-entry[0].value, entry[1].top1.value),
    )
    accuracy, risk, best = safe[0]
    details = [
        f"Accuracy {_with_interval(accuracy)}, {learner_in_words(best.learner or '')}; "
        f"strongest re-identification {_risk_in_words(risk)}, where at most {percent(bound)} is accepted."
    ]
    if len(safe) > 1 and accuracy.overlaps(safe[1][0]):
        details.append(
            f"Its accuracy cannot be told from the runner-up's: {safe[1][2].protection} has "
            f"{_with_interval(safe[1][0])}, and re-identification {percent(safe[1][1].top1.value)}."
        )
    if risk.top1.high > bound:
        details.append(
            f"Its re-identification is under the bound by estimate only: the interval reaches "
            f"{percent(risk.top1.high)}."
        )
    # The setting is complete, so that all of its attacks ran; clear images there is no adapting to.
    if best.protection != "none" and set(ADAPTIVE).isdisjoint(attacks_on(study, best.protection)):
        details.append("No adaptive adversary was tried, who is the one to fear: the risk may be higher.")
    details.append(_proved_in_words(proofs(study, records).get(best.protection)))
    return Recommendation(
        best,
        safe[1][2] if len(safe) > 1 else None,
        bound,
        f"recommended: {best.protection}",
        (*details, *_not_considered(settings)),
    )


def _no_recommendation(study: Study, settings: Sequence[Setting], bound: float | None) -> list[str]:
    """Why there is none: a headline, and details; empty where there is one."""
    sensitive = study["task"].get("sensitive")
    if not sensitive:
        return ["the study names no secret (task: sensitive), so that no adversary could be measured"]
    if study["task"].get("secret_is_task"):
        return [
            f"the secret ({sensitive}) is what the task itself tells, or follows from it",
            "An adversary who protects their own photographs the same way can do what the service does, and "
            "reaches at least its accuracy among as many people: no setting is both useful and safe.",
            "Static and adaptive adversaries are shown apart; to get a recommendation, name a task that "
            "differs from the secret.",
        ]
    if not any(setting.risk for setting in settings):
        return ["no attack is recorded, so that the risk is unknown: run the study's attacks"]
    if bound is None:
        return ["the study sets no bound: add recommend: {reidentification_at_most: 0.1} to its file"]
    known = _known(settings)
    if not known:
        return ["no setting has both an accuracy and all of its attacks recorded", *_not_considered(settings)]
    _, risk, lowest = min(known, key=lambda entry: entry[1].top1.value)
    if risk.top1.value > bound:
        return [
            f"no setting keeps the strongest re-identification at or under {percent(bound)}",
            f"The lowest is {lowest.protection}, at {_risk_in_words(risk)}.",
            *_not_considered(settings),
        ]
    return []


def _known(settings: Sequence[Setting]) -> list[tuple[Estimate, Risk, Setting]]:
    """The settings of which all is known that they are judged by."""
    judged = [(setting.accuracy, setting.risk, setting) for setting in settings if setting.complete]
    return [(accuracy, risk, setting) for accuracy, risk, setting in judged if accuracy and risk]


def _not_considered(settings: Sequence[Setting]) -> list[str]:
    names = [setting.protection for setting in settings if not (setting.complete and setting.accuracy)]
    if not names:
        return []
    return [f"Not considered, since records are missing: {', '.join(names)}."]


def _with_interval(estimate: Estimate) -> str:
    kind = "95% interval" if estimate.seeds == 1 else f"over {estimate.seeds} seeds"
    return f"{percent(estimate.value)} ({kind} {100 * estimate.low:.1f} to {100 * estimate.high:.1f})"


def _risk_in_words(risk: Risk) -> str:
    return f"{_with_interval(risk.top1)} by the {risk.adversary}, chance {percent(risk.chance)}"


def _proved_in_words(proof: proved.Result | None) -> str:
    if proof is None:
        return "What is proved of it is not recorded."
    statements = []
    if proof.guarantee:
        statements.append(proof.guarantee.text)
    for naming in [naming for naming in proof.naming if naming.at_most < 1][:1]:
        statements.append(
            f"whoever sees one release names the right one of {naming.candidates:,} equally likely people "
            f"with a chance of {rounded_up(100 * naming.at_most)}% at most"
        )
    if not statements:
        return "Nothing is proved of it: the risk is what these adversaries found; others may find more."
    return f"What is proved: {'; '.join(statements)}."
