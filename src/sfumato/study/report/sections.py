"""The sections of a report, in the order of the page; each is a function of the results.

None if there is nothing to show. A section is a table or charts, and the words of its template.
"""

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

from sfumato.base.proportions import wilson
from sfumato.study.choose.figures import (
    OVER_PEOPLE,
    Curve,
    Estimate,
    Setting,
    classifier_in_words,
    estimate_of,
    percent,
)
from sfumato.study.choose.results import Results
from sfumato.study.hits import join
from sfumato.study.report import charts
from sfumato.study.report.tables import (
    DASH,
    MARK,
    Column,
    Section,
    Table,
    Value,
    settings_table,
    show_estimate,
)
from sfumato.study.vocabulary import (
    ADVERSARY_LOOKS,
    ATTACKS,
    IMAGES,
    LEARNERS,
    MEASURES,
    RECONSTRUCTIONS,
    VIEWS,
    AttackWords,
    Look,
    MeasureWords,
    release_kind,
)

_ABREAST = 7  # labels that fit side by side on paper
_LINES = (("-", "full"), ((0, (5, 2)), "none"), ((0, (1.5, 1.5)), "left"), ((0, (6, 1.5, 1.5, 1.5)), "top"))


def _legend(looks: Iterable[tuple[str, Look]]) -> list[tuple[str, str]]:
    """(sample, name) of each look."""
    return [(charts.key(look), name) for name, look in looks]


def frontier(results: Results) -> Section:
    """Every setting, its cost and its worth, in charts and as a table; and the settings left out.

    If the secret is the task, static and adaptive adversaries are apart.
    """
    study, advice = results.study, results.advice
    secret, apart = study["task"].get("sensitive"), bool(study["task"].get("secret_is_task"))
    kinds = {
        kind: [name for name in ATTACKS if ATTACKS[name].adaptive == (kind == "adaptive")]
        for kind in (("static", "adaptive") if apart else ())
    }
    fronts = {f"Against {kind} adversaries": results.against(names) for kind, names in kinds.items()}
    drawn = [
        charts.frontier_chart(results, settings, title)
        for title, settings in (
            fronts or {"Best accuracy against strongest re-identification": results.settings}
        ).items()
    ]
    columns = [
        Column("best accuracy"),
        *(Column(f"strongest {kind}") for kind in kinds if secret),
        *[Column("strongest re-identification")] * bool(secret and not apart),
        Column("learner", number=False),
        *(Column(name, number=False) for name in ("adversary", "classifier") if secret and not apart),
    ]
    against = f" and {'each kind of adversary' if apart else 'its strongest adversary'}" if secret else ""
    caption = (
        f"Every setting with its best learner{against}; small numbers are the {results.spread} in percent."
    )
    if advice.setting and advice.setting.halves:
        caption += (
            " Here all people and test images count; the figures of the recommendation above are those of "
            "one half, which had no part in the choice."
        )
    chosen = advice.setting.protection if advice.setting else ""

    def row(setting: Setting) -> list[Any]:
        spec, risk = setting.protection, setting.risk
        badges = [
            *[("recommended", "")] * (spec == chosen),
            *[("frontier", "quiet")] * (setting.on_frontier and not apart),
            *[("incomplete", "open")] * bool(risk and not setting.complete),
        ]
        tops = [
            [results.risks[spec, name].top1 for name in names if (spec, name) in results.risks]
            for names in kinds.values()
        ]
        risks = [max(each, key=lambda top: top.value, default=None) for each in tops]
        by: list[Any] = []
        if not apart:
            risks = [risk.top1 if risk else None]
            by = [ATTACKS[risk.attack].short, classifier_in_words(risk.classifier)] if risk else [None, None]
        return [
            Value(spec, badges=tuple(badges)),
            show_estimate(setting.accuracy),
            *(map(show_estimate, risks) if secret else ()),
            setting.learner,
            *(by if secret else ()),
        ]

    looks = charts.looks(study)
    families = [(family.legend, looks[family.name]) for family in charts.families(study)]
    values = {
        "fronts": [chart for chart in drawn if chart],
        "apart": apart,
        "hollow": any(not setting.complete for setting in results.settings),
        "table": settings_table("settings", caption, columns, map(row, results.settings), chosen=chosen),
        "legend": _legend([("no protection", looks["none"]), *families]),
        "left_out": study.get("left_out") or [],
    }
    return Section("frontier", "Privacy and utility" if secret else "Utility", values)


