"""Classifiers of scikit-learn, with settings that nobody tuned, on the values that travelled, beside our adversaries.

    python studies/outsiders.py studies/faces-expression.yaml
    python studies/outsiders.py studies/lfw-smile.yaml --only pixelize gaussian

Who doubts our adversaries would try these first. They have the same releases of the same people as the adversaries on
values of that study (`reidentify-values`): a gallery of known people, probes to name, and training people from whom a
discriminant analysis learns what differs between people. Values are read as they are, or where they are many as means over
small squares, and as means over 4x4.
A protection that is trained is read from the study's run, or trained there.

Records are studies/results/outsiders.jsonl; protections that have no figure yet are added.
"""

import argparse
import itertools
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rows import RESULTS, Rows
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from torch import Tensor
from torch.nn import functional

import sfumato
from sfumato.base.proportions import over_people
from sfumato.data import load
from sfumato.study import grid
from sfumato.study.cells import Cell
from sfumato.study.lab.lab import Lab
from sfumato.study.lab.progress import Progress
from sfumato.study.lab.streams import GALLERY, OTHERS, PROBES
from sfumato.study.parts import kinds
from sfumato.study.parts.attacks.scores import hits

ROOT = Path(__file__).parents[1]
RECORDS = Rows(RESULTS / "outsiders.jsonl")
NUMBERS = 1_024  # of an image at most; of larger ones means over squares
SQUARE = 4  # whose means are looked at as well
LEARNED = 20_000  # releases of training people at most
DIMENSIONS = (10, 30, 80)  # of what a discriminant analysis keeps

Values = NDArray[np.float64]


def classifiers(seed: int) -> dict[str, Any]:
    """Those that learn from the gallery alone."""
    trees = {"n_estimators": 500, "random_state": seed}
    network = MLPClassifier((256,), alpha=0.01, max_iter=300, random_state=seed)
    return {
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
        "logistic regression, C=0.01": make_pipeline(
            StandardScaler(), LogisticRegression(C=0.01, max_iter=500)
        ),
        "discriminant analysis": make_pipeline(
            StandardScaler(), LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
        ),
        "random forest": RandomForestClassifier(**trees),
        "extremely random trees": ExtraTreesClassifier(**trees),
        "naive Bayes": GaussianNB(var_smoothing=0.1),
        "5 nearest": make_pipeline(StandardScaler(), KNeighborsClassifier(5, weights="distance")),
        "network of one layer": make_pipeline(StandardScaler(), network),
        "SVM": make_pipeline(StandardScaler(), SVC(C=10)),
    }


def named(
    known: Values, names: Values, asked: Values, learned: Values, others: Values, seed: int
) -> Iterator[tuple[str, Values]]:
    """What each classifier is called, and whom it names.

    Args:
        known: (n, D) values of the gallery.
        names: (n,) who they are.
        asked: (m, D) values of the probes.
        learned: (k, D) values of training people, who are others than these.
        others: (k,) who they are.
        seed: of forests and networks.
    """
    for name, classifier in classifiers(seed).items():
        yield name, classifier.fit(known, names).predict(asked)
    most = min(known.shape[1], len(np.unique(others)) - 1)
    for kept in sorted({min(dimensions, most) for dimensions in DIMENSIONS}):
        analysis = LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto", n_components=kept)
        reading = make_pipeline(StandardScaler(), analysis).fit(learned, others)
        near, far = reading.transform(known), reading.transform(asked)
        for name, classifier in {"nearest mean": NearestCentroid(), "SVM": SVC(C=10)}.items():
            yield f"{name} in {kept} discriminants", classifier.fit(near, names).predict(far)


