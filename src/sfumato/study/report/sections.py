"""The sections of a report, in the order of the page; each is a function of the results.

None if there is nothing to show. A section is a table or charts, and the words of its template.
"""

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

from sfumato.assess.hits import join
from sfumato.base.proportions import wilson
from sfumato.dp.guarantee import round_up
from sfumato.study import vocabulary
from sfumato.study.choose.figures import Setting, classifier_in_words, estimate_of, percent
from sfumato.study.choose.groups import FEWEST, GROUPED, by_group
from sfumato.study.choose.results import Results
from sfumato.study.report import charts
from sfumato.study.report.tables import Column, Section, Value, settings_table, show_estimate, text_column
from sfumato.study.vocabulary import ATTACKS, LEARNERS, MEASURES, RECONSTRUCTIONS, VIEWS, Look, MeasureWords

_ABREAST = 7  # labels that fit side by side on paper


def _legend(looks: Iterable[tuple[str, Look]]) -> list[tuple[str, str]]:
    return [(charts.key(look), name) for name, look in looks]


def frontier(results: Results) -> Section:
    """Every setting, its cost and its worth; and the settings left out."""
    study, advice, secret = results.study, results.advice, results.study["task"].get("sensitive")
    proofs = results.proofs
    chosen = advice.setting.protection if advice.setting else ""

    def head(setting: Setting) -> Value:
        badges = {
            ("recommended", ""): setting.protection == chosen,
            ("frontier", "quiet"): setting.on_frontier,
            ("incomplete", "open"): bool(setting.risk and not setting.complete),
        }
        return Value(setting.protection, badges=tuple(badge for badge, has in badges.items() if has))

    def surest(setting: Setting) -> Value:
        shown = show_estimate(setting.risk.surest if setting.risk else None)
        proof = proofs.get(setting.protection)
        sure = proof and setting.risk and proof.surest(setting.risk.identities)
        return replace(shown, small=(*shown.small, f"≤ {round_up(100 * sure)}% proved")) if sure else shown

    named = Column("strongest re-identification", lambda each: show_estimate(each.risk and each.risk.top1))
    of_secret = [
        text_column("adversary", lambda each: each.risk and ATTACKS[each.risk.attack].short),
        text_column("classifier", lambda each: each.risk and classifier_in_words(each.risk.classifier)),
        Column("right of the surest 1%", surest),
        Column("bits of identity", lambda each: show_estimate(each.bits, bits=True)),
        Column("releases until one in a million", lambda each: each.until_one_in_a_million),
    ]
    columns = [
        Column("best accuracy", lambda each: show_estimate(each.accuracy)),
        *([named] if secret else ()),
        text_column("learner", lambda each: each.learner),
        *(of_secret if secret else ()),
    ]
    looks = charts.looks(study)
    families = [(family.legend, looks[family.name]) for family in charts.families(study)]
    values = {
        "chart": charts.frontier_chart(results),
        "apart": bool(study["task"].get("secret_is_task")),
        "hollow": any(not setting.complete for setting in results.settings),
        "table": settings_table("settings", results.settings, columns, setting=head, chosen=chosen),
        "legend": _legend([("no protection", looks["none"]), *families]),
        "left_out": study.get("left_out") or [],
        "proved": {proof.reference for proof in proofs.values() if proof.rarest},
    }
    return Section("frontier", "Privacy and utility" if secret else "Utility", values)


def accuracy(results: Results) -> Section | None:
    """A chart per family of several settings, and a table of all."""
    rates = results.accuracies
    if not rates:
        return None
    specs, tested = ({key[at] for key in rates} for at in (0, 1))
    learners = [LEARNERS[name] for name in results.learners if name in tested]

    def rate(learner: str, spec: str) -> Value:
        return show_estimate(rates.get((spec, learner)))

    table = settings_table(
        "accuracies",
        [spec for spec in results.study["protections"] if spec in specs],
        [Column(each.name, partial(rate, each.name)) for each in learners],
    )
    panels = charts.accuracy_charts(results)
    series = {name for panel in panels for name in panel.series}
    looks = [(each.name, each.look) for each in learners if each.name in series]
    looks += [("clean images, clean learner", charts.CLEAN_LOOK), ("chance", charts.CHANCE_LOOK)]
    values = {
        "table": table,
        # Others know all classes from training, and have their own paragraph.
        "models": [learner for learner in learners if not learner.knows_classes or not results.episodic],
        "classifiers_beside": results.episodic and "classifier" in results.study,
        "panels": panels,
        "legend": _legend(looks),
    }
    return Section("accuracy", "Accuracy of every learner", values, "Accuracy")