def accuracy(results: Results) -> Section | None:
    """A chart per family of several settings, and a table of all; None without accuracies."""
    rates = results.accuracies
    if not rates:
        return None
    tested = {name for _, name in rates}
    learners = [LEARNERS[name] for name in results.learners if name in tested]
    panels = charts.accuracy_charts(results)
    drawn = {name for panel in panels for name in panel.series}
    looks = [
        *((learner.name, learner.look) for learner in learners if learner.name in drawn),
        ("clean images, clean learner", charts.CLEAN_LOOK),
        ("chance", charts.CHANCE_LOOK),
    ]
    table = settings_table(
        "accuracies",
        f"Accuracy of every learner at every setting; small numbers are the {results.spread} in "
        "percent. A dash: not measured.",
        [Column(learner.name) for learner in learners],
        [
            [spec, *(show_estimate(rates.get((spec, learner.name))) for learner in learners)]
            for spec in results.study["protections"]
            if any(spec == key for key, _ in rates)
        ],
    )
    values = {
        "panels": panels,
        "table": table,
        # Others know all classes from training, and have their own paragraph.
        "models": [learner for learner in learners if not learner.knows_classes or not results.episodic],
        "classifiers_beside": results.episodic and "classifier" in results.study,
        "legend": _legend(looks),
    }
    return Section("accuracy", "Accuracy of every learner", values, "Accuracy")


def risk(results: Results) -> Section | None:
    """A chart per family of several settings, and a table of all; None if no attack is recorded."""
    named = results.risks
    if not named:
        return None
    tried = {attack for _, attack in named}
    views = {
        view: [attack for attack in ATTACKS.values() if attack.view == view and attack.name in tried]
        for view in VIEWS
    }
    views = {view: attacks for view, attacks in views.items() if attacks}
    panels = charts.risk_charts(results)
    drawn = {name for panel in panels for name in panel.series}
    looks = [
        *((f"strongest {kind} adversary", look) for kind, look in ADVERSARY_LOOKS.items() if kind in drawn),
        ("static, no protection", charts.CLEAN_LOOK),
        ("chance", charts.CHANCE_LOOK),
    ]
    values = {
        "tried": [attack for attacks in views.values() for attack in attacks],
        "table": _table_of_risks(results, views),
        "panels": panels,
        "legend": _legend(looks),
    }
    return Section("risk", "Re-identification", values)


def _table_of_risks(results: Results, views: Mapping[str, Sequence[AttackWords]]) -> Table:
    """A row for each setting, a column for each attack, and one for faces that a detector found."""
    named = results.risks
    faces: dict[tuple[str, str], list[float]] = defaultdict(list)
    for record in results.of("attack"):
        if record.result.faces_found is not None:
            view = ATTACKS[record.cell.attack or ""].view
            faces[record.cell.protection, view].append(record.result.faces_found)
    tops = {spec: max(each.top1.value for (of, _), each in named.items() if of == spec) for spec, _ in named}
    only_images = all(release_kind(spec) in IMAGES for spec in results.study["protections"])
    columns: list[Column] = []
    rows: dict[str, list[Any]] = {spec: [spec] for spec in results.study["protections"]}
    for view, attacks in views.items():
        heading = VIEWS[view].heading
        heading += " images" if view == "released" and only_images else ""
        detected = view in {seen for _, seen in faces}
        columns += [Column("adaptive" if each.adaptive else "static", group=heading) for each in attacks]
        columns += [Column("faces found", group=heading)] * detected
        for spec, cells in rows.items():
            for attack in attacks:
                found = named.get((spec, attack.name))
                prefix = "≥ " if found and found.rising else ""
                marked = found is not None and found.top1.value == tops[spec]
                cells.append(show_estimate(found.top1 if found else None, prefix=prefix, marked=marked))
            if detected:
                shares = faces.get((spec, view))
                cells.append(Value(percent(statistics.fmean(shares))) if shares else DASH)
    chance = " to ".join(sorted({percent(each.chance) for each in named.values()}))
    caption = (
        "First guesses that are right, by the best classifier of each adversary; guessing alone: "
        f"{chance}. Small numbers are the {OVER_PEOPLE} in percent. {MARK} marks the strongest "
        "adversary of a row, a dash one who was not tried."
    )
    if any(each.rising for each in named.values()):
        caption += (
            " <em>≥</em>: a network of the adversary still gained when its training ended, so that the "
            "figure is a lower bound."
        )
    if faces:
        caption += " <em>Faces found</em> is the share of photographs on which their detector sees a face."
    return settings_table(
        "re-identification", caption, columns, rows.values(), mark="strongest", style="attacked"
    )


