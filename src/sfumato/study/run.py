"""Run a study: every cell that has no record yet, one after the other. A stopped study goes on.

What several cells need (trained classifiers, the static adversary) is made once and kept beside the
records, so that stopping loses at most one epoch of training.
"""

import base64
import copy
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import sfumato
from sfumato import artefacts, data, images
from sfumato.assess import similarity
from sfumato.attack import reidentify, restore
from sfumato.data.labelled import LabelledImages
from sfumato.dp.mechanisms import seeded_noise
from sfumato.episodes import Sampler
from sfumato.errors import ConfigError, DataError, needs_extra
from sfumato.learn import few_shot
from sfumato.networks import Conv4
from sfumato.protect import Release, parse
from sfumato.study import grid
from sfumato.study.grid import Cell, StudyConfig
from sfumato.study.records import digest_of, write_json

# Raised when the same settings would give other results, so that older records are not taken for new ones.
RESULTS = 1

# Every use of noise here has a stream of its own under the study's seed.
_MEASURED, _GALLERY, _PROBES, _OTHERS, _RESTORED = range(5)

_MEASURED_IMAGES = 100  # the paper measures SSIM over 100 test images


@dataclass(frozen=True)
class Progress:
    """What a running study tells.

    Attributes:
        cell: called before each cell with its words, and the numbers of cells done and in all.
        within: called during training with the numbers of steps done and planned.
        note: called with a sentence that the user should read.
    """

    cell: Callable[[str, int, int], None] = lambda words, done, total: None
    within: Callable[[int, int], None] = lambda done, total: None
    note: Callable[[str], None] = lambda words: None


