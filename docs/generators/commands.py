"""The command line: a section a command, from what Typer knows of it."""

import re
from collections.abc import Iterator
from typing import Any

import typer.main


def pages() -> dict[str, str]:
    """Path below the reference -> text, in Markdown."""
    from sfumato.cli.app import app

    root = typer.main.get_command(app)
    context = typer.Context(root, info_name="sfumato")
    text = "# Command line\n\nWhat `sfumato COMMAND --help` says, on one page.\n\n" + _options(root, context)
    return {"cli.md": text + "".join(_command(context, *each) for each in _commands(root, context))}


def _commands(group: Any, context: Any, depth: int = 2) -> Iterator[tuple[Any, str, int]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command.hidden:
            continue
        yield command, f"{context.command_path} {name}".strip(), depth
        if hasattr(command, "list_commands"):
            inner = typer.Context(command, info_name=name, parent=context)
            yield from _commands(command, inner, depth + 1)


def _command(parent: Any, command: Any, path: str, depth: int) -> str:
    context = typer.Context(command, info_name=path)
    words = _plain(command.help or command.short_help or "")
    usage = re.sub("[{}]", "", " ".join(command.collect_usage_pieces(context))).replace("......", "...")
    heading = f"\n{'#' * depth} {path}\n\n```console\n$ {path} {usage}\n```\n\n"
    return f"{heading}{words}\n\n{_options(command, context)}"


def _options(command: Any, context: Any) -> str:
    rows = []
    for parameter in command.get_params(context):
        if getattr(parameter, "hidden", False) or parameter.name in ("help", "show_completion"):
            continue
        option = parameter.param_type_name == "option"
        names = (
            [*parameter.opts, *parameter.secondary_opts] if option else [parameter.metavar or parameter.name]
        )
        default = parameter.get_default(context) if option else None
        notes = [_plain(getattr(parameter, "help", None) or "")]
        if parameter.required and option:
            notes.append("Required.")
        if default not in (None, False, [], ()) and "default:" not in notes[0]:
            notes.append(f"Default: `{default}`.")
        if parameter.envvar:
            notes.append(f"Environment: `{parameter.envvar}`.")
        shown = ", ".join(f"`{name}`" for name in names)
        rows.append(f"| {_cell(shown)} | {_cell(' '.join(filter(None, notes)))} |")
    return "| | |\n|---|---|\n" + "\n".join(rows) + "\n" if rows else ""


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _plain(text: str) -> str:
    """Help as paragraphs, whose < and * are themselves."""
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text.replace("\b", ""))]
    return "\n\n".join(paragraphs).replace("<", r"\<").replace("*", r"\*")
