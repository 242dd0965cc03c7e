"""Make docs/results.md, the pages under docs/results and parts of pages that people write from records.

    python studies/results.py             # from the records that are committed, under studies/results
    python studies/results.py --collect   # first take the records of finished runs from runs/
    python studies/results.py --restore   # put committed records back under runs/, where a study goes on from them

A page is a Markdown file under docs/templates whose figures are filled in: `record("guard").noise.refused` of a script's
record, `study("lfw-hats").recommendation` of a study of the engine, and what `results_page` computes over rows. Words that
state an order stand in a block, {% call claim(...) %}, and nothing is written if the figures do not show them.
"""

import argparse
import json

from results_page import engine, pages
from results_page.reading import RESULTS, ROOT

from sfumato.study import records


def collect(name: str) -> None:
    """Pack a run without its pictures, unless cells of it are missing.

    No photograph of anybody comes into the repository: examples are kept of the demo, whose faces are drawn.
    """
    run = ROOT / "runs" / name
    if not (run / "study.json").exists():
        return
    if missing := engine.load(run).missing:
        print(f"{name}: {len(missing)} cells are missing: run the study first")
        return
    left_out = set(engine.DRAWN) - ({"examples"} if name == "demo" else set())
    records.pack(run, RESULTS / f"{name}.jsonl", leave_out=left_out)


def restore(name: str) -> None:
    """Put the records of a study under runs/, unless there is a run already."""
    run = ROOT / "runs" / name
    if (RESULTS / f"{name}.jsonl").exists() and not run.exists():
        records.unpack(RESULTS / f"{name}.jsonl", run)


def main() -> None:
    """Write the pages, or put records to their places."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--collect", action="store_true", help="take the records of runs/ first")
    parser.add_argument("--restore", action="store_true", help="put committed records under runs/, no more")
    options = parser.parse_args()
    if options.restore or options.collect:
        for name in engine.STUDIES:
            (restore if options.restore else collect)(name)
    if not options.restore:
        print(json.dumps({"written": pages.write()}))


if __name__ == "__main__":
    main()
