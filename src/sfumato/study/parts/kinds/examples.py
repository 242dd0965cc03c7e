"""A few test images, and their releases by the recommended setting: for the first screen of a report."""

from typing import TYPE_CHECKING, Any

from sfumato.study.cells import Cell
from sfumato.study.parts.kinds.common import Model, Picture
from sfumato.study.parts.kinds.pictures import as_uris
from sfumato.study.protocol import Kind
from sfumato.study.vocabulary import IMAGES, release_kind

if TYPE_CHECKING:
    from sfumato.study.grid import StudyConfig
    from sfumato.study.lab.lab import Lab

_COUNT = 6
_AMONG = 48  # images, of which those with different words come first
_NUMBERS = 8  # of a code or a feature that are written out


class Example(Model):
    """An image, and its release.

    Attributes:
        original: the image.
        released: the release, if it is an image.
        words: the release, if it is not: bits, numbers, or the name of a class.
    """

    original: Picture
    released: Picture | None = None
    words: str = ""


class Result(Model):
    """Examples of one protection."""

    examples: tuple[Example, ...]


def cells(config: "StudyConfig", spec: str, seed: int) -> list[Cell]:
    """None in advance: images of people are recorded for the page that shows them, and not for others."""
    return []


def of_recommended(config: "StudyConfig", spec: str | None) -> list[Cell]:
    """One, of the first seed; none without a recommendation, or if a study wants no pictures."""
    wanted = config.pictures and spec not in (None, "none")
    return [Cell("examples", spec, config.seeds[0])] if spec and wanted else []


def settings(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """The settings that decide the result, besides cell, data and artefacts."""
    return {"examples": _COUNT, "among": _AMONG}


def measure(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """Releases the images of a few different people if there are people, else of any.

    Of short codes and answers those that differ come first, or all six may have one bit.
    """
    rows = _rows(lab, cell.seed)
    if release_kind(cell.protection) in IMAGES:
        images = lab.test.images[rows[:_COUNT]]
        pairs = zip(as_uris(images), as_uris(lab.release(cell, images).images()), strict=True)
        return {"examples": [{"original": one, "released": other} for one, other in pairs]}
    images = lab.test.images[rows[:_AMONG]]
    written = _in_words(lab.release(cell, images))
    first = {words: row for row, words in reversed(list(enumerate(written)))}
    shown = sorted(range(len(written)), key=lambda row: first[written[row]] != row)[:_COUNT]
    originals = as_uris(images[shown])
    return {
        "examples": [
            {"original": one, "words": written[row]} for one, row in zip(originals, shown, strict=True)
        ]
    }


def _rows(lab: "Lab", seed: int) -> list[int]:
    order = lab.shuffle(len(lab.test), seed).tolist()
    sensitive = lab.config.task.sensitive
    if sensitive is None:
        return order
    people = lab.test.label(sensitive).codes.tolist()
    first = {people[row]: row for row in reversed(order)}  # of each person
    fresh = [row for row in order if first[people[row]] == row]
    return [*fresh, *(row for row in order if first[people[row]] != row)]


def _in_words(release: Any) -> list[str]:
    """The release of each image, as it is read aloud."""
    if release.kind == "answer":
        return list(release.names)
    if release.kind == "bits":
        rows = ["".join("1" if bit else "0" for bit in row) for row in release.values.tolist()]
        return [" ".join(row[i : i + 4] for i in range(0, len(row), 4)) for row in rows]
    more = " ..." if release.values.shape[1] > _NUMBERS else ""
    return [" ".join(f"{each:.2f}" for each in row[:_NUMBERS]) + more for row in release.values.tolist()]


KIND = Kind(Result, cells, settings, measure)
