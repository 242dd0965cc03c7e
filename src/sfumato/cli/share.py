"""`sfumato share`: send how often a classifier gave each answer here, as one rounded histogram a period."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.classify import read_own_table
from sfumato.cli.enrol import INSECURE, KEY_FILE, URL, connect
from sfumato.cli.options import LedgerFile

if TYPE_CHECKING:
    from sfumato.device.ledger.shares import Plan


def share(
    url: Annotated[str, URL],
    classifier: Annotated[str, typer.Argument(help="The name of the classifier.")],
    table: Annotated[Path, typer.Option(metavar="FILE", help="The table of `sfumato classify --table`.")],
    parts: Annotated[int, typer.Option(min=1, max=100, help="Round shares to so many parts.")] = 5,
    per: Annotated[str, typer.Option(help="The period: day, week, month, quarter or year.")] = "quarter",
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
    from sfumato.wire.messages import PERIODS, Shares

    if per not in PERIODS:
        raise ConfigError(f"--per {per}: {did_you_mean(per, PERIODS)}")
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
    print(f"sent {how}: {printable(words)}")
    if prepared.unknown:
        typer.echo(f"note: {prepared.unknown:,} answers of classes that left are not counted", err=True)
    print(f"proved: {_proof(plan)}")


def _proof(plan: "Plan") -> str:
    """State how many people anybody names by what leaves in a period, and in a year of periods."""
    import math
    from dataclasses import replace

    from sfumato.device.ledger.budgets import PERIODS
    from sfumato.dp import naming
    from sfumato.protect.naming import PEOPLE

    what = "the time of day of an alarm" if plan.most else "that it leaves, and when,"
    stated = []
    for periods in (1, math.ceil(PERIODS["year"] / PERIODS[plan.per])):
        for n in PEOPLE:
            bound = naming.counting(1 / n, outputs=plan.outputs, releases=periods)
            made = naming.make_statement(bound, candidates=n, prior=None, releases=periods)
            assumed = f"nothing is assumed of the images; {what} must not depend on them"
            stated.append(replace(made, assumption=assumed))
    period, year = (naming.sentence(stated[at : at + len(PEOPLE)]) for at in (0, len(PEOPLE)))
    return f"{plan.outputs:,} outputs a {plan.per}, whatever the images: {period}; in a year, {year}"
