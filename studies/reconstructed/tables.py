"""Correlations of every measure with judges, beside the judges' own reliability (Tables 1 and 2, Fig. 3, Fig. 9)."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from metric_differences import Ranked, mean_difference, metric_matrix
from rows import Rows

from reconstructed.judged import PROXY, SIGNS
from reconstructed.learned import CHOSEN, SEEDS, SETTINGS, present, record_of, shares_of
from reconstructed.sources import SEED
from sfumato.assess import agreement
from sfumato.assess.agreement import Correlation
from sfumato.errors import DataError

SEMSIM = "semsim"
POOLED = "all victims"
HAND_MADE = ("psnr", "ssim", "mse", "squeezenet", "frechet")

Columns = dict[
    str, list[list[float]]
]  # measure -> by seed, once where none is drawn -> of each victim, turned


def draws() -> torch.Generator:
    """Of a bootstrap."""
    return torch.Generator().manual_seed(SEED)


def columns(name: str, attack: str, records: Rows) -> Columns:
    """Every measure of the victims of an attack, turned so that it rises with what leaks."""
    victims = record_of(name, attack, records)["victims"].values()
    found: Columns = {}
    for measure in HAND_MADE:
        values = [each["scores"][measure] for each in victims]
        if None not in values:
            found[measure] = [[SIGNS[measure] * value for value in values]]
    found[SEMSIM] = []
    for setting in (*SETTINGS, CHOSEN):
        found[_of(setting)] = []
    for seed in SEEDS:
        published = records[f"semsim-{name}-{seed}"]["images"][attack]
        found[SEMSIM].append([-statistics.mean(each) for each in published.values()])
        record = records[f"stages-{name}-{seed}"]
        for setting in SETTINGS:
            scores = record["settings"][setting]["attacks"][attack]["scores"]
            found[_of(setting)].append([-value for value in scores.values()])
        found[_of(CHOSEN)].append(found[_of(record[CHOSEN])][-1])
    return found


def _of(setting: str) -> str:
    return f"semsim-perceptual, {setting}"


def pooled(parts: Sequence[Columns]) -> Columns:
    """The victims of all attacks together."""
    return {
        measure: [[value for part in parts for value in part[measure][at]] for at in range(len(values))]
        for measure, values in parts[0].items()
        if all(measure in part for part in parts)
    }


def correlation(values: list[float], shares: list[float]) -> dict[str, Any] | None:
    """With what judges recognise; None where all are tied."""
    try:
        found = agreement.rank_correlations(values, shares, generator=draws())
    except DataError:
        return None
    return {"kendall": asdict(found.kendall), "spearman": asdict(found.spearman)}


def mean_of(found: Sequence[Correlation]) -> dict[str, float]:
    """Over seeds, each end by itself."""
    return {end: statistics.mean(getattr(each, end) for each in found) for end in ("value", "low", "high")}


def ahead(measure: str, other: str, sets: Sequence[tuple[Columns, list[float]]]) -> dict[str, float]:
    """By how much a measure is ahead of one that is not learned, on average over data sets, and seeds."""
    seeds = len(sets[0][0][measure])
    return mean_of(
        [
            mean_difference(
                [Ranked(found[measure][seed], found[other][0], shares) for found, shares in sets],
                generator=draws(),
            )
            for seed in range(seeds)
        ]
    )


def table(names: Sequence[str], attacks: Sequence[str], records: Rows) -> dict[str, Any]:
    """One table: rows are data sets, and what stands beside them."""
    sets, reliability, rows, counts = [], {}, {}, {}
    for name in names:
        found = pooled([columns(name, attack, records) for attack in attacks])
        victims = [
            each for attack in attacks for each in record_of(name, attack, records)["victims"].values()
        ]
        shares = [each["recognised"] / each["items"] for each in victims]
        sets.append((found, shares))
        counts[name] = {"victims": len(victims), "least": min(shares), "most": max(shares)}
        who = torch.tensor([each["who"] for each in victims]).double()
        reliability[name] = asdict(agreement.split_half_reliability(who, generator=draws()))
        rows[name] = {
            measure: [correlation(values, shares) for values in by_seed] for measure, by_seed in found.items()
        }
    measures = [measure for measure in rows[names[0]] if all(measure in row for row in rows.values())]
    means = {
        measure: statistics.mean(
            each["kendall"]["value"] for row in rows.values() for each in row[measure] if each is not None
        )
        for measure in measures
    }
    best = max((each for each in HAND_MADE if each in means), key=lambda each: means[each])
    return {
        "rows": rows,
        "victims": counts,
        "reliability": reliability,
        "means": means,
        "best_hand_made": best,
        "ahead": {each: ahead(each, best, sets) for each in measures if each not in HAND_MADE},
    }


def correlations(names: Sequence[str], records: Rows) -> dict[str, Any]:
    """All tables, from the records of the other parts."""
    attacks = present(names, records)
    tables = {attack: table(names, [attack], records) for attack in attacks}
    tables[POOLED] = table(names, attacks, records)
    return {
        "annotators": PROXY,
        "tables": tables,
        "matrices": {name: _matrix(name, attacks, records) for name in names},
        "variants": _variants(records),
        "chosen": {name: records[f"stages-{name}-0"][CHOSEN] for name in names},
    }


def _matrix(name: str, attacks: Sequence[str], records: Rows) -> dict[str, Any]:
    """Measures with each other, over all victims (Fig. 3)."""
    found = pooled([columns(name, attack, records) for attack in attacks])
    kept = [*HAND_MADE, SEMSIM, _of(CHOSEN)]
    matrix = metric_matrix({each: found[each][0] for each in kept if each in found})
    return {"names": list(matrix.names), "kendall": matrix.kendall.tolist()}


def _variants(records: Rows) -> dict[str, Any]:
    """SemSim as published with one thing changed at a time, on the data set that it is tested on (Fig. 7, Fig. 9)."""
    found = {}
    for row in (row for row in records if row.startswith("variant-")):
        record = records[row]
        by_attack = {}
        for attack, victims in record["images"].items():
            shares = shares_of(record_of(record["data"], attack, records))
            by_attack[attack] = correlation([-statistics.mean(each) for each in victims.values()], shares)
        found[row.removeprefix("variant-")] = {
            "data": record["data"],
            "epochs": record["card"]["config"]["epochs"],
            "reconstructions": record["card"]["data"]["reconstructions"],
            "attacks": by_attack,
        }
    return found
