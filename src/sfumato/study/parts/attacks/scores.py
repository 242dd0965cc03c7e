"""The recorded figures of an attack: how often each classifier names people; see kinds.attack."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from sfumato.assess import recognition
from sfumato.attack.reidentify import Guesses

_PAIRS = 20_000_000  # at most this many pairs are verified: more would need gigabytes


def score(guesses: Guesses, truth: Tensor, *, reading: str = "") -> dict[str, Any]:
    """How often a classifier is right on probes of (m,) int64 people; see kinds.attack.Score."""
    ranks = recognition.identification_ranks(guesses.similarities, guesses.identities, truth)
    identification = recognition.identification(guesses.similarities, guesses.identities, truth)
    judged = {"classifier": guesses.classifier, **asdict(identification), "hits": hits(ranks <= 1, truth)}
    return {**judged, "reading": reading} if reading else judged


def hits(right: Tensor, who: Tensor) -> list[float]:
    """How many of each person are named correctly; of `right` that are shares, their sums. -> (P,).

    Args:
        right: (m,) bool, or shares.
        who: (m,) int64 codes.
    """
    people, rows = who.unique(return_inverse=True)
    counted: list[float] = torch.zeros(len(people)).double().index_add(0, rows, right.double()).tolist()
    return counted


def verify(compare: Callable[[Tensor], Tensor], names: Tensor, truth: Tensor) -> dict[str, float]:
    """How well they tell whether a gallery photograph and a probe show the same person.

    Args:
        compare: (k,) rows of probes -> (k, n) similarities to the photographs of the gallery.
        names: (n,) int64.
        truth: (m,) int64.
    """
    rows = torch.arange(len(truth))[:: max(1, len(names) * len(truth) // _PAIRS)]
    same = truth[rows, None] == names
    judged = recognition.verification(compare(rows).flatten(), same.flatten())
    accepted = {f"tar_at_far_{rate}": share for rate, share in judged.tar_at_far.items()}
    return {"verification_auc": judged.auc, **accepted}


def outcome(scores: list[dict[str, Any]], names: Tensor, truth: Tensor, *, gallery: int) -> dict[str, Any]:
    """The result of an attack; see kinds.attack.Result.

    Args:
        scores: of `score`.
        names: codes of the people who are known.
        truth: (m,) int64, who are named.
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
