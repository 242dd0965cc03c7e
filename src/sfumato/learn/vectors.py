"""Classifiers of vectors: the numbers of a feature, or the bits of a code, as released.

Textbook classifiers of a few numbers, the first choice of an engineer, and of an outsider.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sfumato.data.labelled import draw_rows
from sfumato.errors import DataError, needs_extra

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
    """Trains each kind of classifier, and returns the one that is best on validation.

    Forests grow only for few numbers: for many they take long, and are seldom best.

    Args:
        vectors, codes: (N, D) finite numbers, and the (N,) int64 class of each, at least two.
        validation: others, with their codes; None for a fifth of these, which is then not trained on.
    """
    if not vectors.isfinite().all():
        raise DataError("vectors that are not finite: leave these images out")
    if validation is None:
        order = torch.randperm(len(codes), generator=torch.Generator().manual_seed(seed))
        held, kept = order[: len(order) // _HELD_OUT], order[len(order) // _HELD_OUT :]
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
        model = VectorModel(name, 0.0, fitted)
        guesses = model.classify(validation[0])
        models.append(VectorModel(name, (guesses == validation[1]).double().mean().item(), fitted))
    return max(models, key=lambda model: model.validation)


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
