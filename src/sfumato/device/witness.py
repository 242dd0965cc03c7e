"""What a device knows of its ledger beside it: that there was one, which one, and how far it had come.

A ledger that vanished must not be begun anew in silence: noise would be drawn again for images that were
released before, and their budgets would be whole again. So a small file in the folder of the journals says
which ledger lies here. It is evidence against accidents, a copy from last year among them; who wants to get
rid of both files can.
"""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from sfumato.errors import LedgerError
from sfumato.files import whole


@dataclass(frozen=True)
class Witness:
    """What is known of a ledger.

    Attributes:
        ledger: its random name.
        began: when it was begun, in seconds since 1970.
        releases: how many it had charged, when that was last written here.
    """

    ledger: str
    began: float
    releases: int

    @property
    def words(self) -> str:
        """For messages."""
        day = datetime.fromtimestamp(self.began, UTC).date()
        releases = "release" if self.releases == 1 else "releases"
        return f"a ledger that was begun on {day} and had charged at least {self.releases:,} {releases}"


def runs_of(ledger: Path) -> Path:
    """The folder beside a ledger that has its witness, and the journals of folder jobs."""
    return ledger.with_name(f"{ledger.name}.runs")


def read(ledger: Path) -> Witness | None:
    """What is known of the ledger at a path; None where there is no witness.

    Raises:
        LedgerError: the witness is damaged.
    """
    path = _path(ledger)
    try:
        return TypeAdapter(Witness).validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise LedgerError(
            f"{path}: cannot be read ({type(error).__name__}). It says which ledger lies beside it: restore "
            "it, or say with `sfumato ledger forget` that the ledger is lost"
        ) from error


def write(ledger: Path, witness: Witness) -> None:
    """Write down what is known of a ledger, whole or not at all."""
    runs_of(ledger).mkdir(mode=0o700, parents=True, exist_ok=True)
    with whole(_path(ledger)) as temporary:
        temporary.touch(mode=0o600)
        temporary.write_text(json.dumps(asdict(witness)) + "\n")


def refuse_to_begin(ledger: Path, witness: Witness | None) -> None:
    """Raise LedgerError where something beside an absent ledger knows of one, as its witness does."""
    journals = sorted(runs_of(ledger).glob("*.db"))
    if witness is None and not journals:
        return
    known = (
        witness.words if witness is not None else f"a ledger by which {len(journals)} folders were released"
    )
    raise LedgerError(
        f"{ledger}: no ledger is here, and {runs_of(ledger)} knows of {known}. Without it, noise would be "
        "drawn and charged again: put it back, bring in a copy with `sfumato ledger restore COPY`, or say "
        "with "
        "`sfumato ledger forget` that it is lost"
    )


def check(ledger: Path, witness: Witness | None, name: str, releases: int) -> None:
    """Raise LedgerError where a ledger is not the one that its witness knows, or an older copy of it."""
    if witness is None:
        return
    cure = "put the right one back, or take this one with `sfumato ledger restore`"
    if witness.ledger != name:
        raise LedgerError(f"{ledger}: is not the ledger that lay here before, {witness.words}: {cure}")
    if releases < witness.releases:
        raise LedgerError(
            f"{ledger}: is a copy from before its last {witness.releases - releases:,} releases, which would "
            f"be drawn and charged again: {cure}"
        )


def forget(ledger: Path, *, journals: bool = False) -> None:
    """Remove what is known of a ledger: its witness, and if asked the journals of its folders."""
    _path(ledger).unlink(missing_ok=True)
    if journals:
        for path in [*runs_of(ledger).glob("*.db*"), *runs_of(ledger).glob("*.lock")]:
            path.unlink()


def _path(ledger: Path) -> Path:
    return runs_of(ledger) / "ledger.json"
