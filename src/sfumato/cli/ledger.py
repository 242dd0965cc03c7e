"""`sfumato ledger`: what this device has released, and within which budgets."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="What this device has released, and its privacy budgets.", no_args_is_help=True)

_PATH = typer.Option("--ledger", help="The ledger (default: the user's own).")


@app.command()
def show(path: Annotated[Path | None, _PATH] = None) -> None:
    """Say what was released of how many images, and what is spent of each budget."""
    from sfumato.device.ledger import Ledger, default_path
    from sfumato.errors import LedgerError

    path = path or default_path()
    if not path.exists():
        raise LedgerError(f"{path}: no ledger yet: the first `sfumato protect` begins one")
    with Ledger(path) as ledger:
        summary = ledger.summary()
    print(f"ledger: {path}")
    print(f"{summary.releases:,} releases of {summary.images:,} images")
    for spec, count in summary.specs.items():
        print(f"{spec}: {count:,}")
    for folder, (budget, spent) in summary.budgets.items():
        if folder:
            print(f"budget of {folder}: {budget}; {spent:.4g} of {budget.amount:.4g} is spent")
        else:
            print(f"budget of every image: {budget}")


@app.command()
def budget(
    words: Annotated[
        str, typer.Argument(metavar="BUDGET", help="epsilon=10, epsilon=10,delta=1e-6, mu=2, rho=1, or none.")
    ],
    folder: Annotated[
        str | None,
        typer.Option(help="For all images below this folder, or URL, together (default: each image)."),
    ] = None,
    path: Annotated[Path | None, _PATH] = None,
) -> None:
    """Set the most that releases may cost, of every single image or of all in a folder together.

    The cost is for neighbours that differ in any 1 pixel; write epsilon=10,pixels=16 for any 16. With "none"
    the limit is lifted.
    """
    from sfumato.device.ledger import Budget, Ledger, default_path, is_url, without_password
    from sfumato.errors import DataError

    limit = None if words == "none" else Budget.parse(words)
    if limit is not None and folder is not None and not is_url(folder) and not Path(folder).is_dir():
        raise DataError(f"{folder}: no such folder: a budget there would limit nothing")
    with Ledger(path or default_path()) as ledger:
        spent = ledger.set_budget(limit, folder=folder)
    subject = folder or "every image"
    if is_url(subject):
        subject = without_password(subject)
    if limit is None:
        print(f"no budget for {subject}")
    elif folder is None:
        print(f"budget of {subject}: {limit}")
    else:
        print(f"budget of {subject}: {limit}; {spent:.4g} of {limit.amount:.4g} is spent")
