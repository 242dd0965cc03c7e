"""Audit every private protection at six settings: how near a proved lower bound comes to what is stated.

    python studies/audit.py    # the audits that have no record yet

The records lie in studies/results/audit, one a spec; studies/results.py makes tables of them.
"""

import json
import platform
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import sfumato
from sfumato import protect
from sfumato.dp.audit import AuditConfig, audit
from sfumato.dp.mechanisms import fresh_noise
from sfumato.files import whole

RECORDS = Path(__file__).parent / "results" / "audit"
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


def path(spec: str) -> Path:
    """The record of a spec."""
    return RECORDS / f"{spec.replace(':', '-').replace(',', '-')}.json"


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
        "versions": {
            "sfumato": sfumato.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }


def main() -> None:
    """Run what has no record."""
    for spec in SPECS:
        if not path(spec).exists():
            record = run(spec)
            with whole(path(spec)) as part:
                part.write_text(json.dumps(record, indent=1) + "\n")
        print(spec, json.loads(path(spec).read_text())["result"]["lower"], flush=True)


if __name__ == "__main__":
    main()
