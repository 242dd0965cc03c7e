"""`sfumato audit gallery` and `training`: leaks of enrolled classes, and of a private training."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.audit.family import For, Html, Pdf, Threshold, app, finish
from sfumato.cli.options import Reference, Split, setting
from sfumato.cli.show import AsJson, bar, note
from sfumato.cli.sources import SplitBy, Strict, of_split
from sfumato.errors import ConfigError, require

if TYPE_CHECKING:
    from torch import Tensor

    from sfumato.audits.gallery import Embed, ToPrototypes


@app.command("gallery")
def gallery(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model that `sfumato serve` runs.")],
    data: Annotated[
        str,
        typer.Argument(metavar="DATA", help="Photographs like enrolled ones: folder:DIR or table:FILE."),
    ],
    label: Annotated[str, typer.Option(help="The label whose values are enrolled as classes.")] = "identity",
    spec: Annotated[
        str | None, typer.Option("--with", help="The protection (default: the model's first).")
    ] = None,
    shot: Annotated[int, typer.Option(help="How many photographs of each class are enrolled.")] = 5,
    photographs: Annotated[
        int, typer.Option(help="How many of each class are used. Classes with fewer are left out.")
    ] = 8,
    known: Annotated[
        int, typer.Option(help="How many of these the adversary has. They are never enrolled.")
    ] = 3,
    people: Annotated[int, typer.Option(help="How many classes are used at most.")] = 100,
    split: Split = "test",
    split_by: SplitBy = None,
    reference: Reference = None,
    galleries: Annotated[int, typer.Option(help="How many are drawn: shadows of each other.")] = 64,
    attacked: Annotated[int, typer.Option(help="How many of the galleries are attacked.")] = 8,
    step: Annotated[float, typer.Option(help="The step to which probabilities are rounded.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of people and galleries.")] = 0,
    strict: Strict = False,
    audience: For = None,
    threshold: Threshold = None,
    html: Html = None,
    pdf: Pdf = None,
    as_json: AsJson = False,
) -> None:
    """Say which enrolled photographs and people an adversary identifies by stealing or querying a gallery.

    Galleries are drawn from the photographs, and each is attacked by an adversary who has the model and all
    photographs (LiRA). They see the stored prototypes, or answers with more or less of their confidence.
    The exit code is 1 if something is identified.

    Example: sfumato audit gallery encoder.safetensors folder:photos --label class
    """
    from sfumato.audits.gallery import GalleryAuditConfig, audit_gallery

    require("an audit of galleries", "study", "scipy")
    numbers = {"shot": shot, "photographs": photographs, "known": known, "people": people, "seed": seed}
    config = GalleryAuditConfig(step=step, galleries=galleries, attacked=attacked, **numbers)
    embed, estimate, table, size, subject = _set_up(model, spec, reference, shot)
    images = of_split(data, size, label=label, split=split, split_by=split_by, strict=strict)
    with bar("galleries") as progress:
        report = audit_gallery(
            embed,
            images.images,
            images.label(label).codes,
            estimate=estimate,
            table=table,
            subject=subject,
            config=config,
            progress=progress,
        )
    finish(report, as_json, html, pdf, audience, threshold)


def _set_up(
    model: str, spec: str | None, reference: str | None, shot: int
) -> "tuple[Embed, ToPrototypes | None, bool, tuple[int, int, int], str]":
    """Load a model -> how it embeds and estimates prototypes, if it has a table, (C, H, W), in words."""
    import numpy as np
    import torch

    from sfumato import protect
    from sfumato.dp.mechanisms import fresh_noise
    from sfumato.protect.release import KINDS
    from sfumato.protect.spec import portable
    from sfumato.serve.answer_tables import has_answers
    from sfumato.serve.models import load
    from sfumato.serve.served import code_of

    served = load(model, reference=reference)
    demand = served.demand
    if spec is None and demand.protection is None:
        spec = f"{'feature' if served.kind == 'private feature' else 'code'}:artefact={model}"
    if spec is None:
        assert demand.protection is not None
        protection = demand.protection
    else:
        protection = protect.parse(spec, takes=KINDS)
        if demand.protection is not None and protection.spec != demand.protection.spec:
            raise ConfigError(f"--with {spec}: {model} was trained for {demand.protection.spec}: name that")

    def embed(images: "Tensor") -> "Tensor":
        release = protection.release(images, fresh_noise())
        return torch.from_numpy(served.run(served.prepare(release)))

    estimate: ToPrototypes | None = None
    table = has_answers(served) and not protection.draws_noise
    if served.codes is not None:
        codes, weight = served.codes, served.codes.weight(code_of(protection.spec))

        def estimate(means: "Tensor") -> "Tensor":
            examples = np.full(len(means), shot)
            return torch.from_numpy(codes.posterior(means.numpy(), examples * weight, examples)[0])

    note(f"released by {protection.spec}")
    subject = f"A gallery of {served.name}, released by {portable(protection.spec)}"
    return embed, estimate, table, served.shape, subject


@app.command("training")
def training(
    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="A private model of `sfumato train meta`.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Without a model, its privacy budget.")] = None,
    delta: Annotated[float, typer.Option(help="Without a model, the delta of the budget.")] = 1e-5,
    algorithm: Annotated[
        str, typer.Option(help="Without a model: maml, fomaml, reptile or meta-sgd.")
    ] = "maml",
    clipping: Annotated[str, typer.Option(help="Without a model, as in `sfumato train meta`.")] = "quantile",
    clipping_settings: Annotated[
        list[str] | None,
        setting("A setting of --clipping (default: one by which canaries count most).", option="--clip"),
    ] = None,
    overrides: Annotated[list[str] | None, setting("Without a model, such as inner_steps=3.")] = None,
    canaries: Annotated[int, typer.Option(help="Canaries per training.")] = 200,
    runs: Annotated[int, typer.Option(help="How many trainings. More give a tighter bound.")] = 4,
    steps: Annotated[int, typer.Option(help="Steps per training.")] = 4,
    confidence: Annotated[float, typer.Option(help="Each bound holds with this probability.")] = 0.99,
    seed: Annotated[int, typer.Option(help="Seed of weights and coins. The noise is always fresh.")] = 0,
    html: Html = None,
    as_json: AsJson = False,
) -> None:
    """Prove how much a private meta-training reveals about a task at least, by a few short trainings.

    Canaries stand in for the tasks, so none of your images is read. It takes seconds. The exit code is 1 if
    a bound is above the stated value. An audit can convict a training. It cannot acquit one.

    Example: sfumato audit training start.safetensors --html training.html
    """
    from sfumato.audits.guarantees import TrainingAuditConfig, audit_training
    from sfumato.base.settings import configure, parse_overrides
    from sfumato.learn import meta

    audit = TrainingAuditConfig(canaries=canaries, runs=runs, steps=steps, confidence=confidence, seed=seed)
    card: Mapping[str, Any] | None = None
    if model is not None:
        if epsilon is not None or overrides:
            raise ConfigError(f"{model} has its settings: leave --epsilon and --set out")
        card = meta.load(model).card
        if card.get("privacy") is None:
            raise ConfigError(f"{model}: promises nothing that an audit could break: set private.epsilon")
        config, subject = meta.config_of(card["config"]), f"The training of {model}"
    elif epsilon is None:
        raise ConfigError("name a model, or the budget of a training: --epsilon 9")
    else:
        private = [f"private.epsilon={epsilon}", f"private.delta={delta}", f"private.clipping={clipping}"]
        config = configure(meta.MetaConfig, [f"algorithm={algorithm}", *private, *(overrides or [])])
        subject = f"Private meta-training by {algorithm}, clipping {clipping}, eps = {epsilon:g}"
    clip = parse_overrides(clipping_settings) if clipping_settings else None
    with bar("trainings") as progress:
        report = audit_training(
            config, card=card, settings=clip, subject=subject, audit=audit, progress=progress
        )
    finish(report, as_json, html)
