"""A plausible SYNTHETIC run directory: made-up numbers and pictures, for the tests of the report only."""

import base64
import io
import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sfumato.learn.meta import MetaConfig
from sfumato.study import cells as kinds
from sfumato.study import grid
from sfumato.study.choose import reading
from sfumato.study.measure import looks
from sfumato.study.measure.results import CANDIDATES
from sfumato.study.records import Record
from sfumato.study.vocabulary import release_kind

PROTECTIONS = [
    "none",
    *(f"blur:radius={r}" for r in (1, 3, 5)),
    *(f"pixelize:cell={b}" for b in (2, 4, 8)),
    *(f"gaussian:sigma={s}" for s in (40, 120, 200)),
    *(f"dp-pix:cell={b},epsilon=3" for b in (2, 4, 8)),
]

# What leaves a device beside pictures, or is learned to leave it.
KINDS = [
    "mask:keep=0.1",
    "mask:keep=0.1,values=shape",
    "feature:noise=0,dimension=10",
    "feature:noise=0.3,dimension=10",
    "code:bits=8",
    "answer",
]

# How much of the picture each setting hides, from 0 to 1: of the task, of the secret from a static
# adversary, and from an adaptive one. No claim is made that real numbers look like this.
HIDDEN = dict(
    zip(
        [*PROTECTIONS, *KINDS],
        [
            (0.00, 0.00, 0.00),
            *((0.02, 0.25, 0.05), (0.07, 0.85, 0.25), (0.14, 0.97, 0.45)),
            *((0.02, 0.20, 0.06), (0.08, 0.75, 0.35), (0.25, 0.96, 0.72)),
            *((0.05, 0.60, 0.30), (0.15, 0.92, 0.65), (0.27, 0.98, 0.86)),
            *((0.30, 0.97, 0.90), (0.12, 0.95, 0.93), (0.22, 0.98, 0.96)),
            *((0.03, 0.95, 0.92), (0.03, 0.97, 0.95)),
            *((0.02, 0.95, 0.75), (0.04, 0.97, 0.93), (0.04, 0.97, 0.97), (0.01, 0.99, 0.99)),
        ],
        strict=True,
    )
)

CHANCE = 0.02
_PEOPLE = {"probes": 500, "people": [1] * 500}


class _Config(grid.StudyConfig):
    """A study of the very specs that it is given, also of protections that are not there, as a file's."""

    @property
    def specs(self) -> list[str]:
        return self.protections


def study(
    *,
    transfer: str | None = None,
    today: bool = False,
    stored: bool = False,
    reconstructions: Sequence[str] = (),
    **changes: Any,
) -> dict[str, Any]:
    """study.json of the synthetic run, with some of its entries changed, and its cells with them.

    It is as versions before 0.2 wrote it; `today` it has what else a release tells, and what it proves. It
    asks for one release, and has no curve of more.
    """
    made: dict[str, Any] = {
        "name": "synthetic",
        "title": "Hats without faces: a SYNTHETIC study with made-up numbers",
        "data": {
            "source": "faces",
            "images": 15000,
            "shape": [3, 32, 32],
            "digest": "ab12cd34ef56ab12cd34ef56ab12cd34ef56ab12cd34ef56ab12cd34ef56ab12",
            "splits": {"train": 9000, "validation": 2250, "test": 3750},
        },
        "task": {
            "target": "headwear",
            "sensitive": "identity",
            "way": 5,
            "shot": 5,
            "queries": 15,
            "episodes": 600,
            "secret_is_task": False,
        },
        "protections": list(PROTECTIONS),
        "learners": ["clean", "protected", "denoised"],
        "attacks": [
            "reidentify-static",
            "reidentify-adaptive",
            "reidentify-restored-adaptive",
            "reidentify-values",
        ],
        "measures": ["ssim", "psnr", "mse"],
        "recommend": {"reidentification_at_most": 0.1},
        "seeds": [0],
        "training": {
            "encoder": "conv4",
            "episode": {"way": 20, "shot": 5, "queries": 5},
            "learning_rate": 0.001,
            "patience": None,
        },
        "adversary": {"steps": 1000, "gallery": 20, "probes": 10, "copies": 4},
        "versions": {"sfumato": "0.1.0", "torch": "2.13.0", "python": "3.11.2"},
    }
    made |= changes
    if "meta" in made["learners"]:
        made = {"meta": {"algorithm": "maml", "private": {"epsilon": 9.0, "delta": 1e-5}}, **made}
    config = _Config(
        data={"source": made["data"]["source"]},
        task=grid.Task(
            target=made["task"]["target"],
            sensitive=made["task"]["sensitive"],
            attributes=tuple(made["task"].get("attributes", ())),
        ),
        recommend=grid.Bounds(inference_at_most=(made["recommend"] or {}).get("inference_at_most", {})),
        log_rank=stored,
        reconstructions=list(reconstructions),
        meta=MetaConfig(way=5, shot=5),  # those of grid.Task
        **{key: made[key] for key in ("protections", "learners", "attacks", "seeds")},
    )
    left_out = ("many",) if today else ("many", "tells", "proved")
    shown = [cell for spec in config.specs for cell in looks.list_examples(config, spec)]
    cells = [cell for cell in [*kinds.cells(config), *shown] if cell.kind not in left_out]
    return {**made, "cells": [_listed(cell.kind, cell.coordinates) for cell in cells]}


