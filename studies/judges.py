"""Which recognisers may judge reconstructions: how often each is right on clean images, as they are attacked.

    python studies/unpack.py DATA ../shared/data runs/data/DATA    # cifar10, caltech101, lfw, fer, omniglot
    python studies/judges.py            # half an hour on one core: five recognisers are trained on each data set
    python studies/judges.py --classes  # which classes of objects are told apart, by training images alone
    python studies/judges.py --small    # a few images, to try it out

The data sets, classes and splits are those of studies/reconstruction.py, at its 32x32 pixels. Beside the five
recognisers that are trained on each data set stand those of public weights (admitted_judges.py): SqueezeNet's
features and the nearest class mean, or a linear layer on them; MobileFaceNet; and the emotion network. A judge is right
on 85% or more of test images, and a data set needs two. Nobody tells all the classes of CIFAR-10 and Caltech-101
apart at this size, so that a victim's reconstruction is looked for among those classes that SqueezeNet tells apart on
training images: the one that is confused most is left out, one after the other.

The threshold of MobileFaceNet is the one that is most often right on pairs of TRAINING images. The record is
studies/results/judges.jsonl; studies/reconstruction.py reads it.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import admitted_judges as judges
import numpy as np
import torch
from admitted_judges import Ability
from reconstructed import recognisers
from reconstructed.recognisers import few, pairs
from reconstructed.sources import RUNS, SEED, SIZE, SOURCES, named, parts
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from sfumato.data import LabelledImages
from sfumato.images import to_float
from sfumato.networks.encoders.pretrained import open_pretrained, parse_pretrained
from sfumato.study.records import write_rows

LOOKS = (64, 128)  # sides at which SqueezeNet looks


def from_weights(name: str, train: LabelledImages, test: LabelledImages) -> Iterator[Ability]:
    """The proxies of public weights for one data set."""
    for side in LOOKS:
        proxy = recognisers.centroids(train, side)
        yield replace(
            judges.ability(proxy, test.images, named(test)), name=f"SqueezeNet centroids at {side} pixels"
        )
    if name == "fer":
        proxy = recognisers.emotion_network()
        yield replace(judges.ability(proxy, test.images, named(test)), name="emotion network")
    if name == "lfw":
        yield judges.ability_on_pairs(recognisers.mobile_face_net(train), *pairs(test))


def told_apart(name: str) -> Iterator[tuple[float, list[str]]]:
    """All classes of a data set's training images, and then one less each time: how many images are named rightly.

    By logistic regression on SqueezeNet's features, on the quarter of the images that it was not fitted to, each quarter in turn.
    """
    train, _ = parts(name, every_class=True)
    encoder = open_pretrained(parse_pretrained(f"squeeze-net:{recognisers.SQUEEZENET},size=128"))
    with torch.no_grad():
        seen = torch.cat([encoder.raw(to_float(part)) for part in train.images.split(128)])
    features, true = ((seen - seen.mean(0)) / seen.std(0).clamp(min=1e-6)).numpy(), np.array(named(train))
    left = sorted(set(true.tolist()))
    while len(left) > 1:
        rows = np.isin(true, left)
        truth = true[rows]
        said = cross_val_predict(
            LogisticRegression(C=0.003, max_iter=300), features[rows], truth, cv=StratifiedKFold(4)
        )
        yield float((said == truth).mean()), list(left)
        wrong = said != truth
        left.remove(max(left, key=lambda each: (wrong & ((truth == each) | (said == each))).sum()))


def main() -> None:
    """Test all, and write the record."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("--classes", action="store_true", help="which classes of objects are told apart")
    asked.add_argument("--small", action="store_true", help="a few images, to try it out")
    options = asked.parse_args()
    if options.classes:
        for name in recognisers.OF_OBJECTS:
            for share, left in told_apart(name):
                print(f"{name}: {100 * share:.1f}% of {len(left)}: {', '.join(left)}", flush=True)
        return
    started = time.process_time()
    tests: dict[str, list[Ability]] = {}
    for name in SOURCES:
        tests[name] = [recognisers.ability_of(name, each, RUNS) for each in recognisers.trained_on(name)]
        train, test = (few(each, 40 if options.small else 2000) for each in parts(name))
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
        "seconds": round(time.process_time() - started, 1),
    }
    write_rows(Path("runs/judges/small.jsonl") if options.small else recognisers.JUDGES, [record])
    for line in admitted.left_out:
        print(line)


if __name__ == "__main__":
    main()
