"""From the records of a study to the setting to use: pure functions, and the words that say so.

A setting is judged by its strongest adversary and by its best learner. A recommendation promises no more
than was measured: a bound on the success of THESE adversaries, together with the proof, if there is one.
sfumato.study.hits explains the choice without luck.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sfumato.dp.guarantee import Definition, Guarantee, round_up
from sfumato.protect.naming import Counted
from sfumato.study.choose.estimates import (
    Curve,
    Estimate,
    Inference,
    Risk,
    Study,
    Together,
    accuracies,
    bounds_of_attributes,
    clean_learner,
    curves,
    episodic,
    guessing,
    in_folds,
    learner_in_words,
    percent,
    proofs,
)
from sfumato.study.choose.frontier import Setting, frontier, not_tried_on
from sfumato.study.hits import fewest, whole_percents
from sfumato.study.measure.results import Naming, Proved
from sfumato.study.records import Record
from sfumato.study.vocabulary import ANSWER, BITS, release_kind
from sfumato.wire.tables import MOST_BITS

ERROR = 0.05  # how often a study may recommend a setting whose risk is above the bound

_TIMES = 1000  # at most this many times the people are suggested

# The least share of the accuracy above guessing that a clean learner must learn, so that there is something
# to keep; and the least share of it that a useful setting keeps.
_LEARNED, _USEFUL = 1 / 3, 1 / 2

_DEFINITIONS: tuple[Definition, ...] = ("pure", "gaussian", "concentrated")


@dataclass(frozen=True)
class Recommendation:
    """The setting to use, or None with the reason.

    Attributes:
        setting: the recommended one.
        runner_up: the next most accurate setting under the bound.
        bound: the highest re-identification that the study accepts; None if it names none.
        releases: of one person, from which that is accepted.
        by_table: whether that holds only if queries are looked up in an answer table, and so send nothing.
        has_table: whether there can be one.
        headline: one line: "recommended: SPEC", or that there is none, and why.
        reasons: more on why there is none, a sentence each.
        accuracy, risk: its figures, on test images and people that had no part in the choice if the
            records have them apart; None without a setting.
        chosen: how it was chosen, a sentence each.
        found: how it is shown to keep the bounds, and adversaries' other results, a sentence each.
        proved: the proof for it, in a sentence.
        not_tried: who was not tried on it, and which settings were not judged, a sentence each.
        nearest: without a setting, the one that comes nearest; None if nothing was learned.
    """

    setting: Setting | None
    runner_up: Setting | None
    bound: float | None
    headline: str
    reasons: tuple[str, ...] = ()
    accuracy: Estimate | None = None
    risk: Risk | None = None
    chosen: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    proved: str = ""
    not_tried: tuple[str, ...] = ()
    nearest: Setting | None = None
    releases: int = 1
    by_table: bool = False
    has_table: bool = False

    @property
    def details(self) -> tuple[str, ...]:
        """The facts about it, a sentence a line; the first has its figures."""
        if self.setting is None or self.accuracy is None or self.risk is None:
            return self.reasons
        figures = (
            f"Accuracy {_with_interval(self.accuracy)}, {learner_in_words(self.setting.learner or '')}; "
            f"strongest re-identification {_risk_in_words(self.risk)}."
        )
        return (figures, *self.found, *self.chosen, self.proved, *self.not_tried)

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines that the command line prints."""
        return (self.headline, *self.details)


