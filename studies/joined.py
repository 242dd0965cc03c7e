"""Two adversaries for little: who sees the releases of two services, and who sees nothing but the sizes of a folder's PNG files.

    python studies/joined.py OUT [--of studies/lfw-hats.yaml] "pixelize:cell=8 + code:bits=16" "pixelize:cell=8 + pixelize:cell=8"
    python studies/joined.py OUT [--of studies/lfw-hats.yaml] sizes

Twice the same protection is one setting at two services, each with its own noise and its own training. Adversaries are those of
`reidentify-values`; each half of the people chooses, of both services' together and of each service's own, whose scores are added
for the other half. By sizes people are named by PLDA of their logarithm, as files were encoded and as the device fills them.
OUT/joined.jsonl has a line for each pair, or each protection of images. Intervals are over people.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sfumato import images
from sfumato.attack import plda
from sfumato.attack.ensemble import GALLERY, OTHERS, by_values, choose, standardise
from sfumato.attack.reidentify import Guesses
from sfumato.device.jobs.worker import fill
from sfumato.study import grid
from sfumato.study.cells import Cell
from sfumato.study.lab.lab import Lab, Progress
from sfumato.study.measure.attack import readings, score
from sfumato.study.run import prepare
from sfumato.study.vocabulary import IMAGES, release_kind

LEARNED = 4_000  # releases of others whose sizes are looked at


def join(lab: Lab, first: str, second: str, seed: int) -> dict[str, Any]:
    """What adversaries name by both services, and by each alone: scores as `measure.results.Score` types them."""
    gallery, truth = lab.adversaries.gallery(Cell("attack", first, seed))
    guesses: dict[str, dict[str, Any]] = {}
    for words, spec, own in (("first", first, seed), ("second", second, seed + (first == second))):
        service = lab.adversaries.gallery(Cell("attack", spec, own))[0]
        # The same photographs of the same people, whatever the seed of the service is.
        seen = replace(gallery, release=service.release, noisy=service.noisy, images=service.images)
        made = by_values(seen, readings, copies=lab.config.adversary.copies).guesses
        guesses[words] = {
            f"{words}: {each.classifier}": replace(each, similarities=standardise(each.similarities))
            for each in made
        }
    guesses = {"both": guesses["first"] | guesses["second"], **guesses}
    return {words: score(choose(of, truth)[0], truth) for words, of in guesses.items()}


def by_sizes(lab: Lab, spec: str, seed: int) -> dict[str, Any]:
    """What the sizes of files name, and how many sizes there are."""
    gallery, truth = lab.adversaries.gallery(Cell("attack", spec, seed))
    rows = torch.randperm(len(gallery.others), generator=torch.Generator().manual_seed(0))[:LEARNED]
    learned, known = (
        gallery.release(gallery.others[rows], OTHERS, 0),
        gallery.release(gallery.known, GALLERY, 0),
    )
    parts = [[images.encode(image) for image in each.images()] for each in (learned, known, gallery.released)]
    found: dict[str, Any] = {}
    ways: dict[str, Callable[[bytes], bytes]] = {"encoded": bytes, "filled": fill}
    for words, way in ways.items():
        others, known, asked = (np.log([[len(way(png))] for png in part]) for part in parts)
        found[words] = {"sizes": len(np.unique(asked))}
        if plda.trainable(others[None], gallery.of_others[rows]):  # else one size: nothing to learn
            model = plda.train(others[None], gallery.of_others[rows])
            made = Guesses(
                "plda", *map(torch.from_numpy, model.log_ratios(known[None], gallery.names, asked))
            )
            found[words] |= score(made, truth)
    return found


def main() -> None:
    """Measure each pair, or the sizes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="the folder of the record, and of trained protections")
    parser.add_argument(
        "what", nargs="+", help="sizes, or pairs of protections of the study, joined by ' + '"
    )
    parser.add_argument(
        "--of", type=Path, default=Path(__file__).with_name("lfw-hats.yaml"), help="the study"
    )
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    prepared = prepare(grid.load(given.of), fit=True)
    lab = Lab(prepared.config, prepared.data[0], given.out, Progress(note=print))
    shown = [spec for spec in prepared.config.specs[1:] if release_kind(spec) in IMAGES]
    for what in shown if given.what == ["sizes"] else given.what:
        for seed in prepared.config.seeds:
            made = join(lab, *what.split(" + "), seed) if " + " in what else by_sizes(lab, what, seed)
            with (given.out / "joined.jsonl").open("a") as opened:
                opened.write(json.dumps({"of": what, "seed": seed, "result": made}) + "\n")


if __name__ == "__main__":
    main()
