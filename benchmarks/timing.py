"""What a benchmark says: lines, each a ratio of two things timed in turn; a run of them kept as JSON; growth.

Times on a shared machine drift by tens of percent, and both sides of a ratio drift together. So functions
take turns, and a ratio is the median over rounds of the ratio within a round, which a slow second does not
move. Where a call takes less than 20 ms a round makes several. With one thread the clock is that of the
processor, which other work moves least: on a machine with eight times too much to do, ratios of seven runs
lay within 7% of each other by it, and within 13% by the clock on the wall.
"""

import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import torch

from sfumato.base.hardware import resolve

REGRESSION = 0.15  # of a ratio; two runs of the same code differ by less
_LEAST_ROUNDS, _MOST_ROUNDS = 3, 51
_CALL = 0.02  # seconds; shorter calls are repeated within a round


@dataclass(frozen=True, kw_only=True)
class Line:
    """One comparison.

    `name` says what is ours, and finds it again in another run; `ours` and `other` are in `unit`; `ratio` is
    ours by other, of times in the same run. Of times less is better (`lower`), of rates more. `bound` is what
    is wanted of the ratio, at least or, where lower is better, at most; `limit` the same of `ours` itself.
    """

    name: str
    ours: float
    other: float
    unit: str
    against: str
    ratio: float
    lower: bool = False
    bound: float | None = None
    limit: float | None = None

    @property
    def kept(self) -> bool | None:
        """Whether what is wanted is there; None where nothing is."""
        wanted = [pair for pair in ((self.ratio, self.bound), (self.ours, self.limit)) if pair[1] is not None]
        if not wanted:
            return None
        return all(found <= asked if self.lower else found >= asked for found, asked in wanted)

    @property
    def wanted(self) -> str:
        """What is wanted, in words; empty for nothing."""
        least = "at most" if self.lower else "at least"
        words = [] if self.bound is None else [f"{least} {self.bound:g}"]
        if self.limit is not None:
            words.append(f"{least} {self.limit:,g} {self.unit}")
        return ", ".join(words)

    def worse_than(self, before: "Line") -> float:
        """By what share the ratio is worse than in an earlier run: 0.2 is a fifth slower, -0.2 is faster."""
        now, then = (self.ratio, before.ratio) if self.lower else (before.ratio, self.ratio)
        return now / then - 1


def short(number: float) -> str:
    """Three digits, or all of those before the point."""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


@dataclass(frozen=True)
class Turns:
    """Seconds a call of functions that took turns: (rounds, functions)."""

    seconds: list[list[float]]

    def time(self, function: int) -> float:
        """The median of one."""
        return median(times[function] for times in self.seconds)

    def ratio(self, one: int, other: int) -> float:
        """The time of one by that of another: the median of this within each round."""
        return median(times[one] / times[other] for times in self.seconds)

    def costs(
        self,
        name: str,
        *,
        against: str,
        one: int = 0,
        other: int = 1,
        unit: str = "ms",
        scale: float = 1e3,
        bound: float | None = None,
        limit: float | None = None,
    ) -> Line:
        """A line of times, less is better; `scale` units are a second."""
        return Line(
            **{"name": name, "against": against, "unit": unit, "lower": True, "bound": bound, "limit": limit},
            **{"ours": scale * self.time(one), "other": scale * self.time(other)},
            ratio=self.ratio(one, other),
        )

    def rates(
        self,
        name: str,
        *,
        against: str,
        count: float,
        unit: str,
        one: int = 0,
        other: int = 1,
        other_count: float | None = None,
        bound: float | None = None,
        limit: float | None = None,
    ) -> Line:
        """A line of rates, more is better: a call does `count`, or `other_count` where the other differs."""
        theirs = count if other_count is None else other_count
        return Line(
            **{"name": name, "against": against, "unit": unit, "bound": bound, "limit": limit},
            **{"ours": count / self.time(one), "other": theirs / self.time(other)},
            ratio=self.ratio(other, one) * count / theirs,
        )


