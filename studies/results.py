"""Make docs/results.md, the pages under docs/results and parts of pages that people write from records.

    python studies/results.py             # from the records that are committed, under studies/results
    python studies/results.py --collect   # first take the records of runs from runs/, finished or not
    python studies/results.py --restore   # put committed records back under runs/, where a study goes on from them

The words are in docs/templates, a file a chapter; the figures come from here. Words that state an order are checked
against the figures, and nothing is written where these do not show it.
"""

import argparse
import json
import shutil

from results_page import engine, pages
from results_page.reading import RESULTS, ROOT

# What `sfumato study run` runs: a study that is added has its records collected, too.
STUDIES = (*sorted(path.stem for path in (ROOT / "studies").glob("*.yaml") if path.stem != "example"), "demo")


def collect(name: str) -> None:
    """Copy study.json and the small records of a run; the pages say nothing of one that is not finished."""
    run, target = ROOT / "runs" / name, RESULTS / name
    if not (run / "study.json").exists():
        return
    studied = engine.load(run)
    if studied.missing:
        print(f"{name}: {len(studied.missing)} cells are missing")
    shutil.rmtree(target, ignore_errors=True)
    (target / "records").mkdir(parents=True)
    shutil.copy(run / "study.json", target)
    for path in studied.kept:
        shutil.copy(path, target / "records")


def restore(name: str) -> None:
    """Put the records of a study under runs/, unless there is a run already."""
    run = ROOT / "runs" / name
    if (RESULTS / name).exists() and not run.exists():
        shutil.copytree(RESULTS / name, run)


def main() -> None:
    """Write the pages, or put records to their places."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--collect", action="store_true", help="take the records of runs/ first")
    parser.add_argument("--restore", action="store_true", help="put committed records under runs/, no more")
    options = parser.parse_args()
    if options.restore or options.collect:
        for name in STUDIES:
            (restore if options.restore else collect)(name)
    if not options.restore:
        print(json.dumps({"written": pages.write()}))


if __name__ == "__main__":
    main()