def recommend(study: Study, records: Sequence[Record]) -> Recommendation:
    """The most accurate useful setting that is shown to name nobody more often than accepted.

    That must hold for one release, and for as many of one person as the study names (`releases`); not for
    many if queries send nothing, since a device looks codes up in an answer table.

    It is shown by proof, or if the upper end of each adversary's interval is at or under the study's
    bound, with all settings of the study allowed for. Settings that a proof keeps come before all others; the
    device's own answer comes last for new classes, since a cloud is to learn them. A setting is useful if it
    keeps half of the clean learner's gain over guessing. The choice is made on one half of the people and
    test images, and the figures are those of the other.

    There is none, and the reason is given, if the study has no bound, no secret or no attacks; if the
    secret is the task itself (an adaptive adversary then has at least the task's accuracy, so that no setting
    is both useful and safe against them); if the clean learner has learned next to nothing; or if no
    setting is shown to keep the bound. A setting with attacks that did not run is never recommended, nor one
    without an adversary that must be tried (vocabulary.Attack.needed).
    """
    bound = (study.get("recommend") or {}).get("reidentification_at_most")
    settings = frontier(study, records)
    reason = _no_recommendation(study, records, settings, bound)
    if reason:
        headline, reasons = f"no recommendation: {reason[0]}", tuple(reason[1:])
        closest = _nearest(study, records, settings, 0.0 if bound is None else bound)
        return Recommendation(None, None, bound, headline, reasons, nearest=closest)
    assert bound is not None  # that would have been a reason
    choice = _Choice(study, records, bound)
    best, *others = choice.rank(_judgeable(settings))
    accuracy, risk = best.accuracy_on(1), best.risk_on(1)
    assert accuracy is not None  # it is known
    assert risk is not None
    chosen = []
    if best.halves:
        chosen.append(
            "One half of the people and test images chose it; the figures come from the other half."
        )
    if in_folds(study):
        chosen.append(
            f"People took turns as test people, in {len(study['seeds'])} folds: each was looked for among "
            f"{risk.identities} at least, on what was trained without them. What folds learn from is in part "
            "the same."
        )
    second = others[0] if others else None
    if second and second.accuracy and second.risk and accuracy.overlaps(second.accuracy):
        chosen.append(
            f"Its accuracy cannot be distinguished from the runner-up's: {second.protection} has "
            f"{_with_interval(second.accuracy)}, and re-identification {percent(second.risk.top1.value)}."
        )
    for answer in [each for each in others if choice.needs_its_classes(each)]:
        assert answer.accuracy is not None  # it is known
        assert answer.risk is not None
        chosen.append(
            f"If the device may know the classes, let it send nothing but its answer: accuracy "
            f"{percent(answer.accuracy.value)}, re-identification {percent(answer.risk.top1.value)}."
        )
    found = [choice.explain(best), *choice.of_many(best), *choice.of_attributes(best)]
    if rising := dict.fromkeys(network for each in best.risks for network in each.rising):
        found.append(
            f"Some adversaries still gained when their training ended ({', '.join(rising)}): what they name "
            "is a lower bound. To train them longer, raise their steps in the study file."
        )
    not_tried = []
    if left_out := not_tried_on(study, best.protection):
        not_tried.append(f"Adversaries of this library that were not tried on it: {', '.join(left_out)}.")
    return Recommendation(
        best,
        second,
        bound,
        f"recommended: {best.protection}{', looked up in an answer table' * choice.needs_table(best)}",
        accuracy=accuracy,
        risk=risk,
        chosen=tuple(chosen),
        found=tuple(found),
        proved=describe_proof(proofs(study, records).get(best.protection)),
        not_tried=(*not_tried, *_not_considered(settings), *_nothing_learned(study, records, settings)),
        releases=choice.releases,
        by_table=choice.needs_table(best),
        has_table=choice.has_table(best),
    )


