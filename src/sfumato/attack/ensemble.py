"""All adversaries on one gallery, by numbers, values and images; the strongest, chosen on half of the people.

They have photographs of the people to look for, and of others to learn from. They see releases, never the
code that makes them: a gallery brings a function for that. Studies and audits of folders call the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from sfumato.attack import plda, reidentify
from sfumato.attack.reidentify import Guesses, Recogniser, Recognisers, StudentConfig
from sfumato.attack.saturation import Training
from sfumato.attack.sets import Table, by_table
from sfumato.dp.naming import MOST_OUTPUTS

GALLERY, PROBES, OTHERS, RESTORED = range(1, 5)  # streams of noise: whose photographs are released
MOST = 10  # adversaries in a sum, with repetitions
FEWEST = 4  # people to name by sets of their releases
_DRAWS = 10  # of these sets
_LEARNED = 20_000  # releases at most to learn from
_TAUGHT, _MIRRORED = 1_000, 1_000_000  # numbers of first releases: that a student sees, and of mirror images
_REDRAWN = 8  # releases of each photograph that a table counts

See = Callable[[Any], Tensor]  # a release -> (N, D) numbers, or (N, C, H, W) uint8 images


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Photographs in clear, (N, C, H, W) uint8, with int64 codes of people, and how they are released."""

    known: Tensor  # photographs of the people to look for
    names: Tensor  # who is on them
    asked: Tensor  # photographs whose releases are named
    others: Tensor  # photographs to learn from
    of_others: Tensor  # who is on them
    release: Callable[[Tensor, int, int], Any]  # photographs, stream, number in it -> their release
    noisy: bool  # whether releases of one photograph differ
    images: bool  # whether releases are images
    mirrored: bool = False  # whether adversaries try mirror images of photographs
    landmarks: Tensor | None = None  # of the faces on the known photographs, if recognisers need them
    seed: int = 0

    @cached_property
    def released(self) -> Any:
        """The releases to name."""
        return self.release(self.asked, PROBES, 0)

    def releases(
        self, photographs: Tensor, stream: int, copies: int, *, first: int = 0, mirrored: bool = False
    ) -> list[Any]:
        """Release photographs, from `first` to `copies`, once if all are equal; and then mirror images."""
        numbers = range(first, copies if self.noisy else 1)
        made = [self.release(photographs, stream, number) for number in numbers]
        turned = [_MIRRORED + number for number in numbers if mirrored]
        return made + [self.release(photographs.flip(3), stream, number) for number in turned]

    def learn_from(self, *, most: int, copies: int, mirrored: bool = False) -> tuple[list[Any], Tensor]:
        """Release the photographs of as many others as `most` releases allow, and tell who is on them."""
        people, rows, counts = self.of_others.unique(return_inverse=True, return_counts=True)
        order = torch.randperm(len(people), generator=torch.Generator().manual_seed(self.seed))
        rows = torch.isin(rows, order[counts[order].cumsum(0) <= most]).nonzero().flatten()
        copies = max(1, min(copies, most // max(1, len(rows))))
        made = self.releases(self.others[rows], OTHERS, copies, mirrored=mirrored)
        return made, self.of_others[rows]


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What one adversary found of every release that is to be named."""

    guesses: list[Guesses]  # of each of their classifiers, at least one
    names: Tensor  # who is on each photograph of the gallery that was compared
    verify: tuple[See, ...] = ()  # (k,) rows of releases -> (k, n) similarities to these photographs
    faces: float | None = None  # the share of releases on which a face was found
    trained: dict[str, Training] = field(default_factory=dict)  # by the words of the network
    reading: str = ""  # how a release was read, as "2x2 means"
    learned_from: int = 0  # releases of others
    others: int = 0  # people who are on these, or on the photographs of `trained`
    table: Table | None = None  # exact, for few outputs; the last guesses are its own


def by_vectors(gallery: Gallery, see: See, *, copies: int) -> Compared:
    """Compare the numbers of releases, or numbers made from them, with those of known people."""
    known = gallery.releases(gallery.known, GALLERY, copies)
    names, numbers = gallery.names.repeat(len(known)), torch.cat([see(each) for each in known]).double()
    guesses = reidentify.by_numbers(numbers, names, see(gallery.released).double())
    return Compared(guesses=[*guesses], names=names)


def by_values(
    gallery: Gallery,
    ways: Callable[[Gallery], Mapping[str, See]],
    *,
    copies: int,
    outputs: int | None = None,
) -> Compared:
    """Compare releases without a network, read in the way that names the most of the people to learn from.

    Mirror images join them and the gallery if that names more.

    Args:
        gallery: the people.
        ways: to read a release as (N, D) numbers, by their words.
        copies: releases of each known photograph, if they differ.
        outputs: how many different releases there are; None for too many to count.
    """
    known, asked = gallery.releases(gallery.known, GALLERY, copies), [gallery.released]
    released, others = gallery.learn_from(most=_LEARNED, copies=copies, mirrored=gallery.mirrored)
    plain = released[: len(released) // 2] if gallery.mirrored else released
    words, see, model = plda.choose_reading(plain, others, ways(gallery))
    reading, compared = words.removeprefix(", on "), known
    if gallery.mirrored and model is not None:
        both = plda.train(torch.stack([see(each) for each in released]), others)
        if both.held_out > model.held_out:
            model, reading = both, f"{reading}, mirror images too".removeprefix(", ")
            compared = gallery.releases(gallery.known, GALLERY, copies, mirrored=True)
    values, probes = torch.stack([see(each) for each in compared]), see(gallery.released)
    guesses, table = [*reidentify.by_values(values, gallery.names, probes, model)], None
    if 0 < (outputs or 0) <= MOST_OUTPUTS:
        known += gallery.releases(gallery.known, GALLERY, _REDRAWN, first=len(known))
        asked += gallery.releases(gallery.asked, PROBES, _REDRAWN, first=len(asked))
        drawn, named = (torch.stack([each.vectors() for each in some]) for some in (known, asked))
        table = by_table(drawn, gallery.names, named, gallery.names[:1].expand(len(probes)))
        exact = Guesses("table", *map(torch.from_numpy, (table.people, table.log_posteriors[0])))
        # It replaces the one that counts a gallery's few copies.
        guesses = [*(each for each in guesses if each.classifier != "table"), exact]
    rows = torch.arange(len(gallery.names))

    def verify(some: Tensor) -> Tensor:
        assert model is not None
        return torch.from_numpy(model.log_ratios(values, rows, probes[some])[1])

    return Compared(
        guesses=guesses,
        names=gallery.names,
        verify=() if model is None else (verify,),
        reading=reading,
        learned_from=len(others),
        others=0 if model is None else len(others.unique()),
        table=table,
    )


def by_images(
    gallery: Gallery, see: See, recognisers: Recognisers, static: Recogniser, *, adaptive: bool
) -> Compared:
    """Compare embeddings of what they see with those of clear photographs, or of released ones (adaptive)."""
    config, known, names, landmarks = recognisers.config, gallery.known, gallery.names, gallery.landmarks
    asked, weight, networks = see(gallery.released), 1, {"": static}
    if adaptive:
        known, names, weight = _view_gallery(gallery, see, config.copies)
        landmarks = None if landmarks is None else landmarks.repeat(len(known) // len(landmarks), 1, 1)
    faces, rate = recognisers.find(asked)
    cut, cut_asked = recognisers.cut(known, landmarks), recognisers.cut(asked, faces)
    if adaptive and config.adaptive_steps:
        shown = lru_cache(1)(lambda number: see(gallery.release(gallery.others, OTHERS, number)))
        # Further training may spoil a recogniser: an adversary keeps the better one.
        networks[", trained further"] = recognisers.train(
            gallery.seed, static, lambda number: shown(number if gallery.noisy else 0)
        )
    embedded = {words: (each.embed(cut), each.embed(cut_asked)) for words, each in networks.items()}
    if (second := recognisers.second) is not None and landmarks is not None and faces is not None:
        theirs = second.embed(second.cut(known, landmarks))
        embedded[", by dlib"] = theirs, second.embed(second.cut(asked, faces))
    named = {
        words: reidentify.reidentify(theirs, names, probes, weight=weight)
        for words, (theirs, probes) in embedded.items()
    }
    if ", by dlib" in named:
        named[", by both networks"] = tuple(
            replace(one, similarities=standardise(one.similarities) + standardise(other.similarities))
            for one, other in zip(named[""], named[", by dlib"], strict=True)
        )
    return Compared(
        guesses=[
            replace(one, classifier=one.classifier + end) for end, all_ in named.items() for one in all_
        ],
        names=names,
        verify=tuple(partial(_cosines, *pair) for pair in embedded.values()),
        faces=rate,
        trained={f"recogniser{words}": each.trained for words, each in networks.items() if each.trained},
        others=len(gallery.of_others.unique()) if any(each.trained for each in networks.values()) else 0,
    )


def by_student(
    gallery: Gallery, recognisers: Recognisers, teacher: Recogniser, config: StudentConfig, **how: Any
) -> Compared:
    """Compare releases with released photographs, by a network taught to see a face through the protection.

    It learns from other people's photographs; for `how` see Recognisers.teach.
    """

    def protect(number: int) -> Tensor:
        images: Tensor = gallery.release(gallery.others, OTHERS, _TAUGHT + number).images()
        return images

    student = recognisers.teach(config, gallery.seed, teacher, protect, mirrored=gallery.mirrored, **how)
    known, names, weight = _view_gallery(gallery, lambda release: release.images(), recognisers.config.copies)
    pair = [
        student.embed(recognisers.frame(images), mirrored=gallery.mirrored)
        for images in (known, gallery.released.images())
    ]
    guesses = [*reidentify.reidentify(pair[0], names, pair[1], weight=weight)]
    trained = {"student": student.trained} if student.trained else {}
    others, verify = len(recognisers.people.unique()), (partial(_cosines, *pair),)
    return Compared(guesses=guesses, names=names, verify=verify, trained=trained, others=others)


def _view_gallery(gallery: Gallery, see: See, copies: int) -> tuple[Tensor, Tensor, int]:
    """Views of released known photographs, who is on them, and as how many, if equal, each counts."""
    drawn = [see(each) for each in gallery.releases(gallery.known, GALLERY, copies)]
    return torch.cat(drawn), gallery.names.repeat(len(drawn)), 1 if gallery.noisy else copies


def _cosines(gallery: Tensor, probes: Tensor, rows: Tensor) -> Tensor:
    return probes[rows] @ gallery.T


def choose(
    guesses: Mapping[str, Guesses], truth: Tensor, *, most: int = MOST
) -> tuple[Guesses, tuple[list[str], ...]]:
    """Name each half of the people by at most `most` adversaries, chosen on the other half.

    One is the strongest; of several the scores are added (Caruana et al. 2004, "Ensemble selection from
    libraries of models"): each time the one is added whose addition names most, also again, with more weight.
    Returns their names for the first, third, ... person, and for the others.
    """
    identities, names = next(iter(guesses.values())).identities, list(guesses)
    similarities = torch.stack([each.similarities for each in guesses.values()])  # (k, m, I)
    first = torch.isin(truth, truth.unique()[::2])
    right = torch.searchsorted(identities, truth)
    members, total = [], similarities.new_zeros(similarities.shape[1:], dtype=torch.float64)
    for half in (first, ~first):
        # Without a second half, adversaries cannot be compared.
        chosen = _choose(similarities[:, ~half], right[~half], most) if (~half).any() else [0]
        total[half] = similarities[chosen][:, half].double().mean(0)
        members.append([names[number] for number in chosen])
    return Guesses("fusion", identities, total), (members[0], members[1])


def by_sets(similarities: Tensor, truth: Tensor, size: int, seed: int) -> Tensor | None:
    """Name people by sums over sets of `size` of their releases: (P,) how often; None if few have enough.

    `similarities` are (m, I), and `truth` (m,) columns.
    """
    people = [(truth == code).nonzero().flatten() for code in truth.unique()]
    people = [rows for rows in people if len(rows) >= size]
    if len(people) < FEWEST:
        return None
    draw = torch.Generator().manual_seed(seed)
    drawn = (rows[torch.randperm(len(rows), generator=draw)[:size]] for _ in range(_DRAWS) for rows in people)
    sets = torch.stack([*drawn]).unflatten(0, (_DRAWS, len(people)))  # (draws, P, n)
    sums = similarities[sets].sum(2)  # (draws, P, I)
    own = truth[sets[0, :, 0]]
    best = (sums == sums.amax(-1, keepdim=True)).double()  # ties count by how many there are
    return (best / best.sum(-1, keepdim=True))[:, torch.arange(len(own)), own].mean(0)


def standardise(similarities: Tensor) -> Tensor:
    """Scale each probe's similarities to mean 0 and deviation 1; 0 if all are equal. (m, I) -> (m, I)."""
    similarities = similarities.double()
    centred = similarities - similarities.mean(1, keepdim=True)
    # Relative to the largest: equal log-likelihood ratios leave rounding.
    largest = similarities.abs().amax(1, keepdim=True)
    spread = centred.square().mean(1, keepdim=True).sqrt()
    return torch.where(spread > 1e-9 * largest, centred / spread.clamp(min=1e-300), 0.0)


def _choose(similarities: Tensor, right: Tensor, most: int) -> list[int]:
    """Choose the members of (k, m, I) whose sum names most probes; `right` is the true column."""
    chosen: list[int] = []
    best, total = (0.0, 0.0), similarities.new_zeros(similarities.shape[1:], dtype=torch.float64)
    while len(chosen) < most:
        merits = [_merit(total + member, right) for member in similarities]
        number = max(range(len(merits)), key=lambda each: merits[each])  # the first of equal ones
        if chosen and merits[number] <= best:
            break
        best = merits[number]
        total = total + similarities[number]
        chosen.append(number)
    return chosen


def _merit(similarities: Tensor, right: Tensor) -> tuple[float, float]:
    """Return the share of probes named correctly, and the mean reciprocal rank to break ties."""
    own = similarities.gather(1, right[:, None])
    above, equal = (similarities > own).sum(1), (similarities == own).sum(1)
    ranks = above + (equal + 1).double() / 2
    return (ranks <= 1).double().mean().item(), (1 / ranks).mean().item()
