"""What left by a ledger is in whatever takes its place, or that is refused before noise is drawn.

A ledger that vanishes, is replaced or damaged is noticed: nothing leaves, and none is begun in silence.
"""

import os
import resource
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import charges
import pytest
import torch
from charges import edit

from sfumato.base.engines import EngineConfig
from sfumato.device.jobs.folder import protect_folder
from sfumato.device.ledger import Charge, Ledger, witness
from sfumato.device.ledger.budgets import Budget
from sfumato.errors import BudgetExceededError, LedgerError, SfumatoError
from sfumato.images import write
from sfumato.protect import parse

KILLED = 9


def charge(*names: str) -> list[Charge]:
    """Releases of some images, each of them random."""
    return [charges.charge(name, "noise", shape=(1, 2, 2), release=os.urandom(2000)) for name in names]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger by which two images were released."""
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.charge(charge("a", "b"))
    return tmp_path / "ledger.db"


def killed(work: Callable[[], object]) -> None:
    """Do something in a process that ends in the middle, without any clean-up."""
    if not (process := os.fork()):
        try:
            work()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == KILLED


def die(*_: object, **__: object) -> None:
    os._exit(KILLED)


def remove(path: Path) -> None:
    for side in ("", "-wal", "-shm"):
        path.with_name(path.name + side).unlink(missing_ok=True)


def put(copy: Path, path: Path) -> None:
    """Put a copy in the place of a ledger that was killed."""
    remove(path)
    shutil.copy(copy, path)


# Killed

pwrite = os.pwrite


def half_a_line(handle: int, line: bytes, offset: int) -> None:
    pwrite(handle, line[:100], offset)
    die()


STEPS: dict[str, tuple[str, Callable[..., object], bool]] = {
    "before the charges are on the disk": ("sfumato.device.ledger.charging._Charging.add", die, False),
    "before the witness is written": ("sfumato.device.ledger.ledger.Ledger._check_there", die, True),
    "in the middle of the witness": ("sfumato.device.ledger.witness.os.pwrite", half_a_line, True),
    "before the witness is on the disk": ("sfumato.device.ledger.witness.os.fsync", die, True),
}


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_a_ledger_opens_and_gives_what_it_charged(
    path: Path, step: str, monkeypatch: pytest.MonkeyPatch
):
    name, stop, charged = STEPS[step]

    def work() -> None:
        with Ledger(path) as ledger:
            monkeypatch.setattr(name, stop)
            ledger.charge(charge("c", "d"))

    killed(work)
    with Ledger(path) as ledger:
        assert ledger.check() == (4 if charged else 2)
        kept = ledger.find_releases([b"c", b"d"], "noise")
        assert len(kept) == (2 if charged else 0)
        again = ledger.charge(charge("c", "d"))
        assert again.new == (0 if charged else 2)
        assert not charged or again.releases == list(kept.values())


@pytest.mark.parametrize("step", ["sfumato.device.ledger.tables.fill", "sfumato.device.ledger.witness.write"])
def test_killed_as_it_is_begun_a_ledger_is_begun_by_the_next_one(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(step, die)
    killed(lambda: Ledger(tmp_path / "new.db"))
    monkeypatch.undo()
    with Ledger(tmp_path / "new.db") as ledger:
        assert ledger.charge(charge("a")).new == 1


def work_until_killed(path: Path, *, emptied: bool) -> None:
    """Release 320 images; `emptied`, SQLite's log is written into the ledger after half of them."""

    def work() -> None:
        ledger = Ledger(path)
        for number in range(40):
            ledger.charge(charge(*(f"{number} {i}" for i in range(8))))
            if emptied and number == 20:
                edit(path, "pragma wal_checkpoint(truncate)")
        die()

    killed(work)


def test_killed_after_releases_left_an_older_copy_is_refused(path: Path, tmp_path: Path):
    shutil.copy(path, tmp_path / "copy.db")
    work_until_killed(path, emptied=False)
    put(tmp_path / "copy.db", path)
    with pytest.raises(LedgerError) as raised:
        Ledger(path)
    assert str(raised.value) == (
        f"{path}: is a copy made before its last 320 releases, which would be drawn and charged again: put "
        f"the latest copy back, or accept this one as it is with `sfumato ledger restore {path} --ledger "
        f"{path}`"
    )