class _Choice:
    """The ranking of settings. State: none that changes."""

    def __init__(self, study: Study, records: Sequence[Record], bound: float) -> None:
        self._bound, self._episodic = bound, episodic(study)
        self._of_attributes = bounds_of_attributes(study)
        self._settings = len(study["protections"])
        self._proofs, self._curves = proofs(study, records), curves(study, records)
        self.releases = releases_of(study)
        self._least = least_useful(study, records)

    def rank(self, settings: Sequence[Setting]) -> list[Setting]:
        """The useful settings that are shown to keep the bound, the best first."""
        kept = [each for each in settings if self._is_useful(each) and self._keeps(each)]
        return sorted(kept, key=self._rank)  # equals in the order of the study

    def upper_end(self, setting: Setting) -> float:
        """The upper end of the strongest adversary, with all settings of the study allowed for."""
        return setting.upper_end(ERROR / self._settings)

    def explain(self, setting: Setting) -> str:
        """The sentence that shows that a setting keeps the bound."""
        if (proof := self._find_proof(setting)) is not None:
            return (
                f"At most {percent(self._bound)} is accepted; it is proved that nobody names more than "
                f"{round_up(100 * proof.at_most)}% of {proof.candidates:,} equally likely people"
                f"{self._of_unlike_people(setting)}."
            )
        people = max(len(risk.strongest.probes) for risk in setting.risks)
        return (
            f"At most {percent(self._bound)} is accepted; the upper end for all adversaries and {people:,} "
            f"people is {percent(self.upper_end(setting))} (95% confidence, all settings of the study "
            "allowed for)."
        )

    def _of_unlike_people(self, setting: Setting) -> str:
        """The bound of counting if some people are on more test images than others; "" otherwise."""
        outputs, risk = self._proofs[setting.protection].outputs, setting.risk_on(1)
        probes = next(iter(risk.named.values()), None) if risk else None
        if outputs is None or probes is None:
            return ""
        most = probes.by_counting(outputs)
        if most <= outputs * probes.folds / len(probes.probes):  # each of them is on as many
            return ""
        words = "of these test images, since some people are on more of them than others"
        return f", nor more than {round_up(100 * most)}% {words}"

    def needs_table(self, setting: Setting) -> bool:
        """Whether it keeps the bound after many releases only if its queries are looked up, and not sent."""
        return self.has_table(setting) and self._excess_of_many(setting) > 0

    def has_table(self, setting: Setting) -> bool:
        """Whether an answer table can be made of its codes: few bits without noise."""
        proof = self._proofs.get(setting.protection)
        few = proof is not None and proof.outputs is not None and proof.outputs <= 2**MOST_BITS
        return few and release_kind(setting.protection) == BITS and "flip=" not in setting.protection

    def _after(self, setting: Setting) -> Together | None:
        """The risk from the study's number of releases; None if it was not measured."""
        curve = self._curves.get(setting.protection)
        return curve.after(self.releases) if curve else None

    def _excess_of_many(self, setting: Setting) -> float:
        """How far naming from the study's number of releases, if they are sent, may be above the bound."""
        if self.releases == 1 or self._find_proof(setting, self.releases):
            return 0.0
        point = self._after(setting)
        return (point.hits.upper_end(ERROR / self._settings) if point else 1.0) - self._bound

    def of_many(self, setting: Setting) -> list[str]:
        """The risk from many releases of one person, and whether that keeps the bound, a sentence each."""
        curve = self._curves.get(setting.protection)
        if curve is None:
            sentences = [_UNKNOWN] if self.releases > 1 else []
        else:
            sentences = [curve_in_words(curve, self.releases)]
        if self.releases == 1:
            return sentences
        if point := self._after(setting):
            end = percent(point.hits.upper_end(ERROR / self._settings))
            sentences[-1] += f" The upper end from {self.releases} is {end}, allowed for as above."
        if self.has_table(setting):
            sentences.append(
                "Looked up in an answer table, queries send nothing: naming stays guessing, by construction. "
                "Only enrolment sends its few images."
            )
        return sentences

    def needs_its_classes(self, setting: Setting) -> bool:
        """Whether it is an answer to a task with new classes: the device must have been sent them."""
        return self._episodic and release_kind(setting.protection) == ANSWER

    def _rank(self, setting: Setting) -> tuple[bool, bool, float, float]:
        risk = setting.risk_on(0)
        accuracy = setting.accuracy_on(0)
        assert accuracy is not None  # it is known
        assert risk is not None
        last = self.needs_its_classes(setting)
        return last, self._find_proof(setting) is None, -accuracy.value, risk.top1.value

    def _is_useful(self, setting: Setting) -> bool:
        accuracy = setting.accuracy_on(0)
        return accuracy is not None and accuracy.value >= self._least

    def _keeps(self, setting: Setting) -> bool:
        """Whether it is shown to keep all bounds.

        A setting is wrongly recommended if one of them does not hold, and that one is then shown to hold
        with its own probability of error: several bounds are no more error than one.
        """
        asked = {inferred.attack for inferred in setting.inferred} == set(self._of_attributes)
        return asked and self.excess(setting) <= 0

    def upper_end_of(self, inferred: Inference) -> float:
        """The upper end of an inference, with all settings of the study allowed for."""
        return inferred.upper_end(ERROR / self._settings)

    def excess(self, setting: Setting) -> float:
        """How far the upper end is above the bound that is missed most; 0 or less if all are kept."""
        who = 0.0 if self._find_proof(setting) else self.upper_end(setting) - self._bound
        return max(
            [
                who,
                0.0 if self.has_table(setting) else self._excess_of_many(setting),
                *(
                    self.upper_end_of(inferred) - self._of_attributes[inferred.attack]
                    for inferred in setting.inferred
                ),
            ]
        )

    def of_attributes(self, setting: Setting) -> list[str]:
        """How often each attribute is inferred, a sentence each."""
        return [
            f"{_capital(inferred.attack)} is inferred in {_with_interval(inferred.top1)} of cases by "
            f"{inferred.adversary}, guessing {percent(inferred.chance)}; at most "
            f"{percent(self._of_attributes[inferred.attack])} is accepted, and the upper end is "
            f"{percent(self.upper_end_of(inferred))}."
            for inferred in setting.inferred
        ]

    def what_would_show(self, setting: Setting) -> list[str]:
        """The number of people, or the bound, that would show that a setting keeps it, in a sentence."""
        error, proof = ERROR / self._settings, self._proofs.get(setting.protection)
        hits = [named for risk in setting.risks for named in risk.named.values()]
        if self.upper_end(setting) <= self._bound or not hits or not setting.risk:
            return []
        people, folds = len(hits[0].probes), hits[0].folds
        among = max(setting.risk.identities, (proof and proof.people) or 0)
        proved = [naming.at_most for naming in (proof.naming if proof else ()) if naming.candidates <= among]
        lowest = whole_percents(min([self.upper_end(setting), *proved]))
        cures = []
        if times := fewest(
            lambda times: all(each.of_more(times).upper_end(error) <= self._bound for each in hits),
            most=_TIMES,
        ):
            gain = setting.risk.top1.value / setting.risk.chance
            cures.append(
                f"about {people * times:,} test people in place of {people:,}, if adversaries stay right "
                f"{gain:.1f} times as often as a guess"
            )
        if proof and proof.outputs and self._bound:
            enough = folds * math.ceil(proof.outputs / self._bound - 1e-9)
            cures.append(f"{enough:,} test people, by counting its {proof.outputs:,} outputs")
        return [
            f"What would show it: {'; or '.join([*cures, f'a bound of {lowest:g} (--at-most {lowest:g})'])}."
        ]

    def _find_proof(self, setting: Setting, releases: int = 1) -> Naming | None:
        """The proof that nobody is named more often than accepted, among as many people as there are.

        For several releases it counts their sequences, and assumes nothing about them. The people are all
        on test images: adversaries can look only for people with two photographs.
        """
        proof = self._proofs.get(setting.protection)
        if proof is None or setting.risk is None:
            return None
        people = max(setting.risk.identities, proof.people or 0)
        # Proved shares are rounded up: 4 answers among 40 people are 10% and a little.
        most = self._bound * (1 + 1e-9)
        if releases > 1:
            few = proof.outputs is not None and proof.outputs**releases <= most * people
            return Naming(candidates=people, at_most=most) if few else None
        fitting = [each for each in proof.naming if each.candidates <= people and each.at_most <= most]
        return max(fitting, key=lambda naming: naming.candidates, default=None)


