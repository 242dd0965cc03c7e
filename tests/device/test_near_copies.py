"""What is a near copy of what: by properties, on drawn pictures and on photographs."""

import io
from collections.abc import Callable

import numpy as np
import pytest
import torch
from charges import charge
from PIL import Image, ImageFilter, ImageOps
from scipy import ndimage
from torch import Tensor
from torch.nn.functional import grid_sample, interpolate

from sfumato import data, images
from sfumato.device.ledger import Ledger
from sfumato.device.ledger import near_copies as parts
from sfumato.device.ledger.budgets import Budget
from sfumato.device.ledger.near_copies import Fingerprint, fingerprints, near_copies
from sfumato.errors import BudgetExceededError, ImageError

MIRROR = Image.Transpose.FLIP_LEFT_RIGHT


def through(picture: Image.Image, format_name: str, quality: int) -> Image.Image:
    buffer = io.BytesIO()
    picture.save(buffer, format_name, quality=quality)
    return Image.open(buffer).convert(picture.mode)


def scaled(picture: Image.Image, by: float) -> Image.Image:
    return picture.resize((round(picture.width * by), round(picture.height * by)), Image.Resampling.BILINEAR)


def speckled(picture: Image.Image) -> Image.Image:
    values = np.array(picture)
    draw = np.random.default_rng(0)
    where = draw.random(values.shape[:2]) < 0.01
    values[where] = draw.integers(0, 256, values[where].shape)
    return Image.fromarray(values)


def cut(picture: Image.Image, share: float, at: float, size: int) -> Image.Image:
    kept = round(share * picture.width)
    corner = round((picture.width - kept) * at)
    return picture.crop((corner, corner, corner + kept, corner + kept)).resize((size, size))


def framed(picture: Image.Image, border: int | tuple[int, ...], colour: str) -> Image.Image:
    return ImageOps.expand(picture, border, colour)  # type: ignore[arg-type]


SURE: dict[str, Callable[[Image.Image], Image.Image]] = {
    "itself": lambda picture: picture,
    "with 1% of its pixels changed": speckled,
    "as JPEG of quality 30": lambda picture: through(picture, "JPEG", 30),
    "as WebP": lambda picture: through(picture, "WEBP", 75),
    "at half its size": lambda picture: scaled(picture, 0.5),
    "at twice its size": lambda picture: scaled(picture, 2),
    "mirrored": lambda picture: picture.transpose(MIRROR),
    "in grey": lambda picture: picture.convert("L"),
    "darker": lambda picture: picture.point(lambda value: 0.9 * value),
    "brighter": lambda picture: picture.point(lambda value: 1.1 * value),
    "with less contrast": lambda picture: picture.point(lambda value: 0.9 * value + 12),
    "turned by 90 degrees": lambda picture: picture.transpose(Image.Transpose.ROTATE_90),
    "turned by 180 degrees": lambda picture: picture.transpose(Image.Transpose.ROTATE_180),
    "stretched to 1:2": lambda picture: picture.resize((84, 168)),
    "stretched, mirrored and as JPEG": lambda p: through(p.resize((120, 84)).transpose(MIRROR), "JPEG", 60),
    "in a frame of two colours": lambda picture: framed(framed(picture, 2, "black"), 8, "tan"),
    "as an instant picture": lambda picture: framed(picture, (5, 5, 5, 18), "white"),
    "between two bars": lambda picture: framed(picture, (0, 15, 0, 15), "black"),
    "stretched in a frame": lambda picture: framed(picture.resize((112, 84)), 6, "white"),
}
LIKELY: dict[str, Callable[[Image.Image], Image.Image]] = {
    "cut to 90% at a corner": lambda picture: cut(picture, 0.9, 1.0, 84),
    "cut to 85% at the centre": lambda picture: cut(picture, 0.85, 0.5, 84),
    "cut to 85% anywhere, larger": lambda picture: cut(picture, 0.85, 0.3, 120),
    "turned by 2 degrees": lambda picture: picture.rotate(2, Image.Resampling.BICUBIC),
    "with gamma 1.25": lambda picture: picture.point(lambda value: 255 * (value / 255) ** 1.25),
    "in a frame, as JPEG": lambda picture: through(framed(picture, 8, "white"), "JPEG", 40),
    "blurred": lambda picture: picture.filter(ImageFilter.GaussianBlur(1)),
}
COPIES = SURE | LIKELY


