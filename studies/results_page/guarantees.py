"""What is proved beside what is found: audits of protections and of training, and the noise of both DP-Pix."""

import math
import re
from typing import Any

from results_page.reading import Row, records
from sfumato.device.ledger.budgets import Budget
from sfumato.dp.audit import round_down
from sfumato.dp.guarantee import SYMBOLS, round_up
from sfumato.protect.pixels import cell_areas, spread

CELL, CHANNELS, SIDE, EPSILON, DELTA = 8, 3, 84, 1.0, 1e-6
MECHANISMS = ("dp-pix", "dp-pix, as published", "dp-pix-gaussian", "gaussian")
POLICIES = ("fixed", "automatic", "quantile", "adaclip", "meta-clip")


def audits() -> list[Row]:
    """Of protections, by mechanism, then by strength and size; the published DP-Pix counts by itself."""
    found = records("audit")
    for each in found:
        stated = each.result.stated
        each["mechanism"] = each.spec.partition(":")[0]
        each["mechanism"] += ", as published" if "variant=published" in each.spec else ""
        each["symbol"] = SYMBOLS[stated.definition]
        each["share"] = math.floor(100 * each.result.lower / stated.value) / 100  # cut to whole percents
        each["strength"] = [float(text) for text in re.findall(r"=([\d.]+)", each.spec)]
    return sorted(found, key=lambda each: (MECHANISMS.index(each.mechanism), each.strength))


def _order(training: Row) -> tuple[bool, float, int, str]:
    """All tasks in each step before fewer, then by budget and policy."""
    policy = training.name.partition("-epsilon")[0]
    place = POLICIES.index(policy) if policy in POLICIES else 0
    return training.name.endswith("sampled"), training.result.epsilon, place, training.name


def one_run_pairs(audits: list[Row]) -> list[tuple[Row, Row]]:
    """The audit by one run and by more of each subject that has both."""
    first, more = ({a.subject: a for a in audits if (a.result.runs > 1) == many} for many in (False, True))
    return [(first[subject], more[subject]) for subject in first if subject in more]


def noises() -> tuple[list[Row], float]:
    """Standard deviations of both mechanisms at the same (epsilon, delta), in closed form; and the rho of that.

    In a whole cell, in grey levels, where m pixels may differ.
    """
    areas = cell_areas(SIDE, SIDE, CELL)
    rho = Budget.parse(f"epsilon={EPSILON:g},delta={DELTA:g}").amount
    rows = []
    for pixels in (1, 16, 64, 256, 1024, 4096):
        squares = int((spread(pixels, areas, largest_first=True) ** 2).sum())
        laplace = math.sqrt(2) * 255 * pixels * CHANNELS / EPSILON / CELL**2
        gaussian = 255 * math.sqrt(squares * CHANNELS / (2 * rho)) / CELL**2
        less = "dp-pix" if laplace < gaussian else "dp-pix-gaussian"
        rows.append(Row(pixels=pixels, laplace=laplace, gaussian=gaussian, less=less))
    return rows, rho


def values() -> dict[str, Any]:
    """What templates may use."""
    rows, rho = noises()
    trainings = sorted(records("audit-training"), key=_order)
    one_run = records("one-run")
    for each in one_run:
        each["symbol"] = SYMBOLS[each.result.definition]
    return {
        "audits": audits(),
        "mechanisms": MECHANISMS,
        "round_down": round_down,
        "round_up": round_up,
        "right_trainings": [each for each in trainings if not each.fault],
        "wrong_trainings": [each for each in trainings if each.fault],
        "one_run": one_run,
        "one_run_pairs": one_run_pairs,
        "noises": rows,
        "noise": {"cell": CELL, "side": SIDE, "epsilon": EPSILON, "delta": DELTA, "rho": rho},
    }
