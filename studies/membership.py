"""Whether an enrolled photograph, or a person, is found in a gallery of prototypes; and what each defence takes off.

    python studies/unpack.py lfw ../shared/data runs/data/lfw
    python studies/membership.py              # minutes on one core; a cell that is there is not made again
    python studies/membership.py faces        # this world alone

The encoder is the start that the library ships, which saw drawn images alone, and the 32 leading directions of
photographs of other people, who are public. In each of 64 galleries every one of 100 people is enrolled by 1 or 5
of their 8 photographs; 8 of the galleries are attacked, each by LiRA with the 63 others. Whether a person is
enrolled at all is asked of galleries that have each with a chance of 1/2, by photographs that are never enrolled.

Noise is Gaussian, on means of embeddings about the public mean that are clipped to the median norm of the public
ones. Records: studies/results/membership/WORLD.json.
"""

import argparse
import json
import statistics
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import sfumato
from sfumato import data, images
from sfumato.attack.membership import (
    Galleries,
    accuracy,
    by_person,
    draw_galleries,
    judged,
    person_scores,
    photograph_scores,
    prototypes_of,
    ratios,
)
from sfumato.dp.private_mean import noisy_means, sigma_for
from sfumato.files import whole
from sfumato.learn.start import begin
from sfumato.networks import Conv4

RECORDS = Path(__file__).parent / "results" / "membership"
PEOPLE, PHOTOGRAPHS, KNOWN, GALLERIES, ATTACKED = 100, 8, 3, 64, 8
DIRECTIONS, STEP, DELTA, EPSILONS = 32, 0.1, 1e-5, (4.0, 16.0, 64.0)
SHOTS, SEEDS = (1, 5), (0, 1, 2)
WORLDS = ("faces", "lfw")


def embedded(world: str) -> tuple[Tensor, Tensor, Tensor]:
    """(N, D) embeddings of people, (N,) who they are, and (M, D) embeddings of public photographs of others."""
    if world == "faces":
        loaded = data.load("faces", identities=300, images_per_identity=PHOTOGRAPHS + KNOWN, size=64)
        codes = loaded.label("identity").codes
        public = codes >= 2 * PEOPLE  # every identity's photographs are alike in their number
    else:
        loaded = data.load("table:runs/data/lfw/attributes.csv", size=64)
        codes = loaded.label("identity").codes
        public = torch.zeros(len(codes), dtype=torch.bool)
        public[loaded.splits["distractors"]] = True
    encoder = Conv4(3)
    begin(encoder, "drawn")
    encoder.eval()
    with torch.no_grad():
        vectors = torch.cat([encoder(images.to_float(part)).flatten(1) for part in loaded.images.split(256)])
    middle = vectors[public].mean(0)
    directions = torch.linalg.svd(vectors[public] - middle, full_matrices=False).Vh[:DIRECTIONS]
    vectors = (vectors - middle) @ directions.T
    return vectors[~public], codes[~public], vectors[public]


def defences(shot: int, norm: float) -> dict[str, tuple[float | None, tuple[str, ...]]]:
    """Name -> the standard deviation of the noise, None for none, and the views that there are."""
    found: dict[str, tuple[float | None, tuple[str, ...]]] = {
        "none": (None, ("stored", "full", "rounded", "label"))
    }
    for epsilon in EPSILONS:
        sigma = sigma_for(shot, clipping_norm=norm, epsilon=epsilon, delta=DELTA)
        found[f"noise-{epsilon:g}"] = (sigma, ("stored", "full"))
    return found


def made(photographs: Tensor, drawn: Galleries, sigma: float | None, norm: float, seed: int) -> Tensor:
    """Prototypes (G, P, D), with or without noise."""
    if sigma is None:
        return prototypes_of(photographs, drawn)
    people = torch.arange(len(photographs))[None, :, None]
    draw = torch.Generator().manual_seed(1000 + seed)
    return noisy_means(photographs[people, drawn.shots], clipping_norm=norm, sigma=sigma, draw=draw)