def full_study(**changes: Any) -> dict[str, Any]:
    """study.json of a run with all adversaries, with a face network, and with transfer."""
    task = {**study()["task"], "other_shots": [1], "classes": None}
    adversary = {"recogniser": "mobile-face-net", "steps": 0, "gallery": 20, "probes": 10, "copies": 4}
    full = {"task": task, "attacks": list(grid.ATTACKS), "adversary": adversary, "transfer": "denoised"}
    return study(**{**full, **changes})


def study_of_kinds(**changes: Any) -> dict[str, Any]:
    """study.json of a run of everything that leaves a device, with all kinds of cells."""
    changed = {
        "protections": ["none", "pixelize:cell=4", "dp-pix:cell=4,epsilon=3", *KINDS],
        "reconstructions": ["invert-feature"],
        "left_out": ["The attack 'reidentify-static' takes pixels and shapes, and is left out elsewhere."],
        **changes,
    }
    return full_study(**{"today": True, "stored": True, "transfer": None, **changed})


def records(of: dict[str, Any]) -> list[dict[str, Any]]:
    """One record for every cell of a study whose protections are among PROTECTIONS.

    They are as versions before 0.2 made them, or, where the adversary has a recogniser, as today's.
    """
    places = dict.fromkeys((one["cell"]["protection"], one["cell"]["seed"]) for one in of["cells"])
    draws = {place: random.Random("{} {}".format(*place)) for place in places}
    return [
        _of(of, one["kind"], one["cell"], draws[one["cell"]["protection"], one["cell"]["seed"]])
        for one in of["cells"]
    ]


def typed(them: list[dict[str, Any]]) -> list[Record]:
    """Records as a report reads them."""
    return [reading.parse_record(record) for record in them]


def accuracy(
    protection: str, learner: str, value: float, *, seed: int = 0, half_width: float = 0.004, **more: Any
):
    """An accuracy record; its result holds `more`."""
    cell = {"protection": protection, "learner": learner, "seed": seed}
    result = {
        "accuracy": value,
        "half_width": half_width,
        "episodes": 600,
        "trained_episodes": 300,
        "train_seconds": 40.1,
        **more,
    }
    return _record("accuracy", cell, result)


def classifier_accuracy(protection: str, learner: str, value: float, *, seed: int = 0):
    """An accuracy record of an ordinary classifier, whose interval is not even."""
    cell = {"protection": protection, "learner": learner, "seed": seed}
    result = {
        "accuracy": value,
        "low": round(value - 0.03, 4),
        "high": round(value + 0.04, 4),
        "images": 400,
        "chance": 0.25,
        "trained_epochs": 12,
        "train_seconds": 40.1,
        "precision": "float32",
    }
    return _record("accuracy", cell, result)


def promise(epsilon: float | None = 8.996, **more: Any) -> dict[str, Any]:
    """The "privacy" of a meta-learned model's record, as a private run has it; with `more` of its entries."""
    return {
        "promise": f"eps = {epsilon} at delta = 1e-05 for one task",
        "clipping": "fixed",
        "epsilon": epsilon,
        "delta": 1e-5,
        "accountant": "PLD",
        "rdp": 9.8712,
        "gdp_approximation": 8.1234,
        "unit": "one task of the pool, added or removed, with all images of its classes",
        "pool": 120,
        "noise_multiplier": 1.25,
        "rate": 0.1,
        "images_overlap": 1,
        "not_covered": ["those who use the model", "floating point"],
        **more,
    }


