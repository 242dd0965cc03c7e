"""`sfumato share`: send how often a classifier gave each answer here, as one rounded histogram a period."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sfumato.cli.classify import read_own_table
from sfumato.cli.enrol import INSECURE, KEY_FILE, URL, connect
from sfumato.cli.options import LedgerFile

Per = Literal["day", "week", "month", "quarter", "year"]


def share(
    url: Annotated[str, URL],
    classifier: Annotated[str, typer.Argument(help="The name of the classifier.")],
    table: Annotated[Path, typer.Option(metavar="FILE", help="The table of `sfumato classify --table`.")],
    parts: Annotated[int, typer.Option(min=1, max=100, help="Round shares to so many parts.")] = 5,
    per: Annotated[Per, typer.Option(help="The period.")] = "quarter",
    alarm: Annotated[
        str | None, typer.Option(metavar="CLASS", help="Send an alarm, that this class was seen today.")
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="The most alarms that leave in a period.")] = 1,
    person: Annotated[str | None, typer.Option(help="Who the images show, for their budget.")] = None,
    key_file: Annotated[Path | None, KEY_FILE] = None,
    ledger: LedgerFile = None,
    insecure: Annotated[bool, INSECURE] = False,
) -> None:
    """Send the shares of the answers that `classify --gather` counted: one rounded histogram in each period.

    That proves something for a year, whatever the images show: of two answers in fifths there are six
    histograms, by which nobody names more than 0.6% of 1,000 people. The ledger refuses a second one in a
    period. If it did not arrive, the same command sends the same bytes again. Needs a key of the role write;
    one of the role admin lists what all devices sent, by /v1/classifiers/ID/shares.

    Example: sfumato share http://127.0.0.1:8000 smiling --table smiling.table
    """
    from sfumato.base.files import printable
    from sfumato.device.ledger.shares import Plan
    from sfumato.errors import ConfigError, did_you_mean
    from sfumato.wire.messages import Shares

    found = read_own_table(table, classifier)
    values: list[str | None] = [*found.header.labels, *[None] * found.header.refuses]
    if alarm not in (None, *values):
        raise ConfigError(f"--alarm {alarm}: {did_you_mean(str(alarm), found.header.labels)}")
    of: dict[str, Any] = {"classifier": classifier, "per": per, "values": tuple(values), "parts": parts}
    if alarm is not None:
        of |= {"values": (alarm,), "parts": 1, "most": most}
    with connect(url, key_file, None, ledger, insecure=insecure) as cloud:
        plan = Plan(service=cloud.url, **of)
        prepared = cloud.share(found, plan, person=person)
    sent = Shares.model_validate_json(prepared.content)
    shares = zip(sent.labels, sent.parts_of_each(), strict=True)
    words = ", ".join(f"{label or 'none of these'} {part / sent.parts:.0%}" for label, part in shares)
    how = f"of {prepared.answers:,} answers, whose number stays here" if prepared.answers else "once more"
    lost = f" (without {prepared.unknown:,} of classes that left)" * bool(prepared.unknown)
    print(f"sent {how}{lost}: {printable(words)}")
    print(f"proved: {_proof(plan)}")


def _proof(plan: Any) -> str:
    """State the bound on naming by what leaves in a period, and in a year of periods."""
    from dataclasses import replace

    from sfumato.device.ledger.budgets import PERIODS
    from sfumato.dp import naming
    from sfumato.protect.naming import PEOPLE

    what = "the time of day of an alarm" if plan.most else "that it leaves, and when,"
    assumed = f"nothing is assumed of the images; {what} must not depend on them"

    def state(periods: int) -> str:
        bounds = [naming.counting(1 / n, outputs=plan.outputs, releases=periods) for n in PEOPLE]
        made = [
            naming.make_statement(bound, candidates=n, prior=None, releases=periods)
            for n, bound in zip(PEOPLE, bounds, strict=True)
        ]
        return naming.sentence([replace(each, assumption=assumed) for each in made])

    year = int(-(-PERIODS["year"] // PERIODS[plan.per]))
    return f"{plan.outputs:,} outputs a {plan.per}, whatever the images: {state(1)}; in a year, {state(year)}"
