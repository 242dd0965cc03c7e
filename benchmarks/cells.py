"""A query at the resolution of the release against the paper's pipeline at full resolution.

    python benchmarks/cells.py

The paper's denoiser (8 layers of 64 filters) and Conv-4 at 84x84 see cells enlarged to their pixels; the same
two networks, with fewer pools, see one value a cell. Wanted, for cells of 4 and more: at most a quarter of
the multiply-adds. The denoiser of pixelized images has nothing to take away, so that the encoder alone is
timed too.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from timing import Line, in_turn, show

from sfumato.dp.mechanisms import seeded_noise
from sfumato.learn import few_shot
from sfumato.protect import parse

LIMIT = 0.25
SIDE, QUERIES = 84, 32
SPECS = ("dp-pix:cell=2,epsilon=3", "dp-pix:cell=4,epsilon=3", "pixelize:cell=4", "pixelize:cell=8")


def compare(spec: str, depth: int | None, seconds: float) -> Iterator[Line]:
    """Multiply-adds and milliseconds of a query, both ways."""
    protection = parse(spec)
    paper = few_shot.make_untrained(3, replace(few_shot.FS_PIC_CELEBA, cell=1), protection)
    cells = few_shot.make_untrained(3, replace(few_shot.FS_PIC_CELEBA, denoiser_depth=depth), protection)
    originals = torch.randint(0, 256, (QUERIES, 3, SIDE, SIDE), dtype=torch.uint8)
    release = protection.release(originals, seeded_noise(0))
    name = f"{spec}, {'denoiser and encoder' if depth else 'encoder'}"
    ours, theirs = (few_shot.operations(model, originals.shape[1:]) / 1e6 for model in (cells, paper))
    yield Line(
        **{"name": f"{name}, operations", "ours": ours, "other": theirs, "ratio": ours / theirs},
        **{"unit": "million multiply-adds", "against": "the paper's, of pixels", "lower": True},
        bound=LIMIT,
    )
    turns = in_turn(
        lambda: cells.embed(release.images()), lambda: paper.embed(release.images()), seconds=seconds
    )
    yield turns.costs(name, against="the paper's, of pixels", unit="ms a query", scale=1e3 / QUERIES)


def lines(short: bool) -> Iterator[Line]:
    for spec in SPECS[1:2] if short else SPECS:
        for depth in (8,) if short else (8, None):
            yield from compare(spec, depth, seconds=3 if short else 8)


def main() -> None:
    show(lines(short=False), f"{QUERIES} queries at once of {SIDE}x{SIDE}x3")


if __name__ == "__main__":
    main()
