"""Whether an enrolled photograph or a person is found in a gallery."""

from typing import Any

from results_page.reading import Record, read

WORLDS = {"faces": "drawn faces", "lfw": "LFW"}


class Found(Record):
    """What one adversary finds; the keys of `rates` are false-positive rates."""

    members: int
    others: int
    auc: float
    rates: dict[str, tuple[float, float, float]]

    def at(self, rate: str) -> str:
        """A true-positive rate and its interval, in percent."""
        share, low, high = (100 * value for value in self.rates[rate])
        return f"{share:.1f}% ({low:.1f} to {high:.1f})"


class Defence(Record):
    """A way to keep prototypes, and what each view finds."""

    accuracy: float
    photograph: dict[str, Found]
    person: dict[str, Found]


class Cell(Record):
    """One number of shots."""

    defences: dict[str, Defence]
    seconds: float


class Settings(Record):
    """Of a world."""

    people: int
    photographs: int
    known: int
    galleries: int
    attacked: int
    directions: int
    step: float
    delta: float
    epsilons: list[float]
    seeds: list[int]


class World(Record):
    """Record of a world."""

    cells: dict[str, Cell]
    settings: Settings

    def rows(self, shot: str) -> list[tuple[str, Defence, str]]:
        """(Name of a defence with what the adversary sees, the defence, its view), in the order of the table."""
        plain = self.cells[shot].defences["none"]
        rows = [
            ("none: prototypes stolen", plain, "stored"),
            ("none: answers with distance", plain, "full"),
            (f"probability rounded to {self.settings.step:g}", plain, "rounded"),
            ("label only", plain, "label"),
        ]
        for epsilon in self.settings.epsilons:
            noisy = self.cells[shot].defences[f"noise-{epsilon:g}"]
            rows.append((f"noise, eps = {epsilon:g}: prototypes stolen", noisy, "stored"))
            rows.append((f"noise, eps = {epsilon:g}: answers with distance", noisy, "full"))
        return rows


def values() -> dict[str, Any]:
    """What templates may use."""
    return {"membership": {name: read(f"membership/{world}", World) for world, name in WORLDS.items()}}