def cell(photographs: list[Tensor], shot: int, norm: float) -> dict[str, Any]:
    """One number of shots: for each defence its accuracy, and for each question and view what is found."""
    begun = time.time()
    result: dict[str, Any] = {"shot": shot, "defences": {}}
    for name, (sigma, views) in defences(shot, norm).items():
        right: list[float] = []
        scores: dict[tuple[str, str], list[tuple[Tensor, Tensor]]] = {}
        for seed, own in zip(SEEDS, photographs, strict=True):
            draw = torch.Generator().manual_seed(seed)
            size = {"people": PEOPLE, "photographs": PHOTOGRAPHS}
            all_of_them = draw_galleries(**size, shot=shot, galleries=GALLERIES, draw=draw)
            prototypes = made(own, all_of_them, sigma, norm, seed)
            right.append(accuracy(own, prototypes, all_of_them))
            inside = all_of_them.photographs(PHOTOGRAPHS).flatten(1, 2)
            for view in views:
                said = photograph_scores(own, prototypes, all_of_them.enrolled, view=view, step=STEP)
                found = ratios(said.flatten(1, 2), inside, attacked=ATTACKED)
                scores.setdefault(("photograph", view), []).append(found)
            enrollable = PHOTOGRAPHS - KNOWN
            half = draw_galleries(
                people=PEOPLE, photographs=enrollable, shot=shot, galleries=GALLERIES, enrolled=0.5, draw=draw
            )
            prototypes = made(own[:, :enrollable], half, sigma, norm, seed + 100)
            for view in views:
                said = person_scores(own[:, enrollable:], prototypes, half.enrolled, view=view, step=STEP)
                found = ratios(said, half.enrolled, attacked=ATTACKED)
                scores.setdefault(("person", view), []).append(found)
        kept: dict[str, Any] = {"accuracy": statistics.mean(right), "sigma": sigma}
        for (question, view), found_of_seeds in scores.items():
            together, members = (torch.cat(part) for part in zip(*found_of_seeds, strict=True))
            judgement = asdict(judged(together, members))
            judgement["rates"] = {f"{rate:g}": values for rate, values in judgement["rates"].items()}
            kept.setdefault(question, {})[view] = judgement
        result["defences"][name] = kept
    return {**result, "seconds": round(time.time() - begun, 1)}


def main() -> None:
    """Make what is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("worlds", nargs="*", choices=[*WORLDS, []], help="default: all")
    worlds = parser.parse_args().worlds or WORLDS
    torch.set_num_threads(1)
    for world in worlds:
        path = RECORDS / f"{world}.json"
        record = json.loads(path.read_text()) if path.exists() else {"cells": {}}
        missing = [shot for shot in SHOTS if str(shot) not in record["cells"]]
        if not missing:
            continue
        vectors, codes, public = embedded(world)
        able = by_person(vectors, codes, photographs=PHOTOGRAPHS)
        photographs = [
            able[torch.randperm(len(able), generator=torch.Generator().manual_seed(seed))[:PEOPLE]]
            for seed in SEEDS
        ]
        norm = public.norm(dim=1).median().item()
        for shot in missing:
            record["cells"][str(shot)] = cell(photographs, shot, norm)
            record["settings"] = {
                **{"people": PEOPLE, "photographs": PHOTOGRAPHS, "known": KNOWN, "galleries": GALLERIES},
                **{"attacked": ATTACKED, "directions": DIRECTIONS, "step": STEP, "delta": DELTA},
                **{"epsilons": EPSILONS, "seeds": SEEDS, "clipping_norm": norm, "able": len(able)},
            }
            record["sfumato"] = sfumato.__version__
            with whole(path) as temporary:
                temporary.write_text(json.dumps(record, indent=1) + "\n")
            print(f"{world}: {shot} shots, {record['cells'][str(shot)]['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
