"""`sfumato edge`: measure the cost of the device side of an artefact."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Measure the cost of an artefact on a device: time, memory and bytes.", no_args_is_help=True
)


@app.callback()
def _commands() -> None:
    pass


@app.command("profile")
def profile(
    artefacts: Annotated[
        list[Path], typer.Argument(help="Masks, private features or codes, cut at any layer.")
    ],
    images: Annotated[int, typer.Option(min=2, help="How many images to time.")] = 200,
    json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON per row instead of a table.")
    ] = False,
) -> None:
    """Measure time, memory and bytes sent, for device sides and for whole models, on one core.

    Each runs in onnxruntime, in a process of its own, in float32. A whole model is both sides of a private
    feature together, and sends nothing.

    Example: sfumato edge profile code.safetensors
    """
    from dataclasses import asdict
    from json import dumps

    from rich.table import Table

    from sfumato.cli.show import print_table
    from sfumato.edge.profile import profile as measured

    costs = measured(artefacts, images=images)
    if json:
        for cost in costs:
            print(dumps(asdict(cost)))
        return
    table = Table(title=f"one image on one core, medians of {images}")
    table.add_column("artefact")
    table.add_column("part")
    for column in ("ms", "10% to 90%", "MiB", "parameters", "bytes sent"):
        table.add_column(column, justify="right")
    for cost in costs:
        table.add_row(
            cost.artefact,
            cost.part,
            f"{cost.milliseconds:.2f}",
            f"{cost.low:.2f} to {cost.high:.2f}",
            f"{cost.memory:.1f}",
            f"{cost.parameters:,}",
            f"{cost.bytes:,}",
        )
    print_table(table)