def attack(protection: str, name: str, value: float, *, seed: int = 0, weaker: float = 0.7):
    """An attack record: "linear" finds `value`, "1-nn" `weaker` times as much; 500 people, each once."""
    scores = [
        {"classifier": kind, "top1": top1, "low": 0.0, "high": 1.0, "hits": [top1] * 500}
        for kind, top1 in (("linear", value), ("1-nn", round(weaker * value, 4)))
    ]
    cell = {"protection": protection, "attack": name, "seed": seed}
    result = {"scores": scores, "chance": CHANCE, "identities": 50, "gallery": 1000, **_PEOPLE}
    return _record("attack", cell, result)


def recent_attack(
    protection: str,
    name: str,
    value: float,
    *,
    seed: int = 0,
    faces_found: float | None = None,
    flat: bool | None = None,
):
    """An attack record of today: the SVM finds `value`, the other two classifiers less.

    `flat` is whether their recogniser had stopped gaining; None where none was trained.
    """
    scores = [
        {
            "classifier": kind,
            "top1": top1,
            **{"low": 0.0, "high": 1.0, "hits": [top1] * 500},
            "top5": min(1.0, round(2 * top1, 4)),
            "top10": min(1.0, round(3 * top1, 4)),
        }
        for kind, top1 in (("svm", value), ("1-nn", round(0.7 * value, 4)), ("mean", round(0.9 * value, 4)))
    ]
    cell = {"protection": protection, "attack": name, "seed": seed}
    result = {"scores": scores, "chance": CHANCE, "identities": 50, "gallery": 1000, **_PEOPLE}
    result |= {"verification_auc": round(0.5 + value / 2, 4), "tar_at_far_1e-3": round(value / 2, 4)}
    if flat is not None:
        course = {"figure": "verification AUC", "curve": [[25, 0.7], [50, 0.8]], "flat": flat}
        result["trained"] = [{"network": "recogniser", "steps": 50, "ceiling": 50, **course}]
    return _record("attack", cell, {**result, "faces_found": faces_found})


