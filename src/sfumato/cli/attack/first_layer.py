"""`sfumato attack first-layer`: read images from the gradient of a first linear layer, without a search."""

from sfumato.cli import updates
from sfumato.cli.attack.family import Force, Out, Seed, app, check_out, show
from sfumato.cli.show import AsJson


@app.command("first-layer")
def first_layer(
    model: updates.Model,
    update: updates.Sent,
    shape: updates.Shape,
    out: Out,
    weights: updates.Weights = None,
    classes: updates.Classes = None,
    before: updates.Before = None,
    images: updates.Images = None,
    rate: updates.Rate = None,
    truth: updates.Originals = None,
    seed: Seed = 0,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Read images from the gradient of a first layer that is linear: exactly, and in a moment.

    A single image comes back by division (Phong et al. 2017), a batch by SPEAR (Dimitrov et al. 2024). The
    decay of weights is subtracted first. If a server made the layer for this purpose, images of a large batch
    come back, too (Fowl et al. 2021).

    Example: sfumato attack first-layer --model net.py:make --update u.pt --shape 3x32x32 --out back
    """
    from sfumato.attack.updates import load
    from sfumato.audits.update import UpdateAuditConfig, make_case
    from sfumato.audits.update.reading import read_exactly

    check_out(out, force=force)
    sizes = updates.image_shape(shape)
    audited = updates.open_named(model, sizes, weights, classes)
    sent = load(update, training=updates.training_of(images, None, rate, None), before=before)
    known = updates.truth_of(truth, None, sizes)
    found, how = read_exactly(make_case(audited, sent, sizes, known, UpdateAuditConfig(seed=seed)))
    words = f"{len(found)} image{'' if len(found) == 1 else 's'} read from {how}."
    show(found, out, words=words, truth=known.images, as_json=as_json)
