"""From the results of a study to the setting to use, and to the sentences for whoever decides.

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
from sfumato.study.choose.figures import (
    Curve,
    Estimate,
    Figures,
    Risk,
    Setting,
    Together,
    learner_in_words,
    percent,
)
from sfumato.study.hits import fewest, whole_percents
from sfumato.study.measure.results import Naming, Proved
from sfumato.study.vocabulary import ANSWER, BITS, release_kind, words_of
from sfumato.wire.tables import MOST_BITS

ERROR = 0.05  # how often a study may recommend a setting whose risk is above the bound
SAID = (1, 10, 100)  # releases whose figures are printed

_TIMES = 1000  # at most this many times the people are suggested

# The least share of the accuracy above guessing that a clean learner must learn, so that there is something
# to keep; and the least share of it that a useful setting keeps.
_LEARNED, _USEFUL = 1 / 3, 1 / 2

_DEFINITIONS: tuple[Definition, ...] = ("pure", "gaussian", "concentrated")

_LOOKED_UP = (
    "A trained network, whose file this study kept, makes a few bits of each image. The device looks them up "
    "in an answer table, so that no query leaves; in place of each image that is enrolled its bits leave.",
)
_OTHERS = "An adversary whom nobody has thought of yet may find more, up to what is proved."
_NONE = "no recommendation: "


@dataclass(frozen=True)
class Answer:
    """A question of a decision maker, and its answer.

    Attributes:
        question: in a few words.
        figure: the answer at a glance; "" for none.
        sentences: the answer; the first may begin with the figure.
    """

    question: str
    figure: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Recommendation:
    """The setting to use, or None with the reason.

    Attributes:
        setting: the recommended one.
        runner_up: the next most accurate setting under the bound.
        bound: the highest re-identification that the study accepts; None if it names none.
        headline: one line: "recommended: SPEC", or that there is none, and why.
        answers: in reading order; without a setting one, why there is none.
        accuracy, risk: its figures, on test images and people that had no part in the choice if the
            records have them apart; None without a setting.
        nearest: without a setting, the one that comes nearest; None if nothing was learned.
        by_table: whether the bound holds only if queries are looked up in an answer table: they send nothing.
        has_table: whether there can be one.
    """

    setting: Setting | None
    runner_up: Setting | None
    bound: float | None
    headline: str
    answers: tuple[Answer, ...]
    accuracy: Estimate | None = None
    risk: Risk | None = None
    nearest: Setting | None = None
    by_table: bool = False
    has_table: bool = False

    @property
    def reason(self) -> str:
        """Why there is none; "" if there is one."""
        return "" if self.setting else self.headline.removeprefix(_NONE)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Those of all answers."""
        return tuple(sentence for answer in self.answers for sentence in answer.sentences)

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines that the command line prints: the answers of the report."""
        if self.setting is None:
            return (self.headline, *self.sentences[1:])
        answers = (f"{answer.question}: {' '.join(answer.sentences)}" for answer in self.answers)
        return (self.headline, *answers)

    @property
    def states_a_half(self) -> bool:
        """Whether its figures are not those of all people and test images."""
        return self.setting is not None and bool(self.setting.halves)


def recommend(results: Figures) -> Recommendation:
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
    bound: float | None = (results.study.get("recommend") or {}).get("reidentification_at_most")
    choice = _Choice(results, bound or 0.0)
    if reasons := _no_recommendation(choice, bound):
        why = Answer("What to use", "", (_capital(f"{reasons[0]}."), *reasons[1:]))
        headline = f"{_NONE}{reasons[0]}"
        return Recommendation(None, None, bound, headline, (why,), nearest=choice.nearest)
    best, *others = choice.ranked
    accuracy, risk = best.accuracy_on(1), best.risk_on(1)
    assert accuracy is not None  # it is known
    assert risk is not None
    by_table = choice.needs_table(best)
    return Recommendation(
        best,
        others[0] if others else None,
        bound,
        f"recommended: {best.protection}{', looked up in an answer table' * by_table}",
        (
            Answer(
                "What to use",
                best.protection,
                (
                    *(_LOOKED_UP if by_table else what_leaves(best.protection)),
                    *choice.how_chosen(best, others),
                ),
            ),
            Answer("What it keeps", percent(accuracy.value), choice.what_is_kept(best, accuracy)),
            Answer("What an adversary finds out", percent(risk.top1.value), choice.what_is_found(best, risk)),
            Answer(
                "What is proved",
                "",
                (_capital(describe_proof(choice.proof_of(best)).removeprefix("What is proved: ")),),
            ),
            Answer("What is not shown", "", choice.what_is_not_shown(best)),
        ),
        accuracy=accuracy,
        risk=risk,
        by_table=by_table,
        has_table=choice.has_table(best),
    )


class _Choice:
    """The ranking of settings, and its words. State: none that changes."""

    def __init__(self, results: Figures, bound: float) -> None:
        self.results, self.bound = results, bound
        self.error = ERROR / len(results.study["protections"])  # of each, for all settings together
        self.least = least_useful(results)
        self.judged = [
            each
            for each in results.settings
            if each.complete and each.accuracy and each.risk and not each.untried
        ]
        kept = [each for each in self.judged if self._is_useful(each) and self._keeps(each)]
        self.ranked = sorted(kept, key=self._rank)  # the best first; equals in the order of the study

    def proof_of(self, setting: Setting) -> Proved | None:
        """Its recorded proof."""
        return self.results.proofs.get(setting.protection)

    def upper_end(self, risk: Setting | Risk) -> float:
        """The upper end, with all settings of the study allowed for."""
        return risk.upper_end(self.error)

    def _is_useful(self, setting: Setting) -> bool:
        accuracy = setting.accuracy_on(0)
        return accuracy is not None and accuracy.value >= self.least

    def _keeps(self, setting: Setting) -> bool:
        """Whether it is shown to keep all bounds.

        A setting is wrongly recommended if one of them does not hold, and that one is then shown to hold
        with its own probability of error: several bounds are no more error than one.
        """
        asked = {inferred.attack for inferred in setting.inferred} == set(self.results.bounds)
        return asked and self.excess(setting) <= 0

    def _rank(self, setting: Setting) -> tuple[bool, bool, float, float]:
        accuracy, risk = setting.accuracy_on(0), setting.risk_on(0)
        assert accuracy is not None  # it is judged
        assert risk is not None
        last = self.needs_its_classes(setting)
        return last, self._find_proof(setting) is None, -accuracy.value, risk.top1.value

    def excess(self, setting: Setting) -> float:
        """How far the upper end is above the bound that is missed most; 0 or less if all are kept."""
        return max(
            0.0 if self._find_proof(setting) else self.upper_end(setting) - self.bound,
            0.0 if self.has_table(setting) else self._excess_of_many(setting),
            *(self.upper_end(each) - self.results.bounds[each.attack] for each in setting.inferred),
        )

    def _excess_of_many(self, setting: Setting) -> float:
        """How far naming from the study's number of releases, if they are sent, may be above the bound."""
        if self.results.releases == 1 or self._find_proof(setting, self.results.releases):
            return 0.0
        point = self._after(setting)
        return (point.hits.upper_end(self.error) if point else 1.0) - self.bound

    def _after(self, setting: Setting) -> Together | None:
        """The risk from the study's number of releases; None if it was not measured."""
        curve = self.results.curves.get(setting.protection)
        return curve.after(self.results.releases) if curve else None

    def _find_proof(self, setting: Setting, releases: int = 1) -> Naming | None:
        """The proof that nobody is named more often than accepted, among as many people as there are.

        For several releases it counts their sequences, and assumes nothing about them. The people are all
        on test images: adversaries can look only for people with two photographs.
        """
        proof = self.proof_of(setting)
        if proof is None or setting.risk is None:
            return None
        people = max(setting.risk.identities, proof.people or 0)
        # Proved shares are rounded up: 4 answers among 40 people are 10% and a little.
        most = self.bound * (1 + 1e-9)
        if releases > 1:
            few = proof.outputs is not None and proof.outputs**releases <= most * people
            return Naming(candidates=people, at_most=most) if few else None
        fitting = [each for each in proof.naming if each.candidates <= people and each.at_most <= most]
        return max(fitting, key=lambda naming: naming.candidates, default=None)

    def needs_table(self, setting: Setting) -> bool:
        """Whether it keeps the bound after many releases only if its queries are looked up, and not sent."""
        return self.has_table(setting) and self._excess_of_many(setting) > 0

    def has_table(self, setting: Setting) -> bool:
        """Whether an answer table can be made of its codes: few bits without noise."""
        proof = self.proof_of(setting)
        few = proof is not None and proof.outputs is not None and proof.outputs <= 2**MOST_BITS
        return few and release_kind(setting.protection) == BITS and "flip=" not in setting.protection

    def needs_its_classes(self, setting: Setting) -> bool:
        """Whether it is an answer to a task with new classes: the device must have been sent them."""
        return self.results.episodic and release_kind(setting.protection) == ANSWER

    @property
    def nearest(self) -> Setting | None:
        """The useful setting whose upper end is nearest to the bound; without adversaries of few outputs."""
        learned = [each for each in self.results.settings if each.accuracy and each.protection != "none"]
        useful = [each for each in learned if each.accuracy and each.accuracy.value >= self.least] or learned
        judged = [each for each in useful if each in self.judged]
        if judged:
            return min(judged, key=lambda each: (self.needs_its_classes(each), self.excess(each)))

        def outputs(setting: Setting) -> float:
            proof = self.proof_of(setting)
            return math.inf if proof is None or proof.outputs is None else proof.outputs

        return min(useful, key=lambda each: (self.needs_its_classes(each), outputs(each)), default=None)

    # The words: each returns sentences

    def how_chosen(self, best: Setting, others: Sequence[Setting]) -> list[str]:
        """How it was chosen, and its runner-up."""
        said = []
        risk, accuracy = best.risk_on(1), best.accuracy_on(1)
        assert risk is not None  # it is judged
        assert accuracy is not None
        assert best.accuracy is not None
        assert best.risk is not None
        if best.halves:
            said.append(
                "One half of the people and test images chose it; the figures come from the other half."
            )
        if self.results.folds:
            said.append(
                f"People took turns as test people, in {len(self.results.study['seeds'])} folds: each was "
                f"looked for among {risk.identities} at least, on what was trained without them. What folds "
                "learn from is in part the same."
            )
        second = others[0] if others else None
        if second and second.accuracy and second.risk and accuracy.overlaps(second.accuracy):
            said.append(
                f"Its accuracy cannot be distinguished from the runner-up's: {second.protection} has "
                f"{_with_interval(second.accuracy)}, and re-identification {percent(second.risk.top1.value)}."
            )
        said += [
            "If the device may know the classes, let it send nothing but its answer: accuracy "
            f"{percent(answer.accuracy.value)}, re-identification {percent(answer.risk.top1.value)}."
            for answer in others
            if self.needs_its_classes(answer) and answer.accuracy and answer.risk
        ]
        if best.halves:
            said.append(
                "Charts, tables and the figures of other settings count all people and test images; there "
                f"{best.protection} has {percent(best.accuracy.value)} accuracy and "
                f"{percent(best.risk.top1.value)} re-identification."
            )
        return said

    def what_is_kept(self, best: Setting, accuracy: Estimate) -> tuple[str, ...]:
        """Its accuracy, between clear images and guessing."""
        by = learner_in_words(best.learner or "")
        by = f"a classifier {by}" if by.startswith("trained") else by
        first = f"{percent(accuracy.value)} of images are classified correctly ({_ends(accuracy)}; {by})."
        clean, chance = self.results.clean, self.results.guessing
        if clean is None or chance is None or clean.value <= chance:
            return (first,)
        share = (accuracy.value - chance) / (clean.value - chance)
        kept = "all" if share >= 1 else f"{100 * share:.0f}%"
        return (
            first,
            f"Clear images reach {percent(clean.value)} and guessing {percent(chance)}, so {kept} of what "
            "lies above guessing is kept.",
        )

    def what_is_found(self, best: Setting, risk: Risk) -> tuple[str, ...]:
        """The risk, why it is shown to keep the bound, and other results of adversaries."""
        rising = dict.fromkeys(network for each in best.risks for network in each.rising)
        gained = (
            f"Some adversaries still gained when their training ended ({', '.join(rising)}): what they name "
            "is a lower bound. To train them longer, raise their steps in the study file."
        )
        return (
            f"{percent(risk.top1.value)} of releases are named with the right "
            f"{self.results.study['task']['sensitive']} by the strongest adversary ({_ends(risk.top1)}; "
            f"{risk.adversary}; {risk.crowd}); guessing is right for {percent(risk.chance)}.",
            self._explain(best),
            *self.of_many(best),
            *self.of_attributes(best),
            *([gained] if rising else []),
        )

    def _explain(self, setting: Setting) -> str:
        """Why a setting is shown to keep the bound."""
        if (proof := self._find_proof(setting)) is not None:
            return (
                f"At most {percent(self.bound)} is accepted; it is proved that nobody names more than "
                f"{round_up(100 * proof.at_most)}% of {proof.candidates:,} equally likely people"
                f"{self._of_unlike_people(setting)}."
            )
        people = max(len(risk.strongest.probes) for risk in setting.risks)
        return (
            f"At most {percent(self.bound)} is accepted; the upper end for all adversaries and {people:,} "
            f"people is {percent(self.upper_end(setting))} (95% confidence, all settings of the study "
            "allowed for)."
        )

    def _of_unlike_people(self, setting: Setting) -> str:
        """The bound of counting if some people are on more test images than others; "" otherwise."""
        outputs, risk = self.results.proofs[setting.protection].outputs, setting.risk_on(1)
        probes = next(iter(risk.named.values()), None) if risk else None
        if outputs is None or probes is None:
            return ""
        most = probes.by_counting(outputs)
        if most <= outputs * probes.folds / len(probes.probes):  # each of them is on as many
            return ""
        words = "of these test images, since some people are on more of them than others"
        return f", nor more than {round_up(100 * most)}% {words}"

    def of_many(self, setting: Setting) -> list[str]:
        """The risk from many releases of one person, and whether that keeps the bound."""
        curve, releases = self.results.curves.get(setting.protection), self.results.releases
        said = [_curve_in_words(curve, releases)] if curve else [_UNKNOWN] * (releases > 1)
        if releases == 1:
            return said
        if point := self._after(setting):
            end = percent(point.hits.upper_end(self.error))
            said[-1] += f" The upper end from {releases} is {end}, allowed for as above."
        if self.has_table(setting):
            said.append(
                "Looked up in an answer table, queries send nothing: naming stays guessing, by construction. "
                "Only enrolment sends its few images."
            )
        return said

    def of_attributes(self, setting: Setting) -> list[str]:
        """How often each attribute is inferred."""
        return [
            f"{_capital(inferred.attack)} is inferred in {_with_interval(inferred.top1)} of cases by "
            f"{inferred.adversary}, guessing {percent(inferred.chance)}; at most "
            f"{percent(self.results.bounds[inferred.attack])} is accepted, and the upper end is "
            f"{percent(self.upper_end(inferred))}."
            for inferred in setting.inferred
        ]

    def what_is_not_shown(self, best: Setting) -> tuple[str, ...]:
        """Who was not tried on it, and which settings were not judged."""
        said = []
        if left_out := self.results.not_tried_on(best.protection):
            said.append(f"Adversaries of this library that were not tried on it: {', '.join(left_out)}.")
        return (*said, *self.not_considered(), *self.nothing_learned(), _OTHERS)

    def not_considered(self) -> list[str]:
        """Settings that are not judged, a sentence for each reason."""
        settings = self.results.settings
        names = [each.protection for each in settings if not (each.complete and each.accuracy)]
        missing = f"Not considered, since records are missing: {', '.join(names)}."
        untried: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for each in settings:
            if each.untried and each.protection not in names:
                untried[each.untried].append(each.protection)
        return [
            *([missing] if names else []),
            *(
                f"Not considered, since the study leaves out {' and '.join(attacks)}: {', '.join(specs)}."
                for attacks, specs in untried.items()
            ),
        ]

    def nothing_learned(self) -> list[str]:
        """Settings whose best learner is no better than guessing.

        A code or a classifier whose training never got anywhere looks as safe as one that hides everything.
        """
        chance = self.results.guessing
        if chance is None:
            return []
        settings = self.results.settings
        names = [each.protection for each in settings if each.accuracy and each.accuracy.low <= chance]
        words = (
            f"Nothing was learned from {', '.join(names)}: the best classifier of what is released may be "
            f"guessing ({percent(chance)}). Too little is left there, or its training failed: more epochs, "
            "or more bits of a code, tell which."
        )
        return [words] if names else []

    def what_would_show(self, setting: Setting) -> list[str]:
        """The number of people, or the bound, that would show that a setting keeps it."""
        proof = self.proof_of(setting)
        hits = [named for risk in setting.risks for named in risk.named.values()]
        if self.upper_end(setting) <= self.bound or not hits or not setting.risk:
            return []
        people, folds = len(hits[0].probes), hits[0].folds
        among = max(setting.risk.identities, (proof and proof.people) or 0)
        proved_ends = [each.at_most for each in (proof.naming if proof else ()) if each.candidates <= among]
        lowest = whole_percents(min([self.upper_end(setting), *proved_ends]))
        cures = []
        if times := fewest(
            lambda times: all(each.of_more(times).upper_end(self.error) <= self.bound for each in hits),
            most=_TIMES,
        ):
            gain = setting.risk.top1.value / setting.risk.chance
            cures.append(
                f"about {people * times:,} test people in place of {people:,}, if adversaries stay right "
                f"{gain:.1f} times as often as a guess"
            )
        if proof and proof.outputs and self.bound:
            enough = folds * math.ceil(proof.outputs / self.bound - 1e-9)
            cures.append(f"{enough:,} test people, by counting its {proof.outputs:,} outputs")
        cures.append(f"a bound of {lowest:g} (--at-most {lowest:g})")
        return [f"What would show it: {'; or '.join(cures)}."]


