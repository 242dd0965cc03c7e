"""What is left to see of an image: similarities of its views, pictures, examples, and reconstructions."""

import base64
import math
from typing import Any

from torch import Tensor

from sfumato import images
from sfumato.base.registry import load
from sfumato.protect.release import artefact_digest
from sfumato.study.cells import Cell, Facts, Kind
from sfumato.study.grid import StudyConfig
from sfumato.study.lab.lab import Lab
from sfumato.study.lab.trained import semsim_settings, train_few_shot, train_semsim
from sfumato.study.vocabulary import IMAGES, MEASURES, RECONSTRUCTIONS, release_kind, split_measure, views_of

_IMAGES = 100  # the paper measures SSIM over 100 test images
_REBUILT, _SHOWN = 100, 4
_EXAMPLES, _AMONG = 6, 48  # examples, and images of which those with different words come first
_NUMBERS = 8  # of a code or a feature that are written out


def view_release(lab: Lab, cell: Cell, release: Any, view: str) -> Tensor:
    """(N, C, H, W) uint8 images: a view of a release, by its name in vocabulary.VIEWS."""
    shown: Tensor = release.shapes() if view == "shape" else release.images()
    if view == "denoised":
        return train_few_shot(lab, cell.protection, cell.seed, "denoised").denoise(shown)
    return shown


# How much of an image is left in its release, or in a denoised one


def _similarity_cells(config: StudyConfig, spec: str, seed: int) -> list[Cell]:
    return [Cell("similarity", spec, seed, (("view", view),)) for view in views_of(config, spec)]


def _similarity_settings(lab: Lab, cell: Cell) -> Facts:
    view, decided = cell.subject, _measure_settings(lab)
    if view == "denoised":
        decided |= lab.training_settings()
    return decided


def _measure_settings(lab: Lab) -> Facts:
    """The study's measures; their files count by content, and what the study trains by its settings."""
    pairs = [split_measure(each) for each in lab.config.measures]
    decided: Facts = {"measures": [name for name, _ in pairs]}
    if files := [artefact_digest(file) for _, file in pairs if file]:
        decided["files"] = files
    if ("face-similarity", "") in pairs:
        decided["faces"] = lab.adversaries.of_clear()
    return decided | (semsim_settings(lab) if ("semsim", "") in pairs else {})


def _measure_similarity(lab: Lab, cell: Cell) -> Facts:
    rows = lab.some_of_the_test(_IMAGES, cell.seed)
    clean = lab.test.images[rows]
    shown = view_release(lab, cell, lab.release(cell, clean), cell.subject)
    result: Facts = {"images": len(rows), **compare_images(lab, cell, rows, shown)}
    if cell.subject == "released":
        result["bytes_per_image"] = lab.release(cell, clean[:1]).bytes_per_image
        result["guarantee"] = lab.guarantee(cell)
    return result


def compare_images(lab: Lab, cell: Cell, rows: Tensor, shown: Tensor) -> dict[str, float | None]:
    """Name -> mean of the study's measures, for rows of test images and (N, C, H, W) uint8 counterparts."""
    means: dict[str, float | None] = {}
    for named in lab.config.measures:
        name, file = split_measure(named)
        if name == "face-similarity":
            alike, strangers = lab.adversaries.face_similarity(lab.test.rows(rows), shown, cell.seed)
            means |= {name: alike, "face-similarity_of_two": strangers}
            continue
        function: Any = MEASURES[name].function
        if isinstance(function, str):
            function = load(function)
        if MEASURES[name].of_file:
            function = function(file or train_semsim(lab))
        clean = images.to_float(lab.test.images[rows])
        mean = function(clean, images.to_float(shown)).mean().item()
        means[name] = mean if math.isfinite(mean) else None
    return means


# Some test images as they are, as they leave the device, and as they are denoised


def _picture_cells(config: StudyConfig, spec: str, seed: int) -> list[Cell]:
    return [Cell("pictures", spec, seed)] if config.pictures and release_kind(spec) in IMAGES else []


def _picture_settings(lab: Lab, cell: Cell) -> Facts:
    config = lab.config
    views = ["released", "denoised"] if "denoised" in config.learners else ["released"]
    return {"pictures": config.pictures, "views": views, **lab.training_settings()}


