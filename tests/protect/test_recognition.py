"""What is known of releases: the laws of their noise, and how seldom an honest one is suspected."""

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
from pictures import photographs, worst

from sfumato.dp.mechanisms import seeded_noise
from sfumato.protect import Release, parse
from sfumato.protect.recognition import Law, chances, lacks_noise
from sfumato.protect.release import cell_of
from sfumato.serve.tripwire import FALSE_ALARM

CELLS = (2, 3, 4, 6, 8, 11, 14, 21, 28, 42)
AT_CELLS = [
    f"{kind}:cell={cell},{rest}"
    for cell in CELLS
    for kind, rest in [
        *(("dp-pix", f"epsilon={epsilon}") for epsilon in (0.1, 1, 3, 10)),
        *(("dp-pix", "epsilon=3,pixels=16"), ("dp-pix", "epsilon=3,variant=published")),
        *(("dp-pix-gaussian", f"rho={rho}") for rho in (0.01, 0.5, 5)),
    ]
]


def released(spec: str, clean: torch.Tensor, seed: int = 0) -> Release:
    return parse(spec).release(clean, seeded_noise(seed))


def flat(values: np.ndarray) -> Release:
    return Release(torch.from_numpy(values), "", (values.shape[2], values.shape[3]))


def test_of_twenty_thousand_honest_releases_none_is_refused_and_few_are_thought_improbable(shared_data: Path):
    """At FALSE_ALARM none is expected. Of what is stated to come once in x, at most 1 in x may be seen."""
    faces = photographs(shared_data, "lfw_faces_84", 150)
    sets = [faces, faces[:50, :1].contiguous(), worst(side=84)]
    sets.append(photographs(shared_data, "cifar10_jpeg_subset", 60))
    stated = []
    for number, spec in enumerate([*AT_CELLS, "gaussian:sigma=3", "gaussian:sigma=40", "gaussian:sigma=160"]):
        protection = parse(spec)
        for clean in sets:
            if clean.shape[2] >= 2 * cell_of(protection):
                law = protection.law(tuple(clean.shape[1:]))  # type: ignore[attr-defined]
                stated.append(chances(released(spec, clean, seed=number), law)[0])
    alone = np.concatenate(stated)
    assert len(alone) >= 20_000
    assert alone.min() > FALSE_ALARM
    for bound in (0.1, 0.01, 0.001):
        assert (alone <= bound).mean() <= bound


@pytest.mark.parametrize("law", [Law("laplace", 16.0), Law("normal", 40.0), Law("laplace", 2.0)])
@pytest.mark.parametrize("level", [0, 3, 128])
def test_noise_of_a_law_on_a_flat_image_passes_also_at_the_ends_of_the_range(law: Law, level: int):
    # A false alarm, of one image in a million at most, is far rarer than 60 draws can show.
    random = np.random.default_rng(0)
    draw = random.laplace if law.kind == "laplace" else random.normal
    values = np.rint(level + draw(0, law.scale, (60, 3, 21, 21))).clip(0, 255).astype(np.uint8)
    assert all(lacks_noise(flat(image[None]), law, false_alarm=FALSE_ALARM) is None for image in values)


