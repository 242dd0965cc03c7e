"""Audit every private protection and every clipping policy by `sfumato audit ... --json`: what is proved beside what is stated.

    python studies/audits.py               # what has no record yet: an hour on one core
    python studies/audits.py training      # trainings alone: minutes

A row of studies/results/audits.jsonl is a command with what it says; an exit code of 1 convicts.
"""

import json
import subprocess
import sys
import time
from itertools import product

from rows import RESULTS, Rows

import sfumato

RECORDS = Rows(RESULTS / "audits.jsonl")
PUBLISHED = ((4, 1), (6, 0.3), (6, 1), (8, 0.1), (8, 0.3), (10, 1))
SPECS = (
    *("dp-pix:cell=4,epsilon=0.1,0.3,3", "dp-pix:cell=2,epsilon=1", "dp-pix:cell=6,epsilon=10"),
    "dp-pix:cell=4,epsilon=3,pixels=10",
    *(f"dp-pix:cell={cell},epsilon={epsilon},variant=published" for cell, epsilon in PUBLISHED),
    *("dp-pix-gaussian:cell=4,rho=0.1,0.5", "dp-pix-gaussian:cell=2,rho=0.5"),
    *("dp-pix-gaussian:cell=4,rho=0.5,pixels=10,40", "dp-pix-gaussian:cell=6,rho=2"),
    "gaussian:sigma=40,80,120,160,200,400",
)
POLICIES = ("fixed", "automatic", "quantile", "adaclip", "meta-clip")
COMMANDS = [
    *(f"protection {spec} --trials 200000" for spec in SPECS),
    *(
        f"training --epsilon {epsilon} --clipping {policy} --runs {runs}"
        for policy, epsilon, runs in product(POLICIES, (1, 9), (1, 4))
    ),
]


def main() -> None:
    """Run the commands that begin with what is asked for and have no record."""
    for command in COMMANDS:
        if command in RECORDS or not command.startswith(" ".join(sys.argv[1:])):
            continue
        began = time.perf_counter()
        words = [sys.executable, "-m", "sfumato", "audit", *command.split(), "--json"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            raise SystemExit(f"sfumato audit {command}: {done.stderr}")
        about = {"seconds": round(time.perf_counter() - began, 1), "version": sfumato.__version__}
        RECORDS[command] = {"convicted": bool(done.returncode), "said": json.loads(done.stdout), **about}
        print(f"{command}: {'convicted' if done.returncode else 'not convicted'}", flush=True)


if __name__ == "__main__":
    main()
