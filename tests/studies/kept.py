"""The studies whose records are kept, read once for all tests."""

from functools import cache

from results_page import engine
from results_page.reading import RESULTS


@cache
def studies() -> tuple[engine.Study, ...]:
    """Those of the engine that looked for people."""
    loaded = [engine.study(name) for name in engine.STUDIES if (RESULTS / f"{name}.jsonl").exists()]
    return tuple(study for study in loaded if any(record.kind == "attack" for record in study.records))


def study(name: str) -> engine.Study:
    """One of them."""
    return next(study for study in studies() if study.name == name)
