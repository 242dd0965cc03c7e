"""`sfumato attack feature`: rebuild images from released numbers, by a decoder of the adversary."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.attack.family import Force, Out, Seed, app, check_out, show
from sfumato.cli.options import Size, setting
from sfumato.cli.show import AsJson, bars, settings_of, stderr
from sfumato.cli.sources import Strict, read

if TYPE_CHECKING:
    from torch import Tensor


@app.command("feature")
def feature(
    protection: Annotated[
        str,
        typer.Option(
            "--protection",
            metavar="SPEC",
            help="The protection that devices use, such as feature:artefact=feature.safetensors,noise=0.3.",
        ),
    ],
    data: Annotated[
        str,
        typer.Option(
            help="Images of the kind that it was trained for: folder:DIR, table:FILE or a data set."
        ),
    ],
    out: Out,
    released: Annotated[
        Path | None,
        typer.Option(
            help="Numbers that a device of yours released: a .safetensors or .npz file with `features`, one "
            "row per image (default: images of the data that the decoder never saw are released and "
            "rebuilt)."
        ),
    ] = None,
    count: Annotated[
        int, typer.Option(min=1, help="How many images to rebuild, if there is no --released.")
    ] = 16,
    size: Size = None,
    overrides: Annotated[list[str] | None, setting("A setting of the decoder, such as steps=500.")] = None,
    listing: Annotated[bool, settings_of("sfumato.attack.feature_inversion:InversionConfig")] = False,
    seed: Seed = 0,
    strict: Strict = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Rebuild images from released private features, with a decoder.

    The decoder is trained on releases of images that the adversary has.

    Example: sfumato attack feature --protection feature:artefact=f.safetensors --data faces --out back
    """
    import torch

    from sfumato import protect
    from sfumato.attack import feature_inversion as method
    from sfumato.base.settings import configure
    from sfumato.dp.mechanisms import fresh_noise
    from sfumato.errors import DataError
    from sfumato.images import to_float

    config = configure(method.InversionConfig, overrides or [])
    check_out(out, force=force)
    parsed = protect.parse(protection, takes=("numbers",))
    images = read(data, size=size, strict=strict).images
    images = images[torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))]
    held = 0 if released is not None else count
    if len(images) < held + 2:
        raise DataError(
            f"{data}: {len(images)} images, and {held} of them are to be drawn: give at least {held + 2}, or "
            "lower --count"
        )

    def release_numbers(batch: torch.Tensor) -> torch.Tensor:
        numbers: torch.Tensor = parsed.release(batch, fresh_noise()).vectors()
        return numbers

    truth = to_float(images[:held]) if held else None
    numbers = release_numbers(images[:held]) if released is None else _numbers(released)
    with bars(stderr()) as progress:
        task = progress.add_task("training")
        decoder = method.train(
            release_numbers(images[held:]),
            images[held:],
            config,
            seed=seed,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
    found = to_float(decoder.restore(numbers))
    words = (
        f"{len(found)} images drawn from {numbers.shape[1]} numbers each, by a decoder that learned from "
        f"{len(images) - held:,} others."
    )
    show(found, out, words=words, truth=truth, in_order=True, as_json=as_json)


def _numbers(path: Path) -> "Tensor":
    from sfumato.attack.updates import read as tensors_of
    from sfumato.errors import DataError

    tensors, _ = tensors_of(path)
    if "features" not in tensors:
        raise DataError(f"{path}: has no `features`: give the released numbers this name, a row per image")
    return tensors["features"]
