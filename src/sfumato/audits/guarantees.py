"""The audits of a stated guarantee: of a protection, and of private meta-training with its card.

The audited training is the shipped one, from the draw of tasks to the noised update, with the given settings.
Canaries replace the tasks, so that nothing private is used.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sfumato.attack.saturation import check_bounds
from sfumato.audits.findings import Finding, Progress, Report, Risk, Table, Verdict, quiet
from sfumato.dp import accounting
from sfumato.dp.audit import AuditResult, OneRunAudit, round_down
from sfumato.dp.guarantee import SYMBOLS, round_up
from sfumato.errors import ConfigError
from sfumato.learn.canaries import audit_canaries
from sfumato.learn.meta import MetaConfig

PEOPLE = 100
"""Equally likely people in the evidence of a proof: among more, nobody is named more often."""

CANARY_SETTINGS: Mapping[str, Mapping[str, float]] = {
    "fixed": {"clipping_norm": 1e-3},
    "automatic": {"stability": 1e-4},
    "quantile": {"start": 1e-3},
    "adaclip": {"largest": 1e-6},
    "meta-clip": {"start": 1e-3, "bound": 0.1},
}
"""Settings of each policy under which a canary's contribution, of norm about 0.02, is clipped."""

_LEAST, _MOST = 20, 2_000  # canaries
_SPARE = 1.25  # values of an image for each canary: the spare ones measure the noise


@dataclass(frozen=True)
class Audited:
    """A protection, the result of its audit, and its guarantee against naming people."""

    spec: str
    result: AuditResult
    naming: str  # the guarantee in words
    bounds: Mapping[int, float] = field(default_factory=dict)  # releases -> the most named, if proved


def report_protections(subject: str, audited: Sequence[Audited]) -> Report:
    """Report on all protections of a spec."""
    convicted = [each.spec for each in audited if each.result.convicted]
    unstated = [each.spec for each in audited if each.result.stated is None]
    told = any(each.result.stated is None and each.result.lower > 0 for each in audited)
    sentence = "No fault was found in the stated guarantee: release with it, within that guarantee."
    if unstated:
        apart = ", and neighbouring images are told apart" if told else ""
        sentence = f"No guarantee is stated for {', '.join(unstated)}{apart}: "
        sentence += "if you need a proof, use a protection that states one."
    if convicted:
        sentence = f"Do not release with {', '.join(convicted)}: it gives away more than it states. "
        sentence += "Report this as a bug."
    who, guess = f"anybody who chooses among {PEOPLE} equally likely people, by", 1 / PEOPLE
    return Report(
        audit="protection",
        subject=subject,
        sentence=sentence,
        findings=tuple(_of_protection(number, each) for number, each in enumerate(audited, 1)),
        limits=("An audit can convict a protection; it cannot acquit one.",),
        risks=tuple(  # proofs against naming: no adversary was tried on people
            Risk("singling out", "identity", n, f"{who} {each.spec}", None, guess, proved=p, source="proof")
            for each in audited
            for n, p in each.bounds.items()
        ),
    )


def _of_protection(number: int, audited: Audited) -> Finding:
    result = audited.result
    verdict: Verdict = "bounded"
    sentence = "Neighbouring images were not told apart better than the guarantee allows."
    if result.stated is None:
        verdict, nearly = ("leaks", "") if result.lower > 0 else ("not shown", "not ")
        sentence = f"It states no guarantee, and neighbouring images were {nearly}told apart."
    if result.convicted:
        verdict, sentence = "leaks", "Neighbouring images can be told apart better than the guarantee allows."
    rows = [("told apart", str(result)), *([("naming", audited.naming)] if audited.naming else [])]
    table = Table(("question", "answer"), tuple(rows))
    figures = {**asdict(result), "spec": audited.spec, "convicted": result.convicted}
    return Finding(f"protection-{number}", audited.spec, verdict, sentence, table, figures=figures)


@dataclass(frozen=True, kw_only=True)
class TrainingAuditConfig:
    """The effort of the audit. The noise is always fresh."""

    canaries: int = 200  # m in each training, each in or out by a fair coin
    runs: int = 4  # trainings; their canaries count together
    steps: int = 4  # of each training; the noise is calibrated for these
    confidence: float = 0.99  # the probability that a bound holds
    seed: int = 0  # for weights and coins

    def __post_init__(self) -> None:
        if not _LEAST <= self.canaries <= _MOST:
            raise ConfigError(f"canaries={self.canaries}: from {_LEAST} to {_MOST:,}")
        check_bounds(self, runs=1, steps=1)
        if not 0 < self.confidence < 1:
            raise ConfigError(f"confidence={self.confidence:g}: must be between 0 and 1, such as 0.99")


