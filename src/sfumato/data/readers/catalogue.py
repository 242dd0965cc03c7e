"""The data sources: content, address, terms, and layout on disk, as catalogue.yaml states them.

Facts about the data sets are there and nowhere else: `sfumato data list` prints them, and the readers quote
the address when a part is missing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sfumato.base.settings import read_yaml


@dataclass(frozen=True)
class Source:
    """One data source; catalogue.yaml says what each entry means."""

    name: str
    holds: str
    terms: str
    layout: tuple[str, ...] = ()
    url: str = ""
    archive: str = ""
    place: str = "DIR"

    @property
    def write(self) -> str:
        """Its form on the command line and in a study."""
        return f"{self.name}:{self.place}" if self.place else self.name


@cache
def sources() -> Mapping[str, Source]:
    """Every source, by its name."""
    entries = read_yaml(Path(__file__).with_suffix(".yaml"))
    return {each["name"]: Source(**each | {"layout": tuple(each.get("layout", ()))}) for each in entries}
