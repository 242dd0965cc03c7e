"""`sfumato ledger`: show the releases of this device, and set its budgets."""

from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.options import LedgerFile
from sfumato.cli.show import AsJson, print_json

_MOST_SHOWN = 20  # people whose bounds `show` states, unless one is named
_NEAR_COPIES = {
    "charge": "share its budget",
    "ignore": "count as other images",
}

_Among = Annotated[
    list[int] | None,
    typer.Option(min=1, help="Equally likely people (default: 1,000 and 1,000,000). Repeat it for more."),
]
_Url = Annotated[str, typer.Argument(metavar="URL", help="Address of the service, as you gave it first.")]
_Copy = Annotated[
    Path, typer.Argument(help="A copy of the ledger, or the ledger itself, to accept it as it is.")
]

app = typer.Typer(help="The releases of this device, and its privacy budgets.", no_args_is_help=True)


@app.command()
def show(
    person: Annotated[str | None, typer.Option(help="Proofs about one person; '' about every one.")] = None,
    among: _Among = None,
    path: LedgerFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the releases, the number of images, how much of each budget is spent, and the proofs.

    A proof bounds naming a person from all their releases so far, whatever an adversary knows. A
    person is a label of `enrol --people`, or a sub-folder of `protect --people`. Nothing is proved about
    pixels as they are usually released. Something is proved about codes of few bits, and about answers.

    Example: sfumato ledger show --person anna
    """
    import math
    from dataclasses import asdict
    from datetime import UTC, datetime

    from sfumato.base.alike import look
    from sfumato.base.files import printable
    from sfumato.device.ledger import Ledger
    from sfumato.device.ledger.tables import EVERY_IMAGE, EVERY_PERSON, describe, scope_of
    from sfumato.dp.naming import BY_STRENGTH, sentences
    from sfumato.errors import ConfigError, did_you_mean
    from sfumato.protect.naming import PEOPLE

    path = _existing(path)
    with Ledger(path) as ledger:
        if person and look(person) not in (known := ledger.people()):
            hint = f"{did_you_mean(look(person), known)}. They are known from a release with --people"
            raise ConfigError(f"{path} knows nobody called {person!r}: {hint}")
        people = [person] if person else ledger.people()
        shown = people[:_MOST_SHOWN] if person is None else people
        proved = []
        for name in shown:
            stated = {a: ledger.namings(among or PEOPLE, person=name, assuming=a) for a in BY_STRENGTH}
            subject, count = describe(scope_of(name)), stated["none"][0].releases
            words = f"{printable(subject)}: {sentences(stated.__getitem__, releases=count)}"
            namings = [asdict(naming) for each in stated.values() for naming in each]
            proved.append({"subject": subject, "words": words, "namings": namings})
        summary, clock, near_copies = ledger.summary(), ledger.clock, ledger.near_copies
    if as_json:
        budgets: list[dict[str, object]] = []
        for scope, budget, spent in summary.budgets:
            limit = {"scope": describe(scope), "budget": str(budget), "definition": budget.definition}
            budgets.append({**limit, "amount": budget.amount, "spent": spent, "exhausted": math.isinf(spent)})
        pins = [
            {"service": service, "classifier": classifier, **pin._asdict()}
            for (service, classifier), pin in summary.pins.items()
        ]
        rest = {"near_copies": near_copies, "proved": proved, "pins": pins}
        print_json({"ledger": str(path), **asdict(summary), "budgets": budgets, **rest})
        return
    if person is None:
        print(f"ledger: {path}")
        print(f"{summary.releases:,} releases of {summary.images:,} images")
        for spec, count in summary.specs.items():
            print(f"{spec}: {count:,}")
        for scope, budget, spent in summary.budgets:
            alone = scope in (EVERY_IMAGE, EVERY_PERSON) or math.isinf(budget.amount)
            of = "" if alone else f"; {budget.describe_spent(spent)}"
            print(f"budget of {describe(scope)}: {budget}{of}")
        print(f"near copies of an image: {_NEAR_COPIES[near_copies]}")
        for (service, classifier), pin in summary.pins.items():
            day = datetime.fromtimestamp(pin.since, UTC).date()
            signs = f"signs tables by {pin.spec[:16]}..."
            what = f"gets {pin.spec} for {classifier}" if classifier else signs
            print(f"pinned: {service} {what} (since {day})")
    for each in proved:
        print(each["words"])
    if clock:
        typer.echo(f"note: {clock}", err=True)
    if len(people) > len(shown):
        print(f"and {len(people) - len(shown):,} people more: `sfumato ledger show --person ''` has all")


def _existing(path: Path | None) -> Path:
    """Return the path of a ledger that exists. Raises LedgerError otherwise."""
    from sfumato.device.ledger import default_path, witness
    from sfumato.errors import LedgerError

    path = path or default_path()
    if not path.exists():
        witness.refuse_to_begin(path)
        raise LedgerError(f"{path}: no ledger yet: the first `sfumato protect` begins one")
    return path


@app.command()
def budget(
    parts: Annotated[
        list[str],
        typer.Argument(
            metavar="BUDGET",
            help="releases=5, bits=64, epsilon=10, epsilon=10,delta=1e-6, mu=2, rho=1, naming=1% of=1000 "
            "per=year, or none.",
        ),
    ],
    person: Annotated[
        str | None,
        typer.Option(help="For all images of this person, as `--people` names them. '' is every person."),
    ] = None,
    path: LedgerFile = None,
) -> None:
    """Limit the cost of releases: of each image, or of a person.

    releases=5 counts different releases of an image and its near copies. bits=10 is for codes and answers:
    two codes of 5 bits are 10, and after 10 bits nobody names the right one of N equally likely people with a
    chance above 1,024 / N. The others limit proved guarantees, between neighbours that differ in any 1 pixel
    (epsilon=10,pixels=16: in any 16). "none" lifts the limits.

    naming=1% of=1000 per=year is for a person: after the releases of any year nobody names them among 1,000
    equally likely people in more than 1% of cases. By default nothing is assumed; with assuming=exchangeable,
    releases are independent draws from the same images of a person, and near copies are one draw.

    Example: sfumato ledger budget epsilon=10
    """
    import math

    from sfumato.device.ledger import Ledger, default_path
    from sfumato.device.ledger.budgets import Budget
    from sfumato.device.ledger.tables import describe, scope_of

    words = ",".join(parts)
    limit = None if words == "none" else Budget.parse(words)
    with Ledger(path or default_path()) as ledger:
        spent = ledger.set_budget(limit, person=person)
    subject = describe(scope_of(person))
    if limit is None:
        print(f"no budget for {subject}")
        return
    note = f"; {limit.describe_spent(spent)}" if person else ""
    if math.isinf(spent):
        note = f". Nothing more can be released there, since {limit.unheld} made there, such as a blur. "
        note += "A number of releases (releases=5) limits it"
    print(f"budget of {subject}: {limit}{note}")


@app.command("near-copies")
def near_copies(
    mode: Annotated[str, typer.Argument(metavar="MODE", help="charge or ignore.")],
    path: LedgerFile = None,
) -> None:
    """Choose how near copies of an image count: flipped, cut, resized or recompressed ones.

    "charge", as a new ledger does, gives all near copies of an image one budget: under `sfumato ledger budget
    releases=1` only the first of them leaves. "ignore" treats them as different images.

    Example: sfumato ledger near-copies ignore
    """
    from sfumato.device.ledger import Ledger, default_path

    with Ledger(path or default_path()) as ledger:
        ledger.set_near_copies(mode)  # type: ignore[arg-type]  # checked there
    print(f"near copies of an image: {_NEAR_COPIES[mode]}")


@app.command()
def unpin(service: _Url, path: LedgerFile = None) -> None:
    """Forget which protection you accepted for a service. The next command asks again.

    Example: sfumato ledger unpin http://127.0.0.1:8000
    """
    from sfumato.device.ledger import Ledger, default_path
    from sfumato.errors import LedgerError

    with Ledger(path or default_path()) as ledger:
        count = ledger.unpin(service)
    if not count:
        raise LedgerError(f"{service}: no protection is pinned for it: see `sfumato ledger show`")
    print(f"no protection is pinned for {service} any more")


@app.command()
def check(path: LedgerFile = None) -> None:
    """Read the whole ledger, and check that every release is as charged and none is missing.

    Every command compares the ledger with its witness, a file in the folder next to it. If a ledger was
    copied or changed, the next command reads it whole, too.

    Example: sfumato ledger check
    """
    from sfumato.device.ledger import Ledger

    path = _existing(path)
    with Ledger(path) as ledger:
        print(f"{path}: {ledger.check():,} releases, each as it was charged")


@app.command()
def restore(copy: _Copy, path: LedgerFile = None) -> None:
    """Restore a lost ledger from a copy, or accept the file now in its place, such as an older copy.

    Example: sfumato ledger restore backup.db
    """
    from sfumato.device.ledger import default_path, witness

    path = path or default_path()
    releases, missing = witness.restore(copy, path)
    print(f"ledger: {path}, with {releases:,} releases")
    if missing:
        print(
            f"{missing:,} releases or more were made after that copy. They are unknown now: asked "
            "for again, each is drawn and charged anew, and adds to what an adversary learns"
        )


@app.command()
def forget(path: LedgerFile = None) -> None:
    """Accept that a ledger is lost, so that a new one may begin.

    Every image is then new to this device: its noise is drawn again and its budgets are whole, despite
    earlier releases.

    Example: sfumato ledger forget
    """
    from sfumato.device.ledger import default_path, witness

    path = path or default_path()
    witness.forget(path)
    print(f"{path}: forgotten. The next release begins a new ledger, which knows nothing of earlier ones")