def many(results: Results) -> Section | None:
    """What many releases of one person tell: a device sends hundreds in a year; None without such records."""
    recorded = results.curves
    if not recorded:
        return None
    sizes = sorted({point.releases for curve in recorded.values() for point in curve.points})
    most = "from the most releases that were looked at"
    columns = [
        Column("guessing"),
        *(Column(str(size), group="named, by number of releases") for size in sizes),
        Column("the most named person", group=most),
        Column("named in over half of the tries", group=most),
        Column("recognised at 1% false alarms", group=most),
        Column("linked across two services", group=most),
    ]

    def row(spec: str, curve: Curve) -> list[Any]:
        last, points = curve.points[-1], [curve.after(size) for size in sizes]
        return [
            spec,
            percent(last.chance),
            *(show_estimate(point.named if point else None) for point in points),
            *map(percent, (last.worst, last.over_half, last.accepted)),
            show_estimate(last.linked),
        ]

    table = settings_table(
        "many releases",
        f"Small numbers are the {OVER_PEOPLE} in percent; guessing names one of the people of a "
        "panel. A dash: too few pictures, or named too often already.",
        columns,
        [row(spec, recorded[spec]) for spec in results.study["protections"] if spec in recorded],
        style="attacked",
    )
    return Section("many", "What many releases of one person tell", {"table": table}, "Many releases")


def log_rank_privacy(results: Results) -> Section | None:
    """The curves of accuracy and privacy, and a row for each setting; None without such records."""
    found = results.group("log-rank")
    if not found:
        return None
    (one, *_), rows = next(iter(found.values())), []
    curves: dict[str, list[tuple[str, Estimate, Estimate]]] = defaultdict(list)  # by all but the noise
    for (spec, _), seeds in found.items():
        privacy = results.together([(each.lrp, each.low, each.high) for each in seeds], [None])
        strongest = ", ".join(dict.fromkeys(each.strongest for each in seeds))
        right = [(each.accuracy, each.images) for each in seeds if each.accuracy is not None]
        shares = [(share, *wilson(round(share * images), images)) for share, images in right]
        rate = results.together(shares, [images for _, images in right]) if right else None
        shown = Value(f"{privacy.value:.3f}", (f"{privacy.low:.3f}–{privacy.high:.3f}",))
        rows.append([spec, shown, strongest, show_estimate(rate)])
        if rate:
            curves[str({**charts.parameters(spec), "noise": ""})].append((spec, privacy, rate))
    table = settings_table(
        "log-rank privacy",
        f"Among {one.identities} people. Small numbers are the {results.spread}.",
        [
            Column("log-rank privacy", f"blind guessing {one.guessing:.3f}"),
            Column("strongest adversary", number=False),
            Column("accuracy", "by the feature’s own classifier"),
        ],
        rows,
    )
    drawn, looks = {}, [("guessing", charts.CHANCE_LOOK)]
    for curve, (line, fill) in zip(curves.values(), cycle(_LINES), strict=False):
        look = replace(charts.looks(results.study)["feature"], line=line, fill=fill)
        title = charts.Family.of("feature", [spec for spec, *_ in curve]).title
        noisy = [(charts.parameters(spec)["noise"], x, y) for spec, x, y in curve]
        noisy.sort(key=lambda point: float(point[0]))
        drawn[title] = [(x, y, look, noise, charts.RADIUS) for noise, x, y in noisy]
        looks.insert(-1, (title, look))
    chart = charts.log_rank_chart(drawn, one.guessing, one.chance) if drawn else None
    values = {"table": table, "chart": chart, "legend": _legend(looks)}
    return Section("log-rank", "How late the right person is guessed", values, "Log-rank privacy")


