"""The ledger: what is spent is added up exactly, refusals change nothing, and no kill loses a charge."""

import itertools
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import charges
import pytest
from charges import edit, proves

from sfumato.device.ledger import Charge, Ledger, default_path
from sfumato.device.ledger.budgets import Budget
from sfumato.errors import BudgetExceededError, LedgerError

SECONDS = 60  # a process that needs longer hangs

pytestmark = pytest.mark.usefixtures("unlimited")


def charge(image: str = "image", epsilon: float | None = 1.0, **fields: Any) -> Charge:
    """A release of pure ε-DP between any two images, or one of which nothing is proved."""
    defaults = {"spec": f"noise:{epsilon}", "release": b"release", "person": "anna"}
    if epsilon is not None:
        defaults["guarantee"] = proves("pure", epsilon)
    return charges.charge(image, **defaults | fields)


def content(path: Path) -> dict[str, list]:
    """All rows of a ledger, read without it."""
    tables = ("terms", "charges", "people", "images", "budgets")
    with closing(sqlite3.connect(path)) as database:
        return {each: database.execute(f"select * from {each} order by 1, 2").fetchall() for each in tables}


def test_the_same_image_and_spec_get_the_kept_release_and_its_number_for_nothing(ledger: Ledger):
    each = [charge("a", release=b"first"), charge("b"), charge("a", spec="blur", release=None)]
    first = ledger.charge(each)
    assert len({*first.numbers}) == 3
    assert {len(number) for number in first.numbers} == {16}
    ledger.close()
    with Ledger(ledger.path) as again:
        assert again.charge([charge("a", release=b"second"), *each[1:]]) == (first.releases, 0, first.numbers)
        assert again.summary().releases == 3


def test_a_ledger_that_another_process_holds_says_so_and_charges_nothing(ledger: Ledger):
    ledger._database.execute("pragma busy_timeout = 0")
    with closing(sqlite3.connect(ledger.path)) as other:
        other.execute("begin immediate")
        with pytest.raises(LedgerError, match=r"another process holds it: ask again\. Nothing was released$"):
            ledger.charge([charge()])
    assert ledger.summary().releases == 0


def test_kept_knows_what_was_released_with_noise_and_nothing_else(ledger: Ledger):
    ledger.charge([charge("a", release=b"A"), charge("b", spec="blur", release=None)])
    assert ledger.find_releases([b"a", b"b", b"c"], "noise:1.0") == {b"a": b"A"}
    assert ledger.find_releases([b"a", b"b", b"c"], "blur") == {}


@pytest.mark.parametrize("bad", [0, 1, 4])
def test_a_refusal_in_a_batch_leaves_the_ledger_as_it_was(ledger: Ledger, bad: int):
    ledger.charge([charge("old", 2.0)])
    ledger.set_budget(Budget.parse("epsilon=20"))
    before = content(ledger.path)
    batch = [charge(f"new {i}", spec=f"new {i}") for i in range(5)]
    batch[bad] = charge("new", 50.0)
    with pytest.raises(BudgetExceededError):
        ledger.charge(batch)
    assert content(ledger.path) == before
    ledger.charge([one for one in batch if one.image != b"new"])  # and the connection still works


# Files that are not what they should be


def test_a_ledger_and_its_side_files_are_for_their_owner_alone(tmp_path: Path):
    umask = os.umask(0)
    try:
        with Ledger(tmp_path / "new" / "ledger.db") as ledger:
            ledger.charge([charge()])
            modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "new").rglob("*")}
    finally:
        os.umask(umask)
    assert "ledger.db" in modes
    assert modes.pop("ledger.db.runs") == 0o700
    assert set(modes.values()) == {0o600}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_text("dear diary " * 500), "x.db: file is not a database. Nothing was"),
        (lambda path: path.write_bytes(b""), "is empty: restore the ledger from a copy"),
        (lambda path: edit(path, "create table mail (body text)"), "a database, but not a ledger: name"),
        (
            lambda path: (Ledger(path).close(), edit(path, "pragma user_version = 6")),
            "a ledger of version 6, not 8: use the",
        ),
        (Path.mkdir, r"cannot be opened for writing \(Is a directory\)"),
    ],
)
def test_what_is_no_ledger_of_this_version_is_refused_and_left_as_it_was(
    tmp_path: Path, make: Callable[[Path], object], message: str
):
    path = tmp_path / "x.db"
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(LedgerError, match=message):
        Ledger(path)
    assert not path.is_file() or path.read_bytes() == before


