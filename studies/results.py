"""Make docs/results.md from the records under studies/results.

    python studies/results.py             # docs/results.md from the records that are committed
    python studies/results.py --collect   # first take the records of runs from runs/, finished or not
    python studies/results.py --restore   # put committed records back under runs/, where a study goes on from them

Every figure of docs/results.md comes from here; the words around them are checked against the figures where
they state an order.
"""

import argparse
import json
import math
import re
import shutil
import statistics
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import audit
import audit_training
import device_tables
import features as studied
import hostile
import masks
import meta
import reconstruction_tables
import stored as stored_embeddings
from matplotlib.figure import Figure
from scipy import stats

from sfumato import protect
from sfumato.assess.log_rank import superior
from sfumato.device.budgets import Budget
from sfumato.dp.guarantee import SYMBOLS, rounded_up
from sfumato.learn import few_shot
from sfumato.protect.pixelize import cell_areas, spread
from sfumato.study import grid, recommend, report

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "studies" / "results"
STUDIES = (
    "omniglot-5shot",
    "omniglot-1shot",
    "omniglot",
    "omniglot-cells",
    "omniglot-transfer",
    "glyphs",
    "demo",
    "lfw",
    "lfw-resnet12",
    "lfw-models",
    "lfw-smile",
    "lfw-gender",
    "caltech101",
    "caltech101-models",
)
KEPT = ("accuracy", "attack", "similarity", "transfer")  # pictures and embeddings are for the report alone


def collect(name: str) -> None:
    """Copy study.json and the small records of a run; of one that is not finished docs/results.md says nothing."""
    run = ROOT / "runs" / name
    if not (run / "study.json").exists():
        return
    study, records = report.load(run)
    absent = {one["digest"] for one in study["cells"]} - {record["digest"] for record in records}
    if absent:
        print(f"{name}: {len(absent)} cells are missing")
    target = RESULTS / name
    shutil.rmtree(target, ignore_errors=True)
    (target / "records").mkdir(parents=True)
    shutil.copy(run / "study.json", target)
    for record in records:
        if record["kind"] in KEPT:
            shutil.copy(run / "records" / f"{record['digest']}.json", target / "records")