def inference(results: Results) -> Section | None:
    """How often each attribute is inferred, with guessing and its bound; None without attributes."""
    inferred, bounds = results.inferences, results.bounds
    if not inferred:
        return None
    chances = {label: each.chance for (_, label), each in inferred.items()}

    def cell(spec: str, label: str) -> Value:
        each = inferred.get((spec, label))
        if each is None:
            return DASH
        shown = show_estimate(each.top1, each.adversary, marked=each.top1.value > bounds[label])
        return replace(shown, small=(f"{shown.small[0]};", *shown.small[1:]))

    table = settings_table(
        "inferences",
        "How often each attribute is inferred by the strongest adversary; small numbers are the "
        f"{OVER_PEOPLE} in percent. {MARK} marks what is above the bound.",
        [
            Column(label, f"at most {percent(bound)}; guessing {percent(chances[label])}")
            for label, bound in bounds.items()
        ],
        [[spec, *(cell(spec, label) for label in bounds)] for spec in results.study["protections"]],
        mark="above the bound",
        style="stacked",
    )
    return Section("inference", "Attribute inference", {"table": table})


def reconstruction(results: Results) -> Section | None:
    """A row for each protection and attack; None without such records."""
    found = results.group("reconstruction")
    if not found:
        return None
    tried = [attack for name, attack in RECONSTRUCTIONS.items() if any(name == made for _, made in found)]
    pictured = any(seeds[0].originals for seeds in found.values())
    rows = []
    for spec in results.study["protections"]:
        for attack in tried:
            if seeds := found.get((spec, attack.name)):
                left = ", ".join(in_words([result.measures for result in seeds]))
                rows.append(
                    [
                        spec,
                        attack.words,
                        *[Value("", pictures=_name_each(seeds[0].originals, "original {}"))] * pictured,
                        Value(
                            "",
                            (left,),
                            pictures=_name_each(seeds[0].pictures, f"image {{}} rebuilt from {spec}"),
                        ),
                    ]
                )
    what = (
        "Original and rebuilt images of each setting, and how alike they are"
        if pictured
        else "How alike original and rebuilt images are"
    )
    seeds_of = f" and {len(results.study['seeds'])} seeds" if results.is_repeated else ""
    table = settings_table(
        "reconstruction",
        f"{what}: means over {max(seeds[0].images for seeds in found.values())} test images{seeds_of}",
        [Column(name, number=False) for name in ("adversary", *["original"] * pictured, "rebuilt")],
        rows,
        style="pictures rebuilt",
    )
    values = {"attacks": tried, "pictured": pictured, "table": table}
    return Section("reconstruction", "What adversaries rebuild", values, "Reconstruction", pictured)


def _name_each(uris: Iterable[str], words: str) -> tuple[tuple[str, str], ...]:
    """Pictures, with their words, in which their number stands."""
    return tuple((uri, words.format(number)) for number, uri in enumerate(uris, 1))


def tells(results: Results) -> Section | None:
    """How often releases tell every other label of the data, with guessing; None without such records.

    Neither the task nor the secrets: better learners and adversaries measure these, in their own sections.
    """
    task = results.study["task"]
    elsewhere = {task["target"], task.get("sensitive"), *(task.get("attributes") or [])}
    found: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for record in results.of("tells"):
        for name, label in record.result.labels.items():
            if name not in elsewhere:
                found[record.cell.protection, name].append(label)
    if not found:
        return None
    guesses = {key: statistics.fmean(seed.guessing for seed in seeds) for key, seeds in found.items()}

    def cell(spec: str, name: str) -> Value:
        """Marked if all of the interval is above guessing."""
        if (spec, name) not in found:
            return DASH
        rate = estimate_of(join([seed.counted for seed in found[spec, name]], folds=results.folds))
        return show_estimate(rate, marked=rate.low > guesses[spec, name])

    def guessing(name: str) -> str:
        """From the least to the largest share, in percent."""
        shares = sorted(guess for (_, of), guess in guesses.items() if of == name)
        return " to ".join(dict.fromkeys(map(percent, (shares[0], shares[-1]))))

    names = list(dict.fromkeys(name for _, name in found))
    parts = [names[first : first + _ABREAST] for first in range(0, len(names), _ABREAST)]
    made = [
        settings_table(
            f"labels {number}" if len(parts) > 1 else "labels",
            "How often a label is read correctly; small numbers are the "
            f"{OVER_PEOPLE} in percent. {MARK} marks what is given away: the interval is above guessing.",
            [Column(name, f"guessing {guessing(name)}") for name in part],
            [
                [spec, *(cell(spec, name) for name in part)]
                for spec in results.study["protections"]
                if any(spec == protection for protection, _ in found)
            ],
            mark="given away",
        )
        for number, part in enumerate(parts, 1)
    ]
    return Section("tells", "What else a release tells", {"tables": made}, "What else it tells")


