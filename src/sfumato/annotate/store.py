"""A campaign in one SQLite file: the questions, the annotators, and every answer ever given.

Answers are rows that are added and never changed: an undo is a row, too. Acknowledged answers are on the
disk. The file contains images as pixels only, so that it can be copied, and questions cannot change later.
While it is open, the last answers are in a file next to it, whose name ends in -wal: to copy a campaign that
is served, stop it first or copy both.

Links are stored unhashed: they must be shown again whenever the page is served, and people who can read the
file need no link to read or forge an answer. Only its owner can read it.
"""

import functools
import json
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sfumato import images
from sfumato.annotate.campaign import CANNOT_TELL, CampaignConfig, Item, Pair, items, order
from sfumato.base import databases
from sfumato.base.databases import Marks, transaction
from sfumato.errors import ArtefactError, DataError

PEOPLE, PROXY = "people", "proxy"

_MARKS = Marks(application=0x53464143, version=1)  # "SFAC": a campaign
_SCHEMA = """
create table campaign (
    id integer primary key check (id = 1),
    config text not null,  -- JSON
    kind text not null check (kind in ('people', 'proxy')),
    token text not null  -- of whoever runs it
);
create table images (id integer primary key, digest blob not null unique, png blob not null);
create table items (
    id integer primary key,
    key text not null unique,  -- its name on the page, which tells nothing
    original text not null, reconstruction text not null,  -- files
    class text not null, model text not null, source text not null,
    options text not null,  -- JSON
    decoy integer not null
);
create table views (  -- what an item shows. Names of images are of one item: the same one twice would tell.
    key text primary key,
    item integer not null references items, place integer not null, image integer not null references images,
    unique (item, place)
);
create table annotators (
    id integer primary key,
    name text not null unique,
    kind text not null,
    token text unique  -- null: a proxy, who has no page
);
create table orders (
    annotator integer not null references annotators, place integer not null, item integer not null
    references items, primary key (annotator, place)
) without rowid;
create table answers (
    id integer primary key autoincrement,
    annotator integer not null references annotators,
    item integer not null references items,
    answer text,  -- null: an undo
    ticket text not null,  -- the browser's name for it, so that one sent twice is kept once
    time real not null,  -- seconds since 1970, UTC
    unique (annotator, ticket)
);
create index latest on answers (annotator, item, id);
create trigger kept before update on answers begin select raise(abort, 'answers are never changed'); end;
create trigger held before delete on answers begin select raise(abort, 'answers are never deleted'); end;
create trigger unmixed before insert on annotators when new.kind <> (select kind from campaign)
begin select raise(abort, 'people and proxies never share a campaign'); end;
"""
# For (annotator, item) in `orders`: the answer that counts, or null.
_COUNTS = (
    "(select answer from answers where answers.annotator = orders.annotator and answers.item = orders.item "
    "order by id desc limit 1)"
)


@dataclass(frozen=True)
class Annotator:
    """An annotator. `token` is the end of the link; None for a proxy."""

    id: int
    name: str
    token: str | None
    answered: int


@dataclass(frozen=True)
class Question:
    """An item for the page, without the right answer."""

    key: str
    images: tuple[str, ...]
    options: tuple[str, ...]


@dataclass(frozen=True)
class Given:
    """One row of answers; `answer` is None for an undo, `time` seconds since 1970."""

    annotator: str
    item: int
    answer: str | None
    time: float


def create(path: str | os.PathLike[str], pairs: Sequence[Pair], config: CampaignConfig) -> None:
    """Write a new campaign, with a link for each annotator; the file appears whole or not at all.

    Raises:
        DataError: the file exists, or an error of `campaign.items`.
        ImageError: a file is not an image.
    """
    path = Path(path)
    if path.exists():
        raise DataError(f"{path}: exists already, maybe with answers: name a new file")
    asked = items(pairs, config)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with databases.begin(path, _SCHEMA, _MARKS) as database:
            _fill(database, asked, config)
    except FileExistsError as error:
        raise DataError(f"{path}: exists already, maybe with answers: name a new file") from error


def _fill(database: sqlite3.Connection, asked: Sequence[Item], config: CampaignConfig) -> None:
    known: dict[Path, int] = {}
    database.execute(
        "insert into campaign values (1, ?, ?, ?)", (json.dumps(asdict(config)), PEOPLE, _secret())
    )
    for number, item in enumerate(asked, 1):
        pair = item.pair
        database.execute(
            "insert into items values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                number,
                _secret(),
                *(os.fspath(pair.original), os.fspath(pair.reconstruction)),
                *(pair.true_class, pair.model, pair.source),
                json.dumps(item.options),
                item.decoy,
            ),
        )
        # Annotators who choose a class must not see the original.
        shown = [pair.reconstruction] if config.task == "choose" else [pair.original, pair.reconstruction]
        for place, file in enumerate(shown):
            if file not in known:
                known[file] = _keep(database, file)
            database.execute("insert into views values (?, ?, ?, ?)", (_secret(), number, place, known[file]))
    for number in range(1, config.annotators + 1):
        database.execute(
            "insert into annotators values (?, ?, ?, ?)", (number, f"annotator {number}", PEOPLE, _secret())
        )
        _order(database, number, len(asked), config)


