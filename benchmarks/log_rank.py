"""Log-rank privacy of many identities: time and memory, against a loop over identities.

    OMP_NUM_THREADS=2 python benchmarks/log_rank.py 0.1

The argument is the share of the full size: of 20,000 test features, 200,000 training features of 10
dimensions and 10,000 identities with 20 each, it takes that share of the test features and of the identities,
so that the work is its square. The loop evaluates the density of one identity after the other at all test
features, and needs all log-posteriors at once before it can rank. Wanted of the full size: at most two
minutes, and 2 GiB. The nearest neighbour is compared with scikit-learn's, by brute force on the same whitened
features.
"""

import math
import resource
import sys
from collections.abc import Iterator

import torch
from sklearn.neighbors import NearestNeighbors
from timing import Line, in_turn, show
from torch import Tensor

from sfumato.assess.log_rank import _whiten, density_log_posteriors, judge, nearest_neighbour_error

IDENTITIES, IMAGES, TESTS, DIMENSION = 10_000, 20, 20_000, 10
MOST_SECONDS, MOST_MEMORY = 120, 2048  # of the full size, and MiB


def world(share: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    identities, tests = int(share * IDENTITIES), int(share * TESTS)
    centres = torch.randn(identities, DIMENSION, generator=generator)
    codes = torch.arange(identities).repeat_interleave(IMAGES)
    train = centres[codes] + 0.5 * torch.randn(len(codes), DIMENSION, generator=generator)
    truth = torch.randint(0, identities, (tests,), generator=generator)
    test = centres[truth] + 0.5 * torch.randn(tests, DIMENSION, generator=generator)
    return train, codes, test, truth


def loop(train: Tensor, identities: Tensor, test: Tensor) -> Tensor:
    """The log-posteriors, but for a constant, one identity after the other."""
    train, test, codes, counts = _whiten(train, identities, test)
    columns = []
    for column in range(len(counts)):
        own = train[codes == column]
        variance = (4 / (len(own) * (DIMENSION + 2))) ** (2 / (DIMENSION + 4))
        squares = (test[:, None] - own[None]).square().sum(2)  # (M, n)
        columns.append((-squares / (2 * variance)).logsumexp(1) - math.log(len(own)))
    return torch.stack(columns, 1)


def peak() -> float:
    """The most memory this process ever had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def lines(short: bool, share: float = 0.1) -> Iterator[Line]:
    share = share / 2 if short else share
    train, identities, test, truth = world(share)
    full = share == 1
    memory = [peak()]

    def ours() -> None:
        judge(density_log_posteriors(train, identities, test), truth)
        memory.append(peak())

    def one_by_one() -> None:
        judge(loop(train, identities, test), truth)
        memory.append(peak())

    seconds = 4 if short else 20
    turns = in_turn(ours, one_by_one, seconds=seconds)
    name = f"log-rank of {len(test):,} features, {int(share * IDENTITIES):,} identities"
    limit = MOST_SECONDS if full else None
    yield turns.costs(name, against="a loop over identities", unit="s", scale=1, limit=limit)
    if not short:
        before, whole, naive = memory[:3]  # only the first call of each raises the peak
        more, theirs = max(whole - before, 1.0), max(naive - before, 1.0)
        yield Line(
            **{"name": f"{name}, memory", "ours": more, "other": theirs, "ratio": more / theirs},
            **{"unit": "MiB", "against": "a loop over identities", "lower": True},
            limit=MOST_MEMORY if full else None,
        )
    known, asked, _, _ = (each.numpy() for each in _whiten(train, identities, test))
    turns = in_turn(
        lambda: nearest_neighbour_error(train, identities, test, truth),
        lambda: NearestNeighbors(n_neighbors=1, algorithm="brute").fit(known).kneighbors(asked),
        seconds=seconds,
    )
    yield turns.costs(f"nearest neighbours, {name[12:]}", against="scikit-learn", unit="s", scale=1)


def main() -> None:
    share = float(sys.argv[1]) if len(sys.argv) > 1 else 0.1
    show(lines(False, share), f"{100 * share:g}% of the identities and of the test features")


if __name__ == "__main__":
    main()
