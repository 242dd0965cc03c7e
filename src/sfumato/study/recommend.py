"""From the records of a study to the setting to use: pure functions, and the words that say so.

A setting is judged by its strongest adversary and by its best learner. What a recommendation promises is
no more than was measured: a bound on what THESE adversaries found, beside what is proved, if anything is.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

Study = dict[str, Any]  # study.json, whose "cells" are those of `grid.cells`
Record = dict[str, Any]  # one records/*.json

ADVERSARIES = {
    "reidentify-static": "static adversary",
    "reidentify-adaptive": "adaptive adversary",
    "reidentify-denoised": "static adversary on denoised images",
    "reidentify-denoised-adaptive": "adaptive adversary on denoised images",
    "reidentify-restored": "static adversary on images that he restored",
    "reidentify-restored-adaptive": "adaptive adversary on images that he restored",
    "reidentify-shape": "adaptive adversary on the mask's shape",
}

# What is looked at -> the attacks on it, static before adaptive: `grid.ATTACKS`, told apart without torch.
VIEWS: dict[str, tuple[str, ...]] = {
    "released": ("reidentify-static", "reidentify-adaptive"),
    "denoised": ("reidentify-denoised", "reidentify-denoised-adaptive"),
    "restored": ("reidentify-restored", "reidentify-restored-adaptive"),
    "shape": ("reidentify-shape",),
}
STATIC = tuple(attack for attack, words in ADVERSARIES.items() if words.startswith("static"))
ADAPTIVE = tuple(attack for attack in ADVERSARIES if attack not in STATIC)

# Classifiers by the words that records have for them; studies of earlier versions have "linear".
_CLASSIFIERS = {"svm": "SVM", "linear": "linear", "1-nn": "1-nn", "mean": "nearest-mean"}

LEARNERS = {
    "clean": "trained on clean images",
    "protected": "trained on protected images",
    "denoised": "trained jointly with a denoiser",
    "meta": "meta-learned on protected images",
    "classifier-clean": "a classifier trained on clean images",
    "classifier-protected": "a classifier trained on protected images",
    "classifier-shape": "a classifier of the mask's shape alone",
}
# These know all classes from training; accuracies of few-shot learners and of theirs are not to be compared.
CLASSIFIERS = tuple(name for name in LEARNERS if name.startswith("classifier-"))


@dataclass(frozen=True)
class Estimate:
    """A number and the interval to print beside it.

    With one seed: the record's own 95% interval. With several: their mean, and the lowest and highest of
    them, since what differs from training to training is more than what differs from episode to episode.
    """

    value: float
    low: float
    high: float
    seeds: int

    def overlaps(self, other: "Estimate") -> bool:
        """Whether the two intervals share a number."""
        return self.low <= other.high and other.low <= self.high


@dataclass(frozen=True)
class Risk:
    """How often one adversary, with his best classifier, names the right identity."""

    attack: str
    classifier: str
    top1: Estimate
    chance: float

    @property
    def adversary(self) -> str:
        """In words: "adaptive adversary, linear classifier"."""
        return f"{ADVERSARIES.get(self.attack, self.attack)}, {classifier_in_words(self.classifier)}"


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


def classifier_in_words(name: str) -> str:
    """ "svm, trained further" -> "SVM classifier, recogniser trained further"."""
    kind, _, how = name.partition(", ")
    return f"{_CLASSIFIERS.get(kind, kind)} classifier" + (f", recogniser {how}" if how else "")


def accuracies(study: Study, records: Iterable[Record]) -> dict[tuple[str, str], Estimate]:
    """(protection, learner) -> accuracy, over the seeds of the study."""
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = defaultdict(list)
    for record in belonging(study, records, "accuracy"):
        key = (record["cell"]["protection"], record["cell"]["learner"])
        found[key].append(_interval(record["result"]))
    return {key: _over_seeds(values) for key, values in found.items()}


def _interval(result: dict[str, Any]) -> tuple[float, float, float]:
    """Accuracy, and the ends of its interval: over test images, or over episodes."""
    value = result["accuracy"]
    if "low" in result:
        return value, result["low"], result["high"]
    return value, max(0.0, value - result["half_width"]), min(1.0, value + result["half_width"])


def episodic(study: Study) -> bool:
    """Whether there are episodes: not where all learners are ordinary classifiers."""
    return not study["learners"] or not set(study["learners"]) <= set(CLASSIFIERS)


def clean_learner(study: Study) -> str:
    """Whose accuracy on clear images is that of no protection."""
    return "clean" if episodic(study) else "classifier-clean"


def guessing(study: Study, records: Iterable[Record]) -> float | None:
    """How often guessing the class is right; None where nothing tells."""
    if episodic(study):
        return float(1 / study["task"]["way"])
    chances = [one["result"]["chance"] for one in belonging(study, records, "accuracy")]
    return statistics.fmean(chances) if chances else None


def risks(study: Study, records: Iterable[Record]) -> dict[tuple[str, str], Risk]:
    """(protection, attack) -> the risk by that attack's strongest classifier, over the seeds of the study."""
    found: dict[tuple[str, str, str], list[tuple[float, float, float]]] = defaultdict(list)
    chances: dict[tuple[str, str], list[float]] = defaultdict(list)
    for record in belonging(study, records, "attack"):
        protection, attack = record["cell"]["protection"], record["cell"]["attack"]
        chances[protection, attack].append(record["result"]["chance"])
        for score in record["result"]["scores"]:
            found[protection, attack, score["classifier"]].append(
                (score["top1"], score["low"], score["high"])
            )
    strongest: dict[tuple[str, str], Risk] = {}
    for (protection, attack, classifier), values in found.items():
        chance = statistics.fmean(chances[protection, attack])
        risk = Risk(attack, classifier, _over_seeds(values), chance)
        other = strongest.get((protection, attack))
        if other is None or risk.top1.value > other.top1.value:
            strongest[protection, attack] = risk
    return strongest


