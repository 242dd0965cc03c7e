"""A ledger that vanishes, is replaced or damaged is noticed: nothing leaves, and none is begun in silence."""

import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sfumato.base.engines import EngineConfig
from sfumato.device.jobs import releasing
from sfumato.device.jobs.folder import protect_folder
from sfumato.device.ledger import Ledger, witness
from sfumato.device.ledger.budgets import Budget
from sfumato.errors import BudgetExceededError, LedgerError
from sfumato.images import write
from sfumato.protect import parse

SPEC = "dp-pix:cell=4,epsilon=3"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "device" / "ledger.db"


@pytest.fixture
def photograph() -> Tensor:
    return torch.randint(0, 256, (3, 24, 24), generator=torch.Generator().manual_seed(1)).to(torch.uint8)


def release(ledger: Ledger, image: Tensor, spec: str = SPEC) -> Tensor:
    return releasing.release(parse(spec), image[None], ledger).values


def remove(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        if file.is_file():
            file.unlink()


# During a run


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
    path: Path, photograph: Tensor, monkeypatch: pytest.MonkeyPatch, lose: Callable[..., None]
):
    with Ledger(path) as ledger:
        release(ledger, photograph)
        lose(path, monkeypatch)
        with pytest.raises(LedgerError, match=r"ledger.db: was deleted or replaced while in use"):
            release(ledger, photograph, "gaussian:sigma=40")


def test_a_folder_job_whose_ledger_is_deleted_ends_with_an_error(
    path: Path, photograph: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for number in range(40):
        write(tmp_path / "photos" / f"{number}.png", photograph.roll(number, 1))
    monkeypatch.setattr("sfumato.device.jobs.listing._CHUNK_FILES", 1)
    given = tmp_path / "photos", tmp_path / "out", parse(SPEC), path
    delete = lambda *_: path.unlink(missing_ok=True)  # noqa: E731
    with pytest.raises(LedgerError, match="was deleted or replaced while in use"):
        protect_folder(*given, engine=EngineConfig(workers=2), report=delete)
    assert len(list((tmp_path / "out").glob("*.png"))) < 40


# Between runs


def test_a_ledger_that_was_deleted_is_not_begun_anew(path: Path, photograph: Tensor):
    with Ledger(path) as ledger:
        release(ledger, photograph)
    remove(path)
    for _ in range(2):
        with pytest.raises(LedgerError) as raised:
            Ledger(path)
        assert not path.exists()
    for words in ("charged at least 1 release.", "`sfumato ledger restore COPY`", "`sfumato ledger forget`"):
        assert words in str(raised.value)


def test_a_ledger_beside_the_journals_of_another_is_not_begun(path: Path, photograph: Tensor, tmp_path: Path):
    write(tmp_path / "photos" / "1.png", photograph)
    protect_folder(tmp_path / "photos", tmp_path / "out", parse(SPEC), path)
    remove(path)
    (witness.runs_of(path) / "witness").unlink()
    with pytest.raises(LedgerError, match="knows of a ledger by which 1 folders were released"):
        protect_folder(tmp_path / "photos", tmp_path / "other", parse(SPEC), path)


def test_another_ledger_in_its_place_is_refused(path: Path, photograph: Tensor, tmp_path: Path):
    Ledger(path).close()
    with Ledger(tmp_path / "other.db") as other:
        release(other, photograph)
    remove(path)
    shutil.copy(tmp_path / "other.db", path)
    with pytest.raises(LedgerError, match="is not the ledger that lay here before"):
        Ledger(path)


def test_a_damaged_witness_is_an_error_that_names_the_cure(path: Path):
    Ledger(path).close()
    (witness.runs_of(path) / "witness").write_text("{}")
    with pytest.raises(LedgerError, match=r"witness: cannot be read .*`sfumato ledger restore LEDGER`"):
        Ledger(path)
    assert witness.restore(path, path) == (0, 0)
    Ledger(path).close()


# Restored, or forgotten


def test_a_restored_copy_has_what_was_released_until_then_and_says_how_much_is_missing(
    path: Path, photograph: Tensor, tmp_path: Path
):
    with Ledger(path) as ledger:
        first = release(ledger, photograph)
        ledger.set_budget(Budget.parse("epsilon=7"))
    shutil.copy(path, tmp_path / "backup.db")
    with Ledger(path) as ledger:
        release(ledger, photograph, "dp-pix:cell=4,epsilon=4")
    remove(path)
    assert witness.restore(tmp_path / "backup.db", path) == (1, 1)
    with Ledger(path) as ledger:
        assert torch.equal(release(ledger, photograph), first)
        with pytest.raises(BudgetExceededError, match="eps = 5, and 4 of 7 is left"):
            release(ledger, photograph, "dp-pix:cell=4,epsilon=5")
    assert path.stat().st_mode & 0o077 == 0


def test_a_ledger_that_lies_there_is_not_lost_by_restoring_or_forgetting(path: Path, tmp_path: Path):
    Ledger(path).close()
    Ledger(tmp_path / "other.db").close()
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="another ledger lies here and would be lost: move it away first"):
        witness.restore(tmp_path / "other.db", path)
    with pytest.raises(LedgerError, match="the ledger is here: to begin another, move it away first"):
        witness.forget(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [None, b"", b"dear diary " * 100])
def test_what_is_no_ledger_is_not_restored(path: Path, tmp_path: Path, content: bytes | None):
    copy = tmp_path / "copy.db"
    if content is not None:
        copy.write_bytes(content)
    with pytest.raises(LedgerError, match=r"copy.db: no"):
        witness.restore(copy, path)
    assert not path.exists()


def test_a_forgotten_ledger_is_begun_anew_and_its_targets_are_not_written_to(
    path: Path, photograph: Tensor, tmp_path: Path
):
    write(tmp_path / "photos" / "1.png", photograph)
    protect_folder(tmp_path / "photos", tmp_path / "out", parse(SPEC), path)
    remove(path)
    witness.forget(path)
    with pytest.raises(Exception, match="is not empty and not from an earlier run"):
        protect_folder(tmp_path / "photos", tmp_path / "out", parse(SPEC), path)
    assert protect_folder(tmp_path / "photos", tmp_path / "new", parse(SPEC), path).charged == 1


# Begun whole or not at all


@pytest.mark.parametrize("kilobytes", [0, 16, 64, 130])
def test_on_a_full_disk_a_ledger_is_begun_whole_or_not_at_all(path: Path, kilobytes: int):
    path.parent.mkdir()
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)  # of each file of this process
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024 * kilobytes, most))
    try:
        Ledger(path).close()
    except LedgerError:
        assert [file.name for file in path.parent.iterdir() if file.is_file()] == []
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    Ledger(path).close()  # with room again, or as it was begun


# Damaged


def test_a_flipped_bit_in_a_kept_release_is_noticed(path: Path, photograph: Tensor):
    with Ledger(path) as ledger:
        kept = release(ledger, photograph).numpy().tobytes()
    raw = bytearray(path.read_bytes())
    raw[raw.index(kept) + 5] ^= 4
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    path.write_bytes(raw)
    with pytest.raises(LedgerError, match="release 1 was changed"):
        Ledger(path)  # a file that was written by others is read
    os.utime(path, ns=times)
    with Ledger(path) as ledger, pytest.raises(LedgerError, match="release was changed"):
        release(ledger, photograph)
