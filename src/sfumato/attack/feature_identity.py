"""Adversaries on private features: guess the person, trained on features of known people.

They complement the kernel density of sfumato.assess.log_rank, which the DPFE paper uses: a judge takes the
strongest of all known adversaries.
"""

import warnings

import numpy as np
import torch
from torch import Tensor

from sfumato.errors import ConfigError, DataError, did_you_mean, needs_extra

ADVERSARIES = ("discriminant", "network")

_EPOCHS = 60


def log_posteriors(
    features: Tensor, identities: Tensor, test_features: Tensor, *, adversary: str = "network", seed: int = 0
) -> Tensor:
    """Return ln p(y|f) by a classifier trained on known features. -> (M, c) float64, c ascending codes.

    Args:
        features: (N, d), of known people; with the noise of the test features, best repeated several times.
        identities: (N,) int64, any codes.
        test_features: (M, d).
        adversary: "discriminant", linear, with a shrunk covariance shared by all people; or "network", with
            one hidden layer.
        seed: of the network.

    Raises DataError for features that are not finite or of other dimensions, or for fewer than two people.
    """
    with needs_extra("an adversary who is trained on features", "study"):
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.neural_network import MLPClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

    if adversary not in ADVERSARIES:
        raise ConfigError(f"no adversary is called {adversary!r}: {did_you_mean(adversary, ADVERSARIES)}")
    if features.ndim != 2 or test_features.ndim != 2 or features.shape[1] != test_features.shape[1]:
        raise DataError(
            f"known features of {tuple(features.shape)} and test features of {tuple(test_features.shape)}: "
            "(N, d) and (M, d) are needed, of one d"
        )
    if identities.shape != features.shape[:1]:
        raise DataError(f"{len(features)} known features for {len(identities)} identities: one each")
    if not (features.isfinite().all() and test_features.isfinite().all()):
        raise DataError("features are not finite: leave these images out")
    if not len(test_features):
        raise DataError("no test features: give at least one")
    people = len(identities.unique())
    if people < 2 or people == len(identities):
        raise DataError(
            f"{len(identities)} known features of {people} people: at least 2 people, and 2 features of one"
        )
    if adversary == "discriminant":
        model = LinearDiscriminantAnalysis(
            solver="lsqr", shrinkage="auto", priors=np.full(people, 1 / people)
        )
    else:
        model = MLPClassifier((128,), alpha=1e-3, max_iter=_EPOCHS, random_state=seed)
    with warnings.catch_warnings():
        # It is trained for a fixed number of epochs, not to convergence.
        warnings.simplefilter("ignore", ConvergenceWarning)
        # Some people have one photograph, which does not vary.
        warnings.filterwarnings("ignore", message="Only one sample available")
        fitted = make_pipeline(StandardScaler(), model).fit(features.double().numpy(), identities.numpy())
    found = fitted.predict_proba(test_features.double().numpy())
    # No probability is 0: a class that a softmax rounded to 0 is only last in the list.
    return torch.from_numpy(np.log(np.maximum(found, np.finfo(np.float64).tiny)))
