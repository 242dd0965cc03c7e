"""From the results of a study to the setting to use, and to the sentences for whoever decides.

A setting is judged by its strongest adversary and by its best learner. A recommendation promises no more
than was measured: a bound on the success of THESE adversaries, together with the proof, if there is one.
sfumato.assess.hits explains the choice without luck.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from sfumato.assess.hits import fewest, whole_percents
from sfumato.dp.guarantee import Definition, Guarantee, round_up
from sfumato.protect.naming import Counted
from sfumato.study.choose.figures import Estimate, Figures, Risk, Setting, Together, learner_in_words, percent
from sfumato.study.measure.results import Naming, Proved
from sfumato.study.vocabulary import ANSWER, BITS, release_kind, words_of
from sfumato.wire.tables import MOST_BITS

ERROR = 0.05  # how often a study may recommend a setting whose risk is above the bound
SAID = (1, 10, 100)  # releases whose figures are printed

_TIMES = 1000  # at most this many times the people are suggested
# A clean learner must learn the first share of the accuracy above guessing, so that there is something to
# keep; a useful setting keeps the second.
_LEARNED, _USEFUL = 1 / 3, 1 / 2

_LOOKED_UP = (
    "A trained network, whose file this study kept, makes a few bits of each image. The device looks them up "
    "in an answer table, so that no query leaves; in place of each image that is enrolled its bits leave."
)
_OTHERS = "An adversary whom nobody has thought of yet may find more, up to what is proved."
_UNKNOWN = "What many releases of one person tell is not known: fewer than four people have two pictures."


@dataclass(frozen=True)
class Answer:
    """A question of a decision maker, and its answer."""

    question: str
    figure: str  # the answer at a glance; "" for none
    sentences: tuple[str, ...]  # the first may begin with the figure


@dataclass(frozen=True)
class Recommendation:
    """The setting to use, or None with the reason, and the answers in reading order."""

    setting: Setting | None
    answers: tuple[Answer, ...]  # without a setting one, why there is none
    reason: str = ""  # why there is none
    nearest: Setting | None = None  # without a setting: which comes nearest; None if nothing was learned
    by_table: bool = False  # it holds only if queries are looked up in an answer table: they send nothing
    has_table: bool = False  # whether there can be one

    @property
    def headline(self) -> str:
        """One line."""
        if self.setting is None:
            return f"no recommendation: {self.reason}"
        return f"recommended: {self.setting.protection}{', looked up in an answer table' * self.by_table}"

    @property
    def sentences(self) -> tuple[str, ...]:
        """Those of all answers."""
        return tuple(sentence for answer in self.answers for sentence in answer.sentences)

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines that the command line prints: the answers of the report."""
        if self.setting is None:
            return (self.headline, *self.sentences[1:])
        return (self.headline, *(f"{each.question}: {' '.join(each.sentences)}" for each in self.answers))


def recommend(results: Figures) -> Recommendation:
    """The most accurate useful setting that is shown to name nobody more often than accepted.

    That must hold for one release, and for as many of one person as the study names (`releases`); not for
    many if queries send nothing. It is shown by proof, or if the upper end of each adversary's interval is at
    or under the study's bound, with all settings of the study allowed for. Settings that a proof keeps come
    first; the device's own answer comes last for new classes. A setting is useful if it keeps half of the
    clean learner's gain over guessing. The choice is made on one half, and the figures are of the other.
    """
    choice = _Choice(results)
    if reasons := choice.reasons_for_none():
        why = Answer("What to use", "", (_capital(f"{reasons[0]}."), *reasons[1:]))
        return Recommendation(None, (why,), reason=reasons[0], nearest=choice.nearest)
    best, *others = choice.ranked
    accuracy, risk = best.on(1)
    by_table = choice.has_table(best) and choice.excess_of_many(best) > 0  # only if queries are not sent
    leaves = (_LOOKED_UP,) if by_table else what_leaves(best.protection)
    proof = describe_proof(results.proofs.get(best.protection)).removeprefix("What is proved: ")
    not_shown = [*choice.not_considered(), *choice.nothing_learned(), _OTHERS]
    if left_out := results.not_tried_on(best.protection):
        untried = ", ".join(left_out)
        not_shown.insert(0, f"Adversaries of this library that were not tried on it: {untried}.")
    answers = (
        ("What to use", best.protection, [*leaves, *choice.how_chosen(best, others)]),
        ("What it keeps", percent(accuracy.value), choice.what_is_kept(best)),
        ("What an adversary finds out", percent(risk.top1.value), choice.what_is_found(best)),
        ("What is proved", "", [_capital(proof)]),
        ("What is not shown", "", not_shown),
    )
    return Recommendation(
        best,
        tuple(Answer(question, figure, tuple(sentences)) for question, figure, sentences in answers),
        by_table=by_table,
        has_table=choice.has_table(best),
    )