def readings(released: Any) -> dict[str, Tensor]:
    """(N, D) what travelled as numbers: as it is or by means over the smallest squares, and over 4x4 of it."""
    values = getattr(released, "values", None)
    if values is None or values.dim() < 4:
        return {"": released.vectors()}
    planes = values.float() / 255
    if released.shown is not None:
        planes = torch.cat([planes, released.shown.float()], 1)
    least = next(side for side in itertools.count(1) if planes[0].numel() <= NUMBERS * side**2)
    sides = {least, SQUARE} if least < SQUARE and min(planes.shape[2:]) > 2 * SQUARE else {least}
    return {
        "" if side == 1 else f", {side}x{side} means": functional.avg_pool2d(
            planes, side, ceil_mode=True, count_include_pad=False
        ).flatten(1)
        for side in sorted(sides)
    }


def compared(lab: Lab, cell: Cell) -> dict[str, Any]:
    """How often each names a probe, and how often the strongest of our adversaries on values does."""
    adversaries, copies = lab.adversaries, lab.config.adversary.copies
    copies = copies if lab.protection(cell).draws_noise else 1
    gallery, rows = adversaries.deal(cell.seed)
    people, others = adversaries.people, adversaries.others
    codes, other_codes = (data.label(adversaries.sensitive).codes for data in (people, others))
    taught = lab.shuffle(len(others), cell.seed)[: LEARNED // copies]

    def seen(data: Any, chosen: Tensor, stream: int, count: int) -> dict[str, Values]:
        each = [readings(lab.release(cell, data.images[chosen], stream, number)) for number in range(count)]
        return {way: torch.cat([one[way] for one in each]).double().numpy() for way in each[0]}

    known, asked = seen(people, gallery, GALLERY, copies), seen(people, rows, PROBES, 1)
    learned = seen(others, taught, OTHERS, copies)
    names, truth = codes[gallery].repeat(copies).numpy(), codes[rows].numpy()
    taught_names = other_codes[taught].repeat(copies).numpy()
    named_by = {
        f"{name}{way}": hits(torch.from_numpy(guess == truth), codes[rows])
        for way in known
        for name, guess in named(known[way], names, asked[way], learned[way], taught_names, cell.seed)
    }
    ours = max(kinds.measure(lab, cell)["scores"], key=lambda score: score["top1"])
    probes = codes[rows].unique(return_counts=True)[1].tolist()
    return {
        "probes": len(truth),
        "people": len(np.unique(names)),
        "outsiders": {
            name: dict(
                zip(
                    ("top1", "low", "high"),
                    (sum(found) / len(truth), *over_people(found, probes)),
                    strict=True,
                )
            )
            for name, found in named_by.items()
        },
        "ours": {key: ours[key] for key in ("classifier", "top1", "low", "high")},
    }


def studied(path: Path, seed: int, only: list[str]) -> None:
    """Add the figures of a study's protections to its record."""
    config = grid.load(path)
    source = dict(config.data)
    lab = Lab(config, load(source.pop("source"), **source), ROOT / "runs" / config.name, Progress())
    row = f"{config.name}-{seed}"
    made = RECORDS.get(row, {})
    protections, seconds = made.get("protections", {}), made.get("seconds", 0.0)
    for cell in kinds.cells(config):
        if cell.seed != seed or cell.coordinates.get("attack") != "reidentify-values":
            continue
        spec = cell.protection
        if spec in {"none", *protections} or (only and not any(part in spec for part in only)):
            continue
        started = time.perf_counter()
        found = protections[spec] = compared(lab, cell)
        seconds += time.perf_counter() - started
        best = max(each["top1"] for each in found["outsiders"].values())
        print(f"{spec}: {best:.1%}, ours {found['ours']['top1']:.1%}", flush=True)
        RECORDS[row] = {
            "study": config.name,
            "seed": seed,
            "protections": protections,
            "seconds": round(seconds, 1),
            "data": lab.data.digest,
            "version": sfumato.__version__,
        }


def main() -> None:
    """Compare what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("study", type=Path, help="its YAML file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="WORD", help="of protections that have one in them"
    )
    options = parser.parse_args()
    warnings.filterwarnings("ignore", module="sklearn")  # one photograph of somebody, a network not yet flat
    studied(options.study, options.seed, options.only)


if __name__ == "__main__":
    main()
