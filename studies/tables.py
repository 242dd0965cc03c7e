"""Records as flat rows: a mapping for each figure, of columns that claims and tables choose, group and compare."""

import hashlib
import json
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache, partial
from itertools import groupby
from types import MappingProxyType
from typing import Any

import numpy as np
from rows import CURE, RESULTS
from scipy import stats

from sfumato import protect
from sfumato.assess.log_rank import normal_anonymity, superior
from sfumato.dp.audit import round_down
from sfumato.study.choose.figures import Estimate
from sfumato.study.records import read_rows

Row = dict[str, Any]
Patterns = Mapping[str, Any]  # column -> a value, a pattern of a text, or a list of them
ANY: Patterns = MappingProxyType({})
CUTS = ("conv4_2", "conv5_1", "conv6_1", "conv7")
RISES = 0.005  # of validation accuracy, from which on it is said to rise
WEIGHTS = 96_581  # of the network of Meta-Clip at 14x14: noise of 1 on each is this root as long as a gradient clipped to 1


def at(row: Mapping[str, Any], path: str) -> Any:
    """The value of a column, or None. A column is a key, or the keys that lead to it with points between them."""
    if path in row:
        return row[path]
    key, _, rest = path.partition(".")
    inner = row.get(key)
    if rest and isinstance(inner, list):  # by its number
        inner = dict(enumerate(inner))
        return inner.get(int(rest)) if rest.isdigit() else None
    return at(inner, rest) if rest and isinstance(inner, Mapping) else None


def matches(row: Row, where: Patterns) -> bool:
    """Whether the columns of a row have these values."""
    return all(_alike(at(row, column), wanted) for column, wanted in where.items())


