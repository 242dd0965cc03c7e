"""Exact noise against OpenDP's samplers, one core.

    python benchmarks/noise.py

Wanted: at least a million draws a second, from the operating system's entropy. OpenDP, which is slower by
far, makes fewer of them in its turn.
"""

from collections.abc import Iterator
from fractions import Fraction

import opendp.prelude as opendp
import torch
from timing import Line, in_turn, show

from sfumato.dp.mechanisms import fresh_noise

OURS, THEIRS = 1_000_000, 20_000  # draws
LEAST = 1.0  # million draws a second


def lines(short: bool) -> Iterator[Line]:
    torch.set_num_threads(1)
    opendp.enable_features("contrib")
    integers = opendp.vector_domain(opendp.atom_domain(T=int))
    noise = fresh_noise()
    for scale in (85,) if short else (1, 85, 765, 100_000):
        laplace = opendp.m.make_laplace(integers, opendp.l1_distance(T=int), scale=float(scale))
        gaussian = opendp.m.make_gaussian(integers, opendp.l2_distance(T=float), scale=float(scale))
        for name, draw, measure in (
            ("Laplace", lambda s=scale: noise.laplace((OURS,), scale=Fraction(s)), laplace),
            (
                "Gaussian",
                lambda s=scale: noise.discrete_gaussian((OURS,), variance=Fraction(s) ** 2),
                gaussian,
            ),
        ):
            turns = in_turn(draw, lambda measure=measure: measure([0] * THEIRS), seconds=2 if short else 8)
            yield turns.rates(
                f"discrete {name}, scale {scale}",
                against="OpenDP",
                count=OURS / 1e6,
                other_count=THEIRS / 1e6,
                unit="million draws a second",
                limit=LEAST,
            )


def main() -> None:
    torch.set_num_threads(1)
    show(lines(short=False))


if __name__ == "__main__":
    main()
