"""The people and photographs that a gallery leaks: many are drawn, each attacked with the rest as shadows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sfumato.assess import recognition
from sfumato.attack import membership
from sfumato.attack.membership import TABLE, VIEWS, Galleries, Membership
from sfumato.attack.saturation import check_bounds
from sfumato.audits.findings import Finding, Progress, Report, Risk, Table, calibrate, quiet, shown
from sfumato.base.proportions import wilson
from sfumato.errors import ConfigError, DataError
from sfumato.study.choose.figures import Estimate

# Maps (N, C, H, W) uint8 originals to (N, D) embeddings of releases, with fresh noise at each call.
Embed = Callable[[Tensor], Tensor]
ToPrototypes = Callable[[Tensor], Tensor]  # (P, D) means of a class's shots -> prototypes used for answers

_RATES = (0.001, 0.01)
_FEW = 0.01  # the share of false alarms in sentences
_CLEARLY = 2  # times the share of false alarms: less may be luck, since photographs of a person are alike
_RELEASES = 8  # of each photograph, if releases differ
_HALF = 0.5  # of the people are enrolled, for the question of enrolment
_BATCH = 256
_VIEWS = (  # in words
    "the prototypes, stored or on devices",
    "answers with probability and distance",
    "answers with the probability rounded to {:g}",
    "answers with the label alone",
    "the answer table: the labels of all codes",
)
_QUESTIONS = {"photograph": "Which photographs were enrolled", "person": "Who is enrolled at all"}


@dataclass(frozen=True, kw_only=True)
class GalleryAuditConfig:
    """The enrolment, and the effort of the audit."""

    shot: int = 5  # K, enrolled photographs of each class
    photographs: int = 8  # n, available ones of each class; people with fewer are left out
    known: int = 3  # q, of these never enrolled, for the question of who is in the gallery
    people: int = 100  # the most classes
    galleries: int = 64  # G, the number drawn; each is attacked with the others as its shadows
    attacked: int = 8  # of them
    step: float = 0.1  # the rounding of probabilities in a service with `--confidence rounded`
    seed: int = 0  # for the people and the enrolment

    def __post_init__(self) -> None:
        check_bounds(self, shot=1, known=1, people=4, attacked=1)
        if self.shot > self.photographs - self.known:
            raise ConfigError(
                f"shot={self.shot} and known={self.known} of photographs={self.photographs}: a class needs "
                "photographs besides its shots, and known ones that are never enrolled; lower shot or known, "
                "or raise photographs"
            )
        if self.galleries < self.attacked + 4:
            more = f"at least 4 more than the {self.attacked} that are attacked"
            raise ConfigError(f"galleries={self.galleries}: {more}")


_Judged = dict[tuple[str, str], Membership]  # by question, "photograph" or "person", and view
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
    progress: Progress = quiet,
) -> Report:
    """Report the photographs and people that can be identified from prototypes and from answers.

    The (N, C, H, W) uint8 images are of people who are not in the model's training, `codes` (N,) int64 say of
    whom. `estimate` is for codes; None: prototypes are means. Devices may have a `table` of all answers,
    possible for at most 16 bits. Raises DataError: fewer than four people have enough photographs.
    """
    progress(0, 2)
    asked, enrolled = _embed_people(embed, images, codes, config)
    progress(1, 2)
    accuracy, found = measure(asked, enrolled, config, estimate=estimate, table=table)
    progress(2, 2)
    owners, count = torch.arange(len(asked)), len(asked)
    people = {"photograph": owners.repeat_interleave(asked.shape[1]), "person": owners}
    judgements = {
        key: membership.judge(*each, at=_RATES, people=people[key[0]]) for key, each in found.items()
    }
    words = dict(zip((*VIEWS, TABLE), (each.format(config.step) for each in _VIEWS), strict=True))
    return Report(
        audit="gallery",
        subject=f"{subject}, {count} classes of {config.shot} shots",
        sentence=_sentence(judgements),
        findings=tuple(_identify(each, judgements, words, accuracy, count) for each in _QUESTIONS),
        changes=tuple(_changes(judgements, config)),
        limits=(
            "The adversary has the model, and all photographs that may be enrolled: fewer tell less.",
            "Each photograph is asked about once. Asking about many variations of it tells more from labels.",
            "Other photographs give other figures: use photographs like those of your service.",
        ),
        risks=tuple(_risks(asked, enrolled, judgements, words, config)),
    )


def measure(
    asked: Tensor, enrolled: Tensor, config: GalleryAuditConfig, *, estimate: ToPrototypes | None, table: bool
) -> tuple[float, dict[tuple[str, str], tuple[Tensor, Tensor]]]:
    """Draw galleries, and attack some; `people` and `photographs` are those of the embeddings here.

    (P, n, D) are `asked` for, and enrolled (R, P, n, D), R releases of each; without noise the same. Returns
    the accuracy on photographs that are not enrolled; and log-likelihood ratios and members, see `_Judged`.
    """
    people, photographs = asked.shape[:2]
    enrollable = photographs - config.known
    sizes: dict[str, Any] = {"people": people, "shot": config.shot, "galleries": config.galleries}
    sizes["draw"] = torch.Generator().manual_seed(config.seed)
    drawn = membership.draw_galleries(photographs=photographs, **sizes)
    half = membership.draw_galleries(photographs=enrollable, enrolled=_HALF, **sizes)
    inside, known = drawn.photographs(photographs).flatten(1, 2), asked[:, enrollable:]
    means, answering = _prototypes(enrolled, drawn, estimate)
    of_half, answering_half = _prototypes(enrolled[:, :, :enrollable], half, estimate)
    found = {}
    for view in (*VIEWS, *([TABLE] if table else [])):
        seen, of_people = (means, of_half) if view == "stored" else (answering, answering_half)
        how: dict[str, Any] = {"view": view, "step": config.step}
        scores = membership.photograph_scores(asked, seen, drawn.enrolled, **how)
        found["photograph", view] = membership.ratios(scores.flatten(1, 2), inside, attacked=config.attacked)
        scores = membership.person_scores(known, of_people, half.enrolled, **how)
        found["person", view] = membership.ratios(scores, half.enrolled, attacked=config.attacked)
    return membership.accuracy(asked, answering, drawn), found


def _prototypes(enrolled: Tensor, drawn: Galleries, estimate: ToPrototypes | None) -> tuple[Tensor, Tensor]:
    """Compute (G, P, D) means, each gallery from its own release, and the prototypes for its answers."""
    means = torch.empty(*drawn.enrolled.shape, enrolled.shape[-1], dtype=enrolled.dtype)
    for number, release in enumerate(enrolled):
        rows = slice(number, None, len(enrolled))
        shots = Galleries(drawn.shots[rows], drawn.enrolled[rows])
        means[rows] = membership.prototypes_of(release, shots)
    answering = means.clone()
    if estimate is not None:
        for gallery, people in enumerate(drawn.enrolled):
            answering[gallery, people] = estimate(means[gallery, people])
    return means, answering


def _embed_people(
    embed: Embed, images: Tensor, codes: Tensor, config: GalleryAuditConfig
) -> tuple[Tensor, Tensor]:
    able = int((codes.unique(return_counts=True)[1] >= config.photographs).sum())
    if able < 4:
        raise DataError(
            f"{able} of {len(codes.unique())} people have {config.photographs} photographs, and 4 have to: "
            "lower --photographs, and with it --shot and --known, or take all with --split all"
        )
    numbers = torch.arange(len(codes))[:, None]
    rows = membership.by_person(numbers, codes, photographs=config.photographs, seed=config.seed)[..., 0]
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(config.seed))
    rows = rows[order[: config.people]]
    flat = images[rows.flatten()]

    def embed_all() -> Tensor:
        return torch.cat([embed(part).flatten(1) for part in flat.split(_BATCH)]).double()

    asked, again = embed_all(), embed_all()
    releases = asked[None]
    if not torch.allclose(asked, again, rtol=1e-4, atol=1e-6):
        others = [embed_all() for _ in range(min(_RELEASES, config.galleries) - 1)]
        releases = torch.stack([again, *others])
    return asked.unflatten(0, rows.shape), releases.unflatten(1, rows.shape)


def _risks(
    asked: Tensor, enrolled: Tensor, judgements: _Judged, words: dict[str, str], config: GalleryAuditConfig
) -> Iterator[Risk]:
    """How often a stored prototype and a later release find each other, and an enrolment is inferred."""
    people, numbers = len(asked), torch.arange(len(asked))
    known: dict[str, Any] = {"people": people, "source": "this audit"}
    prototypes, later = enrolled[0, :, : config.shot].mean(1), asked[:, -config.known]  # (P, D) each
    scores = -torch.cdist(later, prototypes)
    named = recognition.identification(scores, numbers, numbers)
    sure: dict[str, Any] = calibrate([scores.numpy()], numbers.numpy(), numbers.numpy())
    adversary = f"adversary who compares a release with the stored prototypes of {people} people"
    rate = Estimate(named.top1, named.low, named.high, seeds=1)
    yield Risk("singling out", "identity", 1, adversary, rate, 1 / people, **known, **sure)
    accepted = recognition.verification(scores.flatten(), torch.eye(people).bool().flatten())
    share = accepted.tar_at_far["1e-2"]
    adversary = "adversary who accepts a release and a prototype as one person's, with 1 in 100 false alarms"
    rate = Estimate(share, *wilson(share * people, people), seeds=1)
    yield Risk("linkability", "identity", 1, adversary, rate, 0.01, **known)
    for (question, view), judgement in judgements.items():
        rate, secret = Estimate(*judgement.rates[_FEW], seeds=1), f"enrolment of a {question}"
        yield Risk("inference", secret, 1, f"adversary who sees {words[view]}", rate, _FEW, **known)


def _leaks(judgement: Membership) -> bool:
    return judgement.rates[_FEW][1] > _CLEARLY * _FEW


def _identify(question: str, judged: _Judged, views: dict[str, str], right: float, people: int) -> Finding:
    mine = {view: judgement for (of, view), judgement in judged.items() if of == question}
    stored, answers, label = (mine[view].rates[_FEW][0] for view in ("stored", "full", "label"))
    what = "photographs" if question == "photograph" else "people"
    rows, figures = [], dict[str, Any](accuracy=right)
    for view, judgement in mine.items():
        (share, low, high), fewer = judgement.rates[_FEW], judgement.rates[_RATES[0]][0]
        interval = f"{low:.1%} to {high:.1%}"
        rows.append((views[view], f"{share:.1%}", interval, f"{fewer:.1%}", f"{judgement.auc:.3f}"))
        rates = {f"{rate:g}": list(values) for rate, values in judgement.rates.items()}
        figures[view] = {"members": judgement.members, "others": judgement.others}
        figures[view] |= {"auc": judgement.auc, "rates": rates}
    words = (
        f"With {_FEW:.0%} of false alarms an adversary identifies {stored:.1%} of the enrolled {what} "
        f"from the stored prototypes, {answers:.1%} from answers, and {label:.1%} from labels alone."
    )
    caption = (
        f"The gallery itself names {right:.1%} of other photographs correctly (chance {1 / people:.1%}). "
        "Shares are at that rate of false alarms."
    )
    columns = ("what they see", f"identified at {_FEW:.0%}", "95% interval", f"at {_RATES[0]:.1%}", "AUC")
    verdict, made = shown(any(map(_leaks, mine.values()))), Table(columns, tuple(rows), caption)
    return Finding(question, _QUESTIONS[question], verdict, words, made, figures=figures)


def _sentence(judgements: _Judged) -> str:
    stored, answers = (judgements["photograph", view] for view in ("stored", "full"))
    from_store = f"{stored.rates[_FEW][0]:.1%}"
    guarded = "of this gallery as you guard its photographs: with 1% of false alarms"
    if _leaks(answers):
        identified = f"{answers.rates[_FEW][0]:.1%} of the enrolled ones are identified from answers"
        return f"Guard the answers {guarded} {identified}, and {from_store} from the stored prototypes."
    if _leaks(stored):
        identified = f"{from_store} of the enrolled ones are identified from its prototypes"
        return f"Guard the store {guarded} {identified}, and few from answers."
    if any(map(_leaks, judgements.values())):
        return "Let only those query this gallery who may know who is enrolled: its answers show who is."
    found = "No enrolled photograph was identified much more often than others were by mistake."
    return f"{found} Nothing is proved."


def _changes(judgements: _Judged, config: GalleryAuditConfig) -> list[str]:
    shares = {view: judgements["photograph", view].rates[_FEW][0] for view in VIEWS}
    stolen, changes = _leaks(judgements["photograph", "stored"]), []
    if stolen and config.shot < 5:
        changes.append("Enrol more photographs of each class: a prototype of few is close to each of them.")
    for view, option in (("label", "label"), ("rounded", f"rounded --confidence-step {config.step:g}")):
        if shares[view] < shares["full"]:
            less = f"lowers what answers give away from {shares['full']:.1%} to {shares[view]:.1%}"
            changes.append(f"Answer with less: `sfumato serve --confidence {option}` {less}.")
    if stolen:
        changes.append("Encrypt the store, and keep its backups as you would keep the photographs.")
    if changes:
        changes.append("Release codes of a few bits instead of images, and audit a gallery of them.")
    return changes
