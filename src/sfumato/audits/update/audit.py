"""The audit of an update: its parts, and its first sentence."""

from collections.abc import Callable, Sequence

from torch import nn

from sfumato.attack.updates import Update
from sfumato.attack.updates.update import significant_bits
from sfumato.audits.findings import Finding, Report
from sfumato.audits.update.case import NOTHING_KNOWN, USUAL, Case, Truth, UpdateAuditConfig, make_case
from sfumato.audits.update.proof import report_bound
from sfumato.audits.update.reading import report_exact, report_labels, report_malicious
from sfumato.audits.update.search import report_search
from sfumato.errors import DataError


def audit_update(
    model: nn.Module,
    update: Update,
    shape: tuple[int, int, int],
    *,
    subject: str = "An update of a client",
    truth: Truth = NOTHING_KNOWN,
    config: UpdateAuditConfig = USUAL,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Report how much a server can read from one update: labels, images, and their bounds.

    Args:
        model: (N, C, H, W) float images -> logits, in the client's training mode, trained with cross-entropy.
            It is not changed. Parameters before the update, if it has them, replace its own.
        update: see attack.updates.
        shape: (C, H, W) of an image.
        subject: the audited object, in words.
        truth: the images and labels behind the update, if available.
        config: the effort.
        progress: called after each step of the search with the numbers done and planned.

    Raises:
        ConfigError: the model does not take such images, see make_case.
        DataError: the update is of another model, or the truth has other images.
    """
    images = truth.images
    if images is not None and (images.shape[1:] != shape or len(images) != update.training.images):
        raise DataError(
            f"the truth has {len(images)} images of shape {tuple(images.shape[1:])}, and the update is of "
            f"{update.training.images} of shape {tuple(shape)}: give the images that the client trained on"
        )
    case = make_case(model, update, shape, truth, config, progress)
    findings = [report_labels(case), *report_malicious(case), report_exact(case)]
    if config.search is not None:
        findings.append(report_search(case, config.search))
    findings.append(report_bound(case))
    return Report(
        audit="update",
        subject=subject,
        sentence=_sentence(case, findings),
        findings=tuple(findings),
        changes=tuple(_changes(case, findings)),
        limits=tuple(_limits(case)),
    )


def _says_anything(case: Case) -> bool:
    return any(bool(each.any()) for each in case.update.change.values())


def _of(findings: Sequence[Finding], name: str) -> Finding | None:
    return next((finding for finding in findings if finding.name == name), None)


def _leaks(findings: Sequence[Finding], name: str) -> bool:
    finding = _of(findings, name)
    return finding is not None and finding.verdict == "leaks"


def _sentence(case: Case, findings: Sequence[Finding]) -> str:
    images = case.update.training.images
    if not _says_anything(case):
        return "The update is 0 everywhere: no image and no label is in it."
    exact, searched, bound = (_of(findings, name) for name in ("exact", "search", "bound"))
    if _leaks(findings, "imprint"):
        return "Do not train this model: it is made so that the server reads images from updates."
    if exact and exact.verdict == "leaks":
        return (
            f"Do not send such an update: {exact.figures['images']} of its {images} images come back from it "
            "pixel by pixel."
        )
    if searched and searched.verdict == "leaks":
        return (
            f"Do not send such an update: {searched.figures['came_back']} of its {images} images come back "
            "from it by a search."
        )
    if bound and bound.verdict == "bounded":
        return f"No image came back, and the noise bounds other adversaries. {bound.sentence}"
    read = "its labels can be read, and " if _leaks(findings, "labels") else ""
    if searched and case.truth.images is None:
        return f"Look at what a search found before you send such updates: {read}nothing is proved."
    return f"No image came back, but {read}nothing is proved: add noise before you rely on it."


def _changes(case: Case, findings: Sequence[Finding]) -> list[str]:
    changes = []
    if _leaks(findings, "imprint"):
        changes.append(
            "Take models from a party that clients trust, and let each client audit a model first."
        )
    if case.update.noise is None:
        changes.append(
            "Train with DP-SGD, such as Opacus, and audit again with its noise: nothing else proves anything."
        )
    elif _of(findings, "bound").verdict != "bounded":  # type: ignore[union-attr]
        changes.append("Add more noise, or make fewer steps between updates: the bound says little as it is.")
    if _leaks(findings, "exact"):
        changes.append(
            "Begin the network with a convolution, not with a linear layer: that prevents exact reading, and "
            "nothing else."
        )
    if len(findings) and (
        _leaks(findings, "exact") or _leaks(findings, "search") or _leaks(findings, "labels")
    ):
        changes.append(
            "Add updates up before the server sees them (secure aggregation): then it reads a batch of all "
            "clients together."
        )
    if _leaks(findings, "search") and case.update.training.images < 8:
        changes.append("Train on more images before an update is sent; a search finds fewer of them.")
    return changes


def _limits(case: Case) -> list[str]:
    limits = [
        "It tries the attacks that it names; another adversary may find more.",
        "It is one update: many rounds of one client tell more.",
    ]
    limits.append(
        "The loss is taken for cross-entropy of plain labels. Smoothed or mixed labels and class weights "
        "cannot be seen in an update, and make labels and searches worse than those of an adversary who "
        "knows them. Images whose momentum is left from earlier rounds count as images of this one."
    )
    limits.append(
        "A decay of weights was found and subtracted, as a server does, who has the weights: "
        f"{case.decay[0]:.2g} of them, and {case.decay[1]:.2g} of their signs."
        if any(case.decay)
        else "No decay of weights was found. It is found in a linear layer of more units than there are "
        "images, if numbers were not changed one by one, as by Adam, signs or noise."
    )
    bits = max(significant_bits(each) for each in case.sent.change.values())
    if bits < 24 and _says_anything(case):
        limits.append(
            f"Its numbers have {bits} significant bits (half precision, float16 or bfloat16): rounding may "
            "have hidden images from this audit that numbers in 32 bits would show."
        )
    training = case.update.training
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
