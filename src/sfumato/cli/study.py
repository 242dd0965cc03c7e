"""`sfumato study`: run a study file, rewrite the report of a run, or pack a run into one file."""

from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.audit.family import For, Pdf, Threshold, finish
from sfumato.cli.options import Address, setting
from sfumato.cli.show import (
    AsJson,
    Check,
    NoPictures,
    PrintConfig,
    Yes,
    conclude,
    print_board,
    print_config,
    print_json,
    run_study,
    settings_of,
)
from sfumato.cli.sources import SplitBy, Strict
from sfumato.errors import ConfigError

app = typer.Typer(help="Compare protections: run a study file, make its report.", no_args_is_help=True)


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="A study file (YAML), or `board` for the fixed one.")],
    out: Annotated[
        Path | None, typer.Option(help="The folder to keep the run in (default: runs/NAME).")
    ] = None,
    overrides: Annotated[list[str] | None, setting("Replace a setting, such as task.shot=1.")] = None,
    engine: Annotated[str, typer.Option(help="Where cells run: local, or ray for a cluster.")] = "local",
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="How many cells run at once (default: 1 for local, all that fit for ray)."),
    ] = None,
    cpus: Annotated[int, typer.Option(min=1, help="Cores for each cell, if several run at once.")] = 1,
    gpus: Annotated[float, typer.Option(min=0, help="GPUs for each cell, with ray; also a fraction.")] = 0,
    address: Address = None,
    listing: Annotated[bool, settings_of("sfumato.study.grid:StudyConfig")] = False,
    printing: PrintConfig = False,
    split_by: SplitBy = None,
    strict: Strict = False,
    no_pictures: NoPictures = False,
    protections: Annotated[
        list[str] | None,
        typer.Option(
            "--protection",
            metavar="SPEC|FOLDER",
            help="Compare one more: a spec, or a folder of images that another tool made of those that "
            "`sfumato data write board COPY` writes. Repeat the option for more.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the run of another study there.")] = False,
    check: Check = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Run a study and write its report. A study that was stopped resumes.

    Example: sfumato study run mine.yaml --workers 2
    """
    from sfumato.base.engines import EngineConfig
    from sfumato.study import grid
    from sfumato.study.run import prepare

    asked = [] if split_by is None else [f"task.split_by={split_by}"]
    asked += ["data.strict=true"] * strict + ["pictures=0"] * no_pictures
    config = grid.load(file, [*(overrides or []), *asked])
    if protections:
        from sfumato.study.board import compare

        config = compare(config, protections)
    if printing:
        print_config(config)
        return
    workers = workers or 1 if engine == "local" else workers
    where = EngineConfig(name=engine, workers=workers, cpus=cpus, gpus=gpus, address=address)
    directory = out or Path("runs") / config.name
    bounds = {label: f"--set recommend.inference_at_most.{label}=" for label in config.task.attributes}
    bounds |= {"": "--set recommend.reidentification_at_most=", "folds": "--set task.folds="}
    prepared = prepare(config, fit=True)
    run_study(prepared, directory, bounds, where, force=force, check=check, yes=yes, as_json=as_json)


@app.command()
def report(
    directory: Annotated[
        Path, typer.Argument(help="The folder of the run, or the file that `sfumato study rows` made of it.")
    ],
    pdf: Pdf = None,
    no_pictures: Annotated[
        bool, typer.Option("--no-pictures", help="Write the report without images. The records keep them.")
    ] = False,
    audience: For = None,
    protection: Annotated[
        str | None,
        typer.Option(metavar="SPEC", help="With --for dpo: the setting (default: the recommended one)."),
    ] = None,
    threshold: Threshold = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the content of the report as JSON.")] = False,
) -> None:
    """Write the report of a run from its records, even if the run is not finished.

    The PDF is one page, with the advice, its utility and the risks left.
    With --for dpo it is the evidence on one setting, evidence.html in the same folder.

    Example: sfumato study report runs/mine --pdf mine.pdf
    """
    import json

    from sfumato.study import report as reports

    if audience is not None:
        from sfumato.audits import evidence

        threshold = evidence.THRESHOLD if threshold is None else threshold
        kept = reports.load(directory)
        case = evidence.read_case(kept, directory, protection=protection, threshold=threshold)
        folder = directory.with_suffix("") if directory.is_file() else directory
        made = evidence.make_report(case, threshold=threshold)
        finish(made, as_json, folder / "evidence.html", pdf)
        return
    if protection is not None or threshold is not None:
        raise ConfigError("--protection and --threshold belong to --for dpo: add that, or leave them out")
    every = reports.load_all(directory)
    path = reports.write(directory, every, pictures=not no_pictures)
    if pdf is not None:
        results = every[0] if len(every) == 1 else reports.load(directory)
        reports.write_pdf(reports.render(results, summary=True, pictures=not no_pictures), pdf)
    if as_json:
        told = [reports.as_json(results) for results in every]
        print(json.dumps(told if len(told) > 1 else told[0], indent=1, ensure_ascii=False))
        return
    conclude(directory, every, path)
    if pdf is not None:
        print(f"PDF: {pdf}")


@app.command()
def rows(
    directory: Annotated[Path, typer.Argument(help="The folder of the run.")],
    file: Annotated[Path, typer.Argument(help="The file to write, such as run.jsonl.")],
    no_pictures: Annotated[bool, typer.Option("--no-pictures", help="Leave out all images.")] = False,
) -> None:
    """Pack the records of a run into one file, a line each, to keep or to send.

    `sfumato study report` reads the file as it reads the folder. Above a megabyte a second file is written.

    Example: sfumato study rows runs/mine mine.jsonl
    """
    from sfumato.study.records import pack

    count = pack(directory, file, leave_out=("pictures", "examples") if no_pictures else ())
    print(f"{file}: the study and {count} records")


@app.command()
def board(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Folders of runs of `board`, or files that `sfumato study rows` made of them."),
    ],
    as_json: AsJson = False,
) -> None:
    """Join rows of the board into one table, with the reasons why some do not count.

    The first run is the one that others must be like.

    Example: sfumato study board runs/blur runs/mine.jsonl
    """
    from sfumato.study.board import join

    rows = join(runs)
    if as_json:
        print_json([row.as_json() for row in rows])
    else:
        print_board(rows)
