"""Disturb what runs, and check what must hold: `make endurance`, or some of it.

    python tests/endurance                          # all, one by one; some 15 minutes on two quiet cores
    python tests/endurance overload "disk full"     # these; the rows of others stay as they are

Prints a table, writes a row a scenario to studies/results/endurance.jsonl, and ends with 1 if one fails.
"""

import argparse
import signal
import sys
import time
from pathlib import Path

import crowds  # noqa: F401 - these register their scenarios
import harness
import jobs  # noqa: F401
import mutants  # noqa: F401
import stores  # noqa: F401
import strangers  # noqa: F401
import torch


def main() -> None:
    """Run scenarios, print their rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(harness.SCENARIOS)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", type=Path, default=harness.RECORD)
    options = parser.parse_args()
    if unknown := set(options.names) - set(harness.SCENARIOS):
        parser.error(f"{', '.join(sorted(unknown))}: choose among {', '.join(harness.SCENARIOS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    torch.set_num_threads(1)
    began, failed = time.monotonic(), 0
    for name, row in harness.run_all(options.names, seed=options.seed, record=options.record):
        print(harness.line(name, row), flush=True)
        failed += bool(row["problems"])
    print(f"{failed or 'none'} failed, {time.monotonic() - began:.0f} s")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
