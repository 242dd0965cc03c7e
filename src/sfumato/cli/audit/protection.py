"""`sfumato audit protection`: try to break the guarantee of a protection, as it is shipped."""

from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.audit.family import For, Html, Pdf, Threshold, app, say
from sfumato.cli.show import AsJson
from sfumato.cli.updates import image_shape

if TYPE_CHECKING:
    from torch import Tensor

    from sfumato.dp.audit import AuditResult, Mechanism, OneRunAudit
    from sfumato.dp.guarantee import Guarantee
    from sfumato.protect import Protection

_TRIALS = 100_000
_CANDIDATES = (100, 1_000, 1_000_000)


@app.command("protection")
def protection(
    spec: Annotated[
        str,
        typer.Argument(
            metavar="SPEC",
            help="The protection. Several values, such as dp-pix:cell=4,epsilon=1,3, give one finding each.",
        ),
    ],
    shape: Annotated[
        str | None,
        typer.Option(
            metavar="CxHxW",
            help="The shape of the audited images (default: 3x28x28, or 3x224x224 with --one-run).",
        ),
    ] = None,
    pixels: Annotated[
        int | None, typer.Option(help="How many pixels neighbours differ in (default: the spec's own).")
    ] = None,
    one_run: Annotated[
        int | None,
        typer.Option(
            "--one-run", metavar="N", min=1, help="Audit N releases only, with every cell as a trial."
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(help="How many trials. More give a tighter bound (default: 100000).")
    ] = None,
    confidence: Annotated[float, typer.Option(help="The bound holds with this probability.")] = 0.99,
    releases: Annotated[
        int,
        typer.Option(
            min=1, help="State the guarantee against naming a person from this many of their releases."
        ),
    ] = 1,
    seed: Annotated[
        int, typer.Option(help="Seed of the coins that choose between neighbours. The noise is always fresh.")
    ] = 0,
    audience: For = None,
    threshold: Threshold = None,
    html: Html = None,
    pdf: Pdf = None,
    as_json: AsJson = False,
) -> None:
    """Tell neighbouring images apart by their releases, and prove a lower bound of eps, mu or rho.

    With --one-run it takes seconds, and finds noise that is too small or used twice. Without, it finds more.
    It also states the guarantee against naming the person on the released images, if there is one.

    The exit code is 1 if a bound is above the stated value, or if neighbours are told apart and nothing is
    stated. An audit can convict a protection. It cannot acquit one.

    Example: sfumato audit protection dp-pix:cell=8,epsilon=3
    """
    from sfumato import protect
    from sfumato.audits.evidence import RELEASES
    from sfumato.audits.protection import PEOPLE, Audited, report
    from sfumato.dp.mechanisms import fresh_noise
    from sfumato.errors import ConfigError
    from sfumato.protect.naming import bound_naming, naming_words
    from sfumato.protect.spec import portable

    if one_run is not None and trials is not None:
        raise ConfigError(f"--one-run {one_run} makes no trials but its releases: leave --trials out")
    sizes = image_shape(shape or ("3x224x224" if one_run else "3x28x28"))
    audited = []
    for each in protect.expand(spec):
        stated = each.guarantee(sizes, pixels)

        def release(images: "Tensor", protection: "Protection" = each) -> "Tensor":
            return protection.release(images, fresh_noise()).values

        result = _audit(
            release,
            stated,
            shape=sizes,
            pixels=stated.pixels if stated else pixels or 1,
            releases=one_run,
            trials=_TRIALS if trials is None else trials,
            confidence=confidence,
            seed=seed,
        )
        naming, bounds = "", {}  # nothing follows from a guarantee that does not hold
        if not result.convicted:
            naming = naming_words(each, sizes, releases=releases, among=_CANDIDATES)
            proofs = {n: bound_naming(each, sizes, candidates=PEOPLE, releases=n) for n in RELEASES}
            bounds = {n: proof.chance for n, proof in proofs.items() if proof.proves}
        audited.append(Audited(portable(each.spec), result, naming, bounds))
    made = report(portable(spec), audited)
    say(made, html=html, as_json=as_json, audience=audience, threshold=threshold, pdf=pdf)


def _audit(
    release: "Mechanism",
    stated: "Guarantee | None",
    *,
    releases: int | None,
    trials: int,
    shape: tuple[int, int, int],
    pixels: int,
    confidence: float,
    seed: int,
) -> "AuditResult | OneRunAudit":
    """Audit by trials, or by releases if their number is given."""
    from sfumato.dp.audit import AuditConfig, OneReleaseConfig, audit, audit_release

    if releases is None:
        config = AuditConfig(shape=shape, pixels=pixels, trials=trials, confidence=confidence, seed=seed)
        return audit(release, stated, config)
    short = OneReleaseConfig(shape=shape, pixels=pixels, releases=releases, confidence=confidence, seed=seed)
    return audit_release(release, stated, short)
