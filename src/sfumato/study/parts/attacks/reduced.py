"""Vectors of releases, reduced to as many numbers as textbook classifiers can learn from."""

import torch
from torch import Tensor

_COMPONENTS = 100  # numbers that a release is reduced to


class Reduced:
    """Principal components of vectors. State: those of the vectors it was made from."""

    def __init__(self, vectors: Tensor) -> None:
        from sklearn.decomposition import PCA

        self._pca = None
        # A few numbers stay as they are; from constant ones nothing can be learned.
        if vectors.shape[1] > _COMPONENTS < len(vectors) and vectors.std(0).any():
            pca = PCA(_COMPONENTS, svd_solver="randomized", random_state=0)
            self._pca = pca.fit(vectors.double().numpy())
        self.known = self(vectors)

    def __call__(self, vectors: Tensor) -> Tensor:
        """(N, D) -> (N, 100 at most) float64."""
        if self._pca is None:
            return vectors.double()
        return torch.from_numpy(self._pca.transform(vectors.double().numpy()))
