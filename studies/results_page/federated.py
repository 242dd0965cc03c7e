"""What updates of federated clients give away."""

import statistics
from typing import Any

from results_page.reading import Record, read


class Exact(Record):
    """A batch read by SPEAR."""

    least_psnr: float
    match: float
    seconds: float


class Searched(Record):
    """The same batch by a search."""

    psnr: list[float]
    seconds: float


class Batch(Record):
    """A cell of the part `spear`."""

    batch: int
    double: Exact
    single: Exact
    search: Searched


class Client(Record):
    """One audit."""

    images: int
    labels_right: int
    exact: int
    searched: int
    psnr: list[float]
    bound: float | None = None
    seconds: float


class Steps(Record):
    """A cell of the part `steps`."""

    data: str = "cifar10"
    network: str
    batch: int
    steps: int
    private: bool
    clients: list[Client]

    @property
    def images(self) -> int:
        """Of all clients."""
        return sum(client.images for client in self.clients)

    def came_back(self, how: str) -> int:
        """How many images, of all clients: `labels_right`, `exact` or `searched`."""
        return sum(getattr(client, how) for client in self.clients)

    @property
    def psnr(self) -> float | None:
        """The mean over images of a search; None where there was nothing to match."""
        values = [value for client in self.clients for value in client.psnr]
        return statistics.mean(values) if values else None


class Training(Record):
    """How a client of Flower trained."""

    images: int
    batch: int
    steps: int


class Flower(Client):
    """A cell of the part `flower`."""

    data: str
    network: str
    training: Training


class Settings(Record):
    """Of all parts."""

    rate: float
    search_steps: int
    noise: float
    norm: float


class Part(Record):
    """Any part."""

    settings: Settings


class Spear(Part):
    """Record of SPEAR."""

    cells: dict[str, Batch]

    def of(self, batch: int) -> list[Batch]:
        """Batches of one size."""
        return [cell for cell in self.cells.values() if cell.batch == batch]

    @property
    def least(self) -> float:
        """The least PSNR of any image, in either precision."""
        return min(min(cell.double.least_psnr, cell.single.least_psnr) for cell in self.cells.values())

    @property
    def longest(self) -> float:
        """Seconds."""
        return max(max(cell.double.seconds, cell.single.seconds) for cell in self.cells.values())


class Table(Part):
    """Record of local steps and batches."""

    cells: dict[str, Steps]

    def cell(self, data: str, network: str, batch: int, steps: int, private: bool) -> Steps | None:
        """One setting; None where it was not made."""
        before = "" if data == "cifar10" else f"{data}-"
        return self.cells.get(f"{before}{network}-{batch}-{steps}-{'dp' if private else 'plain'}")

    @property
    def networks(self) -> list[tuple[str, str]]:
        """Which photographs and networks there are, as templates list them."""
        made = {(cell.data, cell.network) for cell in self.cells.values()}
        return [pair for pair in (("cifar10", "mlp"), ("cifar10", "lenet"), ("lfw", "mlp")) if pair in made]

    @property
    def whole(self) -> bool:
        """Whether every setting of these was made."""
        return len(self.cells) == 18 * len(self.networks)

    def paired(self, private: bool) -> list[Steps]:
        """The cells with, or without, noise whose setting was made both ways."""
        both = [name.rpartition("-")[0] for name, cell in self.cells.items() if cell.private]
        names = [f"{setting}-{'dp' if private else 'plain'}" for setting in both]
        return [self.cells[name] for name in names if f"{name.rpartition('-')[0]}-plain" in self.cells]

    def total(self, private: bool, how: str) -> int:
        """How many came back, over all settings that were made both ways."""
        return sum(cell.came_back(how) for cell in self.paired(private))

    def images(self, private: bool) -> int:
        """How many were attacked there."""
        return sum(cell.images for cell in self.paired(private))


class Federations(Part):
    """Record of Flower's clients."""

    cells: dict[str, Flower]


def values() -> dict[str, Any]:
    """What templates may use."""
    parts = {
        "spear": read("updates/spear", Spear),
        "steps": read("updates/steps", Table),
        "flower": read("updates/flower", Federations),
    }
    return {"updates": parts}
