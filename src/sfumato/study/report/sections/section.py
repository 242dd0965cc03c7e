"""What a section of the page is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sfumato.study.report import charts
from sfumato.study.vocabulary import Look


@dataclass(frozen=True)
class Section:
    """One section of the page.

    Attributes:
        name: its id in the page, and of its template.
        title: at its head.
        contents: in the list of contents.
        values: what its template shows, beside what all templates know, see page.render.
        originals: whether it shows original images.
    """

    name: str
    title: str
    contents: str
    values: Mapping[str, Any] = field(default_factory=dict)
    originals: bool = False


def legend(group: str, looks: Sequence[tuple[str, Look]]) -> list[tuple[str, str]]:
    """(sample, name) of each look; `group` is unique in the page."""
    return [(charts.key(f"{group} {name}", look), name) for name, look in looks]
