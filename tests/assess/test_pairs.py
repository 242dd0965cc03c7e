import csv
import json
import math
import os
import re
import tracemalloc
import weakref
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from scipy import stats

from sfumato import images
from sfumato.assess import pairs, similarity
from sfumato.assess.frechet import frechet_distance
from sfumato.assess.pairs import PIXELS, Measure, OfSqueezeNet, Pair, Pairs, Scores, find, measure
from sfumato.assess.perceptual import Perceptual
from sfumato.base.engines import EngineConfig
from sfumato.device.jobs.folder import FolderConfig, protect_folder
from sfumato.errors import ConfigError, DataError
from sfumato.networks import MTCNN, MobileFaceNet, SqueezeNet
from sfumato.protect import parse

MSE, PSNR, SSIM = PIXELS


def picture(seed: int, shape: tuple[int, int, int] = (3, 20, 17)) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, shape, generator=generator).to(torch.uint8)


def fill(folder: Path, **pictures: torch.Tensor) -> Path:
    """Write pictures; "--" in a name is the folder it lies in."""
    for name, image in pictures.items():
        images.write(folder / f"{name.replace('--', '/')}.png", image)
    return folder


@pytest.fixture
def photos(tmp_path):
    pictures = {"a": 0, "b": 1, "anna__c": 2, "anna--d": 3}
    return fill(tmp_path / "photos", **{name: picture(seed) for name, seed in pictures.items()})


def others_of(photos: Path, folder: Path, change) -> Path:
    """The photographs of a folder, changed, under the same names."""
    for path in photos.rglob("*.png"):
        images.write(folder / path.relative_to(photos), change(images.read(path, channels=None)))
    return folder


# Which images make a pair


def test_images_pair_by_their_path_without_the_suffix(tmp_path, photos):
    others = tmp_path / "others"
    others.mkdir()
    for path in photos.rglob("*.png"):
        to = (others / path.relative_to(photos)).with_suffix(".webp")
        to.parent.mkdir(exist_ok=True)
        Image.open(path).save(to)
    found = find(photos, others)
    assert [pair.name for pair in found.rows] == ["a", "anna/d", "anna__c", "b"]
    assert found.rows[1] == Pair("anna/d", f"{photos}/anna/d.png", f"{others}/anna/d.webp")
    assert (found.alone, found.spec, found.cell) == (0, None, 1)


def test_hidden_files_and_files_that_are_no_images_are_passed_over_and_dots_are_no_suffixes(tmp_path, photos):
    others = others_of(photos, tmp_path / "others", lambda image: image)
    fill(others, **{".hidden": picture(0), ".thumbs--a": picture(0)})
    (others / "notes.txt").write_text("")
    assert len(find(photos, others).rows) == 4
    ours = fill(tmp_path / "ours", **{"1.5": picture(0), "1.6": picture(1)})
    assert [pair.name for pair in find(ours, ours).rows] == ["1.5", "1.6"]


def test_images_without_a_partner_are_counted_and_three_are_named_or_those_that_pair_are_taken(
    tmp_path, photos
):
    others = fill(tmp_path / "others", b=picture(0), y=picture(0), z=picture(0))
    with pytest.raises(
        DataError,
        match=r"3 of 4 images in .*photos and 2 of 3 in .*others have no partner of the same name, such as "
        r"a, anna/d, anna__c: compare only the pairs with --common",
    ):
        find(photos, others)
    found = find(photos, others, common=True)
    assert ([pair.name for pair in found.rows], found.alone) == (["b"], 5)
    (others / "b.png").unlink()
    with pytest.raises(DataError, match="such as a, anna/d, anna__c: name folders with the same file names"):
        find(photos, others, common=True)


def test_two_images_of_one_name_and_folders_that_are_not_there_or_empty_are_refused(tmp_path, photos):
    with pytest.raises(DataError, match="gone: no such folder"):
        find(photos, tmp_path / "gone")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty: no images, by their suffixes"):
        find(tmp_path / "empty", photos)
    images.write(photos / "a.jpg", picture(4))
    with pytest.raises(DataError, match=r"a\.(png|jpg) and a\.(png|jpg) have the same name"):
        find(photos, photos)


# Releases


def released(photos: Path, target: Path, spec: str, **settings: bool) -> Path:
    config, engine = FolderConfig(**settings), EngineConfig(workers=1)
    protect_folder(photos, target, parse(spec), target.parent / "l.db", config, engine=engine)
    return target