class _Choice:
    """The ranking of settings, and its words. State: none that changes."""

    def __init__(self, results: Figures) -> None:
        self.results, self.bound = results, results.bound or 0.0
        self.error = ERROR / len(results.study["protections"])  # of each, for all settings together
        self.least = least_useful(results)
        # Not with attacks that did not run, nor without an adversary that must be tried: see Attack.needed.
        made = [each for each in results.settings if each.accuracy and each.risk]
        self.judged = [each for each in made if each.complete and not each.untried]
        kept = []
        for each in self.judged:
            # A setting is wrongly recommended if one of its bounds does not hold, and that one is then shown
            # to hold with its own probability of error: several bounds are no more error than one.
            asked = {inferred.attack for inferred in each.inferred} == set(results.bounds)
            accuracy, risk = each.on(0)
            if asked and accuracy.value >= self.least and self.excess(each) <= 0:
                last, unproved = self.needs_its_classes(each), self._find_proof(each) is None
                kept.append(((last, unproved, -accuracy.value, risk.top1.value), each))
        # The best first; equals in the order of the study.
        self.ranked = [each for _, each in sorted(kept, key=lambda ranked: ranked[0])]

    def excess(self, setting: Setting) -> float:
        """How far the upper end is above the bound that is missed most; 0 or less if all are kept."""
        return max(
            0.0 if self._find_proof(setting) else setting.upper_end(self.error) - self.bound,
            0.0 if self.has_table(setting) else self.excess_of_many(setting),
            *(each.upper_end(self.error) - self.results.bounds[each.attack] for each in setting.inferred),
        )

    def excess_of_many(self, setting: Setting) -> float:
        """How far naming from the study's number of releases, if they are sent, may be above the bound."""
        if self.results.releases == 1 or self._find_proof(setting, self.results.releases):
            return 0.0
        point = self._after(setting)
        return (point.hits.upper_end(self.error) if point else 1.0) - self.bound

    def _after(self, setting: Setting) -> Together | None:
        curve = self.results.curves.get(setting.protection)
        return curve.after(self.results.releases) if curve else None

    def _find_proof(self, setting: Setting, releases: int = 1) -> Naming | None:
        """The proof that nobody is named more often than accepted, among as many people as there are.

        For several releases it counts their sequences, and assumes nothing about them. The people are all
        on test images: adversaries can look only for people with two photographs.
        """
        proof = self.results.proofs.get(setting.protection)
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

    def has_table(self, setting: Setting) -> bool:
        """Whether an answer table can be made of its codes: few bits without noise."""
        proof = self.results.proofs.get(setting.protection)
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

        def distance(setting: Setting) -> tuple[bool, float]:
            proof = self.results.proofs.get(setting.protection)
            outputs = (proof and proof.outputs) or math.inf
            return self.needs_its_classes(setting), self.excess(setting) if judged else outputs

        return min(judged or useful, key=distance, default=None)

    # The words: each returns sentences

    def how_chosen(self, best: Setting, others: Sequence[Setting]) -> list[str]:
        """How it was chosen, and its runner-up."""
        said = []
        accuracy, risk = best.on(1)
        assert best.accuracy is not None  # it is judged
        assert best.risk is not None
        if best.halves:
            said += ["One half of the people and test images chose it; the figures come from the other half."]
        if self.results.folds:
            said.append(
                f"People took turns as test people, in {len(self.results.study['seeds'])} folds: each was "
                f"looked for among {risk.identities} at least, on what was trained without them. What folds "
                "learn from is in part the same."
            )
        for second in others[:1]:
            if second.accuracy and second.risk and accuracy.overlaps(second.accuracy):
                top1 = percent(second.risk.top1.value)
                said.append(
                    f"Its accuracy cannot be distinguished from the runner-up's: {second.protection} has "
                    f"{_with_interval(second.accuracy)}, and re-identification {top1}."
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

    def what_is_kept(self, best: Setting) -> list[str]:
        """Its accuracy, between clear images and guessing."""
        accuracy, _ = best.on(1)
        by = learner_in_words(best.learner or "")
        by = f"a classifier {by}" if by.startswith("trained") else by
        first = f"{percent(accuracy.value)} of images are classified correctly ({_ends(accuracy)}; {by})."
        clean, chance = self.results.clean, self.results.guessing
        if clean is None or chance is None or clean.value <= chance:
            return [first]
        share = (accuracy.value - chance) / (clean.value - chance)
        kept = "all" if share >= 1 else f"{100 * share:.0f}%"
        said = f"Clear images reach {percent(clean.value)} and guessing {percent(chance)}"
        return [first, f"{said}, so {kept} of what lies above guessing is kept."]

    def what_is_found(self, best: Setting) -> list[str]:
        """The risk, why it is shown to keep the bound, and other results of adversaries."""
        _, risk = best.on(1)
        rising = dict.fromkeys(network for each in best.risks for network in each.rising)
        gained = (
            f"Some adversaries still gained when their training ended ({', '.join(rising)}): what they name "
            "is a lower bound. To train them longer, raise their steps in the study file."
        )
        return [
            f"{percent(risk.top1.value)} of releases are named with the right "
            f"{self.results.study['task']['sensitive']} by the strongest adversary ({_ends(risk.top1)}; "
            f"{risk.adversary}; {risk.crowd}{how_sure(risk)}); guessing is right for {percent(risk.chance)}.",
            self._explain(best),
            *self.of_many(best),
            *self.of_attributes(best),
            *([gained] if rising else []),
        ]

    def _explain(self, best: Setting) -> str:
        accepted = f"At most {percent(self.bound)} is accepted"
        proof = self._find_proof(best)
        if proof is None:
            people, end = max(len(risk.strongest.probes) for risk in best.risks), self._end_of(best)
            return f"{accepted}; the upper end for all adversaries and {people:,} people is {end}."
        return (
            f"{accepted}; it is proved that nobody names more than {round_up(100 * proof.at_most)}% of "
            f"{proof.candidates:,} equally likely people, but more of those with more images than others."
        )

    def _end_of(self, setting: Setting) -> str:
        end = percent(setting.upper_end(self.error))
        return f"{end} (95% confidence, all settings of the study allowed for)"

    def of_many(self, setting: Setting) -> list[str]:
        """How naming grows with the number of releases of one person, and whether that keeps the bound."""
        curve, releases = self.results.curves.get(setting.protection), self.results.releases
        said = [_UNKNOWN] * (curve is None and releases > 1)
        if curve is not None:
            points = [point for point in curve.points if point.releases in (*SAID, releases)]
            *first, last = [f"{percent(point.named.value)} from {point.releases}" for point in points]
            end = points[-1]
            said.append(
                f"Adversaries name {', '.join(first)}{' and ' * bool(first)}{last} "
                f"release{'s' * (end.releases > 1)} of a person among {end.had} "
                f"({_ends(end.named)}; guessing {percent(end.chance)}{how_sure(end)})."
            )
            if end.releases < releases and curve.stopped:
                said[-1] += " More releases were not looked at, since these name too many."
            elif end.releases < releases:
                said[-1] += (
                    f" From {releases} it could not be measured: {curve.enough.get(releases, 0)} of "
                    f"{curve.able} people have enough pictures. Add pictures of the same people, or ask for "
                    f"--releases {end.releases}."
                )
        if releases == 1:
            return said
        if point := self._after(setting):
            end_of = percent(point.hits.upper_end(self.error))
            said[-1] += f" The upper end from {releases} is {end_of}, allowed for as above."
        if self.has_table(setting):
            said.append(
                "Looked up in an answer table, queries send nothing: naming stays guessing, by construction. "
                "Only enrolment sends its few images."
            )
        return said

    def of_attributes(self, setting: Setting) -> list[str]:
        """How often each attribute is inferred."""
        return [
            f"{_capital(each.attack)} is inferred in {_with_interval(each.top1)} of cases by "
            f"{each.adversary}, guessing {percent(each.chance)}; at most "
            f"{percent(self.results.bounds[each.attack])} is accepted, and the upper end is "
            f"{percent(each.upper_end(self.error))}."
            for each in setting.inferred
        ]

    def not_considered(self) -> list[str]:
        """Settings that are not judged, a sentence for each reason."""
        reasons: dict[str, list[str]] = {"records are missing": []}
        for each in self.results.settings:
            if not (each.complete and each.accuracy):
                reasons["records are missing"].append(each.protection)
            elif each.untried:
                reason = f"the study leaves out {' and '.join(each.untried)}"
                reasons.setdefault(reason, []).append(each.protection)
        said = ((reason, ", ".join(specs)) for reason, specs in reasons.items() if specs)
        return [f"Not considered, since {reason}: {specs}." for reason, specs in said]

    def nothing_learned(self) -> list[str]:
        """Settings whose best learner is no better than guessing.

        A code or a classifier whose training never got anywhere looks as safe as one that hides everything.
        """
        chance = self.results.guessing or -1.0  # below all, if it is not known
        made = [(each.protection, each.accuracy) for each in self.results.settings]
        names = ", ".join(spec for spec, accuracy in made if accuracy and accuracy.low <= chance)
        words = (
            f"Nothing was learned from {names}: the best classifier of what is released may be guessing "
            f"({percent(chance)}). Too little is left there, or its training failed: more epochs, or more "
            "bits of a code, tell which."
        )
        return [words] if names else []

    def what_would_show(self, setting: Setting) -> list[str]:
        """The number of people, or the bound, that would show that a setting keeps it."""
        proof = self.results.proofs.get(setting.protection)
        hits = [named for risk in setting.risks for named in risk.named.values()]
        end = setting.upper_end(self.error)
        if end <= self.bound or not hits or not setting.risk:
            return []
        people, folds = len(hits[0].probes), hits[0].folds
        among = max(setting.risk.identities, (proof and proof.people) or 0)
        proved_ends = [each.at_most for each in (proof.naming if proof else ()) if each.candidates <= among]
        lowest = whole_percents(min([end, *proved_ends]))
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

    def reasons_for_none(self) -> list[str]:
        """Why there is no recommendation: a headline, and details; empty if there is one."""
        results, task = self.results, self.results.study["task"]
        if reason := nothing_to_keep(results):
            return reason
        sensitive = task.get("sensitive")
        if not sensitive:
            return ["the study names no secret (task: sensitive), so that no adversary could be measured"]
        if task.get("secret_is_task"):
            return [
                f"the secret ({sensitive}) is what the task itself tells, or follows from it",
                "An adversary who protects their own photographs the same way can do what the service does, "
                "and reaches at least its accuracy among as many people: no setting is both useful and safe.",
                "Static and adaptive adversaries are shown apart; to get a recommendation, name a task that "
                "differs from the secret.",
            ]
        if not any(setting.risk for setting in results.settings):
            return ["no attack is recorded, so that the risk is unknown: run the study's attacks"]
        if results.bound is None:
            return ["the study sets no bound: add recommend: {reidentification_at_most: 0.1} to its file"]
        if self.ranked:
            return []
        known = [each for each in self.judged if each.protection != "none"]
        left = self.not_considered()
        if not known:
            count = sum(spec != "none" for spec in results.study["protections"])
            why = f"none of {count} settings has an accuracy and all adversaries that must be tried on it"
            return [why, *left]
        left += self.nothing_learned()
        useful = [each for each in known if each.accuracy and each.accuracy.value >= self.least]
        if not useful:
            least = percent(self.least)
            return [f"no setting keeps half of what clear images have over guessing, {least} accuracy", *left]
        nearest = min(useful, key=self.excess)
        assert nearest.risk is not None  # it is judged
        asked = results.bounds.items()
        others = "".join(
            f", and the inference of {label} at or under {percent(most)}" for label, most in asked
        )
        after = f" from {results.releases} releases" if results.releases > 1 else ""
        return [
            f"no useful setting is shown to keep re-identification at or under {percent(self.bound)}{after}"
            f"{others}",
            f"The nearest is {nearest.protection}, at {_with_interval(nearest.risk.top1)}, "
            f"{nearest.risk.crowd}, by the {nearest.risk.adversary}, chance {percent(nearest.risk.chance)}; "
            f"its upper end is {self._end_of(nearest)}.",
            *self.what_would_show(nearest),
            *self.of_many(nearest),
            *self.of_attributes(nearest),
            *left,
        ]


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


def how_sure(found: Risk | Together) -> str:
    """The bits of identity, and how sure namings are, to go on with; "" if they were not recorded."""
    if found.bits is None or found.surest is None:
        return ""
    bits = f"; {found.bits.value:.2f} bits of identity ({found.bits.low:.2f} to {found.bits.high:.2f})"
    return f"{bits}; {percent(found.surest.value)} of the surest hundredth of namings are right"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _with_interval(estimate: Estimate) -> str:
    return f"{percent(estimate.value)} ({_ends(estimate)})"


def _ends(estimate: Estimate) -> str:
    kind = "95% interval" if estimate.seeds == 1 else f"over {estimate.seeds} seeds"
    return f"{kind} {100 * estimate.low:.1f} to {100 * estimate.high:.1f}"


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
    if stated is None or (whole := stated.whole_image) is None or stated.definition in (None, "approximate"):
        return Counted(proof.outputs)
    definition = cast(Definition, stated.definition)
    guarantee = Guarantee(definition=definition, value=whole, pixels=1, whole_image=whole, source="")
    return Counted(proof.outputs, guarantee)


def describe_proof(proof: Proved | None) -> str:
    """The proof for a release, and the number of people at which there is none, in a sentence."""
    if proof is None:
        return "What is proved of it is not recorded."
    statements = [proof.guarantee.text] if proof.guarantee else []
    if naming := next((naming for naming in proof.naming if naming.at_most < 1), None):
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
