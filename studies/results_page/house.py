"""What holds while things break: kills, faults, hostile servers, damaged files, near copies, honest releases."""

from typing import Any

from pydantic import Field, RootModel

from results_page.figures import Interval
from results_page.reading import Record, read, read_file

LIGHT = (
    "one pixel",
    "1% of the pixels",
    "JPEG 30",
    "JPEG 30 to 95",
    "WebP 50 to 95",
    "resized by 0.5 to 2, Lanczos",
    "resized by 0.5 to 2, bilinear",
    "mirrored",
    "mirrored, JPEG 30 to 95",
    "turned by 90, 180 or 270 degrees",
    "grey",
    "brightness +-10%",
    "contrast +-10%",
)


class Checked(Record):
    """A part of a study, and the problems that it found."""

    problems: list[str] = Field(default_factory=list)


class Kill(Record):
    """Of a process."""

    during: str
    workers_too: bool


class Kills(Checked):
    """The record of studies/kills.py."""

    kills: list[Kill]
    files: int
    different_images: int
    charges: int
    outputs: int
    seed: int
    wall_s: float


class Killed(Record):
    """What was killed of a cluster."""

    workers: int
    drivers: int
    nodes: int


class Cluster(Record):
    """The record of studies/cluster.py."""

    cells: int
    records: int
    killed: Killed
    made_again: list[str]
    same_report: bool = Field(alias="report_is_the_same_but_for_times")
    wall_s: float


class KilledService(Checked):
    """A service that was killed in the middle of enrolments."""

    kills: int
    acknowledged: int = Field(alias="examples_acknowledged")
    sent_again: int = Field(alias="requests_lost_and_sent_again")


class Waits(Record):
    """How long others wait."""

    p50_ms: float
    max_ms: float


class Slow(Checked):
    """Clients that send a byte a second."""

    clients: int
    longest_s: float
    others_before: Waits
    others_meanwhile: Waits


class Idle(Checked):
    """Connections that say nothing."""

    connections: int
    others_before: Waits
    others_meanwhile: Waits


class Database(Checked):
    """PostgreSQL that was stopped and started."""

    well_again_after_s: float


class Full(Checked):
    """A full disk."""

    acknowledged: int
    answers: dict[str, int]


