"""Naming the people on released images: all adversaries of a study that fit, on images that others released.

The adversaries have known photographs of some people, in clear, and protected in the same way if the
protection is known. They learn from these, and never see who is on a release. One half of the people chooses
among them, and their success on the other half is stated, both ways.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from sfumato import protect
from sfumato.assess.hits import Hits
from sfumato.assess.recognition import chance
from sfumato.attack import ensemble
from sfumato.attack.ensemble import Compared, Gallery, choose, standardise
from sfumato.attack.reidentify import AdversaryConfig, Guesses, Recogniser, Recognisers, StudentConfig
from sfumato.audits.findings import Finding, Picture, Risk, Table, calibrate, shown
from sfumato.audits.folder.pictures import Pictures
from sfumato.data.labelled import label_of
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ConfigError, DataError
from sfumato.images import as_array, digest
from sfumato.protect.release import IMAGES, KINDS, Release
from sfumato.protect.spec import portable
from sfumato.study.choose.figures import classifier_in_words, estimate_of, interval
from sfumato.study.lab.adversaries import first_network
from sfumato.study.measure.attack import readings, score
from sfumato.study.vocabulary import ATTACKS, RECOGNISER, STUDENT, VALUES, AttackWords, release_kind

Tell = Callable[[str, int, int], None]  # called with words, and the numbers done and planned
Answer = tuple[tuple[Finding, ...], tuple[Risk, ...]]

_ROWS, _PICTURES = 40, 6  # of a page


@dataclass(frozen=True, kw_only=True)
class NamingConfig:
    """The strength of the adversaries, as in AdversaryConfig and StudentConfig, and the questions."""

    size: int = 84  # the side of the squares that they compare, in pixels
    steps: int = 60  # of training a Conv-4
    adaptive_steps: int = 30  # of training it further on protected photographs
    student_steps: int = 60  # of learning to see through the protection
    weights: str | None = None  # of MobileFaceNet, a public face network besides; None for none
    detector: str | None = None  # weights of MTCNN, which it needs
    second: str | None = None  # "dlib" compares faces by dlib's network as well
    releases: tuple[int, ...] = (1, 10, 100)  # of one person, to name them by
    seed: int = 0  # decides trainings and sets

    def __post_init__(self) -> None:
        if not 16 <= self.size <= 512:
            raise ConfigError(f"size={self.size}: from 16 to 512 pixels")
        if not self.releases or min(self.releases) < 1:
            raise ConfigError(f"releases={self.releases}: numbers of at least 1, as 1,10,100")
        self.networks  # noqa: B018 - checks the steps and files

    @property
    def networks(self) -> list[AdversaryConfig]:
        """The recognisers: a Conv-4 that they train, and a face network if its files are named."""
        own = AdversaryConfig(steps=self.steps, adaptive_steps=self.adaptive_steps)
        if self.weights is None and self.detector is None:
            return [replace(own, second=self.second)]  # which says that a second needs a first
        files: dict[str, Any] = {"weights": self.weights, "detector": self.detector, "second": self.second}
        return [own, AdversaryConfig(recogniser="mobile-face-net", steps=0, adaptive_steps=0, **files)]


def name_people(
    known: Pictures, released: Pictures, *, spec: str, config: NamingConfig, progress: Tell
) -> Answer:
    """Report how often people are named, by every adversary of a study that fits; or guesses for each file.

    The people on `released` only judge the adversaries. `known` has copies if a `spec` is given; "none" is
    for adversaries who do not know the protection. Raises DataError: fewer than two people are known.
    """
    people = label_of(known.people)
    if len(people.names) < 2 or "" in people.names:
        raise DataError(
            f"{len([name for name in people.names if name])} people are known by name: an adversary needs "
            "photographs of at least 2, in a sub-folder for each"
        )
    protection, images, seed = protect.parse(spec, takes=KINDS), release_kind(spec) in IMAGES, config.seed
    gallery = Gallery(
        known=known.images,
        names=people.codes,
        asked=released.images,
        others=known.images,
        of_others=people.codes,
        release=_release(known, released, spec, config),
        noisy=protection.draws_noise,
        images=images,
        seed=seed,
    )

    @cache
    def networks_of(network: AdversaryConfig) -> tuple[Recognisers, Recogniser, Gallery]:
        encoder = partial(first_network, network, known.images.shape[1], 0)
        recognisers = Recognisers(network, known.images, people.codes, encoder)
        clear = replace(gallery, landmarks=recognisers.find(known.images)[0])
        return recognisers, recognisers.train(seed), clear

    def compare(words: AttackWords, network: AdversaryConfig) -> Compared:
        if words.view == "values":
            outputs = getattr(protection, "outputs", None)
            return ensemble.by_values(gallery, readings, copies=network.copies, outputs=outputs)
        if words.view == "released" and not images:
            return ensemble.by_vectors(gallery, lambda release: release.vectors(), copies=network.copies)
        recognisers, static, clear = networks_of(network)
        if words.view == "student":
            taught = StudentConfig(steps=config.student_steps)
            return ensemble.by_student(clear, recognisers, static, taught)
        return ensemble.by_images(clear, Release.images, recognisers, static, adaptive=words.adaptive)

    plans = [
        (words, network)
        for words in ATTACKS.values()
        if words.method in (RECOGNISER, VALUES, STUDENT) and release_kind(spec) in words.releases
        if words.view in ("values", "released", "student")
        if spec != "none" or words.view == "values" or (words.view, words.adaptive) == ("released", False)
        for network in config.networks[: 1 if words.view == "values" else None]
    ]
    guesses: dict[str, Guesses] = {}
    for done, (words, network) in enumerate(plans, 1):
        progress(words.words, done, len(plans))
        for made in compare(words, network).guesses:
            plain = words.view == "values" or ", by " in made.classifier
            by = "" if plain else f" by {network.recogniser}"
            adversary = f"{words.words}{by}, {classifier_in_words(made.classifier)}"
            guesses[adversary] = replace(made, similarities=standardise(made.similarities).half().float())
    if set(released.people) & set(people.names):
        return _report(people.names, guesses, known, released, spec, config)
    return (_list_guesses(people.names, guesses, released),), ()


def _release(
    known: Pictures, released: Pictures, spec: str, config: NamingConfig
) -> Callable[[Tensor, int, int], Any]:
    rows = {digest(image): row for row, image in enumerate(known.images)}

    def of(pixels: Tensor) -> Release:
        return Release(as_array(pixels), spec, (config.size, config.size))

    def release(clean: Tensor, stream: int, number: int) -> Any:
        if stream == ensemble.PROBES:
            read = released.release
            return of(released.images) if read is None else replace(read, spec=spec)
        if spec == "none":
            return of(clean)
        if known.copies is None:
            return protect.parse(spec, takes=KINDS).release(clean, seeded_noise(config.seed, stream, number))
        places = [rows[digest(image)] for image in clean]
        return of(known.copies[number % len(known.copies), places])

    return release


def _report(
    people: tuple[str, ...],
    guesses: dict[str, Guesses],
    known: Pictures,
    released: Pictures,
    spec: str,
    config: NamingConfig,
) -> Answer:
    columns = {name: column for column, name in enumerate(people)}
    rows = [row for row, person in enumerate(released.people) if person in columns]
    truth = torch.tensor([columns[released.people[row]] for row in rows])
    guesses = {name: replace(made, similarities=made.similarities[rows]) for name, made in guesses.items()}
    guesses["all of them together, sum of scores"], _ = choose(guesses, truth)
    strongest, ((second,), (first,)) = choose(guesses, truth, most=1)
    probes = tuple(map(float, truth.unique(return_counts=True)[1].tolist()))
    stated, *others = (
        Hits(tuple(score(made, truth)["hits"]), probes, seeds=1) for made in (strongest, *guesses.values())
    )
    named = dict(sorted(zip(guesses, others, strict=True), key=lambda pair: -pair[1].share))
    scores = strongest.similarities.float()
    measured = {1: stated}
    for size in sorted({*config.releases} - {1}):
        if (right := ensemble.by_sets(scores, truth, size, config.seed)) is not None:
            measured[size] = Hits(tuple(right.tolist()), (1.0,) * len(right), seeds=1)
    guessing, looked_for = chance(truth), len(probes)
    rates = {size: estimate_of(hits) for size, hits in measured.items()}
    risks = []
    sure = calibrate([made.similarities.double() for made in guesses.values()], truth, truth)
    for size, hits in measured.items():
        of: dict[str, Any] = {"people": len(hits.hits), "images": len(rows), "source": "this audit"}
        of |= sure if size == 1 else {}
        risks.append(Risk("singling out", "identity", size, first, rates[size], guessing, **of))
    share, (low, high), unknown = stated.share, stated.interval, len(released.files) - len(rows)
    best: dict[str, tuple[str, str]] = {}  # the best classifier of each adversary, which comes first
    for name, hits in named.items():
        best.setdefault(name.partition(",")[0], (name, interval(estimate_of(hits))))
    clear = "No protection is known: all compare with known photographs in clear."
    if spec != "none":
        clear = f"Adaptive ones compare with known photographs that they protect by {portable(spec)}."
    sentence = (
        f"{share:.1%} of {len(rows):,} releases are named correctly among {len(columns):,} known people "
        f"({low:.1%} to {high:.1%}, 95% interval by people; {len(known.images) / len(columns):.3g} known "
        f"photographs of each, nobody else to learn from). Guessing names {guessing:.1%}. A release has "
        f"{sure['bits'].value:.2f} bits of identity ({sure['bits'].low:.2f} to {sure['bits'].high:.2f}); of "
        f"the hundredth of namings that are surest {sure['surest'].value:.0%} are right."
    )
    if unknown:
        sentence += f" {unknown:,} others have no true name among these, and do not count."
    table = Table(
        ("adversary", "named, 95% interval"),
        (("chosen by halves, as stated", interval(rates[1])), *best.values()),
        f"Each with their best classifier. {clear} The first row states, for each half of the "
        f"{looked_for} people, the adversary that names most of the other half: "
        f"{' and '.join(dict.fromkeys((first, second)))}.",
    )
    matches = _matches(guesses[first], known, released, rows, truth) if low > guessing else ()
    figures: dict[str, Any] = {"named": share, "interval": [low, high], "guessing": guessing}
    figures |= {"bits": sure["bits"].value, "surest": sure["surest"].value}
    figures |= {"people": looked_for, "known_people": len(columns), "releases": len(rows)}
    figures |= {"chosen": [first, second], "by_adversary": {name: hits.share for name, hits in named.items()}}
    naming = Finding("naming", "Who is on it", shown(low > guessing), sentence, table, matches, figures)
    words = [f"From {size} of their releases {hits.share:.1%} are named." for size, hits in measured.items()]
    if lacking := sorted({*config.releases} - measured.keys()):
        few = f"fewer than {ensemble.FEWEST} people have enough of them here"
        most = int(truth.bincount().max())
        words.append(f"{', '.join(map(str, lacking))} releases: not measured, since {few} (at most {most}).")
    lines = ((f"{n}", f"{len(hits.hits)}", interval(rates[n])) for n, hits in measured.items())
    caption = "The scores of the chosen adversary are added up over the releases of one person."
    table = Table(("releases", "people", "named, 95% interval"), tuple(lines), caption)
    figures = {"named": {f"{n}": hits.share for n, hits in measured.items()}, "not_measured": lacking}
    title, leaks = "From several releases of one person", measured[max(measured)].interval[0] > guessing
    several = Finding("releases", title, shown(leaks), " ".join(words), table, figures=figures)
    return (naming, several), tuple(risks)


def _list_guesses(names: tuple[str, ...], guesses: dict[str, Guesses], released: Pictures) -> Finding:
    """List the likeliest people of each release, by the sum of all adversaries' scores."""
    sums = torch.stack([made.similarities for made in guesses.values()]).mean(0)
    scores, people = sums.topk(min(3, sums.shape[1]), dim=1)
    lines = []
    for row in scores[:, 0].argsort(descending=True).tolist():
        likeliest = zip(people[row].tolist(), scores[row].tolist(), strict=True)
        said = (f"{names[person]} ({score:+.2f})" for person, score in likeliest)
        lines.append((released.files[row].name, *said))
    words = (
        f"Nobody said who is on the {len(released.files):,} releases, so nothing says how many guesses "
        "are right. Below is the likeliest known person of each; a file of true names gives the rate."
    )
    caption = (
        f"Scores are means over {len(guesses)} adversaries, in deviations from the mean of all "
        f"known people; the surest {min(_ROWS, len(lines))} of {len(lines)} files."
    )
    columns = ("file", *(f"guess {number + 1}" for number in range(people.shape[1])))
    table, figures = Table(columns, tuple(lines[:_ROWS]), caption), {"files": [list(line) for line in lines]}
    return Finding("guesses", "Who may be on it", "not shown", words, table, figures=figures)


def _matches(
    made: Guesses, known: Pictures, released: Pictures, rows: Sequence[int], truth: Tensor
) -> tuple[tuple[Picture, ...], ...]:
    """Show some releases that are named correctly, above a known photograph of that person."""
    above, below = [], []
    for row in (made.similarities.argmax(1) == truth).nonzero().flatten().tolist()[:_PICTURES]:
        file = released.files[rows[row]]
        photograph = known.images[known.people.index(file.person)]
        above.append(Picture(released.images[rows[row]], f"released: {file.name}"))
        below.append(Picture(photograph, f"known: {file.person}"))
    return (tuple(above), tuple(below)) if above else ()