def in_turn(*functions: Callable[[], object], seconds: float, waits: bool = False) -> Turns:
    """Call functions in turn until `seconds` are over, 3 rounds at least and 51 at most.

    A first call of each warms up: that of torch.optim alone loads for a second. It counts if it took five
    times as long as all should, and then nothing follows. Among calls of more than 20 ms it counts too if it
    took no more than a tenth longer than the second one. For `waits` see clock_for.
    """
    start, clock = time.perf_counter(), clock_for(waits)
    first = [_timed(function, 1, clock) for function in functions]
    if time.perf_counter() - start > 5 * seconds:
        return Turns([first])
    end = start + seconds
    again = [_timed(function, 1, clock) for function in functions]
    calls = [max(1, math.ceil(_CALL / taken)) for taken in again]
    warm = all(one < 1.1 * other for one, other in zip(first, again, strict=True))
    rounds = ([first, again] if warm else [again]) if max(calls) == 1 else []
    while len(rounds) < _LEAST_ROUNDS or (time.perf_counter() < end and len(rounds) < _MOST_ROUNDS):
        rounds.append(
            [_timed(function, count, clock) for function, count in zip(functions, calls, strict=True)]
        )
    return Turns(rounds)


def clock_for(waits: bool) -> Callable[[], float]:
    """The clock on the wall for what waits for a disk or other processes, or where torch has several threads.

    That of the processor for the rest.
    """
    return time.perf_counter if waits or torch.get_num_threads() > 1 else time.process_time


def _timed(function: Callable[[], object], calls: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(calls):
        function()
    return (clock() - start) / calls


# A run kept as JSON


def machine() -> dict[str, Any]:
    """What decides ratios, and tells nothing of whose machine it is."""
    flags: set[str] = set()
    info = Path("/proc/cpuinfo")
    if info.exists():
        flags = set(info.read_text(encoding="utf-8").partition("flags")[2].partition("\n")[0].split())
    return {
        "processor": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": os.environ.get("OMP_NUM_THREADS", "one a core"),
        "flags": sorted(flags & {"avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16"}),
        "precision": resolve("auto"),
    }


def versions() -> dict[str, str]:
    """Of what is timed, and of what it is timed against, where it is there."""
    found = {"python": platform.python_version()}
    peers = ("torchmetrics", "scikit-image", "opendp", "easyfsl", "opacus")
    for name in ("sfumato", "torch", "numpy", "pillow", *peers):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def record(content: Mapping[str, Any], *, seconds: float) -> dict[str, Any]:
    """A run as it is written: `content`, and where and when it was made."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "load": round(os.getloadavg()[0], 1),
        "machine": machine(),
        "versions": versions(),
        **content,
    }


def write(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def as_json(line: Line) -> dict[str, Any]:
    """With what is wanted and kept, for other readers."""
    return {**asdict(line), "wanted": line.wanted, "kept": line.kept}


def lines_of(run: Mapping[str, Any]) -> dict[str, Line]:
    """The lines of a run that was read, by name."""
    fields = Line.__dataclass_fields__
    lines = [Line(**{key: value for key, value in each.items() if key in fields}) for each in run["lines"]]
    return {line.name: line for line in lines}


def regressions(now: Iterable[Line], before: Mapping[str, Line]) -> dict[str, float]:
    """The lines whose ratio is worse by more than REGRESSION, and by what share.

    A line that one of the two runs has not is none.
    """
    worse = {line.name: line.worse_than(before[line.name]) for line in now if line.name in before}
    return {name: share for name, share in worse.items() if share > REGRESSION}


def last(folder: Path, facts: Mapping[str, Any]) -> dict[str, Line]:
    """Each line as it was found last on such a machine, by the runs of a folder, whose names sort by date."""
    found: dict[str, Line] = {}
    for path in sorted(folder.glob("*.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        if run["machine"] == facts:
            found |= lines_of(run)
    return found


def exponent(work: Sequence[float], taken: Sequence[float]) -> float:
    """The a of taken ~ work^a, by least squares on the logarithms; 1 is linear."""
    x, y = [math.log(each) for each in work], [math.log(each) for each in taken]
    middle, height = sum(x) / len(x), sum(y) / len(y)
    slope = sum((a - middle) * (b - height) for a, b in zip(x, y, strict=True))
    return slope / sum((a - middle) ** 2 for a in x)
