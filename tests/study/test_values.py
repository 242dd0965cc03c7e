"""The adversaries on values in a study: what they read of a release, and that they find what is there."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import eigh
from scipy.spatial.distance import pdist
from scipy.stats import binom, multivariate_normal
from sklearn.svm import SVC

from sfumato import data
from sfumato.attack import ensemble, plda
from sfumato.attack.ensemble import GALLERY, OTHERS, PROBES
from sfumato.data.labelled import Label, LabelledImages
from sfumato.protect.code import Code
from sfumato.study import cells as kinds
from sfumato.study import grid
from sfumato.study.cells import Cell
from sfumato.study.lab.lab import Lab, Progress
from sfumato.study.measure import attack, proofs
from sfumato.study.measure.results import Proved

SPECS = ["pixelize:cell=4", "gaussian:sigma=40", "dp-pix:cell=4,epsilon=30", "blur:radius=1", "block:share=1"]

measure = attack.VALUES.measure
EPISODE = {"way": 2, "shot": 1, "queries": 1}


def portraits(people: int = 40, each: int = 8, side: int = 32) -> LabelledImages:
    """Grey images of people: sixteen squares of brightness, which differ by person and a little by image."""
    draw = torch.Generator().manual_seed(0)
    codes = torch.arange(people).repeat_interleave(each)
    squares = 128 + 25 * torch.randn(people, 3, 4, 4, generator=draw)[codes]
    squares = squares + 8 * torch.randn(len(codes), 3, 4, 4, generator=draw)
    pixels = squares.repeat_interleave(side // 4, 2).repeat_interleave(side // 4, 3)
    label = Label(codes, tuple(f"p{code:02d}" for code in range(people)))
    rows = torch.arange(len(codes))
    splits = {"train": rows[codes < people // 2], "test": rows[codes >= people // 2]}
    images = pixels.clamp(0, 255).to(torch.uint8)
    return LabelledImages("portraits", images, {"identity": label, "class": label}, splits)


def lab(directory: Path, loaded: LabelledImages | None = None, **adversary: int) -> Lab:
    settings = {
        "data": "portraits",
        "task": {"target": "class", "sensitive": "identity", **EPISODE},
        "protections": SPECS,
        "learners": ["protected"],
        "training": {**EPISODE, **{f"validation_{name}": size for name, size in EPISODE.items()}},
        "adversary": {"known": 4, "probes": 4, "copies": 2, **adversary},
    }
    return Lab(grid.parse(settings), loaded or portraits(), directory, Progress())


def cell(spec: str) -> Cell:
    return Cell("attack", spec, 0, (("attack", "reidentify-values"),))


def top1(result: dict[str, Any]) -> dict[str, float]:
    return {score["classifier"]: score["top1"] for score in result["scores"]}


@pytest.fixture(scope="module")
def faces() -> LabelledImages:
    """Drawn faces of 16 pixels, 9 of each person; the class is who it is."""
    drawn = data.load("faces", identities=300, images_per_identity=9, size=16)
    labels = {"identity": drawn.label("identity"), "class": drawn.label("identity")}
    return LabelledImages("faces", drawn.images, labels, drawn.splits)


def seen(study: Lab, spec: str) -> tuple[np.ndarray, ...]:
    """Releases of the training people, of the gallery and of the probes, and who they are, by plain code."""

    def released(images: torch.Tensor, stream: int, copies: int) -> np.ndarray:
        copies = copies if spec.startswith("dp-pix") else 1
        drawn = [study.release(cell(spec), images, stream, number).values for number in range(copies)]
        return torch.stack(drawn).flatten(2).double().numpy() / 255

    others, people = study.adversaries.others, study.adversaries.people
    gallery, probes = study.adversaries.deal(0)
    codes = people.label("identity").codes
    return (
        released(others.images, OTHERS, 2),
        others.label("identity").codes.numpy(),
        released(people.images[gallery], GALLERY, 2),
        codes[gallery].numpy(),
        released(people.images[probes], PROBES, 1)[0],
        codes[probes].numpy(),
    )


@pytest.mark.parametrize("spec", ["pixelize:cell=4", "dp-pix:cell=4,epsilon=30"])
def test_plda_written_anew_by_scipy_gives_the_same_figure_on_the_same_releases(tmp_path, faces, spec):
    """Closed form of equal numbers of photographs; densities of a probe given the mean of a gallery."""
    study = lab(tmp_path, faces)
    others, names, known, who, asked, truth = seen(study, spec)
    flat = others.reshape(-1, others.shape[2])
    gallery, _ = study.adversaries.gallery(cell(spec))
    model = plda.choose_reading(*gallery.learn_from(most=20_000, copies=2), attack.readings(gallery))[2]
    assert model is not None
    axes = np.linalg.svd(flat - flat.mean(0), full_matrices=False)[2][: len(model.between)]
    x = (others - flat.mean(0)) @ axes.T  # (copies, N, d)
    groups = np.stack([copy[names == code] for copy in x for code in np.unique(names)])  # (I, 9, d)
    inner = groups - groups.mean(1, keepdims=True)
    w = np.einsum("inj,ink->jk", inner, inner) / (len(groups) * 8)
    # Where means differ less than photographs would make them, B is 0, and all that varies is W.
    differ, vectors = eigh(np.cov(groups.mean(1).T, bias=True), w)
    between = (differ - 1 / 9).clip(0)
    within = np.where(between > 0, 1, (8 + 9 * differ) / 9)
    back = np.linalg.inv(vectors)
    b, w = back.T * between @ back, back.T * within @ back
    probes = (asked - flat.mean(0)) @ axes.T
    enrolled = (known.mean(0) - flat.mean(0)) @ axes.T
    densities = []
    for code in np.unique(who):
        rows = enrolled[who == code]
        gain = b @ np.linalg.inv(b + w / len(rows))
        densities.append(multivariate_normal.logpdf(probes, gain @ rows.mean(0), b + w - gain @ b))
    expected = (np.unique(who)[np.argmax(densities, 0)] == truth).mean()
    assert top1(measure(study, cell(spec)))["plda"] == pytest.approx(expected, abs=0.005)
    assert 0.1 < expected < 0.9


def test_the_machine_of_scikit_learn_gives_the_same_figure_on_the_same_releases(tmp_path: Path):
    study = lab(tmp_path, portraits(120))
    spec = "dp-pix:cell=4,epsilon=0.5"
    _, _, known, who, asked, truth = seen(study, spec)
    flat = known.reshape(-1, known.shape[2])
    machine = SVC(C=10, gamma=1 / np.median(pdist(flat, "sqeuclidean"))).fit(flat, np.tile(who, 2))
    expected = (machine.predict(asked) == truth).mean()
    assert top1(measure(study, cell(spec)))["rbf"] == pytest.approx(expected, abs=0.005)
    assert 0.1 < expected < 0.9


@pytest.mark.parametrize("spec", SPECS[:4])
def test_people_whose_cells_differ_are_named_and_figures_repeat(tmp_path: Path, spec: str):
    result = measure(lab(tmp_path), cell(spec))
    named = top1(result)
    assert max(named.values()) > 0.9
    assert result["chance"] == 1 / 20
    plda = next(share for name, share in named.items() if name.partition(",")[0] == "plda")
    assert plda > 0.8
    assert not spec.startswith("dp-pix") or measure(lab(tmp_path), cell(spec)) == result


def test_a_black_image_names_nobody(tmp_path: Path):
    result = measure(lab(tmp_path), cell("block:share=1"))
    assert max(top1(result).values()) <= 1 / 20
    assert not [name for name in top1(result) if name.startswith("plda")]  # there is nothing to learn


def test_large_releases_are_read_as_means_which_is_recorded_beside_the_names_that_all_seeds_share(tmp_path):
    study = lab(tmp_path)
    small, large = (measure(study, cell(spec))["scores"] for spec in (SPECS[0], "blur:radius=1"))
    assert {score.get("reading", "") for score in small} == {""}
    assert {score["reading"] for score in large} == {"2x2 means"}  # 3,072 numbers are above 2,048
    assert {score["classifier"] for score in large} == {score["classifier"] for score in small} - {"table"}


def test_noise_on_every_pixel_is_read_as_means_over_larger_squares_as_well(tmp_path: Path):
    study = lab(tmp_path)
    readings = {spec: list(attack.readings(study.adversaries.gallery(cell(spec))[0])) for spec in SPECS[:4]}
    assert readings == {
        "pixelize:cell=4": [""],
        "gaussian:sigma=40": [", on 2x2 means", ", on 4x4 means"],
        "dp-pix:cell=4,epsilon=30": [""],  # its noise falls on cells
        "blur:radius=1": [", on 2x2 means"],
    }


def test_of_two_readings_that_is_used_by_which_people_are_named_who_were_held_out(tmp_path: Path):
    study = lab(tmp_path)
    learned, others = study.adversaries.gallery(cell(SPECS[0]))[0].learn_from(most=20_000, copies=2)
    draw = torch.Generator().manual_seed(0)
    nothing = torch.rand(len(others), 3, generator=draw)
    readings = {"nothing": lambda released: nothing, "": attack.means(1)}
    words, reading, model = plda.choose_reading(learned, others, readings)
    assert (words, reading) == ("", readings[""])
    assert model is not None


def everybody() -> LabelledImages:
    """Portraits of 40 people: 16 train, 4 validate, 16 are tested, and 4 are in no split."""
    data = portraits()
    codes, rows = data.label("identity").codes, torch.arange(len(data))
    parts = {"train": codes < 16, "validation": (codes >= 16) & (codes < 20), "test": codes >= 24}
    return replace(data, splits={name: rows[part] for name, part in parts.items()})


def test_all_people_who_are_not_looked_for_teach_an_adversary_or_as_many_as_are_asked_for(tmp_path: Path):
    every, ten = (lab(tmp_path, everybody(), **own).adversaries.others for own in ({}, {"others": 10}))
    assert every.classes("identity").tolist() == list(range(24))
    assert len(ten.classes("identity")) == 10
    fewer = lab(tmp_path, everybody(), others=6).adversaries.others.classes("identity")
    assert set(fewer.tolist()) < set(ten.classes("identity").tolist())  # a curve adds people
    result = measure(lab(tmp_path, everybody(), others=10), cell(SPECS[0]))
    assert (result["others"], result["gallery"], result["identities"]) == (10, 64, 16)


def test_who_is_for_adversaries_alone_changes_their_records_and_no_others(tmp_path: Path):
    whole = everybody()
    part = whole.rows(torch.cat([*whole.splits.values()]).sort().values)
    ends = {"train": (0, 128), "validation": (128, 160), "test": (160, 288)}
    without = replace(part, splits={name: torch.arange(*rows) for name, rows in ends.items()})
    cells = Cell("accuracy", SPECS[0], 0, (("learner", "protected"),)), cell(SPECS[0])
    first, second = ([kinds.digest(lab(tmp_path, data), each) for each in cells] for data in (whole, without))
    assert [one == other for one, other in zip(first, second, strict=True)] == [True, False]


@pytest.mark.parametrize("change", ["known", "probes", "copies", "steps", "batch"])
def test_what_decides_the_figures_is_in_the_digest_and_no_more(tmp_path, change):
    before, after = (kinds.digest(lab(tmp_path, **own), cell(SPECS[0])) for own in ({}, {change: 3}))
    assert (before != after) == (change in ("known", "probes", "copies"))


def test_of_too_many_training_images_some_people_are_learned_from(tmp_path, monkeypatch):
    monkeypatch.setattr(ensemble, "_LEARNED", 100)
    result = measure(lab(tmp_path), cell(SPECS[2]))
    assert result["learned_from"] == 12 * 8  # of 20 people with 8 photographs each


def test_few_outputs_prove_how_sure_anybody_can_be_and_random_bits_leave_a_guess(tmp_path, monkeypatch):
    def release(images: torch.Tensor, noise: Any) -> Any:
        return SimpleNamespace(vectors=lambda: (images.float().mean((1, 2, 3)) > 128).float()[:, None])

    study, protection = lab(tmp_path), SimpleNamespace(outputs=2, release=release)
    monkeypatch.setattr(study, "protection_of", lambda spec, seed: protection)

    def measured() -> Proved:
        counted = proofs._count_outputs(study, Cell("proved", "answer", 0))
        return Proved(release="bits", bytes_per_image=1, **counted)

    of_each = study.adversaries.others.images[::8]  # the first of each person's eight
    ones = int(protection.release(of_each, None).vectors().sum())
    end = measured().rarest  # with a chance of 0.05 / 2 it is above the share of the population
    assert binom.sf(min(ones, 20 - ones) - 1, 20, end) == pytest.approx(0.05 / 2)
    assert measured().surest(1_000) == pytest.approx(1 / (1_000 * end))
    protection.outputs = 4  # of which two occur: the others may be of one person
    assert measured().surest(10**9) is None
    protection.outputs, protection.laws = 2, Code("bit.safetensors", epsilon=1e-6).laws
    assert measured().surest(1_000) == pytest.approx(1 / 1_000, rel=1e-5)
