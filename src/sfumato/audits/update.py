"""The leaks of a federated client's update to a server that only reads it: labels, images, and bounds."""

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from sfumato.assess import similarity
from sfumato.assess.matching import match
from sfumato.attack import exact, label_inference
from sfumato.attack.gradient_inversion import INVERTING_GRADIENTS, InversionConfig, invert
from sfumato.attack.saturation import check_bounds
from sfumato.attack.updates import Update, rounding, significant_bits, undo_decay
from sfumato.attack.victim import ThreatModel
from sfumato.audits.findings import Finding, Picture, Progress, Report, Table, Verdict, quiet, shown
from sfumato.dp.naming import gaussian
from sfumato.errors import ConfigError, DataError, SfumatoError, shorten
from sfumato.images import to_uint8

CAME_BACK = 20.0  # dB of PSNR from which an image counts as recovered
USUAL_SEARCH = replace(INVERTING_GRADIENTS, steps=1000, total_variation=1e-2)  # for images of 32x32
_MOST_DECIBELS = 200.0  # for equal images: JSON has no infinity
_SMALLEST = 11  # pixels a side, for SSIM
_PRIORS = (10, 100, 1_000, 1_000_000)


@dataclass(frozen=True, kw_only=True)
class UpdateAuditConfig:
    """The effort of the audit."""

    search: InversionConfig | None = USUAL_SEARCH  # for images, a published one or your own; None: no search
    draws: int = 200_000  # of SPEAR
    seed: int = 0  # of the search and the draws

    def __post_init__(self) -> None:
        check_bounds(self, draws=1)


@dataclass(frozen=True)
class Truth:
    """The auditor's knowledge, which the adversary lacks; it only judges the report."""

    images: Tensor | None = None  # (N, C, H, W) float in [0, 1]; None: unknown
    labels: Tensor | None = None  # (N,) int64; None: unknown


@dataclass(frozen=True)
class _Case:
    """What all parts of the audit share; `sent` is the update before the decay of weights was undone."""

    model: nn.Module
    update: Update
    shape: tuple[int, int, int]
    truth: Truth
    config: UpdateAuditConfig
    sent: Update


def audit_update(
    model: nn.Module,
    update: Update,
    shape: tuple[int, int, int],
    *,
    subject: str = "An update of a client",
    truth: Truth | None = None,
    config: UpdateAuditConfig | None = None,
    progress: Progress = quiet,
) -> Report:
    """Report how much a server can read from one update: labels, images, and their bounds.

    `model` maps (N, C, H, W) float images to logits, in the client's training mode, and was trained with
    cross-entropy. It is not changed. Parameters before the update, if it has them, replace its own. `truth`
    has the images and labels behind the update, if available. `progress` is of the steps of the search.
    Raises ConfigError: the model does not take such images, or gives no logits; DataError: the update is of
    another model, or the truth has other images or labels.
    """
    truth, config = truth or Truth(), config or UpdateAuditConfig()
    images, labels, count = truth.images, truth.labels, update.training.images
    if images is not None and (images.shape[1:] != shape or len(images) != count):
        raise DataError(
            f"the truth has {len(images)} images of shape {tuple(images.shape[1:])}, and the update is of "
            f"{count} of shape {tuple(shape)}: give the images that the client trained on"
        )
    classes = check_takes(model, shape)
    fitted, sent = update.fit(model)
    if labels is not None and (len(labels) != count or not 0 <= labels.min() <= labels.max() < classes):
        raise DataError(
            f"the labels are {', '.join(map(str, labels.tolist()))}: the update is of {count} images, and "
            f"the model has the classes 0 to {classes - 1}: give one for each image"
        )
    undone, decay = undo_decay(fitted, sent)
    case = _Case(fitted, undone, shape, truth, config, sent)
    found = {"labels": _try("labels", "Labels", "No label was read", lambda: _report_labels(case))}
    if (suspect := exact.detect_imprint(fitted)) is not None:
        layer, share = suspect
        title, figures = "A model made to read images", {"layer": layer, "share": share}
        rows = f"{share:.0%} of the rows of {layer} measure one thing at different thresholds"
        words = f"The server's model is made to read images: {rows} (Fowl et al. 2021)."
        found["imprint"] = Finding("imprint", title, "leaks", words, figures=figures)
    title = "Images that come back exactly"
    found["exact"] = _try("exact", title, "None was read", lambda: _report_exact(case, title))
    if (search := config.search) is not None:
        readable, words = "counts" in found["labels"].figures, "Images that come back by a search"
        found["search"] = _try(
            "search", words, "None came back", lambda: _report_search(case, search, words, readable, progress)
        )
    found["bound"] = _report_bound(undone)
    return Report(
        audit="update",
        subject=subject,
        sentence=_sentence(case, found),
        findings=tuple(found.values()),
        changes=tuple(_changes(undone, found)),
        limits=tuple(_limits(case, decay)),
    )