def textures(count: int, seed: int = 0, side: int = 84) -> Tensor:
    """(count, 3, side, side) uint8 pictures of smooth blobs, all different."""
    noise = torch.rand((count, 3, 9, 9), generator=torch.Generator().manual_seed(seed))
    return interpolate(noise * 255, size=(side, side), mode="bicubic").clamp(0, 255).to(torch.uint8)


def picture_of(image: Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).numpy())


def fingerprint(picture: Image.Image) -> Fingerprint | None:
    values = np.array(picture)
    planes = values[None] if values.ndim == 2 else values.transpose(2, 0, 1)
    return fingerprints(torch.from_numpy(planes.copy())[None])[0]


def noticed(original: Fingerprint | None, copy: Fingerprint | None) -> bool:
    """What a ledger does that has the original and gets the copy."""
    assert original is not None
    assert copy is not None
    return bool(set(original.keys) & set(copy.probes)) and near_copies(original.bits, copy.bits)


@pytest.mark.parametrize("how", COPIES)
def test_a_drawn_picture_is_noticed_again(how):
    pictures = [picture_of(image) for image in textures(6)]
    assert all(noticed(fingerprint(picture), fingerprint(COPIES[how](picture))) for picture in pictures)


@pytest.mark.parametrize("kind", ["textures", "faces"])
def test_different_pictures_are_not_near_copies(kind: str):
    drawn = textures(40)
    if kind == "faces":
        drawn = data.load("faces", identities=40, images_per_identity=1).images
    bits = [printed.bits for printed in fingerprints(drawn) if printed is not None]
    assert len(bits) == 40
    assert not any(near_copies(a, b) for i, a in enumerate(bits) for b in bits[:i])


def unpacked(packed: dict[str, np.ndarray], row: int) -> Tensor:
    return images.read(packed["blob"][packed["offset"][row] : packed["offset"][row + 1]].tobytes())


@pytest.fixture(scope="module")
def photographs(shared_data) -> list[tuple[Image.Image, Fingerprint | None]]:
    """40 photographs, a few of drawings on white, with their fingerprints."""
    packed = dict(np.load(shared_data / "caltech101_84.npz"))
    pictures = [picture_of(unpacked(packed, row)) for row in range(1, 3929, 100)]
    return [(picture, fingerprint(picture)) for picture in pictures]


@pytest.mark.parametrize("how", COPIES)
def test_photographs_are_noticed_again(photographs, how):
    seen = sum(noticed(printed, fingerprint(COPIES[how](picture))) for picture, printed in photographs)
    assert seen >= (39 if how in SURE else 34)


def test_the_centre_square_of_a_photograph_is_noticed():
    wide = interpolate(textures(5, side=120).float(), size=(120, 160)).to(torch.uint8)
    square = torch.stack([images.read(images.encode(image), size=84) for image in wide])
    assert all(map(noticed, fingerprints(wide), fingerprints(square)))


def test_photographs_of_different_people_are_not_near_copies(shared_data):
    packed = dict(np.load(shared_data / "lfw_faces_84.npz"))
    _, rows = np.unique(packed["person"], return_index=True)
    printed = fingerprints(torch.stack([unpacked(packed, row) for row in rows[:80]]))
    assert not any(near_copies(a.bits, b.bits) for i, a in enumerate(printed) for b in printed[:i])


