"""Log-rank privacy: the rank of the right identity in an adversary's list of guesses.

Source: Osia et al. 2018 (docs/papers.md, "DPFE"), Sec. 5, Definition 10:

    LRP = E[ln r] / ln c,  r the rank of p(y|f) among those of all c identities, 1 for the likeliest.

It is 0 if the first guess is always right. A blind guesser has ln(c!) / (c ln c), not 1: it is reported as
well. The posteriors may be anybody's: of the kernel density in this module, or of a trained network.

Decisions for cases in which the paper is silent or its code fails (SciPy's Scott bandwidth, densities that
underflow to 0 / 0, covariances of fewer images than dimensions): one covariance for all identities, of images
around the mean of their identity, shrunk, whitens features by its Cholesky factor; each identity has the
bandwidth of Silverman's rule for its own number of images; and all sums are of logarithms.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from sfumato.errors import ConfigError, DataError

PRIORS = ("uniform", "counts")
BEYOND = (1, 5, 10)  # values of k for which a result reports how many are not among the k best

_CELLS = 1 << 18  # kernels evaluated at a time: 2 MB, the cache of a core
_ROWS = 256  # test features at a time, at most
_FLOOR = 1e-6  # share of a feature's variance: the least of any direction


@dataclass(frozen=True)
class Ranks:
    """The ranks of the right identities among the guesses for N features.

    Equally likely identities share their ranks: each has each of these ranks with the same chance. All
    numbers here are expectations over that chance.

    Attributes:
        above: (N,) int64, number of identities likelier than the right one.
        equal: (N,) int64, number of equally likely ones, including itself.
        identities: c.
    """

    above: Tensor
    equal: Tensor
    identities: int

    @property
    def means(self) -> Tensor:
        """The mean rank of each, (N,) float64, 1 for the first guess."""
        return self.above + (self.equal + 1).double() / 2

    @property
    def logs(self) -> Tensor:
        """The mean of ln r of each, (N,) float64.

        This is not the logarithm of the mean rank, which is larger: an adversary who knows nothing, and finds
        all equally likely, would seem worse than one who guesses.
        """
        above, equal = self.above.double(), self.equal.double()
        shared = (torch.lgamma(above + equal + 1) - torch.lgamma(above + 1)) / equal
        return torch.where(self.equal == 1, (above + 1).log(), shared)

    def beyond(self, k: int) -> float:
        """Return how often the right identity is not among the k best."""
        return ((self.above + self.equal - k) / self.equal).double().clamp(0, 1).mean().item()


def log_ranks(log_posteriors: Tensor, identities: Tensor) -> Ranks:
    """Count the exact ranks of the right identities.

    Args:
        log_posteriors: (N, c), up to a constant for each row; -inf for excluded identities.
        identities: (N,) int64, the column of the right identity.
    """
    if log_posteriors.ndim != 2 or identities.shape != log_posteriors.shape[:1]:
        raise DataError(
            f"log-posteriors of {tuple(log_posteriors.shape)} for identities of {tuple(identities.shape)}: "
            "a row for each feature, a column for each identity"
        )
    _check_count(log_posteriors.shape[1])
    if len(identities) and not 0 <= int(identities.min()) <= int(identities.max()) < log_posteriors.shape[1]:
        raise DataError(
            f"identities from {int(identities.min())} to {int(identities.max())} for the columns 0 to "
            f"{log_posteriors.shape[1] - 1}: give the column of the right identity of each feature"
        )
    if log_posteriors.isnan().any():
        raise DataError("log-posteriors are not numbers: the adversary returned NaN")
    right = log_posteriors.gather(1, identities[:, None])  # (N, 1)
    above, equal = (log_posteriors > right).sum(1), (log_posteriors == right).sum(1)
    return Ranks(above, equal, log_posteriors.shape[1])


@dataclass(frozen=True)
class LogRank:
    """The privacy of features against one adversary.

    Attributes:
        lrp: log-rank privacy, 0 to 1.
        low, high: its 95% interval over people, by the standard error of sums over each person's features,
            which are alike. 0 and 1 for features of one person; of zero width if no ranks differ, which does
            not prove that none would.
        guessing: the value of blind guessing, ln(c!) / (c ln c).
        mean, deviation: of r / c; blind guessing has (c + 1) / 2c and about 0.29.
        beyond: maps k to how often the right identity is not among the k best: the paper's k-anonymity.
        beyond_a_tenth: how often r is above c / 10, counted; compare normal_anonymity.
        nearest_neighbour_error: how often the nearest feature is of another identity; None if not measured.
        features, identities: N and c.
    """

    lrp: float
    low: float
    high: float
    guessing: float
    mean: float
    deviation: float
    beyond: Mapping[int, float]
    features: int
    identities: int
    beyond_a_tenth: float
    nearest_neighbour_error: float | None = None

    def __str__(self) -> str:
        return (
            f"log-rank privacy {self.lrp:.3f} ({self.low:.3f} to {self.high:.3f}; blind guessing "
            f"{self.guessing:.3f}); {100 * self.beyond[10]:.1f}% beyond the 10 best "
            f"({self.features:,} features, {self.identities:,} identities)"
        )


def normal_anonymity(mean: float, deviation: float, share: float) -> float:
    """Return the chance that more than a share of identities is likelier, IF r / c were normal.

    The (ε, δ)-like statement of Sec. 6.2: ε is `share`, and δ is 1 minus the result. It is not a guarantee:
    ranks are not normal, since small ones are more frequent, and it averages over features. `Ranks.beyond`
    counts instead. (The paper has 0.88 for a mean of 0.3, a deviation of 0.25 and a share of 0.1; it is
    0.79.)

    `mean`, `deviation`: of r / c.
    """
    if not 0 <= share <= 1:
        raise ConfigError(f"share={share:g}: from 0 to 1, of the identities")
    if deviation == 0:
        return float(mean > share)
    return 0.5 * math.erfc((share - mean) / (deviation * math.sqrt(2)))


def guessing(identities: int) -> float:
    """Return the log-rank privacy of blind guessing: ln(c!) / (c ln c)."""
    _check_count(identities)
    return math.lgamma(identities + 1) / (identities * math.log(identities))


def judge(log_posteriors: Tensor | Iterable[Tensor], identities: Tensor) -> LogRank:
    """Compute the log-rank privacy against an adversary from their posteriors.

    Args:
        log_posteriors: (N, c), or an iterable of its rows in parts.
        identities: (N,) int64, the column of the right identity.
    """
    parts = [log_posteriors] if isinstance(log_posteriors, Tensor) else log_posteriors
    ranks, start = [], 0
    for part in parts:
        ranks.append(log_ranks(part, identities[start : start + len(part)]))
        start += len(part)
    if start != len(identities) or not start:
        raise DataError(
            f"log-posteriors of {start} features for {len(identities)} identities: one each, and at least one"
        )
    above, equal = (torch.cat([getattr(each, name) for each in ranks]) for name in ("above", "equal"))
    return _result(Ranks(above, equal, ranks[0].identities), identities)


def judge_features(
    train_features: Tensor,
    train_identities: Tensor,
    test_features: Tensor,
    test_identities: Tensor,
    *,
    priors: str = "uniform",
) -> LogRank:
    """Compute the log-rank privacy against a kernel density, and the 1-nearest-neighbour error.

    Arguments: see density_log_posteriors; (M,) int64 `test_identities` are training identities, too.
    """
    known = train_identities.unique()
    foreign = ~torch.isin(test_identities, known)
    if foreign.any():
        raise DataError(
            f"{len(test_identities[foreign].unique())} identities of the test features are in no training "
            "feature: ranks are among known identities: give some images of each to the adversary"
        )
    chunks = density_log_posteriors(train_features, train_identities, test_features, priors=priors)
    result = judge(chunks, torch.searchsorted(known, test_identities))
    error = nearest_neighbour_error(train_features, train_identities, test_features, test_identities)
    return replace(result, nearest_neighbour_error=error)


def density_log_posteriors(
    train_features: Tensor, train_identities: Tensor, test_features: Tensor, *, priors: str = "uniform"
) -> Iterator[Tensor]:
    """Yield ln p(y|f) by a Gaussian kernel density for each identity, for some test features at a time.

    p(f|y) = 1/n_y Σ_i N(f; f_i, σ_y I) of whitened features, σ_y = (4 / (n_y (d + 2)))^(2 / (d + 4)).

    Guarantees: finite numbers for finite float32 features, at any distance from training features; memory for
    some features at a time, never for all pairs.

    Args:
        train_features: (N, d), the adversary's features of known identities.
        train_identities: (N,) int64, any codes.
        test_features: (M, d).
        priors: "uniform", or "counts" of the training features.

    Yields:
        (m, c) float64, in the order of the test features, the columns in ascending order of the codes.
    """
    if priors not in PRIORS:
        raise ConfigError(f"priors={priors}: choose {' or '.join(PRIORS)}")
    # Outside of the generator, so that errors are raised at once.
    train, test, codes, counts = _whiten(train_features, train_identities, test_features)
    d = train.shape[1]
    variance = (4 / (counts.double() * (d + 2))) ** (2 / (d + 4))  # (c,)
    offset = -counts.double().log() - d / 2 * (2 * math.pi * variance).log()
    if priors == "counts":
        offset += (counts.double() / len(train)).log()
    # ln of a kernel is linear in (f, 1, |f|²): one product gives whole blocks of them.
    scale = variance[codes, None]
    kernels = torch.cat(
        [
            train / scale,
            offset[codes, None] - train.square().sum(1, keepdim=True) / (2 * scale),
            -0.5 / scale,
        ],
        dim=1,
    )  # (N, d + 2)
    points = torch.cat([test, torch.ones(len(test), 1), test.square().sum(1, keepdim=True)], dim=1)
    return _log_densities(points, kernels, codes, counts)


def nearest_neighbour_error(
    train_features: Tensor, train_identities: Tensor, test_features: Tensor, test_identities: Tensor
) -> float:
    """Return how often the nearest whitened training feature is of another identity. See judge_features."""
    train, test, _, _ = _whiten(train_features, train_identities, test_features)
    nearest = torch.cat([torch.cdist(part, train).argmin(1) for part in test.split(_ROWS)])
    return (train_identities[nearest] != test_identities).double().mean().item()


@dataclass(frozen=True)
class Superiority:
    """The additional privacy of one curve over another, at accuracies that both reach.

    True if it is more at every one of them (Osia et al. 2018, Definition 11), and there are several. `low`
    and `high` are these accuracies; `least`, `mean`, `most`: privacy of the one minus the other's there.
    """

    low: float
    high: float
    least: float
    mean: float
    most: float

    def __bool__(self) -> bool:
        return self.least > 0 and self.low < self.high


def superior(curve: Sequence[tuple[float, float]], other: Sequence[tuple[float, float]]) -> Superiority:
    """Measure the Acc-Priv superiority of an accuracy-privacy curve over another.

    The privacy of a curve at an accuracy is its best at this or a higher accuracy: nobody chooses a point
    that another beats in both, and measured accuracies need not fall as noise grows. Between points privacy
    is interpolated.

    `curve`, `other`: (accuracy, privacy) for each amount of noise, in any order.
    """
    one, two = _best_of_each(curve), _best_of_each(other)
    low, high = max(one[0, 0], two[0, 0]), min(one[-1, 0], two[-1, 0])
    if low > high:
        raise DataError(
            f"curves over accuracies from {one[0, 0]:g} to {one[-1, 0]:g} and from {two[0, 0]:g} to "
            f"{two[-1, 0]:g} do not overlap: sweep the noise further until they do"
        )
    knots = np.unique(np.concatenate([[low, high], one[:, 0], two[:, 0]]))
    knots = knots[(knots >= low) & (knots <= high)]
    # Linear between knots: extremes are at knots, and trapezoids are exact.
    gains = np.interp(knots, one[:, 0], one[:, 1]) - np.interp(knots, two[:, 0], two[:, 1])
    mean = np.trapezoid(gains, knots) / (high - low) if high > low else gains[0]
    return Superiority(float(low), float(high), float(gains.min()), float(mean), float(gains.max()))


def _best_of_each(curve: Sequence[tuple[float, float]]) -> np.ndarray:
    """Return (P, 2) ascending accuracies, each with the highest privacy at or above it."""
    points = np.array(curve, dtype=np.float64).reshape(-1, 2)
    if not len(points) or not np.isfinite(points).all():
        raise DataError("a curve needs at least one (accuracy, privacy) point, all of them finite")
    points = points[np.lexsort((-points[:, 1], points[:, 0]))]
    points = points[np.unique(points[:, 0], return_index=True)[1]]
    points[:, 1] = np.maximum.accumulate(points[::-1, 1])[::-1]
    return points


def _result(ranks: Ranks, identities: Tensor) -> LogRank:
    c, count = ranks.identities, len(ranks.above)
    shares = ranks.logs / math.log(c)
    lrp = shares.mean().item()
    people, rows = identities.unique(return_inverse=True)
    sums = torch.zeros(len(people), dtype=torch.float64).index_add_(0, rows, shares - lrp)
    scale = len(people) / (len(people) - 1) if len(people) > 1 else math.inf
    half = 1.96 * math.sqrt(scale * sums.square().sum().item()) / count if len(people) > 1 else math.inf
    # Variance over features, and over the ranks that equally likely identities share.
    variance = ranks.means.var(correction=0) + ((ranks.equal.double() ** 2 - 1) / 12).mean()
    return LogRank(
        lrp=lrp,
        low=max(0.0, lrp - half),
        high=min(1.0, lrp + half),
        guessing=guessing(c),
        mean=ranks.means.mean().item() / c,
        deviation=variance.sqrt().item() / c,
        beyond={k: ranks.beyond(k) for k in BEYOND},
        features=count,
        identities=c,
        beyond_a_tenth=ranks.beyond(c // 10),
    )


def _check_count(identities: int) -> None:
    if identities < 2:
        raise DataError(f"a rank among {identities} identities is meaningless: give features of at least 2")


def _whiten(train: Tensor, identities: Tensor, test: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Whiten features: images of one identity have the covariance I around their mean.

    Shrunk by the oracle approximating estimator, which needs no setting (Chen et al. 2010, Eq. 23).

    Returns:
        train (N, d) and test (M, d), float64; the column of each training identity (N,); their counts (c,).
    """
    if not len(test):
        raise DataError("no test features: give at least one")
    if train.ndim != 2 or test.ndim != 2 or train.shape[1] != test.shape[1] or not train.shape[1]:
        raise DataError(
            f"training features of {tuple(train.shape)} and test features of {tuple(test.shape)}: "
            "(N, d) and (M, d) are needed, of one d"
        )
    if identities.shape != train.shape[:1]:
        raise DataError(f"{len(train)} training features for {len(identities)} identities: one each")
    for name, features in (("training", train), ("test", test)):
        bad = int((~features.isfinite()).any(1).sum())
        if bad:
            raise DataError(f"{bad} {name} features have values that are not finite: leave them out")
    _, codes, counts = identities.unique(return_inverse=True, return_counts=True)
    _check_count(len(counts))
    single = int((counts < 2).sum())
    if single:
        raise DataError(
            f"{single} of {len(counts)} identities have a single training feature, and a density needs at "
            "least 2: leave these identities out, or give more images of them"
        )
    centre, scale = train.double().mean(0), train.double().std(0)
    scale = scale.where(scale > 0, 1.0)  # for constant dimensions
    train, test = (train.double() - centre) / scale, (test.double() - centre) / scale
    d, freedom = train.shape[1], len(train) - len(counts)
    means = torch.zeros(len(counts), d, dtype=torch.float64).index_add_(0, codes, train) / counts[:, None]
    around = train - means[codes]
    within = around.T @ around / freedom
    trace, squares = within.trace(), within.square().sum()
    excess = (freedom + 1 - 2 / d) * (squares - trace**2 / d)
    shrinkage = ((1 - 2 / d) * squares + trace**2) / excess if excess > 0 else torch.tensor(1.0)
    shrinkage = shrinkage.clamp(0, 1)
    shrunk = (1 - shrinkage) * within + (shrinkage * trace / d + _FLOOR) * torch.eye(d, dtype=torch.float64)
    factor = torch.linalg.cholesky(shrunk)
    train, test = (torch.linalg.solve_triangular(factor, each.T, upper=False).T for each in (train, test))
    return train.contiguous(), test.contiguous(), codes, counts


def _log_densities(points: Tensor, kernels: Tensor, codes: Tensor, counts: Tensor) -> Iterator[Tensor]:
    """Yield the ln of normalised sums of exp((M, D) points @ (N, D) kernels) over those of each identity.

    `codes`: (N,), the column of each kernel. `counts`: (c,), the number of kernels of each column.
    """
    kernels, starts = kernels[codes.argsort(stable=True)].T.contiguous(), (counts.cumsum(0) - counts).numpy()
    for part in points.split(max(1, min(_ROWS, _CELLS // len(codes)))):
        logs = (part @ kernels).numpy()  # (m, N), the kernels of an identity side by side
        highest = np.maximum.reduceat(logs, starts, axis=1)
        np.exp(np.subtract(logs, highest.repeat(counts, axis=1), out=logs), out=logs)
        found = torch.from_numpy(np.log(np.add.reduceat(logs, starts, axis=1)) + highest)
        yield found.sub_(found.logsumexp(1, keepdim=True))