def least_useful(results: Figures) -> float:
    """The accuracy from which a setting is useful: halfway from guessing to the clean learner."""
    clean, chance = results.clean, results.guessing or 0.0
    return chance if clean is None else chance + _USEFUL * (clean.value - chance)


def nothing_to_keep(results: Figures) -> list[str]:
    """That clear images show next to nothing of the target, and remedies; empty if they show enough."""
    clean, chance = results.clean, results.guessing
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


def _no_recommendation(choice: _Choice, bound: float | None) -> list[str]:
    """Why there is none: a headline, and details; empty if there is one."""
    results = choice.results
    if reason := nothing_to_keep(results):
        return reason
    sensitive = results.study["task"].get("sensitive")
    if not sensitive:
        return ["the study names no secret (task: sensitive), so that no adversary could be measured"]
    if results.study["task"].get("secret_is_task"):
        return [
            f"the secret ({sensitive}) is what the task itself tells, or follows from it",
            "An adversary who protects their own photographs the same way can do what the service does, and "
            "reaches at least its accuracy among as many people: no setting is both useful and safe.",
            "Static and adaptive adversaries are shown apart; to get a recommendation, name a task that "
            "differs from the secret.",
        ]
    if not any(setting.risk for setting in results.settings):
        return ["no attack is recorded, so that the risk is unknown: run the study's attacks"]
    if bound is None:
        return ["the study sets no bound: add recommend: {reidentification_at_most: 0.1} to its file"]
    if choice.ranked:
        return []
    known = [each for each in choice.judged if each.protection != "none"]
    if not known:
        count = sum(spec != "none" for spec in results.study["protections"])
        return [
            f"none of {count} settings has an accuracy and all adversaries that must be tried on it",
            *choice.not_considered(),
        ]
    useful = [each for each in known if each.accuracy and each.accuracy.value >= choice.least]
    if not useful:
        return [
            "no setting keeps half of what clear images have over guessing, "
            f"{percent(choice.least)} accuracy",
            *choice.not_considered(),
            *choice.nothing_learned(),
        ]
    nearest = min(useful, key=choice.excess)
    assert nearest.risk is not None  # it is judged
    top1 = nearest.risk.top1
    others = "".join(
        f", and the inference of {label} at or under {percent(at_most)}"
        for label, at_most in results.bounds.items()
    )
    return [
        f"no useful setting is shown to keep re-identification at or under {percent(bound)}"
        f"{f' from {results.releases} releases' if results.releases > 1 else ''}{others}",
        f"The nearest is {nearest.protection}, at {_with_interval(top1)}, {nearest.risk.crowd}, by the "
        f"{nearest.risk.adversary}, chance {percent(nearest.risk.chance)}; its upper end is "
        f"{percent(choice.upper_end(nearest))} (95% confidence, all settings of the study allowed for).",
        *choice.what_would_show(nearest),
        *choice.of_many(nearest),
        *choice.of_attributes(nearest),
        *choice.not_considered(),
        *choice.nothing_learned(),
    ]


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _with_interval(estimate: Estimate) -> str:
    return f"{percent(estimate.value)} ({_ends(estimate)})"


def _ends(estimate: Estimate) -> str:
    kind = "95% interval" if estimate.seeds == 1 else f"over {estimate.seeds} seeds"
    return f"{kind} {100 * estimate.low:.1f} to {100 * estimate.high:.1f}"


_UNKNOWN = "What many releases of one person tell is not known: fewer than four people have two pictures."


def _curve_in_words(curve: Curve, releases: int) -> str:
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


def what_leaves(spec: str) -> tuple[str, ...]:
    """The release of an image, in words that need no spec, and that a network makes it."""
    words = words_of(spec.partition(":")[0])
    if not words.leaves:
        return ()
    trained = "artefact" in words.axes and "artefact=" not in spec
    return (words.leaves + " This study trained the network, and kept its file." * trained,)


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
