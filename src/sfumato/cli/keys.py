"""`sfumato keys`: manage the tenants and API keys of a service."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from sfumato.cli.options import StoreAddress
from sfumato.cli.show import VOLUME

app = typer.Typer(help="The tenants of a service, and their API keys.", no_args_is_help=True)


@app.command()
def create(
    tenant: Annotated[str, typer.Argument(help="The tenant of the key. It cannot see the data of others.")],
    name: Annotated[str, typer.Argument(help="The name of the device or person that uses the key.")],
    store: StoreAddress = "sqlite:///sfumato.db",
    role: Annotated[
        str,
        typer.Option(
            help="read lists and classifies. write also enrols and forgets. admin also reads the audit log, "
            "and makes and revokes keys."
        ),
    ] = "write",
    rate: Annotated[int | None, typer.Option(help="How many requests a minute (default: no limit).")] = None,
    quota: Annotated[int | None, typer.Option(help="Examples that it may store (default: no limit).")] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it works: 90d, 12h or 30m (default: always).")
    ] = None,
    new_tenant: Annotated[bool, typer.Option("--new-tenant", help="Create a new tenant, and store.")] = False,
) -> None:
    """Create a key and print its secret once. The store keeps only a hash of it.

    `sfumato -q keys create ...` prints the secret alone, for use in `export SFUMATO_KEY=$(...)`.

    Example: sfumato keys create museum camera --role write --expires 365d
    """
    from sfumato.serve.store import Store

    with Store(store) as opened:
        if new_tenant and tenant not in opened.tenants():
            opened.create_tenant(tenant)
        key, secret = opened.create_key(
            tenant,
            role=role,  # type: ignore[arg-type]  # it checks
            name=name,
            rate=rate,
            quota=quota,
            expires=None if expires is None else _end(expires),
        )
    if VOLUME.quiet:
        print(secret)
        return
    end = "" if key.expires is None else f", expires {key.expires:%Y-%m-%d %H:%M} UTC"
    print(f"key: {key.id} ({key.role}, of {key.tenant}{end})")
    print(f"secret, shown this once: {secret}")


def _end(lasting: str) -> datetime:
    """Return the end of a key that lasts for days, hours or minutes, such as 90d. Raises ConfigError."""
    from sfumato.errors import ConfigError

    units = {"d": "days", "h": "hours", "m": "minutes"}
    number, unit = lasting[:-1], units.get(lasting[-1:])
    if unit is None or not (number.isascii() and number.isdecimal() and 0 < int(number) <= 100_000):
        raise ConfigError(f"--expires {lasting}: a number of days, hours or minutes, such as 90d, 12h or 30m")
    return datetime.now(UTC) + timedelta(**{unit: int(number)})


@app.command("list")
def show(store: StoreAddress = "sqlite:///sfumato.db") -> None:
    """List the tenants and their keys. Secrets cannot be shown again.

    Example: sfumato keys list
    """
    from sfumato.serve.store import Store

    with Store(store) as opened:
        for one in opened.tenants():
            print(f"tenant: {one}")
            for key in opened.keys(one):
                limits = [f"{key.rate} a minute"] * (key.rate is not None)
                limits += [f"{key.quota} examples"] * (key.quota is not None)
                limits += [f"created {key.created:%Y-%m-%d}"]
                if key.expires is not None:
                    word = "expired" if key.expires <= datetime.now(UTC) else "expires"
                    limits += [f"{word} {key.expires:%Y-%m-%d %H:%M} UTC"]
                limits += [f"revoked {key.revoked:%Y-%m-%d}" for _ in range(key.revoked is not None)]
                print(f"  {key.id} {key.role} {key.name} ({', '.join(limits)})")


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(help="The id of the key, from `sfumato keys list`; not the secret.")],
    store: StoreAddress = "sqlite:///sfumato.db",
) -> None:
    """Revoke a key from now on. Its examples stay.

    Example: sfumato keys revoke k-60db87dcd2f60e1312e829b9
    """
    from sfumato.serve.store import Store

    with Store(store) as opened:
        opened.revoke(key)
    print(f"revoked: {key}")
