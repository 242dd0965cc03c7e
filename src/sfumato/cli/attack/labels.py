"""`sfumato attack labels`: count the classes behind an update."""

from sfumato.cli import updates
from sfumato.cli.attack.family import Seed, app
from sfumato.cli.show import AsJson, print_json


@app.command("labels")
def labels(
    model: updates.Model,
    update: updates.Sent,
    shape: updates.Shape,
    weights: updates.Weights = None,
    classes: updates.Classes = None,
    before: updates.Before = None,
    images: updates.Images = None,
    steps: updates.Steps = None,
    rate: updates.Rate = None,
    batch: updates.Batch = None,
    labels: updates.Labels = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Read from the last layer how many images of each class a client trained on.

    For one image it is exact, for more an estimate. With --labels, it counts how many are right.

    Example: sfumato attack labels --model net.py:make --update u.pt --shape 3x32x32
    """
    from sfumato.attack.updates import load
    from sfumato.audits.update import UpdateAuditConfig, make_case
    from sfumato.audits.update.case import label_counts

    sizes = updates.image_shape(shape)
    audited = updates.open_named(model, sizes, weights, classes)
    sent = load(update, training=updates.training_of(images, steps, rate, batch), before=before)
    known = updates.truth_of(None, labels, sizes)
    counts = label_counts(make_case(audited, sent, sizes, known, UpdateAuditConfig(seed=seed)))
    read = {str(label): int(count) for label, count in enumerate(counts) if count}
    right = None
    if known.labels is not None:
        right = int(counts.minimum(known.labels.bincount(minlength=len(counts))).sum())
    if as_json:
        print_json({"counts": read, "right": right, "images": sent.training.images})
        return
    for label, count in read.items():
        print(f"class {label}: {count} image{'' if count == 1 else 's'}")
    if right is not None:
        print(f"{right} of {sent.training.images} are right")