def test_a_law_is_that_of_what_is_drawn():
    """Against a million draws: within 5 standard errors of each probability."""
    for spec in (
        *("dp-pix:cell=1,epsilon=178", "dp-pix:cell=3,epsilon=20", "dp-pix-gaussian:cell=1,rho=8000"),
        *("dp-pix-gaussian:cell=2,rho=300", "gaussian:sigma=3"),
    ):
        grey = torch.full((1, 1, 1000, 1000), 128, dtype=torch.uint8)
        release = released(spec, grey)
        law = parse(spec).law((1, 1000, 1000))  # type: ignore[attr-defined]
        values = release.values[:, :, : 1000 // release.cell, : 1000 // release.cell].flatten()
        for level in range(120, 137):
            expected = float(law.below(np.array([level + 0.5 - 128]))[0])
            error = 5 * (expected * (1 - expected) / len(values)) ** 0.5 + 1e-9
            seen = (values <= level).double().mean().item()
            assert seen == pytest.approx(expected, abs=error), (spec, level)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("spec", ["dp-pix:cell=8,epsilon=3", "dp-pix-gaussian:cell=8,rho=2,pixels=3"])
def test_the_law_has_the_deviation_of_what_is_drawn_for_as_many_channels(spec: str, channels: int):
    """20,000 values far from both clamps: six standard errors are 5% of Laplace noise, 3% of normal noise."""
    side = 8 * int((20_000 / channels) ** 0.5)
    grey = torch.full((1, channels, side, side), 128, dtype=torch.uint8)
    protection = parse(spec)
    drawn = protection.release(grey, seeded_noise(0)).values.double().std().item()
    law = protection.law((channels, side, side))  # type: ignore[attr-defined]
    stated = law.scale * (2**0.5 if law.kind == "laplace" else 1)
    assert drawn == pytest.approx((stated**2 + 1 / 12) ** 0.5, rel=0.05)  # rounding adds 1/12


def test_an_image_of_one_row_says_nothing():
    row = flat(np.zeros((1, 1, 1, 9), np.uint8))
    assert lacks_noise(row, Law("normal", 40.0), false_alarm=FALSE_ALARM) is None


def test_an_image_is_suspected_from_twice_its_chance_on():
    """Half of what may be a false alarm is for images by themselves, half for all together."""
    half_the_noise = np.random.default_rng(0).normal(128, 20, (1, 1, 12, 12))
    release, law = flat(np.rint(half_the_noise).astype(np.uint8)), Law("normal", 40.0)
    _, chance = chances(release, law)
    assert 1e-9 < chance < 0.1
    assert lacks_noise(release, law, false_alarm=2 * chance) == "image 1 has less noise than that has"
    assert lacks_noise(release, law, false_alarm=1.9 * chance) is None


def test_one_flat_image_among_honest_ones_is_named_and_so_are_many_that_each_lack_little():
    law, random = Law("normal", 40.0), np.random.default_rng(0)
    honest = random.normal(128, 40, (60, 1, 12, 12)).round().clip(0, 255).astype(np.uint8)
    honest[7] = 128
    assert chances(flat(honest), law)[1] > 0.01
    assert lacks_noise(flat(honest), law, false_alarm=1e-6) == "image 8 has less noise than that has"
    weak = random.normal(128, 32, (400, 1, 6, 6)).round().clip(0, 255).astype(np.uint8)
    assert chances(flat(weak), law)[0].min() > 1e-6
    assert lacks_noise(flat(weak), law, false_alarm=1e-6) is not None


@pytest.mark.parametrize("law", [Law("laplace", 1.5, 3), Law("normal", 1.5, 3), Law("normal", 70.0, 3)])
def test_the_law_of_whole_steps_is_the_sum_of_their_probabilities(law: Law):
    steps = np.arange(-6000, 6001)
    sizes = np.abs(steps) / (law.scale * law.steps)
    chance = np.exp(-sizes if law.kind == "laplace" else -(sizes**2) / 2)
    chance /= chance.sum()
    values = np.array([-250, -4, -1, -0.5, -1 / 3, -0.1, 0, 0.1, 1 / 3, 0.5, 1, 4, 250])
    assert law.below(values) == pytest.approx([chance[steps < 3 * v].sum() for v in values], abs=1e-6)


@pytest.mark.parametrize("law", [Law("normal", 20.0), Law("laplace", 12.0)])
def test_chances_are_those_of_their_definition_value_by_value(law: Law):
    """Each in a loop of its own: the neighbours, the nearness over clean values, the shares, the bounds."""
    random = np.random.default_rng(1)
    noisy = np.array([3, 128, 250])[:, None, None, None] + random.normal(0, 3, (3, 2, 6, 8))
    values = np.rint(noisy).clip(0, 255).astype(np.uint8)
    release = Release(values, "", (11, 15), cell=2)  # the last row and column are of cells that are not whole
    clean = np.arange(0, 255.5, 0.5)[:, None]
    edges = law.below(np.arange(255) + 0.5 - clean)
    every = np.diff(edges, prepend=0, append=1)
    inner = every[:, 1:255] / every[:, 1:255].sum(1, keepdims=True)
    near: dict[str, list[list[float]]] = {"all": [], "free": []}
    for image in values[:, :, :5, :7].astype(int):
        rows: dict[str, list[float]] = {"all": [], "free": []}
        differences: list[np.ndarray] = []
        for plane in image:
            edged = np.pad(plane, 1, mode="reflect")
            around = sum(np.roll(edged, *turn) for turn in ((1, 0), (-1, 0), (1, 1), (-1, 1)))[1:-1, 1:-1] / 4
            guess = np.rint(around + (np.mean(differences, 0) if differences else 0)).clip(0, 255).astype(int)
            differences.append(plane - around)
            for y, x in np.argwhere(np.indices(plane.shape).sum(0) % 2):
                low, high = (guess[y, x] + side * abs(plane[y, x] - guess[y, x]) for side in (-1, 1))
                rows["all"].append(every[:, max(low, 0) : high + 1].sum(1).max())
                if 0 < plane[y, x] < 255:
                    rows["free"].append(inner[:, max(low - 1, 0) : high].sum(1).max())
        for kind, row in rows.items():
            near[kind].append(row)

    def chance(kinds: dict[str, list[float]]) -> float:
        bounds = [1.0]
        for row in kinds.values():
            for level in (0.02, 0.1, 0.3, 0.6):
                share = np.mean(np.array(row) <= level) if row else 0
                if share > level:
                    divergence = scipy.stats.entropy([share, 1 - share], [level, 1 - level])
                    bounds.append(8 * np.exp(-len(row) * divergence))
        return min(bounds)

    alone, together = chances(release, law)
    assert alone == pytest.approx([chance({kind: rows[i] for kind, rows in near.items()}) for i in range(3)])
    assert together == pytest.approx(chance({kind: list(chain(*rows)) for kind, rows in near.items()}))
    assert together < alone.min() < 0.1
