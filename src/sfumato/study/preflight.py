"""Before the first minute of a study: the claims its data can support, and how to support more.

Nothing is trained. How low the upper end of an adversary's interval can be (see choose.recommend) depends on
the people alone: here the code that judges later judges adversaries who do no better than guessing.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from sfumato.assess.hits import Hits, fewest, whole_percents
from sfumato.attack.reidentify import split_gallery
from sfumato.attack.sets import measurable, pictures_for
from sfumato.data import splitting
from sfumato.data.labelled import LabelledImages
from sfumato.errors import DataError
from sfumato.study.choose.figures import mandatory_attacks, percent
from sfumato.study.choose.recommend import ERROR
from sfumato.study.grid import StudyConfig
from sfumato.study.vocabulary import attacks_of, is_recipe

_MOST_PEOPLE = 10_000  # that it suggests
_KNOWN = 0.99  # share of test images
_MANY_CLASSES, _FEW_IMAGES = 20, 30
_MOST_FOLDS = 4  # each takes as long as a study of one split


@dataclass(frozen=True, kw_only=True)
class Floor:
    """The bounds that the test images can show for one secret."""

    label: str  # the secret
    people: int
    probes: int  # their releases, to name or to infer from
    guessing: float  # how often a guess is right
    lowest: float  # the upper end for adversaries who do no better than guessing
    best: float  # the same for adversaries who are never right
    bound: float  # the highest accepted share
    proved: float | None = None  # the lowest proved bound, of the protection with the fewest outputs
    by: str | None = None  # that protection
    needed: int | None = None  # test people that would show the bound; None if these do, or for too many
    needed_by_proof: int | None = None

    @property
    def fits(self) -> bool:
        """Whether the bound can be shown. Proofs are rounded up, as in study.choose.recommend."""
        return self.lowest <= self.bound or (
            self.proved is not None and self.proved <= self.bound * (1 + 1e-9)
        )


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """The facts about a study before it runs."""

    images: int  # of all data
    people: int  # 0 without a secret
    classes: int
    train: int  # images of this split
    test: int
    task: float  # how often guessing the class is right
    settings: int  # with "none": each takes its part of the error
    floors: tuple[Floor, ...]  # for identity, and for each attribute
    reason: str  # why nothing can be recommended in any case; "" for no such reason
    releases: int  # of one person, for which the bound must hold
    measured: int  # the most of these for which people's pictures can measure naming; 0 for none
    enough: int  # test people with pictures for all of them
    folds: int | None  # turns of test people that would show the bounds; None for no use or need of them

    @property
    def fits(self) -> bool:
        """Whether these data can end with a recommendation."""
        return not self.reason and all(floor.fits for floor in self.floors)

    def as_json(self) -> dict[str, Any]:
        """All fields, for programs."""
        shown = {each.label: whole_percents(min(each.lowest, each.proved or 1.0)) for each in self.floors}
        return {**asdict(self), "fits": self.fits, "at_most": shown}


def look(config: StudyConfig, data: Sequence[LabelledImages]) -> Preflight:
    """The claims that a study's data can support.

    `config` has episodes that fit; `data` has splits, once for each fold.
    """
    task, first = config.task, data[0]
    codes = [_codes(part, task.target) for part in data]
    commonest = [of_part.bincount(minlength=1).max().item() for of_part in codes]
    floors, reason = _floors(config, data)
    releases, who = config.recommend.releases, torch.tensor([])
    if task.sensitive is not None:
        who = first.label(task.sensitive).codes[_rows_to_look_for(first, "further")]
    enough = who.unique(return_counts=True)[1] >= pictures_for(releases)
    return Preflight(
        images=len(first),
        people=len(first.classes(task.sensitive)) if task.sensitive and floors else 0,
        classes=len(first.classes(task.target)),
        train=len(_rows(first, "train")),
        test=sum(map(len, codes)),
        task=1 / task.way if config.episodic else sum(commonest) / max(1, sum(map(len, codes))),
        settings=len(config.specs),
        floors=floors,
        reason=reason or _lacking_attacks(config),
        releases=releases,
        measured=measurable(who, releases),
        enough=int(enough.sum()),
        folds=turns(config, first),
    )


def _lacking_attacks(config: StudyConfig) -> str:
    specs = [spec for spec in config.specs if spec != "none"]
    absent = [sorted({*mandatory_attacks(spec)} - {*attacks_of(config, spec)}) for spec in specs]
    if not specs or not all(absent):
        return ""
    names = " and ".join(dict.fromkeys(chain(*absent)))
    return f"the study leaves out {names}, without which no setting is: add to attacks"


def in_turns(config: StudyConfig, folds: int) -> StudyConfig:
    """The study with this many folds."""
    return replace(config, task=replace(config.task, folds=folds), seeds=list(range(folds)))


def turns(config: StudyConfig, data: LabelledImages) -> int | None:
    """The fewest turns that show all bounds; None if one split does, if none do, or if there can be none."""
    task = config.task
    if task.folds > 1 or task.split_by not in (None, task.sensitive):
        return None
    floors, reason = _floors(config, [data])
    folds = 1
    while floors and (reason or not all(floor.fits for floor in floors)):
        if (folds := folds + 1) > _MOST_FOLDS:
            return None
        try:
            parts, _ = splitting.in_turns(data, target=task.target, sensitive=task.sensitive, folds=folds)
        except DataError:
            return None
        floors, reason = _floors(in_turns(config, folds), parts)
    return folds if floors and folds > 1 else None


def show(made: Preflight, say: Callable[[str], None], *, options: Mapping[str, str]) -> None:
    """Says a pre-flight in plain words, a line at a time.

    `options`: label, "" for identity or "folds" -> the option that sets its bound, as "--at-most ".
    """
    people = f" of {made.people:,} people" if made.people else ""
    say(f"data: {made.images:,} images{people}, {made.classes:,} classes; {made.test:,} images are tested")
    say(f"task: guessing the class is right in {percent(made.task)}")
    for floor in made.floors:
        shown = [f"{percent(floor.lowest)} if adversaries do no better than guessing"]
        if floor.best < floor.lowest:
            shown.append(f"{percent(floor.best)} if they are never right")
        if floor.proved is not None:
            shown.append(f"{percent(floor.proved)} by proof for {floor.by}")
        say(
            f"{floor.label}: {floor.people:,} test people on {floor.probes:,} releases; guessing is right in "
            f"{percent(floor.guessing)}, at most {percent(floor.bound)} is accepted, and this data can show "
            f"{', '.join(shown)}"
        )
    if made.floors:
        few = (
            f", so that at most {made.measured:,} can be tried. Only a code looked up in an answer table, "
            "whose queries send nothing, can then be recommended: add pictures of the same people, or ask "
            f"for --releases {max(1, made.measured)}"
        )
        say(
            f"releases: the rate must hold from {made.releases:,} of one person; {made.enough:,} test people "
            f"have the {pictures_for(made.releases):,} pictures that measure it"
            f"{few if made.measured < made.releases else ''}"
        )
    if made.reason:
        say(f"nothing can be recommended: {made.reason}")
    for number, floor in enumerate(made.floors):
        if not floor.fits:
            say(_cure(floor, made, options[floor.label if number else ""], options["folds"]))


def _cure(floor: Floor, made: Preflight, bound: str, folds: str) -> str:
    by, tested = f" for {floor.by}", floor.people / made.people
    needed = [(floor.needed, ""), (floor.needed_by_proof, by)]
    cures = [
        f"about {people:,} test people{how} ({math.ceil(people / tested):,} people in all)"
        for people, how in needed
        if people is not None
    ]
    if made.folds is not None:
        cures.append(f"{folds}{made.folds}, by which all {made.people:,} people take turns as test people")
    proved = floor.proved
    lower = "" if proved is None or proved >= floor.lowest else f" ({whole_percents(proved):g}{by})"
    cures.append(f"{bound}{whole_percents(floor.lowest):g}{lower}")
    return (
        f"{floor.people:,} test people are too few: guessing is right in {percent(floor.guessing)}. To show "
        f"{percent(floor.bound)} you need {', or '.join(cures)}"
    )


def _floors(config: StudyConfig, data: Sequence[LabelledImages]) -> tuple[tuple[Floor, ...], str]:
    task = config.task
    if task.sensitive is None:
        return (), "no secret is looked for: name one whose people have two test photographs each"
    who = [_codes(part, task.sensitive) for part in data]
    classes = [_codes(part, task.target) for part in data]
    try:
        probes = [_probes(config, part) for part in data]
    except DataError:
        few = f"fewer than two of {task.sensitive} have two test photographs: there is nobody to look for"
        return (), few
    bound, settings = config.recommend.reidentification_at_most, len(config.specs)
    guessing = [max(of_fold) / sum(of_fold) for of_fold in probes]
    among = min(len(of_fold.unique()) for of_fold in who)
    outputs, by = _outputs(config, len(classes[0].unique()))
    proves = 0 < outputs < among
    floors = [
        _floor(
            task.sensitive,
            probes,
            guessing,
            bound,
            settings,
            proved=outputs / among if proves else None,
            by=by or None,
            needed_by_proof=len(data) * math.ceil(outputs / bound - 1e-9) if outputs and bound else None,
        )
    ]
    photographs = [of_fold.unique(return_counts=True)[1].tolist() for of_fold in who]
    for label in task.attributes:
        codes = [_codes(part, label) for part in data]
        chances = [of_fold.bincount().max().item() / len(of_fold) for of_fold in codes]
        bound = config.recommend.inference_at_most[label]
        floors.append(_floor(label, photographs, chances, bound, settings, guess=chances[0]))
    if follows(data[0].label(task.target).codes, data[0].label(task.sensitive).codes):
        return (), f"the secret ({task.sensitive}) is what the task itself tells, or follows from it"
    few = ""
    if follows(classes[0], who[0]):
        few = f"{among} test people are so few that the class ({task.target}) tells who it is"
    return tuple(floors), few


def _rows(data: LabelledImages, split: str) -> Tensor:
    if split not in data.splits:
        data.split(split)
    return data.splits[split]


def _codes(data: LabelledImages, label: str) -> Tensor:
    return data.label(label).codes[_rows(data, "test")]


def _rows_to_look_for(data: LabelledImages, *splits: str) -> Tensor:
    return torch.cat([data.splits[name] for name in ("test", *splits) if name in data.splits])


def _probes(config: StudyConfig, data: LabelledImages) -> list[int]:
    who = data.label(config.task.sensitive or "").codes[_rows_to_look_for(data, "distractors")]
    own = config.adversary
    _, asked = split_gallery(who, known=own.known, probes=own.probes, seed=config.seeds[0])
    counts: list[int] = who[asked].unique(return_counts=True)[1].tolist()
    return counts


def _floor(
    label: str,
    probes: Sequence[Sequence[int]],
    guessing: Sequence[float],
    bound: float,
    settings: int,
    *,
    guess: float | None = None,
    **proof: Any,
) -> Floor:
    """The bounds that can be shown for one secret; see `upper_ends` and Floor."""
    lowest, best = upper_ends(probes, guessing, settings=settings)
    asked = [sum(of_fold) for of_fold in probes]
    people = sum(map(len, probes))
    each = sum(asked) / people
    right = sum(share * count for share, count in zip(guessing, asked, strict=True)) / sum(asked)

    def keeps(number: int) -> bool:
        of_fold = max(2, number // len(probes))
        chances = [guess or 1 / of_fold] * len(probes)
        return upper_ends([[each] * of_fold] * len(probes), chances, settings=settings)[0] <= bound

    return Floor(
        label=label,
        people=people,
        probes=sum(asked),
        guessing=right,
        lowest=lowest,
        best=best,
        bound=bound,
        needed=fewest(keeps, most=_MOST_PEOPLE),
        **proof,
    )


def upper_ends(
    probes: Sequence[Sequence[float]], guessing: Sequence[float], *, settings: int
) -> tuple[float, float]:
    """The upper ends for adversaries who guess, and for those never right, as choose.recommend has them.

    `probes` and `guessing` are for each fold: those of each person, and how often a guess is right.
    """
    asked = tuple(float(count) for of_fold in probes for count in of_fold)
    right = tuple(share * count for share, of_fold in zip(guessing, probes, strict=True) for count in of_fold)
    guessed, never = (
        Hits(hits, asked, seeds=1).upper_end(ERROR / settings) for hits in (right, (0.0,) * len(asked))
    )
    return guessed, never


def _outputs(config: StudyConfig, classes: int) -> tuple[int, str]:
    """The fewest different releases of a protection that the study trains, and its name; 0 for none."""
    trained = [named for named in config.named.values() if is_recipe(named)]
    bits = {named.spec: getattr(named, "bits", None) for named in trained}
    counted = {spec: 2**number for spec, number in bits.items() if number is not None}
    counted |= {named.spec: classes for named in trained if named.trained.name == "answer"}
    least = min(counted.values(), default=0)
    return least, " and ".join(spec for spec in config.specs if counted.get(spec) == least)


def follows(task: Tensor, secret: Tensor) -> bool:
    """Whether the class determines the identity: then the service's own task names the secret.

    The other way round, as when people have one gender each, the task tells little about their identity.
    """
    return len(torch.stack([task, secret]).unique(dim=1)[0]) == len(task.unique())


def are_few_of_each(loaded: LabelledImages, target: str) -> bool:
    """Whether there are many classes with few images each: a classifier would learn little from them."""
    counts = loaded.label(target).codes.unique(return_counts=True)[1]
    return len(counts) >= _MANY_CLASSES and counts.median().item() < _FEW_IMAGES


def can_be_looked_for(loaded: LabelledImages, sensitive: str) -> bool:
    """Whether two people have two test images each: one to know them by, one to find them on."""
    counts = loaded.split("test").label(sensitive).codes.unique(return_counts=True)[1]
    return int((counts >= 2).sum()) >= 2


def are_known(loaded: LabelledImages, target: str) -> bool:
    """Whether nearly all test images are of classes of the training images."""
    train, test = (loaded.split(name).label(target).codes for name in ("train", "test"))
    return torch.isin(test, train).double().mean().item() > _KNOWN
