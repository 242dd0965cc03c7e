"""Docstrings are plain text with `code` in backticks; reStructuredText must not read more into them."""

import re
from typing import Any

_CODE = re.compile(r"`[^`]{1,200}`")  # may go on in the next line
_MARKUP = re.compile(r"[*|\\]|(?<=\w)_(?!\w)")
_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields|Example|Examples):$")


_COLON = "\ue000"  # for a colon before which napoleon would look for the type of a property


def before_sections(app: Any, what: str, name: str, it: Any, options: Any, lines: list[str]) -> None:
    """Rewrite the lines of a docstring, in place, before napoleon reads its sections."""
    lines[:] = paragraphs(escaped("\n".join(lines)).splitlines())
    if what in ("attribute", "data", "property") and lines:
        lines[0] = lines[0].replace(":", _COLON)


def after_sections(app: Any, what: str, name: str, it: Any, options: Any, lines: list[str]) -> None:
    """Take back what was written for napoleon alone."""
    lines[:] = [line.replace(_COLON, ":") for line in lines]


def escaped(text: str) -> str:
    """Text whose code is code, and whose other characters are themselves."""
    parts, end = [], 0
    for code in _CODE.finditer(text):
        after = text[code.end() : code.end() + 1]
        before = text[code.start() - 1 : code.start()]
        parts += [_MARKUP.sub(r"\\\g<0>", text[end : code.start()])]
        parts += ["\\ " if before.isalnum() else "", f"`{code[0]}`", "\\ " if after.isalnum() else ""]
        end = code.end()
    return "".join([*parts, _MARKUP.sub(r"\\\g<0>", text[end:]).replace("`", "\\`")])


def paragraphs(lines: list[str]) -> list[str]:
    """Indented text outside of a section becomes a literal block, as it is meant."""
    out: list[str] = []
    section = False
    literal = False
    for line in lines:
        if line.strip() and not line.startswith(" "):
            section, literal = _SECTION.match(line) is not None, False
        elif line.strip() and not section and not literal and not _continues(out):
            out += ["", "::", ""]
            literal = True
        out.append(line)
    return out


def _continues(out: list[str]) -> bool:
    """Whether the last line is an item of a list, or goes on one."""
    for line in reversed(out):
        if not line.strip():
            return False
        if re.match(r"^\s*([-*•]|\\\*|\d+\.)\s", line):
            return True
    return False
