"""Make docs/results.md from the records under studies/results.

    python studies/results.py             # docs/results.md from the records that are committed
    python studies/results.py --collect   # first take the records of finished runs from runs/

Every figure of docs/results.md comes from here; the words around them are checked against the figures where
they state an order.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from sfumato.study import recommend, report

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "studies" / "results"
STUDIES = ("omniglot-5shot", "omniglot-1shot", "omniglot", "glyphs", "demo")
KEPT = ("accuracy", "attack", "similarity")  # pictures and embeddings are for the report alone


def collect(name: str) -> None:
    """Copy study.json and the small records of a finished run."""
    run = ROOT / "runs" / name
    if not (run / "study.json").exists():
        return
    study, records = report.load(run)
    missing = {one["digest"] for one in study["cells"]} - {record["digest"] for record in records}
    if missing:
        print(f"{name}: {len(missing)} cells are missing, so its records are left where they are")
        return
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
    """Clean Conv-4 on Omniglot."""
    lines = [
        "## Omniglot, clean images, Conv-4",
        "",
        "| test | accuracy, % (95% interval) | wanted | published | episodes trained | training time |",
        "|---|---|---|---|---|---|",
    ]
    notes = []
    for name, wanted, published in (
        ("omniglot-5shot", 99.2, "99.7 (Snell et al. 2017); about 99 (Parnami et al. 2022)"),
        ("omniglot-1shot", 97.5, "98.8 (Snell et al. 2017)"),
    ):
        study, records = load(name)
        found = result(records, "accuracy", learner="clean")
        kept = "reached" if 100 * found["accuracy"] >= wanted else "NOT reached"
        lines.append(
            f"| 5-way {study['task']['shot']}-shot | {percent(found)} | ≥ {wanted}: {kept} | {published} "
            f"| {found['trained_episodes']} | {found['train_seconds'] / 60:.1f} min |"
        )
        notes.append(f"- `studies/{name}.yaml`: {setting(study, records)}")
    return [*lines, "", *notes, ""]


def three_models() -> list[str]:
    """The paper's Fig. 3 (top) and Fig. 4 on Omniglot."""
    study, records = load("omniglot")
    lines = [
        "## Omniglot, three models on protected images (paper: Fig. 3, top, and Fig. 4)",
        "",
        "| protection | clean-trained | protected | protected + denoiser | gain of the denoiser | SSIM released "
        "| SSIM denoised | training time, protected / denoised |",
        "|---|---|---|---|---|---|---|---|",
    ]
    baseline = result(records, "accuracy", protection="none", learner="clean")
    lines.append(f"| `none` | {percent(baseline)} | | | | | | |")
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
        lines.append(
            f"| `{spec}` | {percent(models['clean'])} | {percent(models['protected'])} "
            f"| {percent(models['denoised'])} | {gain:+.2f}% | {views['released']['ssim']:.3f} "
            f"| {views['denoised']['ssim']:.3f} | {minutes} min |"
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
        f"(gain from {min(gains):+.2f}% to {max(gains):+.2f}%). The paper reports positive gains, up to about 5% on "
        "Omniglot at σ = 200.",
        "",
        f"- `studies/omniglot.yaml`: {setting(study, records)}",
        "- The paper shows these accuracies as curves without numbers; its text gives 0.99 for clean on clean, the "
        "order of the three models, and the gains.",
        "- Where it differs: the paper trains 60-way for up to 50,000 episodes with early stopping; here all three "
        f"models get the same few 20-way episodes, and clean on clean reaches {percent(baseline)}. The obfuscations "
        "work on 8-bit values with border cells kept; DP-Pix adds exact integer noise to cell sums.",
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


def demo() -> list[str]:
    """The embedded faces world: accuracy against re-identification."""
    study, records = load("demo")
    lines = [
        "## The demo: which headwear, not who (embedded `faces` world)",
        "",
        "| protection | best accuracy, % | learner | strongest re-identification, % | by | chance, % | frontier |",
        "|---|---|---|---|---|---|---|",
    ]
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


def main() -> None:
    """Write docs/results.md."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--collect", action="store_true", help="take the records of finished runs first")
    if parser.parse_args().collect:
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
            *three_models(),
            *worlds(),
            *demo(),
        ]
    )
    (ROOT / "docs" / "results.md").write_text(text, encoding="utf-8")
    print(json.dumps({"written": "docs/results.md", "lines": text.count("\n")}))


if __name__ == "__main__":
    main()
