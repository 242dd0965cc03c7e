"""The studies whose records are kept, read once for all tests."""

from functools import cache

from results_page import engine


@cache
def studies() -> tuple[engine.Study, ...]:
    """Those of the engine that looked for people."""
    loaded = [study for name in engine.STUDIES if (study := engine.begun(name))]
    return tuple(study for study in loaded if any(record.kind == "attack" for record in study.records))


def study(name: str) -> engine.Study:
    """One of them."""
    return next(study for study in studies() if study.name == name)