def _keep(database: sqlite3.Connection, file: Path) -> int:
    image = images.read(file, channels=None)
    row = database.execute(
        # The update makes the statement return an existing row, too.
        "insert into images (digest, png) values (?, ?) on conflict do update set digest = excluded.digest "
        "returning id",
        (images.digest(image), images.encode(image)),
    ).fetchone()
    return int(row[0])


def _order(database: sqlite3.Connection, annotator: int, count: int, config: CampaignConfig) -> None:
    database.executemany(
        "insert into orders values (?, ?, ?)",
        [(annotator, place, row + 1) for place, row in enumerate(order(count, annotator, seed=config.seed))],
    )


def _secret() -> str:
    return secrets.token_urlsafe(24)  # 192 bits: too many to guess


class Store:
    """An existing campaign. State: a connection to its file, which threads use in turn.

    Several processes may open the same campaign: each answer is complete or absent, even if a process is
    killed or the power fails.

    Attributes:
        config: the questions.
        token: the end of the operator's link.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open a campaign.

        Raises:
            ArtefactError: no such file, damaged, not a campaign, or of a later version. Nothing is changed
                then.
        """
        self.path = Path(path).absolute()
        if not self.path.is_file():
            raise ArtefactError(f"{path}: no such file: create one with `sfumato annotate new`")
        self._lock = threading.RLock()
        with self._errors():
            self._database = databases.connect(self.path, any_thread=True)
        try:
            with self._errors():
                found = databases.marks_of(self._database)
                (state,) = self._row("pragma quick_check(1)")
            if found.application != _MARKS.application:
                raise ArtefactError(f"{path}: not a campaign: name a file of `sfumato annotate new`")
            if found.version != _MARKS.version:
                raise ArtefactError(
                    f"{path}: a campaign of version {found.version}, not {_MARKS.version}: upgrade sfumato"
                )
            if state != "ok":
                raise ArtefactError(f"{path}: damaged ({state}): restore it from a copy")
            with self._errors():
                config, self.token = self._row("select config, token from campaign")
                self.config = CampaignConfig(**json.loads(config))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except sqlite3.Error as error:
            reason = databases.why_locked(error, self.path) or error
            raise ArtefactError(
                f"{self.path}: {reason}. Nothing was saved. If it is damaged, restore it from a copy"
            ) from error

    def _row(self, query: str, *values: Any) -> Any:
        return self._database.execute(query, values).fetchone()

    def _rows(self, query: str, *values: Any) -> list[Any]:
        with self._errors():
            return self._database.execute(query, values).fetchall()

    @property
    def kind(self) -> str:
        """The kind of annotators: "people" or "proxy", never both."""
        ((kind,),) = self._rows("select kind from campaign")
        return str(kind)

    def annotators(self) -> list[Annotator]:
        """List all annotators, with their numbers of answers."""
        counted = f"(select count(*) from orders where annotator = annotators.id and {_COUNTS} is not null)"
        rows = self._rows(f"select id, name, token, {counted} from annotators order by id")
        return [Annotator(*row) for row in rows]

    def annotator(self, token: str) -> Annotator | None:
        """Find the annotator of a link; None if there is none."""
        rows = self._rows(
            f"select id, name, token, (select count(*) from orders where annotator = annotators.id and "
            f"{_COUNTS} is not null) from annotators where token = ?",
            token,
        )
        return Annotator(*rows[0]) if rows else None

    def upcoming(self, annotator: int, *, count: int) -> list[Question]:
        """List the annotator's next questions, in their own order: unanswered or undone ones."""
        rows = self._rows(
            "select items.key, options, (select json_group_array(key) from (select key from views "
            "where views.item = items.id order by place)) from orders join items on items.id = item "
            f"where annotator = ? and {_COUNTS} is null order by place limit ?",
            annotator,
            count,
        )
        return [
            Question(key, tuple(json.loads(shown)), tuple(json.loads(options)))
            for key, options, shown in rows
        ]

    def answer(self, annotator: int, key: str, answer: str, *, ticket: str) -> str | None:
        """Store an answer; when this returns, it is on the disk.

        Args:
            annotator: their number.
            key: of the question.
            answer: one of its options, or "cannot tell".
            ticket: the sender's own name for this answer: the same one is stored once.

        Returns:
            the earlier answer that this one replaces, for example from another window; or None.

        Raises:
            DataError: no such question, or an answer that it does not offer.
        """
        with self._errors(), transaction(self._database):
            row = self._row("select id, options from items where key = ?", key)
            if row is None:
                raise DataError("no such question in this campaign: reload the page")
            item, options = row
            offered = [*json.loads(options), CANNOT_TELL]
            if answer not in offered:
                raise DataError(f"{answer!r} is not an answer here: choose one of {', '.join(offered)}")
            sent = self._append(annotator, item, answer, ticket)
            before = self._row(
                "select answer from answers where annotator = ? and item = ? and id < ? order by id desc",
                *(annotator, item, sent),
            )
        return None if before is None else before[0]

    def undo(self, annotator: int, *, ticket: str) -> None:
        """Undo the annotator's last answer, from any window; without one, do nothing.

        `ticket`: see `answer`.
        """
        with self._errors(), transaction(self._database):
            row = self._row(
                "select item from answers as mine where annotator = ? and answer is not null and id = ("
                "select max(id) from answers where annotator = mine.annotator and item = mine.item) "
                "order by id desc limit 1",
                annotator,
            )
            if row is not None:
                self._append(annotator, row[0], None, ticket)

    def _append(self, annotator: int, item: int, answer: str | None, ticket: str) -> int:
        self._database.execute(
            "insert or ignore into answers (annotator, item, answer, ticket, time) values (?, ?, ?, ?, ?)",
            (annotator, item, answer, ticket, time.time()),
        )
        row = self._row("select id from answers where annotator = ? and ticket = ?", annotator, ticket)
        return int(row[0])

    def image(self, key: str) -> bytes | None:
        """Read the PNG of an image's name; None if there is none."""
        rows = self._rows("select png from images join views on image = images.id where key = ?", key)
        return rows[0][0] if rows else None

    def items(self) -> dict[int, Item]:
        """Return every item, by its number."""
        return self._items

    @functools.cached_property
    def _items(self) -> dict[int, Item]:  # items never change
        rows = self._rows(
            "select id, options, decoy, original, reconstruction, class, model, source from items order by id"
        )
        return {
            number: Item(
                Pair(
                    original=Path(original),
                    reconstruction=Path(reconstruction),
                    true_class=true_class,
                    model=model,
                    source=source,
                ),
                tuple(json.loads(options)),
                bool(decoy),
            )
            for number, options, decoy, original, reconstruction, true_class, model, source in rows
        }

    def read_pngs(self, item: int) -> list[bytes]:
        """Read the PNG files of an item: the reconstruction, after the original for "same"."""
        rows = self._rows(
            "select png from images join views on image = images.id where item = ? order by place", item
        )
        return [png for (png,) in rows]

    def answers(self) -> dict[int, dict[int, str]]:
        """Map annotator and item to the answer that counts: the last one that was not undone."""
        found: dict[int, dict[int, str]] = {one: {} for (one,) in self._rows("select id from annotators")}
        for annotator, item, answer in self._rows(
            f"select annotator, item, {_COUNTS} as answer from orders where answer is not null"
        ):
            found[annotator][item] = answer
        return found

    def history(self) -> list[Given]:
        """List every row of answers, in order of arrival."""
        rows = self._rows(
            "select name, item, answer, time from answers join annotators on annotators.id = annotator "
            "order by answers.id"
        )
        return [Given(*row) for row in rows]

    def add_proxies(self, answers: Mapping[str, Mapping[int, str]]) -> None:
        """Store the answers of recognisers instead of people's, all or none; people's links end.

        Args:
            answers: maps a proxy's name and an item to its answer.

        Raises:
            DataError: people, or a proxy of this name, have answered here.
        """
        with self._errors(), transaction(self._database):
            (kind,) = self._row("select kind from campaign")
            (rows,) = self._row("select count(*) from answers")
            if kind == PEOPLE and rows:
                raise DataError(
                    f"{self.path}: people have answered here ({rows} times), and proxies never share a "
                    "campaign with people: create another with `sfumato annotate new`"
                )
            if kind == PEOPLE:
                self._database.execute("delete from orders")
                self._database.execute("delete from annotators")
                self._database.execute("update campaign set kind = ?", (PROXY,))
            for name, mine in answers.items():
                if self._row("select 1 from annotators where name = ?", name):
                    raise DataError(f"{self.path}: a proxy called {name!r} has answered: give another name")
                row = self._row("insert into annotators (name, kind) values (?, ?) returning id", name, PROXY)
                _order(self._database, row[0], len(mine), self.config)
                for item, answer in mine.items():
                    self._append(row[0], item, answer, str(item))
