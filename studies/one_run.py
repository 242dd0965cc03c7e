"""Audits by one run, or by four: what they prove of right mechanisms and trainings, and what they convict.

    python studies/one_run.py    # the audits that have no record yet: minutes

The records lie in studies/results/one-run.jsonl, one an audit. In a training every place of the pool is a canary, and
the network is one linear layer, whose canaries lie at right angles: what is audited, from the draw of tasks to
the noised update, is the same for all networks.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from typing import Any
from unittest import mock

import torch
from rows import RESULTS, Rows
from torch import Tensor, nn

from sfumato import protect
from sfumato.dp import clipping
from sfumato.dp.audit import OneReleaseConfig, OneRunAudit, audit_release
from sfumato.dp.clipping import policies
from sfumato.dp.mechanisms import fresh_noise, seeded_noise
from sfumato.learn import meta
from sfumato.learn.canaries import audit_canaries
from sfumato.learn.meta import MetaConfig, Private
from sfumato.study.description import versions

RECORDS = Rows(RESULTS / "one-run.jsonl")
CONFIDENCE, SEED, FEW, DELTA = 0.99, 0, 4, 1e-5
IMAGE, PLACES = (1, 16, 16), 200
SHAPE = (3, 224, 224)
# The canary of the linear network contributes a norm of some 0.02.
POLICIES: dict[str, dict[str, float]] = {
    "fixed": {"clipping_norm": 1e-3},
    "automatic": {"stability": 1e-4},
    "quantile": {"start": 1e-3},
    "adaclip": {"largest": 1e-6},
    "meta-clip": {"start": 1e-3, "bound": 0.1},
}
SPECS = (
    "dp-pix:cell=4,epsilon=1",
    "dp-pix:cell=4,epsilon=3",
    "dp-pix:cell=8,epsilon=3,pixels=16",
    "dp-pix:cell=8,epsilon=1,variant=published",
    "dp-pix-gaussian:cell=4,rho=0.1",
    "dp-pix-gaussian:cell=8,rho=0.5,pixels=16",
    "gaussian:sigma=400",
    "gaussian:sigma=100",
)
_drawn = clipping.fresh_gaussian


@contextmanager
def unclipped() -> Iterator[None]:
    """Tasks contribute what they like, scaled by nothing."""
    with (
        mock.patch.object(policies, "clip_rows", lambda rows, *, clipping_norm: rows.double()),
        mock.patch.object(policies, "normalise_rows", lambda rows, *, stability: 1e3 * rows.double()),
    ):
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
    begin, noise = meta.Training.__init__, dict[tuple[int, ...], Tensor]()

    def anew(self: meta.Training, *given: Any) -> None:
        begin(self, *given)
        noise.clear()

    def draw(shape: tuple[int, ...], std: float) -> Tensor:
        return noise.setdefault(shape, _drawn(shape, 1.0)) * std

    with (
        mock.patch.object(clipping, "fresh_gaussian", draw),
        mock.patch.object(meta.Training, "__init__", anew),
    ):
        yield


FAULTS = {"unclipped": unclipped, "divided": divided, "noiseless": noiseless, "repeated": repeated}


def linear(shape: tuple[int, int, int], way: int) -> nn.Module:
    """One layer without a bias: canaries with a bright pixel each move weights of their own."""
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[1] * shape[2], way, bias=False))


def training(
    policy: str,
    epsilon: float,
    *,
    sampled: bool = False,
    fault: str | None = None,
    of_mu: bool = False,
    runs: int = FEW,
) -> OneRunAudit:
    """One audit of a training."""
    private = Private(epsilon=epsilon, delta=DELTA, clipping=policy, settings=POLICIES[policy])
    tasks = PLACES // 2 if sampled else PLACES
    config = MetaConfig(way=2, shot=1, queries=1, steps=4, tasks=tasks, private=private)
    with FAULTS[fault]() if fault else nullcontext():
        return audit_canaries(
            config,
            places=PLACES,
            image=IMAGE,
            runs=runs,
            of_mu=of_mu,
            confidence=CONFIDENCE,
            seed=SEED,
        )


def mechanism(spec: str, *, again: bool = False) -> Callable[[Tensor], Tensor]:
    """A protection as it is shipped, or one that has the same noise in every call."""
    protection = protect.parse(spec)

    def release(images: Tensor) -> Tensor:
        return protection.release(images, seeded_noise(1) if again else fresh_noise()).values

    return release


def release(stated: str, ran: str | None = None, *, again: bool = False, releases: int = 1) -> OneRunAudit:
    """One audit of a protection: of another than is stated, or with noise used again."""
    guarantee = protect.parse(stated).guarantee(SHAPE, None)
    assert guarantee is not None
    config = OneReleaseConfig(
        shape=SHAPE, pixels=guarantee.pixels, releases=releases, confidence=CONFIDENCE, seed=SEED
    )
    return audit_release(mechanism(ran or stated, again=again), guarantee, config)


def audits() -> dict[str, tuple[str, str | None, Callable[[], OneRunAudit]]]:
    """Name -> what is audited, the fault in words, and the audit."""
    found: dict[str, tuple[str, str | None, Callable[[], OneRunAudit]]] = {}
    for spec in SPECS:
        for releases in (1, FEW):
            name = f"release-{spec.replace(':', '-').replace(',', '-')}-{releases}"
            found[name] = (spec, None, lambda s=spec, n=releases: release(s, releases=n))
    for stated, ran, again, words in (
        ("dp-pix:cell=4,epsilon=1", "dp-pix:cell=4,epsilon=3", False, "sensitivity of one channel"),
        ("dp-pix:cell=4,epsilon=1", "dp-pix:cell=4,epsilon=4", False, "a quarter of the noise"),
        ("dp-pix-gaussian:cell=4,rho=0.01", "dp-pix-gaussian:cell=4,rho=2", False, "0.07 of the noise"),
        ("gaussian:sigma=400", "gaussian:sigma=100", False, "a quarter of the noise"),
        ("dp-pix:cell=4,epsilon=1", "dp-pix:cell=4,epsilon=1", True, "the same noise in every call"),
    ):
        name = f"release-wrong-{stated.split(':')[0]}-{words.replace(' ', '-')}"
        found[name] = (stated, words, lambda s=stated, r=ran, a=again: release(s, r, again=a))
    for policy in POLICIES:
        for epsilon in (1.0, 9.0):
            for runs in (1, FEW):
                found[f"training-{policy}-epsilon={epsilon:g}-{runs}"] = (
                    policy,
                    None,
                    lambda p=policy, e=epsilon, n=runs: training(p, e, runs=n),
                )
        found[f"training-{policy}-mu"] = (
            policy,
            None,
            lambda p=policy: training(p, 9.0, of_mu=True),
        )
        found[f"training-{policy}-sampled"] = (policy, None, lambda p=policy: training(p, 9.0, sampled=True))
        for fault in FAULTS:
            found[f"training-wrong-{policy}-{fault}"] = (
                policy,
                fault,
                lambda p=policy, f=fault: training(p, 1.0, sampled=True, fault=f, runs=1),
            )
    return found


def main() -> None:
    """Run what has no record."""
    torch.set_num_threads(1)
    meta.NETWORKS["fully-connected"] = linear
    for name, (subject, fault, run) in audits().items():
        if name not in RECORDS:
            start = time.perf_counter()
            result = run()
            record = {
                "name": name,
                "kind": name.split("-")[0],
                "subject": subject,
                "sampled": name.endswith("-sampled"),
                "fault": fault,
                "result": asdict(result) | {"convicted": result.convicted, "epsilon": result.epsilon(DELTA)},
                "seconds": round(time.perf_counter() - start, 2),
                "versions": versions(torch.device("cpu")),
            }
            RECORDS[name] = record
        found = RECORDS[name]["result"]
        print(f"{name}: {found['lower']:.3g} of {found['stated']:.3g}, {found['convicted']}", flush=True)


if __name__ == "__main__":
    main()
