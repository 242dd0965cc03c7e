"""Whether measures of reconstructions agree with those who look at them."""

import statistics
from functools import partial
from typing import Any

from results_page.figures import Interval, mean_of
from results_page.reading import Row, record, records

HAND_MADE = {
    "psnr": "PSNR",
    "ssim": "SSIM",
    "mse": "MSE",
    "squeezenet": "SqueezeNet distance",
    "frechet": "Fréchet distance",
}
SEMSIM, CHOSEN, EQUAL = "semsim", "semsim-perceptual, chosen", "semsim-perceptual, relative, equal weights"
SHOWN = HAND_MADE | {
    SEMSIM: "SemSim",
    CHOSEN: "semsim-perceptual",
    EQUAL: "the same distance, equal weights",
}
ATTACKS = {"closed-form": "Table 1", "search": "Table 2"}
POOLED = "all victims"
GOAL, OF_RELIABILITY = 0.75, 0.9


def correlation(table: Row, source: str, measure: str, coefficient: str = "kendall") -> Interval | None:
    """Of one data set: the mean over seeds, each end by itself."""
    found = [
        Interval(**each[coefficient]) for each in table.rows[source].get(measure, []) if each is not None
    ]
    return mean_of(found) if found else None


def _complete(table: Row) -> None:
    """Adds what follows from the correlations of every measure with judges, over the victims of one attack or of all."""
    reliable = statistics.mean(each.kendall.value for each in table.reliability.values())
    table["reliable"], table["best"] = reliable, table.best_hand_made
    table["top"] = max((each for each in SHOWN if each in table.means), key=lambda each: table.means[each])
    sure = all(
        each.kendall.low > 0 for each in table.reliability.values()
    )  # nothing is divided by what may be 0
    table["share"] = Row(
        {measure: mean / reliable if sure else None for measure, mean in table.means.items()}
    )
    table["reached"] = {
        measure
        for measure, mean in table.means.items()
        if mean >= GOAL
        and (table.share[measure] or 0) >= OF_RELIABILITY
        and (measure not in table.ahead or table.ahead[measure].low > 0)
    }
    table["correlation"] = partial(correlation, table)


def _matrix(matrices: list[Row]) -> dict[str, list[float]]:
    """Measures with each other, in the mean over data sets."""
    names = [name for name in matrices[0].names if all(name in each.names for each in matrices)]
    return {
        row: [
            statistics.mean(
                each.kendall[each.names.index(row)][each.names.index(column)] for each in matrices
            )
            for column in names
        ]
        for row in names
    }


def metrics() -> Row:
    """The records of studies/reconstruction.py."""
    agreement = record("reconstruction/agreement")
    for table in agreement.tables.values():
        _complete(table)
    agreement["matrix"] = _matrix(list(agreement.matrices.values()))
    sets = list(agreement.matrices)
    sources = {name: record(f"reconstruction/{name}") for name in sets}
    attacks = {
        attack: {name: record(f"reconstruction/{name}-{attack}") for name in sets}
        for attack in ATTACKS
        if attack in agreement.tables
    }
    attacked = [each for of in attacks.values() for each in of.values()]
    learned = [
        each for kind in ("semsim", "stages", "variant") for each in records(f"reconstruction/{kind}-*")
    ]
    processor = sum(each.seconds.processor for each in (*sources.values(), *attacked, *learned))
    return Row(agreement=agreement, sources=sources, attacks=attacks, processor=processor)


def values() -> dict[str, Any]:
    """What templates may use."""
    found = metrics()
    judges = record("judges")
    for each in (each for tests in judges.tests.values() for each in tests):
        each["share"] = each.right / each.trials
    return {
        "metrics": found,
        "judges": judges,
        "measure_names": SHOWN,
        "learned_names": {"semsim": SEMSIM, "perceptual": CHOSEN, "equal": EQUAL},
        "table_names": {attack: ATTACKS[attack] for attack in found.attacks},
        "pooled_name": POOLED,
    }