def many(protection: str, named: dict[int, list[float]], *, seed: int = 0, **more: Any):
    """What so many releases tell: the shares of ten tries in which each person is named."""
    points = [
        {
            "releases": size,
            "named": shares,
            "tries": [10] * len(shares),
            "chosen": ["plda", "network"],
            "by_adversary": {"plda": 0.2, "network": 0.1},
            "accepted": 0.3,
            "linked": shares,
        }
        for size, shares in named.items()
    ]
    people = len(next(iter(named.values())))
    result = {"points": points, "panel": people // 2, "pictures": 30, "enough": {100: 3}, "able": people}
    return _record("many", {"protection": protection, "seed": seed}, {**result, **more})


def inference(protection: str, label: str, value: float, *, seed: int = 0, people: int = 100):
    """How an attribute of two classes is inferred, of ten photographs of each of so many people."""
    hits, probes = [10 * value] * people, [10] * people
    score = {"classifier": "values", "top1": value, "low": value - 0.01, "high": value + 0.01, "hits": hits}
    result = {"scores": [score], "chance": 0.5, "identities": 2, "probes": sum(probes), "people": probes}
    return _record("inference", {"protection": protection, "secret": label, "seed": seed}, result)


def transfer(protection: str, trained: dict[str, float], *, learner: str = "denoised", seed: int = 0):
    """A transfer record: the accuracies of the models trained for other settings, queried with this one."""
    cell = {"protection": protection, "learner": learner, "seed": seed}
    models = {spec: {"accuracy": value, "half_width": 0.004} for spec, value in trained.items()}
    return _record("transfer", cell, {"trained": models})


def write_run(directory: Path, of: dict[str, Any], them: list[dict[str, Any]]) -> Path:
    """Lay a study and its records out as a run directory."""
    (directory / "records").mkdir(parents=True)
    (directory / "study.json").write_text(json.dumps(of), encoding="utf-8")
    for record in them:
        path = directory / "records" / f"{record['digest']}.json"
        path.write_text(json.dumps(record), encoding="utf-8")
    return directory


def _listed(kind: str, cell: dict[str, Any]) -> dict[str, Any]:
    draw = random.Random(json.dumps([kind, cell], sort_keys=True))
    return {"digest": f"{draw.getrandbits(64):016x}", "kind": kind, "cell": cell}


def _record(kind: str, cell: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    listed = _listed(kind, cell)
    return {
        **listed,
        "result": result,
        "seconds": round(random.Random(listed["digest"]).uniform(1, 60), 1),
        "versions": {"sfumato": "0.1.0", "torch": "2.13.0", "python": "3.11.2"},
    }


def _of(of: dict[str, Any], kind: str, cell: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    protection, seed = cell["protection"], cell["seed"]
    task, static, adaptive = HIDDEN[protection]
    recent = "recogniser" in of["adversary"]
    match kind:
        case "inference":
            return inference(protection, cell["secret"], round(0.9 - 0.4 * task, 4), seed=seed)
        case "accuracy":
            loss = {
                "clean": 0.02 + 2.4 * task,
                "protected": task,
                "denoised": 0.8 * task,
                "meta": 3 * task,
            }.get(cell["learner"], task)
            loss = 0.0 if protection == "none" else loss
            value = max(0.22, 0.955 - loss + draw.gauss(0, 0.003))
            half_width = round(0.003 + 0.006 * math.sqrt(1 - value), 4)
            more: dict[str, Any] = {}
            if cell["learner"] == "meta":
                more = {"trained_steps": 2000, "privacy": promise()}
            elif recent:
                operations = 157_470_912 if cell["learner"] == "denoised" else 31_234_567
                more = {"operations": operations, "precision": "bfloat16"}
                more |= {"accuracy_1_shot": round(0.8 * value, 4), "half_width_1_shot": 0.0091}
            return accuracy(
                *(protection, cell["learner"], round(value, 4)), seed=seed, half_width=half_width, **more
            )
        case "attack":
            share = {
                "static": static,
                "adaptive": adaptive,
                "denoised": static**2,
                "denoised-adaptive": 0.97 * adaptive,
                "restored": static**1.5,
                "restored-adaptive": 0.99 * adaptive,
                "shape": adaptive,
                "values": adaptive,
                "sorted": static**3,
                "fused": 0.98 * adaptive,
            }[cell["attack"].removeprefix("reidentify-")]
            value = round(CHANCE + (0.68 - CHANCE) * (1 - share) * draw.uniform(0.95, 1.0), 4)
            if not recent:
                return attack(protection, cell["attack"], value, seed=seed)
            view = grid.ATTACKS[cell["attack"]].view
            if release_kind(protection) not in ("pixels", "shape"):
                return recent_attack(protection, cell["attack"], value, seed=seed)
            seen = {
                "shape": 0.0,
                "values": 0.0,
                "sorted": 0.0,
                "fused": 0.0,
                "released": 1 - static,
                "denoised": 1 - static**2,
                "restored": 1 - static**1.5,
            }[view]
            return recent_attack(protection, cell["attack"], value, seed=seed, faces_found=round(seen, 4))
        case "transfer":
            trained = {}
            for spec in of["protections"]:
                families = {spec.partition(":")[0], protection.partition(":")[0]}
                apart = abs(HIDDEN[spec][0] - task) + 0.2 * len(families) - 0.2
                trained[spec] = round(max(0.21, 0.95 - task - apart * draw.uniform(0.9, 1)), 4)
            return transfer(protection, trained, learner=cell["learner"], seed=seed)
        case "similarity":
            return _similarity(cell, hidden=(static + adaptive) / 2)
        case "pictures":
            return _pictures(of, protection, seed)
        case "examples":
            return _examples(protection, seed)
        case "tells":
            return tells(protection, {"identity": adaptive, "headwear": task, "glasses": static}, seed=seed)
        case "proved":
            return proved(protection, seed=seed)
        case "stored":
            value = round(CHANCE + 0.6 * (1 - adaptive), 4)
            return stored(protection, cell["learner"], value, seed=seed)
        case "log-rank":
            is_code = protection.startswith("code")
            return log_rank(protection, adaptive, None if is_code else 1 - task, seed=seed)
        case "reconstruction":
            return reconstruction(protection, cell["attack"], seed=seed)
        case _:
            return _embeddings(protection, cell["learner"], seed, task)


def tells(protection: str, hidden: dict[str, float], *, seed: int = 0) -> dict[str, Any]:
    """A record of what a release tells; of labels of which nothing is hidden (0) to everything (1)."""
    labels = {}
    for number, (name, share) in enumerate(hidden.items()):
        guessing = (0.02, 0.2, 0.5)[number % 3]
        value = round(guessing + 0.9 * (1 - guessing) * (1 - share), 4)
        labels[name] = {
            "accuracy": value,
            "low": round(value - 0.02, 4),
            "high": round(value + 0.02, 4),
            "guessing": guessing,
            "classes": (50, 5, 2)[number % 3],
            "images": 750,
            "adversary": "svm",
        }
    return _record("tells", {"protection": protection, "seed": seed}, {"labels": labels})


def proved(protection: str, *, seed: int = 0, **more: Any) -> dict[str, Any]:
    """A record of what is proved; its result holds `more`."""
    released = release_kind(protection)
    outputs = {"code:bits=8": 256, "answer": 5}.get(protection)
    result = {
        "release": released,
        "bytes_per_image": {"pixels": 192, "shape": 128, "numbers": 40, "bits": 1, "answer": 4}[released],
        "guarantee": _guarantee(protection),
        "outputs": outputs,
        "naming": [
            {"candidates": count, "at_most": outputs / count, "source": "as many as outputs, at most"}
            for count in CANDIDATES
            if outputs and outputs < count
        ],
    }
    return _record("proved", {"protection": protection, "seed": seed}, {**result, **more})


def log_rank(protection: str, lrp: float, accuracy: float | None, *, seed: int = 0) -> dict[str, Any]:
    """A record of log-rank privacy among nine people; a code has no accuracy."""
    result = {"lrp": lrp, "low": lrp - 0.1, "high": lrp + 0.1, "guessing": 0.8, "strongest": "density"}
    result |= {"features": 90, "identities": 9, "images": 100, "chance": 0.5, "accuracy": accuracy}
    return _record("log-rank", {"protection": protection, "seed": seed}, result)


def stored(protection: str, learner: str, value: float, *, seed: int = 0) -> dict[str, Any]:
    """A record of stored embeddings: the SVM finds `value`, nearest means less."""
    scores = [
        {"classifier": kind, "top1": top1, "low": round(top1 - 0.02, 4), "high": round(top1 + 0.02, 4)}
        for kind, top1 in (("mean", round(0.9 * value, 4)), ("svm", value))
    ]
    cell = {"protection": protection, "learner": learner, "seed": seed}
    result = {"scores": scores, "chance": CHANCE, "identities": 50, "embeddings": 500}
    return _record("stored", cell, result)


def reconstruction(
    protection: str, attack: str, *, seed: int = 0, **measures: float | None
) -> dict[str, Any]:
    """A record of rebuilt images, of these measures."""
    originals = [_face(number) for number in range(3)]
    result = {
        "measures": measures or {"ssim": 0.31, "psnr": 14.25, "mse": 0.0376},
        "images": 100,
        "originals": [_png(picture) for picture in originals],
        "pictures": [_png(0.5 * picture + 60) for picture in originals],
    }
    return _record("reconstruction", {"protection": protection, "attack": attack, "seed": seed}, result)


def _similarity(cell: dict[str, Any], *, hidden: float) -> dict[str, Any]:
    protection = cell["protection"]
    share = {"released": 1.0, "denoised": 0.7, "restored": 0.6}[cell["view"]] * hidden
    clear = protection == "none"
    result: dict[str, Any] = {
        "ssim": 1.0 if clear else round(1 - 0.95 * share, 4),
        "psnr": None if clear else round(34 - 24 * share, 3),
        "mse": 0.0 if clear else round(10 ** (-(34 - 24 * share) / 10), 6),
        "images": 100,
    }
    if cell["view"] == "released":
        side = int(protection.partition("cell=")[2].split(",")[0] or 1)
        result["bytes_per_image"] = 3 * math.ceil(32 / side) ** 2
        result["guarantee"] = _guarantee(protection)
    return _record("similarity", cell, result)


def _guarantee(protection: str) -> dict[str, Any] | None:
    if protection.startswith("dp-pix"):
        return {
            "text": "hides any 1 pixel at eps = 3 (pure DP); the whole image only at eps = 3080",
            "definition": "pure",
            "value": 3.0,
            "whole_image": 3072.0,
            "source": "Laplace mechanism on integer cell sums: Ghosh, Roughgarden & Sundararajan 2009",
        }
    if protection.startswith("gaussian"):
        one = 255 * math.sqrt(3) / float(protection.partition("sigma=")[2])
        return {
            "text": f"hides any 1 pixel at mu = {one:.2f} (Gaussian DP); "
            f"the whole image only at mu = {32 * one:.0f}",
            "definition": "gaussian",
            "value": one,
            "whole_image": 32 * one,
            "source": "Gaussian mechanism: Dong, Roth & Su 2022, Theorem 1",
        }
    return None


def _pictures(of, protection: str, seed: int) -> dict[str, Any]:
    originals = [_face(number) for number in range(3)]
    draw = np.random.default_rng(len(protection) + seed)
    family, _, rest = protection.partition(":")
    amount = float(rest.split(",")[0].partition("=")[2] or 0)
    released = [_hide(picture, family, amount, draw) for picture in originals]
    denoised = [(0.5 * one + 0.5 * other) for one, other in zip(originals, released, strict=True)]
    with_denoiser = protection != "none" and "denoised" in of["learners"]
    result = {
        "original": [_png(picture) for picture in originals],
        "released": [_png(picture) for picture in released],
        "denoised": [_png(picture) for picture in denoised] if with_denoiser else None,
    }
    if "recogniser" in of["adversary"]:
        restored = [(0.7 * one + 0.3 * other) for one, other in zip(originals, released, strict=True)]
        restores = protection != "none" and any("restored" in name for name in of["attacks"])
        result["restored"] = [_png(picture) for picture in restored] if restores else None
    return _record("pictures", {"protection": protection, "seed": seed}, result)


def _examples(protection: str, seed: int) -> dict[str, Any]:
    """Six faces, and what leaves of them."""
    faces = [_face(number % 3) for number in range(6)]
    hidden = protection.partition(":")[0] in ("code", "feature", "answer")
    examples = [
        {
            "original": _png(face),
            **({"words": "0110 1001"} if hidden else {"released": _png(0.5 * face + 60)}),
        }
        for face in faces
    ]
    return _record("examples", {"protection": protection, "seed": seed}, {"examples": examples})


def _face(number: int) -> np.ndarray:
    """A (32, 32, 3) cartoon in 0..255: skin, hat, eyes, mouth."""
    y, x = np.mgrid[0:32, 0:32]
    picture = np.full((32, 32, 3), (150 + 30 * number, 190, 220 - 40 * number), float)
    picture[((x - 16) / 9) ** 2 + ((y - 19) / 11) ** 2 < 1] = (224 - 50 * number, 172 - 40 * number, 140)
    picture[(y < 11) & (abs(x - 16) < 11)] = [(200, 40, 50), (40, 90, 180), (230, 180, 40)][number]
    picture[(y < 11) & (abs(x - 16) < 11) & ((x + y * number) % 5 == 0)] = 250
    picture[(abs(y - 17) < 1.5) & (abs(abs(x - 16) - 4) < 1.5)] = 30
    picture[(y == 24) & (abs(x - 16) < 4)] = (150, 40, 50)
    return picture


def _hide(picture: np.ndarray, family: str, amount: float, draw: np.random.Generator) -> np.ndarray:
    if family == "gaussian":
        return picture + draw.normal(0, amount, picture.shape)
    if family == "blur":
        for axis in (0, 1):
            shifts = range(-round(2 * amount), round(2 * amount) + 1)
            picture = sum(np.roll(picture, shift, axis) for shift in shifts) / len(shifts)
    if family in ("pixelize", "dp-pix"):
        side = int(amount)
        cells = picture.reshape(32 // side, side, 32 // side, side, 3).mean((1, 3))
        if family == "dp-pix":
            cells = cells + draw.laplace(0, 255 / side**2, cells.shape)
        picture = cells.repeat(side, 0).repeat(side, 1)
    return picture


def _png(picture: np.ndarray) -> str:
    buffer = io.BytesIO()
    Image.fromarray(picture.round().clip(0, 255).astype(np.uint8)).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _embeddings(protection: str, learner: str, seed: int, hidden: float) -> dict[str, Any]:
    draw = random.Random(f"{protection} {learner} {seed} embeddings")
    names = ["beret", "bowler", "fez", "sombrero", "turban"]
    spread = (2 + 25 * hidden) * {"clean": 1.4, "protected": 1.0, "denoised": 0.7}[learner]
    points, classes = [], []
    for number, name in enumerate(names):
        angle = 2 * math.pi * number / 5
        for _ in range(20):
            points.append(
                [
                    10 * math.cos(angle) + draw.gauss(0, spread),
                    10 * math.sin(angle) + draw.gauss(0, spread),
                ]
            )
            classes.append(name)
    cell = {"protection": protection, "learner": learner, "seed": seed}
    return _record("embeddings", cell, {"points": points, "classes": classes})
