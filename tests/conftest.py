"""What the tests share: small worlds, where the real data lies, and a Ray cluster."""

import gc
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis  # before `gc.freeze`, after which its import warns
import pytest
import torch
from ray_nodes import RayCluster

import sfumato
from sfumato import data
from sfumato.base import registry

INSTALLED = os.environ.get("SFUMATO_INSTALLED")  # where the wheel is, if the tests are for it, not for src/
SHARED = Path(__file__).parents[1].parent / "shared" / "data"

gc.disable()  # until all tests are read, whose modules stay

# Every run draws others: fifty are enough for one, and a busy machine is no fault. Mutations bring their own.
if hypothesis.settings.get_current_profile_name() != "mutations":
    hypothesis.settings.register_profile("suite", hypothesis.settings(), max_examples=50, deadline=None)
    hypothesis.settings.load_profile("suite")


# What takes longest comes first: no process is left with it at the end. Measured by `pytest --durations`.
LONGEST = (
    *("study/test_engines.py", "base/test_engines.py", "device/test_engines.py", "web/test_page.py"),
    *("docs/test_site.py", "study/test_five_papers.py", "docs/test_blocks.py", "learn/test_meta.py"),
    *("study/test_run.py", "dp/test_audit.py", "test_package.py", "study/test_own_parts.py"),
    *("study/test_release_kinds.py", "dp/test_accounting.py", "attack/test_gradient_inversion.py"),
    *("cli/test_train.py", "docs/test_notebooks.py", "serve/test_served.py", "study/test_report.py"),
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A process takes whole files, and all of the page: what their tests share is made once."""
    tests, order = Path(__file__).parent, {file: place for place, file in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.relative_to(tests).as_posix(), len(LONGEST)))
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            alone = item.path.parent.name != "web"  # whose tests share a browser and the built page
            item.add_marker(pytest.mark.xdist_group(str(item.path if alone else item.path.parent)))


def pytest_collection_finish() -> None:
    """What is imported by now stays: that the garbage collector walks over it again and again costs time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """What a test or a fixture draws without a seed of its own is the same in every run."""
    torch.manual_seed(0)


def pytest_sessionfinish() -> None:
    """Tests of an installed wheel must not have met the checkout's library."""
    if INSTALLED is not None:
        met = [module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "sfumato"]
        strangers = [path for path in met if path is not None and not path.startswith(INSTALLED)]
        assert not strangers, f"not of the wheel in {INSTALLED}: {strangers[:3]}"


@pytest.fixture(scope="session")
def shared_data():
    """The folder of real data; tests that use it are skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"no real data beside the repository ({SHARED.name} is absent)")
    return SHARED


@pytest.fixture(scope="session")
def small_glyphs():
    """40 characters by 12 drawers, 16x16: 26 to train on, 6 for validation, 8 to test on."""
    return data.load("glyphs", classes=40, drawers=12, size=16)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """A Ray cluster of two nodes, with its address and ways to lose workers and nodes; leave it with two."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = RayCluster()
    yield cluster
    cluster.shut_down()


@pytest.fixture(scope="module")
def quick_adversaries() -> Iterator[None]:
    """Ten trees, ten steps, two epochs: 200, 150 and 60 take half of the time of a study in a test."""
    from sfumato.study.lab import trained  # tests without a study do without

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sfumato.learn.of_vectors._TREES", 10)
        patch.setattr("sfumato.attack.set_network._STEPS", 10)
        patch.setattr(trained, "_SEMSIM", replace(trained._SEMSIM, epochs=2))
        yield


@pytest.fixture
def photos():
    """Seven colour images whose sides are a multiple of no cell, with areas of all brightness."""
    return torch.randint(0, 256, (7, 3, 29, 23), generator=torch.Generator().manual_seed(0)).to(torch.uint8)


@pytest.fixture
def registering() -> Iterator[Callable[[str, str, Any], None]]:
    """`sfumato.register`, of what is forgotten after the test."""
    before = {group: dict(table) for group, table in registry._TABLES.items()}
    yield sfumato.register
    registry._ADDED.clear()
    for group, table in registry._TABLES.items():
        table.clear()
        table |= before.get(group, {})
