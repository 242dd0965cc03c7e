"""Tasks of a piece, in the order of their worth, by processes that share a card: as many as the time allows.

Each finished task is a line of PIECE.jsonl at once, and a task with a line is not done again: what was stopped resumes.
"""

import argparse
import json
import platform
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import sfumato
from sfumato.base.engines import EngineConfig, engine
from sfumato.base.hardware import limit_threads


@dataclass(frozen=True)
class Task:
    """What one process does at a time."""

    name: str  # unlike that of any other task of the piece
    settings: dict[str, Any]  # what decides the result
    kind: str = ""  # tasks of a kind take about as long
    on_card: bool = True  # whether it computes on the accelerator


@dataclass(frozen=True)
class Options:
    """What the command line says, see `options`."""

    out: Path
    data: Path
    scale: float
    seconds: float
    workers: int
    on_card: int = 64  # of the workers at most


def options(description: str | None) -> Options:
    """Of a piece."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="the folder of the records, and of drawn images")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder of packed data")
    parser.add_argument("--scale", type=float, default=1.0, help="0.01 tries all in minutes on a processor")
    parser.add_argument("--seconds", type=float, default=540.0, help="after which no more is done")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    return Options(**vars(given))


def card() -> torch.device:
    """The accelerator, set up for images of one size; the processor, on one thread, where there is none."""
    limit_threads(1)
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.backends.cudnn.benchmark = True
    return torch.device("cuda")


def file_of(task: str) -> str:
    """The name of the file of a task's model."""
    return "".join(letter if letter.isalnum() else "-" for letter in task) + ".safetensors"


def made_by() -> dict[str, str]:
    """On what, and by which versions."""
    named = torch.cuda.get_device_name() if torch.cuda.is_available() else "processor"
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "sfumato": sfumato.__version__,
    }
    return {"device": named, **versions}


def one_of_each_kind(tasks: Sequence[Task]) -> list[Task]:
    """The last task of each kind, for a trial."""
    return list({task.kind: task for task in tasks}.values())


def lines(piece: str, given: Options) -> list[dict[str, Any]]:
    """Those of finished tasks."""
    path = given.out / f"{piece}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def undone(piece: str, tasks: Sequence[Task], given: Options) -> list[Task]:
    """Those that have no line yet."""
    done = {line["task"] for line in lines(piece, given)}
    return [task for task in tasks if task.name not in done]


def run(
    piece: str,
    tasks: Sequence[Task],
    work: Callable[[Task, Options], dict[str, Any]],
    given: Options,
    *,
    least: float = 0.0,
) -> int:
    """Do tasks until none is left, or none that would end in time. -> how many failed.

    A task is begun when as much time is left as the longest of its kind took, and `least` seconds. What runs at the
    end is stopped.
    """
    path, began = given.out / f"{piece}.jsonl", time.monotonic()
    waiting = undone(piece, tasks, given)
    running: dict[Future[dict[str, Any]], Task] = {}
    failed, longest = 0, defaultdict[str, float](lambda: least)

    def left() -> float:
        return given.seconds - (time.monotonic() - began)

    def following() -> Task | None:
        full = sum(task.on_card for task in running.values()) >= given.on_card
        for task in waiting:
            if left() > longest[task.kind] and not (full and task.on_card):
                waiting.remove(task)
                return task
        return None

    with suppress(TimeoutError), engine(EngineConfig(workers=given.workers)) as processes:
        while True:
            while len(running) < processes.workers and (task := following()) is not None:
                running[processes.submit(_timed, work, task, given)] = task
            if not running:
                break
            finished, _ = wait(running, timeout=max(0.0, left()), return_when=FIRST_COMPLETED)
            for future in finished:
                task = running.pop(future)
                try:
                    record = future.result()
                except Exception:
                    failed += 1
                    print(f"{piece}: {task.name} failed", traceback.format_exc(), flush=True)
                    continue
                longest[task.kind] = max(longest[task.kind], record["seconds"])
                with path.open("a") as opened:
                    opened.write(json.dumps(record, separators=(",", ":")) + "\n")
                print(f"{piece}: {task.name} {record['seconds']} s, {left():.0f} s left", flush=True)
            if left() <= 0:
                raise TimeoutError
    not_done = len(waiting) + len(running)
    print(f"{piece}: {not_done} of {len(tasks)} tasks not done, {failed} failed", flush=True)
    return failed


def _timed(work: Callable[[Task, Options], dict[str, Any]], task: Task, given: Options) -> dict[str, Any]:
    start = time.perf_counter()
    result = work(task, given)
    about = {"task": task.name, "settings": {**task.settings, "scale": given.scale}, "result": result}
    return {**about, "seconds": round(time.perf_counter() - start, 1), "made_by": made_by()}
