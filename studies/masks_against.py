"""Masks against telling who is shown, beside the same masks without that: on LFW photographs of 32 pixels.

    python studies/unpack.py lfw ../shared/data runs/data/lfw
    python studies/masks_against.py smile               # some 20 minutes on one quiet core; stopped, it goes on
    python studies/masks_against.py smile --seed 0      # a part
    python studies/masks_against.py smile --shape       # masks that are trained for their shape, in place of pixels
    python studies/masks_against.py smile --small       # settings too small to learn, to try it out

Of each seed a mask of 10% of the pixels with the paper's adversarial step, and one with an adversary who names people by
what is shown as well (`against`); with --shape masks whose shape alone is sent. Each meets a classifier that knows nothing
of it, trained on releases, and the strongest adversaries of studies/masks.py and of the values that travel. The weight was
chosen on drawn corners and on the first seed's validation people, and never on test people.

Records are studies/results/masks-against.jsonl.
"""

import argparse
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from masks import SEEDS, WORLDS, Part, about, seeds_of, study, train, training
from rows import RESULTS, Rows

from sfumato.learn.adversarial_mask import MaskConfig

WORLD, KEEP, WEIGHT = "lfw-32", 0.1, 3.0
RECORDS = Rows(RESULTS / "masks-against.jsonl")
LEARNERS = ["classifier-clean", "classifier-protected"]
ATTACKS = ["reidentify-adaptive", "reidentify-restored-adaptive", "reidentify-values"]


def masks(part: Part, *, shape: bool) -> Iterator[tuple[str, MaskConfig, Path]]:
    """Name, settings and artefact of the mask without and with the adversary."""
    base = replace(part.mask, keep=KEEP)
    if shape:
        base = replace(base, values="shape", adversarial=False)
    for name, weight in (("without", 0.0), ("against", WEIGHT)):
        stem = f"{'shape-' if shape else ''}{name}-{KEEP:g}"
        path = part.folder / "models" / part.name / f"{stem}.safetensors"
        yield name, replace(base, against=weight), path


def measure(part: Part, *, shape: bool) -> dict[str, Any]:
    """What both masks of one target and seed keep, and what they tell."""
    splits = part.load()
    made = list(masks(part, shape=shape))
    cards = {name: train(part, splits, config, path) for name, config, path in made}
    values = ",values=shape" if shape else ""
    named = {f"mask:artefact={path}{values}": name for name, _, path in made}
    settings = study(part, named, "-shape" if shape else "-against", learners=LEARNERS, attacks=ATTACKS)
    for name, card in cards.items():
        settings[name]["training"] = training(card)
    return about(part, splits) | {
        "released": "shape" if shape else "pixels",
        "mask": {name: asdict(config) for name, config, _ in made},
        "settings": settings,
    }


def main() -> None:
    """Measure what has no record yet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target", choices=list(WORLDS[WORLD].targets))
    parser.add_argument("--seed", type=int, choices=SEEDS, help="this seed alone")
    parser.add_argument("--shape", action="store_true", help="masks that are trained for their shape")
    parser.add_argument("--small", action="store_true", help="settings too small to learn")
    given = parser.parse_args()
    for seed in seeds_of(given):
        part = Part(WORLD, given.target, seed, given.small)
        row = f"{WORLD}-{given.target}{'-shape' if given.shape else ''}-{seed}"
        records = part.records(RECORDS)
        if row not in records:
            records[row] = measure(part, shape=given.shape)
            print(f"record: {row}", flush=True)


if __name__ == "__main__":
    main()
