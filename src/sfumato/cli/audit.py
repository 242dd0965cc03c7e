"""`sfumato audit`: try to break the guarantee of a protection, as it is shipped."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.show import AsJson, print_json

if TYPE_CHECKING:
    from torch import Tensor

    from sfumato.protect import Protection

_CANDIDATES = (100, 1_000, 1_000_000)


def audit(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="As dp-pix:cell=4,epsilon=1,3: one line each.")],
    shape: Annotated[str, typer.Option(metavar="CxHxW", help="Of the audited images.")] = "3x28x28",
    pixels: Annotated[
        int | None, typer.Option(help="How many pixels neighbours differ in (default: the spec's own).")
    ] = None,
    trials: Annotated[int, typer.Option(help="More show more of what is given away.")] = 100_000,
    confidence: Annotated[float, typer.Option(help="The bound holds with this probability.")] = 0.99,
    releases: Annotated[
        int, typer.Option(min=1, help="Of one person: what so many prove of who is on them.")
    ] = 1,
    seed: Annotated[
        int, typer.Option(help="Of the coins between neighbours; the noise is always fresh.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Tell neighbouring images apart by what is released, and prove how well: at least eps, mu or rho.

    A second line says what is proved of who is on the released images, if anything.

    Ends with 1 where a bound is above what is stated. It can convict a protection, never acquit it.
    """
    from sfumato import protect
    from sfumato.dp.audit import AuditConfig, audit
    from sfumato.dp.mechanisms import fresh_noise
    from sfumato.errors import ConfigError
    from sfumato.protect.naming import naming_words

    try:
        channels, height, width = map(int, shape.split("x"))
    except ValueError:
        raise ConfigError(f"--shape {shape}: write channels x height x width, as 3x28x28") from None
    convicted = []
    for protection in protect.expand(spec):
        stated = protection.guarantee((channels, height, width), pixels)
        config = AuditConfig(
            shape=(channels, height, width),
            pixels=stated.pixels if stated else pixels or 1,
            trials=trials,
            confidence=confidence,
            seed=seed,
        )

        def release(images: "Tensor", protection: "Protection" = protection) -> "Tensor":
            return protection.release(images, fresh_noise()).values

        result = audit(release, stated, config)
        naming = ""  # what follows from a guarantee that does not hold is not worth a line
        if not result.convicted:
            naming = naming_words(protection, config.shape, releases=releases, among=_CANDIDATES)
        if as_json:
            words = {"spec": protection.spec, "words": str(result), "convicted": result.convicted}
            print_json({**words, **asdict(result), "naming": naming or None})
        else:
            print(f"{protection.spec}: {result}")
            if naming:
                print(f"{protection.spec}: {naming}")
        if result.convicted:
            convicted.append(protection.spec)
    for broken in convicted if not as_json else ():
        print(f"{broken} gives away more than it states: do not release with it, and report this as a bug")
    if convicted:
        raise typer.Exit(1)
