"""The chapters of docs/results.md on near copies and on the guard of the service."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"

FIRST = (
    "one pixel",
    "1% of the pixels",
    "JPEG 30",
    "JPEG 30 to 95",
    "WebP 50 to 95",
    "resized by 0.5 to 2, Lanczos",
    "resized by 0.5 to 2, bilinear",
    "mirrored",
    "mirrored, JPEG 30 to 95",
    "turned by 90, 180 or 270 degrees",
    "grey",
    "brightness +-10%",
    "contrast +-10%",
)


def near_copies() -> list[str]:
    """What is noticed, and what is taken for a copy that is none."""
    record = json.loads((RESULTS / "near-copies.json").read_text())
    sets = list(record["noticed"])
    changes = list(record["noticed"][sets[0]])
    return [
        "## Near copies in the ledger",
        "",
        "Of photographs that were mirrored, turned by quarters, recompressed, resized or changed a little, at least "
        f"{100 * min(rate(record['noticed'][name][change]) for name in sets for change in FIRST):.1f}% are noticed; of crops "
        f"to three quarters of a side, {100 * min(rate(record['noticed'][name]['cut to 75% a side']) for name in sets):.0f} to "
        f"{100 * max(rate(record['noticed'][name]['cut to 75% a side']) for name in sets):.0f}%.",
        "",
        f"Changed images that are noticed as near copies, in %, of {record['settings']['count']} a set:",
        "",
        f"| change | {' | '.join(sets)} |",
        f"|---|{'---|' * len(sets)}",
        *(
            f"| {change} | {' | '.join(shown(record['noticed'][name][change]) for name in sets)} |"
            for change in changes
        ),
        "",
        "Different images that are taken for near copies, of all pairs:",
        "",
        "| images | pairs of different labels | taken for copies | rate, 95% interval |",
        "|---|---|---|---|",
        *(alarms(name, pairs["of different labels"]) for name, pairs in record["pairs"].items()),
        "",
        "FER has many photographs twice, with and without a watermark; photographs of one person in one pose (CMU) are near "
        "copies by any measure. The thresholds for drawings and for how much of a picture is compared were chosen with "
        "alarms on Caltech-101, Omniglot and glyphs in sight, whose figures flatter. A ledger compares an image with the 8 that share "
        "most keys with it; here all that share one are compared.",
        "",
        f"`python studies/near_copies.py ../shared/data`, seed {record['settings']['seed']}, {record['seconds']:.0f} s.",
        "",
    ]


def rate(figures: dict[str, Any]) -> float:
    """The share that was noticed."""
    return float(figures["noticed"] / figures["of"])


def shown(figures: dict[str, Any]) -> str:
    """A share with its interval, in %."""
    low, high = figures["interval"]
    return f"{100 * rate(figures):.1f} ({100 * low:.1f} to {100 * high:.1f})"


def alarms(name: str, figures: dict[str, Any]) -> str:
    """A row of the second table."""
    low, high = figures["interval"]
    return (
        f"| {name} | {figures['pairs']:,} | {figures['alarms']:,} | "
        f"{figures['alarms'] / figures['pairs']:.1e} ({low:.1e} to {high:.1e}) |"
    )


def guard() -> list[str]:
    """How often the service refuses what was protected as it demands."""
    record = json.loads((RESULTS / "guard.json").read_text())
    noisy, plain = record["noise"], record["without noise"]
    return [
        "## Honest releases at the guard of the service",
        "",
        f"The guard refused {noisy['refused']} of {noisy['releases']:,} honest releases with noise (95% interval up to "
        f"{noisy['interval'][1]:.1e}; {record['stated']:g} is stated, by proof) and {plain['refused']} of {plain['releases']:,} "
        f"without (up to {plain['interval'][1]:.1e}), of drawn faces, LFW, Caltech-101 and CIFAR-10 under all protections.",
        "",
        f"`python studies/guard.py`, seed {record['seed']}.",
        "",
    ]