def risk(results: Results) -> Section | None:
    """A table with a column for each attack."""
    named, specs = results.risks, results.study["protections"]
    if not named:
        return None
    names = {attack for _, attack in named}
    tried = [each for view in VIEWS for each in ATTACKS.values() if each.view == view and each.name in names]
    tops = {spec: max(each.top1.value for (of, _), each in named.items() if of == spec) for spec, _ in named}

    def cell(attack: str, spec: str) -> Value:
        if (found := named.get((spec, attack))) is None:
            return Value()
        prefix = "≥ " if found.rising else ""
        bits = () if found.bits is None else (f"{found.bits.value:.2f} bits",)
        return show_estimate(found.top1, *bits, prefix=prefix, marked=found.top1.value == tops[spec])

    only_images = all(vocabulary.release_kind(spec) in vocabulary.IMAGES for spec in specs)
    columns: list[Column] = []
    for view in dict.fromkeys(each.view for each in tried):
        group = VIEWS[view].heading + (" images" if view == "released" and only_images else "")
        columns += [
            Column("adaptive" if each.adaptive else "static", partial(cell, each.name), group=group)
            for each in tried
            if each.view == view
        ]
    values = {
        "tried": tried,
        "table": settings_table("re-identification", specs, columns, mark="strongest", style="attacked"),
        "chance": " to ".join(sorted({percent(each.chance) for each in named.values()})),
        "had": sorted({str(each.had) for each in named.values()}),
        "rising": any(each.rising for each in named.values()),
    }
    return Section("risk", "Re-identification", values)


def many(results: Results) -> Section | None:
    """How people are named from many releases: a device sends hundreds in a year."""
    if not (curves := results.curves):
        return None

    def names(size: int, spec: str) -> Value:
        point = curves[spec].after(size)
        return show_estimate(point.named if point else None)

    def last(figure: str, spec: str) -> Value:
        found = getattr(curves[spec].points[-1], figure)
        return (
            Value(percent(found)) if isinstance(found, float) else show_estimate(found, bits=figure == "bits")
        )

    sizes = sorted({point.releases for curve in curves.values() for point in curve.points})
    group, most = "named, by number of releases", "from the most releases that were looked at"
    columns = [
        Column("guessing", partial(last, "chance")),
        *(Column(str(size), partial(names, size), group=group) for size in sizes),
        Column("bits of identity", partial(last, "bits"), group=most),
        Column("right of the surest 1%", partial(last, "surest"), group=most),
        Column("recognised at 1% false alarms", partial(last, "accepted"), group=most),
        Column("linked across two services", partial(last, "linked"), group=most),
    ]
    specs = [spec for spec in results.study["protections"] if spec in curves]
    table = settings_table("many releases", specs, columns, style="attacked")
    return Section("many", "What many releases of one person tell", {"table": table}, "Many releases")


def log_rank_privacy(results: Results) -> Section | None:
    """A row for each setting."""
    if not results.ranks:
        return None
    found = {spec: seeds for (spec, _), seeds in results.group("log-rank").items()}
    privacy, rates = {spec: rank for spec, (rank, _) in results.ranks.items()}, {}
    one = next((seeds[0] for seeds in found.values()), None)
    people = one.identities if one else next(iter(results.risks.values())).identities
    guessing = one.guessing if one else math.lgamma(people + 1) / (people * math.log(people))
    for spec, seeds in found.items():
        right = [(each.accuracy, each.images) for each in seeds if each.accuracy is not None]
        if right:
            shares = [(share, *wilson(round(share * images), images)) for share, images in right]
            rates[spec] = results.together(shares, [images for _, images in right])

    def ranks(spec: str) -> Value:
        rank = privacy[spec]
        return Value(f"{rank.value:.3f}", (f"{rank.low:.3f}–{rank.high:.3f}",))

    columns = [
        Column("log-rank privacy", ranks, f"blind guessing {guessing:.3f}"),
        text_column("strongest adversary", lambda spec: results.ranks[spec][1]),
    ]
    if rates:
        shown = "accuracy", lambda spec: show_estimate(rates.get(spec)), "by the feature’s own classifier"
        columns.append(Column(*shown))
    table = settings_table("log-rank privacy", privacy, columns)
    values = {"table": table, "identities": people}
    return Section("log-rank", "How late the right person is guessed", values, "Log-rank privacy")


def groups(results: Results) -> Section | None:
    """Accuracy and naming by group of people, in a row for each setting and figure."""
    if not (every := list(by_group(results))):
        return None
    columns = [text_column(name, itemgetter(at)) for at, name in enumerate(GROUPED) if at]
    chosen = results.advice.setting and results.advice.setting.protection
    values = {
        "table": settings_table("groups", [each.row for each in every], columns, setting=lambda row: row[0]),
        "words": [str(each) for each in every if each.protection == chosen],
        "fewest": FEWEST,
    }
    return Section("groups", "Who is served worst, and who is named most", values, "Groups of people")


def inference(results: Results) -> Section | None:
    """How often each attribute is inferred, with guessing and its bound."""
    inferred, bounds = results.inferences, results.bounds
    if not inferred:
        return None
    chances = {label: each.chance for (_, label), each in inferred.items()}

    def cell(label: str, spec: str) -> Value:
        if (each := inferred.get((spec, label))) is None:
            return Value()
        shown = show_estimate(each.top1, each.adversary, marked=each.top1.value > bounds[label])
        return replace(shown, small=(f"{shown.small[0]};", *shown.small[1:]))

    columns = [
        Column(label, partial(cell, label), f"at most {percent(bound)}; guessing {percent(chances[label])}")
        for label, bound in bounds.items()
    ]
    specs = results.study["protections"]
    table = settings_table("inferences", specs, columns, mark="above the bound", style="stacked")
    return Section("inference", "Attribute inference", {"table": table})


