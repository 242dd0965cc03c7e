"""`sfumato demo`: the main job end to end, on an embedded world or on the user's own images."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    data: Annotated[
        str, typer.Option(help="faces, folder:DIR (a sub-folder per class), or table:FILE.")
    ] = "faces",
    target: Annotated[
        str | None, typer.Option(help="Label to classify (default: headwear, or class).")
    ] = None,
    sensitive: Annotated[
        str | None, typer.Option(help="Label that must stay hidden (default: identity, or the target).")
    ] = None,
    at_most: Annotated[
        float,
        typer.Option(min=0, max=1, help="Highest re-identification that a recommended setting may have."),
    ] = 0.1,
    size: Annotated[
        int, typer.Option(min=16, help="Side of the images in pixels; 64 takes four times as long.")
    ] = 32,
    out: Annotated[Path, typer.Option(help="Where to keep the run.")] = Path("runs/demo"),
) -> None:
    """Protect, learn, attack, measure and report: in a few minutes, with one command.

    Compares the classical obfuscations at several parameters: how well a few-shot classifier still works
    on what was released, and how often adversaries still name the person. Stopped, it goes on.
    """
    import yaml

    from sfumato.cli.show import run_study
    from sfumato.engines import EngineConfig
    from sfumato.study import grid

    settings = yaml.safe_load(Path(__file__).with_name("demo.yaml").read_text(encoding="utf-8"))
    settings["recommend"] = {"reidentification_at_most": at_most}
    settings["data"]["size"] = size
    if data != "faces":
        settings["title"] = data
        settings["data"] = {"source": data, "size": size}
        settings["task"] |= {"target": "class", "sensitive": sensitive or target or "class"}
    if target is not None:
        settings["task"]["target"] = target
    if sensitive is not None:
        settings["task"]["sensitive"] = sensitive
    config = grid.parse(settings, "demo")
    # Processes of one thread each: threads that share a step wait for each other, and on a machine that does
    # other things as well they wait most of the time.
    run_study(config, out, fit=data != "faces", engine=EngineConfig(keep_memory=True))
