"""Privacy of training: what meta-learned models promise to the images that they were trained on."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sfumato.dp.guarantee import round_up
from sfumato.study.choose.estimates import Estimate, Study, belonging, interval_of
from sfumato.study.records import Record
from sfumato.study.report.sections.section import Section


@dataclass(frozen=True)
class Row:
    """What one meta-learned model promises. Bounds are rounded up.

    Attributes:
        epsilon: by PLD, the bound; None where nothing is promised, and then `if_public` is what it would be
            if the norm that the policy clips to were public.
        image: ε of an image whose copies or tasks overlap; None where an image is in one task only.
        rdp, gdp: by the other accountants; that of GDP is an approximation and not rounded up.
        accuracy: of this model, with its own interval.
    """

    protection: str
    seed: int
    policy: str
    epsilon: str | None
    if_public: str | None
    image: str | None
    rdp: str
    gdp: str
    delta: str
    accuracy: Estimate


def section(study: Study, records: Sequence[Record]) -> Section | None:
    """Models that promise the same, group by group; None without meta-learned models."""
    order = {spec: number for number, spec in enumerate(study["protections"])}
    models = [record for record in belonging(study, records, "accuracy") if record.result.privacy]
    if not models:
        return None
    groups: dict[tuple[str, tuple[str, ...]], list[Row]] = defaultdict(list)
    spent: dict[int, list[tuple[float | None, float]]] = defaultdict(list)
    for record in sorted(models, key=lambda record: order[record.cell.protection]):
        promise = record.result.privacy
        if promise.unit is not None:
            groups[promise.unit, tuple(promise.not_covered)].append(_row(record, promise))
            spent[record.cell.seed].append((promise.epsilon, promise.delta))
    values = {
        # (the unit, what is not covered, the rows of both), in the order of the study.
        "groups": [(unit, list(not_covered), rows) for (unit, not_covered), rows in groups.items()],
        "overlapping": any(row.image for rows in groups.values() for row in rows),
        "together": _together(list(spent.values())),
    }
    return Section("training", "Privacy of training", "Privacy of training", values)


def _together(spent: Sequence[Sequence[tuple[float | None, float]]]) -> tuple[str, str] | None:
    """ε and δ of all models of one seed, which are trained on one pool, by basic composition.

    None where there is one model, or one that promises nothing.

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


def _row(record: Record, promise: Any) -> Row:
    image = None
    if "image_epsilon" in promise.model_fields_set:  # an infinite one is recorded as null
        image = _bound(promise.image_epsilon) or "no bound"
    return Row(
        protection=record.cell.protection,
        seed=record.cell.seed,
        policy=promise.clipping,
        epsilon=_bound(promise.epsilon),
        if_public=_bound(promise.epsilon_if_the_norm_were_public),
        image=image,
        rdp=_bound(promise.rdp) or "–",
        gdp="–" if promise.gdp_approximation is None else f"{promise.gdp_approximation:.3g}",
        delta=round_up(promise.delta),
        accuracy=Estimate(*interval_of(record.result), seeds=1),
    )


def _bound(value: float | None) -> str | None:
    return None if value is None else round_up(value)
