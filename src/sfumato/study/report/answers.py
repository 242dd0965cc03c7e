"""The questions of a decision maker, answered in plain words: the first screen of a report."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sfumato.study.choose.estimates import (
    Estimate,
    Study,
    accuracies,
    clean_learner,
    guessing,
    learner_in_words,
    missing,
    percent,
    proofs,
)
from sfumato.study.choose.frontier import frontier
from sfumato.study.choose.recommend import Recommendation, recommend
from sfumato.study.records import Record
from sfumato.study.vocabulary import words_of


@dataclass(frozen=True)
class Answer:
    """A question, and its answer.

    Attributes:
        question: in a few words.
        figure: the answer at a glance; "" for none.
        sentences: the answer; the first may begin with the figure.
    """

    question: str
    figure: str
    sentences: tuple[str, ...]


def answers(study: Study, records: Sequence[Record], advice: Recommendation) -> list[Answer]:
    """The questions, in reading order; fewer without a recommendation."""
    if advice.setting is None:
        return [Answer("What to use", "", (_why(advice), *advice.reasons))]
    return [
        Answer(
            "What to use",
            advice.setting.protection,
            (
                *(_LOOKED_UP if advice.by_table else what_leaves(advice.setting.protection)),
                *advice.chosen,
                *_figures_over_all(advice),
            ),
        ),
        _answer_utility(study, records, advice),
        _answer_risk(study, advice),
        Answer("What is proved", "", (_sentence(advice.proved.removeprefix("What is proved: ")),)),
        Answer("What is not shown", "", (*advice.not_tried, _OTHERS)),
    ]


_LOOKED_UP = (
    "A trained network, whose file this study kept, makes a few bits of each image. The device looks them up "
    "in an answer table, so that no query leaves; in place of each image that is enrolled its bits leave.",
)
_OTHERS = "An adversary whom nobody has thought of yet may find more, up to what is proved."


def states_a_half(advice: Recommendation) -> bool:
    """Whether the figures of a recommendation are not those of all people and test images."""
    setting = advice.setting
    return setting is not None and bool(setting.halves) and setting.risk is not None


def _figures_over_all(advice: Recommendation) -> tuple[str, ...]:
    """The other two figures of the recommended setting that a report has, in a sentence."""
    if not states_a_half(advice):
        return ()
    assert advice.setting is not None
    assert advice.setting.accuracy is not None
    assert advice.setting.risk is not None
    return (
        "Charts, tables and the figures of other settings count all people and test images; there "
        f"{advice.setting.protection} has {percent(advice.setting.accuracy.value)} accuracy and "
        f"{percent(advice.setting.risk.top1.value)} re-identification.",
    )


def as_json(study: Study, records: Sequence[Record]) -> dict[str, Any]:
    """The content of a report, fit for JSON.

    Returns:
        study: its name. varied: the values of a study with `vary`. recommended: the spec, or None. answers:
        of the first screen. settings: for each protection its best learner and strongest adversary, shares
        from 0 to 1 with the ends of their intervals, and the proof. missing: cells without a record.
    """
    advice, proved = recommend(study, records), proofs(study, records)
    return {
        "study": study["name"],
        **({"varied": study["varied"]} if "varied" in study else {}),
        "recommended": advice.setting.protection if advice.setting else None,
        "headline": advice.headline,
        "answers": [asdict(answer) for answer in answers(study, records, advice)],
        "settings": [
            {
                "protection": each.protection,
                "learner": each.learner,
                "accuracy": _share(each.accuracy),
                "reidentification": _share(each.risk.top1 if each.risk else None),
                "adversary": each.risk.adversary if each.risk else None,
                "chance": each.risk.chance if each.risk else None,
                "inferred": {inferred.attack: _share(inferred.top1) for inferred in each.inferred},
                "proved": [
                    {"people": naming.candidates, "at_most": naming.at_most}
                    for naming in (proved[each.protection].naming if each.protection in proved else ())
                ],
                "complete": each.complete,
                "on_frontier": each.on_frontier,
            }
            for each in frontier(study, records)
        ],
        "missing": missing(study, records),
    }


def _share(estimate: Estimate | None) -> dict[str, float] | None:
    if estimate is None:
        return None
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}


def what_leaves(spec: str) -> tuple[str, ...]:
    """The release of an image, in words that need no spec, and that a network makes it."""
    words = words_of(spec.partition(":")[0])
    if not words.leaves:
        return ()
    trained = "artefact" in words.axes and "artefact=" not in spec
    return (words.leaves + " This study trained the network, and kept its file." * trained,)


def _why(advice: Recommendation) -> str:
    return _sentence(f"{advice.headline.removeprefix('no recommendation: ')}.")


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _answer_utility(study: Study, records: Sequence[Record], advice: Recommendation) -> Answer:
    assert advice.accuracy is not None  # there is a setting
    assert advice.setting is not None
    value = advice.accuracy.value
    sentences = [
        f"{percent(value)} of images are classified correctly ({_ends(advice.accuracy)}; "
        f"{_by(advice.setting.learner or '')})."
    ]
    clean, chance = accuracies(study, records).get(("none", clean_learner(study))), guessing(study, records)
    if clean is not None and chance is not None and clean.value > chance:
        share = (value - chance) / (clean.value - chance)
        kept = "all" if share >= 1 else f"{100 * share:.0f}%"
        sentences.append(
            f"Clear images reach {percent(clean.value)} and guessing {percent(chance)}, so {kept} of what "
            "lies above guessing is kept."
        )
    return Answer("What it keeps", percent(value), tuple(sentences))


def _answer_risk(study: Study, advice: Recommendation) -> Answer:
    assert advice.risk is not None  # there is a setting
    risk, secret = advice.risk, study["task"]["sensitive"]
    sentences = (
        f"{percent(risk.top1.value)} of releases are named with the right {secret} by the strongest "
        f"adversary ({_ends(risk.top1)}; {risk.adversary}; {risk.crowd}); guessing is "
        f"right for {percent(risk.chance)}.",
        *advice.found,
    )
    return Answer("What an adversary finds out", percent(risk.top1.value), sentences)


def _by(learner: str) -> str:
    words = learner_in_words(learner)
    return f"a classifier {words}" if words.startswith("trained") else words


def _ends(estimate: Estimate) -> str:
    kind = "95% interval" if estimate.seeds == 1 else "lowest and highest seed"
    return f"{kind} {100 * estimate.low:.1f} to {100 * estimate.high:.1f}"
