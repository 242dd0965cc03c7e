"""The content of study.json: the settings, data and cells of a run; and the origin of a record."""

import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

import sfumato
from sfumato.data.copies import find_shared
from sfumato.data.labelled import LabelledImages
from sfumato.study.lab.lab import Lab
from sfumato.study.parts import kinds
from sfumato.study.records import source_of
from sfumato.study.vocabulary import CLASSIFIER, LEARNERS


def description(labs: Sequence[Lab], cells: list[dict[str, Any]]) -> dict[str, Any]:
    """The content of study.json: the settings, the data and the cells. `labs`: one for each fold."""
    lab = labs[0]
    config, task, folds = lab.config, lab.config.task, [_splits(each) for each in labs]
    content = content_of(lab.data)
    told = [find_shared(each.data, target=task.target, secret=task.sensitive) for each in labs]
    both = list(dict.fromkeys(each.words for of_fold in told for each in of_fold))
    named = {name: asdict(getattr(config, name)) for name in _settings_used(lab)}
    return {
        "name": config.name,
        "title": config.title or config.name,
        "data": {
            "source": source_of(lab.data.name),
            "images": len(lab.data),
            "shape": list(lab.data.images.shape[1:]),
            **({"grey": True} if lab.data.are_grey else {}),
            "content": content,
            **(folds[0] if len(folds) == 1 else _join_folds(content, folds)),
            **({"shared": both} if both else {}),
        },
        "task": {**asdict(config.task), "secret_is_task": any(map(_secret_is_task, labs))},
        "protections": config.specs,
        "learners": config.learners,
        "attacks": config.attacks if config.task.sensitive is not None else [],
        "measures": config.measures,
        "recommend": asdict(config.recommend),
        "seeds": config.seeds,
        **({"board": True} if config.board else {}),
        **named,
        "left_out": kinds.list_omissions(config) + _list_left_out(lab.data),
        "versions": versions(lab.device),
        "cells": cells,
    }


def join(described: Sequence[tuple[Mapping[str, Any], dict[str, Any]]]) -> dict[str, Any]:
    """One description of a study with `vary`: the first, the cells of all, and how each differs."""
    _, first = described[0]
    if len(described) == 1 and not described[0][0]:
        return first
    cells = [{**cell, "varied": varied} for varied, own in described for cell in own["cells"]]
    variants = [
        {"varied": varied, **{key: own[key] for key in own if key != "cells" and own[key] != first.get(key)}}
        for varied, own in described
    ]
    return {**first, "cells": cells, "vary": variants}


def content_of(data: LabelledImages) -> str:
    """The digest of images and labels, however they are split: the identity of a study's data."""
    return replace(data, splits={}).digest


def _splits(lab: Lab) -> dict[str, Any]:
    """The splits of a fold, with the digest of its data."""
    return {
        "digest": lab.data.digest,
        "splits": {name: len(rows) for name, rows in lab.data.splits.items()},
    }


def _join_folds(content: str, folds: list[dict[str, Any]]) -> dict[str, Any]:
    """The same of all folds: each image is tested in one of them."""
    tested = sum(fold["splits"]["test"] for fold in folds)
    return {"digest": content, "splits": {"test": tested}, "folds": folds}


def _list_left_out(data: LabelledImages) -> list[str]:
    """What the reader left out of the data, in words; names are for the study's user."""
    words = data.describe_left_out(names=False)
    return [words.replace("left out", "Left out of the data", 1) + "."] if words else []


def _settings_used(lab: Lab) -> list[str]:
    """The groups of settings that the study makes use of."""
    config = lab.config
    recipes = {recipe.name for recipe in lab.recipes.values()}
    used = ["training"]
    if "meta" in config.learners:
        used.append("meta")
    if any(LEARNERS[name].method == CLASSIFIER for name in config.learners):
        used.append("classifier")
    used += [f"{name}s" for name in ("mask", "feature", "code") if name in recipes]
    used += ["adversary", "restoration"]
    return used + (["inversion"] if config.reconstructions else [])


def _secret_is_task(lab: Lab) -> bool:
    """Whether the target label determines the sensitive one, on the test images.

    Then the service's own task names the secret. The other way round, as when people have one gender each,
    the task tells little about their identity.
    """
    task = lab.config.task
    if task.sensitive is None:
        return False
    pairs = torch.stack([lab.asked.label(task.target).codes, lab.asked.label(task.sensitive).codes])
    return int(pairs.unique(dim=1).shape[1]) == len(pairs[0].unique())


def versions(device: torch.device) -> dict[str, str]:
    """The versions that a result depends on, for its record, and the GPU that trained if one did."""
    return {
        **({"device": torch.cuda.get_device_name(device)} if device.type == "cuda" else {}),
        "sfumato": sfumato.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "threads": str(torch.get_num_threads()),
        "machine": f"{sys.platform} {platform.machine()}",
    }
