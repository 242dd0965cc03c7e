"""The schema of study files: a list a section, from the dataclasses that check them."""

import dataclasses
import inspect
import re
from typing import Any, get_args, get_type_hints

_ENTRY = re.compile(r"^([\w, ]+): (.*)$")


def pages() -> dict[str, str]:
    """Path below the reference -> text, in Markdown."""
    from sfumato.study.grid import StudyConfig

    text = (
        "# Study files\n\nThe keys of the YAML file that `sfumato study run` reads. A key that does not "
        "exist is refused, and the nearest is named.\n\n## The file\n\n"
    )
    text += _keys(StudyConfig)
    for key, kind in _inner(StudyConfig):
        text += f"\n## {key}\n\n{_first_paragraph(kind)}\n\n{_keys(kind)}"
        for below, deeper in _inner(kind):
            text += f"\n### {key}.{below}\n\n{_first_paragraph(deeper)}\n\n{_keys(deeper)}"
    return {"study.md": text}


def _inner(kind: Any) -> list[tuple[str, Any]]:
    """The keys of a dataclass that hold dataclasses, with these."""
    hints = get_type_hints(kind)
    found = []
    for field in dataclasses.fields(kind):
        kinds = [each for each in (hints[field.name], *get_args(hints[field.name])) if inspect.isclass(each)]
        found += [(field.name, each) for each in kinds if dataclasses.is_dataclass(each)]
    return found


def _keys(kind: Any) -> str:
    from sfumato.base.settings import yaml_of

    hints, meanings = get_type_hints(kind), attributes(kind)
    sections = {name for name, _ in _inner(kind)}
    rows = []
    for field in dataclasses.fields(kind):
        default = "needed"
        if field.name in sections:
            default = "a section, below"
        elif field.default is not dataclasses.MISSING:
            default = f"default `{yaml_of(field.default)}`"
        elif field.default_factory is not dataclasses.MISSING:
            default = f"default `{yaml_of(field.default_factory())}`"
        hint = hints[field.name]
        words = hint.__name__ if inspect.isclass(hint) and not get_args(hint) else str(hint)
        words = words.replace("typing.", "").replace("NoneType", "null").replace("None", "null")
        words = re.sub(r"\bsfumato\.[\w.]+\.", "", words)
        meaning = meanings.get(field.name, "")
        rows.append(f"- **`{field.name}`** (`{words}`; {default}){': ' if meaning else ''}{meaning}")
    return "\n".join(rows) + "\n"


def attributes(kind: Any) -> dict[str, str]:
    """Name -> meaning, from the section "Attributes:" of a docstring; several names may share an entry."""
    lines = (inspect.getdoc(kind) or "").splitlines()
    if "Attributes:" not in lines:
        return {}
    found: dict[str, str] = {}
    names: list[str] = []
    for line in lines[lines.index("Attributes:") + 1 :]:
        if line.strip() and not line.startswith("    "):
            break
        entry = _ENTRY.match(line[4:]) if not line.startswith("     ") else None
        if entry:
            names = [name.strip() for name in entry[1].split(",")]
            found |= dict.fromkeys(names, entry[2])
        else:
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
    return {name: words.strip().replace("*", r"\*").replace("<", r"\<") for name, words in found.items()}


def _first_paragraph(kind: Any) -> str:
    return " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())
