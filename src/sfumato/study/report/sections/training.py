"""Privacy of training: the promises of meta-learned models to their training images."""

from collections import defaultdict
from collections.abc import Sequence

from sfumato.dp.guarantee import round_up
from sfumato.study.choose.estimates import Estimate, Study, belonging, interval_of, is_repeated
from sfumato.study.records import Record
from sfumato.study.report.sections.section import DASH, Column, RecordTable, Section, Value, show_estimate


def section(study: Study, records: Sequence[Record]) -> Section | None:
    """Models that promise the same, group by group; None without meta-learned models."""
    order = {spec: number for number, spec in enumerate(study["protections"])}
    models = [record for record in belonging(study, records, "accuracy") if record.result.privacy]
    if not models:
        return None
    groups: dict[tuple[str, tuple[str, ...]], list[Record]] = defaultdict(list)
    spent: dict[int, list[tuple[float | None, float]]] = defaultdict(list)
    for record in sorted(models, key=lambda record: order[record.cell.protection]):
        promise = record.result.privacy
        if promise.unit is not None:
            groups[promise.unit, tuple(promise.not_covered)].append(record)
            spent[record.cell.seed].append((promise.epsilon, promise.delta))
    values = {
        # (the unit, the exceptions, the cells of both), in the order of the study.
        "groups": [
            (unit, list(not_covered), [record.cell for record in promising])
            for (unit, not_covered), promising in groups.items()
        ],
        "table": _table(list(groups.values()), seeds=is_repeated(study)),
        "together": _together(list(spent.values())),
    }
    return Section("training", "Privacy of training", "Privacy of training", values)


def _together(spent: Sequence[Sequence[tuple[float | None, float]]]) -> tuple[str, str] | None:
    """ε and δ of all models of one seed, which are trained on one pool, by basic composition.

    None for one model, or if one promises nothing.

    Args:
        spent: ε and δ of the models of each seed.
    """
    several = any(len(models) > 1 for models in spent)
    if not several or any(epsilon is None for models in spent for epsilon, _ in models):
        return None
    sums = [
        (sum(epsilon or 0 for epsilon, _ in models), sum(delta for _, delta in models)) for models in spent
    ]
    epsilon, delta = (round_up(max(values)) for values in zip(*sums, strict=True))
    return epsilon, delta


def _table(groups: Sequence[Sequence[Record]], *, seeds: bool) -> RecordTable:
    """A row for each model, bounds rounded up; models that promise the same are a group of rows."""
    overlap = any(
        "image_epsilon" in each.result.privacy.model_fields_set for group in groups for each in group
    )
    columns = [
        *([Column("seed")] if seeds else []),
        Column("clipping", number=False),
        Column("ε by PLD, the bound"),
        *([Column("ε of an image, a bound")] if overlap else []),
        Column("ε by RDP, a looser bound"),
        Column("ε by GDP, an approximation"),
        Column("δ"),
        Column("accuracy"),
    ]
    return RecordTable(
        "Table of training",
        "What training cost the tasks that it learned from. Small numbers beside the accuracy are its 95% "
        "interval in percent.",
        columns,
        [
            [(each.cell.protection, _values(each, seeds=seeds, overlap=overlap)) for each in group]
            for group in groups
        ],
    )


def _values(record: Record, *, seeds: bool, overlap: bool) -> list[Value]:
    promise = record.result.privacy
    image = DASH
    if "image_epsilon" in promise.model_fields_set:  # an infinite one is recorded as null
        image = _bound(promise.image_epsilon, "no bound")
    epsilon = _bound(promise.epsilon, "nothing is promised")
    if promise.epsilon is None and promise.epsilon_if_the_norm_were_public is not None:
        public = round_up(promise.epsilon_if_the_norm_were_public)
        epsilon = Value(epsilon.text, (f"{public} if its norm were public",))
    gdp = promise.gdp_approximation
    return [
        *([Value(str(record.cell.seed))] if seeds else []),
        Value(promise.clipping),
        epsilon,
        *([image] if overlap else []),
        _bound(promise.rdp, "–"),
        DASH if gdp is None else Value(f"{gdp:.3g}"),
        Value(round_up(promise.delta)),
        show_estimate(Estimate(*interval_of(record.result), seeds=1)),
    ]


def _bound(value: float | None, otherwise: str) -> Value:
    return Value(otherwise if value is None else round_up(value))