def least_useful(study: Study, records: Sequence[Record]) -> float:
    """The accuracy from which a setting is useful: halfway from guessing to the clean learner."""
    clean = accuracies(study, records).get(("none", clean_learner(study)))
    chance = guessing(study, records) or 0.0
    return chance if clean is None else chance + _USEFUL * (clean.value - chance)


def nothing_to_keep(study: Study, records: Sequence[Record]) -> list[str]:
    """That clear images show next to nothing of the target, and remedies; empty if they show enough."""
    clean = accuracies(study, records).get(("none", clean_learner(study)))
    chance = guessing(study, records)
    if clean is None or chance is None:
        return []
    if clean.value - chance >= _LEARNED * (1 - chance) and clean.low > chance:
        return []
    return [
        f"there is nothing to keep: on clear images the classifier is right in {_with_interval(clean)} of "
        f"cases, and guessing in {percent(chance)}",
        "What helps: more images of each class, larger images, fewer or clearer classes, longer training, or "
        "an encoder that was trained before. Compare protections when clear images work.",
    ]


def _nearest(
    study: Study, records: Sequence[Record], settings: Sequence[Setting], bound: float
) -> Setting | None:
    """The useful setting whose upper end is nearest to the bound; without adversaries one of few outputs."""
    choice, least = _Choice(study, records, bound), least_useful(study, records)
    learned = [each for each in settings if each.accuracy and each.protection != "none"]
    useful = [each for each in learned if each.accuracy and each.accuracy.value >= least] or learned
    judged = [each for each in useful if each.risk and each.complete and not each.untried]
    if judged:
        return min(judged, key=lambda each: (choice.needs_its_classes(each), choice.excess(each)))
    proved = proofs(study, records)

    def outputs(setting: Setting) -> float:
        proof = proved.get(setting.protection)
        return math.inf if proof is None or proof.outputs is None else proof.outputs

    return min(useful, key=lambda each: (choice.needs_its_classes(each), outputs(each)), default=None)


