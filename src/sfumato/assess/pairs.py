"""Compare two folders: every pair of images by every measure, and the pair that leaks most."""

import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from sfumato import images
from sfumato.assess import similarity
from sfumato.assess.frechet import Frechet, Moments, distance_between
from sfumato.assess.perceptual import Perceptual
from sfumato.base.files import MOST_TABLE, parse_json, read_regular, whole, write_rows
from sfumato.errors import ConfigError, DataError, ImageError, needs_extra
from sfumato.networks import MTCNN, MobileFaceNet, align

_NAMED = 3  # names listed in an error
_VALUES = 1 << 20  # values of originals in one step: SSIM takes 500 bytes for each
_FACE = (112, 96)


@dataclass(frozen=True, slots=True)
class Pair:
    """The file of an original and that of its counterpart, under their common name."""

    name: str
    original: str
    other: str


@dataclass(frozen=True)
class Pairs:
    """The pairs of two folders.

    Attributes:
        rows: the pairs, by name.
        alone: number of images without a partner.
        spec: the protection, if the others are a release of `sfumato protect`.
        cell: the side of the square of pixels that one pixel of the others represents; below 1 a share of the
            shorter side of the original, rounded up.
    """

    rows: Sequence[Pair]
    alone: int = 0
    spec: str | None = None
    cell: int | Fraction = 1


def find(originals: str | os.PathLike[str], others: str | os.PathLike[str], *, common: bool = False) -> Pairs:
    """Pair the images below two folders by their path without the suffix, without hidden files.

    `others` are reconstructions, or a release of `sfumato protect` with its manifest. With `common` images
    without a partner are left out; otherwise they are a DataError.
    """
    spec, cell = _release(Path(others))
    ours, theirs = _list(Path(originals)), _list(Path(others))
    names = sorted(ours.keys() & theirs.keys())
    alone = sorted(ours.keys() - theirs.keys()), sorted(theirs.keys() - ours.keys())
    lonely = [*alone[0], *alone[1]]
    if not names or (lonely and not common):
        raise DataError(
            f"{len(alone[0])} of {len(ours)} images in {originals} and {len(alone[1])} of {len(theirs)} in "
            f"{others} have no partner of the same name, such as {', '.join(lonely[:_NAMED])}: "
            + ("compare only the pairs with --common" if names else "name folders with the same file names")
        )
    rows = [Pair(name, f"{originals}/{name}{ours[name]}", f"{others}/{name}{theirs[name]}") for name in names]
    return Pairs(rows, len(lonely), spec, cell)