def run(
    config: StudyConfig,
    directory: str | os.PathLike[str],
    *,
    fit: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Make every record of a study that is not there yet, and return the directory.

    Args:
        config: see `grid.load`.
        directory: where study.json, records/ and models/ are kept.
        fit: make episodes smaller where the classes are too small for them; see `grid.fitted`.
        progress: see Progress.

    Raises:
        DataError, ConfigError: the data does not fit the study; said before anything is trained.
    """
    progress = progress or Progress()
    directory = Path(directory)
    settings = dict(config.data)
    loaded = data.load(settings.pop("source"), **settings)
    if fit:
        config = grid.fitted(config, loaded)
    lab = _Lab(config, loaded, directory, progress)
    cells = grid.cells(config)
    listed = [{"digest": lab.digest(cell), "kind": cell.kind, "cell": cell.coordinates} for cell in cells]
    write_json(directory / "study.json", lab.description(listed))
    for done, (cell, entry) in enumerate(zip(cells, listed, strict=True)):
        progress.cell(str(cell), done, len(cells))
        path = directory / "records" / f"{entry['digest']}.json"
        if path.exists():
            continue
        start = time.perf_counter()
        result = lab.measure(cell)
        record = {
            **entry,
            "result": result,
            "seconds": round(time.perf_counter() - start, 2),
            "versions": _versions(),
        }
        write_json(path, record)
    progress.cell("done", len(cells), len(cells))
    return directory


class _Lab:
    """The data of one study, and what its cells share. State: the classifiers and adversaries made so far."""

    def __init__(
        self, config: StudyConfig, loaded: LabelledImages, directory: Path, progress: Progress
    ) -> None:
        self._config = config
        self._models = directory / "models"
        self._progress = progress
        self._data = loaded
        self._train = self._data.split("train")
        self._validation = self._data.split("validation") if "validation" in self._data.splits else None
        self._test = self._data.split("test")
        self._loaded: dict[str, Any] = {}
        self._check()

    def _check(self) -> None:
        """Fail now rather than after an hour: labels, class sizes, cells larger than the images."""
        task, training = self._config.task, self._config.training
        for name, part, shape in (
            ("training", self._train, training.episode),
            ("validation", self._validation, training.validation_episode),
            ("test", self._test, task.shape),
        ):
            if part is None:
                continue
            try:
                left_out = Sampler(part.label(task.target), shape).left_out
            except DataError as error:
                raise DataError(f"{self._data.name}, {name} images: {error}") from error
            if left_out:
                few = ", ".join(left_out[:5]) + (", ..." if len(left_out) > 5 else "")
                self._progress.note(f"{name} images: left out, with too few for an episode: {few}")
        if task.sensitive is not None and self._config.attacks:
            self._data.label(task.sensitive)
            self._others  # noqa: B018 - raises where there is nobody to train on
            self._dealt(0)
        for spec in self._config.specs:
            parse(spec).release(self._test.images[:1], seeded_noise(0))

    # What decides a result, and so its digest

    def digest(self, cell: Cell) -> str:
        config = self._config
        task = asdict(config.task)
        shared = {"results": RESULTS, "cell": asdict(cell), "data": self._data.digest}
        sensitive = task.pop("sensitive")
        which = dict(cell.which)
        training = {"target": config.task.target, "training": asdict(config.training)}
        match cell.kind:
            case "accuracy":
                return digest_of({**shared, "task": task, **training})
            case "attack":
                shared |= {"sensitive": sensitive, "adversary": asdict(config.adversary)}
                if which["attack"] == "reidentify-denoised":
                    shared |= training
                elif which["attack"] == "reidentify-restored":
                    shared |= {"restoration": asdict(config.restoration)}
                return digest_of(shared)
            case "similarity":
                shared |= {"measures": config.measures}
                if which["view"] == "denoised":
                    shared |= training
                elif which["view"] == "restored":
                    shared |= {"sensitive": sensitive, "restoration": asdict(config.restoration)}
                return digest_of(shared)
            case _:
                return digest_of({**shared, **training, "pictures": config.pictures, "views": config.views})

    def description(self, cells: list[dict[str, Any]]) -> dict[str, Any]:
        config = self._config
        task = asdict(config.task)
        return {
            "name": config.name,
            "title": config.title or config.name,
            "data": {
                "source": self._data.name,
                "images": len(self._data),
                "shape": list(self._data.images.shape[1:]),
                "digest": self._data.digest,
                "splits": {name: len(rows) for name, rows in self._data.splits.items()},
            },
            "task": {**task, "secret_is_task": self._secret_is_task()},
            "protections": config.specs,
            "learners": config.learners,
            "attacks": config.attacks if config.task.sensitive is not None else [],
            "measures": config.measures,
            "recommend": asdict(config.recommend),
            "seeds": config.seeds,
            "training": asdict(config.training),
            "adversary": asdict(config.adversary),
            "restoration": asdict(config.restoration),
            "versions": _versions(),
            "cells": cells,
        }

    def _secret_is_task(self) -> bool:
        """Whether target or sensitive label determines the other on the test images."""
        task = self._config.task
        if task.sensitive is None:
            return False
        pairs = torch.stack([self._test.label(task.target).codes, self._test.label(task.sensitive).codes])
        together = pairs.unique(dim=1).shape[1]
        return together in (len(pairs[0].unique()), len(pairs[1].unique()))

    # Cells

    def measure(self, cell: Cell) -> dict[str, Any]:
        which = dict(cell.which)
        match cell.kind:
            case "accuracy":
                return self._accuracy(cell, which["learner"])
            case "attack":
                return self._attack(cell, which["attack"])
            case "similarity":
                return self._similarity(cell, which["view"])
            case "embeddings":
                return self._embeddings(cell, which["learner"])
            case _:
                return self._pictures(cell)

    def _accuracy(self, cell: Cell, learner: str) -> dict[str, Any]:
        task = self._config.task
        start = time.perf_counter()
        model = self._model(cell, learner)
        trained = time.perf_counter() - start
        accuracy = few_shot.evaluate(
            model,
            self._test,
            way=task.way,
            shot=task.shot,
            queries=task.queries,
            episodes=task.episodes,
            target=task.target,
            protection=parse(cell.protection),
            seed=cell.seed,
        )
        return {
            "accuracy": accuracy.mean,
            "half_width": accuracy.half_width,
            "episodes": accuracy.episodes,
            "trained_episodes": model.card["epochs"] * self._config.training.episodes_per_epoch,
            "train_seconds": round(trained, 1),
            "precision": model.card["precision"],
        }

    def _attack(self, cell: Cell, attack: str) -> dict[str, Any]:
        gallery, probes = self._dealt(cell.seed)
        codes = self._codes(self._test)
        asked = self._release(cell, self._test.images[probes], _PROBES).images()
        known = self._test.images[gallery]
        names = codes[gallery]
        recogniser = self._static(cell.seed)
        if attack == "reidentify-denoised":
            asked = self._model(cell, "denoised").denoise(asked)
        if attack == "reidentify-restored":
            asked = self._restorer(cell).restore(asked)
        if attack == "reidentify-adaptive":
            copies = self._config.adversary.copies
            known = torch.cat([self._release(cell, known, _GALLERY, i).images() for i in range(copies)])
            names = names.repeat(copies)
            recogniser = self._adaptive(cell)
        found = reidentify.reidentify(recogniser.embed(known), names, recogniser.embed(asked), codes[probes])
        return {
            "scores": [asdict(score) for score in found.scores],
            "chance": found.chance,
            "identities": found.identities,
            "gallery": len(gallery),
            "probes": found.probes,
        }

    def _similarity(self, cell: Cell, view: str) -> dict[str, Any]:
        rows = self._shuffled(cell.seed)[:_MEASURED_IMAGES]
        clean = self._test.images[rows]
        release = self._release(cell, clean, _MEASURED)
        shown = release.images()
        if view == "denoised":
            shown = self._model(cell, "denoised").denoise(shown)
        if view == "restored":
            shown = self._restorer(cell).restore(shown)
        functions = {"ssim": similarity.ssim, "psnr": similarity.psnr, "mse": similarity.mse}
        result: dict[str, Any] = {"images": len(rows)}
        for measure in self._config.measures:
            mean = functions[measure](images.to_float(clean), images.to_float(shown)).mean().item()
            result[measure] = mean if np.isfinite(mean) else None
        if view == "released":
            c, h, w = clean.shape[1:]
            guarantee = parse(cell.protection).guarantee((c, h, w))
            result["bytes_per_image"] = release.bytes_per_image
            result["guarantee"] = None
            if guarantee is not None:
                result["guarantee"] = {"text": str(guarantee), **asdict(guarantee)}
        return result

    def _embeddings(self, cell: Cell, learner: str) -> dict[str, Any]:
        with needs_extra("t-SNE", "study"):
            from sklearn.manifold import TSNE

        label = self._test.label(self._config.task.target)
        order = self._shuffled(cell.seed)
        classes = label.codes[order].unique_consecutive().tolist()
        chosen = list(dict.fromkeys(classes))[:5]
        rows = torch.cat([order[label.codes[order] == code][:20] for code in chosen])
        released = self._release(cell, self._test.images[rows], _MEASURED).images()
        vectors = self._model(cell, learner).embed(released).numpy()
        points = TSNE(perplexity=min(20, len(rows) - 1), init="pca", random_state=cell.seed).fit_transform(
            vectors
        )
        return {
            "points": [[round(float(x), 3), round(float(y), 3)] for x, y in points],
            "classes": [label.names[code] for code in label.codes[rows].tolist()],
        }

    def _pictures(self, cell: Cell) -> dict[str, Any]:
        clean = self._test.images[self._shuffled(cell.seed)[: self._config.pictures]]
        released = self._release(cell, clean, _MEASURED).images()
        denoised = None
        if "denoised" in self._config.learners and cell.protection != "none":
            denoised = _as_uris(self._model(cell, "denoised").denoise(released))
        return {"original": _as_uris(clean), "released": _as_uris(released), "denoised": denoised}

    # What cells share

    def _model(self, cell: Cell, learner: str) -> few_shot.FewShotModel:
        """The classifier of a learner: trained, or read from where an earlier cell or run left it."""
        config = self._config
        spec = "none" if learner == "clean" else cell.protection
        training = config.training if learner == "denoised" else replace(config.training, denoiser_depth=None)
        settings = {"training": asdict(training), "spec": spec, "seed": cell.seed}
        path = self._path("few-shot", {**settings, "target": config.task.target})
        if path.name not in self._loaded:
            if not path.exists():
                checkpoint = path.with_suffix(".checkpoint")
                few_shot.train(
                    self._train,
                    parse(spec),
                    training,
                    target=config.task.target,
                    validation=self._validation,
                    seed=cell.seed,
                    checkpoint=checkpoint,
                    progress=self._progress.within,
                ).save(path)
                checkpoint.unlink(missing_ok=True)
            self._loaded[path.name] = few_shot.load(path)
        model: few_shot.FewShotModel = self._loaded[path.name]
        return model

    def _static(self, seed: int) -> reidentify.Recogniser:
        """The adversary's recogniser, trained on clean photographs of people outside the test split."""
        settings = {"adversary": asdict(self._config.adversary), "seed": seed}
        path = self._path("recogniser", {**settings, "sensitive": self._config.task.sensitive})
        if path.name not in self._loaded:
            clean = self._others.images
            if path.exists():
                recogniser = reidentify.Recogniser(Conv4(clean.shape[1]))
                recogniser.load_state_dict(artefacts.load(path, kind="recogniser")[0])
            else:
                recogniser = self._recogniser(lambda _: clean, seed, self._config.adversary)
                artefacts.save(path, recogniser.state_dict(), {"kind": "recogniser", "seed": seed})
            self._loaded[path.name] = recogniser
        static: reidentify.Recogniser = self._loaded[path.name]
        return static

    def _adaptive(self, cell: Cell) -> reidentify.Recogniser:
        """The static recogniser, trained further on photographs protected as the probes are."""
        clean = self._others.images
        start = copy.deepcopy(self._static(cell.seed).encoder)
        further = replace(self._config.adversary, steps=self._config.adversary.adaptive_steps)
        return self._recogniser(
            lambda i: self._release(cell, clean, _OTHERS, i).images(), cell.seed, further, start
        )

    def _restorer(self, cell: Cell) -> restore.Restorer:
        """The adversary's network that undoes a protection, trained on people outside the test split."""
        config = self._config.restoration
        settings = {"restoration": asdict(config), "spec": cell.protection, "seed": cell.seed}
        path = self._path("restorer", {**settings, "sensitive": self._config.task.sensitive})
        if path.name not in self._loaded:
            clean = self._others.images
            if path.exists():
                restorer = restore.Restorer(restore.NETWORKS[config.network](clean.shape[1]))
                restorer.load_state_dict(artefacts.load(path, kind="restorer")[0])
            else:
                restorer = restore.train_restorer(
                    clean,
                    lambda batch, step: self._release(cell, batch, _RESTORED, step).images(),
                    config,
                    seed=cell.seed,
                    progress=self._progress.within,
                )
                artefacts.save(path, restorer.state_dict(), {"kind": "restorer", **settings})
            self._loaded[path.name] = restorer
        found: restore.Restorer = self._loaded[path.name]
        return found

    def _recogniser(
        self,
        seen: Callable[[int], Tensor],
        seed: int,
        config: reidentify.AdversaryConfig,
        encoder: torch.nn.Module | None = None,
    ) -> reidentify.Recogniser:
        return reidentify.train_recogniser(
            seen,
            self._codes(self._others),
            config,
            encoder=encoder,
            seed=seed,
            progress=self._progress.within,
        )

    @cached_property
    def _others(self) -> LabelledImages:
        """Training images of people who are not in the test split."""
        codes = self._codes(self._train)
        others = self._train.rows((~torch.isin(codes, self._codes(self._test).unique())).nonzero().flatten())
        if len(self._codes(others).unique()) < 2:
            raise DataError(
                f"{self._data.name}: an adversary trains on others than those he looks for, and each "
                f"{self._config.task.sensitive} in the training split is in the test split too: split the "
                "data by that label, or set sensitive: null"
            )
        return others

    def _dealt(self, seed: int) -> tuple[Tensor, Tensor]:
        adversary = self._config.adversary
        return reidentify.split_gallery(
            self._codes(self._test), gallery=adversary.gallery, probes=adversary.probes, seed=seed
        )

    def _codes(self, part: LabelledImages) -> Tensor:
        if self._config.task.sensitive is None:
            raise ConfigError("attacks need task.sensitive: name the label that must stay hidden")
        return part.label(self._config.task.sensitive).codes

    def _release(self, cell: Cell, clean: Tensor, stream: int, number: int = 0) -> Release:
        return parse(cell.protection).release(clean, seeded_noise(cell.seed, stream, number))

    def _shuffled(self, seed: int) -> Tensor:
        return torch.randperm(len(self._test), generator=torch.Generator().manual_seed(seed))

    def _path(self, kind: str, settings: dict[str, Any]) -> Path:
        digest = digest_of({"results": RESULTS, "kind": kind, "data": self._data.digest, **settings})
        return self._models / f"{kind}-{digest}.safetensors"


def _as_uris(batch: Tensor) -> list[str]:
    return ["data:image/png;base64," + base64.b64encode(images.encode(image)).decode() for image in batch]


def _versions() -> dict[str, str]:
    return {
        "sfumato": sfumato.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "threads": str(torch.get_num_threads()),
        "machine": f"{sys.platform} {platform.machine()}",
    }