def attacks_on(study: Study, protection: str) -> list[str]:
    """The attacks that a study makes on a protection."""
    attacks = dict.fromkeys(one["cell"]["attack"] for one in _cells_of(study, "attack", protection))
    return [attack for attack in attacks if attack in ADVERSARIES]


def learners_of(study: Study, protection: str) -> list[str]:
    """The learners that a study trains for a protection."""
    return list(dict.fromkeys(one["cell"]["learner"] for one in _cells_of(study, "accuracy", protection)))


def cells(study: Study) -> list[str]:
    """The cells of the finished study, each by its name, such as "accuracy blur:radius=1 denoised 0"."""
    return [cell_name(one) for one in study["cells"]]


def cell_name(one: Record) -> str:
    """The name of a record's cell, or of a cell that study.json lists."""
    cell = one["cell"]  # of a kind that this version does not know it may hold anything
    what = [cell[key] for key in sorted(cell) if key not in ("protection", "seed")]
    parts = (one["kind"], cell.get("protection"), *what, cell.get("seed"))
    return " ".join(str(part) for part in parts if part is not None)


def missing(study: Study, records: Iterable[Record]) -> list[str]:
    """Those of the study's cells that no record is of."""
    ran = {cell_name(record) for record in records}
    return [name for name in cells(study) if name not in ran]


def frontier(study: Study, records: Sequence[Record], attacks: Sequence[str] | None = None) -> list[Setting]:
    """Every protection of the study, in its order, with its best learner and its strongest adversary.

    Ordinary classifiers count where there are no others, and those of shapes never: they are no service.

    Args:
        study: the loaded study.json.
        records: its loaded records; those of other protections or seeds do not count.
        attacks: only these adversaries; None for all.
    """
    accuracy = accuracies(study, records)
    risk = risks(study, records)
    absent = set(missing(study, records))
    others = set(CLASSIFIERS) if episodic(study) else {"classifier-shape"}
    settings = []
    for protection in study["protections"]:
        learners = [
            name
            for name in learners_of(study, protection)
            if name not in others and (protection, name) in accuracy
        ]
        learner = max(learners, key=lambda name: accuracy[protection, name].value, default=None)
        # Nobody need adapt to clear images: the static adversary stands for all.
        every = attacks is None or protection == "none"
        wanted = [a for a in attacks_on(study, protection) if every or a in (attacks or ())]
        made = [one for one in _cells_of(study, "attack", protection) if one["cell"]["attack"] in wanted]
        found = [risk[protection, attack] for attack in wanted if (protection, attack) in risk]
        settings.append(
            Setting(
                protection=protection,
                learner=learner,
                accuracy=accuracy[protection, learner] if learner else None,
                risk=max(found, key=lambda one: one.top1.value, default=None),
                complete=bool(made) and absent.isdisjoint(cell_name(one) for one in made),
                on_frontier=False,
            )
        )
    judged = [one for one in settings if one.complete and one.accuracy and one.risk]
    return [
        replace(one, on_frontier=one in judged and not any(_beats(other, one) for other in judged))
        for one in settings
    ]


