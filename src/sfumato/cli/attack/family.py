"""The family of the attack commands, and how each shows the images it rebuilt."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.show import print_json

if TYPE_CHECKING:
    from torch import Tensor

app = typer.Typer(
    help="Run one attack on your own files, and see what comes back.",
    no_args_is_help=True,
)

Out = Annotated[
    Path,
    typer.Option(
        metavar="DIR",
        help="The folder to write to: each image that came back, and all of them in came-back.png.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace came-back.png if it exists.")]
Seed = Annotated[int, typer.Option(help="Seed of the random choices of the attack.")]

_GAP = 2  # pixels between images
_ROW = 16  # images in a row
_MOST_DECIBELS = 200.0  # for equal images: JSON has no infinity


def check_out(out: Path, *, force: bool) -> None:
    """Raise before the attack if its picture would replace another."""
    from sfumato.base.files import check_new

    check_new(out / "came-back.png", force=force)


def show(
    found: "Tensor",
    out: Path,
    *,
    words: str,
    truth: "Tensor | None" = None,
    in_order: bool = False,
    as_json: bool = False,
    **figures: Any,
) -> None:
    """Write the rebuilt images; print how near they are to the originals, if these are given.

    Args:
        found: (N, C, H, W) float in any range, clamped to [0, 1].
        out: the folder.
        words: how they were rebuilt, a sentence.
        truth: (N, C, H, W) float originals; they stand above the rebuilt images.
        in_order: whether the rebuilt images are in their order; else they are matched.
        as_json: print figures in place of words.
        figures: more figures, by name.
    """
    from sfumato import images
    from sfumato.assess.matching import match
    from sfumato.assess.similarity import psnr
    from sfumato.errors import DataError

    found = found.float().clamp(0, 1)
    decibels: list[float] | None = None
    if truth is not None:
        if truth.shape != found.shape:
            raise DataError(
                f"the truth has {len(truth)} images, and {len(found)} came back: give those behind the file"
            )
        found = found if in_order else found[match(truth.float(), found)]
        decibels = psnr(truth.float(), found).clamp(max=_MOST_DECIBELS).tolist()
    for number, image in enumerate(images.to_uint8(found)):
        images.write(out / f"{number:03d}.png", image)
    rows = [images.to_uint8(each) for each in ([found] if truth is None else [truth.float(), found])]
    images.write(out / "came-back.png", sheet(rows))
    picture = str(out / "came-back.png")
    if as_json:
        print_json({"images": len(found), "psnr": decibels, "picture": picture, **figures})
        return
    print(words)
    if decibels is not None:
        print("PSNR to the originals: " + ", ".join(f"{each:.1f}" for each in decibels) + " dB")
    print(f"{'originals above, ' if truth is not None else ''}what came back: {picture}")


def sheet(rows: "list[Tensor]") -> "Tensor":
    """Draw batches, (N, C, H, W) uint8 of one shape each, as one image, a line below the other; long ones
    wrap.

    -> (C, height, width) uint8, white between images.
    """
    import torch

    count, channels, height, width = rows[0].shape
    lines = [row[start : start + _ROW] for start in range(0, count, _ROW) for row in rows]
    across = min(count, _ROW)
    page = torch.full(
        (channels, len(lines) * (height + _GAP) - _GAP, across * (width + _GAP) - _GAP),
        255,
        dtype=torch.uint8,
    )
    for down, line in enumerate(lines):
        for right, image in enumerate(line):
            top, left = down * (height + _GAP), right * (width + _GAP)
            page[:, top : top + height, left : left + width] = image
    return page