@pytest.mark.parametrize("emptied", [True, False])
def test_an_older_copy_under_the_log_of_a_killed_ledger_loses_nothing_or_is_refused(
    path: Path, tmp_path: Path, emptied: bool
):
    shutil.copy(path, tmp_path / "copy.db")
    work_until_killed(path, emptied=emptied)
    shutil.copy(tmp_path / "copy.db", path)  # the log stays, and SQLite writes it over the copy
    if emptied:
        with pytest.raises(LedgerError, match="damaged"):
            Ledger(path)
        return
    with Ledger(path) as ledger:
        assert ledger.charge(charge(*(f"{number} 0" for number in range(40)))).new == 0


# Copies


@pytest.fixture
def elsewhere(path: Path, tmp_path: Path) -> Path:
    """A copy of the ledger, by which one more image was released."""
    copy = tmp_path / "elsewhere" / "ledger.db"
    witness.restore(path, copy)
    with Ledger(copy) as ledger:
        ledger.charge(charge("d"))
    return copy


def test_a_copy_that_lived_on_elsewhere_is_refused_however_many_releases_it_has(path: Path, elsewhere: Path):
    with Ledger(path) as here, Ledger(elsewhere) as there:
        here.charge(charge("c"))
        there.charge(charge("e"))
    put(elsewhere, path)
    with pytest.raises(LedgerError, match=r"a copy that continued elsewhere: its release 3 is not the one"):
        Ledger(path)
    assert witness.restore(path, path) == (4, 1)  # one at least is missing
    with Ledger(path) as ledger:
        assert ledger.charge(charge("c", "d")).new == 1


def test_a_copy_that_only_went_on_is_taken_for_the_ledger(path: Path, elsewhere: Path):
    put(elsewhere, path)  # everything that left here is in it
    with Ledger(path) as ledger:
        assert ledger.charge(charge("a", "d")).new == 0


def test_a_ledger_moves_with_its_witness_and_not_without(path: Path, tmp_path: Path):
    other = tmp_path / "another device" / "ledger.db"
    other.parent.mkdir()
    shutil.copy(path, other)
    with pytest.raises(LedgerError) as raised:
        Ledger(other)
    assert f"its witness {other}.runs/witness is missing" in str(raised.value)
    assert str(raised.value).endswith(f"`sfumato ledger restore '{other}' --ledger '{other}'`")
    shutil.copytree(witness.runs_of(path), witness.runs_of(other))
    with Ledger(other) as moved:
        assert moved.charge(charge("a")).new == 0


def test_where_both_files_are_older_nobody_here_can_know(path: Path, tmp_path: Path):
    shutil.copytree(path.parent, tmp_path / "backup")
    with Ledger(path) as ledger:
        ledger.charge(charge("c"))
    backup = tmp_path / "backup" / "ledger.db"
    put(backup, path)
    shutil.copytree(witness.runs_of(backup), witness.runs_of(path), dirs_exist_ok=True)
    with Ledger(path) as ledger:
        assert ledger.charge(charge("c")).new == 1  # docs/threat-model.md says so


def test_the_log_of_a_ledger_that_is_gone_is_not_written_over_another(path: Path, tmp_path: Path):
    shutil.copy(path, tmp_path / "copy.db")
    killed(lambda: (Ledger(path).charge(charge("c")), die()))
    path.unlink()
    for replace in (partial(witness.restore, tmp_path / "copy.db"), witness.forget):
        with pytest.raises(LedgerError, match=r"ledger.db-wal: holds the last releases of the ledger that"):
            replace(path)


# Changed


@pytest.mark.parametrize(
    "statement",
    [
        "update charges set time = time + 1 where id = 1",
        "update charges set release = null where id = 2",
        "update charges set number = randomblob(16) where id = 1",
        "update charges set terms = 2 where id = 1",
        "update terms set spec = 'other' where id = 1",
        "delete from charges where id = 3",
        "update images set releases = 0 where id = 1",
    ],
)
def test_a_row_that_was_edited_or_removed_by_hand_is_noticed_before_anything_leaves(
    tmp_path: Path, statement: str
):
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        ledger.charge(charge("one", "two", "three"))
        ledger.charge([Charge(**(vars(each) | {"spec": "second"})) for each in charge("four")])
    edit(path, statement)
    with pytest.raises(LedgerError, match=r"damaged \("):
        Ledger(path)
    with pytest.raises(LedgerError, match="damaged"):
        witness.restore(path, path)