@pytest.mark.parametrize(
    ("where", "junk"),
    [
        (b'[{"definition"', b'[{"definition": "pu\n'),
        (b'[{"definition"', b"[{\xff\xfe"),
        (b'[{"definition"', b'[{"definitely"'),
        (b"(spec, channels, h", b"(spec, channels,\xcd"),  # of the schema, and then in the message about it
        (b"release", b"\xa5" * 40_000),  # pages
    ],
)
def test_damage_is_an_error_of_the_ledger(ledger: Ledger, where: bytes, junk: bytes):
    ledger.charge([charge(release=b"release" * 9000)])
    ledger.close()
    raw = ledger.path.read_bytes()
    place = raw.index(where)
    ledger.path.write_bytes(raw[:place] + junk + raw[place + len(junk) :])
    with pytest.raises(LedgerError), Ledger(ledger.path) as damaged:
        damaged.set_budget(Budget.parse("rho=1"), person="anna")


@pytest.mark.parametrize("junk", ["-1.0", "'many'"])
def test_damage_to_what_releases_tell_is_an_error_of_the_ledger(ledger: Ledger, junk: str):
    ledger.charge([charge()])
    edit(ledger.path, f"update terms set outputs = {junk}")
    with pytest.raises(LedgerError, match="damaged"):
        ledger.set_budget(Budget.parse("bits=64"), person="anna")


def test_a_path_below_a_file_is_refused_by_message(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match=r"file/ledger.db: cannot be opened for writing \("):
        Ledger(tmp_path / "file" / "ledger.db")


@pytest.mark.parametrize(
    "name", ["a?mode=memory", "file:x.db", ":memory:", "50%.db", os.fsdecode(b"\xff.db")]
)
def test_the_name_of_a_ledger_is_a_name_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with Ledger(name) as ledger:
        ledger.charge([charge()])
    assert sorted(path.name for path in Path().iterdir()) == [name, f"{name}.runs"]
    with Ledger(name) as ledger:
        assert ledger.summary().releases == 1


def test_the_default_ledger_lies_in_the_users_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_path() == tmp_path / "sfumato" / "ledger.db"


# Several processes

BEGIN = """
import sys
from sfumato.device.ledger import Charge, Ledger

path, name = sys.argv[1:]
def charge(image, release):
    return Charge(image=image, spec="noise", shape=(3, 8, 8), guarantee=lambda _: None, release=release)
"""
AT_ONCE = """
print("ready", flush=True)
sys.stdin.readline()
ledger = Ledger(path)  # which none of them has begun
new = 0
for i in range(100):
    charged = ledger.charge([charge(b"%d" % i, b"%d by %s" % (i, name.encode()))])
    new += charged.new
    print(charged.releases[0].decode(), flush=True)
print(new)
"""


def test_two_processes_at_once_get_the_same_releases_and_charge_each_once(tmp_path: Path):
    path = tmp_path / "new.db"
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    commands = [[sys.executable, "-c", BEGIN + AT_ONCE, path, name] for name in ("anna", "bert")]
    running: list[Any] = [subprocess.Popen(command, **pipes) for command in commands]
    assert [process.stdout.readline() for process in running] == ["ready\n"] * 2
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=SECONDS)[0].splitlines() for process in running]
    assert said[0][:-1] == said[1][:-1]
    assert len(said[0]) == 101
    assert sum(int(lines[-1]) for lines in said) == 100
    assert [process.returncode for process in running] == [0, 0]
    with Ledger(path) as ledger:
        assert ledger.check() == 100


def test_a_ledger_waits_for_another_process_that_has_just_begun_it(ledger: Ledger):
    ledger.close()
    other = sqlite3.connect(ledger.path, isolation_level=None, check_same_thread=False)
    other.execute("pragma journal_mode = delete")  # as it is for a moment when a ledger is begun
    other.execute("begin")
    other.execute("select * from charges").fetchall()
    threading.Timer(0.3, other.close).start()
    with Ledger(ledger.path) as waited:
        waited.charge([charge()])


CHARGE_ON = """
ledger = Ledger(path)
for i in range(10**6):
    ledger.charge([charge(b"%d %d" % (i, j), bytes(3000)) for j in range(3)])
    print(i, flush=True)
"""


def test_a_kill_loses_no_charge_and_leaves_no_half_of_a_batch(ledger: Ledger):
    ledger.close()
    with subprocess.Popen(
        [sys.executable, "-c", BEGIN + CHARGE_ON, ledger.path, ""], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        printed = list(itertools.islice(process.stdout, 40))
        process.send_signal(signal.SIGKILL)
        printed += process.stdout.readlines()
    images = dict(row[:2] for row in content(ledger.path)["images"])
    batches = Counter(images[row[1]].split()[0].decode() for row in content(ledger.path)["charges"])
    assert {line.strip() for line in printed if line.endswith("\n")} <= set(batches)
    assert set(batches.values()) == {3}
    with Ledger(ledger.path) as again:
        assert again.check() == 3 * len(batches)
        again.charge([charge()])
