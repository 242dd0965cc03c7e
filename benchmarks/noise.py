"""Exact integer noise on one core, against OpenDP's exact samplers in the same run.

    python benchmarks/noise.py

Wanted: at least a million draws a second, from the operating system's entropy.
"""

import time
from collections.abc import Callable
from fractions import Fraction

import opendp.prelude as opendp
import torch

from sfumato.dp.mechanisms import fresh_noise

OURS, THEIRS = 1_000_000, 50_000  # draws
LEAST = 1.0  # million draws a second


def rate(draw: Callable[[], object], count: int) -> float:
    """Million draws a second, the best of three runs."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        draw()
        times.append(time.perf_counter() - began)
    return count / min(times) / 1e6


def main() -> None:
    torch.set_num_threads(1)
    opendp.enable_features("contrib")
    integers = opendp.vector_domain(opendp.atom_domain(T=int))
    noise = fresh_noise()
    print("scale (sigma)   distribution        ours   OpenDP  (million draws a second)")
    for scale in (1, 85, 765, 100_000):
        laplace = opendp.m.make_laplace(integers, opendp.l1_distance(T=int), scale=float(scale))
        gaussian = opendp.m.make_gaussian(integers, opendp.l2_distance(T=float), scale=float(scale))
        for name, draw, measure in (
            ("discrete Laplace", lambda s=scale: noise.laplace((OURS,), scale=Fraction(s)), laplace),
            (
                "discrete Gaussian",
                lambda s=scale: noise.discrete_gaussian((OURS,), variance=Fraction(s) ** 2),
                gaussian,
            ),
        ):
            ours = rate(draw, OURS)
            theirs = rate(lambda measure=measure: measure([0] * THEIRS), THEIRS)
            kept = "kept" if ours >= LEAST else "NOT kept"
            print(f"{scale:>13}   {name:17} {ours:6.1f}   {theirs:6.2f}  {ours / theirs:4.0f}x  {kept}")


if __name__ == "__main__":
    main()