def with_canaries(
    config: MetaConfig, audit: TrainingAuditConfig, settings: Mapping[str, float] | None = None
) -> MetaConfig:
    """Adapt a training to canaries: one linear layer, and `settings`, or CANARY_SETTINGS, that clip each."""
    private = config.private
    if private is None:
        raise ConfigError("this training has no guarantee: audit one with an epsilon")
    if private.pool_tasks is not None:
        raise ConfigError(
            f"pool_tasks={private.pool_tasks}: canaries are for tasks that share no class; leave it out"
        )
    chosen = dict(CANARY_SETTINGS[private.clipping] if settings is None else settings)
    promise = replace(private, settings=chosen, noise_multiplier=None, inner_noise=0.0)
    size: dict[str, Any] = {"network": "linear", "width": None, "start": None, "shifts": 0}
    size |= {"precision": "float32", "steps": audit.steps, "tasks": audit.canaries // 2}
    return replace(config, private=promise, **size)


def audit_training(
    config: MetaConfig,
    *,
    card: Mapping[str, Any] | None = None,
    settings: Mapping[str, float] | None = None,
    subject: str = "A private meta-training",
    audit: TrainingAuditConfig | None = None,
    progress: Progress = quiet,
) -> Report:
    """Bound from below how much a private meta-training reveals about one task, against its statement.

    The epsilon in the `card` of a trained model is recomputed from its noise. `settings`: see with_canaries.
    Raises ConfigError: the training has no guarantee, or one for overlapping tasks.
    """
    audit = audit or TrainingAuditConfig()
    canaries = with_canaries(config, audit, settings)
    side = math.ceil(math.sqrt(_SPARE * audit.canaries))
    effort: dict[str, Any] = {"image": (1, side, side), "places": audit.canaries, "runs": audit.runs}
    effort |= {"confidence": audit.confidence, "seed": audit.seed}
    progress(0, 2)
    sampled = audit_canaries(canaries, of_mu=False, **effort)
    progress(1, 2)
    everyone = audit_canaries(replace(canaries, tasks=audit.canaries), of_mu=True, **effort)
    progress(2, 2)
    findings = [
        _of_canaries("sampled", "With half of the tasks in each step", sampled),
        _of_canaries("every-step", "With all tasks in every step", everyone),
        *([] if card is None else [_of_card(card)]),
    ]
    leaking = [finding.name for finding in findings if finding.verdict == "leaks"]
    sentence = (
        f"No fault was seen in the training: rely on the eps = {round_up(sampled.stated or 0)} that it "
        f"states, and on no less. The canaries prove {round_down(sampled.lower)} of it."
    )
    change = "Train with a smaller epsilon if the accuracy allows it: nothing else gives away less."
    if leaking:
        sentence = "Do not train on private tasks this way: it gives away more about a task than it states. "
        sentence += "Report this as a bug."
        change = "Delete this model, and train again when the fault is fixed."
    if leaking == ["card"]:
        sentence = "Do not rely on this card's statement: with the noise that it names, "
        sentence += "the training costs more."
    return Report(
        audit="training",
        subject=subject,
        sentence=sentence,
        findings=tuple(findings),
        changes=(change,),
        limits=(
            "An audit can convict a training; it cannot acquit one.",
            f"The trainings have {audit.steps} steps of one linear layer, and noise for these. How tasks are "
            "drawn, clipped, noised and accounted for is the same in every training.",
            "The promise is about one task of the pool. The images of people who use the model are not "
            "covered.",
        ),
    )


def _of_canaries(name: str, title: str, result: OneRunAudit) -> Finding:
    symbol, only = SYMBOLS[result.definition], "only " if result.convicted else ""
    words = (
        f"{result.guesses.right} of {result.guesses.guesses} guesses at the canaries are right, which "
        f"proves {symbol} >= {round_down(result.lower)}; {only}{symbol} = {result.stated:.4g} is stated."
    )
    table = Table(("question", "answer"), (("canaries", str(result)),))
    verdict: Verdict = "leaks" if result.convicted else "bounded"
    figures = {**asdict(result), "convicted": result.convicted}
    return Finding(name, title, verdict, words, table, figures=figures)


def _of_card(card: Mapping[str, Any]) -> Finding:
    stated = card["privacy"]
    epsilon, delta, noise, rate = (stated[name] for name in ("epsilon", "delta", "noise_multiplier", "rate"))
    computed = accounting.epsilon([accounting.Stretch(noise, rate, card["steps"])], delta)
    words = (
        f"The card states eps = {round_up(epsilon)} at delta = {delta:g}. {card['steps']} steps with its "
        f"noise of {noise:g} on {rate:.3g} of the tasks cost {round_up(computed)}."
    )
    verdict: Verdict = "bounded" if computed <= epsilon * (1 + 1e-9) else "leaks"
    figures = {"stated": epsilon, "computed": computed, "delta": delta}
    return Finding("card", "The statement of the card", verdict, words, figures=figures)
