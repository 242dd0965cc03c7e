"""The command line: a page a command, from what Typer knows of it."""

import re
from collections.abc import Iterator
from typing import Any

import typer.main

_EXAMPLE = "\n\nExample: "  # the last paragraph of each help, see tests/cli/test_cli.py


def pages() -> dict[str, str]:
    """Path below the reference -> text, in Markdown."""
    from sfumato.cli.app import app

    root = typer.main.get_command(app)
    context = typer.Context(root, info_name="sfumato")
    made = {f"cli/{name}.md": text for name, text in _pages(root, context)}
    panels: dict[str, list[str]] = {}
    for name, command in root.commands.items():
        if not command.hidden:
            panels.setdefault(command.rich_help_panel, []).append(_row(name, command))
    rows = "".join(f"\n## {panel}\n\n{''.join(rows)}" for panel, rows in panels.items())
    names = "".join(f"cli/{name}\n" for name, command in root.commands.items() if not command.hidden)
    tree = f"```{{toctree}}\n:hidden:\n\n{names}```\n"
    text = f"# Command line\n\nWhat `sfumato COMMAND --help` says, a page per command.\n{rows}\n{tree}"
    return {"cli.md": f"{text}\n## Options of all commands\n\n{_options(root, context)}", **made}


def _pages(root: Any, context: Any) -> Iterator[tuple[str, str]]:
    """Name of a command, and the text of its page; those of a family are sections of it."""
    for name, command in root.commands.items():
        if not command.hidden:
            inner = typer.Context(command, info_name=name, parent=context)
            text = _command(command, inner, f"sfumato {name}", "#")
            for sub, below in getattr(command, "commands", {}).items():
                of_sub = typer.Context(below, info_name=sub, parent=inner)
                text += "\n" + _command(below, of_sub, f"sfumato {name} {sub}", "##")
            yield name, text


def _command(command: Any, context: Any, path: str, heading: str) -> str:
    words, _, example = (command.help or command.short_help or "").partition(_EXAMPLE)
    usage = re.sub("[{}]", "", " ".join(command.collect_usage_pieces(context))).replace("......", "...")
    text = f"{heading} {path}\n\n```console\n$ {path} {usage}\n```\n\n{_plain(words.strip())}\n\n"
    if example:
        text += f"For example:\n\n```console\n$ {' '.join(example.split())}\n```\n\n"
    return text + _options(command, context)


def _row(name: str, command: Any) -> str:
    first = _plain((command.help or "").partition("\n\n")[0])
    return f"- [{name}](cli/{name}.md): {first}\n"


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