def test_photographs_of_one_sitting_are_not_near_copies(shared_data):
    packed = np.load(shared_data / "cmu_faces_32x30.npz")
    faces = packed["images"][packed["person"] < 3][::2]  # people turn and look up
    bits = [printed.bits for printed in fingerprints(torch.from_numpy(faces[:, None])) if printed is not None]
    assert len(bits) > 44
    assert sum(near_copies(a, b) for i, a in enumerate(bits) for b in bits[:i]) <= 1
    # At a size that is compared in detail, a new ledger releases each once: none has five earlier copies.
    large = [Image.fromarray(face).resize((90, 96), Image.Resampling.BICUBIC) for face in faces]
    printed = [fingerprint(face) for face in large]
    assert max(sum(noticed(other, one) for other in printed[:row]) for row, one in enumerate(printed)) < 5


def test_all_versions_of_a_picture_are_copies_of_each_other_however_many(ledger: Ledger):
    """More than the index proposes for one picture."""
    picture = picture_of(textures(1)[0])
    versions = [scaled(picture, 0.6 + row / 25) for row in range(20)]
    ledger.set_budget(Budget.parse("releases=20"))
    for row, version in enumerate(versions):
        ledger.charge([charge(f"{row}", fingerprint=fingerprint(version))])
    with pytest.raises(BudgetExceededError, match="has 20 different releases already"):
        ledger.charge([charge("another", fingerprint=fingerprint(versions[0]))])


def moved(image: Tensor, by: float) -> Tensor:
    """The middle of a (3, H, W) image moved to the right by a share of its width; the rest stays."""
    side = image.shape[-1]
    at = torch.linspace(-1, 1, side)
    down, right = torch.meshgrid(at, at, indexing="ij")
    right = right - 2 * by * torch.exp(-(down**2 + right**2) / 0.2)
    grid = torch.stack([right, down], dim=-1)[None]
    return grid_sample(image[None].float(), grid, align_corners=True)[0].to(torch.uint8)


def test_frames_of_a_burst_are_copies_as_long_as_nothing_moves_far():
    pictures = textures(8)
    printed = fingerprints(pictures)
    for by, expected in ((0.02, 8), (0.15, 0)):
        frames = fingerprints(torch.stack([moved(picture, by) for picture in pictures]))
        assert sum(map(noticed, printed, frames)) == expected


def test_being_near_copies_is_symmetric():
    pictures = textures(12)
    both = fingerprints(pictures) + fingerprints(pictures.flip(3)[:, :, 7:, :-7])
    bits = [printed.bits for printed in both if printed is not None]
    assert all(near_copies(a, b) == near_copies(b, a) for a in bits for b in bits)


def test_a_fingerprint_does_not_depend_on_the_batch():
    pictures = textures(9)
    together = fingerprints(pictures)
    assert together == [fingerprints(picture[None])[0] for picture in pictures]
    assert together[:4] == fingerprints(pictures[:4])


def test_a_fingerprint_is_as_small_as_promised():
    for printed in fingerprints(textures(20)):
        assert len(printed.bits) == 641  # 1,282 of a picture that is not square, or in a frame
        assert 1 <= len(printed.keys) <= 21
        assert 1 <= len(printed.probes) <= 200
        assert all(0 <= number < 1 << 63 for number in printed.keys + printed.probes)
        assert set(printed.keys) & set(printed.probes)


@pytest.mark.parametrize("level", [0, 77, 255])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_flat_image_has_none(level, channels):
    assert fingerprints(torch.full((2, channels, 40, 40), level, dtype=torch.uint8)) == [None, None]
    assert fingerprints(torch.full((1, channels, 1, 1), level, dtype=torch.uint8)) == [None]


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8, 8), (3, 4000, 30), (1, 30, 4000), (3, 600, 601)])
def test_images_of_any_size_are_taken(shape):
    small = torch.rand((1, shape[0], 8, 8), generator=torch.Generator().manual_seed(0))
    image = interpolate(small * 255, size=shape[1:], mode="bilinear").to(torch.uint8)
    assert noticed(fingerprints(image)[0], fingerprints(image.flip(3))[0])


def test_what_is_no_batch_of_images_is_refused():
    with pytest.raises(ImageError, match="uint8"):
        fingerprints(torch.zeros((1, 3, 8, 8)))


