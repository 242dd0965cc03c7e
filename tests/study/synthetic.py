"""A plausible SYNTHETIC run directory: made-up numbers and pictures, for the tests of the report only."""

import base64
import io
import json
import math
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sfumato.learn.meta import MetaConfig
from sfumato.study import cells as kinds
from sfumato.study import grid
from sfumato.study.cells import Cell
from sfumato.study.choose.results import Results
from sfumato.study.measure import looks
from sfumato.study.measure.results import CANDIDATES
from sfumato.study.records import Record, parse
from sfumato.study.vocabulary import IMAGES, VIEWS, release_kind

# How much of the picture each setting hides, from 0 to 1: of the task, of the secret from a static
# adversary, and from an adaptive one. No claim is made that real numbers look like this.
PIXELS = {
    "none": (0.00, 0.00, 0.00),
    "blur:radius=1": (0.02, 0.25, 0.05),
    "blur:radius=3": (0.07, 0.85, 0.25),
    "blur:radius=5": (0.14, 0.97, 0.45),
    "pixelize:cell=2": (0.02, 0.20, 0.06),
    "pixelize:cell=4": (0.08, 0.75, 0.35),
    "pixelize:cell=8": (0.25, 0.96, 0.72),
    "gaussian:sigma=40": (0.05, 0.60, 0.30),
    "gaussian:sigma=120": (0.15, 0.92, 0.65),
    "gaussian:sigma=200": (0.27, 0.98, 0.86),
    "dp-pix:cell=2,epsilon=3": (0.30, 0.97, 0.90),
    "dp-pix:cell=4,epsilon=3": (0.12, 0.95, 0.93),
    "dp-pix:cell=8,epsilon=3": (0.22, 0.98, 0.96),
}
KINDS = {  # what leaves a device beside pictures, or is learned to leave it
    "mask:keep=0.1": (0.03, 0.95, 0.92),
    "mask:keep=0.1,values=shape": (0.03, 0.97, 0.95),
    "feature:noise=0,dimension=10": (0.02, 0.95, 0.75),
    "feature:noise=0.3,dimension=10": (0.04, 0.97, 0.93),
    "code:bits=8": (0.04, 0.97, 0.97),
    "answer": (0.01, 0.99, 0.99),
}
HIDDEN = {**PIXELS, **KINDS}
CHANCE = 0.02
VERSIONS = {"sfumato": "0.1.0", "torch": "2.13.0", "python": "3.11.2"}
LEFT_OUT = {"many"}


class _Config(grid.StudyConfig):
    """A study of the very specs that it is given, also of protections that are not there, as a file's."""

    @property
    def specs(self) -> list[str]:
        return self.protections


