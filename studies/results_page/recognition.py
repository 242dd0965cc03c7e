"""What recognisers see: public weights, stolen embeddings, and the order that people have."""

import statistics
from collections.abc import Iterable
from typing import Any

from results_page.figures import Interval, mean_of
from results_page.reading import Row, record, records
from sfumato.base.proportions import wilson
from sfumato.study.choose.figures import classifier_in_words

MEASURES = ("mse", "psnr", "ssim", "squeezenet", "semsim")
SPECS = ("none", "pixelize:cell=4", "dp-pix:cell=4,epsilon=3")


def pooled(counted: list[Row]) -> Interval:
    """A share over all records, with its interval."""
    hits, trials = sum(each.hits for each in counted), sum(each.trials for each in counted)
    return Interval(hits / trials, *wilson(hits, trials))


def learned() -> Row:
    """What people said, learned; of each setting, the means over seeds: so are the ends of an interval, over conditions."""
    found = record("people/learned")
    settings = {name: [run.settings[name] for run in found.runs] for name in found.runs[0].settings}
    agreed = [
        (name, each) for of in settings.values() for seed in of for name, each in seed.agreement.items()
    ]
    found["least"] = min(each.kendall.value for name, each in agreed if name not in ("all", "rotation"))
    found["settings"] = {
        name: Row(
            kendall=_mean(seed.agreement["all"].kendall for seed in seeds),
            rotation=_mean(seed.agreement.rotation.kendall for seed in seeds),
            ahead=_mean(seed.ahead for seed in seeds),
            off=statistics.mean(seed.off for seed in seeds),
        )
        for name, seeds in settings.items()
    }
    return found


def _mean(ends: Iterable[Row]) -> Interval:
    return mean_of([Interval(**each) for each in ends])


def values() -> dict[str, Any]:
    """What templates may use."""
    stored = records("stored")
    pairs = [(world, spec) for world in ("faces", "lfw") for spec in SPECS]
    return {
        "stored": [[each for each in stored if (each.world, each.spec) == pair] for pair in pairs],
        "pooled": pooled,
        "classifier_in_words": classifier_in_words,
        "learned": learned(),
        "people": {name: record(f"people/{name}") for name in MEASURES},
    }
