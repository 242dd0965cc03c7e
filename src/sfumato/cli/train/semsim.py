"""`sfumato train semsim` and `sfumato train semsim-perceptual`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.show import bars, stderr
from sfumato.cli.train.shared import Given, method

if TYPE_CHECKING:
    from sfumato.learn.semsim import Judgements

Judged = Annotated[
    list[Path],
    typer.Option(
        "--judgements", help="A CSV that `sfumato annotate export` wrote. Repeat the option for more."
    ),
]

LeftOut = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="A data set of the judgements not to train on, so as to test on it."),
]


@method(
    "semsim",
    config="sfumato.learn.semsim:SemSimConfig",
    such_as="network=resnet18 or epochs=10",
    seeds="weights, order of images, and triplets",
)
def semsim(given: Given, judgements: Judged, leave_out: LeftOut = None) -> None:
    """Train SemSim, a distance to an original that follows the judgement of people.

    If you stop it, run the same command again to resume. `sfumato assess A B --semsim OUT` measures by it,
    and `sfumato assess agreement` says how far it agrees with people on a data set that was left out.

    Example: sfumato train semsim --judgements judged.csv --out semsim.safetensors
    """
    from sfumato.learn import semsim as learner

    config = given.config(learner.SemSimConfig)
    both = _read(judgements, config.size, leave_out)
    with given.checkpoint("steps") as (checkpoint, progress):
        model = learner.train(both, config, seed=given.seed, checkpoint=checkpoint, progress=progress)
        model.save(given.out)
    given.tell(model.card, [_words(model.card)])


@method(
    "semsim-perceptual",
    config="sfumato.learn.semsim.perceptual:PerceptualConfig",
    such_as="terms=both or epochs=10",
    seeds="held-out originals, order, and triplets",
)
def semsim_perceptual(
    given: Given,
    judgements: Judged,
    squeezenet: Annotated[
        Path,
        typer.Option(help="Weights of SqueezeNet 1.0, whose stages are weighed. The artefact holds them."),
    ],
    leave_out: LeftOut = None,
) -> None:
    """Weigh the stages of SqueezeNet by the judgement of people, and learn how often they recognise images.

    It needs few judgements, and seconds. `sfumato assess A B --semsim OUT` gives the probability of each
    pair.

    Example: sfumato train semsim-perceptual --judgements judged.csv --squeezenet s.npz --out p.safetensors
    """
    from sfumato.learn.semsim import perceptual as learner

    config = given.config(learner.PerceptualConfig)
    both = _read(judgements, config.size, leave_out)
    with bars(stderr()) as progress:
        task = progress.add_task("epochs")
        model = learner.train(
            both,
            config,
            backbone=squeezenet,
            seed=given.seed,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
    model.save(given.out)
    foretold = model.card["held_out"]
    held_out = (
        f"on {foretold['originals']:,} originals held out from training: Brier score "
        f"{foretold['brier']:.3f} (0 is best; {foretold['brier_of_share']:.3f} says the same of every image)"
    )
    given.tell(model.card, [_words(model.card), held_out])


def _read(judgements: list[Path], size: int, leave_out: str | None) -> "Judgements":
    from sfumato.errors import DataError, did_you_mean
    from sfumato.learn import semsim as method

    sets = [each for path in judgements for each in method.read(path, size=size).values()]
    kept = [each for each in sets if leave_out not in (each.source, each.source.partition(" (")[0])]
    if leave_out is not None and len(kept) == len(sets):
        known = [each.source.partition(" (")[0] for each in sets]
        raise DataError(f"no data set is called {leave_out!r}: {did_you_mean(leave_out, known)}")
    return method.combine(kept, size=size)


def _words(card: dict[str, Any]) -> str:
    """Describe the training data."""
    data = card["data"]
    return (
        f"{data['name']}: {data['reconstructions']:,} reconstructions of {data['originals']:,} originals, "
        f"{data['recognised']:,} recognised"
    )
