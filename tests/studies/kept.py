"""The studies whose records are kept, read once for all tests."""

from functools import cache

import results

from sfumato.study.choose.results import Results


@cache
def studies() -> tuple[Results, ...]:
    """Those of the engine that looked for people."""
    loaded = [results.study(name) for name in results.STUDIES if (results.RESULTS / f"{name}.jsonl").exists()]
    return tuple(study for study in loaded if any(record.kind == "attack" for record in study.records))


def study(name: str) -> Results:
    """One of them."""
    return next(study for study in studies() if study.study["name"] == name)
