"""How much an answer says of its confidence: less of it tells less of which photographs were enrolled."""

from collections.abc import Sequence

from sfumato.serve.config import ServiceConfig
from sfumato.wire.messages import GuessedClass, ImageAnswer


def as_told(answers: Sequence[ImageAnswer], config: ServiceConfig) -> Sequence[ImageAnswer]:
    """Answers as `config.confidence` lets them leave: see ServiceConfig. What it withholds is None."""
    if config.confidence == "exact":
        return answers
    return [
        ImageAnswer(guesses=_told(answer.guesses, config), none_of_these=answer.none_of_these)
        for answer in answers
    ]


def _told(guesses: list[GuessedClass], config: ServiceConfig) -> list[GuessedClass]:
    if config.confidence == "label":
        return [GuessedClass(label=guess.label, probability=None, distance=None) for guess in guesses[:1]]
    step = config.confidence_step
    return [
        GuessedClass(label=guess.label, probability=_rounded(guess.probability, step), distance=None)
        for guess in guesses
    ]


def _rounded(probability: float | None, step: float) -> float | None:
    """To the nearest multiple of the step, at most 1; the digits that rounding errors add are left out."""
    return None if probability is None else min(1.0, round(round(probability / step) * step, 12))
