"""The settings of a study by their protection, the parameters that differ, and their looks."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from sfumato.study.choose.estimates import Study
from sfumato.study.vocabulary import SPARE_LOOKS, Look, ProtectionWords, words_of

_FILES = ("artefact", "index")  # parameters whose values are paths, or names of tools
_WORDS = ("artefact", "values")  # parameters with nothing between their values


@dataclass(frozen=True)
class Family:
    """The settings of a study that share a protection, and the parameters that distinguish them.

    Attributes:
        name: of the protection, such as "dp-pix".
        specs: its settings, in the order of the study.
        varying: the parameters that differ between them.
        fixed: the others, as "epsilon = 3".
    """

    name: str
    specs: tuple[str, ...]
    varying: tuple[str, ...]
    fixed: str

    @property
    def title(self) -> str:
        """ "DP-Pix (epsilon = 3)"."""
        title = self._words.title
        return f"{title} ({self.fixed})" if self.fixed else title

    @property
    def axis(self) -> str:
        """The name of the horizontal axis, with its unit."""
        return ", ".join(self._words.axes.get(key, key) for key in self.varying)

    @property
    def is_scale(self) -> bool:
        """Whether a line from setting to setting has a meaning: not between files, nor places in a row."""
        return len(self.varying) < 2 and not set(self.varying).intersection(_WORDS)

    @property
    def legend(self) -> str:
        """ "DP-Pix (epsilon = 3), by side of a cell b (pixels)"."""
        return f"{self.title}, by {self.axis}" if self.axis else self.title

    @property
    def _words(self) -> ProtectionWords:
        return words_of(self.name)

    def label(self, spec: str) -> str:
        """The label of a setting within its family: "4", or "4, 3" if two parameters vary."""
        values = {**self._words.defaults, **parameters(spec)}
        if self.varying and not values.keys() & set(self.varying):
            return "default"
        # A path is clear by its name, and the tables have all of it.
        return ", ".join(
            Path(values[key]).stem if key in _FILES else values[key] for key in self.varying if key in values
        )

    def places(self) -> tuple[list[float], bool]:
        """The place of each setting on the axis, and whether that is its parameter's value.

        A single varying number is an axis; anything else is a row of places.
        """
        if len(self.varying) == 1:
            try:
                values = [float(self.label(spec)) for spec in self.specs]
            except ValueError:
                pass
            else:
                return values, True
        return [float(place) for place in range(len(self.specs))], False


def parameters(spec: str) -> dict[str, str]:
    """The parameters written in a canonical spec: "dp-pix:cell=4,epsilon=3" -> {cell: 4, epsilon: 3}."""
    pairs = (part.partition("=") for part in spec.partition(":")[2].split(",") if part)
    return {key: value for key, _, value in pairs}


def family(name: str, protections: Sequence[str]) -> Family:
    """The settings among `protections` of the protection of that name, at least one."""
    specs = [spec for spec in protections if spec.partition(":")[0] == name]
    values = [parameters(spec) for spec in specs]
    keys = list(dict.fromkeys(key for setting in values for key in setting))
    varying = [key for key in keys if len({setting.get(key) for setting in values}) > 1]
    fixed = [key for key in keys if key not in varying]
    if len(specs) == 1 and fixed:
        # One setting varies in nothing: its first parameter is the axis, with one place on it.
        varying, fixed = fixed[:1], fixed[1:]
    words = ", ".join(f"{key} = {values[0][key]}" for key in fixed)
    return Family(name, tuple(specs), tuple(varying), words)


def families(study: Study) -> list[Family]:
    """The families of a study in its order, without "none"."""
    names = dict.fromkeys(spec.partition(":")[0] for spec in study["protections"] if spec != "none")
    return [family(name, study["protections"]) for name in names]


def looks(study: Study) -> dict[str, Look]:
    """The look of each family, "none" first: the same in every chart and every report.

    Protections of a user's own get the remaining ones, in the order of the study.
    """
    spare = cycle(SPARE_LOOKS)
    names = ["none", *(family.name for family in families(study))]
    return {name: words_of(name).look or next(spare) for name in names}
