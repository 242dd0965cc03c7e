"""Naming the people on released images: all adversaries of a study that fit, on images that others released.

The adversaries have known photographs of some people, in clear, and protected in the same way if the
protection is known. They learn from these, and never see who is on a release. One half of the people chooses
among them, and their success on the other half is stated, both ways.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sfumato import protect
from sfumato.assess.recognition import chance
from sfumato.attack.fusion import fuse
from sfumato.attack.reidentify import AdversaryConfig, Guesses
from sfumato.attack.undo import InversionConfig, RestorationConfig
from sfumato.audits.findings import Finding, Picture, Risk, Table, interval, shown, worst_of
from sfumato.audits.folder.pictures import Pictures
from sfumato.data.labelled import LabelledImages, label_of
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ConfigError, DataError
from sfumato.images import as_array, digest
from sfumato.protect.release import KINDS, Release
from sfumato.protect.spec import portable
from sfumato.study.cells import Cell
from sfumato.study.choose.results import classifier_in_words, estimate_of
from sfumato.study.grid import StudyConfig, Task
from sfumato.study.hits import Hits
from sfumato.study.lab.lab import Lab
from sfumato.study.lab.progress import Progress
from sfumato.study.lab.streams import PROBES
from sfumato.study.parts.attacks.scores import score
from sfumato.study.protocol import attack_of
from sfumato.study.vocabulary import ATTACKS, release_kind

Tell = Callable[[str, int, int], None]  # called with words, and the numbers done and planned
Answer = tuple[tuple[Finding, ...], tuple[Risk, ...]]

_FEWEST = 4  # people who can be named: two in each half
_DRAWS = 10  # of sets of releases of one person
_ROWS, _PICTURES = 40, 6  # of a page


@dataclass(frozen=True, kw_only=True)
class NamingConfig:
    """The strength of the adversaries, and the questions.

    For the steps, at most, and the networks see AdversaryConfig and RestorationConfig.
    """

    size: int = 84  # the side of the squares that they compare, in pixels
    steps: int = 60  # of training a Conv-4
    adaptive_steps: int = 30  # of training it further on protected photographs
    restoration_steps: int = 60  # of undoing the protection
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
        if (self.weights is None) != (self.detector is None):
            raise ConfigError(
                f"weights={self.weights}, detector={self.detector}: a face network needs both: name the "
                "weights of MobileFaceNet and of MTCNN, or neither"
            )
        self.networks  # noqa: B018 - checks the steps

    @property
    def networks(self) -> list[AdversaryConfig]:
        """The recognisers: a Conv-4 that they train, and a face network if its files are named."""
        own = AdversaryConfig(steps=self.steps, adaptive_steps=self.adaptive_steps)
        if self.weights is None:
            return [replace(own, second=self.second)]  # which says that a second needs a first
        files: dict[str, Any] = {"weights": self.weights, "detector": self.detector, "second": self.second}
        return [own, AdversaryConfig(recogniser="mobile-face-net", steps=0, adaptive_steps=0, **files)]


def name_people(
    known: Pictures, released: Pictures, *, spec: str, config: NamingConfig, progress: Tell
) -> Answer:
    """Report how often people are named, by every adversary of a study that fits; or guesses for each file.

    The people on `released` only judge the adversaries. `known` has copies if a `spec` is given; "none" is
    for adversaries who do not know the protection. `progress` is called before an adversary begins.

    Raises DataError: fewer than two people are known.
    """
    people = label_of(known.people)
    if len(people.names) < 2 or "" in people.names:
        raise DataError(
            f"{len([name for name in people.names if name])} people are known by name: an adversary needs "
            "photographs of at least 2, in a sub-folder for each"
        )
    kind, plans = release_kind(spec), []
    for name, words in ATTACKS.items():
        fits = kind in words.releases and words.view in ("released", "restored", "values")
        knows = spec != "none" or words.view == "values" or (words.view == "released" and not words.adaptive)
        if fits and knows and attack_of(name).compared is not None:
            plans += [(name, each) for each in config.networks[: 1 if words.view == "values" else None]]
    guesses: dict[str, Guesses] = {}
    with TemporaryDirectory() as folder:
        for done, (name, network) in enumerate(plans, 1):
            progress(ATTACKS[name].words, done, len(plans))
            lab = _lab(known, released, spec, config, network, folder)
            made = attack_of(name).compared(lab, Cell("attack", spec, config.seed, (("attack", name),)))  # type: ignore[misc]
            for classifier, similarities in zip(made.classifiers, made.similarities, strict=True):
                plain = ATTACKS[name].view == "values" or ", by " in classifier
                by = "" if plain else f" by {network.recogniser}"
                adversary = f"{ATTACKS[name].words}{by}, {classifier_in_words(classifier)}"
                guesses[adversary] = Guesses(classifier, made.identities, similarities.float())
    if set(released.people) & set(people.names):
        return _report(people.names, guesses, known, released, spec, config)
    return (_list_guesses(people.names, guesses, released),), ()


def _lab(
    known: Pictures,
    released: Pictures,
    spec: str,
    config: NamingConfig,
    network: AdversaryConfig,
    folder: str,
) -> Lab:
    """Make the lab of a study whose probes are these releases, all with the name of the first person."""
    people = label_of([*known.people, *[min(known.people)] * len(released.images)])
    first, count = len(known.images), len(known.images) + len(released.images)
    data = LabelledImages(
        "known photographs and releases",
        torch.cat([known.images, released.images]),
        {"person": people},
        {"train": torch.arange(first), "test": torch.arange(count), "released": torch.arange(first, count)},
    )
    rows = {digest(image): row for row, image in enumerate(known.images)}

    def of(pixels: Tensor) -> Release:
        return Release(as_array(pixels), spec, (config.size, config.size))

    def release(clean: Tensor, stream: int, number: int) -> Any:
        if stream == PROBES:
            return of(released.images) if released.release is None else released.release
        if spec == "none":
            return of(clean)
        if known.copies is None:
            return protect.parse(spec, takes=KINDS).release(clean, seeded_noise(config.seed, stream, number))
        places = [rows[digest(image)] for image in clean]
        return of(known.copies[number % len(known.copies), places])

    steps, task = config.restoration_steps, Task(target="person", sensitive="person")
    parts: dict[str, Any] = {"data": {"source": "folder"}, "task": task, "learners": [], "attacks": []}
    parts |= {"restoration": RestorationConfig(steps=steps), "inversion": InversionConfig(steps=steps)}
    study = StudyConfig(protections=[spec], adversary=network, **parts)
    return Lab(study, data, Path(folder), Progress(), made=release)


class Stated(NamedTuple):
    """The hits of the adversaries whom halves of the people chose, of all, the best first; and these two."""

    hits: Hits
    by_adversary: dict[str, Hits]
    chosen: tuple[str, str]


def state(guesses: dict[str, Guesses], truth: Tensor) -> Stated:
    """Choose an adversary by each half of the people, and state their success on the other half.

    `truth` is (m,) int64, the person on each release.
    """
    probes = tuple(map(float, truth.unique(return_counts=True)[1].tolist()))
    hits = {name: Hits(tuple(score(made, truth)["hits"]), probes, seeds=1) for name, made in guesses.items()}
    ranked = dict(sorted(hits.items(), key=lambda pair: -pair[1].share))
    first, second = (max(ranked, key=lambda name: ranked[name].half(half).share) for half in (0, 1))
    joined = [ranked[first if row % 2 else second].hits[row] for row in range(len(probes))]
    return Stated(Hits(tuple(joined), probes, seeds=1), ranked, (first, second))


def of_several(similarities: Tensor, truth: Tensor, size: int, seed: int) -> Hits | None:
    """Name people by sums over sets of `size` of their releases; None if fewer than four have enough.

    `similarities` are (m, I), and `truth` (m,) columns.
    """
    people = [(truth == code).nonzero().flatten() for code in truth.unique()]
    people = [rows for rows in people if len(rows) >= size]
    if len(people) < _FEWEST:
        return None
    draw = torch.Generator().manual_seed(seed)
    drawn = (rows[torch.randperm(len(rows), generator=draw)[:size]] for _ in range(_DRAWS) for rows in people)
    sets = torch.stack([*drawn]).unflatten(0, (_DRAWS, len(people)))  # (draws, P, n)
    sums = similarities[sets].sum(2)  # (draws, P, I)
    own = truth[sets[0, :, 0]]
    best = (sums == sums.amax(-1, keepdim=True)).double()  # ties count by how many there are
    right = (best / best.sum(-1, keepdim=True))[:, torch.arange(len(own)), own].mean(0)
    return Hits(tuple(right.tolist()), (1.0,) * len(own), seeds=1)


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
    identities = torch.arange(len(columns))
    guesses = {name: replace(made, similarities=made.similarities[rows]) for name, made in guesses.items()}
    stacked = torch.stack([made.similarities for made in guesses.values()])
    fused = Guesses("fusion", identities, fuse(stacked, identities, truth).similarities.float())
    guesses["all of them together, sum of scores"] = fused
    stated = state(guesses, truth)
    odd = ~torch.isin(truth, truth.unique()[::2])
    first, second = (guesses[name].similarities for name in stated.chosen)
    chosen = torch.where(odd[:, None], first, second)
    tried = {size: of_several(chosen, truth, size, config.seed) for size in config.releases}
    tried[1] = stated.hits
    measured = {size: hits for size, hits in sorted(tried.items()) if hits is not None}
    guessing, looked_for, named_by = chance(truth), len(stated.hits.hits), stated.chosen[0]
    of: dict[str, Any] = {"images": len(rows), "source": "this audit"}
    risks = []
    for size, hits in measured.items():
        rate, of["people"] = estimate_of(hits), len(hits.hits)
        worst = worst_of(hits.rates)
        risks.append(Risk("singling out", "identity", size, named_by, rate, guessing, **of, **worst))
    share, (low, high), unknown = stated.hits.share, stated.hits.interval, len(released.files) - len(rows)
    strongest: dict[str, tuple[str, str]] = {}  # the best classifier of each adversary, which comes first
    for name, hits in stated.by_adversary.items():
        strongest.setdefault(name.partition(",")[0], (name, interval(estimate_of(hits))))
    clear = "No protection is known: all compare with known photographs in clear."
    if spec != "none":
        clear = f"Adaptive ones compare with known photographs that they protect by {portable(spec)}."
    sentence = (
        f"{share:.1%} of {len(rows):,} releases are named correctly among {len(columns):,} known people "
        f"({low:.1%} to {high:.1%}, 95% interval by people). Guessing names {guessing:.1%}. The person "
        f"named most often is named in {max(stated.hits.rates):.0%} of their releases."
    )
    if unknown:
        sentence += f" {unknown:,} others have no true name among these, and do not count."
    table = Table(
        ("adversary", "named, 95% interval"),
        (("chosen by halves, as stated", interval(estimate_of(stated.hits))), *strongest.values()),
        f"Each with their best classifier. {clear} The first row states, for each half of the "
        f"{looked_for} people, the adversary that names most of the other half: "
        f"{' and '.join(dict.fromkeys(stated.chosen))}.",
    )
    matches = _matches(guesses[named_by], known, released, rows, truth) if low > guessing else ()
    figures: dict[str, Any] = {"named": share, "interval": [low, high], "guessing": guessing}
    figures |= {"people": looked_for, "known_people": len(columns), "releases": len(rows)}
    figures["chosen"] = list(stated.chosen)
    figures["by_adversary"] = {name: hits.share for name, hits in stated.by_adversary.items()}
    naming = Finding("naming", "Who is on it", shown(low > guessing), sentence, table, matches, figures)
    words = [f"From {size} of their releases {hits.share:.1%} are named." for size, hits in measured.items()]
    lacking = sorted(tried.keys() - measured.keys())
    if lacking:
        words.append(
            f"{', '.join(map(str, lacking))} releases: not measured, since fewer than {_FEWEST} people have "
            f"enough of them here (at most {int(truth.bincount().max())})."
        )
    lines = ((f"{n}", f"{len(hits.hits)}", interval(estimate_of(hits))) for n, hits in measured.items())
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
