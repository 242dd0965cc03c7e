"""Audit every private protection at six settings: how near a proved lower bound comes to what is stated.

    python studies/audit.py    # the audits that have no record yet

The records lie in studies/results/audit.jsonl, one a spec; studies/results.py makes tables of them.
"""

import time
from dataclasses import asdict
from typing import Any

import torch
from rows import RESULTS, Rows

from sfumato import protect
from sfumato.dp.audit import AuditConfig, audit
from sfumato.dp.mechanisms import fresh_noise
from sfumato.study.description import versions

RECORDS = Rows(RESULTS / "audit.jsonl")
SHAPE, TRIALS, CONFIDENCE, SEED = (3, 28, 28), 200_000, 0.99, 0
SPECS = (
    "dp-pix:cell=4,epsilon=0.1",
    "dp-pix:cell=4,epsilon=0.3",
    "dp-pix:cell=2,epsilon=1",
    "dp-pix:cell=4,epsilon=3",
    "dp-pix:cell=4,epsilon=3,pixels=10",
    "dp-pix:cell=6,epsilon=10",
    "dp-pix:cell=4,epsilon=1,variant=published",
    "dp-pix:cell=6,epsilon=0.3,variant=published",
    "dp-pix:cell=6,epsilon=1,variant=published",
    "dp-pix:cell=8,epsilon=0.1,variant=published",
    "dp-pix:cell=8,epsilon=0.3,variant=published",
    "dp-pix:cell=10,epsilon=1,variant=published",
    "dp-pix-gaussian:cell=4,rho=0.1",
    "dp-pix-gaussian:cell=2,rho=0.5",
    "dp-pix-gaussian:cell=4,rho=0.5",
    "dp-pix-gaussian:cell=4,rho=0.5,pixels=10",
    "dp-pix-gaussian:cell=4,rho=0.5,pixels=40",
    "dp-pix-gaussian:cell=6,rho=2",
    "gaussian:sigma=40",
    "gaussian:sigma=80",
    "gaussian:sigma=120",
    "gaussian:sigma=160",
    "gaussian:sigma=200",
    "gaussian:sigma=400",
)


def row_of(spec: str) -> str:
    """The name of a spec's record."""
    return spec.replace(":", "-").replace(",", "-")


def run(spec: str) -> dict[str, Any]:
    """Audit a spec, with noise from the operating system, as it is shipped."""
    protection = protect.parse(spec)
    stated = protection.guarantee(SHAPE)
    assert stated is not None
    config = AuditConfig(shape=SHAPE, pixels=stated.pixels, trials=TRIALS, confidence=CONFIDENCE, seed=SEED)
    start = time.perf_counter()
    result = audit(lambda images: protection.release(images, fresh_noise()).values, stated, config)
    return {
        "spec": spec,
        "settings": asdict(config),
        "result": asdict(result) | {"convicted": result.convicted},
        "seconds": round(time.perf_counter() - start, 1),
        "versions": versions(torch.device("cpu")),
    }


def main() -> None:
    """Run what has no record."""
    for spec in SPECS:
        row = row_of(spec)
        if row not in RECORDS:
            RECORDS[row] = run(spec)
        print(spec, RECORDS[row]["result"]["lower"], flush=True)


if __name__ == "__main__":
    main()
