"""Audit private meta-training: how near a proved lower bound comes to the stated ε, and what convicts.

    python studies/audit_training.py    # the audits that have no record yet

Every covered clipping policy at two budgets, and, at the smaller one, runs that are wrong on purpose. The
records lie in studies/results/audit-training.jsonl, one an audit. The network is a small one, so that a training
takes milliseconds: what is audited, from the draw of tasks to the noised update, is the same for all.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from typing import Any
from unittest import mock

import torch
from canary_run import canary_run
from rows import RESULTS, Rows
from run_audits import audit_runs
from torch import Tensor, nn

from sfumato.dp import accounting, clipping
from sfumato.dp.clipping import policies
from sfumato.learn import meta
from sfumato.learn.meta import MetaConfig, Private
from sfumato.study.description import versions

RECORDS = Rows(RESULTS / "audit-training.jsonl")
IMAGE, PLACES, DELTA, TRIALS, CONFIDENCE, SEED = (1, 6, 6), 8, 1e-5, 2_000, 0.99, 0
POLICIES: dict[str, dict[str, float]] = {
    "fixed": {"clipping_norm": 1e-3},
    "automatic": {"stability": 1e-4},
    "quantile": {"start": 1e-3},
    "adaclip": {"largest": 1e-6},
    "meta-clip": {"start": 1e-2, "bound": 0.1},
}
BUDGETS = (1.0, 9.0)
_drawn = clipping.fresh_gaussian


def config(policy: str, epsilon: float, *, tasks: int = PLACES, steps: int = 3) -> MetaConfig:
    """All tasks in every step, where a task is told best, or fewer."""
    private = Private(epsilon=epsilon, delta=DELTA, clipping=policy, settings=POLICIES[policy])
    return MetaConfig(way=2, shot=1, queries=1, steps=steps, tasks=tasks, private=private)


def same_noise() -> Callable[[tuple[int, ...], float], Tensor]:
    """Noise that is drawn once for each run: the wrong one, in which `train` is a run."""
    noise: dict[tuple[int, ...], Tensor] = {}

    def draw(shape: tuple[int, ...], std: float) -> Tensor:
        return noise.setdefault(shape, _drawn(shape, 1.0)) * std

    return draw


@contextmanager
def unclipped() -> Iterator[None]:
    """Tasks contribute what they like."""
    with mock.patch.object(policies, "clip_rows", lambda rows, *, clipping_norm: rows.double()):
        yield


@contextmanager
def divided() -> Iterator[None]:
    """The noise is divided by the number of tasks once more."""
    with mock.patch.object(clipping, "fresh_gaussian", lambda shape, std: _drawn(shape, std / PLACES)):
        yield


@contextmanager
def noiseless() -> Iterator[None]:
    """No noise on the sum; what else is released keeps its own."""

    def draw(shape: tuple[int, ...], std: float) -> Tensor:
        return _drawn(shape, 0.0 if shape else std)

    with mock.patch.object(clipping, "fresh_gaussian", draw):
        yield


@contextmanager
def repeated() -> Iterator[None]:
    """The same noise in every step of a run."""
    begin = meta.Training.__init__

    def anew(self: meta.Training, *given: Any) -> None:
        begin(self, *given)
        clipping.fresh_gaussian = same_noise()

    with (
        mock.patch.object(clipping, "fresh_gaussian", _drawn),
        mock.patch.object(meta.Training, "__init__", anew),
    ):
        yield


@contextmanager
def right() -> Iterator[None]:
    """As it is shipped."""
    yield


FAULTS = {"unclipped": unclipped, "divided": divided, "noiseless": noiseless, "repeated": repeated}


def small(shape: tuple[int, int, int], way: int) -> nn.Module:
    """Two layers, whose gradients at white images are not 0."""
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[1] * shape[2], 8), nn.ReLU(), nn.Linear(8, way))


def run(name: str, configured: MetaConfig, fault: str | None) -> dict[str, Any]:
    """One audit."""
    assert configured.private is not None
    start = time.perf_counter()
    with (FAULTS[fault] if fault else right)():
        result = audit_runs(
            canary_run(configured, places=PLACES, image=IMAGE),
            epsilon=configured.private.epsilon,
            delta=DELTA,
            trials=TRIALS,
            confidence=CONFIDENCE,
            seed=SEED,
        )
    return {
        "name": name,
        "fault": fault,
        "config": asdict(configured),
        "places": PLACES,
        "image": list(IMAGE),
        "result": asdict(result) | {"convicted": result.convicted},
        "seconds": round(time.perf_counter() - start, 1),
        "versions": versions(torch.device("cpu")),
    }


def audits() -> dict[str, tuple[MetaConfig, str | None]]:
    """Name -> configuration and fault."""
    found: dict[str, tuple[MetaConfig, str | None]] = {
        f"{policy}-epsilon={epsilon:g}": (config(policy, epsilon), None)
        for epsilon in BUDGETS
        for policy in POLICIES
    }
    sampled = {
        f"{p}-epsilon=9-sampled": (config(p, 9.0, tasks=PLACES // 2), None) for p in ("fixed", "quantile")
    }
    wrong = {f"wrong-{fault}": (config("fixed", 1.0, tasks=PLACES // 2), fault) for fault in FAULTS}
    return found | sampled | wrong


def main() -> None:
    """Run what has no record."""
    torch.set_num_threads(1)
    meta.NETWORKS["fully-connected"] = small
    price = accounting.epsilon
    # Every run asks the accountant the same: each question is answered once.
    remembered = cache(lambda stretches, delta, accountant: price(stretches, delta, accountant))
    accounting.epsilon = lambda stretches, delta, accountant="pld": remembered(
        tuple(stretches), delta, accountant
    )
    for name, (configured, fault) in audits().items():
        if name not in RECORDS:
            RECORDS[name] = run(name, configured, fault)
        result = RECORDS[name]["result"]
        print(f"{name}: eps >= {result['lower']:.3g} of {result['epsilon']:g}", flush=True)


if __name__ == "__main__":
    main()