def _measure_pictures(lab: Lab, cell: Cell) -> Facts:
    config = lab.config
    clean = lab.test.images[lab.some_of_the_test(config.pictures, cell.seed)]
    release = lab.release(cell, clean)
    views = views_of(config, cell.protection)
    shown = {view: _as_uris(view_release(lab, cell, release, view)) for view in views}
    return {"original": _as_uris(clean), "denoised": None, **shown}


def _as_uris(batch: Tensor) -> list[str]:
    return ["data:image/png;base64," + base64.b64encode(images.encode(image)).decode() for image in batch]


# A few test images and their releases by the recommended setting, for the first screen of a report


def list_examples(config: StudyConfig, spec: str | None) -> list[Cell]:
    """One, of the first seed; none without a recommendation, or if a study wants no pictures."""
    wanted = config.pictures and spec not in (None, "none")
    return [Cell("examples", spec, config.seeds[0])] if spec and wanted else []


def _measure_examples(lab: Lab, cell: Cell) -> Facts:
    """Releases the images of a few different people if there are people, else of any.

    Of short codes and answers those that differ come first, or all six may have one bit.
    """
    rows = _rows_of_people(lab, cell.seed)
    if release_kind(cell.protection) in IMAGES:
        clean = lab.test.images[rows[:_EXAMPLES]]
        pairs = zip(_as_uris(clean), _as_uris(lab.release(cell, clean).images()), strict=True)
        return {"examples": [{"original": one, "released": other} for one, other in pairs]}
    clean = lab.test.images[rows[:_AMONG]]
    written = _in_words(lab.release(cell, clean))
    first = {words: row for row, words in reversed(list(enumerate(written)))}
    shown = sorted(range(len(written)), key=lambda row: first[written[row]] != row)[:_EXAMPLES]
    originals = zip(_as_uris(clean[shown]), shown, strict=True)
    return {"examples": [{"original": one, "words": written[row]} for one, row in originals]}


def _rows_of_people(lab: Lab, seed: int) -> list[int]:
    order = lab.shuffle(len(lab.test), seed).tolist()
    sensitive = lab.config.task.sensitive
    if sensitive is None:
        return order
    people = lab.test.label(sensitive).codes.tolist()
    first = {people[row]: row for row in reversed(order)}  # of each person
    return sorted(order, key=lambda row: first[people[row]] != row)


def _in_words(release: Any) -> list[str]:
    if release.kind == "answer":
        return list(release.names)
    if release.kind == "bits":
        rows = ["".join("1" if bit else "0" for bit in row) for row in release.values.tolist()]
        return [" ".join(row[i : i + 4] for i in range(0, len(row), 4)) for row in rows]
    more = " ..." if release.values.shape[1] > _NUMBERS else ""
    return [" ".join(f"{each:.2f}" for each in row[:_NUMBERS]) + more for row in release.values.tolist()]


# Reconstructions by an adversary whose decoder draws the image behind released numbers


def _reconstruction_cells(config: StudyConfig, spec: str, seed: int) -> list[Cell]:
    kind = release_kind(spec)
    return [
        Cell("reconstruction", spec, seed, (("attack", name),))
        for name in config.reconstructions
        if spec != "none" and kind in RECONSTRUCTIONS[name].releases
    ]


def _reconstruction_settings(lab: Lab, cell: Cell) -> Facts:
    shown = {} if lab.config.pictures else {"shown": 0}
    return {**_measure_settings(lab), **shown, **lab.adversaries.inverting()}


def _measure_reconstruction(lab: Lab, cell: Cell) -> Facts:
    rows = lab.some_of_the_test(_REBUILT, cell.seed)
    clean = lab.test.images[rows]
    rebuilt = lab.adversaries.inverter(cell).restore(lab.release(cell, clean).vectors())
    shown = _SHOWN if lab.config.pictures else 0
    return {
        "measures": compare_images(lab, cell, rows, rebuilt),
        "images": len(rows),
        "originals": _as_uris(clean[:shown]),
        "pictures": _as_uris(rebuilt[:shown]),
    }


SIMILARITY = Kind(_similarity_cells, _similarity_settings, _measure_similarity)
PICTURES = Kind(_picture_cells, _picture_settings, _measure_pictures)
# None in advance: images of people are recorded for the page that shows them, and not for others.
EXAMPLES = Kind(
    lambda config, spec, seed: [],
    lambda lab, cell: {"examples": _EXAMPLES, "among": _AMONG},
    _measure_examples,
)
RECONSTRUCTION = Kind(_reconstruction_cells, _reconstruction_settings, _measure_reconstruction)