def recommend(study: Study, records: Sequence[Record]) -> Recommendation:
    """The most accurate setting whose strongest re-identification is at or under the study's bound.

    There is none, and the reason is given, where the study has no bound, no secret or no attacks; where
    the secret is the task itself (an adaptive adversary then has at least the task's accuracy, so that no
    setting is both useful and safe against him); or where every setting is above the bound. A setting
    with attacks that did not run is never recommended.
    """
    bound = (study.get("recommend") or {}).get("reidentification_at_most")
    settings = frontier(study, records)
    sensitive = study["task"].get("sensitive")

    def none(reason: str, *details: str) -> Recommendation:
        return Recommendation(None, None, bound, f"no recommendation: {reason}", details)

    if not sensitive:
        return none(
            "the study names no secret (task: sensitive), so that no adversary could be measured",
        )
    if study["task"].get("secret_is_task"):
        return none(
            f"the secret ({sensitive}) is what the task itself tells, or follows from it",
            "An adversary who protects his own photographs the same way can do what the service does, and "
            "reaches at least its accuracy among as many people: no setting is both useful and safe.",
            "Static and adaptive adversaries are shown apart; to get a recommendation, name a task that "
            "differs from the secret.",
        )
    if not any(one.risk for one in settings):
        return none("no attack is recorded, so that the risk is unknown: run the study's attacks")
    if bound is None:
        return none("the study sets no bound: add recommend: {reidentification_at_most: 0.1} to its file")
    judged = [(one.accuracy, one.risk, one) for one in settings if one.complete]
    known = [(accuracy, risk, one) for accuracy, risk, one in judged if accuracy and risk]
    left_out = _left_out(settings)
    if not known:
        return none("no setting has both an accuracy and all of its attacks recorded", *left_out)
    # Among equal accuracies the lower risk; among equal risks the order of the study.
    safe = sorted(
        (entry for entry in known if entry[1].top1.value <= bound),
        key=lambda entry: (-entry[0].value, entry[1].top1.value),
    )
    if not safe:
        _, risk, lowest = min(known, key=lambda entry: entry[1].top1.value)
        return none(
            f"no setting keeps the strongest re-identification at or under {percent(bound)}",
            f"The lowest is {lowest.protection}, at {_risk_in_words(risk)}.",
            *left_out,
        )
    accuracy, risk, best = safe[0]
    details = [
        f"Accuracy {_with_interval(accuracy)}, {LEARNERS.get(best.learner or '', best.learner)}; "
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
    details.append(_proved(study, records, best.protection))
    return Recommendation(
        best,
        safe[1][2] if len(safe) > 1 else None,
        bound,
        f"recommended: {best.protection}",
        (*details, *left_out),
    )


def belonging(study: Study, records: Iterable[Record], kind: str | None = None) -> list[Record]:
    """The records that belong to cells of the study, in the order of its cells; of one kind, or of all."""
    order = {name: number for number, name in enumerate(cells(study))}
    kept = [
        record
        for record in records
        if cell_name(record) in order
        and kind in (None, record["kind"])
        and (record["kind"] != "attack" or record["cell"]["attack"] in ADVERSARIES)
    ]
    return sorted(kept, key=lambda record: order[cell_name(record)])


def percent(value: float) -> str:
    """0.0614 -> "6.1%"."""
    return f"{100 * value:.1f}%"


def _cells_of(study: Study, kind: str, protection: str) -> list[Record]:
    return [one for one in study["cells"] if one["kind"] == kind and one["cell"]["protection"] == protection]


def _over_seeds(values: Sequence[tuple[float, float, float]]) -> Estimate:
    if len(values) == 1:
        return Estimate(*values[0], seeds=1)
    middles = [value for value, _, _ in values]
    return Estimate(statistics.fmean(middles), min(middles), max(middles), len(middles))


def _beats(one: Setting, other: Setting) -> bool:
    if not (one.accuracy and one.risk and other.accuracy and other.risk):
        return False
    gain = one.accuracy.value - other.accuracy.value
    relief = other.risk.top1.value - one.risk.top1.value
    return gain >= 0 and relief >= 0 and (gain > 0 or relief > 0)


def _left_out(settings: Sequence[Setting]) -> list[str]:
    names = [one.protection for one in settings if not (one.complete and one.accuracy)]
    if not names:
        return []
    return [f"Not considered, since records are missing: {', '.join(names)}."]


def _with_interval(estimate: Estimate) -> str:
    kind = "95% interval" if estimate.seeds == 1 else f"over {estimate.seeds} seeds"
    return f"{percent(estimate.value)} ({kind} {100 * estimate.low:.1f} to {100 * estimate.high:.1f})"


def _risk_in_words(risk: Risk) -> str:
    return f"{_with_interval(risk.top1)} by the {risk.adversary}, chance {percent(risk.chance)}"


def _proved(study: Study, records: Sequence[Record], protection: str) -> str:
    for record in belonging(study, records, "similarity"):
        if record["cell"]["protection"] == protection and record["cell"]["view"] == "released":
            guarantee = record["result"].get("guarantee")
            if guarantee:
                return f"What is proved: {guarantee['text']}."
            return "Nothing is proved of it: the risk is what these adversaries found; others may find more."
    return "What is proved of it is not recorded."