def _try(name: str, title: str, otherwise: str, attempt: Callable[[], Finding]) -> Finding:
    try:
        return attempt()
    except SfumatoError as error:
        return Finding(name, title, "not shown", f"{otherwise}: {error}.")


def _report_labels(case: _Case) -> Finding:
    training, known, change = case.update.training, case.truth.labels, case.update.change
    knows = ThreatModel(
        shape=case.shape, batch=training.images, local_steps=training.steps, local_rate=training.rate
    )
    counts = label_inference.counts_of_update(case.model, change, knows, seed=case.config.seed)
    present = {str(label): int(count) for label, count in enumerate(counts) if count}
    figures: dict[str, object] = {"counts": present}
    right, mostly = "", False
    if known is not None:
        agreeing = int(counts.minimum(known.bincount(minlength=len(counts))).sum())
        right, mostly = f", and {agreeing} of {training.images} are right", 2 * agreeing > training.images
        figures["right"] = agreeing
    negative = int((label_inference.slopes(case.model, change) < 0).sum())
    # One image with an unmixed label gives one negative slope by cross-entropy and most other losses.
    certain = training.images == training.steps == negative == 1 and case.update.noise is None
    read = "read" if certain or right else "estimated"
    rows = tuple((label, str(count)) for label, count in present.items())
    table = Table(("class", "images"), rows, "Classes that the adversary reads, with counts.")
    words = f"The classes of the {training.images} images are {read} from the last layer{right}."
    return Finding("labels", "Labels", shown(certain or mostly), words, table, figures=figures)


def _report_exact(case: _Case, title: str) -> Finding:
    found, how = _read_exactly(case)
    sentence = f"{len(found)} images are read from {how}, without a search."
    if len(found) != (stated := case.update.training.images):
        sentence += f" {stated} were stated: the client trained on others as well, or some left no trace."
    return report_images("exact", title, sentence, found, case.truth.images, leaks=True)


