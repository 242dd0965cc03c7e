"""The leaks of a gallery of enrolled classes: its people and its photographs.

Galleries are drawn from available photographs, and each is attacked with all others as shadows.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sfumato.assess.isolation import BY_LUCK, linkability, singling_out
from sfumato.attack.membership import (
    TABLE,
    VIEWS,
    Galleries,
    Membership,
    accuracy,
    by_person,
    draw_galleries,
    judge,
    person_scores,
    photograph_scores,
    prototypes_of,
    ratios,
)
from sfumato.audits.findings import Finding, Report, Table
from sfumato.audits.risks import Risk
from sfumato.base.proportions import wilson
from sfumato.errors import ConfigError, DataError
from sfumato.study.choose.estimates import Estimate

Embed = Callable[[Tensor], Tensor]
"""Maps (N, C, H, W) uint8 originals to (N, D) embeddings of releases, with fresh noise at each call."""

ToPrototypes = Callable[[Tensor], Tensor]
"""Maps (P, D) means of the shots of each class to the prototypes used for answers."""

_RATES = (0.001, 0.01)
_FEW = 0.01  # the share of false alarms in sentences
_CLEARLY = 2  # times the share of false alarms: less may be luck, since photographs of a person are alike
_RELEASES = 8  # of each photograph, if releases differ
_HALF = 0.5  # of the people are enrolled, for the question of enrolment
_BATCH = 256
_QUESTIONS = {"photograph": "Which photographs were enrolled", "person": "Who is enrolled at all"}


@dataclass(frozen=True, kw_only=True)
class GalleryAuditConfig:
    """The enrolment, and the effort of the audit.

    Attributes:
        shot: K, enrolled photographs of each class.
        photographs: n, available photographs of each class; people with fewer are left out.
        known: q, of these never enrolled, for the question of who is in the gallery.
        people: the most classes.
        galleries: G, the number drawn; each is attacked with the others as its shadows.
        attacked: the number of them attacked.
        step: the rounding of probabilities in a service with `--confidence rounded`.
        seed: for the people and the enrolment.
    """

    shot: int = 5
    photographs: int = 8
    known: int = 3
    people: int = 100
    galleries: int = 64
    attacked: int = 8
    step: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("shot", 1), ("known", 1), ("people", 4), ("attacked", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name}={getattr(self, name)}: at least {least}")
        if self.shot >= self.photographs or self.shot > self.photographs - self.known:
            raise ConfigError(
                f"shot={self.shot} and known={self.known} of photographs={self.photographs}: a class needs "
                "photographs besides its shots, and known ones that are never enrolled; lower shot or known, "
                "or raise photographs"
            )
        if self.galleries < self.attacked + 4:
            raise ConfigError(
                f"galleries={self.galleries}: at least 4 more than the {self.attacked} that are attacked"
            )


@dataclass(frozen=True)
class Embedded:
    """Embeddings of n photographs of P people.

    Attributes:
        asked: (P, n, D), for queries.
        enrolled: (R, P, n, D), for enrolment, in R releases of each: a protection's noise in enrolment
            differs from that in queries. Equal to `asked`, with R = 1, if a protection has no noise.
    """

    asked: Tensor
    enrolled: Tensor


@dataclass(frozen=True)
class Measured:
    """The results of one draw of galleries.

    Attributes:
        accuracy: of the gallery, on photographs that are not enrolled.
        found: maps (question, view) to the log-likelihood ratios and the members; the questions are
            "photograph" (was it a shot?) and "person" (are they enrolled at all?).
    """

    accuracy: float
    found: dict[tuple[str, str], tuple[Tensor, Tensor]]


_USUAL = GalleryAuditConfig()


def audit_gallery(
    embed: Embed,
    images: Tensor,
    codes: Tensor,
    *,
    estimate: ToPrototypes | None = None,
    table: bool = False,
    subject: str = "A gallery",
    config: GalleryAuditConfig = _USUAL,
    progress: Callable[[int, int], None] = lambda done, planned: None,
) -> Report:
    """Report the photographs and people that can be identified from prototypes and from answers.

    Args:
        embed: embeds images like the device and the service; see Embed.
        images: (N, C, H, W) uint8, of people who are not in the model's training.
        codes: (N,) int64, the person on each.
        estimate: turns means of K shots into prototypes, for codes; None: prototypes are means.
        table: whether devices have a table of all answers, possible for at most 16 bits.
        subject: the audited object, in words.
        config: the enrolment, and the effort of the audit.
        progress: called with the numbers of parts done and planned.

    Raises:
        DataError: fewer than four people have enough photographs.
    """
    progress(0, 2)
    embedded = _embed_people(embed, images, codes, config)
    progress(1, 2)
    measured = measure(embedded, config, estimate=estimate, table=table)
    progress(2, 2)
    owners = torch.arange(len(embedded.asked))
    people = {"photograph": owners.repeat_interleave(embedded.asked.shape[1]), "person": owners}
    judgements = {
        key: judge(*found, at=_RATES, people=people[key[0]]) for key, found in measured.found.items()
    }
    views = (
        "the prototypes, stored or on devices",
        "answers with probability and distance",
        f"answers with the probability rounded to {config.step:g}",
        "answers with the label alone",
        "the answer table: the labels of all codes",
    )
    words = dict(zip((*VIEWS, TABLE), views, strict=True))
    return Report(
        audit="gallery",
        subject=f"{subject}, {len(embedded.asked)} classes of {config.shot} shots",
        sentence=_sentence(judgements),
        findings=tuple(
            _identify(question, judgements, words, measured.accuracy, len(embedded.asked))
            for question in _QUESTIONS
        ),
        changes=tuple(_changes(judgements, config)),
        limits=(
            "The adversary has the model, and all photographs that may be enrolled: fewer tell less.",
            "Each photograph is asked about once. Asking about many variations of it tells more from labels.",
            "Other photographs give other figures: use photographs like those of your service.",
        ),
        risks=tuple(_risks(embedded, judgements, words, config)),
    )


def measure(
    embedded: Embedded,
    config: GalleryAuditConfig,
    *,
    estimate: ToPrototypes | None = None,
    table: bool = False,
) -> Measured:
    """Draw galleries, and attack some of them.

    Args:
        embedded: the photographs.
        config: see GalleryAuditConfig; `people` and `photographs` are those of `embedded` here.
        estimate: for codes; None: the prototypes are means.
        table: whether devices get the answers to all codes.
    """
    people, photographs = embedded.asked.shape[:2]
    enrollable = photographs - config.known
    draw = torch.Generator().manual_seed(config.seed)
    sizes: dict[str, Any] = {
        "people": people,
        "shot": config.shot,
        "galleries": config.galleries,
        "draw": draw,
    }
    drawn = draw_galleries(photographs=photographs, **sizes)
    half = draw_galleries(photographs=enrollable, enrolled=_HALF, **sizes)
    inside, known = drawn.photographs(photographs).flatten(1, 2), embedded.asked[:, enrollable:]
    means, of_half = _means(embedded.enrolled, drawn), _means(embedded.enrolled[:, :, :enrollable], half)
    answering, answering_half = _answering(means, drawn, estimate), _answering(of_half, half, estimate)
    found = {}
    for view in (*VIEWS, *([TABLE] if table else [])):
        seen, of_people = (means, of_half) if view == "stored" else (answering, answering_half)
        scores = photograph_scores(embedded.asked, seen, drawn.enrolled, view=view, step=config.step)
        found["photograph", view] = ratios(scores.flatten(1, 2), inside, attacked=config.attacked)
        scores = person_scores(known, of_people, half.enrolled, view=view, step=config.step)
        found["person", view] = ratios(scores, half.enrolled, attacked=config.attacked)
    return Measured(accuracy(embedded.asked, answering, drawn), found)


def _means(enrolled: Tensor, drawn: Galleries) -> Tensor:
    """Compute prototypes (G, P, D), each gallery from its own release."""
    parts = torch.empty(*drawn.enrolled.shape, enrolled.shape[-1], dtype=enrolled.dtype)
    for number, release in enumerate(enrolled):
        rows = slice(number, None, len(enrolled))
        parts[rows] = prototypes_of(release, Galleries(drawn.shots[rows], drawn.enrolled[rows]))
    return parts


def _answering(means: Tensor, drawn: Galleries, estimate: ToPrototypes | None) -> Tensor:
    """Compute the prototypes for answers: in each gallery, of the people enrolled in it."""
    if estimate is None:
        return means
    prototypes = means.clone()
    for gallery, enrolled in enumerate(drawn.enrolled):
        prototypes[gallery, enrolled] = estimate(means[gallery, enrolled])
    return prototypes


def _embed_people(embed: Embed, images: Tensor, codes: Tensor, config: GalleryAuditConfig) -> Embedded:
    """Embed people with enough photographs; in several releases, if they differ."""
    able = int((codes.unique(return_counts=True)[1] >= config.photographs).sum())
    if able < 4:
        raise DataError(
            f"{able} of {len(codes.unique())} people have {config.photographs} photographs, and 4 have to: "
            "lower --photographs, and with it --shot and --known, or take all with --split all"
        )
    numbers = torch.arange(len(codes))[:, None]
    rows = by_person(numbers, codes, photographs=config.photographs, seed=config.seed)[..., 0]
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(config.seed))
    rows = rows[order[: config.people]]
    flat = images[rows.flatten()]

    def embed_all() -> Tensor:
        return torch.cat([embed(part).flatten(1) for part in flat.split(_BATCH)]).double()

    asked, again = embed_all(), embed_all()
    if torch.allclose(asked, again, rtol=1e-4, atol=1e-6):
        releases = asked[None]
    else:
        others = [embed_all() for _ in range(min(_RELEASES, config.galleries) - 1)]
        releases = torch.stack([again, *others])
    return Embedded(asked.unflatten(0, rows.shape), releases.unflatten(1, rows.shape))


def _risks(
    embedded: Embedded,
    judgements: dict[tuple[str, str], Membership],
    words: dict[str, str],
    config: GalleryAuditConfig,
) -> Iterator[Risk]:
    """How often an enrolment is inferred, and a stored prototype and one later release find each other.

    The prototype is a predicate that is true of few releases, or a release chooses among prototypes.
    """
    people = len(embedded.asked)
    known: dict[str, Any] = {"releases": 1, "people": people, "source": "this audit"}

    def share_of(of_people: np.ndarray) -> Estimate:
        share = float(of_people.mean())
        return Estimate(share, *wilson(share * people, people), seeds=1)

    prototypes = embedded.enrolled[0, :, : config.shot].mean(1)  # (P, D)
    later = embedded.asked[:, -config.known :]  # (P, q, D)
    scores = -torch.cdist(prototypes, later.flatten(0, 1)).unflatten(1, later.shape[:2]).numpy()
    for count in sorted({min(10, people), people}):
        yield Risk(
            kind="linkability",
            secret="identity",
            adversary=f"adversary who compares a release with the stored prototypes of {count} people",
            rate=share_of(linkability(scores[..., 0].T, np.arange(people), candidates=count)),
            control=1 / count,
            **known,
        )
    if config.known > 1:
        yield Risk(
            kind="singling out",
            secret="identity",
            adversary=f"adversary whom a stored prototype leads to one release among {people}",
            rate=share_of(singling_out(scores[..., 0], scores[..., 1:])),
            control=BY_LUCK,
            beyond=True,
            **known,
        )
    for (question, view), judgement in judgements.items():
        yield Risk(
            kind="inference",
            secret=f"enrolment of a {question}",
            adversary=f"adversary who sees {words[view]}",
            rate=Estimate(*judgement.rates[_FEW], seeds=1),
            control=_FEW,
            **known,
        )


def _leaks(judgement: Membership) -> bool:
    return judgement.rates[_FEW][1] > _CLEARLY * _FEW


def _identify(
    question: str,
    judgements: dict[tuple[str, str], Membership],
    words: dict[str, str],
    right: float,
    people: int,
) -> Finding:
    mine = {view: judgement for (of, view), judgement in judgements.items() if of == question}
    stored, answers, label = (mine[view].rates[_FEW][0] for view in ("stored", "full", "label"))
    what = "photographs" if question == "photograph" else "people"
    return Finding(
        name=question,
        title=_QUESTIONS[question],
        verdict="leaks" if any(map(_leaks, mine.values())) else "not shown",
        sentence=(
            f"With {_FEW:.0%} of false alarms an adversary identifies {stored:.1%} of the enrolled {what} "
            f"from the stored prototypes, {answers:.1%} from answers, and {label:.1%} from labels alone."
        ),
        table=Table(
            ("what they see", f"identified at {_FEW:.0%}", "95% interval", f"at {_RATES[0]:.1%}", "AUC"),
            tuple(
                (
                    words[view],
                    f"{judgement.rates[_FEW][0]:.1%}",
                    "{:.1%} to {:.1%}".format(*judgement.rates[_FEW][1:]),
                    f"{judgement.rates[_RATES[0]][0]:.1%}",
                    f"{judgement.auc:.3f}",
                )
                for view, judgement in mine.items()
            ),
            f"The gallery itself names {right:.1%} of other photographs correctly (chance {1 / people:.1%}). "
            "Shares are at that rate of false alarms.",
        ),
        figures={
            "accuracy": right,
            **{
                view: {
                    "members": judgement.members,
                    "others": judgement.others,
                    "auc": judgement.auc,
                    "rates": {f"{rate:g}": list(values) for rate, values in judgement.rates.items()},
                }
                for view, judgement in mine.items()
            },
        },
    )


def _sentence(judgements: dict[tuple[str, str], Membership]) -> str:
    stored, answers = (judgements["photograph", view] for view in ("stored", "full"))
    if _leaks(answers):
        return (
            "Guard the answers of this gallery as you guard its photographs: with 1% of false alarms "
            f"{answers.rates[_FEW][0]:.1%} of the enrolled ones are identified from answers, and "
            f"{stored.rates[_FEW][0]:.1%} from the stored prototypes."
        )
    if _leaks(stored):
        return (
            "Guard the store of this gallery as you guard its photographs: with 1% of false alarms "
            f"{stored.rates[_FEW][0]:.1%} of the enrolled ones are identified from its prototypes, and few "
            "from answers."
        )
    if any(map(_leaks, judgements.values())):
        return (
            "Let only those query this gallery who may know who is enrolled in it: its answers show who is."
        )
    return (
        "No enrolled photograph was identified much more often than others were by mistake. "
        "Nothing is proved."
    )


def _changes(judgements: dict[tuple[str, str], Membership], config: GalleryAuditConfig) -> list[str]:
    shares = {view: judgements["photograph", view].rates[_FEW][0] for view in VIEWS}
    stolen, changes = _leaks(judgements["photograph", "stored"]), []
    if stolen and config.shot < 5:
        changes.append(
            "Enrol more photographs of each class: a prototype made of few is close to each of them."
        )
    for view, option in (("label", "label"), ("rounded", f"rounded --confidence-step {config.step:g}")):
        if shares[view] < shares["full"]:
            changes.append(
                f"Answer with less: `sfumato serve --confidence {option}` lowers what answers give away from "
                f"{shares['full']:.1%} to {shares[view]:.1%}."
            )
    if stolen:
        changes.append("Encrypt the store, and keep its backups as you would keep the photographs.")
    if changes:
        changes.append("Release codes of a few bits instead of images, and audit a gallery of them.")
    return changes