def test_a_charge_that_is_removed_while_the_ledger_is_open_is_noticed_by_the_next_of_its_image(path: Path):
    with Ledger(path) as ledger:
        edit(path, "delete from charges where id = 1")
        with pytest.raises(LedgerError, match=r"damaged \(1 recorded releases of an image are missing\)"):
            ledger.charge(charge("a"))


def test_of_two_processes_the_slower_one_takes_nothing_back(path: Path, monkeypatch: pytest.MonkeyPatch):
    with Ledger(path) as slow, Ledger(path) as fast:
        testify = slow._testify
        monkeypatch.setattr(slow, "_testify", lambda: (fast.charge(charge("d", "e")), testify()))
        slow.charge(charge("c"))
        known = witness.read(path)
        assert known is not None
        assert known.releases == 5


def test_a_witness_that_cannot_be_written_lets_nothing_leave(path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with Ledger(path) as ledger:
        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(LedgerError, match=r"cannot be written \(No space left on device\), and has to"):
            ledger.charge(charge("c"))
        monkeypatch.undo()
        assert ledger.charge(charge("c")).new == 0


@pytest.mark.parametrize("value", ["'x'", "-1", "x'ff'"])
def test_a_value_that_is_no_such_value_is_an_error_of_the_ledger_in_whichever_column(path: Path, value: str):
    with closing(sqlite3.connect(path)) as database:
        tables = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        columns = [
            (table, row[1]) for table in tables for row in database.execute(f"pragma table_info({table})")
        ]
    assert ("settings", "value") in columns
    for table, column in columns:
        copy = path.with_name(f"{table}-{column}.db")
        shutil.copy(path, copy)
        with suppress(sqlite3.IntegrityError):  # no such value can be there
            edit(copy, f"update {table} set {column} = {value}")
        with suppress(SfumatoError), Ledger(copy) as ledger:
            ledger.charge(charge("c"))
            ledger.summarise()


def test_a_flipped_bit_in_a_kept_release_is_noticed(path: Path):
    with Ledger(path) as ledger:
        kept = ledger.charge(charge("a")).releases[0]
    raw = bytearray(path.read_bytes())
    raw[raw.index(kept) + 1000] ^= 4
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    path.write_bytes(raw)
    with pytest.raises(LedgerError, match="release 1 was changed"):
        Ledger(path)  # a file that was written by others is read
    os.utime(path, ns=times)
    with Ledger(path) as ledger, pytest.raises(LedgerError, match="release was changed"):
        ledger.find_releases([b"a"], "noise")


# Lost during a run


def put_a_copy(path: Path, _: object) -> None:
    shutil.copy(path, path.with_name("copy.db"))
    path.with_name("copy.db").replace(path)


def between_charge_and_witness(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    observe = witness.observe
    monkeypatch.setattr(witness, "observe", lambda *given: (path.unlink(), observe(*given)))


@pytest.mark.parametrize(
    "lose",
    [
        lambda path, _: path.unlink(),
        lambda path, _: path.with_name("ledger.db-wal").unlink(),
        put_a_copy,
        between_charge_and_witness,
    ],
)
def test_nothing_leaves_once_another_file_lies_in_its_place(
    path: Path, monkeypatch: pytest.MonkeyPatch, lose: Callable[..., None]
):
    with Ledger(path) as ledger:
        ledger.charge(charge("c"))
        lose(path, monkeypatch)
        with pytest.raises(LedgerError, match=r"ledger.db: was deleted or replaced while in use"):
            ledger.charge(charge("d"))


BLUR = parse("blur:radius=2")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for number in range(40):
        draw = torch.Generator().manual_seed(number)
        image = torch.randint(0, 256, (3, 24, 24), generator=draw).to(torch.uint8)
        write(tmp_path / "photos" / f"{number}.png", image)
    return tmp_path / "photos"


def test_a_folder_job_whose_ledger_is_deleted_ends_with_an_error(
    path: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sfumato.device.jobs.folder._CHUNK_FILES", 1)
    engine, delete = EngineConfig(workers=2), partial(path.unlink, missing_ok=True)
    with pytest.raises(LedgerError, match="was deleted or replaced while in use"):
        protect_folder(photos, tmp_path / "out", BLUR, path, engine=engine, report=lambda *_: delete())
    assert len(list((tmp_path / "out").glob("*.png"))) < 40


# Lost between runs


def test_a_ledger_that_was_deleted_is_not_begun_anew(path: Path):
    remove(path)
    for _ in range(2):
        with pytest.raises(LedgerError) as raised:
            Ledger(path)
        assert not path.exists()
    for words in ("charged at least 2 releases", "`sfumato ledger restore COPY`", "`sfumato ledger forget`"):
        assert words in str(raised.value)


def test_a_ledger_beside_the_journals_of_another_is_not_begun_until_that_is_forgotten(
    path: Path, photos: Path, tmp_path: Path
):
    engine = EngineConfig(workers=1)
    protect_folder(photos, tmp_path / "out", BLUR, path, engine=engine)
    remove(path)
    (witness.runs_of(path) / "witness").unlink()
    with pytest.raises(LedgerError, match="knows of a ledger by which 1 folders were released"):
        protect_folder(photos, tmp_path / "new", BLUR, path, engine=engine)
    witness.forget(path)
    with pytest.raises(Exception, match="is not empty and not from an earlier run"):
        protect_folder(photos, tmp_path / "out", BLUR, path, engine=engine)
    assert protect_folder(photos, tmp_path / "new", BLUR, path, engine=engine).charged == 40


def test_another_ledger_in_its_place_is_refused_and_not_lost_by_restoring_or_forgetting(
    path: Path, tmp_path: Path
):
    with Ledger(tmp_path / "other.db") as other:
        other.charge(charge("c"))
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="another ledger lies here and would be lost: move it away first"):
        witness.restore(tmp_path / "other.db", path)
    with pytest.raises(LedgerError, match="the ledger is here: to begin another, move it away first"):
        witness.forget(path)
    assert path.read_bytes() == before
    put(tmp_path / "other.db", path)
    with pytest.raises(LedgerError, match="is not the ledger that lay here before"):
        Ledger(path)


def test_a_damaged_witness_is_an_error_that_names_the_cure(path: Path):
    (witness.runs_of(path) / "witness").write_text("{}")
    with pytest.raises(LedgerError, match=r"witness: cannot be read .*`sfumato ledger restore LEDGER`"):
        Ledger(path)
    assert witness.restore(path, path) == (2, 0)
    Ledger(path).close()


def test_a_restored_copy_has_what_was_released_until_then_and_says_how_much_is_missing(
    path: Path, tmp_path: Path
):
    with Ledger(path) as ledger:
        ledger.set_budget(Budget.parse("releases=1"))
        first = ledger.charge(charge("a", "b"))
    shutil.copy(path, tmp_path / "backup.db")
    with Ledger(path) as ledger:
        ledger.charge(charge("c"))
    remove(path)
    assert witness.restore(tmp_path / "backup.db", path) == (2, 1)
    with Ledger(path) as ledger:
        assert ledger.charge(charge("a", "b")) == first
        with pytest.raises(BudgetExceededError, match="this image has 1 different releases already"):
            ledger.charge([charges.charge("a")])
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("content", [None, b"", b"dear diary " * 100])
def test_what_is_no_ledger_is_not_restored(tmp_path: Path, content: bytes | None):
    copy, path = tmp_path / "copy.db", tmp_path / "ledger.db"
    if content is not None:
        copy.write_bytes(content)
    with pytest.raises(LedgerError, match=r"copy.db: no"):
        witness.restore(copy, path)
    assert not path.exists()


@pytest.mark.parametrize("kilobytes", [0, 16, 64, 130])
def test_on_a_full_disk_a_ledger_is_begun_whole_or_not_at_all(tmp_path: Path, kilobytes: int):
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)  # of each file of this process
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024 * kilobytes, most))
    try:
        Ledger(tmp_path / "ledger.db").close()
    except LedgerError:
        assert [file.name for file in tmp_path.iterdir() if file.is_file()] == []
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    Ledger(tmp_path / "ledger.db").close()  # with room again, or as it was begun