def pictures(results: Results) -> Section | None:
    """A row for each protection that releases images; without pictures the amount that is left of them.

    None if there is neither.
    """
    shown: dict[str, Any] = {}
    for record in results.of("pictures"):
        shown.setdefault(record.cell.protection, record.result)
    left: dict[tuple[str, str], str] = {}
    for key, seeds in results.group("similarity").items():
        two = "face-similarity_of_two"
        left[key] = ", ".join(
            in_words([{**each.measures, two: (each.model_extra or {}).get(two)} for each in seeds])
        )
    specs = [spec for spec in results.study["protections"] if spec in shown or (spec, "released") in left]
    if not specs:
        return None
    originals: dict[str, int] = {}  # number of each, which several rows show
    for result in shown.values():
        for uri in result.original:
            originals.setdefault(uri, len(originals))
    views = ["released"] + [
        view
        for view in ("denoised", "restored")
        if any(getattr(result, view) for result in shown.values())
        or (not originals and any(view == seen for _, seen in left))
    ]
    rows = []
    for spec in specs:
        result = shown.get(spec)
        numbers = [originals[uri] for uri in result.original] if result else []
        cells = [Value("", pictures=tuple((f"#original-{n}", f"original {n + 1}") for n in numbers))] * bool(
            originals
        )
        for view in views:
            uris = getattr(result, view, None) or ()
            words = "restored by an adversary" if view == "restored" else view
            after = "with" if view == "released" else "after"
            small = left.get((spec, view), "–")
            cells.append(Value("", (small,), pictures=_name_each(uris, f"image {{}} {words} {after} {spec}")))
        rows.append([spec, *cells])
    table = settings_table(
        "pictures",
        f"{'Images' if originals else 'Likeness to the original'} at each setting; the words at the end say "
        "what SSIM and the others are",
        [Column(name, number=False) for name in [*["original"] * bool(originals), *views]],
        rows,
        style="pictures four" if "restored" in views else "pictures",
    )
    values = {"views": views, "originals": list(originals), "table": table}
    if originals:
        return Section("pictures", "What is seen", values, "Pictures", originals=True)
    return Section("pictures", "How much of an image is left", values, "Likeness")


def in_words(seeds: Sequence[dict[str, float | None]]) -> list[str]:
    """The measures that all seeds have, "SSIM 0.41" and so on: means over them."""
    words = []
    for name, measure in MEASURES.items():
        if measure.beside_pictures and all(name in means for means in seeds):
            words.append(f"{measure.words} {_mean(measure, seeds, name)}")
            infinite = sum(means[name] is None for means in seeds)
            if 0 < infinite < len(seeds):
                words[-1] += f" (an image is unchanged in {infinite} of {len(seeds)} seeds)"
            if all(means.get(f"{name}_of_two") is not None for means in seeds):
                words[-1] += f" (of two people {_mean(measure, seeds, f'{name}_of_two')})"
    return words


def _mean(measure: MeasureWords, seeds: Sequence[dict[str, float | None]], name: str) -> str:
    """In print, without the sign of a zero; infinite if one is, as PSNR is of an unchanged image."""
    values = [value for means in seeds if (value := means.get(name)) is not None]
    if len(values) < len(seeds):
        return "∞"
    text = measure.form.format(statistics.fmean(values))
    return text if re.search("[1-9]", text) else text.removeprefix("-")