# The parts, each by an independent computation


def test_the_polynomials_of_all_orders_are_orthogonal_under_their_window():
    orders, products = parts._polynomials()
    assert sorted([*orders, (0, 0)]) == [(x, y) for x in range(7) for y in range(7) if x + y <= 6]
    inner, at = products[:, 1:-1, 1:-1], np.arange(-6, 7)
    window = np.exp(-(at**2) / 36)  # the root of a Gaussian of sigma 3
    flat = (inner / np.outer(window, window)).reshape(len(orders), -1)
    assert flat @ flat.T == pytest.approx(np.eye(len(orders)), abs=1e-9)
    below = np.stack([np.outer(at**y, at**x) * np.outer(window, window) for x, y in orders])
    for (x, y), row in zip(orders, flat, strict=True):  # each is orthogonal to all monomials of lower orders
        lower = [i for i, (a, b) in enumerate(orders) if a <= x and b <= y and (a, b) != (x, y)]
        assert below.reshape(len(orders), -1)[lower] @ row == pytest.approx(0, abs=1e-3)


def test_blobs_are_the_extremes_of_their_neighbourhood_the_strongest_first():
    squares = np.random.default_rng(0).uniform(0, 255, (2, 48, 48)).astype(np.float32)
    bands = parts._bands(squares, 36, (1.2, 2.4))
    for limit in (5, 1000):
        owners, kinds, _ = parts._blobs(squares, 36, limit)
        for row, band in enumerate(bands):
            extreme = (ndimage.maximum_filter(band, 3) == band) | (ndimage.minimum_filter(band, 3) == band)
            strength = np.where(extreme & (abs(band) > 0.5), band, 0)[7:-7, 7:-7].ravel()
            expected = sorted(strength[strength != 0], key=abs, reverse=True)[:limit]
            assert kinds[owners == row].tolist() == [2 if value > 0 else 1 for value in expected]


@pytest.mark.parametrize("pose", [(0, 0, 0, 0), (0.2, 0, 0, 0), (0, 0.1, 0, 0), (-0.1, -0.2, 3.3, -2.6)])
def test_a_view_is_the_interpolated_image_and_its_slopes_are_finite_differences(pose: tuple[float, ...]):
    values = ndimage.gaussian_filter(np.random.default_rng(0).normal(0, 9, (32, 32)), 2).astype(np.float32)
    view, inside, slopes = parts._view(values, np.array(pose))
    rows, columns = np.mgrid[:32, :32] - 15.5
    cosine, sine = (np.exp(pose[0]) * turn(pose[1]) for turn in (np.cos, np.sin))
    at = np.array([cosine * rows + sine * columns + pose[2], cosine * columns - sine * rows + pose[3]]) + 15.5
    assert np.array_equal(inside, ((at > -0.6) & (at < 31.6)).all(0))
    expected = ndimage.map_coordinates(values, at.clip(0, 31), order=1) * inside
    assert view == pytest.approx(expected, abs=0.01)
    well = ((at > 1) & (at < 30) & (abs(at - np.rint(at)) > 0.02)).all(0)  # within one cell
    for number, slope in enumerate(slopes.reshape(4, 32, 32)):
        moved = [parts._view(values, np.array(pose) + side * 1e-4 * np.eye(4)[number])[0] for side in (1, -1)]
        assert slope[well] == pytest.approx(((moved[0] - moved[1]) / 2e-4)[well], abs=0.3)


def test_what_is_level_inside_is_levelled_to_nothing_whatever_lies_outside():
    inside = np.zeros((32, 32), np.float32)
    inside[4:25, 7:30] = 1
    values = np.where(inside, 50, -1000).astype(np.float32)
    assert parts._level(values, inside) == pytest.approx(0, abs=0.01)
    step = values + 10 * (np.arange(32) > 18)
    assert np.abs(parts._level(step, inside)).max() == pytest.approx(5, abs=0.5)