class Clock(Checked):
    """A clock that is off: shift -> answers."""

    answers: dict[str, dict[str, int]]

    @property
    def years(self) -> dict[int, dict[str, int]]:
        """By years."""
        return {int(shift[:-1]) // 365: answers for shift, answers in self.answers.items()}


class Before(Record):
    """A server before an attack."""

    p50_ms: float
    memory_mb: int


class Meanwhile(Record):
    """A server under attack, and those who ask it honestly."""

    answered: int = Field(alias="honest_answered")
    failed: dict[str, int] = Field(alias="honest_failed")
    p50_ms: float = Field(alias="honest_p50_ms")
    p99_ms: float = Field(alias="honest_p99_ms")
    memory_mb: int

    @property
    def asked(self) -> int:
        """Questions."""
        return self.answered + sum(self.failed.values())


class Siege(Checked):
    """An attack on a server."""

    before: Before
    meanwhile: Meanwhile
    log_bytes: int


class Faults(Record):
    """The record of studies/faults.py."""

    sqlite: KilledService = Field(alias="kills on SQLite")
    postgres: KilledService = Field(alias="kills on PostgreSQL")
    database: Database
    full: Full
    slow: Slow
    idle: Idle
    clock: Clock
    half_headers: Siege = Field(alias="half headers")
    bodies: Siege
    siege: Siege
    few_descriptors: Siege = Field(alias="siege at 1,024 descriptors")
    seed: int
    wall_s: float


class Averaged(Record):
    """What a service learns that asks again and again."""

    releases: int
    off: float = Field(alias="rms_error_of_the_mean")
    off_one: float = Field(alias="rms_error_of_one")


class Averager(Checked):
    """The same of a device with a new ledger, and of one without budgets."""

    limited: Averaged = Field(alias="a new ledger")
    free: Averaged = Field(alias="no budgets")
    wall_s: float


class Servers(Checked):
    """Demands that protect nothing."""

    demands: int
    followed: int = Field(alias="sent_after_100_changes")
    wall_s: float


class Vanishing(Checked):
    """Ledgers that are moved away."""

    runs: int
    outputs: int = Field(alias="outputs_before_the_loss")
    refused: int = Field(alias="refused_to_begin_another")
    wall_s: float


class Flipped(Checked):
    """Ledgers with a flipped bit."""

    flips: int
    bytes: int
    outcomes: dict[str, int]
    wall_s: float

    @property
    def named(self) -> int:
        """How often the damage was named."""
        return sum(count for outcome, count in self.outcomes.items() if outcome.startswith("refused"))


class Cards(Checked):
    """Damaged artefacts."""

    outcomes: dict[str, dict[str, int]]
    wall_s: float

    @property
    def damaged(self) -> int:
        """How many."""
        return sum(sum(counts.values()) for counts in self.outcomes.values())

    @property
    def refused(self) -> int:
        """How many were refused."""
        return sum(counts.get("refused", 0) for counts in self.outcomes.values())


class Hostile(Record):
    """The record of studies/hostile.py."""

    averager: Averager
    servers: Servers
    vanishing: Vanishing
    flipped: Flipped
    cards: Cards
    seed: int

    @property
    def seconds(self) -> float:
        """Of all parts."""
        parts = (self.averager, self.servers, self.vanishing, self.flipped, self.cards)
        return sum(part.wall_s for part in parts)


class Noticed(Record):
    """Changed images that are noticed as near copies."""

    noticed: int
    of: int
    ends: tuple[float, float] = Field(alias="interval")

    @property
    def interval(self) -> Interval:
        """The share, and its interval."""
        return Interval(self.noticed / self.of, *self.ends)


class Pairs(Record):
    """Different images that are taken for copies."""

    pairs: int
    alarms: int
    ends: tuple[float, float] = Field(alias="interval")


class Labelled(Record):
    """Pairs, by their labels, and how many images have a near copy of the same label."""

    images: int
    photographs: int
    different: Pairs = Field(alias="of different labels")


class Copying(Record):
    """Settings of studies/near_copies.py."""

    count: int
    seed: int


class NearCopies(Record):
    """The record of studies/near_copies.py: data set -> change -> what is noticed."""

    noticed: dict[str, dict[str, Noticed]]
    bursts: dict[str, dict[str, Noticed]]
    pairs: dict[str, Labelled]
    settings: Copying
    seconds: float

    @property
    def changes(self) -> list[str]:
        """In the order of the study."""
        return list(next(iter(self.noticed.values())))

    def rates(self, *changes: str) -> list[float]:
        """How many are noticed of some changes, over the sets whose pictures are not small: all but CIFAR-10."""
        large = [noticed for name, noticed in self.noticed.items() if name != "CIFAR-10"]
        return [noticed[change].interval.value for noticed in large for change in changes]


class Refused(Record):
    """Honest releases that are refused."""

    refused: int
    releases: int
    interval: tuple[float, float]


class Guard(Record):
    """The record of studies/guard.py."""

    noise: Refused
    plain: Refused = Field(alias="without noise")
    stated: float
    seed: int


class Counts(RootModel[dict[str, int]]):
    """Outcomes of mutants of one format."""

    @property
    def total(self) -> int:
        """How many."""
        return sum(self.root.values())

    @property
    def read(self) -> int:
        """How many are images still."""
        return self.root.get("read", 0)

    @property
    def failed(self) -> int:
        """How many were neither read nor refused."""
        return sum(count for outcome, count in self.root.items() if outcome.startswith("FAILED"))

    @property
    def refused(self) -> int:
        """How many were refused by name."""
        return self.total - self.read - self.failed


class Fuzz(Record):
    """The record of studies/fuzz.py."""

    files: int
    seed: int
    counts: dict[str, Counts]
    max_pixels: int
    wall_seconds: float
    slowest_ms: float
    peak_mb: float
    versions: dict[str, str]


def problems(record: Record) -> list[str]:
    """Of all parts of a record, each with the name of its part."""
    return [
        f"{name}: {problem}"
        for name, part in record
        if isinstance(part, Checked)
        for problem in part.problems
    ]


def values() -> dict[str, Any]:
    """What templates may use."""
    return {
        "kills": read_file("kills.json", Kills),
        "cluster": read_file("cluster.json", Cluster),
        "faults": read_file("faults.json", Faults),
        "hostile": read_file("hostile.json", Hostile),
        "near_copies": read("near-copies", NearCopies),
        "light_changes": LIGHT,
        "guard": read("guard", Guard),
        "fuzz": read_file("fuzz.json", Fuzz),
        "problems": problems,
    }
