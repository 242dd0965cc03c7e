"""`sfumato audit training`: try to break the promise of a private meta-training."""

from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.audit.family import Html, app, say
from sfumato.cli.options import setting
from sfumato.cli.show import AsJson, bars, stderr

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from sfumato.learn.meta import MetaConfig


@app.command("training")
def training(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]",
            help="A private model of `sfumato train meta`, whose settings and card are audited.",
        ),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Without a model, the privacy budget: an epsilon.")
    ] = None,
    delta: Annotated[float, typer.Option(help="Without a model, the delta of the budget.")] = 1e-5,
    algorithm: Annotated[
        str, typer.Option(help="Without a model, the method: maml, fomaml, reptile or meta-sgd.")
    ] = "maml",
    clipping: Annotated[
        str, typer.Option(help="Without a model, how contributions are bounded, as for `sfumato train meta`.")
    ] = "quantile",
    clipping_settings: Annotated[
        list[str] | None,
        setting(
            "A setting of the clipping (default: those under which a canary counts most).", option="--clip"
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None, setting("Without a model, a setting, such as inner_steps=3.")
    ] = None,
    canaries: Annotated[
        int, typer.Option(help="Canaries per training. A fair coin puts each one in or leaves it out.")
    ] = 200,
    runs: Annotated[
        int, typer.Option(help="How many trainings. One finds a gross fault, more give a tighter bound.")
    ] = 4,
    steps: Annotated[int, typer.Option(help="Steps per training.")] = 4,
    confidence: Annotated[float, typer.Option(help="Each bound holds with this probability.")] = 0.99,
    seed: Annotated[int, typer.Option(help="Seed of weights and coins. The noise is always fresh.")] = 0,
    html: Html = None,
    as_json: AsJson = False,
) -> None:
    """Prove how much a private meta-training reveals about a task at least, by a few short trainings.

    Canaries stand in for the tasks, so none of your images is read. It takes seconds.

    The exit code is 1 if a bound is above the stated value. An audit can convict a training. It cannot
    acquit one.

    Example: sfumato audit training start.safetensors --html training.html
    """
    from sfumato.audits.training import TrainingAuditConfig, audit_training
    from sfumato.base.settings import parse_overrides

    audit = TrainingAuditConfig(canaries=canaries, runs=runs, steps=steps, confidence=confidence, seed=seed)
    card: Mapping[str, Any] | None = None
    if model is None:
        config, subject = _configure(epsilon, delta, algorithm, clipping, overrides)
    else:
        config, card = _of_model(model, epsilon, overrides)
        subject = f"The training of {model}"
    with bars(stderr()) as progress:
        task = progress.add_task("trainings")
        report = audit_training(
            config,
            card=card,
            settings=parse_overrides(clipping_settings) if clipping_settings else None,
            subject=subject,
            audit=audit,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
    say(report, html=html, as_json=as_json)


def _configure(
    epsilon: float | None, delta: float, algorithm: str, clipping: str, overrides: list[str] | None
) -> "tuple[MetaConfig, str]":
    """Return the settings from the options, and the subject."""
    from sfumato.base.settings import configure
    from sfumato.errors import ConfigError
    from sfumato.learn.meta import MetaConfig

    if epsilon is None:
        raise ConfigError("name a model, or the budget of a training: --epsilon 9")
    settings = [
        f"algorithm={algorithm}",
        f"private.epsilon={epsilon}",
        f"private.delta={delta}",
        f"private.clipping={clipping}",
        *(overrides or []),
    ]
    return (
        configure(MetaConfig, settings),
        f"Private meta-training by {algorithm}, clipping {clipping}, eps = {epsilon:g}",
    )


def _of_model(
    path: str, epsilon: float | None, overrides: list[str] | None
) -> "tuple[MetaConfig, Mapping[str, Any]]":
    """Return the settings from the card of a model, and the card."""
    from sfumato.errors import ConfigError
    from sfumato.learn import meta

    if epsilon is not None or overrides:
        raise ConfigError(f"{path} has its settings: leave --epsilon and --set out")
    card = meta.load(path).card
    if card.get("privacy") is None:
        raise ConfigError(f"{path}: promises nothing, so there is nothing to audit: set private.epsilon")
    return meta.config_of(card["config"]), card
