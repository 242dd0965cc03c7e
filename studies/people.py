"""Do metrics order distortions as people do? (Geirhos et al. 2018)

    python studies/people.py                            # about five minutes on one idle core
    python studies/people.py --semsim FILE.safetensors  # with a SemSim that `sfumato.learn.semsim` trained
    python studies/people.py --small                    # a few images, to try it out: a minute

The SemSim of docs/results.md never saw Caltech-101. It was trained on what earlier and weaker proxies recognised of
reconstructions of CIFAR-10, LFW, FER2013 and Omniglot; after studies/reconstruction.py one of its judges is had by

    sfumato train semsim --judgements runs/reconstruction/lfw/closed-form.csv  (and of fer, omniglot) \\
        --out runs/people/semsim.safetensors --set network=lenet --set size=32 --set epochs=100 \\
        --set learning_rate=0.05 --set momentum=0.9

Photographs of the test classes of Caltech-101 are enlarged to the experiment's 224 pixels and distorted as those
were that people saw. Grey photographs are left out, as there. A metric compares each with its original in colour;
its mean over photographs stands for a condition, and the order of the conditions is compared with that by the
share that people recognised: within each experiment, and over all of them.

Enlarged photographs have no finer detail than their 84 pixels: the narrowest high passes leave less of them than
of the experiment's.

Records are studies/results/people.jsonl; a metric that has one is not measured again.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import distortions
import torch
from rows import RESULTS, Rows
from torch import Tensor
from torch.nn import functional

from sfumato import data, images
from sfumato.assess import agreement, people, similarity
from sfumato.assess.perceptual import Perceptual
from sfumato.assess.semsim import SemSim
from sfumato.episodes import seed_of

SHARED = Path("../shared/data")
RECORDS = Rows(RESULTS / "people.jsonl")
RUNS = Path("runs/people")
SEED = 0
COUNT = 50
BATCH = 20
COLOURFUL = 8  # grey levels between the channels of a photograph, on average; grey ones have fewer

Distort = Callable[[Tensor, str, torch.Generator], Tensor]
Measure = Callable[[Tensor, Tensor], Tensor]

# Experiment -> the distortion, by the words that the file has for its strength. `contrast` is left out beside
# `contrast-png`: its photographs were shown as JPEG.
EXPERIMENTS: dict[str, Distort] = {
    "lowpass": lambda them, word, _: distortions.low_pass(them, deviation=float(word)),
    "highpass": lambda them, word, _: distortions.high_pass(them, deviation=float(word)),
    "noise": lambda them, word, draws: distortions.uniform_noise(them, draws, width=float(word)),
    "contrast-png": lambda them, word, _: distortions.contrast(them, level=int(word.removeprefix("c")) / 100),
    "phase-scrambling": lambda them, word, draws: distortions.phase_noise(them, draws, width=float(word)),
    "rotation": lambda them, word, _: distortions.rotate(them, degrees=int(word)),
    "power-equalisation": lambda them, word, _: (
        distortions.equalise_power(them) if word == "pow" else distortions.grey(them)
    ),
}


def metrics(semsim: Path | None) -> dict[str, tuple[int, Measure]]:
    """Metric -> 1 where it rises as images are more alike, -1 where it falls, and its score of each pair."""
    squeezenet = Perceptual.of_squeezenet(SHARED / "weights" / "squeezenet1_0_imagenet_deepcomp.npz")
    found: dict[str, tuple[int, Measure]] = {
        "mse": (-1, similarity.mse),
        "psnr": (1, similarity.psnr),
        "ssim": (1, similarity.ssim),
        "squeezenet": (-1, squeezenet.distance),
    }
    if semsim is not None:
        found["semsim"] = (-1, SemSim.load(semsim).distance)
    return found


def photographs(count: int, split: str = "test") -> tuple[Tensor, str]:
    """Colourful ones, (count, 3, 224, 224) float, and the digest of what they were drawn from."""
    test = data.load("table:runs/data/caltech101/table.csv").split(split)
    spread = test.images.amax(1).float() - test.images.amin(1).float()  # (N, H, W)
    rows = (spread.mean((1, 2)) > COLOURFUL).nonzero().flatten()
    chosen = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(SEED))[:count]]
    side = (people.SIDE, people.SIDE)
    enlarged = functional.interpolate(
        images.to_float(test.images[chosen]), side, mode="bicubic", antialias=True
    )
    return enlarged.clamp(0, 1), test.digest


def distorted(originals: Tensor, known: people.Recognition) -> Iterator[tuple[people.Condition, Tensor]]:
    """Each condition, and photographs as people saw them in it: of the shape of the originals."""
    for place, (experiment, distort) in enumerate(EXPERIMENTS.items()):
        for number, one in enumerate(known.of(experiment)):
            draws = torch.Generator().manual_seed(seed_of(SEED, place, number))
            yield one, distort(originals, one.condition, draws).expand_as(originals)


def scores(originals: Tensor, known: people.Recognition, measure: Measure) -> list[dict[str, Any]]:
    """What each condition scores on average, beside what people recognised in it."""
    found = []
    for one, others in distorted(originals, known):
        pairs = zip(originals.split(BATCH), others.split(BATCH), strict=True)
        score = torch.cat([measure(*pair) for pair in pairs]).double().mean().item()
        found.append({**asdict(one), "score": score})
    return found


def agreements(found: list[dict[str, Any]], sign: int) -> dict[str, dict[str, Any]]:
    """Experiment, or "all" -> rank correlations with people, 1 where both order alike; of three conditions or more."""
    groups = {name: [one for one in found if one["experiment"] == name] for name in EXPERIMENTS} | {
        "all": found
    }
    return {
        name: asdict(
            agreement.rank_correlations(
                [sign * one["score"] for one in them],
                [one["correct"] / one["trials"] for one in them],
                generator=torch.Generator().manual_seed(SEED),
            )
        )
        for name, them in groups.items()
        if len(them) > 2
    }


def main() -> None:
    """Measure each metric that has no record yet."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("--semsim", type=Path, help="a trained SemSim, measured beside the others")
    asked.add_argument("--small", action="store_true", help="a few images, to try it out")
    options = asked.parse_args()
    count, records = (4, Rows(RUNS / "small.jsonl")) if options.small else (COUNT, RECORDS)
    known = people.read(SHARED / "human_recognition_geirhos2018.csv")
    originals, digest = photographs(count)
    for name, (sign, measure) in metrics(options.semsim).items():
        if name in records:
            continue
        started = time.perf_counter()
        found = scores(originals, known, measure)
        records[name] = {
            "metric": name,
            "sign": sign,
            "images": len(originals),
            "seed": SEED,
            "data": digest,
            "conditions": found,
            "agreement": agreements(found, sign),
            "seconds": round(time.perf_counter() - started, 1),
            "threads": torch.get_num_threads(),
        }
        print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
