"""The sections of docs/results.md on gradient inversion and on metrics of reconstructions, from their records.

`studies/results.py` puts them in; a part without records yet has no lines.
"""

import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import inversion as inverted
import reconstruction as studied
from scipy import stats

from sfumato.dp.guarantee import rounded_up

Record = dict[str, Any]

NETWORKS = {"lenet": "LeNet", inverted.NARROW: "ConvNet8 of width 16", "resnet20": "ResNet-20"}
METRICS = {
    "psnr": "PSNR",
    "mse": "MSE",
    "ssim": "SSIM",
    "squeezenet": "SqueezeNet distance",
    "frechet": "Fréchet distance",
    "semsim": "SemSim",
}


def load(path: Path) -> Record | None:
    """A record, where there is one."""
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def averaged(values: list[float], digits: int = 1) -> str:
    """A mean, with half its 95% interval by Student's t where there are three or more."""
    text = f"{statistics.mean(values):.{digits}f}"
    if len(values) < 3:
        return text
    half = float(stats.t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
    return f"{text} ± {half:.{digits}f}"


def minutes(*records: Record) -> str:
    """What records took together, on a busy machine and by themselves."""
    wall, processor = (sum(each["seconds"][of] for each in records) / 60 for of in ("wall", "processor"))
    return f"{wall:.0f} min of wall time, {processor:.0f} min of one core"


# What is rebuilt of a gradient


def inversion() -> list[str]:
    """Attack strength: what each attack rebuilds, whether labels are read, and what defences are worth."""
    records = {name: load(inverted.RECORDS / f"{name}.json") for name in inverted.PARTS}
    there = {name: record for name, record in records.items() if record is not None}
    lines = [*attacks(there), *labels(there), *defences(there)]
    if not lines:
        return []
    return [
        "## Gradient inversion of real photographs (papers: DLG, iDLG, Inverting Gradients, CAFE)",
        "",
        "Test images of CIFAR-10, 32x32, as far as the repository's data has it; PSNR in [0, 1] image by image, in dB: "
        "mean with the 95% interval of Student's t over images, and the median. Networks are in evaluation mode and, "
        "unless said otherwise, untrained; one image is behind a gradient. The weight of total variation was chosen "
        "among "
        + ", ".join(f"{weight:g}" for weight in inverted.WEIGHTS)
        + " on other images. A trained victim has "
        "seen 1,500 images for a few epochs: it resists more than an untrained one, and less than one trained well.",
        "",
        *lines,
        f"- `python studies/inversion.py`, seed {inverted.SEED}, {minutes(*there.values())} in all.",
        "",
    ]


def attacks(there: dict[str, Record]) -> list[str]:
    """What was rebuilt, beside what was wanted."""
    rows = []

    def row(name: str, what: str, wanted: str, reached: Callable[[Record], bool] | None) -> None:
        if name not in there:
            return
        record = there[name]
        said = wanted if reached is None else f"{wanted}: {'reached' if reached(record) else 'NOT reached'}"
        network = record.get("victim", {}).get("network")
        accuracy = record.get("victim", {}).get("accuracy")
        victim = NETWORKS[network] if network else ""
        if accuracy is not None:
            victim += f", trained (accuracy {100 * accuracy:.0f}%)"
        variation = record.get("chosen", {}).get("total_variation")
        rows.append(
            f"| {what} | {victim} | {record['images']} | {averaged(record['psnr'])} | {record['median_psnr']:.1f} "
            f"| {'' if variation is None else f'{variation:g}'} | {said} | {record['seconds']['processor'] / 60:.1f} |"
        )

    for name, label in (("dlg", "DLG, labels optimised"), ("idlg", "iDLG")):
        finite = there.get(name, {})
        row(
            name,
            f"{label}, finite on {finite.get('finite')} of {finite.get('attempted')}",
            "all finite, median ≥ 35",
            lambda record: record["finite"] == record["attempted"] and record["median_psnr"] >= 35,
        )
    row("lenet-1", "inverting gradients", "mean ≥ 18", lambda record: record["mean_psnr"] >= 18)
    same = []
    if {"lenet-1", "lenet-16"} <= there.keys():
        several = there["lenet-16"]["psnr"]
        single = there["lenet-1"]["psnr"][: len(several)]
        same = [after - before for before, after in zip(single, several, strict=True)]
    row(
        "lenet-16",
        "the same, best of 16 starts by its cost",
        "+2 dB on the same images",
        (lambda _: statistics.mean(same) >= 2) if same else None,
    )
    row("batch", "the same, four images behind a gradient, matched", "", None)
    for network in (inverted.NARROW, "resnet20"):
        row(
            f"{network}-untrained",
            "inverting gradients",
            "mean ≥ 19",
            lambda record: record["mean_psnr"] >= 19,
        )
        row(f"{network}-trained", "inverting gradients", "", None)
    row(
        "first-layer",
        "first layer of a linear network, no search",
        "each ≥ 45",
        lambda record: record["least_psnr"] >= 45,
    )
    cafe = there.get("cafe", {})
    row(
        "cafe",
        f"CAFE, {cafe.get('workers')} workers, batches of {cafe.get('batch')}",
        "mean ≥ 30",
        lambda record: record["mean_psnr"] >= 30,
    )
    if not rows:
        return []
    gained = [f"16 starts instead of one gain {averaged(same)} dB on the same images.", ""] if same else []
    exact = "first-layer" in there and max(there["first-layer"]["psnr"]) >= 200
    return [
        "| attack | victim | images | PSNR, mean | median | total variation | wanted | min of a core |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        *(["200 dB stands for images that are equal.", ""] if exact else []),
        *gained,
    ]


def labels(there: dict[str, Record]) -> list[str]:
    """How often labels are read rightly."""
    if "labels" not in there:
        return []
    record = there["labels"]
    rows = []
    for one in record["victims"]:
        shares = {name: 100 * right / one["in_batches"] for name, right in one["counted_right"].items()}
        kept = "reached" if max(shares.values()) >= 97 else "NOT reached"
        rows.append(
            f"| {NETWORKS[one['victim']['network']]}, {one['state']} | {one['single_right']} of {one['single']} "
            f"| {shares['noise']:.1f} | {shares['images']:.1f} | {kept} |"
        )
    return [
        f"Labels read from the gradient of the last layer: of single images, and how many of a batch of {record['batch']} "
        "are counted rightly, in %, by an adversary who guesses mean probabilities from noise or from other images "
        "(wanted: 97):",
        "",
        "| victim | single images | batch, by noise | batch, by images | wanted |",
        "|---|---|---|---|---|",
        *rows,
        "",
    ]


def defences(there: dict[str, Record]) -> list[str]:
    """What the strongest adversary rebuilds behind each defence, and whether more of it hides more."""
    records = [
        there[name]
        for name in (f"defence-{each.name.replace(' ', '-')}" for each in inverted.DEFENCES)
        if name in there
    ]
    if not records:
        return []
    rows = []
    before: dict[str, float] = {}
    undefended = next((strongest(each) for each in records if each["kind"] == "none"), math.inf)
    for record in records:
        found = strongest(record)
        bound = min(before.get(record["kind"], math.inf), undefended)
        order = "" if record["kind"] == "none" else "yes" if found <= bound else "NO"
        before[record["kind"]] = found
        columns = {
            which: max(
                (
                    each["mean_psnr"]
                    for each in record["attacks"]
                    if (each["adversary"] == "knows nothing of it") == (which == "unaware")
                ),
                default=None,
            )
            for which in ("unaware", "aware")
        }
        unaware, aware = ("" if value is None else f"{value:.1f}" for value in columns.values())
        best = record["attacks"][record["strongest"]]
        promise = f"{rounded_up(record['epsilon'])}" if "epsilon" in record else ""
        rows.append(
            f"| {record['defence']} | {promise} | {unaware} | {aware} | {averaged(best['psnr'])} "
            f"| {statistics.mean(best['ssim']):.2f} | {order} |"
        )
    account = inverted.ACCOUNTED
    return [
        "Defences on an untrained LeNet, against inverting gradients, alone and with knowledge of the defence (which "
        "entries were pruned, how large the noise is, that labels are mixed), each with the chosen total variation and "
        "ten times of it; PSNR in dB against the original, the strongest adversary's in the end. Noise is given in "
        "root mean squares of the gradient; for DP-SGD in units of the clipping norm, the median norm of other images, "
        f"with ε for {account['steps']:,} steps at a rate of {account['rate']:g} and δ = {account['delta']:g}. `in order`: "
        "no more is rebuilt than without defence, nor than with less of the same.",
        "",
        "| defence | ε | unaware | aware | strongest, mean PSNR | SSIM | in order |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
    ]


def strongest(record: Record) -> float:
    """The mean PSNR of the strongest adversary."""
    return float(record["attacks"][record["strongest"]]["mean_psnr"])


# Whether metrics agree with proxies


def reconstruction() -> list[str]:
    """Metrics of reconstructions against what proxy annotators recognise."""
    folder = studied.RECORDS
    sets = {name: record for name in studied.SOURCES if (record := load(folder / f"{name}.json"))}
    by_attack = {
        attack: {name: record for name in sets if (record := load(folder / f"{name}-{attack}.json"))}
        for attack in studied.ATTACKS
    }
    found = load(folder / "agreement.json")
    if not by_attack[studied.ATTACKS[0]]:
        return []
    lines = [*sets_of(sets, by_attack), *victims_of(by_attack)]
    if found is not None:
        lines += [*tables_of(found), *matrix_of(found), *ablations_of(found)]
        lines += [
            "![Metrics against the share that proxies recognise](images/reconstruction-metrics.png)",
            "",
            "One original of each data set, left, and its reconstructions from what leaks most to what leaks least, by "
            "each metric; a green frame: recognised by most proxies.",
            "",
            *(f"![{name}](images/reconstruction-{name}.png)\n" for name in studied.SOURCES),
        ]
    every = [
        *sets.values(),
        *(record for records in by_attack.values() for record in records.values()),
        *(
            json.loads(path.read_text())
            for pattern in ("semsim-*", "ablation-*")
            for path in folder.glob(f"{pattern}.json")
        ),
    ]
    return [
        "## Whether metrics of reconstructions agree with those who look at them (paper: SemSim)",
        "",
        "**Nobody has looked.** The annotators of every figure here are PROXIES: five recognisers a data set, whose "
        "majority decides, as people's would. The paper finds a Kendall correlation of 0.70 between such a classifier "
        "of 82% accuracy and people, and of 0.50 for one of 65%: what agrees with proxies need not agree with people. "
        "With 14 models, a correlation is uncertain by some 0.3 to either side.",
        "",
        *lines,
        f"- `python studies/reconstruction.py`, seed {studied.SEED}; {minutes(*every)} in all.",
        "- Where it differs from the paper: proxies for people; CIFAR-10 for CIFAR-100, LFW for CelebA, FER2013 and Omniglot for "
        "Imagenette and Stanford Dogs, all at 32x32; 20 images a victim instead of 100 to 700; LeNet and ConvNet8 of width "
        "16 for the larger networks, trained for minutes; shortened attacks; features of SqueezeNet 1.0 for LPIPS "
        "and Inception. Of each policy the original is judged against, not its transformed image. The three victims "
        "`none`, `gaussian` and `pruning` are one network, defended as it shares. iDLG attacks LeNet alone.",
        "",
    ]


def sets_of(sets: dict[str, Record], by_attack: dict[str, dict[str, Record]]) -> list[str]:
    """The data sets, the proxies and the victims."""
    rows = []
    for name, record in sets.items():
        proxies = ", ".join(f"{100 * one['accuracy']:.0f}" for one in record["proxies"].values())
        accuracies = [100 * one for one in record["victims"].values()]
        agreed = [
            "–" if alpha is None else f"{alpha:.2f}"
            for records in by_attack.values()
            for alpha in [records[name]["krippendorff_alpha"] if name in records else None]
        ]
        rows.append(
            f"| {name} | {record['data']['training']:,} / {record['data']['test']:,} | {len(record['classes'])} | {proxies} "
            f"| {100 * record['recognised_before']:.0f} | {min(accuracies):.0f} to {max(accuracies):.0f} | {' / '.join(agreed)} |"
        )
    names = ", ".join(studied.PROXIES)
    return [
        f"Proxies are {names}; accuracies in % of clean test images. They choose among the classes, and cannot tell below "
        f"a softmax of {studied.FULL.sure:g}; of LFW they say whether original and reconstruction show the same person, each at "
        f"the threshold at which it takes {100 * studied.FALSE_ALARMS:g}% of pairs of different people for the same. "
        "Krippendorff's alpha of their answers is for "
        f"{' and '.join(studied.ATTACKS)}.",
        "",
        "| data set | images: training / test | classes | accuracies of proxies | recognised by most before any attack, % "
        "| accuracies of victims | alpha |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
    ]


def victims_of(by_attack: dict[str, dict[str, Record]]) -> list[str]:
    """Each of the 14 victims, in the mean over data sets."""
    lines = []
    for attack, records in by_attack.items():
        if not records:
            continue
        rows = []
        for name in next(iter(records.values()))["victims"]:
            mine = [record["victims"][name] for record in records.values()]
            cells = [
                averaged([one["scores"][metric] for one in mine], digits)
                for metric, digits in (("psnr", 1), ("ssim", 2), ("squeezenet", 2))
            ]
            shares = [100 * one["recognised"] / one["items"] for one in mine]
            failed = sum(one["failed"] for one in mine)
            rows.append(f"| {name} | {averaged(shares, 0)} | {' | '.join(cells)} | {failed or ''} |")
        lines += [
            f"{attack}, means over {len(records)} data sets with 95% intervals of Student's t:",
            "",
            "| victim | recognised by proxies, % | PSNR, dB | SSIM | SqueezeNet distance | ran off |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    return lines


def tables_of(found: Record) -> list[str]:
    """Tables 1 and 2: correlation of each metric with proxies."""
    lines = []
    for attack, (table, note) in zip(
        studied.ATTACKS,
        (
            ("Table 1", "SemSim trained on the four other data sets, mean of seeds"),
            ("Table 2", "SemSim as in Table 1, which has seen no reconstruction by this attack; LeNet alone"),
        ),
        strict=True,
    ):
        for coefficient in ("kendall", "spearman"):
            rows = []
            means: dict[str, list[float]] = {metric: [] for metric in METRICS}
            for name, row in found["tables"][attack].items():
                cells = []
                for metric in METRICS:
                    runs = row[metric] if metric == "semsim" else [row[metric]]
                    ranked = [one[coefficient] for one in runs if one is not None]
                    if not ranked:
                        cells.append("–")
                        continue
                    value, low, high = (
                        statistics.mean(one[of] for one in ranked) for of in ("value", "low", "high")
                    )
                    means[metric].append(value)
                    cells.append(f"{value:.2f} ({low:.2f} to {high:.2f})")
                rows.append(f"| {name} | {' | '.join(cells)} |")
            mean = [averaged(values, 2) if values else "–" for values in means.values()]
            lines += [
                f"{table}, {coefficient.capitalize()}'s correlation with proxies under {attack}, turned so that 1 is full "
                f"agreement, with 95% intervals of the bootstrap over victims; {note}. – : the proxies recognised as "
                "much of every victim.",
                "",
                f"| data set | {' | '.join(METRICS.values())} |",
                f"|---|{'---|' * len(METRICS)}",
                *rows,
                f"| mean | {' | '.join(mean)} |",
                "",
            ]
            if coefficient == "kendall":
                ranked_sets = {metric: statistics.mean(values) for metric, values in means.items() if values}
                if ranked_sets:
                    best = max(ranked_sets, key=lambda metric: ranked_sets[metric])
                    lines += [
                        f"The mean over data sets is highest for {METRICS[best]}"
                        f"{', as in the paper' if best == 'semsim' else ', where the paper has SemSim'}.",
                        "",
                    ]
    return lines


def matrix_of(found: Record) -> list[str]:
    """Fig. 3: metrics against each other."""
    matrices = list(found["matrices"].values())
    names = matrices[0]["names"]
    rows = [
        f"| {METRICS[name]} | "
        + " | ".join(
            f"{statistics.mean(each['kendall'][row][column] for each in matrices):.2f}"
            for column in range(len(names))
        )
        + " |"
        for row, name in enumerate(names)
    ]
    return [
        "Fig. 3, Kendall's correlation of metrics with each other, turned alike, mean over data sets (SemSim: seed 0):",
        "",
        f"| | {' | '.join(METRICS[name] for name in names)} |",
        f"|---|{'---|' * len(names)}",
        *rows,
        "",
    ]


def ablations_of(found: Record) -> list[str]:
    """Fig. 7: what SemSim owes to annotations, backbone and loss."""
    if not found["ablations"]:
        return []
    whole = found["tables"][studied.ATTACKS[0]][studied.TEST_SET]["semsim"][0]
    rows = [
        f"| {name} | "
        + " | ".join(
            "–" if one is None else f"{one[of]['value']:.2f} ({one[of]['low']:.2f} to {one[of]['high']:.2f})"
            for of in ("kendall", "spearman")
        )
        + " |"
        for name, one in {"all originals, LeNet, triplets": whole, **found["ablations"]}.items()
    ]
    return [
        f"Fig. 7, SemSim tested on {studied.TEST_SET}, one seed; `originals-N`: so many of the originals of the four other "
        "data sets, with 14 judgements each; one thing is changed at a time:",
        "",
        "| variant | Kendall | Spearman |",
        "|---|---|---|",
        *rows,
        "",
    ]