def _alike(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return any(_alike(value, each) for each in wanted)
    texts = isinstance(value, str) and isinstance(wanted, str)
    return fnmatchcase(value, wanted) if texts else bool(value == wanted)


def rows(names: Iterable[str], kind: str = "plain", where: Patterns = ANY) -> list[Row]:
    """The rows of files, by a function of ROWS; `record` is the digest of the record that a row is of."""
    known = (row for name in names for row in _of_file(name, kind))
    return [row for row in known if matches(row, where)]


def column(known: Iterable[Row], path: str, where: Patterns = ANY) -> list[Any]:
    """The values of a column in the rows that have it."""
    return [value for row in known if matches(row, where) and (value := at(row, path)) is not None]


def grouped(known: Iterable[Row], columns: Sequence[str]) -> dict[str, list[Row]]:
    """Rows by the values of columns, in words; numbers in their order."""

    def key(row: Row) -> list[tuple[float, str]]:
        values = [at(row, each) for each in columns]
        return [(value, "") if isinstance(value, int | float) else (math.inf, str(value)) for value in values]

    groups = (list(group) for _, group in groupby(sorted(known, key=key), key))
    return {", ".join(in_words(at(group[0], each)) for each in columns): group for group in groups}


def in_words(value: Any) -> str:
    """A number in at most three digits, or a text."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def half_width(values: Sequence[float]) -> float:
    """Of the 95% interval of a mean, by Student's t; infinite for a single value."""
    if len(values) < 2:
        return math.inf
    quantile = float(stats.t.ppf(0.975, len(values) - 1))
    return quantile * statistics.stdev(values) / math.sqrt(len(values))


def same_order(first: Sequence[Any], second: Sequence[Any]) -> Estimate:
    """Kendall's correlation of protections by two lists of Hits, with its 95% interval by resampling the people of both."""
    draws, shares = np.random.default_rng(0), []
    for of in (first, second):
        people = len(of[0].hits)
        times = np.vstack(
            [np.ones(people), draws.multinomial(people, np.full(people, 1 / people), size=1000)]
        )
        hits, probes = (np.array([getattr(each, part) for each in of]) for part in ("hits", "probes"))
        shares.append(times @ hits.T / (times @ probes.T))
    taus = [float(stats.kendalltau(*pair).statistic) for pair in zip(*shares, strict=True)]
    return Estimate(taus[0], *np.nanquantile(taus[1:], (0.025, 0.975)).tolist(), seeds=1)


def rises(curve: Sequence[float]) -> bool | None:
    """Whether validation still rose when training ended: in the mean, over the last quarter of its epochs.

    By more than half a point, against the quarter before. None where the curve was not kept, or is of few epochs.
    """
    quarter = len(curve) // 4
    if not quarter:
        return None
    before, last = curve[-2 * quarter : -quarter], curve[-quarter:]
    return sum(last) / quarter - sum(before) / quarter > RISES


@cache
def _of_file(name: str, kind: str) -> list[Row]:
    read = read_rows(RESULTS / f"{name}.jsonl", CURE)
    return list(ROWS[kind]([{**row, "record": digest(json.dumps(row, sort_keys=True))} for _, row in read]))


def digest(text: str) -> str:
    """SHA-256, in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def of_study(records: Iterable[Row]) -> Iterator[Row]:
    """Rows of `sfumato study run`: with the settings of the study, and with what its specs say."""
    head: Row = {}
    for row in records:
        if "kind" not in row:
            head = row
            continue
        cell, result = row["cell"], row["result"]
        svc: Row = next((score for score in result.get("scores", []) if score["classifier"] == "svm"), {})
        every = 1  # of studies from before there was `cell`
        yield {
            **row, "study": head, "seed": cell["seed"], "learner": cell.get("learner"),
            "pair": f"{cell['protection']}, seed {cell['seed']}",
            **of_spec(cell["protection"], head["data"]["shape"][0], head["training"].get("cell", every)),
            "validation": tuple(result.get("curve") or ()),
            "svc": svc.get("top1"), "svc_half": (svc["high"] - svc["low"]) / 2 if svc else None,
        }  # fmt: skip


def of_spec(spec: str, channels: int, cell: int | None) -> Row:
    """What the text of a protection says: its kind, the parameter that papers vary, and what networks see.

    `noise_epsilon` is the epsilon that gives this much noise in FS-PIC's formula, which has no channels: the sound
    variant divides its epsilon by their number.
    """
    kind, _, settings = spec.partition(":")
    named = dict(each.split("=", 1) for each in settings.split(",") if "=" in each)
    parameter = next(iter(named.values()), None)
    made: Row = {"protection": spec, "obfuscation": kind, "settings": named}
    made["parameter"] = float(parameter) if parameter else None
    made["sees"] = "every pixel" if cell == 1 or "cell" not in named else "one value a cell"
    if kind == "dp-pix":
        parsed: Any = protect.parse(spec)
        made["noise_epsilon"] = parsed.epsilon / (channels if parsed.variant == "sound" else 1)
    return made


def of_photographs(records: Iterable[Row]) -> Iterator[Row]:
    """Models that were trained on an accelerator: a row for each protection under which one was tested."""
    for row in records:
        for spec, tested in row["result"].items():
            if isinstance(tested, Mapping):
                yield {
                    **row["settings"], **of_spec(spec, 3, 1), **{test: mean for test, (mean, _) in tested.items()},
                    "half": tested["5-way 5-shot"][1], "validation": tuple(row["result"]["curve"]),
                    "record": row["record"],
                }  # fmt: skip


def of_masks(records: Iterable[Row]) -> Iterator[Row]:
    """What each release of a mask study keeps and leaves, beside what clear images have."""
    for row in records:
        for setting, found in row.get("settings", {}).items():
            kind, _, keep = setting.partition(" ")
            clear, kept = row["settings"]["none"], keep.replace(".", "").isdigit()
            classifier = found.get("classifier-protected") or found["classifier-clean"]
            clean, accuracy = clear["classifier-clean"]["accuracy"], classifier["accuracy"]
            named = [each["top1"] for name, each in found.items() if name.startswith("reidentify")]
            shown = found.get("world", {}).get(row.get("target"), {})
            if shown and kept:
                shown = {**shown, "most_of_it": min(1.0, float(keep) / shown["of_image"])}
            yield {
                **found, **{key: row.get(key) for key in ("world", "target", "seed", "released", "record")},
                "setting": setting, "mask": kind if kept else None, "keep": float(keep) if kept else None,
                "accuracy": accuracy, "chance": classifier["chance"], "clean": clean, "kept": accuracy / clean,
                "similarity": found.get("face-similarity"), "strangers": clear.get("face-similarity_of_two"),
                "strongest": max(named, default=None), **shown,
            }  # fmt: skip


def of_equal_accuracy(records: Iterable[Row]) -> Iterator[Row]:
    """Masks with the adversarial step, each beside the plain mask of the same seed that is as accurate.

    Between the shares of the pixels that were measured, the similarity of plain masks is a line over their accuracy.
    """
    points: dict[tuple[str, int], dict[float, Row]] = {}
    for row in of_study(records):
        if step := row["settings"].get("adversarial"):
            point = points.setdefault((step, row["seed"]), {}).setdefault(row["parameter"], {"record": ""})
            point |= {**row["result"], "record": point["record"] + row["record"]}
    for (step, seed), of in points.items():
        others = points["no", seed]
        plain = sorted((each["accuracy"], each["face-similarity"]) for each in others.values())
        accuracies, similarities = ([pair[of] for pair in plain] for of in (0, 1))
        for keep, point in of.items() if step == "yes" else ():
            without = float(np.interp(point["accuracy"], accuracies, similarities))
            for name, similarity in {"with": point["face-similarity"], "without": without}.items():
                yield {
                    "keep": keep, "seed": seed, "strangers": point["face-similarity_of_two"], "step": name,
                    "at_its_share": others[keep]["face-similarity"], "similarity": similarity,
                    "record": point["record"],
                }  # fmt: skip


def of_features(records: Iterable[Row]) -> Iterator[Row]:
    """Accuracy-privacy curves (DPFE, Definition 11) over those of the plain feature and of lower cuts."""
    runs = {(_world(row), *row["part"].values(), row["seed"]): row for row in records if "part" in row}
    for (world, attributes, cut, variant, seed), run in runs.items():
        rival = {"dpfe": ("over plain", "simple"), "log-rank": ("over DPFE", "dpfe")}.get(variant)
        others = {rival[0]: (world, attributes, cut, rival[1], seed)} if rival else {}
        if cut != CUTS[0]:
            others["over a lower cut"] = (world, attributes, CUTS[CUTS.index(cut) - 1], variant, seed)
        if cut == CUTS[-1]:
            others["over the lowest cut"] = (world, attributes, CUTS[0], variant, seed)
        for name, other in ((name, runs[key]) for name, key in others.items() if key in runs):
            one, two = (
                [(_accuracy(point), _worst(point)["lrp"]) for point in each["curve"]] for each in (run, other)
            )
            gain = superior(one, two)
            yield {
                "compared": name, "world": world, **run["part"], "seed": seed, "gain": gain.mean,
                "superior": bool(gain), "dimension": run["config"]["dimension"], "labelled": run.get("labelled"),
                "record": run["record"] + other["record"],
            }  # fmt: skip


def _world(row: Row) -> str:
    return str(row["row"]).partition(f"-{row['seed']}-")[0]


def _accuracy(point: Row) -> float:
    return float(statistics.mean(point["accuracies"].values()))


def _worst(point: Row) -> Row:
    return dict(point["adversaries"][point["strongest"]])


def of_points(records: Iterable[Row]) -> Iterator[Row]:
    """Features under each amount of noise: accuracy, and what the strongest adversary ranks; and what a decoder draws."""
    for row in (row for row in records if "part" in row):
        points = [(point, "as it is") for point in row["curve"]]
        points += [(point | {"ratio": point["noise"]}, "proved") for point in row.get("bounded", [])]
        most = max(point["ratio"] for point in row["curve"])
        for point, release in points:
            worst = _worst(point)
            noise = {0: "none", most: "most"}.get(point["ratio"], "some") if release == "as it is" else None
            yield {
                **row, **row["part"], **worst, **point, "world": _world(row), "release": release, "noise": noise,
                "first": 1 - worst["beyond"]["1"], "rank": worst["mean"], "accuracy": _accuracy(point),
                "of_network": statistics.mean(row["network"].values()), "kept": len(row["part"]["attributes"]),
                "most_named": max(1 - each["beyond"]["1"] for each in point["adversaries"].values()),
                "inversion": row.get("inversion") if noise == "none" else None,
            }  # fmt: skip


def of_ranks(records: Iterable[Row]) -> Iterator[Row]:
    """How often more than a tenth of the people are likelier than the right one: counted, and by DPFE, Sec. 6.2."""
    for row in (row for row in records if "part" in row):
        for each in (each for point in row["curve"] for each in point["adversaries"].values()):
            counted = each["beyond"].get(str(each["identities"] // 10))
            yield {
                "world": _world(row), "seed": row["seed"], "record": row["record"],
                "beyond": each.get("beyond_a_tenth", counted),
                "stated": normal_anonymity(each["mean"], each["deviation"], 0.1),
            }  # fmt: skip


def of_cuts(records: Iterable[Row]) -> Iterator[Row]:
    """Times of the device's part for each cut."""
    for row in records:
        yield from ({**cost, "threads": row["threads"], "record": row["record"]} for cost in row["costs"])


def of_inner(records: Iterable[Row], *, stated: bool = True) -> Iterator[Row]:
    """Whole meta-trainings with noise inside, and what they spent by the paper's accounting, of what they state.

    Those at less noise than that of an epsilon state nothing: they are rows of their own.
    `role` is the policy, or "best fixed" for the fixed norm with the highest mean on validation, over seeds that all have.
    """
    known = [row for row in records if (row["epsilon"] is not None) == stated]
    most = max(row["steps"] for row in known)
    whole = [row for row in known if row["steps"] == most]
    for group in grouped(whole, ["algorithm", "shot", "epsilon", "multiplier", "network"]).values():
        norms = grouped([row for row in group if row["policy"].startswith("fixed at ")], ["policy"])
        seeds = set.intersection(*({row["seed"] for row in each} for each in norms.values()))
        means = {
            policy: statistics.mean(row["validation"] for row in each if row["seed"] in seeds)
            for policy, each in norms.items()
        }
        best = max(means, key=lambda policy: means[policy])
        for row in group:
            length = (row.get("multiplier") or row["noise"]["noise_multiplier"]) * math.sqrt(WEIGHTS)
            yield {
                **row, "validation": (*row["on_the_way"], row["validation"]),
                "inner noise": float(f"{length:.3g}"),
                "spent": round(row["noise"]["conditional"]["gdp"] / row["epsilon"], 2) if stated else None,
                "first": row["norms"][0], "last": row["norms"][-1],
                "role": "best fixed" if row["policy"] == best else row["policy"],
            }  # fmt: skip


def of_agreement(records: Iterable[Row]) -> Iterator[Row]:
    """Kendall's correlation of measures with judges, by table and data set, in the mean over seeds.

    Judges are `reliable` in a data set if their agreement with themselves is above 0 with its interval. Of trainings on
    an accelerator, which have no rows with names, there is one after each tenth of their epochs.
    """
    listed = list(records)
    known = {row.get("row"): row for row in listed}
    if "agreement" not in known:
        yield from _of_trainings(listed)
        return
    agreement = known["agreement"]
    for name, table in agreement["tables"].items():
        for data, measures in table["rows"].items():
            network = known[f"semsim-{data}-0"]["card"]["config"]["network"]
            for measure, by_seed in measures.items():
                if values := [each["kendall"]["value"] for each in by_seed if each]:
                    yield {
                        "table": name, "data": data, "measure": measure, "kendall": statistics.mean(values),
                        "reliable": table["reliability"][data]["kendall"]["low"] > 0,
                        "annotators": agreement["annotators"], "record": agreement["record"],
                        "network": network if measure.partition(", margin")[0] == "semsim" else None,
                    }  # fmt: skip


def _of_trainings(records: Sequence[Row]) -> Iterator[Row]:
    """`epochs` are those of all originals, of which a training on a share of them takes as many steps."""
    for group in grouped(records, [f"settings.{each}" for each in ("network", "share", "data")]).values():
        settings, result = group[0]["settings"], group[0]["result"]
        tenths = [
            {10 * at: point for at, point in enumerate(line["result"]["curve"], 1)
             if settings["share"] < 1 or point["epoch"] == 10 * at}  # not where it was cut
            for line in group
        ]  # fmt: skip
        for epochs in (each for each in tenths[0] if all(each in of for of in tenths)):
            for table in tenths[0][epochs]["kendall"]:
                yield {
                    **settings, "table": table, "measure": f"semsim, {settings['network']}", "epochs": epochs,
                    "kendall": statistics.mean(of[epochs]["kendall"][table] for of in tenths),
                    "originals": result["known"]["originals"], "annotators": result["annotators"],
                    "record": "".join(line["record"] for line in group),
                }  # fmt: skip


def of_variants(records: Iterable[Row]) -> Iterator[Row]:
    """SemSim with another margin or loss, of one data set: as in `of_agreement`, of images that are read in closed form."""
    for row in (row for row in records if "variants" in row):
        for name, each in row["variants"].items():
            kendall = each["attacks"]["closed-form"]["kendall"]["value"]
            about = {key: row[key] for key in ("annotators", "seed", "record")}
            yield {**about, "measure": name, "kendall": kendall, "network": "lenet"}


def of_audits(records: Iterable[Row]) -> Iterator[Row]:
    """Audits, with their bounds rounded down, and the epsilon that a spec writes. What an audit proves has no error."""
    for row in records:
        written = getattr(protect.parse(row["spec"]), "epsilon", None) if "spec" in row else None
        bounds = {"proved": round_down(row["result"]["lower"]), "most": round_down(row["result"]["most"])}
        yield {**row, **bounds, "written": written, "exact": 0.0}


ROWS: dict[str, Callable[[Iterable[Row]], Iterator[Row]]] = {
    "plain": iter,
    "study": of_study,
    "photographs": of_photographs,
    "masks": of_masks,
    "equal accuracy": of_equal_accuracy,
    "features": of_features,
    "points": of_points,
    "ranks": of_ranks,
    "cuts": of_cuts,
    "inner": of_inner,
    "less noise": partial(of_inner, stated=False),
    "agreement": of_agreement,
    "variants": of_variants,
    "audits": of_audits,
}
