"""Whether measures of reconstructions agree with those who look at them: judges here, not people (paper: SemSim).

    python studies/unpack.py DATA ../shared/data runs/data/DATA    # cifar10, caltech101, lfw, fer, omniglot
    python studies/judges.py                      # once: who may judge; the record is committed
    python studies/reconstruction.py              # all parts below, in order: half an hour on one idle core; it resumes
    python studies/reconstruction.py lfw          # one data set: judges, victims, attacks, measures that are not learned
    python studies/reconstruction.py learned      # SemSim as published and by stages, each data set left out in turn
    python studies/reconstruction.py variants     # SemSim's margin (Fig. 9), loss and backbone, with equal epochs
    python studies/reconstruction.py tables       # correlations (Tables 1 and 2, Fig. 3) and pictures
    python studies/reconstruction.py --small      # settings too small to mean anything, to try it out

Data sets are those whose judges pass the rule of studies/judges.py. Each of them has victims that leak from nothing to
everything: with transformed images, noise, pruning, rounding, larger batches and coarser images, untrained and trained
until flat, and with attacks that stop early; 16 images each. Images are read in closed form from linear layers (Table 1),
or searched for, by iDLG and Inverting Gradients (Table 2). A reconstruction is recognised where more than half of the judges name it rightly.

Measures that are learned see the judgements of the other data sets alone, read in closed form alone, and choose
their settings there: each of those left out in turn.

Records are studies/results/reconstruction.jsonl; images, models and campaigns lie under runs/reconstruction.
"""

import argparse
import itertools
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from reconstructed import judged, learned, pictures, recognisers, tables
from reconstructed.sources import RECORDS, RUNS
from reconstructed.victims import ATTACKS, VICTIMS
from rows import Rows, make

IMAGES, FEW = 16, 4  # originals of each victim, and to try it out
TEST_SET = "lfw"  # of variants
PICTURES = Path(__file__).parents[1] / "docs" / "images"


def learn(names: Sequence[str], records: Rows, runs: Path) -> None:
    """Both learned measures, for each data set and seed."""
    for name, seed in itertools.product(names, learned.SEEDS):
        known = partial(learned.judgements, [other for other in names if other != name], records, runs)
        semsim, stages = (f"{kind}-{name}-{seed}" for kind in ("semsim", "stages"))
        for row in (semsim, stages):
            if row in records and not learned.complete(records[row], name, records):
                del records[row]
        make(
            records,
            semsim,
            lambda name=name, seed=seed, known=known: learned.published(  # type: ignore[misc]
                known(), learned.PUBLISHED, name, seed, records, runs
            ),
        )
        make(
            records,
            stages,
            partial(learned.by_stages, name, names, seed, records, runs),
        )


def vary(names: Sequence[str], records: Rows, runs: Path) -> None:
    """SemSim as published with one thing changed at a time, one seed, tested on one data set."""
    known = learned.judgements([name for name in names if name != TEST_SET], records, runs)
    for variant, (some, config) in learned.variants(known).items():
        make(
            records,
            f"variant-{variant}",
            partial(learned.published, some, config, TEST_SET, 0, records, runs),
        )


def main() -> None:
    """Do the parts that are asked for."""
    sets = tuple(recognisers.admitted())
    names = [*sets, "learned", "variants", "tables"]
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(names)}; none for all")
    asked.add_argument("--small", action="store_true", help="settings too small to mean anything")
    options = asked.parse_args()
    unknown = sorted(set(options.parts) - set(names))
    if unknown:
        asked.error(f"no part is called {unknown[0]!r}: {', '.join(names)}")
    records, runs, folder = RECORDS, RUNS, PICTURES
    if options.small:
        runs = RUNS / "small"
        records, folder = Rows(runs / "records.jsonl"), runs / "pictures"
        for attack, victims in VICTIMS.items():
            VICTIMS[attack] = victims[:4]
    parts = options.parts or names
    for attack, part in itertools.product(ATTACKS, [each for each in parts if each in sets]):
        judged.run(part, attack, FEW if options.small else IMAGES, records, runs)
    for part in parts:
        if part in sets:
            continue
        if part == "learned":
            learn(sets, records, runs)
        elif part == "variants":
            vary(sets, records, runs)
        else:
            records.pop("agreement", None)
            make(records, "agreement", partial(tables.correlations, sets, records))
            pictures.draw(sets, records, runs, folder)


if __name__ == "__main__":
    main()