def load(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A study and its records."""
    return report.load(RESULTS / name)


def restore(name: str) -> None:
    """Put the records of a study under runs/, unless there is a run already."""
    run = ROOT / "runs" / name
    if (RESULTS / name).exists() and not run.exists():
        shutil.copytree(RESULTS / name, run)


def ran(name: str) -> bool:
    """Whether all records of a study are there that are kept."""
    if not (RESULTS / name / "study.json").exists():
        return False
    study, records = load(name)
    kept = {one["digest"] for one in study["cells"] if one["kind"] in KEPT}
    return kept <= {record["digest"] for record in records}


def result(records: list[dict[str, Any]], kind: str, **cell: Any) -> dict[str, Any]:
    """The result of the one record of that kind whose cell has those values."""
    (found,) = [
        record["result"]
        for record in records
        if record["kind"] == kind and cell.items() <= record["cell"].items()
    ]
    return found


def percent(accuracy: dict[str, Any]) -> str:
    """Mean and 95% interval in percent."""
    return f"{100 * accuracy['accuracy']:.2f} ± {100 * accuracy['half_width']:.2f}"


def setting(study: dict[str, Any], records: list[dict[str, Any]]) -> str:
    """How a study was trained and tested, in one sentence."""
    training, task = study["training"], study["task"]
    versions = next(record["versions"] for record in records if record["kind"] == "accuracy")
    return (
        f"Trained {training['way']}-way {training['shot']}-shot with {training['queries']} queries, at most "
        f"{training['epochs']} epochs of {training['episodes_per_epoch']} episodes; tested {task['way']}-way "
        f"{task['shot']}-shot with {task['queries']} queries over {task['episodes']} episodes; "
        f"seed {', '.join(map(str, study['seeds']))}; torch {versions['torch']}, {versions['threads']} thread(s)."
    )


def clean() -> list[str]:
    """Clean images, beside what was wanted; a study without records yet has no row."""
    lines = [
        "## Clean images, 5-way",
        "",
        "| data | encoder | accuracy, % (95% interval) | wanted | published | episodes trained | training time |",
        "|---|---|---|---|---|---|---|",
    ]
    notes = []
    conv4 = "Conv-4"
    for name, data, encoder, wanted, published in (
        (
            "omniglot-5shot",
            "Omniglot",
            conv4,
            99.2,
            "99.7 (Snell et al. 2017); about 99 (Parnami et al. 2022)",
        ),
        ("omniglot-1shot", "Omniglot", conv4, 97.5, "98.8 (Snell et al. 2017)"),
        ("lfw", "LFW, 50 held-out people", conv4, 95.0, "90 to 91 on CelebA (Parnami et al. 2022)"),
        ("lfw-resnet12", "the same", "ResNet-12, pre-trained", 95.0, "92 on CelebA (Parnami et al. 2022)"),
        (
            "caltech101",
            "Caltech-101, 20 held-out classes",
            conv4,
            77.0,
            "61 on MiniImageNet (Parnami et al. 2022)",
        ),
    ):
        if not ran(name):
            continue
        study, records = load(name)
        found = result(records, "accuracy", learner="clean")
        kept = "reached" if 100 * found["accuracy"] >= wanted else "NOT reached"
        lines.append(
            f"| {data}, {study['task']['shot']}-shot | {encoder} | {percent(found)} | ≥ {wanted:g}: {kept} | {published} "
            f"| {found['trained_episodes']} | {found['train_seconds'] / 60:.1f} min |"
        )
        notes.append(f"- `studies/{name}.yaml`: {setting(study, records)}")
    return [*lines, "", *notes, ""]


def three_models(name: str, heading: str, differs: list[str]) -> list[str]:
    """The paper's Fig. 3 or 11 and Fig. 4 on one data set: accuracy of three models, gain of the denoiser."""
    if not ran(name):
        return []
    study, records = load(name)
    others = study["task"].get("other_shots", [])
    columns = "".join(f" {shot}-shot: clean / protected / + denoiser |" for shot in others)
    lines = [
        f"## {heading}",
        "",
        "| protection | clean-trained | protected | protected + denoiser | gain of the denoiser | SSIM released "
        f"| SSIM denoised |{columns} training time, protected / denoised |",
        "|---|---|---|---|---|---|---|" + "---|" * len(others) + "---|",
    ]
    baseline = result(records, "accuracy", protection="none", learner="clean")
    few = "".join(f" {100 * baseline[f'accuracy_{shot}_shot']:.2f} |" for shot in others)
    lines.append(f"| `none` | {percent(baseline)} | | | | | |{few} |")
    margins, gains = [], []
    for spec in study["protections"][1:]:
        models = {m: result(records, "accuracy", protection=spec, learner=m) for m in study["learners"]}
        views = {v: result(records, "similarity", protection=spec, view=v) for v in ("released", "denoised")}
        accuracy = {m: models[m]["accuracy"] for m in models}
        gain = 100 * (accuracy["denoised"] - accuracy["protected"]) / accuracy["protected"]
        margins.append(
            accuracy["protected"]
            - models["protected"]["half_width"]
            - accuracy["clean"]
            - models["clean"]["half_width"]
        )
        gains.append(gain)
        minutes = " / ".join(f"{models[m]['train_seconds'] / 60:.1f}" for m in ("protected", "denoised"))
        few = "".join(
            " " + " / ".join(f"{100 * models[m][f'accuracy_{shot}_shot']:.1f}" for m in models) + " |"
            for shot in others
        )
        lines.append(
            f"| `{spec}` | {percent(models['clean'])} | {percent(models['protected'])} "
            f"| {percent(models['denoised'])} | {gain:+.2f}% | {views['released']['ssim']:.3f} "
            f"| {views['denoised']['ssim']:.3f} |{few} {minutes} min |"
        )
    above = sum(margin > 0 for margin in margins)
    better = sum(gain > 0 for gain in gains)
    return [
        *lines,
        "",
        f"Trained on protected images beats clean-trained, intervals apart, in {above} of {len(margins)} settings; "
        f"the smallest gap between the intervals is {100 * min(margins):.1f} points, "
        f"the largest {100 * max(margins):.1f}.",
        f"The denoiser raises the accuracy in {better} of {len(gains)} settings "
        f"(gain from {min(gains):+.2f}% to {max(gains):+.2f}%).",
        "",
        f"- `studies/{name}.yaml`: {setting(study, records)}",
        *(f"- {each}" for each in differs),
        "",
    ]


ON_OMNIGLOT = [
    "The paper reports positive gains, up to about 5% on Omniglot at σ = 200. It shows these accuracies as curves "
    "without numbers; its text gives 0.99 for clean on clean, the order of the three models, and the gains.",
    "Where it differs: the paper trains 60-way for up to 50,000 episodes with early stopping; here all three models "
    "get the same few 20-way episodes. The obfuscations work on 8-bit values with border cells kept; DP-Pix adds exact "
    "integer noise to cell sums. The networks see every pixel, as in the paper (`cell: 1`).",
]
ON_PHOTOGRAPHS = [
    "Where it differs from the paper: other data, whose terms allow to hold it here; 600 episodes, and a denoiser of 16 "
    "filters instead of 64, so that it fits two cores, the same for all three models. Of pixelize and dp-pix the "
    "networks see one value a cell (the default); of pixelized images a denoiser then has nothing to take away.",
]


def cells() -> list[str]:
    """The paper's pipeline at full resolution against the same networks at the resolution of the release."""
    if not ran("omniglot-cells"):
        return []
    _, full = load("omniglot")
    study, records = load("omniglot-cells")
    lines = [
        "## Networks at the resolution of the release (Omniglot)",
        "",
        "| protection | paper's pipeline: denoiser and encoder, every pixel | denoiser and encoder, one value a cell "
        "| encoder alone, one value a cell | operations, of the paper's pipeline | bytes a query |",
        "|---|---|---|---|---|---|",
    ]
    width = few_shot.untrained(1, few_shot.FewShotConfig(cell=1), [protect.parse("none")])
    operations = few_shot.operations(width, (1, 28, 28))
    lower: list[bool] = []
    gained, most = [], 0.0
    for spec in study["protections"][1:]:
        paper = result(full, "accuracy", protection=spec, learner="denoised")
        ours = {m: result(records, "accuracy", protection=spec, learner=m) for m in ("denoised", "protected")}
        denoised, alone = ours["denoised"], ours["protected"]
        if denoised["accuracy"] - denoised["half_width"] > alone["accuracy"] + alone["half_width"]:
            gained.append(spec)
        size = result(records, "similarity", protection=spec, view="released")["bytes_per_image"]
        shares = ", ".join(f"{100 * ours[m]['operations'] / operations:.1f}%" for m in ours)
        if protect.parse(spec).cell >= 4:
            best = max(ours.values(), key=lambda one: one["accuracy"])
            most = max(most, best["operations"] / operations)
            lower.append(best["accuracy"] + best["half_width"] < paper["accuracy"] - paper["half_width"])
        lines.append(
            f"| `{spec}` | {percent(paper)} | {percent(ours['denoised'])} | {percent(ours['protected'])} "
            f"| {shares} | {size} of 784 |"
        )
    return [
        *lines,
        "",
        f"With cells of 4 or more the better of the two is below the paper's pipeline, intervals apart, in {sum(lower)} of "
        f"{len(lower)} settings, at {100 * most:.1f}% of its operations at most. A denoiser is better than the encoder alone, "
        f"intervals apart, with {', '.join(f'`{spec}`' for spec in gained) or 'none'}.",
        "",
        f"- `studies/omniglot-cells.yaml` and `studies/omniglot.yaml`: {setting(study, records)} Milliseconds are in "
        "docs/speed.md.",
        "",
    ]


def reidentified() -> list[str]:
    """Six adversaries on faces: the paper's Fig. 5, and what it leaves out."""
    name = "lfw-models"
    if not ran(name):
        return []
    study, records = load(name)
    risks = recommend.risks(study, records)
    views = ("released", "denoised", "restored")
    attacks = {
        (kind.view, kind.adaptive): attack
        for attack, kind in grid.ATTACKS.items()
        if attack in study["attacks"]
    }
    lines = [
        "## Re-identification on LFW (paper: Fig. 5, and Sec. VI)",
        "",
        "Top-1 of the strongest of three classifiers, %, with the 95% interval over probes; static adversaries hold "
        "clean photographs, adaptive ones protect (and undo) their own in the same way and train on them. Bold: the "
        "strongest of a row.",
        "",
        "| protection | "
        + " | ".join(f"{view}, {'adaptive' if a else 'static'}" for view, a in attacks)
        + " | faces found, %: "
        "released / denoised / restored | SSIM: released / denoised / restored |",
        "|---|" + "---|" * (len(attacks) + 2),
    ]
    strongest: dict[str, float] = {}
    for spec in study["protections"]:
        found = {key: risks.get((spec, attack)) for key, attack in attacks.items()}
        strongest[spec] = max(one.top1.value for one in found.values() if one)
        texts = []
        for one in found.values():
            text = (
                ""
                if one is None
                else f"{100 * one.top1.value:.1f} ({100 * one.top1.low:.1f} to {100 * one.top1.high:.1f})"
            )
            texts.append(f"**{text}**" if one and one.top1.value == strongest[spec] else text)
        shown = [view for view in views if found[view, False]]
        faces = [
            result(records, "attack", protection=spec, attack=attacks[view, False])["faces_found"]
            for view in shown
        ]
        alike = [result(records, "similarity", protection=spec, view=view)["ssim"] for view in shown]
        lines.append(
            f"| `{spec}` | {' | '.join(texts)} | {' / '.join(f'{100 * rate:.0f}' for rate in faces)} "
            f"| {' / '.join(f'{each:.2f}' for each in alike)} |"
        )
    one = next(record["result"] for record in records if record["kind"] == "attack")
    noisy = [spec for spec in strongest if spec.startswith("dp-pix")]
    plain = {
        spec: max(risks[spec, attacks[view, False]].top1.value for view in ("released", "denoised"))
        for spec in noisy
    }
    said = "; ".join(
        f"`{spec}` {100 * plain[spec]:.1f}% by the paper's adversary, {100 * strongest[spec]:.1f}% by the strongest"
        for spec in noisy
    )
    survives = all(strongest[spec] <= 2 * one["chance"] for spec in noisy)
    return [
        *lines,
        "",
        f"Chance is {100 * one['chance']:.1f}%: {one['identities']} people, {one['gallery']:,} photographs in the gallery, "
        f"{one['probes']:,} probes.",
        "",
        f"The paper's conclusion that DP-Pix keeps re-identification low even after denoising "
        f"{'survives' if survives else 'does NOT survive'} the adaptive adversary: {said}.",
        "",
        f"- `studies/{name}.yaml`, seed {', '.join(map(str, study['seeds']))}; {study['adversary']['recogniser']}, "
        f"{study['adversary']['adaptive_steps']} steps of {study['adversary']['batch']} on protected photographs of other "
        f"people, a {study['restoration']['network']} trained for {study['restoration']['steps']} steps to restore; "
        f"{sum(r['seconds'] for r in records if r['kind'] == 'attack') / 60:.0f} min for all attacks. A stronger adversary may "
        "find more.",
        "- Who it is is task and secret at once: an adaptive adversary can do what the service does, so that the accuracy "
        "above bounds what he may reach among as few people.",
        "",
    ]


def transferred() -> list[str]:
    """A model for one setting, queried with another: the paper's future work."""
    name = "omniglot-transfer"
    if not ran(name):
        return []
    study, records = load(name)
    matrix = {
        record["cell"]["protection"]: record["result"]["trained"]
        for record in records
        if record["kind"] == "transfer"
    }
    specs = study["protections"]
    lines = [
        "## A model for one setting, queried with another (Omniglot)",
        "",
        "Accuracy, %: rows are what a model was trained for, columns what support and query images were "
        "protected by. Bold: the best of a column.",
        "",
        "| trained for | " + " | ".join(f"`{spec}`" for spec in specs) + " |",
        "|---|" + "---|" * len(specs),
    ]
    best = {
        asked: max(matrix[asked], key=lambda spec, asked=asked: matrix[asked][spec]["accuracy"])
        for asked in specs
    }
    for spec in specs:
        row = [f"{100 * matrix[asked][spec]['accuracy']:.1f}" for asked in specs]
        row = [f"**{text}**" if best[asked] == spec else text for asked, text in zip(specs, row, strict=True)]
        lines.append(f"| `{spec}` | {' | '.join(row)} |")
    own = sum(best[asked] == asked for asked in specs)
    lost = [
        matrix[asked][asked]["accuracy"] - matrix[asked][spec]["accuracy"]
        for asked in specs
        for spec in specs
        if spec != asked
    ]
    half = max(each["half_width"] for row in matrix.values() for each in row.values())
    return [
        *lines,
        "",
        f"In {own} of {len(specs)} columns the model that was trained for the setting is the best one; a model for another setting "
        f"is {100 * sum(lost) / len(lost):.1f} points lower on average, {100 * max(lost):.1f} at worst. Intervals are at most "
        f"± {100 * half:.1f} points.",
        "",
        f"- `studies/{name}.yaml`.",
        "",
    ]


def attributes() -> list[str]:
    """Tasks other than who it is, whose secret is who it is."""
    lines = []
    for name, task in (("lfw-smile", "smile or not"), ("lfw-gender", "gender")):
        if not ran(name):
            continue
        study, records = load(name)
        lines += [
            f"## LFW, {task}, not who",
            "",
            "| protection | best accuracy, % | learner | strongest re-identification, % | by | chance, % | frontier |",
            "|---|---|---|---|---|---|---|",
            *frontier(study, records),
            "",
            *recommend.recommend(study, records).lines,
            "",
            f"- `studies/{name}.yaml`: {setting(study, records)} Wall time of all cells: "
            f"{sum(record['seconds'] for record in records) / 60:.0f} min.",
            "",
        ]
    return lines


def ranges() -> list[str]:
    """One model for a range of settings."""
    path = RESULTS / "ranges.json"
    if not path.exists():
        return []
    record = json.loads(path.read_text())
    lines = ["## One model for a range of settings, and prototypes that weigh by protection", ""]
    for one in record["ranges"]:
        asked = [*one["settings"], one["between"]]
        heads = [
            f"`{spec}`" + (", which none was trained for" if spec == one["between"] else "") for spec in asked
        ]
        lines += [
            f"{one['name']}, 5-way 5-shot, %:",
            "",
            "| model | " + " | ".join(heads) + " |",
            "|---|" + "---|" * len(asked),
            *(
                f"| for `{spec}` | {' | '.join(percent(one['alone'][spec][each]) for each in asked)} |"
                for spec in one["settings"]
            ),
            f"| for all, told which | {' | '.join(percent(one['together'][each]) for each in asked)} |",
            "",
            f"Every image with one of the {len(one['settings'])} settings at random: support images count alike "
            f"{percent(one['mixed']['alike'])}, by protection {percent(one['mixed']['by protection'])} (weights "
            + ", ".join(f"{weight:.2f}" for weight in one["weights"].values())
            + ").",
            "",
        ]
    total = sum(
        sum(one["seconds"]["alone"].values()) + one["seconds"]["together"] for one in record["ranges"]
    )
    return [
        *lines,
        f"- `python studies/ranges.py`, seed {record['seed']}, 1,000 episodes, all models trained alike for 400 episodes; "
        f"{total / 60:.0f} min of training on {record['threads']} thread(s).",
        "",
    ]


def worlds() -> list[str]:
    """Clean accuracy on the embedded worlds."""
    lines = [
        "## The embedded worlds, clean images, Conv-4, 5-way 5-shot",
        "",
        "Wanted: between 85% and 99%, so that there is something to lose and something to gain.",
        "",
        "| world | accuracy, % (95% interval) | episodes trained | study |",
        "|---|---|---|---|",
    ]
    for name, world, command in (
        ("glyphs", "`glyphs` 28x28, class", "`studies/glyphs.yaml`"),
        ("demo", "`faces` 32x32, headwear", "`make demo`"),
    ):
        _, records = load(name)
        found = result(records, "accuracy", protection="none", learner="clean")
        lines.append(f"| {world} | {percent(found)} | {found['trained_episodes']} | {command} |")
    return [*lines, ""]


def frontier(study: dict[str, Any], records: list[dict[str, Any]]) -> list[str]:
    """A row for each protection: its best learner and its strongest adversary."""
    lines = []
    for one in recommend.frontier(study, records):
        accuracy, risk = one.accuracy, one.risk
        if accuracy is None or risk is None:
            continue
        lines.append(
            f"| `{one.protection}` | {100 * accuracy.value:.1f} ({100 * accuracy.low:.1f} to "
            f"{100 * accuracy.high:.1f}) | {one.learner} | {100 * risk.top1.value:.1f} "
            f"({100 * risk.top1.low:.1f} to {100 * risk.top1.high:.1f}) | {risk.adversary} "
            f"| {100 * risk.chance:.1f} | {'yes' if one.on_frontier else ''} |"
        )
    return lines


def demo() -> list[str]:
    """The embedded faces world: accuracy against re-identification."""
    study, records = load("demo")
    lines = [
        "## The demo: which headwear, not who (embedded `faces` world)",
        "",
        "| protection | best accuracy, % | learner | strongest re-identification, % | by | chance, % | frontier |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += frontier(study, records)
    seconds = sum(record["seconds"] for record in records)
    return [
        *lines,
        "",
        *recommend.recommend(study, records).lines,
        "",
        f"- `make demo`: {setting(study, records)} Wall time of all cells: {seconds / 60:.1f} min.",
        "- These adversaries are trained for seconds: a stronger one may find more. Accuracy is that of short "
        "training, too.",
        "- On clear images only the static adversary runs; the adaptive one starts from him and is trained longer, "
        "so that on the weakest protections he finds more than the static one does on clear images.",
        "",
    ]


def audits() -> list[str]:
    """Empirical lower bounds beside the stated guarantees."""
    records = [json.loads(audit.path(spec).read_text()) for spec in audit.SPECS]
    made = records[0]
    return [
        "## The audit: how well neighbours are told apart, beside what is stated",
        "",
        *audit.table(),
        "",
        f"- `python studies/audit.py`: {made['settings']['trials']:,} trials each on 3x28x28 images, "
        f"{100 * made['settings']['confidence']:g}% confidence each, seed {made['settings']['seed']}, "
        f"{sum(record['seconds'] for record in records):.0f} s in all. A bound above the stated number would convict the mechanism; one below it "
        "proves nothing more, and how near it can come is limited by the number of trials.",
        "",
    ]


def meta_clean() -> list[str]:
    """Meta-learning without a promise, against accuracies of the literature."""
    records = [record for record in meta_records() if record["least"] is not None]
    if not records:
        return []
    rows = [
        f"| {algorithm_of(record)} | {record['card']['config']['network']} | 5-way {record['card']['config']['shot']}-shot "
        f"| {percent(record)} | {100 * record['least']:g} | {record['card']['steps']:,} x "
        f"{record['card']['config']['tasks']} | {record['card']['computed']}, {record['card']['precision']} | "
        f"{'resumed' if record['seconds'] is None else format(record['seconds'] / 60, '.0f') + ' min'} |"
        for record in records
    ]
    short = [
        f"{algorithm_of(record)}, {record['card']['config']['network']}"
        for record in records
        if record["accuracy"] < record["least"]
    ]
    return [
        "## Meta-learning on Omniglot, without a promise",
        "",
        "| algorithm | network | task | accuracy, % | wanted | steps x tasks | computed | training |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        "Test characters are of alphabets that nothing was trained on (Vinyals split), and not drawn at random from all "
        "characters, as in the first papers. All are transductive: the queries of a task are normalised "
        "together." + (f" Below what was wanted: {'; '.join(short)}." if short else ""),
        "",
        f"- `python studies/meta.py clean`, seed {records[0]['seed']}, {records[0]['test']['episodes']} test tasks, "
        f"{records[0]['test']['queries']} queries a class, {records[0]['threads']} thread(s) beside other work.",
        "",
    ]


def meta_private() -> list[str]:
    """Clipping policies at equal proved bounds."""
    records = [record for record in meta_records() if record["about"]]
    if not records:
        return []
    groups: dict[tuple[Any, ...], dict[str, list[dict[str, Any]]]] = {}
    for record in records:
        about = record["about"]
        budgets = meta.BUDGETS if record["card"]["privacy"] is None else (about["epsilon"],)
        for epsilon in budgets:
            key = (about["regime"], about["algorithm"], about["shot"], epsilon)
            groups.setdefault(key, {}).setdefault(about["policy"], []).append(record)
    rows, verdicts, told, trajectories = [], [], 0, []
    added: dict[str, list[float]] = {}
    open_adds: dict[str, list[float]] = {}
    for (regime, algorithm, shot, epsilon), policies in groups.items():
        if "fixed" not in policies or "untrained" not in policies:
            continue
        for policy, runs in policies.items():
            spent = runs[0]["card"]["privacy"]
            if policy != "untrained":
                adds = open_adds if spent is None else added
                adds.setdefault(regime, []).append(gains(runs, policies["untrained"])[0])
            stated = ["-"] * 5
            if spent is not None:
                bound = spent["epsilon"]
                pld = "infinite" if bound is None else f"{bound:.2f}"
                gdp = spent[
                    "gdp_approximation_if_the_norm_were_public" if bound is None else "gdp_approximation"
                ]
                conditional = (
                    ""
                    if bound is not None
                    else f" ({spent['epsilon_if_the_norm_were_public']:.2f} if C were public)"
                )
                rdp = "-" if spent["rdp"] is None else f"{spent['rdp']:.2f}"
                image = spent.get("image_epsilon", bound)
                stated = [
                    f"{spent['noise_multiplier']:.3g}",
                    pld + conditional,
                    rdp,
                    f"{gdp:.2f}",
                    "infinite" if image is None else f"{image:.3g}",
                ]
            rows.append(
                f"| {regime} | {algorithm}, {shot}-shot | {policy} | {over_seeds(runs)} | {' | '.join(stated)} |"
            )
            told = max(told, len(runs))
            followed, _, too_high = policy.partition(", from")
            fixed = policies.get("fixed, C" + too_high if too_high else "fixed", [])
            if followed in ("quantile", "meta-clip") and len(runs) > 2 and len(fixed) > 2:
                verdicts.append((policy, regime, algorithm, shot, epsilon, gains(runs, fixed)))
            if followed in FOLLOWS and algorithm == "maml" and shot == 1 and epsilon == meta.BUDGETS[0]:
                norms = runs[0]["norms"]
                at = [norms[round(part * (len(norms) - 1))] for part in (0, 0.25, 0.5, 0.75, 1)]
                trajectories.append(f"| {regime} | {policy} | {' | '.join(f'{norm:.3g}' for norm in at)} |")
    if not rows:  # a table needs a network that learned nothing to stand beside
        return []
    better = [one for one in verdicts if one[-1][0] - one[-1][1] > 0]
    worse = [one for one in verdicts if one[-1][0] + one[-1][1] < 0]
    said = [
        f"{policy} against fixed, {regime}, {algorithm} {shot}-shot, eps = {epsilon:g}: {100 * mean:+.1f} +- {100 * half:.1f} points"
        for policy, regime, algorithm, shot, epsilon, (mean, half) in verdicts
    ]
    claim = (
        []
        if not verdicts
        else [
            f"The claim that adaptive clipping beats fixed clipping, over three seeds or more at equal PLD bounds: better, "
            f"interval above 0, in {len(better)} of {len(verdicts)}; worse in {len(worse)}. {'; '.join(said)}.",
            "",
        ]
    )
    learned = [
        f"{regime}: {100 * min(gained):+.1f} to {100 * max(gained):+.1f} points, and the same steps without clipping and "
        f"noise {100 * min(open_adds[regime]):+.1f} to {100 * max(open_adds[regime]):+.1f}"
        for regime, gained in added.items()
    ]
    return [
        "## Private meta-learning on Omniglot: clipping policies at equal proved bounds (paper: Meta-Clip)",
        "",
        "Mean accuracy in % over training seeds, with the 95% interval of Student's t over seeds where there are "
        "three or more; `none` is the same training without clipping and noise, `untrained` what a network that learned "
        "nothing reaches by learning each task. Images are 14x14 here. Three regimes: *disjoint*, a pool of 205 tasks; "
        "*overlapping*, 10,000 tasks, of which an image is in up to 72, so that what is proved of an image, the last "
        "column, is far from what is proved of a task; *narrow*, the same pool, a convolutional network of 7,300 "
        "parameters in place of a fully connected one of 96,000, and 64 tasks a step in place of 16.",
        "",
        "| regime | task | policy | accuracy, % | noise multiplier | eps of a task, PLD (bound) | RDP | GDP (may be below the truth) | eps of an image |",
        "|---|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        *claim,
        f"What private training adds to a network that learned nothing, at these budgets: {'; '.join(learned)}.",
        "",
        "The norm C in the course of a run (MAML, 1-shot, seed 0), after 0, 25, 50, 75 and 100% of the steps; that of "
        "Meta-Clip as published is private data:",
        "",
        "| regime | policy | 0 | 25% | 50% | 75% | 100% |",
        "|---|---|---|---|---|---|---|",
        *trajectories,
        "",
        f"- `python studies/meta.py private`: {len(records)} trainings, delta = 1e-5, up to {told} seeds; "
        f"{sum(record['seconds'] or 0 for record in records) / 60:.0f} min on one thread in all. Settings were chosen on the "
        "validation characters. In the published mode noise is what GDP asks for at this epsilon, as in the paper.",
        "",
    ]


FOLLOWS = ("quantile", "meta-clip", "meta-clip-published")


def meta_records() -> list[dict[str, Any]]:
    """Of studies/meta.py, in its order."""
    paths = [meta.RECORDS / f"{run.name}.json" for run in (*meta.CLEAN, *meta.private_runs())]
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def algorithm_of(record: dict[str, Any]) -> str:
    """How papers write it."""
    words = {"maml": "MAML", "fomaml": "first-order MAML", "reptile": "Reptile", "meta-sgd": "Meta-SGD"}
    return words[record["card"]["config"]["algorithm"]]


def over_seeds(runs: list[dict[str, Any]]) -> str:
    """Mean accuracy over seeds, with an interval where there are enough."""
    found = averaged([run["accuracy"] for run in runs])
    return found if len(runs) > 2 else f"{found} ({len(runs)} seed{'s' if len(runs) > 1 else ''})"


def gains(runs: list[dict[str, Any]], others: list[dict[str, Any]]) -> tuple[float, float]:
    """Mean difference of accuracy over the seeds that both have, and half its interval."""
    by_seed = {run["seed"]: run["accuracy"] for run in others}
    found = [run["accuracy"] - by_seed[run["seed"]] for run in runs if run["seed"] in by_seed]
    return statistics.mean(found), half_width(found) if len(found) > 1 else math.inf


def half_width(found: list[float]) -> float:
    """Of the 95% interval of a mean, by Student's t."""
    return float(stats.t.ppf(0.975, len(found) - 1)) * statistics.stdev(found) / math.sqrt(len(found))


def masked() -> list[str]:
    """Learned masks beside classical obfuscations."""
    tasks = [
        Masked(world, target, records)
        for world in masks.WORLDS
        for target in masks.WORLDS[world].targets
        if (records := masks_measured(world, target))
    ]
    if not tasks:
        return []
    learned = [each for each in tasks if not each.unlearned]
    return [
        "## Learned masks and classical obfuscations (paper: Mask, Table I and II, Fig. 2 and 3)",
        "",
        "In %, means over seeds with the 95% interval of Student's t where there are three. Accuracy is that of a "
        "classifier that knows nothing of the mask, trained on releases, and of one trained on clean images; `by shape` "
        "of one that sees only WHICH pixels are shown. Re-identification is the first guess of the strongest of three "
        "classifiers. `published` trains masks by soft scores, as the paper does; the others by the masks that a device "
        "applies. Face similarity is the mean cosine of embeddings of release and original; that of two strangers "
        "is beside it. The share of 10% is measured with every seed since the results of the first were seen: it was not "
        "chosen beforehand, and what the first seed says of it is no test of it. The shape of such a mask, released by "
        "itself (`values=shape`), came later still.",
        "",
        "Wanted at 25% of the pixels, or fewer: 95% of the clean accuracy, and an adversary and a face similarity well below "
        "those of the mask without adversary, and below those of every classical obfuscation that is as accurate. `shape` is the "
        "release of WHICH pixels the mask of 10% would show, of none of their values.",
        "",
        "| task | pixels | seeds | of the clean accuracy | best classical | strongest adversary | of the mask without | face similarity | of the mask without |",
        "|---|---|---|---|---|---|---|---|---|",
        *(row for each in learned for row in each.rows()),
        "",
        *(f"- {masks_hold(learned, keep)}" for keep in masks.KEEPS),
        "",
        *(line for each in tasks for line in each.lines()),
    ]


def masks_hold(tasks: list["Masked"], keep: float) -> str:
    """In how many tasks, and pairs of task and seed, masks of a share keep and hide what was wanted of them."""
    ours, plain = f"adversarial {keep:g}", f"plain {keep:g}"
    enough = [statistics.mean(each.kept(ours)) >= 0.95 for each in tasks]
    alone = [not each.rivals(keep) for each in tasks]
    hiding = [each for each in tasks if each.attacks]

    def lower(of: Callable[["Masked", str], list[float]]) -> str:
        pairs = [pair for each in hiding for pair in zip(of(each, ours), of(each, plain), strict=True)]
        return f"{sum(own < theirs for own, theirs in pairs)} of {len(pairs)}"

    return (
        f"At K = {100 * keep:g}% the adversarial mask keeps 95% of the clean accuracy, in the mean, in {sum(enough)} of "
        f"{len(tasks)} tasks, and no classical obfuscation is as accurate in {sum(alone)} of them. Its strongest adversary names "
        f"fewer than that of the mask without adversary in {lower(Masked.strongest)} pairs of task and seed, and its face "
        f"similarity is lower in {lower(Masked.similarity)}, where a coin would have half."
    )


def masks_measured(world: str, target: str) -> list[dict[str, Any]]:
    """The records of one task."""
    parts = [masks.Part(world, target, seed, small=False) for seed in masks.SEEDS]
    return [record for part in parts if (record := masks.measured(part))]


MASK_COLUMNS = {
    "accuracy": ("classifier-protected", "accuracy"),
    "clean classifier": ("classifier-clean", "accuracy"),
    "by shape": ("classifier-shape", "accuracy"),
    "static": ("reidentify-static", "top1"),
    "adaptive": ("reidentify-adaptive", "top1"),
    "restored, adaptive": ("reidentify-restored-adaptive", "top1"),
    "shape alone": ("reidentify-shape", "top1"),
    "face similarity": ("face-similarity",),
}


class Masked:
    """What masks of one task keep and hide."""

    def __init__(self, world: str, target: str, records: list[dict[str, Any]]) -> None:
        self.world = world
        self.target = target
        self.records = records
        self.unlearned = records[0].get("unlearned")
        columns = MASK_COLUMNS | {
            "task's pixels shown": ("world", target, "of_it"),
            "of what is shown": ("world", target, "of_shown"),
        }
        self.names = sorted({name for record in records for name in record.get("settings", {})})
        self.used = {
            column: keys
            for column, keys in columns.items()
            if any(self.found(name, *keys) for name in self.names)
        }
        self.attacks = [keys for keys in self.used.values() if keys[0].startswith("reidentify")]

    def found(self, name: str, *keys: str) -> list[float]:
        """What was found of a setting, of each seed that has it."""
        values = []
        for record in self.records:
            value: Any = record["settings"].get(name)
            for key in keys:
                value = value.get(key) if isinstance(value, dict) else None
            if value is not None:
                values.append(float(value))
        return values

    def accuracy(self, name: str) -> list[float]:
        """Of a classifier trained on releases."""
        return self.found(name, *MASK_COLUMNS["accuracy"])

    def similarity(self, name: str) -> list[float]:
        """Of faces."""
        return self.found(name, "face-similarity")

    def strongest(self, name: str) -> list[float]:
        """The first guesses of the strongest adversary."""
        by_attack = [values for keys in self.attacks if (values := self.found(name, *keys))]
        return [max(each) for each in zip(*by_attack, strict=True)]

    def kept(self, name: str) -> list[float]:
        """The accuracy under a setting, of that of clean images."""
        clean = self.found("none", "classifier-clean", "accuracy")
        return [each / whole for each, whole in zip(self.accuracy(name), clean, strict=True)]

    def classical(self) -> dict[str, float]:
        """The mean accuracy of each classical obfuscation."""
        return {
            name: statistics.mean(self.accuracy(name))
            for name in self.names
            if name != "none" and name.split()[0] not in (*masks.MASKS, "shape")
        }

    def best_classical(self) -> tuple[str, float]:
        """The most accurate classical obfuscation, and its mean accuracy."""
        return max(self.classical().items(), key=lambda each: each[1])

    def rivals(self, keep: float) -> list[str]:
        """The classical obfuscations that are as accurate as the adversarial mask of a share."""
        ours = statistics.mean(self.accuracy(f"adversarial {keep:g}"))
        return [name for name, each in self.classical().items() if each >= ours]

    def rows(self) -> list[str]:
        """Of the table of all tasks: the adversarial masks, and the shape of one by itself of the seeds that have it."""
        rows = [
            self._row(f"{100 * keep:g}%", f"adversarial {keep:g}", f"plain {keep:g}") for keep in masks.KEEPS
        ]
        shape = f"shape of {masks.SHAPED}"
        if having := [record for record in self.records if shape in record["settings"]]:
            part = Masked(self.world, self.target, having)
            rows.append(part._row("shape", shape, None))
        return rows

    def _row(self, pixels: str, ours: str, plain: str | None) -> str:
        cells = [
            averaged(of(name)) if self.attacks and name else ""
            for of in (self.strongest, self.similarity)
            for name in (ours, plain)
        ]
        best, _ = self.best_classical()
        of = f"{self.world}: {self.target} | {pixels} | {len(self.records)}"
        return f"| {of} | {averaged(self.kept(ours))} | {averaged(self.kept(best))}, `{best}` | {' | '.join(cells)} |"

    def verdict(self, keep: float) -> str:
        """What the adversarial mask of a share keeps and hides, beside the one without adversary and the classical."""
        ours, plain = f"adversarial {keep:g}", f"plain {keep:g}"
        said = [
            f"At K = {100 * keep:g}% the adversarial mask keeps {averaged(self.kept(ours))}% of the clean accuracy (wanted: 95)",
            f"its shape alone tells {self.target} in {averaged(self.found(ours, *self.used['by shape']))}%"
            + (
                f" and who it is in {averaged(self.found(ours, *self.used['shape alone']))}%"
                if self.attacks
                else ""
            )
            + f", its pixels tell {self.target} in {averaged(self.accuracy(ours))}%",
        ]
        rivals = self.rivals(keep)
        if not rivals:
            best, most = self.best_classical()
            said.append(f"no classical obfuscation is as accurate, `{best}` at most: {100 * most:.1f}%")
        tells = (
            {"face similarity": self.similarity, "strongest adversary": self.strongest}
            if self.attacks
            else {}
        )
        for what, of in tells.items():
            less = [theirs - own for own, theirs in zip(of(ours), of(plain), strict=True)]
            side, apart = (
                ("below", less) if statistics.mean(less) >= 0 else ("above", [-each for each in less])
            )
            said.append(f"its {what} is {averaged(apart)} points {side} that of the mask without adversary")
            better = [
                f"`{name}`" for name in rivals if statistics.mean(of(name)) <= statistics.mean(of(ours))
            ]
            if rivals:
                said[-1] += (
                    f", and at no lower accuracy {', '.join(better) or 'no classical obfuscation'} "
                    f"{'have' if len(better) > 1 else 'has'} as little"
                )
        return "; ".join(said) + "."

    def lines(self) -> list[str]:
        """The table, and what it says."""
        if clean := self.unlearned:
            return [
                f"### {self.world}: {self.target}",
                "",
                f"A classifier of clean images of other people is right in {100 * clean['accuracy']:.1f}% (95% interval "
                f"{100 * clean['low']:.1f} to {100 * clean['high']:.1f}), where guessing has {100 * clean['chance']:.1f}%: there is "
                f"nothing that a mask could keep, and no table (`python studies/masks.py {self.world} --only {self.target}`, "
                f"{self.records[0]['images']['train']:,} training images).",
                "",
            ]
        rows = []
        for name in self.names:
            cells = [
                averaged(values) if (values := self.found(name, *keys)) else "" for keys in self.used.values()
            ]
            rows.append(f"| {name} | " + " | ".join(cells) + " |")
        ours = f"adversarial {masks.KEEPS[0]:g}"
        chance = self.found("none", "reidentify-static", "chance")
        strangers = self.found("none", "face-similarity_of_two")
        count = self.records[0]["images"]
        guessing = statistics.mean(self.found("none", "classifier-clean", "chance"))
        seconds = [each for name in self.names for each in self.found(name, "training", "seconds")]
        ends = self.found(ours, "training", "validation_accuracy")
        shown = masks.Part(self.world, self.target, masks.SEEDS[0], small=False).masks()
        return [
            f"### {self.world}: {self.target}",
            "",
            f"| setting | {' | '.join(self.used)} |",
            "|---|" + "---|" * len(self.used),
            *rows,
            "",
            *(f"- {self.verdict(keep)}" for keep in masks.KEEPS),
            "",
            *(
                [
                    f"What face similarity leaves out: of what that mask shows it is {averaged(self.similarity(ours))}, of "
                    f"two strangers {averaged(strangers)}; and the paper's static adversary names "
                    f"{averaged(self.found(ours, 'reidentify-static', 'top1'))}%, the strongest of the four "
                    f"{averaged(self.strongest(ours))}%, where chance is {100 * chance[0]:.1f}%.",
                    "",
                ]
                if chance and strangers
                else []
            ),
            f"![Originals, and what each mask shows](images/masks-{self.world}-{self.target}.png)",
            "",
            f"From above: originals; then {', '.join(name for name, *_ in shown)}. The last column is the mean mask.",
            "",
            f"- `python studies/masks.py {self.world}`, {len(self.records)} seed(s): {count['train']:,} training and "
            f"{count['test']:,} test images, of which the commonest class is {100 * guessing:.1f}%; a mask is trained in "
            f"{statistics.median(seconds) / 60:.1f} min on one thread (the median of {len(seconds)}); after "
            f"{self.found(ours, 'training', 'epochs')[0]:g} epochs `{ours}` names {averaged(ends)}% of the validation images.",
            "",
        ]


def tally(verdicts: list[str]) -> str:
    """How often the comparisons of some verdicts of `superiority` held, of how often in all."""
    held, of = zip(
        *(map(int, re.findall(r" in (\d+) of (\d+) ", each)[0]) for each in verdicts if each), strict=True
    )
    return f"{sum(held)} of {sum(of)}"


def features() -> list[str]:
    """Private features: what they keep, and whom they tell of."""
    lines = [line for world in studied.WORLDS for line in features_of(world)]
    if not lines:
        return []
    return [
        "## Private features: attributes kept, identity lost (paper: DPFE, Fig. 6 to 10)",
        "",
        "Test people are in no training image; some of their photographs are known to the adversaries, others they are to "
        "name. Log-rank privacy against the strongest of three adversaries: the paper's kernel density, a linear "
        "discriminant and a network, the latter two trained on features with the noise of those to name. 0: always "
        "named; what blind guessing has is given beside. Means over seeds, with the 95% interval of Student's t where "
        "there are three: of weights, order, noise and which photographs are known; the people are the same.",
        "",
        *lines,
    ]


def features_of(world: str) -> list[str]:
    """The tables of one world."""
    by_part: dict[str, list[dict[str, Any]]] = {}
    for seed in studied.SEEDS:
        for part in studied.parts(studied.WORLDS[world]):
            path = studied.RECORDS / f"{world}-{seed}-{part.name}.json"
            if path.exists():
                by_part.setdefault(part.name, []).append(json.loads(path.read_text()))
    if not by_part:
        return []
    first = next(iter(studied.WORLDS[world].sets))
    betas = json.loads((studied.RECORDS / f"{world}-betas.json").read_text())
    rows = []
    for records in by_part.values():
        part, clear = records[0]["part"], [record["curve"][0] for record in records]
        best = [point["adversaries"][point["strongest"]] for point in clear]
        keeps = ", ".join(f"{name} {share(records, name)}" for name in clear[0]["accuracies"])
        inverted = [record["inversion"] for record in records if "inversion" in record]
        seen = (
            f"{averaged([one['static']['top1'] for one in inverted])} / "
            f"{averaged([one['adaptive']['top1'] for one in inverted])} | {statistics.mean(one['ssim'] for one in inverted):.2f}"
            if inverted
            else " | "
        )
        rows.append(
            f"| {part['attributes']} | {part['cut']} | {part['variant']} | {keeps} | {averaged([one['lrp'] for one in best], 1, 3)} "
            f"| {', '.join(sorted({point['strongest'] for point in clear}))} "
            f"| {averaged([point['adversaries']['density']['lrp'] for point in clear], 1, 3)} "
            f"| {averaged([1 - one['beyond']['1'] for one in best])} | {statistics.mean(one['mean'] for one in best):.2f} "
            f"({statistics.mean(one['deviation'] for one in best):.2f}) | {seen} |"
        )
    one = next(iter(by_part.values()))[0]
    guessing = one["curve"][0]["adversaries"]["density"]["guessing"]
    network = [record["network"] for record in next(iter(by_part.values()))]
    compared = [
        *((f"{first}-{cut}-dpfe", f"{first}-{cut}-simple") for cut in studied.CUTS),
        *(
            (f"{first}-{studied.LAST}-{other}", f"{first}-{studied.LAST}-dpfe")
            for other in studied.BETAS
            if other != "dpfe"
        ),
        *((f"{first}-{high}-dpfe", f"{first}-{low}-dpfe") for low, high in pairwise(studied.CUTS)),
    ]
    verdicts = [superiority(by_part, ours, theirs) for ours, theirs in compared]
    curves = [
        f"| {name} | "
        + " | ".join(
            f"{100 * statistics.mean(mean_accuracy(record['curve'][at]) for record in by_part[name]):.1f}, "
            f"{statistics.mean(strongest_privacy(record['curve'][at]) for record in by_part[name]):.3f}"
            for at in range(len(studied.RATIOS))
        )
        + " |"
        for name in (f"{first}-{studied.LAST}-{variant}" for variant in ("simple", *studied.BETAS))
        if name in by_part
    ]
    draw_tradeoff(world, by_part)
    chosen, tried = betas["chosen"], betas["tried"]
    return [
        f"### {world}: {one['people']} people, {one['known']} known photographs, {one['asked']} to name",
        "",
        f"Blind guessing: log-rank privacy {guessing:.3f}, first guess {100 / one['people']:.1f}%, mean rank 0.5 (0.29). "
        f"The network without a feature: "
        + ", ".join(f"{target} {averaged([each[target] for each in network])}%" for target in network[0])
        + ".",
        "",
        "| attributes | cut | variant | accuracy without noise, % | log-rank privacy | strongest | of the density alone | "
        "named first, % | mean rank (deviation), of 1 | decoder's images named: static / adaptive, % | their SSIM |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        *costs_of(world, by_part),
        "",
        "The curve, as noise of r times the feature's covariance is added: mean accuracy in %, log-rank privacy.",
        "",
        "| model | " + " | ".join(f"r = {ratio:g}" for ratio in studied.RATIOS) + " |",
        "|---|" + "---|" * len(studied.RATIOS),
        *curves,
        "",
        "Acc-Priv superiority (the paper's Definition 11), seed by seed: "
        + "; ".join(verdict for verdict in verdicts if verdict)
        + ".",
        "",
        f"So DPFE beats Simple in {tally(verdicts[: len(studied.CUTS)])} comparisons, cut by cut and seed by seed; that a higher "
        f"cut beats the one below it, as the paper has it, holds in {tally(verdicts[1 - len(studied.CUTS) :])}.",
        "",
        f"- `python studies/features.py {world}`, {max(map(len, by_part.values()))} seeds: beta was chosen on validation images of seed 0, few enough people that "
        f"their accuracies order it badly (simple: {100 * betas['simple']:.1f}%): "
        + "; ".join(
            f"{variant} {chosen[variant]:g} of "
            + ", ".join(
                f"{beta} ({100 * found:.1f}%)"
                for beta, found in sorted(tried[variant].items(), key=lambda each: float(each[0]))
            )
            for variant in chosen
        )
        + f"; {sum(sum(r['seconds'].values()) for rs in by_part.values() for r in rs) / 60:.0f} min on one thread.",
        "",
    ]


def costs_of(world: str, by_part: dict[str, list[dict[str, Any]]]) -> list[str]:
    """What each cut costs on a device."""
    first = next(iter(studied.WORLDS[world].sets))
    rows, same, largest = [], [], []
    by_cut = {cut: by_part.get(f"{first}-{cut}-dpfe", []) for cut in studied.CUTS}
    for cut, records in by_cut.items():
        devices = [record["device"] for record in records]
        if not devices:
            continue
        same += [device["same_decisions"] for device in devices]
        largest += [device["difference"] for device in devices]
        device, whole = (
            {
                key: statistics.median(each["costs"][side][key] for each in devices)
                for key in ("milliseconds", "memory", "parameters", "bytes")
            }
            for side in ("device", "whole")
        )
        rows.append(
            f"| {cut} | {device['milliseconds']:.2f} ({100 * device['milliseconds'] / whole['milliseconds']:.0f}%) | "
            f"{device['memory']:.1f} / {whole['memory']:.1f} | {device['parameters']:,.0f} / {whole['parameters']:,.0f} | {device['bytes']:.0f} |"
        )
    if not rows:
        return []
    return [
        "What runs on the device (paper: Fig. 11), exported to ONNX, on one core, beside the whole model on the device; of "
        f"{by_part[f'{first}-{studied.CUTS[0]}-dpfe'][0]['device']['images']} test images exported halves decide as PyTorch does in {100 * min(same):.2f}% "
        f"(features differ by at most {max(largest):.1g}):",
        "",
        "| cut | ms an image (of the whole model's) | MiB: device / whole | parameters: device / whole | bytes sent |",
        "|---|---|---|---|---|",
        *rows,
        "",
        f"![Accuracy, privacy and cost of each cut](images/features-{world}.png)",
        *restored(world),
    ]


def restored(world: str) -> list[str]:
    """The picture of what a decoder restores, where it was drawn."""
    name = f"images/features-{world}-restored.png"
    if not (ROOT / "docs" / name).exists():
        return []
    rows = ", ".join(f"{cut} simple, {cut} dpfe" for cut in studied.CUTS)
    return [
        "",
        f"![What a decoder restores]({name})",
        "",
        f"From above: test people as they are; restored from {rows}.",
    ]


def draw_tradeoff(world: str, by_part: dict[str, list[dict[str, Any]]]) -> None:
    """Accuracy against log-rank privacy as noise grows, a line for each cut, which its cost is beside."""
    first = next(iter(studied.WORLDS[world].sets))
    figure = Figure(figsize=(7, 4.5), dpi=110, layout="constrained")
    axes = figure.subplots()
    for number, cut in enumerate(studied.CUTS):
        for variant, style in (("dpfe", "-o"), ("simple", ":s")):
            records = by_part.get(f"{first}-{cut}-{variant}", [])
            if not records:
                continue
            points = [
                [
                    statistics.mean(of(record["curve"][at]) for record in records)
                    for of in (mean_accuracy, strongest_privacy)
                ]
                for at in range(len(studied.RATIOS))
            ]
            cost = statistics.median(
                record["device"]["costs"]["device"]["milliseconds"] for record in records
            )
            axes.plot(
                *zip(*points, strict=True),
                style,
                color=f"C{number}",
                markersize=4,
                label=f"{cut}, {variant}: {cost:.2f} ms",
            )
    guessing = next(iter(by_part.values()))[0]["curve"][0]["adversaries"]["density"]["guessing"]
    axes.axhline(guessing, color="0.5", linestyle="--", linewidth=1, label="blind guessing")
    axes.set_xlabel("accuracy, as noise grows from right to left")
    axes.set_ylabel("log-rank privacy, strongest adversary")
    axes.legend(fontsize=8, frameon=False)
    figure.savefig(ROOT / "docs" / "images" / f"features-{world}.png", metadata={"Software": None})


def superiority(by_part: dict[str, list[dict[str, Any]]], ours: str, theirs: str) -> str:
    """Whether one model's curve is above another's at every accuracy that both reach, for each seed."""
    others = {record["seed"]: record for record in by_part.get(theirs, [])}
    found = [
        superior(
            *(
                [(mean_accuracy(point), strongest_privacy(point)) for point in record["curve"]]
                for record in (one, others[one["seed"]])
            )
        )
        for one in by_part.get(ours, [])
        if one["seed"] in others
    ]
    if not found:
        return ""
    mean = [one.mean for one in found]
    return (
        f"{ours} over {theirs} in {sum(map(bool, found))} of {len(found)} (mean gain {averaged(mean, 1, 3)})"
    )


def mean_accuracy(point: dict[str, Any]) -> float:
    """Over the attributes of a point of a curve."""
    return statistics.mean(point["accuracies"].values())


def strongest_privacy(point: dict[str, Any]) -> float:
    """The log-rank privacy against the strongest adversary of a point of a curve."""
    return float(point["adversaries"][point["strongest"]]["lrp"])


def share(records: list[dict[str, Any]], target: str) -> str:
    """The accuracy of one attribute without noise, in %."""
    return averaged([record["curve"][0]["accuracies"][target] for record in records])


def averaged(found: list[float], unit: float = 100, digits: int = 1) -> str:
    """A mean over seeds, with its interval where there are three or more."""
    text = f"{unit * statistics.mean(found):.{digits}f}"
    return text if len(found) < 3 else f"{text} +- {unit * half_width(found):.{digits}f}"


def people() -> list[str]:
    """Whether measures order distortions as people do."""
    paths = [RESULTS / "people" / f"{name}.json" for name in ("mse", "psnr", "ssim", "squeezenet", "semsim")]
    found = {path.stem: json.loads(path.read_text()) for path in paths if path.exists()}
    if not found:
        return []
    first = next(iter(found.values()))
    lines = [
        "## Do measures order distortions as people do? (Geirhos et al. 2018)",
        "",
        "Kendall's tau-b of the order of conditions by a measure with that by the share that people recognised, 1 where both are the same; 95% bootstrap intervals over conditions. 1 to 1 says only that resamples of a perfect order are perfect.",
        "",
        f"| distortion | conditions | {' | '.join(found)} |",
        f"|---|---|{'---|' * len(found)}",
    ]
    for name in sorted(first["agreement"], key=lambda each: (each == "all", each)):
        taus = [record["agreement"][name]["kendall"] for record in found.values()]
        cells = [f"{tau['value']:.2f} ({tau['low']:.2f} to {tau['high']:.2f})" for tau in taus]
        lines.append(f"| {name} | {first['agreement'][name]['models']} | {' | '.join(cells)} |")
    return [
        *lines,
        "",
        "Within one kind of distortion measures nearly always have the order of people; over all kinds they do not. `squeezenet` is the unweighted distance of SqueezeNet 1.0 features, not LPIPS."
        + (
            " `semsim` is a LeNet at 32x32, trained on what proxy annotators recognised in four other data sets, none of "
            "whose images were distorted so."
            if "semsim" in found
            else ""
        ),
        "",
        f"- `python studies/people.py`, {first['images']} colour photographs of Caltech-101 enlarged from 84 to 224 pixels, seed {first['seed']}. People saw others, of ImageNet.",
        "",
    ]


def training_audits() -> list[str]:
    """Lower bounds of private training beside what is stated."""
    if not audit_training.RECORDS.exists():
        return []
    return [
        "## The audit of private training: a canary task is in the pool or not",
        "",
        *audit_training.table(),
        "",
    ]


def networks() -> list[str]:
    """Public weights on real faces and objects."""
    record = json.loads((RESULTS / "face-networks.json").read_text())
    faces, objects = record["faces"], record["objects"]
    lines = [
        "## Networks with public weights",
        "",
        f"MobileFaceNet on {faces['pairs']:,} pairs of LFW, 84x84 crops enlarged, the threshold chosen on nine folds and "
        "tested on the tenth (wanted: 98%):",
        "",
        "| landmarks | accuracy, % (standard error) | AUC | TAR at FAR 1e-3, % |",
        "|---|---|---|---|",
    ]
    for name, found in faces["verification"].items():
        lines.append(
            f"| {name} | {100 * found['accuracy']:.2f} ± {100 * found['standard_error']:.2f} | {found['auc']:.4f} "
            f"| {100 * found['tar_at_far_1e-3']:.1f} |"
        )
    detection = faces["detection"]
    shots = [
        f"{name}: {100 * found['accuracy']:.1f} ± {100 * found['half_width_95%']:.1f}%"
        for name, found in objects.items()
        if isinstance(found, dict)
    ]
    return [
        *lines,
        "",
        f"MTCNN finds a central face in {100 * detection['central_face_found']:.1f}% of {faces['images']:,} crops (wanted: "
        f"95%), {detection['landmark_error_pixels']['mean']:.2f} pixels off the stored landmarks in the mean. Those were "
        "found by the same weights on the full photographs: this measures what is lost at 84 pixels, not the error "
        "against people's annotation. Two or three false pairs decide the TAR at 1e-3.",
        "",
        f"SqueezeNet features, nearest centroid, {objects['classes']} test classes of Caltech-101, {objects['episodes']} "
        f"episodes, 95% intervals: {'; '.join(shots)}.",
        "",
        f"- `python studies/faces_networks.py ../shared/data`, seed {record['seed']}, {record['seconds'] / 60:.1f} min on one core.",
        "",
    ]


def noises() -> list[str]:
    """How wide the noise of both DP-Pix mechanisms is, in closed form, at the same (eps, delta)."""
    cell, channels, side = 8, 3, 84
    epsilon, delta = 1.0, 1e-6
    areas = cell_areas(side, side, cell)
    rho = Budget.parse(f"epsilon={epsilon:g},delta={delta:g}").amount
    lines = [
        "## Laplace or Gaussian noise on cell sums",
        "",
        f"Standard deviation of the noise in a whole cell, in grey levels: cell={cell}, colour, {side}x{side}, both at "
        f"epsilon = {epsilon:g} and delta = {delta:g} (rho = {rho:.4g}; Laplace noise spends no delta).",
        "",
        "| pixels that may differ, m | dp-pix | dp-pix-gaussian | less noise |",
        "|---|---|---|---|",
    ]
    for pixels in (1, 16, 64, 256, 1024, 4096):
        laplace = math.sqrt(2) * 255 * pixels * channels / epsilon / cell**2
        squares = int((spread(pixels, areas, largest_first=True) ** 2).sum())
        gaussian = 255 * math.sqrt(squares * channels / (2 * rho)) / cell**2
        better = "dp-pix" if laplace < gaussian else "dp-pix-gaussian"
        lines.append(f"| {pixels} | {laplace:.3g} | {gaussian:.3g} | {better} |")
    return [
        *lines,
        "",
        "- Closed forms, made by `python studies/results.py`. A standard deviation above some 100 leaves little but black and "
        "white: that many pixels cannot be hidden at this epsilon by either.",
        "",
    ]


def kills() -> list[str]:
    """What was left after `sfumato protect` was killed again and again."""
    record = json.loads((RESULTS / "kills.json").read_text())
    writing = sum(kill["during"] == "writing" for kill in record["kills"])
    alone = sum(not kill["workers_too"] for kill in record["kills"])
    problems = record["problems"] or ["none"]
    return [
        "## Killed with -9 and started again",
        "",
        f"{len(record['kills'])} kills of `sfumato protect` with 2 workers on {record['files']:,} files, {writing} of "
        f"them while releases were being written, {alone} of the main process alone. After each, every output was "
        f"compared with the ledger; at the end: {record['charges']:,} charges for "
        f"{record['different_images']:,} different images, {record['outputs']:,} outputs, as in the manifest. "
        f"Problems: {'; '.join(problems)}.",
        "",
        f"- `python studies/kills.py`, seed {record['seed']}, {record['wall_s']:.0f} s.",
        "",
    ]


def cluster() -> list[str]:
    """What a study on a cluster came to whose workers, nodes and driver were killed."""
    record = json.loads((RESULTS / "cluster.json").read_text())
    killed = record["killed"]
    return [
        "## A study on a cluster that is lost in parts",
        "",
        f"{record['cells']} cells on a Ray cluster of two nodes, in processes of one machine: {killed['workers']} workers "
        f"killed with -9 in the middle of their cells, the driver killed {killed['drivers']} time and started again, "
        f"{killed['nodes']} node lost and another joined. {record['records']} records in the end, {len(record['made_again'])} of "
        "which were made a second time after the driver was killed. The report "
        f"{'is' if record['report_is_the_same_but_for_times'] else 'is NOT'} byte for byte that of the same study "
        "in one process without any of this, once all times are set to nought.",
        "",
        f"- `python studies/cluster.py`, {record['wall_s']:.0f} s.",
        "",
    ]


def faults() -> list[str]:
    """What the service did while everything around it broke."""
    record = json.loads((RESULTS / "faults.json").read_text())
    sqlite, postgres = record["kills on SQLite"], record["kills on PostgreSQL"]
    slow, idle, full, clock = (record[part] for part in ("slow", "idle", "full", "clock"))
    problems = [
        f"{part}: {problem}"
        for part, each in record.items()
        if isinstance(each, dict)
        for problem in each["problems"]
    ]
    answers = "; ".join(
        f"{int(shift[:-1]) // 365:+d} years: "
        + ", ".join(f"{count} times {code}" for code, count in each.items())
        for shift, each in clock["answers"].items()
    )
    return [
        "## A service around which things break",
        "",
        f"- Killed with -9 in the middle of enrolments and started again, {sqlite['kills']} times on SQLite and "
        f"{postgres['kills']} on PostgreSQL: {sqlite['examples_acknowledged']} and {postgres['examples_acknowledged']} examples were "
        f"acknowledged, {sqlite['requests_lost_and_sent_again']} and {postgres['requests_lost_and_sent_again']} requests "
        "lost and sent again; afterwards each example is there, whole and once.",
        f"- PostgreSQL stopped and started: 503 meanwhile, well again {record['database']['well_again_after_s']:.2f} s after it.",
        f"- A full disk: {full['answers'].get('503', 0)} enrolment refused with 503, all {full['acknowledged']} that were "
        "acknowledged before are there, and once there is room the rest goes on.",
        f"- {slow['clients']} clients that send a byte a second are turned away with 408 after {slow['longest_s']:.0f} s; others "
        f"wait {slow['others_meanwhile']['p50_ms']:.1f} ms at the median meanwhile, {slow['others_before']['p50_ms']:.1f} before.",
        f"- {idle['connections']:,} connections that say nothing: {idle['others_meanwhile']['p50_ms']:.1f} ms at the median meanwhile, "
        f"{idle['others_before']['p50_ms']:.1f} before; the slowest answer took {idle['others_meanwhile']['max_ms']:.0f} ms, while they connect.",
        *(_attack(name, record[part]) for part, name in _ATTACKS.items()),
        f"- A clock that is years off ({answers}, where 10 a minute are allowed): no answer is wrong, "
        "a clock that is set back lengthens the minute under way to two at most, and with the right clock all is as before.",
        f"- Problems: {'; '.join(problems) or 'none'}.",
        "",
        f"`python studies/faults.py`, seed {record['seed']}, {record['wall_s']:.0f} s, on a machine that was busy with other work.",
        "",
    ]


_ATTACKS = {
    "half headers": "1,100 connections that send half a header and come again, to a server of 1,024 descriptors",
    "bodies": "120 bodies of 16 MB that never end, by a client with a key",
    "siege": "3,000 half headers, 120 such bodies, 16 PNGs of 9000x9000 pixels (8 of which say 16x16 first), 200 "
    "connections that are kept alive, 50 clients that do not read an answer of 30 MB, and 200 requests that are no "
    "HTTP, all at once",
    "siege at 1,024 descriptors": "The same to a server of 1,024 descriptors",
}


def _attack(name: str, part: dict[str, Any]) -> str:
    """How others fared while a server was attacked."""
    before, meanwhile = part["before"], part["meanwhile"]
    asked = meanwhile["honest_answered"] + sum(meanwhile["honest_failed"].values())
    return (
        f"- {name}: of {asked} questions of others, each on a connection of its own, {meanwhile['honest_answered']} "
        f"are answered, within {meanwhile['honest_p50_ms']:.0f} ms at the median and {meanwhile['honest_p99_ms']:.0f} at "
        f"the 99th percentile ({before['p50_ms']:.0f} at the median before, over one connection); the server takes "
        f"{meanwhile['memory_mb']} MB at most ({before['memory_mb']} before), and writes {part['log_bytes']} bytes of log."
    )


def mutants() -> list[str]:
    """What the reader did with damaged files."""
    record = json.loads((RESULTS / "fuzz.json").read_text())
    lines = [
        "## Mutated image files",
        "",
        "| format | mutants | read | refused | anything else |",
        "|---|---|---|---|---|",
    ]
    for name, counts in record["counts"].items():
        total, read = sum(counts.values()), counts.get("read", 0)
        failed = sum(count for outcome, count in counts.items() if outcome.startswith("FAILED"))
        lines.append(f"| {name} | {total:,} | {read:,} | {total - read - failed:,} | {failed} |")
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return [
        *lines,
        "",
        f"- `python studies/fuzz.py --files {record['files']} --seed {record['seed']}`: {record['wall_seconds']:.0f} s; the "
        f"slowest file took {record['slowest_ms']:.0f} ms, the largest {record['peak_mb']:.0f} MB. Each file is read under "
        f"an alarm of 2 s, a limit on memory of 20 bytes for each of {record['max_pixels']:,} pixels, and with warnings "
        "as errors.",
        f"- {versions}.",
        "",
    ]


def threat_model() -> str:
    """The page on threats, with its tables made anew."""
    study, records = load("demo")
    risks = recommend.risks(study, records)
    lines = [
        "| protection | static adversary, % | adaptive adversary, % | task accuracy, % | proved of one pixel; of the whole image |",
        "|---|---|---|---|---|",
    ]
    for one in recommend.frontier(study, records):
        rates = []
        for attack in ("reidentify-static", "reidentify-adaptive"):
            found = risks.get((one.protection, attack))
            top1 = found and found.top1
            rates.append(
                f"{100 * top1.value:.1f} ({100 * top1.low:.1f} to {100 * top1.high:.1f})" if top1 else "–"
            )
        guarantee = protect.parse(one.protection).guarantee((3, 32, 32))
        symbol = "" if guarantee is None else SYMBOLS[guarantee.definition]
        proved = (
            "nothing"
            if guarantee is None
            else f"{symbol} = {rounded_up(guarantee.value)}; {rounded_up(guarantee.whole_image)}"
        )
        accuracy = "–" if one.accuracy is None else f"{100 * one.accuracy.value:.1f}"
        lines.append(f"| `{one.protection}` | {' | '.join(rates)} | {accuracy} | {proved} |")
    chance = next(record["result"]["chance"] for record in records if record["kind"] == "attack")
    seconds = sum(record["seconds"] for record in records)
    lines.append("")
    lines.append(
        f"Chance is {100 * chance:.1f}%. Intervals are 95%, over probes. `make demo`, seed 0, "
        f"{seconds / 60:.1f} min on two cores: the adversaries are trained for seconds, and a stronger one may find more."
    )
    text = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
    text = remade(text, "<!-- made by `make results` -->", lines)
    return remade(text, "<!-- stored embeddings, made by `make results` -->", stored_embeddings.table())


def remade(page: str, begin: str, lines: list[str]) -> str:
    """A page with other lines between a mark and the next end."""
    end = "<!-- end -->"
    before, rest = page.split(begin)
    return "\n".join([before + begin, *lines, end + rest.partition(end)[2]])


def main() -> None:
    """Write docs/results.md, and the table of docs/threat-model.md."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--collect", action="store_true", help="take the records of runs/ first")
    parser.add_argument("--restore", action="store_true", help="put committed records under runs/, no more")
    arguments = parser.parse_args()
    if arguments.restore:
        for name in STUDIES:
            restore(name)
        return
    if arguments.collect:
        for name in STUDIES:
            collect(name)
    text = "\n".join(
        [
            "# Results",
            "",
            "Made by `make results` from the records under `studies/results`; `make studies` runs the studies anew "
            "(real Omniglot is read from `../shared/data`). Intervals are 95%, over test episodes or probes; they do "
            "not cover another training seed. Times are wall times on a 2-core machine, for orientation.",
            "",
            *clean(),
            *three_models(
                "omniglot",
                "Omniglot, three models on protected images (paper: Fig. 3, top, and Fig. 4)",
                ON_OMNIGLOT,
            ),
            *cells(),
            *three_models(
                "lfw-models", "LFW, three models on protected faces (paper: Fig. 3 and 4)", ON_PHOTOGRAPHS
            ),
            *reidentified(),
            *transferred(),
            *attributes(),
            *three_models(
                "caltech101-models",
                "Caltech-101, three models on protected objects (paper: Fig. 3 and 11)",
                ON_PHOTOGRAPHS,
            ),
            *ranges(),
            *worlds(),
            *demo(),
            *networks(),
            *noises(),
            *meta_clean(),
            *meta_private(),
            *audits(),
            *training_audits(),
            *masked(),
            *features(),
            *stored_embeddings.stored(),
            *reconstruction_tables.inversion(),
            *reconstruction_tables.reconstruction(),
            *people(),
            *kills(),
            *cluster(),
            *faults(),
            *hostile.chapter(),
            *device_tables.near_copies(),
            *device_tables.guard(),
            *mutants(),
        ]
    )
    (ROOT / "docs" / "threat-model.md").write_text(threat_model(), encoding="utf-8")
    (ROOT / "docs" / "results.md").write_text(text, encoding="utf-8")
    print(json.dumps({"written": "docs/results.md", "lines": text.count("\n")}))


if __name__ == "__main__":
    main()
