"""The search for images behind an update, and the judgement of recovered images."""

import math
from dataclasses import replace

from torch import Tensor

from sfumato.assess import similarity
from sfumato.assess.matching import match
from sfumato.attack.gradient_inversion import Inversion, InversionConfig, invert
from sfumato.attack.victim import ThreatModel
from sfumato.audits.findings import Finding, Picture, Table
from sfumato.audits.update.case import Case, label_counts
from sfumato.errors import SfumatoError
from sfumato.images import to_uint8

CAME_BACK = 20.0  # dB of PSNR from which an image counts as recovered
_MOST_DECIBELS = 200.0  # for equal images: JSON has no infinity
_SMALLEST = 11  # pixels a side, for SSIM


def report_search(case: Case, config: InversionConfig) -> Finding:
    """Report images recovered by optimisation."""
    title = "Images that come back by a search"
    try:
        found = _rebuild(case, config)
    except SfumatoError as error:
        return Finding(name="search", title=title, verdict="not shown", sentence=f"None came back: {error}.")
    unit = "1 less the cosine" if config.objective == "cosine" else "squared distance"
    sentence = (
        f"A search of {config.steps:,} steps found images whose update differs from the client's by "
        f"{found.cost:.3g} ({unit}; 0 is the same update)."
    )
    finding = report_images("search", title, sentence, found.images, case.truth.images, leaks=False)
    more = {"cost": found.cost, "steps": config.steps, "labels": found.labels.tolist()}
    return replace(finding, figures={**finding.figures, **more})


def _rebuild(case: Case, config: InversionConfig) -> Inversion:
    """Rebuild the images of an update by one attack, knowing the client's training.

    Labels are those of the truth, if known; else they are inferred from the last layer, or, if that fails,
    optimised with the images.

    Raises:
        DataError, ConfigError: see gradient_inversion.invert.
    """
    training, noise = case.update.training, case.update.noise
    labels = case.truth.labels
    deviation = 0.0
    if noise is not None:
        deviation = (
            training.rate
            * math.sqrt(training.steps)
            * noise.noise_multiplier
            * noise.clipping_norm
            / training.together
        )
    knows = ThreatModel(
        shape=case.shape,
        batch=training.images,
        labels=labels,
        noise=deviation,
        local_steps=training.steps,
        local_rate=training.rate,
        local_batch=training.batch,
    )
    if labels is not None:
        config = replace(config, labels="known")
    elif config.labels != "optimised":
        config = replace(config, labels="inferred" if _tells_labels(case) else "optimised")
    return invert(
        case.model, case.update.change, knows, config, seed=case.config.seed, progress=case.progress
    )


def _tells_labels(case: Case) -> bool:
    try:
        label_counts(case)
    except SfumatoError:
        return False
    return True


def report_images(
    name: str,
    title: str,
    sentence: str,
    found: Tensor,
    truth: Tensor | None,
    *,
    leaks: bool,
    in_order: bool = False,
) -> Finding:
    """Show recovered images next to known originals, and measure how alike they are.

    They are matched to the originals unless they are `in_order`. Without originals, `leaks` is the verdict.
    """
    if truth is None or len(truth) != len(found):
        shown = tuple(_row(found, "came back"))
        judged = "" if leaks else " Whether they are right shows in the pictures alone: no truth was given."
        verdict = "leaks" if leaks else "not shown"
        return Finding(
            name=name,
            title=title,
            verdict=verdict,  # type: ignore[arg-type]
            sentence=sentence + judged,
            pictures=(shown,) if shown else (),
            figures={"images": len(found)},
        )
    ordered = (found if in_order else found[match(truth.float(), found.float())]).float().clamp(0, 1)
    psnr = similarity.psnr(truth.float(), ordered).clamp(max=_MOST_DECIBELS)
    large = min(truth.shape[2:]) >= _SMALLEST
    ssim = similarity.ssim(truth.float(), ordered).tolist() if large else None
    back = int((psnr >= CAME_BACK).sum())
    rows = tuple(
        (str(number + 1), f"{psnr[number]:.1f} dB", f"{ssim[number]:.2f}" if ssim else "–")
        for number in range(len(truth))
    )
    return Finding(
        name=name,
        title=title,
        verdict="leaks" if back else "not shown",
        sentence=f"{sentence} {back} of {len(truth)} came back, at {CAME_BACK:g} dB or more.",
        table=Table(
            ("image", "PSNR", "SSIM"), rows, "How near each image that came back is to its original."
        ),
        pictures=(tuple(_row(truth, "original")), tuple(_row(ordered, "came back"))),
        figures={"images": len(found), "came_back": back, "psnr": psnr.tolist(), "ssim": ssim},
    )


def _row(batch: Tensor, words: str) -> list[Picture]:
    """Make pictures of (N, C, H, W) floats; none for images without one or three channels."""
    if batch.shape[1] not in (1, 3):
        return []
    return [Picture(image, words) for image in to_uint8(batch.float().clamp(0, 1))]
