"""The precision of an answer's confidence: lower precision reveals less about enrolled photographs."""

from collections.abc import Sequence

from sfumato.serve.config import ServiceConfig
from sfumato.wire.messages import GuessedClass, ImageAnswer


def limit_confidence(answers: Sequence[ImageAnswer], config: ServiceConfig) -> Sequence[ImageAnswer]:
    """Limit answers to `config.confidence`, see ServiceConfig; withheld numbers are None."""
    if config.confidence == "exact":
        return answers
    return [
        ImageAnswer(guesses=_limit(answer.guesses, config), none_of_these=answer.none_of_these)
        for answer in answers
    ]


def _limit(guesses: list[GuessedClass], config: ServiceConfig) -> list[GuessedClass]:
    if config.confidence == "label":
        return [GuessedClass(label=guess.label, probability=None, distance=None) for guess in guesses[:1]]
    step = config.confidence_step
    return [
        GuessedClass(label=guess.label, probability=_round(guess.probability, step), distance=None)
        for guess in guesses
    ]


def _round(probability: float | None, step: float) -> float | None:
    """Round to the nearest multiple of the step, at most 1, without digits from rounding errors."""
    return None if probability is None else min(1.0, round(round(probability / step) * step, 12))
