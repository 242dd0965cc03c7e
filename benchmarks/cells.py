"""A query at the resolution of the release against the paper's pipeline at full resolution.

    python benchmarks/cells.py

The paper's denoiser (8 layers of 64 filters) and Conv-4 at 84x84 see cells enlarged to their pixels; the same
two networks, with fewer pools, see one value a cell. Wanted, for cells of 4 and more: at most a quarter of
the operations. The denoiser of pixelized images has nothing to take away, so that the encoder alone is timed
too.
"""

from dataclasses import replace

import torch
from episode import pairs

from sfumato.dp.mechanisms import seeded_noise
from sfumato.learn import few_shot
from sfumato.protect import parse

LIMIT = 0.25
SIDE, QUERIES = 84, 32


def compare(spec: str) -> None:
    """Multiply-adds, milliseconds and bytes of a query, both ways."""
    protection = parse(spec)
    paper = few_shot.untrained(3, replace(few_shot.FS_PIC_CELEBA, cell=1), [protection])
    originals = torch.randint(0, 256, (QUERIES, 3, SIDE, SIDE), dtype=torch.uint8)
    release = protection.release(originals, seeded_noise(0))
    shape = originals.shape[1:]
    for depth in (8, None):
        cells = few_shot.untrained(3, replace(few_shot.FS_PIC_CELEBA, denoiser_depth=depth), [protection])
        operations, limit = few_shot.operations(cells, shape), few_shot.operations(paper, shape)
        ours, theirs, ratio = pairs(
            lambda model=cells: model.embed(release.images()), lambda: paper.embed(release.images())
        )
        verdict = "kept" if operations <= LIMIT * limit else "NOT kept"
        networks = "denoiser and encoder" if depth else "encoder alone"
        print(
            f"{spec:24s} {networks:20s} {operations / 1e6:7.1f} of {limit / 1e6:6.1f} million multiply-adds: "
            f"{operations / limit:5.3f} (at most {LIMIT}: {verdict}), {ours / QUERIES:5.2f} of "
            f"{theirs / QUERIES:5.2f} ms: {ratio:5.3f}, {release.bytes_per_image:,} of "
            f"{originals[0].numel():,} bytes"
        )


def main() -> None:
    print(f"{QUERIES} queries at once of {SIDE}x{SIDE}x3, {torch.get_num_threads()} threads")
    for spec in ("dp-pix:cell=2,epsilon=3", "dp-pix:cell=4,epsilon=3", "pixelize:cell=4", "pixelize:cell=8"):
        compare(spec)


if __name__ == "__main__":
    main()