def reconstruction(results: Results) -> Section | None:
    """A row for each protection and attack."""
    found = results.group("reconstruction")
    if not found:
        return None
    tried = [attack for name, attack in RECONSTRUCTIONS.items() if any(name == made for _, made in found)]
    pictured = any(seeds[0].originals for seeds in found.values())
    keys = [(spec, each.name) for spec in results.study["protections"] for each in tried]

    def rebuilt(key: tuple[str, str]) -> Value:
        words = ", ".join(in_words([result.measures for result in found[key]]))
        return _row_of(found[key][0].pictures, f"image {{}} rebuilt from {key[0]}", words)

    original = text_column("original", lambda key: _row_of(found[key][0].originals, "original {}"))
    adversary = text_column("adversary", lambda key: RECONSTRUCTIONS[key[1]].words)
    columns = [adversary, *[original] * pictured, text_column("rebuilt", rebuilt)]
    keys = [key for key in keys if key in found]
    style = "pictures rebuilt"
    table = settings_table("reconstruction", keys, columns, setting=lambda key: key[0], style=style)
    images = max(seeds[0].images for seeds in found.values())
    values = {"attacks": tried, "pictured": pictured, "table": table, "images": images}
    return Section("reconstruction", "What adversaries rebuild", values, "Reconstruction", pictured)


def _row_of(uris: Iterable[str], words: str, *small: str) -> Value:
    return Value("", small, pictures=tuple((uri, words.format(at)) for at, uri in enumerate(uris, 1)))


def tells(results: Results) -> Section | None:
    """How often releases tell every other label of the data, with guessing.

    Neither the task nor the secrets: better learners and adversaries measure these, in their own sections.
    """
    task = results.study["task"]
    elsewhere = {task["target"], task.get("sensitive"), *(task.get("attributes") or [])}
    found: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for record in results.of("tells"):
        for name, label in record.result.labels.items():
            if name not in elsewhere:
                found[name, record.cell.protection].append(label)
    if not found:
        return None
    guesses = {key: statistics.fmean(seed.guessing for seed in seeds) for key, seeds in found.items()}

    def cell(*key: str) -> Value:
        """Marked if all of the interval is above guessing."""
        if key not in found:
            return Value()
        rate = estimate_of(join([seed.counted for seed in found[key]], folds=results.folds))
        return show_estimate(rate, marked=rate.low > guesses[key])

    columns = []
    for name in dict.fromkeys(name for name, _ in found):
        shares = sorted(guess for (of, _), guess in guesses.items() if of == name)
        least_to_most = " to ".join(dict.fromkeys(map(percent, (shares[0], shares[-1]))))
        columns.append(Column(name, partial(cell, name), f"guessing {least_to_most}"))
    told = {protection for _, protection in found}
    specs = [spec for spec in results.study["protections"] if spec in told]
    parts = [columns[first : first + _ABREAST] for first in range(0, len(columns), _ABREAST)]
    made = [
        settings_table(f"labels {at}" if len(parts) > 1 else "labels", specs, part, mark="given away")
        for at, part in enumerate(parts, 1)
    ]
    return Section("tells", "What else a release tells", {"tables": made}, "What else it tells")


def pictures(results: Results) -> Section | None:
    """A row for each protection that releases images; without pictures the amount that is left of them."""
    shown: dict[str, Any] = {}
    for record in results.of("pictures"):
        shown.setdefault(record.cell.protection, record.result)
    two = "face-similarity_of_two"
    left = {
        key: ", ".join(
            in_words([{**each.measures, two: (each.model_extra or {}).get(two)} for each in seeds])
        )
        for key, seeds in results.group("similarity").items()
    }
    specs = [spec for spec in results.study["protections"] if spec in shown or (spec, "released") in left]
    if not specs:
        return None
    uris = dict.fromkeys(uri for result in shown.values() for uri in result.original)
    originals = {uri: number for number, uri in enumerate(uris)}  # several rows show one
    seen = {view for _, view in left if not originals}
    denoised = "denoised" in seen or any(result.denoised for result in shown.values())
    views = ["released", "denoised"] if denoised else ["released"]

    def original(spec: str) -> Value:
        numbers = [originals[uri] for uri in shown[spec].original] if spec in shown else []
        return Value("", pictures=tuple((f"#original-{n}", f"original {n + 1}") for n in numbers))

    def view_of(view: str, spec: str) -> Value:
        after = f"image {{}} {view} {'with' if view == 'released' else 'after'} {spec}"
        return _row_of(getattr(shown.get(spec), view, None) or (), after, left.get((spec, view), "–"))

    columns = [text_column(view, partial(view_of, view)) for view in views]
    if originals:
        columns.insert(0, text_column("original", original))
    values = {
        "views": views,
        "originals": list(originals),
        "table": settings_table("pictures", specs, columns, style="pictures"),
    }
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