def _list(folder: Path) -> dict[str, str]:
    """Map the path of each image below a folder, without its suffix, to the suffix."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder")
    found: dict[str, str] = {}
    for place, below, files in os.walk(folder):
        below[:] = [each for each in below if not each.startswith(".")]
        for file in files:
            path = Path(place, file)
            if file.startswith(".") or not images.is_image(path):
                continue
            name = path.relative_to(folder).with_suffix("").as_posix()
            if name in found:
                other = Path(name + found[name]).name
                raise DataError(
                    f"{path} and {other} have the same name, so pairs are ambiguous: move one away"
                )
            found[name] = sys.intern(path.suffix)
    if not found:
        raise DataError(f"{folder}: no images, by their suffixes or first bytes")
    return found


def _release(folder: Path) -> tuple[str | None, int | Fraction]:
    """Read the protection of a released folder, and the side of a cell if one pixel is a cell."""
    path = folder / "manifest.json"
    if not path.is_file():
        return None, 1
    try:
        manifest = parse_json(read_regular(path, MOST_TABLE))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: damaged ({error}): release again, or move it away") from error
    if not isinstance(manifest, dict) or not {"spec", "one_pixel_is", "renamed"} <= manifest.keys():
        return None, 1
    if manifest["renamed"]:
        raise DataError(
            f"{folder}: its files were renamed, so no release can be paired with its original: release again "
            "without --rename"
        )
    spec = str(manifest["spec"])
    if manifest["one_pixel_is"] != "a cell":
        return spec, 1
    cells = re.search(r"\bcell=(\d{1,5}(?:/[1-9]\d{0,4})?)", spec)
    return spec, Fraction(cells[1]) if cells else 1


@dataclass(frozen=True)
class Measure:
    """A number for a pair of images.

    Attributes:
        name: of its column.
        title: its name in reports.
        of: maps (N, C, H, W) float pairs in [0, 1] to (N,); NaN for a pair without a value.
        alike: 1 if more similar images have a higher number, -1 if a lower one.
    """

    name: str
    title: str
    of: Callable[[Tensor, Tensor], Tensor]
    alike: int


PIXELS = (
    Measure("mse", "MSE", similarity.mse, -1),
    Measure("psnr", "PSNR (dB)", similarity.psnr, 1),
    Measure("ssim", "SSIM", similarity.ssim, 1),
)


class OfSqueezeNet:
    """The unweighted distance of SqueezeNet 1.0.

    State: the moments of the features of both sides, for the Fréchet distance of all images.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read the weights. Raises ArtefactError as SqueezeNet.load does."""
        self._perceptual = Perceptual.of_squeezenet(path)
        self._moments = Moments(), Moments()

    def measure(self) -> Measure:
        """Return the distance as a measure."""
        return Measure("squeezenet", self._perceptual.name, self._distance, -1)

    def frechet(self) -> Frechet:
        """Compute the Fréchet distance of all measured images. Raises DataError for one pair."""
        return distance_between(*self._moments)

    def _distance(self, originals: Tensor, others: Tensor) -> Tensor:
        compared = self._perceptual.compare(originals, others)
        for moments, features in zip(self._moments, (compared.originals, compared.others), strict=True):
            moments.add(features)
        return compared.distances


def face_similarity(recogniser: MobileFaceNet, detector: MTCNN | None = None) -> Measure:
    """Return a measure: the cosine between the faces of a pair, see similarity.embedding_similarity.

    Args:
        recogniser: with weights.
        detector: crops both images of a pair to the face found on the ORIGINAL, since one that misses the
            face of the other is not a protection; a pair without a face in the middle of the original has no
            value. Without a detector images are faces of networks.align, resized to 112x96.
    """

    def of(originals: Tensor, others: Tensor) -> Tensor:
        pair = [each.expand(-1, 3, -1, -1) for each in (originals, others)]
        cosines = torch.full((len(originals),), torch.nan)
        if detector is None:
            faces = [functional.interpolate(each, _FACE, mode="bilinear", antialias=True) for each in pair]
            first, second = (recogniser.embed(images.to_uint8(each)) for each in faces)
            return similarity.embedding_similarity(first, second)
        clean, other = (images.to_uint8(each) for each in pair)
        found = detector.detect(clean)
        central = [faces.central(clean.shape[2], clean.shape[3]) for faces in found]
        seen = [row for row, face in enumerate(central) if face is not None]
        if seen:
            landmarks = torch.stack([found[row].landmarks[central[row]] for row in seen])
            first, second = (recogniser.embed(align(each[seen], landmarks)) for each in (clean, other))
            cosines[seen] = similarity.embedding_similarity(first, second)
        return cosines

    return Measure("face-similarity", "face similarity (MobileFaceNet)", of, 1)


@dataclass(frozen=True)
class Scores:
    """The values of all readable pairs.

    Attributes:
        pairs: in their order.
        values: maps a measure's name to (N,) float64.
        failures: the error of each skipped pair.
    """

    pairs: Sequence[Pair]
    values: dict[str, Tensor]
    failures: list[str]


def measure(
    pairs: Pairs,
    measures: Sequence[Measure],
    *,
    resize: bool = False,
    report: Callable[[int], None] = lambda done: None,
) -> Scores:
    """Measure every pair. Images are read one by one; only their names and values are kept.

    A grey image of a pair repeats its channel. Cells of a release are enlarged to pixels.

    Args:
        pairs: from `find`.
        measures: at least one.
        resize: resize the other image of a pair to its original's size (Lanczos).
        report: called regularly with the number of pairs done.
    """
    # Allocated at once: a tensor for each step takes more than its numbers.
    columns = {each.name: torch.empty(len(pairs.rows), dtype=torch.float64) for each in measures}
    failures: dict[int, str] = {}
    done = 0
    for batch, originals, others in _batches(pairs, resize, failures):
        for each in measures:
            try:
                columns[each.name][done : done + len(batch)] = each.of(originals, others)
            except ConfigError as error:
                raise ConfigError(f"{batch[0].original}: {error}") from error
        done += len(batch)
        report(done + len(failures))
    told = list(failures.values())
    if not done:
        raise DataError(f"none of {len(pairs.rows)} pairs could be read; the first: {told[0]}")
    rows = [pair for row, pair in enumerate(pairs.rows) if row not in failures] if failures else pairs.rows
    return Scores(rows, {name: column[:done] for name, column in columns.items()}, told)


def _batches(
    pairs: Pairs, resize: bool, failures: dict[int, str]
) -> Iterator[tuple[list[Pair], Tensor, Tensor]]:
    """Yield consecutive pairs of one shape, up to _VALUES values, as floats."""
    batch: list[Pair] = []
    loaded: list[tuple[Tensor, Tensor]] = []

    def joined() -> tuple[list[Pair], Tensor, Tensor]:
        originals, others = (images.to_float(torch.stack(each)) for each in zip(*loaded, strict=True))
        return batch, originals, others

    for row, pair in enumerate(pairs.rows):
        try:
            both = _read(pair, pairs.cell, resize)
        except ImageError as error:
            failures[row] = str(error)
            continue
        full = (len(batch) + 1) * both[0].numel() > _VALUES
        if batch and (full or both[0].shape != loaded[0][0].shape):
            yield joined()
            batch, loaded = [], []
        batch.append(pair)
        loaded.append(both)
    if batch:
        yield joined()


def _read(pair: Pair, cell: int | Fraction, resize: bool) -> tuple[Tensor, Tensor]:
    """Read both images of a pair, (C, H, W) uint8 of one shape. Raises ImageError if one is unreadable."""
    original, other = (images.read(path, channels=None) for path in (pair.original, pair.other))
    channels = max(len(original), len(other))
    original, other = original.expand(channels, -1, -1), other.expand(channels, -1, -1)
    height, width = original.shape[1:]
    side = int(cell) if cell >= 1 else math.ceil(cell * min(height, width))
    if side > 1:
        other = other.repeat_interleave(side, 1).repeat_interleave(side, 2)[:, :height, :width]
    if other.shape != original.shape:
        if not resize:
            raise DataError(
                f"{pair.original} has {height}x{width} pixels and {pair.other} {other.shape[1]}x"
                f"{other.shape[2]}: pass --resize to bring the second to the size of the first"
            )
        planes = [Image.fromarray(plane) for plane in other.contiguous().numpy()]
        fitted = [np.asarray(plane.resize((width, height), Image.Resampling.LANCZOS)) for plane in planes]
        other = torch.from_numpy(np.stack(fitted))
    return original, other


@dataclass(frozen=True)
class Summary:
    """The summary of one measure over all pairs.

    Attributes:
        pairs: number of pairs with a value.
        mean: their mean; infinite if a PSNR is infinite, for equal images.
        low, high: its 95% interval over pairs, by Student's t; NaN for one pair, or an infinite mean.
        worst: the most similar pair with a value.
        worst_value: its value.
    """

    pairs: int
    mean: float
    low: float
    high: float
    worst: Pair | None
    worst_value: float


def summarise(scores: Scores, measure: Measure) -> Summary:
    """Summarise one measure."""
    with needs_extra("an interval over pairs", "study"):
        from scipy.stats import t  # type: ignore[import-untyped]

    values = scores.values[measure.name]
    values = values[~values.isnan()]
    count, mean, half = len(values), values.mean().item(), float("nan")
    if count > 1:
        half = t.ppf(0.975, count - 1) * values.std().item() / count**0.5
    if not count:
        return Summary(0, mean, half, half, None, mean)
    every = measure.alike * scores.values[measure.name]
    worst = int(torch.where(every.isnan(), -torch.inf, every).argmax())  # of equal ones the first by name
    value = scores.values[measure.name][worst].item()
    return Summary(count, mean, mean - half, mean + half, scores.pairs[worst], value)


def write_table(path: str | os.PathLike[str], scores: Scores) -> None:
    """Write a CSV with a line for each pair: its name, its files in the two folders, and every measure."""
    with (
        whole(Path(path)) as temporary,
        # A name that is not UTF-8 is written with its original bytes.
        temporary.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file,
    ):

        def rows() -> Iterator[list[str]]:
            yield ["name", "original", "other", *scores.values]
            for row, pair in enumerate(scores.pairs):
                numbers = [f"{column[row].item():.6g}" for column in scores.values.values()]
                files = [f"{pair.name}{Path(each).suffix}" for each in (pair.original, pair.other)]
                yield [pair.name, *files, *numbers]

        write_rows(file, rows())
