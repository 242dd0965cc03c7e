"""Classifiers of vectors: textbook ones of released numbers or bits, and the layer on a frozen encoder."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sfumato.data.labelled import draw_rows
from sfumato.errors import DataError, needs_extra

STRENGTHS = (10.0, 1.0, 0.1, 0.01, 1e-3)  # of the L2 penalty, on features of variance 1

_HELD_OUT = 5  # one of this many vectors chooses, without validation vectors
_FEW = 32  # numbers, the most for forests
_TREES = 200  # of a forest
_MOST = 4000  # vectors for training a support vector machine: its time grows with their square


@dataclass(frozen=True)
class VectorModel:
    """A trained classifier."""

    name: str  # the kind that was best on validation; and of how many vectors, if it learned from some
    validation: float  # its share of right guesses there
    _fitted: Any

    def classify(self, vectors: Tensor) -> Tensor:
        """(N, D) -> (N,) int64 codes."""
        return torch.from_numpy(self._fitted.predict(vectors.double().numpy())).long()


def train(
    vectors: Tensor, codes: Tensor, *, validation: tuple[Tensor, Tensor] | None = None, seed: int = 0
) -> VectorModel:
    """Trains each kind of classifier on (N, D) vectors of (N,) classes, and returns the best on validation.

    `validation`: others, with their codes; None for a fifth of these, which is then not trained on. Forests
    grow only for few numbers: for many they take long, and are seldom best.
    """
    if not vectors.isfinite().all():
        raise DataError("vectors that are not finite: leave these images out")
    if validation is None:
        held, kept = _hold_out(len(codes), seed)
        validation = vectors[held], codes[held]
        vectors, codes = vectors[kept], codes[kept]
    if len(codes.unique()) < 2:
        raise DataError(f"{len(codes.unique())} classes: at least 2 are needed")
    x, y = vectors.double().numpy(), codes.numpy()
    models = []
    for name, make in _kinds(forests=vectors.shape[1] <= _FEW).items():
        rows = np.arange(len(y))
        if name == "support vector machine" and len(y) > _MOST:
            rows = draw_rows(codes, _MOST, seed=seed).numpy()
            name += f", of {_MOST:,} of {len(y):,} drawn by class"
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*lbfgs failed to converge.*")
            # People may have one or two images each, and are classes all the same.
            warnings.filterwarnings("ignore", message="The number of unique classes is greater than 50%.*")
            fitted = make(seed).fit(x[rows], y[rows])
        guesses = VectorModel(name, 0.0, fitted).classify(validation[0])
        models.append(VectorModel(name, (guesses == validation[1]).double().mean().item(), fitted))
    return max(models, key=lambda model: model.validation)


def _hold_out(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows of a fifth of some vectors, drawn by `seed`, and of the rest."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return order[: count // _HELD_OUT], order[count // _HELD_OUT :]


def _kinds(*, forests: bool) -> dict[str, Callable[[int], Any]]:
    with needs_extra("a classifier of numbers", "study"):
        from sklearn.ensemble import RandomForestClassifier
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from sklearn.svm import SVC

    kinds: dict[str, Callable[[int], Any]] = {
        "logistic regression": lambda _: make_pipeline(StandardScaler(), LogisticRegression(max_iter=200)),
        "support vector machine": lambda _: make_pipeline(StandardScaler(), SVC(C=3.0)),
    }
    if forests:
        kinds["forest"] = lambda seed: RandomForestClassifier(_TREES, random_state=seed, n_jobs=1)
    return kinds


def logistic_regression(
    features: Sequence[Tensor],
    codes: Tensor,
    classes: int,
    validation: tuple[Tensor, Tensor] | None = None,
    *,
    seed: int = 0,
) -> tuple[Tensor, Tensor, float]:
    """Fits a linear layer, with the L2 penalty of STRENGTHS that is best on other images, without an extra.

    Every class has the same weight, for any number of images. `features` are (N, D), once for each variant of
    the images; `validation` features and codes of others, or None for a fifth of these, which is then trained
    on as well. -> weights (classes, D), biases (classes,), and the share of the others that is named right.
    """
    held, kept = _hold_out(len(codes), seed)
    rows = torch.cat([held, kept])
    kept = kept if validation is None else rows
    others, answers = validation or (features[0][held], codes[held])

    def fit_at(chosen: Tensor, strength: float) -> tuple[Tensor, Tensor]:
        every = torch.cat([part[chosen] for part in features])
        return _fit(every, codes[chosen].repeat(len(features)), classes, strength)

    best, accuracy = STRENGTHS[0], -1.0
    for strength in STRENGTHS:
        weights, biases = fit_at(kept, strength)
        right = (others @ weights.T + biases).argmax(1) == answers
        if (share := right.double().mean().item() if len(right) else 0.0) > accuracy:
            best, accuracy = strength, share
    return *fit_at(rows, best), accuracy


def _fit(features: Tensor, codes: Tensor, classes: int, strength: float) -> tuple[Tensor, Tensor]:
    """By L-BFGS, in float64. The penalty, strength / 2 times the squared weights, adds to the mean loss."""
    x = features.double()
    weights = torch.zeros(classes, x.shape[1], dtype=x.dtype, requires_grad=True)
    biases = torch.zeros(classes, dtype=x.dtype, requires_grad=True)
    counts = codes.bincount(minlength=classes).double()
    shares = torch.where(counts > 0, len(codes) / ((counts > 0).sum() * counts.clamp(min=1)), 0.0)
    how: dict[str, Any] = {"max_iter": 200, "history_size": 10, "line_search_fn": "strong_wolfe"}
    optimiser = torch.optim.LBFGS([weights, biases], **how)

    def closure() -> Tensor:
        optimiser.zero_grad()
        losses = functional.cross_entropy(x @ weights.T + biases, codes, reduction="none")
        loss = (losses * shares[codes]).mean() + strength / 2 * weights.square().sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    return weights.detach().float(), biases.detach().float()