def _read_exactly(case: _Case) -> tuple[Tensor, str]:
    """Recover images by algebra, (N, C, H, W) float, and name their source.

    The gradients of several steps, or with momentum, add up: their sum has the form of one.
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


def _report_search(
    case: _Case, config: InversionConfig, title: str, readable: bool, progress: Progress
) -> Finding:
    """Report images recovered by optimisation, by one attack that knows the client's training.

    Labels are of the truth, if known, else inferred from a `readable` last layer, or optimised, too.
    """
    training, noise, labels = case.update.training, case.update.noise, case.truth.labels
    steps = training.rate * math.sqrt(training.steps) / training.together
    deviation = 0.0 if noise is None else steps * noise.noise_multiplier * noise.clipping_norm
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
        config = replace(config, labels="inferred" if readable else "optimised")
    found = invert(case.model, case.update.change, knows, config, seed=case.config.seed, progress=progress)
    unit = "1 less the cosine" if config.objective == "cosine" else "squared distance"
    differs = f"differs from the client's by {found.cost:.3g} ({unit}; 0 is the same update)"
    sentence = f"A search of {config.steps:,} steps found images whose update {differs}."
    finding = report_images("search", title, sentence, found.images, case.truth.images, leaks=False)
    more = {"cost": found.cost, "steps": config.steps, "labels": found.labels.tolist()}
    return replace(finding, figures={**finding.figures, **more})


def _report_bound(update: Update) -> Finding:
    """Report the guarantee of noise against every adversary.

    Reconstruction robustness, Hayes, Mahloujifar & Balle 2023, Theorem 2: an adversary who comes near enough
    to an image with chance κ before they see the update, does so with at most Φ(Φ⁻¹(κ) + √T/σ) after it, for
    T steps of DP-SGD that may each see the image. Sampling of batches would reduce it.
    """
    noise, title, steps = update.noise, "Bounds by the noise", update.training.steps
    if noise is None:
        words = "No noise is stated, so nothing is proved: a stronger adversary may read more."
        return Finding("bound", title, "not shown", words)
    mu = math.sqrt(steps) / noise.noise_multiplier
    bounds = {str(among): gaussian(1 / among, mu=mu).chance for among in _PRIORS}
    rows = tuple((f"1 in {int(among):,}", f"{bound:.2%}") for among, bound in bounds.items())
    caption = f"Φ(Φ⁻¹(κ) + √T/σ) with T = {steps}: Hayes et al. 2023, Theorem 2."
    words = (
        f"Someone who guesses an image right 1 in 100 times beforehand does so in at most "
        f"{bounds['100']:.1%} of cases after this update, if noise of σ = {noise.noise_multiplier:g} was "
        f"added to gradients clipped to {noise.clipping_norm:g} in each of its steps."
    )
    table = Table(("chance beforehand", "at most afterwards"), rows, caption)
    verdict: Verdict = "bounded" if bounds["100"] < 1 / 2 else "not shown"
    return Finding("bound", title, verdict, words, table, figures={"mu": mu, "bounds": bounds})


def report_images(
    name: str,
    title: str,
    sentence: str,
    found: Tensor,
    truth: Tensor | None,
    leaks: bool,
    in_order: bool = False,
) -> Finding:
    """Show recovered images next to known originals, and measure how alike they are.

    They are matched to the originals unless they are `in_order`. Without originals, `leaks` is the verdict.
    """
    if truth is None or len(truth) != len(found):
        judged = "" if leaks else " Whether they are right shows in the pictures alone: no truth was given."
        rows = _rows((found, "came back"))
        return Finding(name, title, shown(leaks), sentence + judged, None, rows, {"images": len(found)})
    ordered = (found if in_order else found[match(truth.float(), found.float())]).float().clamp(0, 1)
    psnr = similarity.psnr(truth.float(), ordered).clamp(max=_MOST_DECIBELS).tolist()
    large = min(truth.shape[2:]) >= _SMALLEST
    ssim = similarity.ssim(truth.float(), ordered).tolist() if large else None
    back = sum(each >= CAME_BACK for each in psnr)
    said = [f"{each:.2f}" for each in ssim] if ssim else ["–"] * len(truth)
    lines = tuple((str(n), f"{psnr[n - 1]:.1f} dB", words) for n, words in enumerate(said, 1))
    caption = "How near each image that came back is to its original."
    table = Table(("image", "PSNR", "SSIM"), lines, caption)
    words = f"{sentence} {back} of {len(truth)} came back, at {CAME_BACK:g} dB or more."
    figures = {"images": len(found), "came_back": back, "psnr": psnr, "ssim": ssim}
    pictures = _rows((truth, "original"), (ordered, "came back"))
    return Finding(name, title, shown(back > 0), words, table, pictures, figures)


def _rows(*shown: tuple[Tensor, str]) -> tuple[tuple[Picture, ...], ...]:
    """Make a row of pictures of each (N, C, H, W) floats; none without images of one or three channels."""
    return tuple(
        tuple(Picture(image, words) for image in to_uint8(batch.float().clamp(0, 1)))
        for batch, words in shown
        if len(batch) and batch.shape[1] in (1, 3)
    )


def _sentence(case: _Case, found: Mapping[str, Finding]) -> str:
    leaks = [name for name in found if found[name].verdict == "leaks"]
    of = f"of its {case.update.training.images} images come back from it"
    if not any(each.any() for each in case.update.change.values()):
        return "The update is 0 everywhere: no image and no label is in it."
    if "imprint" in leaks:
        return "Do not train this model: it is made so that the server reads images from updates."
    if "exact" in leaks:
        return f"Do not send such an update: {found['exact'].figures['images']} {of} pixel by pixel."
    if "search" in leaks:
        return f"Do not send such an update: {found['search'].figures['came_back']} {of} by a search."
    if found["bound"].verdict == "bounded":
        return f"No image came back, and the noise bounds other adversaries. {found['bound'].sentence}"
    read = "its labels can be read, and " if "labels" in leaks else ""
    if "search" in found and case.truth.images is None:
        return f"Look at what a search found before you send such updates: {read}nothing is proved."
    return f"No image came back, but {read}nothing is proved: add noise before you rely on it."


def _changes(update: Update, found: Mapping[str, Finding]) -> Iterator[str]:
    leaks = {name for name in found if found[name].verdict == "leaks"}
    if "imprint" in leaks:
        yield "Take models from a party that clients trust, and let each client audit a model first."
    if update.noise is None:
        proves = "nothing else proves anything"
        yield f"Train with DP-SGD, such as Opacus, and audit again with its noise: {proves}."
    elif found["bound"].verdict != "bounded":
        yield "Add more noise, or make fewer steps between updates: the bound says little as it is."
    if "exact" in leaks:
        prevents = "that prevents exact reading, and nothing else"
        yield f"Begin the network with a convolution, not with a linear layer: {prevents}."
    if leaks & {"exact", "search", "labels"}:
        reads = "then it reads a batch of all clients together"
        yield f"Add updates up before the server sees them (secure aggregation): {reads}."
    if "search" in leaks and update.training.images < 8:
        yield "Train on more images before an update is sent; a search finds fewer of them."


def _limits(case: _Case, decay: tuple[float, float]) -> list[str]:
    training = case.update.training
    limits = [
        "It tries the attacks that it names; another adversary may find more.",
        "It is one update: many rounds of one client tell more.",
        "The loss is taken for cross-entropy of plain labels. Smoothed or mixed labels and class weights "
        "cannot be seen in an update, and make labels and searches worse than those of an adversary who "
        "knows them. Images whose momentum is left from earlier rounds count as images of this one.",
        "No decay of weights was found. It is found in a linear layer of more units than there are "
        "images, if numbers were not changed one by one, as by Adam, signs or noise.",
    ]
    if any(decay):
        squares, sizes = (each / (training.rate * training.steps) for each in decay)
        limits[-1] = (
            "A decay of weights was found and subtracted, as a server does, who has the weights: "
            f"{squares:.2g} of them, and {sizes:.2g} of their signs."
        )
    bits = max(significant_bits(each) for each in case.sent.change.values())
    if bits < 24 and any(each.any() for each in case.update.change.values()):
        limits.append(
            f"Its numbers have {bits} significant bits (half precision, float16 or bfloat16): rounding may "
            "have hidden images from this audit that numbers in 32 bits would show."
        )
    if not training.plain:
        limits.append("The client did not train by plain SGD at one rate; the search took it for that.")
    if training.batch is not None and training.steps * training.batch > training.images:
        limits.append(
            "The search assumes that mini-batches keep their order in every epoch; a client that shuffles is "
            "harder to invert than it shows."
        )
    if case.update.noise is not None:
        limits.append("The noise is taken as it is stated; whether it was added is not checked here.")
    return limits


def check_takes(model: nn.Module, shape: tuple[int, int, int]) -> int:
    """Run a copy of a model on two grey images, and return the number of its classes. Raises ConfigError."""
    size = "x".join(map(str, shape))
    try:
        given = copy.deepcopy(model).eval().float()(torch.full((2, *shape), 0.5))
    except Exception as error:
        layers = (each for each in model.modules() if next(each.parameters(False), None) is not None)
        first, takes = next(layers, model), ""
        for name, words in (("in_features", "numbers"), ("in_channels", "channels")):
            if hasattr(first, name):
                takes = f"; its first layer takes {getattr(first, name)} {words}"
        raise ConfigError(
            f"--shape {size}: the model does not take such images, of {shape[0]} channels and "
            f"{math.prod(shape)} numbers{takes}: give the shape (C, H, W) of its input "
            f"({type(error).__name__}: {shorten(str(error))})"
        ) from error
    made = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
    if len(made) == 2 and made[0] == 2:
        return int(made[1])
    said = f"the model makes {made} of two such images"
    raise ConfigError(f"--shape {size}: {said}: it has to return (2, classes) logits")
