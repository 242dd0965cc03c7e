"""What an attack is recorded as: how often each classifier names people, and whom."""

from dataclasses import asdict
from typing import Any

from torch import Tensor

from sfumato.assess import recognition
from sfumato.attack.reidentify import Guesses


def score(guesses: Guesses, truth: Tensor, *, words: str = "") -> dict[str, Any]:
    """How often a classifier is right; see kinds.attack.Score.

    Args:
        guesses: at each probe.
        truth: (m,) int64, who they are.
        words: after the classifier's name: what it looked at, or how it was trained.
    """
    ranks = recognition.identification_ranks(guesses.similarities, guesses.identities, truth)
    identification = recognition.identification(guesses.similarities, guesses.identities, truth)
    return {
        "classifier": guesses.classifier + words,
        **asdict(identification),
        "hits": hits(ranks <= 1, truth),
    }


def hits(right: Tensor, truth: Tensor) -> list[float]:
    """How many probes of each person are named rightly; of `right` that are shares, their sums. -> (P,)."""
    people, rows = truth.unique(return_inverse=True)
    right = right.double()
    counted: list[float] = right.new_zeros(len(people)).index_add(0, rows, right).tolist()
    return counted


def outcome(scores: list[dict[str, Any]], names: Tensor, truth: Tensor, *, gallery: int) -> dict[str, Any]:
    """The result of an attack; see kinds.attack.Result.

    Args:
        scores: of `score`.
        names: codes of the people who are known.
        truth: (m,) codes of those on the probes.
        gallery: how many photographs are known.
    """
    return {
        "scores": scores,
        "chance": recognition.chance(truth),
        "identities": len(names.unique()),
        "gallery": gallery,
        "probes": len(truth),
        "people": truth.unique(return_counts=True)[1].tolist(),
    }