def study(*, log_rank: bool = False, reconstructions: Sequence[str] = (), **changes: Any) -> dict[str, Any]:
    """study.json of the synthetic run, with some of its entries changed, and its cells with them.

    It asks for one release, and has no curve of more.
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
            **{"target": "headwear", "sensitive": "identity", "secret_is_task": False},
            **{"way": 5, "shot": 5, "queries": 15, "episodes": 600},
        },
        "protections": list(PIXELS),
        "learners": ["clean", "protected", "denoised"],
        "attacks": [f"reidentify-{name}" for name in ("static", "adaptive", "student", "values")],
        "measures": ["ssim", "psnr", "mse"],
        "recommend": {"reidentification_at_most": 0.1},
        "seeds": [0],
        "training": {"encoder": "conv4", "learning_rate": 0.001, "patience": None},
        "adversary": {"steps": 1000, "known": 20, "probes": 10, "copies": 4},
        "versions": VERSIONS,
    }
    made |= changes
    if "meta" in made["learners"]:
        made = {"meta": {"algorithm": "maml", "private": {"epsilon": 9.0, "delta": 1e-5}}, **made}
    task = made["task"]
    config = _Config(
        data={"source": made["data"]["source"]},
        task=grid.Task(**{key: task[key] for key in ("target", "sensitive", "attributes") if key in task}),
        recommend=grid.Bounds(inference_at_most=(made["recommend"] or {}).get("inference_at_most", {})),
        log_rank=log_rank,
        reconstructions=list(reconstructions),
        meta=MetaConfig(way=5, shot=5),  # those of grid.Task
        attacks=[name for name in made["attacks"] if grid.ATTACKS[name].method is not None],
        **{key: made[key] for key in ("protections", "learners", "seeds")},
    )
    shown = [cell for spec in config.specs for cell in looks.list_examples(config, spec)]
    shown += [cell for spec in config.specs for cell in _of_left(made, spec)]
    cells = [cell for cell in [*kinds.cells(config), *shown] if cell.kind not in LEFT_OUT]
    return {**made, "cells": [_listed(cell.kind, cell.coordinates) for cell in cells]}


def _of_left(made: dict[str, Any], spec: str) -> list[Cell]:
    """The cells that kept records have of adversaries who left: attacks, and the view that they had."""
    left, kind = [grid.ATTACKS[name] for name in made["attacks"]], release_kind(spec)
    taken = [
        each for each in left if each.method is None and kind in VIEWS[each.view].releases and spec != "none"
    ]
    fitting = [each for each in taken if each.adaptive or kind in IMAGES]
    views = [("similarity", ("view", view)) for view in dict.fromkeys(each.view for each in fitting)]
    cells = [*(("attack", ("attack", each.name)) for each in fitting), *views]
    return [Cell(kind, spec, seed, (which,)) for kind, which in cells for seed in made["seeds"]]


def full_study(**changes: Any) -> dict[str, Any]:
    """study.json of a run with all adversaries, also those who left, with a face network."""
    task = {**study()["task"], "other_shots": [1], "classes": None}
    adversary = {"recogniser": "mobile-face-net", "steps": 0, "known": 20, "probes": 10, "copies": 4}
    return study(**{"task": task, "attacks": list(grid.ATTACKS), "adversary": adversary, **changes})


def study_of_kinds(**changes: Any) -> dict[str, Any]:
    """study.json of a run of everything that leaves a device, with all kinds of cells."""
    changed = {
        "protections": ["none", "pixelize:cell=4", "dp-pix:cell=4,epsilon=3", *KINDS],
        "reconstructions": ["invert-feature"],
        "left_out": ["The attack 'reidentify-static' takes pixels and shapes, and is left out elsewhere."],
        "log_rank": True,
    }
    return full_study(**{**changed, **changes})


def records(of: dict[str, Any]) -> list[dict[str, Any]]:
    """One record for every cell of a study whose protections are among HIDDEN."""
    places = dict.fromkeys((one["cell"]["protection"], one["cell"]["seed"]) for one in of["cells"])
    draws = {place: random.Random("{} {}".format(*place)) for place in places}
    cells = ((one["kind"], one["cell"]) for one in of["cells"])
    return [_of(of, kind, cell, draws[cell["protection"], cell["seed"]]) for kind, cell in cells]


def typed(them: Iterable[dict[str, Any]]) -> list[Record]:
    """Records as a report reads them."""
    return [parse(record) for record in them]


def results(of: dict[str, Any], them: Iterable[dict[str, Any]]) -> Results:
    """The results of a study and its records."""
    return Results(of, typed(them))


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


def record(kind: str, protection: str, result: dict[str, Any], *, seed=0, **which: str) -> dict[str, Any]:
    """A record of any kind."""
    listed = _listed(kind, {"protection": protection, **which, "seed": seed})
    seconds = round(random.Random(listed["digest"]).uniform(1, 60), 1)
    return {**listed, "result": result, "seconds": seconds, "versions": VERSIONS}


# Records of each kind, of given figures


def accuracy(protection: str, learner: str, value: float, *, seed=0, half_width=0.004, **more: Any):
    """An accuracy record; its result holds `more`."""
    counted = {"episodes": 600, "trained_episodes": 300, "train_seconds": 40.1}
    result = {"accuracy": value, "half_width": half_width, **counted, **more}
    return record("accuracy", protection, result, seed=seed, learner=learner)


def classifier_accuracy(protection: str, learner: str, value: float, *, seed: int = 0):
    """An accuracy record of an ordinary classifier, whose interval is not even."""
    result = {"accuracy": value, "low": round(value - 0.03, 4), "high": round(value + 0.04, 4), "images": 400}
    result |= {"chance": 0.25, "trained_epochs": 12, "train_seconds": 40.1, "precision": "float32"}
    return record("accuracy", protection, result, seed=seed, learner=learner)


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
        "not_covered": ["those who use the model", "floating point"],
        **more,
    }


def attack(protection: str, name: str, value: float, *, seed=0, weaker=0.7, faces_found=None, flat=None):
    """An attack record: the SVM finds `value`, "1-nn" `weaker` times as much; 500 people, each once.

    `flat` is whether their recogniser had stopped gaining; None where none was trained.
    """
    scores = [
        {"classifier": kind, "top1": top1, "low": 0.0, "high": 1.0, "hits": [top1] * 500}
        | {f"top{first}": min(1.0, round(times * top1, 4)) for first, times in ((5, 2), (10, 3))}
        for kind, top1 in (("svm", value), ("1-nn", round(weaker * value, 4)))
    ]
    result = {"scores": scores, "chance": CHANCE, "identities": 50, "gallery": 1000, "probes": 500}
    result |= {"people": [1] * 500, "faces_found": faces_found}
    result |= {"verification_auc": round(0.5 + value / 2, 4), "tar_at_far_1e-3": round(value / 2, 4)}
    if flat is not None:
        course = {"figure": "verification AUC", "curve": [[25, 0.7], [50, 0.8]], "flat": flat}
        result["trained"] = [{"network": "recogniser", "steps": 50, "ceiling": 50, **course}]
    return record("attack", protection, result, seed=seed, attack=name)


def many(protection: str, named: dict[int, list[float]], *, seed: int = 0, **more: Any):
    """What so many releases tell: the shares of ten tries in which each person is named."""
    people = len(next(iter(named.values())))
    point = {"tries": [10] * people, "chosen": ["plda", "network"], "accepted": 0.3}
    point["by_adversary"] = {"plda": 0.2, "network": 0.1}
    points = [
        {"releases": size, "named": shares, "linked": shares, **point} for size, shares in named.items()
    ]
    result = {"points": points, "panel": people // 2, "pictures": 30, "enough": {100: 3}, "able": people}
    return record("many", protection, {**result, **more}, seed=seed)


def inference(protection: str, label: str, value: float, *, seed: int = 0, people: int = 100):
    """How an attribute of two classes is inferred, of ten photographs of each of so many people."""
    hits, probes = [10 * value] * people, [10] * people
    score = {"classifier": "values", "top1": value, "low": value - 0.01, "high": value + 0.01, "hits": hits}
    result = {"scores": [score], "chance": 0.5, "identities": 2, "probes": sum(probes), "people": probes}
    return record("inference", protection, result, seed=seed, secret=label)


def tells(protection: str, hidden: dict[str, float], *, seed: int = 0) -> dict[str, Any]:
    """A record of what a release tells; of labels of which nothing is hidden (0) to everything (1)."""
    labels = {}
    for number, (name, share) in enumerate(hidden.items()):
        guessing = (0.02, 0.2, 0.5)[number % 3]
        value = round(guessing + 0.9 * (1 - guessing) * (1 - share), 4)
        labels[name] = {
            **{"accuracy": value, "low": round(value - 0.02, 4), "high": round(value + 0.02, 4)},
            **{"guessing": guessing, "classes": (50, 5, 2)[number % 3], "images": 750, "adversary": "svm"},
        }
    return record("tells", protection, {"labels": labels}, seed=seed)


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
    return record("proved", protection, {**result, **more}, seed=seed)


def log_rank(protection: str, lrp: float, accuracy: float | None, *, seed: int = 0) -> dict[str, Any]:
    """A record of log-rank privacy among nine people; a code has no accuracy."""
    result = {"lrp": lrp, "low": lrp - 0.1, "high": lrp + 0.1, "guessing": 0.8, "strongest": "density"}
    result |= {"features": 90, "identities": 9, "images": 100, "chance": 0.5, "accuracy": accuracy}
    return record("log-rank", protection, result, seed=seed)


def reconstruction(protection: str, attack: str, *, seed=0, **measures: float | None) -> dict[str, Any]:
    """A record of rebuilt images, of these measures."""
    result = {
        "measures": measures or {"ssim": 0.31, "psnr": 14.25, "mse": 0.0376},
        "images": 100,
        "originals": [_face(number) for number in range(3)],
        "pictures": [_face(number, 0.5) for number in range(3)],
    }
    return record("reconstruction", protection, result, seed=seed, attack=attack)


# Records of whole studies


def _of(of: dict[str, Any], kind: str, cell: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    protection, seed = cell["protection"], cell["seed"]
    task, static, adaptive = HIDDEN[protection]
    match kind:
        case "accuracy":
            learner = cell["learner"]
            loss = {"clean": 0.02 + 2.4 * task, "denoised": 0.8 * task, "meta": 3 * task}.get(learner, task)
            value = max(0.22, 0.955 - loss * (protection != "none") + draw.gauss(0, 0.003))
            more: dict[str, Any] = {"operations": 31_234_567, "accuracy_1_shot": round(0.8 * value, 4)}
            if learner == "meta":
                more = {"trained_steps": 2000, "privacy": promise()}
            width = round(0.003 + 0.006 * math.sqrt(1 - value), 4)
            return accuracy(protection, learner, round(value, 4), seed=seed, half_width=width, **more)
        case "attack":
            words = grid.ATTACKS[cell["attack"]]
            hidden = adaptive if words.adaptive else static**1.5
            value = round(CHANCE + (0.68 - CHANCE) * (1 - hidden) * draw.uniform(0.9, 1.0), 4)
            looked = "recogniser" in of["adversary"] and release_kind(protection) in IMAGES
            faces = round(1 - static, 4) if looked and words.view in ("released", "restored") else None
            return attack(protection, cell["attack"], value, seed=seed, faces_found=faces)
        case "inference":
            return inference(protection, cell["secret"], round(0.9 - 0.4 * task, 4), seed=seed)
        case "similarity":
            return _similarity(cell, hidden=(static + adaptive) / 2)
        case "pictures":
            return _pictures(of, protection, seed)
        case "examples":
            words = {"words": "0110 1001"} if release_kind(protection) not in IMAGES else {}
            shown = [
                {"original": _face(number % 3), **(words or {"released": _face(number % 3, 0.5)})}
                for number in range(6)
            ]
            return record("examples", protection, {"examples": shown}, seed=seed)
        case "tells":
            return tells(protection, {"identity": adaptive, "headwear": task, "glasses": static}, seed=seed)
        case "proved":
            return proved(protection, seed=seed)
        case "log-rank":
            is_code = protection.startswith("code")
            return log_rank(protection, adaptive, None if is_code else 1 - task, seed=seed)
        case _:
            return reconstruction(protection, cell["attack"], seed=seed)


def _similarity(cell: dict[str, Any], *, hidden: float) -> dict[str, Any]:
    protection, view = cell["protection"], cell["view"]
    share = {"released": 1.0, "denoised": 0.7, "restored": 0.6}[view] * hidden
    clear = protection == "none"
    result: dict[str, Any] = {
        "ssim": 1.0 if clear else round(1 - 0.95 * share, 4),
        "psnr": None if clear else round(34 - 24 * share, 3),
        "mse": 0.0 if clear else round(10 ** (-(34 - 24 * share) / 10), 6),
        "images": 100,
    }
    if view == "released":
        side = int(protection.partition("cell=")[2].split(",")[0] or 1)
        result["bytes_per_image"] = 3 * math.ceil(32 / side) ** 2
        result["guarantee"] = _guarantee(protection)
    return record("similarity", protection, result, seed=cell["seed"], view=view)


def _guarantee(protection: str) -> dict[str, Any] | None:
    if protection.startswith("dp-pix"):
        return {
            "text": "hides any 1 pixel at eps = 3 (pure DP); the whole image only at eps = 3080",
            **{"definition": "pure", "value": 3.0, "whole_image": 3072.0},
            "source": "Laplace mechanism on integer cell sums: Ghosh, Roughgarden & Sundararajan 2009",
        }
    if protection.startswith("gaussian"):
        one = 255 * math.sqrt(3) / float(protection.partition("sigma=")[2])
        return {
            "text": f"hides any 1 pixel at mu = {one:.2f} (Gaussian DP); "
            f"the whole image at mu = {32 * one:.0f}",
            **{"definition": "gaussian", "value": one, "whole_image": 32 * one},
            "source": "Gaussian mechanism: Dong, Roth & Su 2022, Theorem 1",
        }
    return None


def _pictures(of: dict[str, Any], protection: str, seed: int) -> dict[str, Any]:
    hidden = HIDDEN[protection][1]
    clear = protection == "none"
    denoised = not clear and "denoised" in of["learners"]
    shown = {"original": 0.0, "released": hidden, "denoised": hidden / 2}
    result: dict[str, Any] = {
        view: [_face(number, share) for number in range(3)] for view, share in shown.items()
    }
    result |= {} if denoised else {"denoised": None}
    return record("pictures", protection, result, seed=seed)


def _face(number: int, hidden: float = 0.0) -> str:
    """A (32, 32, 3) cartoon as a data: URI: skin, hat and eyes, as far as they are not hidden."""
    y, x = np.mgrid[0:32, 0:32]
    picture = np.full((32, 32, 3), (150 + 30 * number, 190, 220 - 40 * number), float)
    picture[((x - 16) / 9) ** 2 + ((y - 19) / 11) ** 2 < 1] = (224 - 50 * number, 172 - 40 * number, 140)
    picture[(y < 11) & (abs(x - 16) < 11)] = [(200, 40, 50), (40, 90, 180), (230, 180, 40)][number]
    picture[(abs(y - 17) < 1.5) & (abs(abs(x - 16) - 4) < 1.5)] = 30
    buffer = io.BytesIO()
    Image.fromarray(((1 - hidden) * picture + 128 * hidden).round().astype(np.uint8)).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