def _no_recommendation(
    study: Study, records: Sequence[Record], settings: Sequence[Setting], bound: float | None
) -> list[str]:
    """Why there is none: a headline, and details; empty if there is one."""
    if reason := nothing_to_keep(study, records):
        return reason
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
    known = [each for each in _judgeable(settings) if each.protection != "none"]
    choice = _Choice(study, records, bound)
    if choice.rank(_judgeable(settings)):
        return []
    if not known:
        count = sum(spec != "none" for spec in study["protections"])
        return [
            f"none of {count} settings has an accuracy and all adversaries that must be tried on it",
            *_not_considered(settings),
        ]
    least = least_useful(study, records)
    useful = [each for each in known if each.accuracy and each.accuracy.value >= least]
    if not useful:
        return [
            f"no setting keeps half of what clear images have over guessing, {percent(least)} accuracy",
            *_not_considered(settings),
            *_nothing_learned(study, records, settings),
        ]
    nearest = min(useful, key=choice.excess)
    assert nearest.risk is not None  # it is known
    others = "".join(
        f", and the inference of {label} at or under {percent(at_most)}"
        for label, at_most in bounds_of_attributes(study).items()
    )
    return [
        f"no useful setting is shown to keep re-identification at or under {percent(bound)}"
        f"{f' from {choice.releases} releases' if choice.releases > 1 else ''}{others}",
        f"The nearest is {nearest.protection}, at {_risk_in_words(nearest.risk)}; its upper end is "
        f"{percent(choice.upper_end(nearest))} (95% confidence, all settings of the study allowed for).",
        *choice.what_would_show(nearest),
        *choice.of_many(nearest),
        *choice.of_attributes(nearest),
        *_not_considered(settings),
        *_nothing_learned(study, records, settings),
    ]


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _judgeable(settings: Sequence[Setting]) -> list[Setting]:
    """The settings with all figures that judge them."""
    return [each for each in settings if each.complete and each.accuracy and each.risk and not each.untried]


def _not_considered(settings: Sequence[Setting]) -> list[str]:
    """Settings that are not judged, a sentence for each reason."""
    sentences = []
    names = [each.protection for each in settings if not (each.complete and each.accuracy)]
    if names:
        sentences.append(f"Not considered, since records are missing: {', '.join(names)}.")
    untried: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for each in settings:
        if each.untried and each.protection not in names:
            untried[each.untried].append(each.protection)
    sentences += [
        f"Not considered, since the study leaves out {' and '.join(attacks)}: {', '.join(specs)}."
        for attacks, specs in untried.items()
    ]
    return sentences