@pytest.mark.parametrize("spec", ["pixelize:cell=4", "dp-pix:cell=7,epsilon=3", "pixelize:cell=1/4"])
def test_a_release_in_cells_is_measured_as_its_receiver_sees_it(tmp_path, photos, spec):
    # The same ledger gives the same release, in cells and in pixels.
    cells = find(photos, released(photos, tmp_path / "cells", spec, cells=True))
    pixels = find(photos, released(photos, tmp_path / "pixels", spec))
    assert cells.cell == Fraction(re.search(r"cell=([\d/]+)", spec)[1])
    assert images.read(cells.rows[0].other).shape != (3, 20, 17)
    first, second = (measure(each, PIXELS).values for each in (cells, pixels))
    assert all(torch.equal(first[name], second[name]) for name in ("mse", "psnr", "ssim"))


def test_a_release_is_known_by_its_manifest_and_refused_if_it_is_damaged_or_says_other_names(
    tmp_path, photos
):
    others = released(photos, tmp_path / "out", "pixelize:cell=4")
    found = find(photos, others)
    assert (found.spec, found.cell, len(found.rows)) == ("pixelize:cell=4", 1, 4)
    (others / "manifest.json").write_text(json.dumps({"name": "an app"}))
    assert find(photos, others).spec is None
    (others / "manifest.json").write_text("{")
    with pytest.raises(DataError, match=r"manifest\.json: damaged"):
        find(photos, others)
    words = r"its files were renamed, so no release can be paired.*release again without --rename"
    with pytest.raises(DataError, match=words):
        find(photos, released(photos, tmp_path / "renamed", "none", rename=True))


# Measures


def test_every_pair_has_the_numbers_of_its_two_images(tmp_path, photos):
    others = others_of(photos, tmp_path / "others", lambda image: 255 - image)
    told: list[int] = []
    scores = measure(find(photos, others), PIXELS, report=told.append)
    assert told == [4]
    assert [pair.name for pair in scores.pairs] == ["a", "anna/d", "anna__c", "b"]
    assert scores.failures == []
    originals = images.to_float(torch.stack([picture(seed) for seed in (0, 3, 2, 1)]))
    for each in PIXELS:
        expected = each.of(originals, 1 - originals).double()
        torch.testing.assert_close(scores.values[each.name], expected)


