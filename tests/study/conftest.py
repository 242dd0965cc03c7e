"""What the tests of studies share."""

from collections.abc import Iterator
from types import CodeType
from typing import Any

import jinja2
import pytest


def few_shot_settings(way: int, shot: int, queries: int, **changes: Any) -> dict[str, Any]:
    """Settings of a training that ends soon, and is validated with two ways."""
    episode = {"way": way, "shot": shot, "queries": queries}
    validation = {"validation_way": 2, "validation_shot": min(2, shot), "validation_queries": min(2, queries)}
    soon = {"epochs": 1, "episodes_per_epoch": 2, "denoiser_depth": 2, "denoiser_width": 4}
    return {**episode, **validation, **soon, **changes}


@pytest.fixture(scope="session", autouse=True)
def templates_compiled_once() -> Iterator[None]:
    """A page has an environment of its own, which would compile each template again."""
    compiled: dict[tuple[str, ...], CodeType] = {}
    compile_template = jinja2.Environment.compile

    def compile_once(environment: jinja2.Environment, *template: str) -> CodeType:
        if template not in compiled:
            compiled[template] = compile_template(environment, *template)
        return compiled[template]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jinja2.Environment, "compile", compile_once)
        yield