def _nothing_learned(study: Study, records: Sequence[Record], settings: Sequence[Setting]) -> list[str]:
    """Settings whose best learner is no better than guessing, in a sentence; empty if there are none.

    A code or a classifier whose training never got anywhere looks as safe as one that hides everything.
    """
    chance = guessing(study, records)
    if chance is None:
        return []
    names = [
        each.protection for each in settings if each.accuracy is not None and each.accuracy.low <= chance
    ]
    if not names:
        return []
    return [
        f"Nothing was learned from {', '.join(names)}: the best classifier of what is released may be "
        f"guessing ({percent(chance)}). Too little is left there, or its training failed: more epochs, or "
        "more bits of a code, tell which."
    ]


def _with_interval(estimate: Estimate) -> str:
    return f"{percent(estimate.value)} ({_ends(estimate)})"


def _risk_in_words(risk: Risk) -> str:
    named, chance = _with_interval(risk.top1), percent(risk.chance)
    return f"{named}, {risk.crowd}, by the {risk.adversary}, chance {chance}"


_UNKNOWN = "What many releases of one person tell is not known: fewer than four people have two pictures."
SAID = (1, 10, 100)  # releases whose figures are printed


def releases_of(study: Study) -> int:
    """The number of releases of one person at which a recommendation of the study keeps its bound."""
    return int((study.get("recommend") or {}).get("releases", 1))


def curve_in_words(curve: Curve, releases: int) -> str:
    """How naming grows with the number of releases, and why larger numbers are unknown."""
    said = [point for point in curve.points if point.releases in (*SAID, releases)]
    *first, last = [f"{percent(point.named.value)} from {point.releases}" for point in said]
    end = said[-1]
    words = (
        f"Adversaries name {', '.join(first)}{' and ' * bool(first)}{last} "
        f"release{'s' * (end.releases > 1)} of a person among {round(1 / end.chance):,} "
        f"({_ends(end.named)}; guessing {percent(end.chance)}; "
        f"the most named person {percent(end.worst)}; {percent(end.over_half)} of people in over half of the "
        "tries)."
    )
    if end.releases >= releases:
        return words
    if curve.stopped:
        return f"{words} More releases were not looked at, since these name too many."
    return (
        f"{words} From {releases} it could not be measured: {curve.enough.get(releases, 0)} of {curve.able} "
        "people have enough pictures. Add pictures of the same people, or ask for --releases "
        f"{end.releases}."
    )


def _ends(estimate: Estimate) -> str:
    kind = "95% interval" if estimate.seeds == 1 else f"over {estimate.seeds} seeds"
    return f"{kind} {100 * estimate.low:.1f} to {100 * estimate.high:.1f}"


def as_protection(proof: Proved) -> Counted:
    """A protection known by its record alone, without noise on bits and without a centre."""
    stated = proof.guarantee
    for definition in _DEFINITIONS:
        if stated is not None and stated.definition == definition and stated.whole_image is not None:
            whole = stated.whole_image
            return Counted(
                proof.outputs,
                Guarantee(definition=definition, value=whole, pixels=1, whole_image=whole, source=""),
            )
    return Counted(proof.outputs)


def describe_proof(proof: Proved | None) -> str:
    """The proof for a release, and the number of people at which there is none, in a sentence."""
    if proof is None:
        return "What is proved of it is not recorded."
    statements = []
    if proof.guarantee:
        statements.append(proof.guarantee.text)
    for naming in [naming for naming in proof.naming if naming.at_most < 1][:1]:
        statements.append(
            f"whoever sees one release names the right one of {naming.candidates:,} equally likely people "
            f"with a chance of at most {round_up(100 * naming.at_most)}%"
        )
    if not statements:
        return "Nothing is proved of it: the risk is what these adversaries found; others may find more."
    if not proof.naming:
        statements.append("nothing is proved about who it shows")
    elif (count := proof.nothing_among) is not None:
        statements.append(f"among {count:,} people nothing is proved")
    return f"What is proved: {'; '.join(statements)}."