def test_pairs_of_many_shapes_keep_their_order(tmp_path):
    shapes = [(3, 20, 17), (3, 20, 17), (1, 20, 17), (3, 12, 30), (3, 20, 17)]
    pictures = {f"p{number}": picture(number, shape) for number, shape in enumerate(shapes)}
    ours = fill(tmp_path / "ours", **pictures)
    others = fill(tmp_path / "others", **{name: image // 2 for name, image in pictures.items()})
    scores = measure(find(ours, others), [MSE])
    assert [pair.name for pair in scores.pairs] == [*pictures]
    both = ((images.to_float(image[None]), images.to_float(image[None] // 2)) for image in pictures.values())
    assert scores.values["mse"].tolist() == pytest.approx([similarity.mse(*each).item() for each in both])


def test_no_more_images_are_held_than_a_batch_and_one_pair(tmp_path, photos, monkeypatch):
    read, seen = [], []
    original = images.read
    monkeypatch.setattr(images, "read", lambda *a, **k: read.append(a) or original(*a, **k))
    monkeypatch.setattr(pairs, "_VALUES", 2 * 3 * 20 * 17)

    def watching(originals, others):
        seen.append((len(originals), len(read)))
        return torch.zeros(len(originals))

    measure(find(photos, photos), [Measure("watch", "watch", watching, 1)])
    assert seen == [(2, 6), (2, 8)]  # images in a batch, and files read until then


def test_the_channel_of_a_grey_image_is_repeated_beside_a_colour_one(tmp_path):
    grey, colour = picture(0, (1, 12, 12)), picture(1, (3, 12, 12))
    found = find(fill(tmp_path / "ours", a=grey), fill(tmp_path / "others", a=colour))
    expected = similarity.mse(*(images.to_float(each[None]) for each in (grey.expand(3, -1, -1), colour)))
    assert measure(found, [MSE]).values["mse"].tolist() == pytest.approx(expected.tolist())


def test_images_of_other_sizes_are_refused_by_name_or_brought_to_the_size_of_the_original(tmp_path):
    smooth = torch.linspace(0, 255, 40).to(torch.uint8).expand(3, 30, 40)
    ours = fill(tmp_path / "ours", a=smooth)
    small = np.asarray(Image.fromarray(smooth[0].numpy()).resize((20, 15), Image.Resampling.BOX))
    others = fill(tmp_path / "others", a=torch.from_numpy(small.copy()).expand(3, -1, -1))
    with pytest.raises(DataError, match=r"ours/a\.png has 30x40 pixels and .*others/a\.png 15x20: pass"):
        measure(find(ours, others), PIXELS)
    assert measure(find(ours, others), [PSNR], resize=True).values["psnr"].item() > 40


def test_a_pair_that_cannot_be_read_is_left_out_and_told_and_nothing_else_is_refused(tmp_path, photos):
    others = others_of(photos, tmp_path / "others", lambda image: image)
    (others / "a.png").write_bytes(b"dear diary")
    scores = measure(find(photos, others), [MSE])
    assert [pair.name for pair in scores.pairs] == ["anna/d", "anna__c", "b"]
    assert ["others/a.png" in failure for failure in scores.failures] == [True]
    with pytest.raises(DataError, match=r"none of 1 pairs could be read; the first: .*a\.png"):
        measure(Pairs([find(photos, others).rows[0]]), [MSE])
    small = fill(tmp_path / "small", a=picture(0, (3, 8, 8)))
    with pytest.raises(ConfigError, match=r"small/a\.png: SSIM needs images of at least 11x11"):
        measure(find(small, small), PIXELS)


@pytest.fixture(scope="module")
def squeezenet(tmp_path_factory):
    """A file of weights drawn by lot."""
    path = tmp_path_factory.mktemp("weights") / "squeezenet.safetensors"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save_file(SqueezeNet().state_dict(), path)
    return path


def test_the_features_of_the_distance_serve_the_frechet_distance_of_all(
    tmp_path, photos, squeezenet, monkeypatch
):
    others = others_of(photos, tmp_path / "others", lambda image: image // 2)
    of_squeezenet = OfSqueezeNet(squeezenet)
    monkeypatch.setattr(pairs, "_VALUES", 2 * 3 * 20 * 17)
    scores = measure(find(photos, others), [of_squeezenet.measure()])
    originals = torch.stack([picture(seed) for seed in (0, 3, 2, 1)])
    compared = Perceptual.of_squeezenet(squeezenet).compare(
        images.to_float(originals), images.to_float(originals // 2)
    )
    torch.testing.assert_close(scores.values["squeezenet"], compared.distances.double(), atol=1e-5, rtol=1e-4)
    expected = frechet_distance(compared.originals, compared.others)
    assert of_squeezenet.frechet().distance == pytest.approx(expected.distance, rel=1e-3)
    assert of_squeezenet.frechet().images == 4


@pytest.fixture(scope="module")
def portraits(shared_data):
    """Six photographs of LFW, 84x84."""
    packed = dict(np.load(shared_data / "lfw_faces_84.npz"))
    files = [packed["blob"][packed["offset"][i] : packed["offset"][i + 1]] for i in range(0, 1200, 200)]
    return torch.stack([images.read(file.tobytes()) for file in files])


@pytest.fixture(scope="module")
def recogniser(shared_data):
    return MobileFaceNet.load(shared_data / "weights" / "mobilefacenet_casia_112x96.safetensors")


@pytest.fixture(scope="module")
def detector(shared_data):
    return MTCNN.load(shared_data / "weights" / "mtcnn.safetensors")


def test_a_face_is_like_itself_and_less_like_itself_in_blocks_and_unlike_another(
    portraits, recogniser, detector
):
    of = pairs.face_similarity(recogniser, detector).of
    blocks = portraits[:, :, 1::3, 1::3].repeat_interleave(3, 2).repeat_interleave(3, 3)
    same, blocky, strangers = (
        of(images.to_float(portraits), images.to_float(each)).mean()
        for each in (portraits, blocks, portraits.roll(1, 0))
    )
    assert same == pytest.approx(1, abs=1e-5)
    assert strangers + 0.1 < blocky < 0.95
    assert strangers < 0.2


def test_faces_are_cut_where_the_original_has_them_and_without_one_there_is_no_number(
    portraits, recogniser, detector
):
    # Nothing is found on grey, and that counts for nothing.
    of, originals = pairs.face_similarity(recogniser, detector).of, images.to_float(portraits[:2])
    assert (of(originals, torch.full_like(originals, 0.5)).abs() < 0.5).all()
    grey = torch.cat([torch.full_like(originals[:1], 0.5), originals[1:]])
    assert of(grey, grey).isnan().tolist() == [True, False]


def test_without_a_detector_images_are_faces_already(portraits, recogniser):
    of = pairs.face_similarity(recogniser).of
    framed = portraits[:2, :, :70, :60]
    small = images.to_float(framed)
    large = torch.nn.functional.interpolate(small, (112, 96), mode="bilinear", antialias=True)
    first, second = recogniser.embed(images.to_uint8(large))
    assert of(small[:1], small[1:]).item() == pytest.approx(torch.dot(first, second).item(), abs=1e-5)
    grey = small[:, :1]
    torch.testing.assert_close(of(grey, small), of(grey.repeat(1, 3, 1, 1), small))


# What is said of all pairs


def scored(measure: Measure, values: list[float]) -> Scores:
    rows = [Pair(f"p{i}", Path(f"ours/p{i}.png"), Path(f"others/p{i}.png")) for i in range(len(values))]
    return Scores(rows, {measure.name: torch.tensor(values, dtype=torch.float64)}, [])


def test_the_interval_is_that_of_student():
    values = [0.1, 0.4, 0.2, 0.35]
    summary = pairs.summarise(scored(SSIM, values), SSIM)
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert (summary.mean, summary.low, summary.high) == pytest.approx((np.mean(values), low, high))
    assert summary.pairs == 4


@pytest.mark.parametrize(
    ("each", "worst"), [(SSIM, "p1"), (PSNR, "p1"), (MSE, "p0")], ids=["ssim", "psnr", "mse"]
)
def test_the_worst_pair_is_the_most_alike(each, worst):
    summary = pairs.summarise(scored(each, [0.1, 0.4, 0.2]), each)
    assert summary.worst is not None
    assert summary.worst.name == worst


def test_pairs_without_a_number_count_for_nothing_and_one_or_an_infinite_one_has_no_interval():
    summary = pairs.summarise(scored(SSIM, [0.2, math.nan, 0.4]), SSIM)
    assert (summary.pairs, summary.mean, summary.worst_value) == (2, pytest.approx(0.3), 0.4)
    one, nothing = (pairs.summarise(scored(SSIM, [value]), SSIM) for value in (0.2, math.nan))
    assert (one.pairs, one.mean, nothing.pairs, nothing.worst) == (1, 0.2, 0, None)
    equal = pairs.summarise(scored(PSNR, [20.0, math.inf, 30.0, math.inf]), PSNR)
    assert (equal.worst.name, equal.mean, equal.worst_value) == ("p1", math.inf, math.inf)
    assert all(math.isnan(value) for value in (one.low, nothing.mean, equal.low))


def test_the_table_has_a_line_a_pair_with_every_measure_and_names_as_they_came(tmp_path, photos):
    others = others_of(photos, tmp_path / "others", lambda image: image // 2)
    scores = measure(find(photos, others), PIXELS)
    pairs.write_table(tmp_path / "out" / "pairs.csv", scores)
    with (tmp_path / "out" / "pairs.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == ["a", "anna/d", "anna__c", "b"]
    assert rows[1]["original"] == rows[1]["other"] == "anna/d.png"
    for name, column in scores.values.items():
        assert [float(row[name]) for row in rows] == pytest.approx(column.tolist(), rel=1e-5)
    ours = fill(tmp_path / "ours", **{os.fsdecode(b"caf\xe9"): picture(0)})  # no text
    pairs.write_table(tmp_path / "pairs.csv", measure(find(ours, ours), [MSE]))
    assert b"\ncaf\xe9," in (tmp_path / "pairs.csv").read_bytes()


# Memory


def test_no_image_is_kept_when_the_next_ones_are_measured(monkeypatch, photos):
    monkeypatch.setattr(pairs, "_VALUES", 1)  # a pair at a time
    seen = []

    def of(originals, others):
        assert all(image() is None for image in seen)
        seen.extend(weakref.ref(image) for image in (originals, others))
        return torch.zeros(len(originals))

    measure(find(photos, photos), [Measure("none", "none", of, 1)])
    assert len(seen) == 8


def test_a_pair_that_was_found_takes_a_few_hundred_bytes(tmp_path):
    """Two paths and a name would take a thousand."""
    for number in range(3000):
        (tmp_path / f"image-{number:06d}.png").touch()
    tracemalloc.start()
    try:
        found = find(tmp_path, tmp_path)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found.rows) == 3000
    assert taken / 3000 < 600
