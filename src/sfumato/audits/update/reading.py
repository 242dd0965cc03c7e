"""Reading an update without a search: labels, and exact images."""

import math
from typing import Any

import torch
from torch import Tensor

from sfumato.attack import exact, label_inference
from sfumato.attack.updates.update import rounding
from sfumato.audits.findings import Finding, Table
from sfumato.audits.update.case import Case, label_counts
from sfumato.audits.update.search import CAME_BACK, report_images
from sfumato.errors import DataError, SfumatoError


def report_labels(case: Case) -> Finding:
    """Report the classes of the batch."""
    training, known = case.update.training, case.truth.labels
    title = "Labels"
    try:
        counts = label_counts(case)
    except SfumatoError as error:
        sentence = f"No label was read: {error}."
        return Finding(name="labels", title=title, verdict="not shown", sentence=sentence)
    present = [(str(label), str(int(count))) for label, count in enumerate(counts) if count]
    figures: dict[str, Any] = {"counts": {label: int(count) for label, count in present}}
    right, mostly = "", False
    if known is not None:
        agreeing = int(counts.minimum(known.bincount(minlength=len(counts))).sum())
        right = f", and {agreeing} of {training.images} are right"
        figures["right"] = agreeing
        mostly = 2 * agreeing > training.images
    negative = int((label_inference.slopes(case.model, case.update.change) < 0).sum())
    # One image with an unmixed label gives one negative slope by cross-entropy and most other losses.
    certain = training.images == training.steps == negative == 1 and case.update.noise is None
    return Finding(
        name="labels",
        title=title,
        verdict="leaks" if certain or mostly else "not shown",
        sentence=(
            f"The classes of the {training.images} images are read from the last layer{right}."
            if certain or right
            else f"The classes of the {training.images} images are estimated from the last layer."
        ),
        table=Table(("class", "images"), tuple(present), "Classes that the adversary reads, with counts."),
        figures=figures,
    )


def report_malicious(case: Case) -> list[Finding]:
    """Report a server that does more than read: its model was made to reveal images."""
    suspect = exact.detect_imprint(case.model)
    if suspect is None:
        return []
    layer, share = suspect
    return [
        Finding(
            name="imprint",
            title="A model made to read images",
            verdict="leaks",
            sentence=(
                f"The server's model is made to read images: {share:.0%} of the rows of "
                f"{layer} measure one thing at different thresholds (Fowl et al. 2021)."
            ),
            figures={"layer": layer, "share": share},
        )
    ]


def report_exact(case: Case) -> Finding:
    """Report images recovered by algebra: from an imprint layer, by a division, or by SPEAR."""
    title = "Images that come back exactly"
    try:
        found, how = read_exactly(case)
    except SfumatoError as error:
        return Finding(name="exact", title=title, verdict="not shown", sentence=f"None was read: {error}.")
    sentence = f"{len(found)} images are read from {how}, without a search."
    if len(found) != (stated := case.update.training.images):
        sentence += f" {stated} were stated: the client trained on others as well, or some left no trace."
    return report_images("exact", title, sentence, found, case.truth.images, leaks=True)


def read_exactly(case: Case) -> tuple[Tensor, str]:
    """Recover images by algebra, (N, C, H, W) float, and name their source.

    The gradients of several steps, or with momentum, add up: their sum has the form of one.

    Raises:
        DataError: no matching images were found.
        ConfigError: the first layer of the model cannot be read.
    """
    model, change, shape, training = case.model, case.update.change, case.shape, case.update.training
    if exact.detect_imprint(model) is not None:
        return exact.recover_imprinted(model, change, shape), "an imprint layer, pixel by pixel"
    image, apart, variance = exact.nearest(model, change, shape)
    if apart <= exact.PARALLEL:
        image = exact.recover_one(model, change, shape)
        return image, "the first layer by a division (Phong et al. 2017), pixel by pixel"
    name, first = exact.first_linear(model, biased=False)
    weight = f"{name}.weight" if name else "weight"
    try:
        recovered = exact.recover_batch(
            *(model, change, shape),
            generator=torch.Generator().manual_seed(case.config.seed),
            most=case.config.draws,
            rounding=rounding(case.sent.change[weight], first.weight, training.steps),
            moved=None if training.steps == 1 and training.plain else change,
        )
        found = recovered.images[recovered.matches >= exact.LIKELY]
    except DataError:
        decibels = -10 * math.log10(variance)
        if training.images > 1 or decibels < CAME_BACK:
            raise
        return image, f"the first layer by a division, with noise {decibels:.0f} dB below"
    return found, "the first layer (SPEAR, Dimitrov et al. 2024), pixel by pixel"
