"""Which recognisers may judge reconstructions: how often each is right on clean images, as they are attacked.

    python studies/reconstruction.py    # first: the proxies that were trained for it; their accuracies are read
    python studies/judges.py            # minutes on one core
    python studies/judges.py --small    # a few images, to try it out

The data sets, classes and splits are those of studies/reconstruction.py, at its 32x32 pixels. Beside the five proxies
that it trained on each data set stand proxies made of public weights (sfumato.annotate.judges): SqueezeNet's features
and the nearest class mean, MobileFaceNet, and the emotion network. A judge is right on 85% or more of test images, and
a data set needs two.

Beside them stands how far the trained proxies, by whom that study ranks victims, agree with themselves: split-half
reliability of the ranking, over images.

The threshold of MobileFaceNet is the one that is most often right on pairs of TRAINING images. The record is
studies/results/judges.json.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from reconstruction import ATTACKS, RECORDS, SEED, SIZE, SOURCES, parts
from torch import Tensor
from torch.nn import functional

from sfumato.annotate import judges
from sfumato.annotate.judges import Ability
from sfumato.annotate.proxies import by_embedding
from sfumato.assess.agreement import split_half_reliability
from sfumato.data import LabelledImages
from sfumato.errors import DataError
from sfumato.study.records import write_json

SHARED = Path("../shared/data")
WEIGHTS = SHARED / "weights"
SQUEEZENET = WEIGHTS / "squeezenet1_0_imagenet_deepcomp.npz"
EMOTION = WEIGHTS / "emotion_mini_xception_fer2013.safetensors"
FACES = WEIGHTS / "mobilefacenet_casia_112x96.safetensors"
RECORD = RECORDS.parent / "judges.json"
LOOKS = (64, 128)  # sides at which SqueezeNet looks
# What the classes of FER+ are called that studies/reconstruction.py tells apart.
EXPRESSIONS = {"happy": "happiness", "neutral": "neutral", "surprise": "surprise"}
THRESHOLDS = [each / 50 for each in range(-10, 50)]


def named(images: LabelledImages) -> list[str]:
    """The class of each."""
    label = images.label("class")
    return [label.names[code] for code in label.codes.tolist()]


def few(images: LabelledImages, most: int) -> LabelledImages:
    """So many of them at most, drawn with a seed."""
    chosen = torch.randperm(len(images), generator=torch.Generator().manual_seed(SEED))[:most]
    return images.rows(chosen.sort().values)


def pairs(images: LabelledImages) -> tuple[Tensor, Tensor, Tensor]:
    """Each image with another of its class, and with one of another class: (first, second, same)."""
    codes, generator = images.label("class").codes, torch.Generator().manual_seed(SEED)
    first, second, same = [], [], []
    for row, code in enumerate(codes.tolist()):
        for alike in (True, False):
            others = ((codes == code) == alike).nonzero().flatten()
            others = others[others != row]
            if len(others):
                first.append(row)
                second.append(int(others[torch.randint(len(others), (1,), generator=generator)]))
                same.append(alike)
    return images.images[first], images.images[second], torch.tensor(same)


def by_mobile_face_net(train: LabelledImages, test: LabelledImages) -> Ability:
    """One person or two, at the threshold that suits training pairs."""
    with np.load(SHARED / "lfw_faces_84.npz") as packed:
        landmarks = torch.from_numpy(packed["landmarks"].mean(0) / 84).float()
    embed = judges.face_embedding(FACES, landmarks=landmarks)
    first, second, same = pairs(few(train, 150))
    cosines = functional.cosine_similarity(embed(first), embed(second))
    best = max(THRESHOLDS, key=lambda each: int(((cosines >= each) == same).sum()))
    proxy = by_embedding(f"MobileFaceNet from a cosine of {best:g}", embed, threshold=best)
    return judges.ability_on_pairs(proxy, *pairs(test))


def from_weights(name: str, train: LabelledImages, test: LabelledImages) -> Iterator[Ability]:
    """The proxies of public weights for one data set."""
    for side in LOOKS:
        proxy = judges.by_centroids(SQUEEZENET, train.images, named(train), size=side)
        yield replace(
            judges.ability(proxy, test.images, named(test)), name=f"SqueezeNet centroids at {side} pixels"
        )
    if name == "fer":
        proxy = judges.by_emotion(EMOTION, threshold=0.0, names=EXPRESSIONS.get)
        yield replace(judges.ability(proxy, test.images, named(test)), name="emotion network")
    if name == "lfw":
        yield by_mobile_face_net(train, test)


def trained(name: str, test: LabelledImages) -> list[Ability]:
    """Those that studies/reconstruction.py trained, by its record."""
    known = json.loads((RECORDS / f"{name}.json").read_text())["proxies"]
    return [
        Ability(f"{proxy}, trained", round(found["accuracy"] * len(test)), len(test))
        for proxy, found in known.items()
    ]


def reliability(name: str) -> dict[str, Any]:
    """Of the ranking of victims by what the trained proxies recognised, images in two halves; attack -> figures.

    None where all halves of the images rank no victim: as much is recognised of each.
    """
    found: dict[str, Any] = {}
    for attack in ATTACKS:
        victims = json.loads((RECORDS / f"{name}-{attack}.json").read_text())["victims"]
        recognised = torch.tensor([victim["who"] for victim in victims.values()]).float()
        try:
            draws = torch.Generator().manual_seed(SEED)
            found[attack] = asdict(split_half_reliability(recognised, generator=draws))
        except DataError:
            found[attack] = None
    return found


def main() -> None:
    """Test all, and write the record."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("--small", action="store_true", help="a few images, to try it out")
    options = asked.parse_args()
    started = time.process_time()
    tests: dict[str, list[Ability]] = {}
    for name in SOURCES:
        train, test = parts(name)
        tests[name] = trained(name, test)
        train, test = (few(each, 40 if options.small else 2000) for each in (train, test))
        for found in from_weights(name, train, test):
            tests[name].append(found)
            print(f"{name}: {found.name} {100 * found.share:.1f}% of {found.trials}", flush=True)
    admitted = judges.admit(tests)
    record: dict[str, Any] = {
        "size": SIZE,
        "seed": SEED,
        "least_right": judges.LEAST_RIGHT,
        "least_judges": judges.LEAST_JUDGES,
        "tests": {name: [asdict(each) for each in found] for name, found in tests.items()},
        "judges": admitted.judges,
        "left_out": admitted.left_out,
        "reliability": {name: reliability(name) for name in SOURCES},
        "seconds": round(time.process_time() - started, 1),
    }
    write_json(Path("runs/judges/small.json") if options.small else RECORD, record)
    for line in admitted.left_out:
        print(line)


if __name__ == "__main__":
    main()
