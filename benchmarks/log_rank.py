"""Log-rank privacy of many identities: time and memory, against a loop over identities.

    OMP_NUM_THREADS=2 python benchmarks/log_rank.py 0.1

The argument is the share of the full size: of 20,000 test features, 200,000 training features of 10
dimensions and 10,000 identities with 20 each, it takes that share of the test features and of the identities,
so that the work is its square. The loop evaluates the density of one identity after the other at all test
features, and needs all log-posteriors at once before it can rank.
"""

import math
import resource
import sys
import time

import torch
from torch import Tensor

from sfumato.assess.log_rank import _whitened, density_log_posteriors, judge, nearest_neighbour_error

IDENTITIES, IMAGES, TESTS, DIMENSION = 10_000, 20, 20_000, 10


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
    train, test, codes, counts = _whitened(train, identities, test)
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


def main() -> None:
    share = float(sys.argv[1]) if len(sys.argv) > 1 else 0.1
    work = share**2
    print(f"{torch.get_num_threads()} threads, {100 * share:g}% of the identities and of the test features")
    train, identities, test, truth = world(share)
    before = peak()

    start = time.perf_counter()
    result = judge(density_log_posteriors(train, identities, test), truth)
    density = time.perf_counter() - start
    start = time.perf_counter()
    nearest_neighbour_error(train, identities, test, truth)
    nearest = time.perf_counter() - start
    print(result)
    print(
        f"density {density:.2f} s, nearest neighbour {nearest:.2f} s, {peak() - before:.0f} MiB more than "
        f"before; at full size about {density / work:.0f} s and {nearest / work:.0f} s"
    )

    before = peak()
    start = time.perf_counter()
    other = judge(loop(train, identities, test), truth)
    slow = time.perf_counter() - start
    print(
        f"the loop: {slow:.2f} s and {peak() - before:.0f} MiB more; at full size about {slow / work:.0f} s "
        f"and {2 * 8 * IDENTITIES * TESTS / 2**20:.0f} MiB, for log-posteriors and their copy; "
        f"log-rank privacy differs by {abs(other.lrp - result.lrp):.1e}"
    )


if __name__ == "__main__":
    main()
