"""The studies whose records are kept, read once for all tests."""

from functools import cache

import results


@cache
def studies() -> tuple[results.Study, ...]:
    """Those of the engine that looked for people."""
    loaded = [results.study(name) for name in results.STUDIES if (results.RESULTS / f"{name}.jsonl").exists()]
    return tuple(study for study in loaded if any(record.kind == "attack" for record in study.records))


def study(name: str) -> results.Study:
    """One of them."""
    return next(study for study in studies() if study.name == name)
