"""Whether an enrolled photograph, or a person, is found in a gallery of prototypes; and what each defence takes off.

    python studies/unpack.py lfw ../shared/data runs/data/lfw
    python studies/membership.py              # minutes on one core; a cell that is there is not made again
    python studies/membership.py lfw          # this world alone
    python studies/membership.py codes --models OUT/models      # by a code of studies/accelerator/run.sh, see views.py

The encoder is the start that the library ships, which saw drawn images alone, and the 32 leading directions of
photographs of other people, who are public. In each of 64 galleries every one of 100 people is enrolled by 1 or 5
of their 8 photographs; 8 of the galleries are attacked, each by LiRA with the 63 others. Whether a person is
enrolled at all is asked of galleries that have each with a chance of 1/2, by photographs that are never enrolled.

Noise is Gaussian, on means of embeddings about the public mean that are clipped to the median norm of the public
ones. In the world of codes, 50 hats of drawn people are enrolled by codes of 12 bits, and devices have the table of all
answers; noise on the means comes before the table is made of them. Records: studies/results/membership.jsonl.
"""

import argparse
import statistics
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import views
from rows import RESULTS, Rows
from torch import Tensor

import sfumato
from sfumato import data, images
from sfumato.attack.membership import by_person, judge
from sfumato.audits.gallery import Embedded, GalleryAuditConfig, measure
from sfumato.dp.clipping import clip_rows
from sfumato.dp.mechanisms import seeded_noise
from sfumato.dp.private_mean import sigma_for
from sfumato.learn.start import begin
from sfumato.networks import Conv4
from sfumato.protect.code import Code

RECORDS = Rows(RESULTS / "membership.jsonl")
PEOPLE, HATS, OTHERS, PHOTOGRAPHS, KNOWN, GALLERIES, ATTACKED = 100, 50, 10, 8, 3, 64, 8
DIRECTIONS, STEP, DELTA, EPSILONS = 32, 0.1, 1e-5, (4.0, 16.0, 64.0)
SEEDS = (0, 1, 2)
WORLDS = {"faces": (1, 5), "lfw": (1, 5), "codes": (5,)}  # and the numbers of shots


def embedded(world: str, models: Path) -> tuple[Tensor, Tensor, Tensor]:
    """(N, D) embeddings of people, (N,) who they are, and (M, D) embeddings of public photographs of others."""
    if world == "codes":
        return codes_of_hats(models)
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


def codes_of_hats(models: Path) -> tuple[Tensor, Tensor, Tensor]:
    """(N, 12) of 1 and -1 of hats that no training saw, (N,) which hat, and (M, 12) of the same on other people."""
    artefact = models / views.pool.file_of(views.TRAINED["drawn faces"].format(0))
    pictures, worn = views.drawn_people()
    released = Code(str(artefact)).release(pictures.flatten(0, 1), seeded_noise(0))
    bits = released.vectors().float().unflatten(0, worn.shape)
    return bits[:-OTHERS].flatten(0, 1), worn[:-OTHERS].flatten(), bits[-OTHERS:].flatten(0, 1)


def add_noise(photographs: Tensor, norm: float, sigma: float, seed: int) -> Tensor:
    """Clip and noise each photograph as a shot, anew for each gallery: (P, n, D) -> (G, P, n, D)."""
    draw = torch.Generator().manual_seed(1000 + seed)
    clipped = clip_rows(photographs.flatten(0, 1), clipping_norm=norm).view(photographs.shape)
    return clipped + sigma * torch.randn(GALLERIES, *photographs.shape, dtype=clipped.dtype, generator=draw)


def cell(photographs: list[Tensor], shot: int, norm: float, *, table: bool) -> dict[str, Any]:
    """One number of shots: for each defence its accuracy, and for each question and view what is found."""
    begun = time.time()
    noises: dict[str, float | None] = {"none": None}
    for epsilon in EPSILONS:
        noises[f"noise-{epsilon:g}"] = sigma_for(shot, clipping_norm=norm, epsilon=epsilon, delta=DELTA)
    result: dict[str, Any] = {"shot": shot, "defences": {}}
    for name, sigma in noises.items():
        measured = [
            measure(
                Embedded(own, own[None] if sigma is None else add_noise(own, norm, sigma, seed)),
                GalleryAuditConfig(
                    shot=shot, known=KNOWN, galleries=GALLERIES, attacked=ATTACKED, step=STEP, seed=seed
                ),
                table=table,
            )
            for seed, own in zip(SEEDS, photographs, strict=True)
        ]
        kept: dict[str, Any] = {
            "accuracy": statistics.mean(each.accuracy for each in measured),
            "sigma": sigma,
        }
        for question, view in measured[0].found:
            of_seeds = [each.found[question, view] for each in measured]
            together, members = (torch.cat(part) for part in zip(*of_seeds, strict=True))
            judgement = asdict(judge(together, members))
            judgement["rates"] = {f"{rate:g}": values for rate, values in judgement["rates"].items()}
            kept.setdefault(question, {})[view] = judgement
        result["defences"][name] = kept
    return {**result, "seconds": round(time.time() - begun, 1)}


def main() -> None:
    """Make what is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("worlds", nargs="*", choices=[*WORLDS, []], help="default: all")
    parser.add_argument("--models", type=Path, default=Path("runs/models"), help="for codes")
    options = parser.parse_args()
    worlds, models = options.worlds or WORLDS, options.models
    torch.set_num_threads(1)
    for world in worlds:
        record = RECORDS.get(world, {"cells": {}})
        missing = [shot for shot in WORLDS[world] if str(shot) not in record["cells"]]
        if not missing:
            continue
        vectors, codes, public = embedded(world, models)
        able = by_person(vectors, codes, photographs=PHOTOGRAPHS)
        count = HATS if world == "codes" else PEOPLE
        photographs = [
            able[torch.randperm(len(able), generator=torch.Generator().manual_seed(seed))[:count]]
            for seed in SEEDS
        ]
        norm = public.norm(dim=1).median().item()
        for shot in missing:
            record["cells"][str(shot)] = cell(photographs, shot, norm, table=world == "codes")
            record["settings"] = {
                **{"people": count, "photographs": PHOTOGRAPHS, "known": KNOWN, "galleries": GALLERIES},
                **{"attacked": ATTACKED, "directions": DIRECTIONS, "step": STEP, "delta": DELTA},
                **{"epsilons": EPSILONS, "seeds": SEEDS, "clipping_norm": norm, "able": len(able)},
            }
            record["sfumato"] = sfumato.__version__
            RECORDS[world] = record
            print(f"{world}: {shot} shots, {record['cells'][str(shot)]['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
