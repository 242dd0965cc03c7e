"""The audit of a gallery: the choice of photographs, and the findings."""

from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from sfumato.assess.isolation import BY_LUCK, linkability, singling_out
from sfumato.attack.membership import TABLE, VIEWS, Membership, by_person, judge
from sfumato.audits.findings import Finding, Report, Table
from sfumato.audits.gallery.measure import (
    Embedded,
    GalleryAuditConfig,
    Measured,
    ToPrototypes,
    measure,
)
from sfumato.audits.risks import Risk
from sfumato.base.proportions import wilson
from sfumato.dp.private_mean import mean_guarantee, sigma_for
from sfumato.errors import DataError
from sfumato.study.choose.estimates import Estimate

Embed = Callable[[Tensor], Tensor]
"""Maps (N, C, H, W) uint8 originals to (N, D) embeddings of releases, with fresh noise at each call."""

_NORMAL = NormalDist()
_USUAL = GalleryAuditConfig()
_RATES = (0.001, 0.01)
_FEW = 0.01  # the share of false alarms in sentences
_CLEARLY = 2  # times the share of false alarms: less may be luck, since photographs of a person are alike
_RELEASES = 8  # of each photograph, if releases differ
_SOURCE = "this audit"
_QUESTIONS = {"photograph": "Which photographs were enrolled", "person": "Who is enrolled at all"}


def audit_gallery(
    embed: Embed,
    images: Tensor,
    codes: Tensor,
    *,
    public: Tensor | None = None,
    estimate: ToPrototypes | None = None,
    table: bool = False,
    subject: str = "A gallery",
    config: GalleryAuditConfig = _USUAL,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Report the photographs and people that can be identified from prototypes and from answers.

    Args:
        embed: embeds images like the device and the service; see Embed.
        images: (N, C, H, W) uint8, of people who are not in the model's training.
        codes: (N,) int64, the person on each.
        public: (M, C, H, W) uint8 of other people, who need no protection: used to measure the effect of
            noise on examples. Embeddings are clipped to the median norm of the public ones.
        estimate: turns means of K shots into prototypes, for codes; None: prototypes are means.
        table: whether devices have a table of all answers, possible for at most 16 bits.
        subject: the audited object, in words.
        config: the enrolment, and the effort of the audit.
        progress: called with the numbers of parts done and planned.

    Raises:
        DataError: fewer than four people have enough photographs.
    """
    parts = 2 + (len(config.epsilons) if public is not None else 0)
    report = progress or (lambda done, planned: None)
    report(0, parts)
    embedded = _embed_people(embed, images, codes, config)
    report(1, parts)
    plain = measure(embedded, config, estimate=estimate, table=table)
    report(2, parts)
    owners = torch.arange(len(embedded.asked))
    people = {"photograph": owners.repeat_interleave(embedded.asked.shape[1]), "person": owners}
    judgements = {key: judge(*found, at=_RATES, people=people[key[0]]) for key, found in plain.found.items()}
    findings = [
        _identify(question, judgements, plain, len(embedded.asked), config) for question in _QUESTIONS
    ]
    if public is not None:
        middle = _embed_all(embed, public).norm(dim=1).median().item()
        findings.append(_noise(embedded, middle, plain, estimate, table, config, report, parts))
    return Report(
        audit="gallery",
        subject=f"{subject}, {len(embedded.asked)} classes of {config.shot} shots",
        sentence=_sentence(judgements),
        findings=tuple(findings),
        changes=tuple(_changes(judgements, config)),
        limits=_LIMITS,
        risks=(*_link(embedded, config), *_enrolments(judgements, len(embedded.asked), config)),
    )


_LIMITS = (
    "The adversary has the model, and all photographs that may be enrolled. With fewer they learn less.",
    "Each photograph is asked about once. Asking about many variations of it tells more from labels.",
    "Other photographs give other figures: use photographs like those of your service.",
)


def _link(embedded: Embedded, config: GalleryAuditConfig) -> list[Risk]:
    """How a stored prototype and one later release of the same person find each other.

    The prototype is a predicate that is true of few releases, or a release chooses among prototypes.
    """
    enrollable, people = embedded.asked.shape[1] - config.known, len(embedded.asked)
    prototypes = embedded.enrolled[0, :, : config.shot].mean(1)  # (P, D)
    known = embedded.asked[:, enrollable:]  # (P, q, D)
    scores = -torch.cdist(prototypes, known.flatten(0, 1)).unflatten(1, known.shape[:2]).numpy()
    risks = [
        Risk(
            kind="linkability",
            secret="identity",
            releases=1,
            adversary=f"adversary who compares a release with the stored prototypes of {count} people",
            rate=Estimate(share, *wilson(share * people, people), seeds=1),
            control=1 / count,
            people=people,
            source=_SOURCE,
        )
        for count in sorted({min(10, people), people})
        for share in [float(linkability(scores[..., 0].T, np.arange(people), candidates=count).mean())]
    ]
    if config.known > 1:
        share = float(singling_out(scores[..., 0], scores[..., 1:]).mean())
        risks.append(
            Risk(
                kind="singling out",
                secret="identity",
                releases=1,
                adversary=f"adversary whom a stored prototype leads to one release among {people}",
                rate=Estimate(share, *wilson(share * people, people), seeds=1),
                control=BY_LUCK,
                beyond=True,
                people=people,
                source=_SOURCE,
            )
        )
    return risks


def _enrolments(
    judgements: dict[tuple[str, str], Membership], people: int, config: GalleryAuditConfig
) -> list[Risk]:
    """How often an enrolment is inferred, at 1% of false alarms."""
    views = _describe_views(config)
    return [
        Risk(
            kind="inference",
            secret=f"enrolment of a {question}",
            releases=1,
            adversary=f"adversary who sees {views[view]}",
            rate=Estimate(*judgement.rates[_FEW], seeds=1),
            control=_FEW,
            people=people,
            source=_SOURCE,
        )
        for (question, view), judgement in judgements.items()
    ]


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
    asked = _embed_all(embed, flat)
    again = _embed_all(embed, flat)
    if torch.allclose(asked, again, rtol=1e-4, atol=1e-6):
        releases = asked[None]
    else:
        others = [_embed_all(embed, flat) for _ in range(min(_RELEASES, config.galleries) - 1)]
        releases = torch.stack([again, *others])
    return Embedded(asked.unflatten(0, rows.shape), releases.unflatten(1, rows.shape))


def _embed_all(embed: Embed, images: Tensor, batch: int = 256) -> Tensor:
    return torch.cat([embed(part).flatten(1) for part in images.split(batch)]).double()


def _describe_views(config: GalleryAuditConfig) -> dict[str, str]:
    words = (
        "the prototypes, stored or on devices",
        "answers with probability and distance",
        f"answers with the probability rounded to {config.step:g}",
        "answers with the label alone",
        "the answer table: the labels of all codes",
    )
    return dict(zip((*VIEWS, TABLE), words, strict=True))


def _leaks(judgement: Membership) -> bool:
    return judgement.rates[_FEW][1] > _CLEARLY * _FEW


def _identify(
    question: str,
    judgements: dict[tuple[str, str], Membership],
    plain: Measured,
    people: int,
    config: GalleryAuditConfig,
) -> Finding:
    of_question = {
        view: judgements[question, view] for view in _describe_views(config) if (question, view) in judgements
    }
    stored, answers, label = (of_question[view].rates[_FEW][0] for view in ("stored", "full", "label"))
    what = "photographs" if question == "photograph" else "people"
    return Finding(
        name=question,
        title=_QUESTIONS[question],
        verdict="leaks" if any(map(_leaks, of_question.values())) else "not shown",
        sentence=(
            f"With {_FEW:.0%} of false alarms an adversary identifies {stored:.1%} of the enrolled {what} "
            f"from the stored prototypes, {answers:.1%} from answers, and {label:.1%} from labels alone."
        ),
        table=Table(
            ("what they see", f"identified at {_FEW:.0%}", "95% interval", f"at {_RATES[0]:.1%}", "AUC"),
            tuple(
                (
                    words,
                    f"{of_question[view].rates[_FEW][0]:.1%}",
                    "{:.1%} to {:.1%}".format(*of_question[view].rates[_FEW][1:]),
                    f"{of_question[view].rates[_RATES[0]][0]:.1%}",
                    f"{of_question[view].auc:.3f}",
                )
                for view, words in _describe_views(config).items()
                if view in of_question
            ),
            f"The gallery itself names {plain.accuracy:.1%} of other photographs correctly (chance "
            f"{1 / people:.1%}). Shares are at that rate of false alarms.",
        ),
        figures={
            "accuracy": plain.accuracy,
            **{
                view: {
                    "members": judgement.members,
                    "others": judgement.others,
                    "auc": judgement.auc,
                    "rates": {f"{rate:g}": list(values) for rate, values in judgement.rates.items()},
                }
                for view, judgement in of_question.items()
            },
        },
    )


def _noise(
    embedded: Embedded,
    norm: float,
    plain: Measured,
    estimate: ToPrototypes | None,
    table: bool,
    config: GalleryAuditConfig,
    report: Callable[[int, int], None],
    parts: int,
) -> Finding:
    """Report the bound, effect and cost of noise on examples."""
    rows, figures = [], {}
    for number, epsilon in enumerate(sorted(config.epsilons, reverse=True)):
        sigma = sigma_for(1, clipping_norm=norm, epsilon=epsilon, delta=config.delta)
        noisy = measure(embedded, config, noise=(norm, sigma), estimate=estimate, table=table)
        shares = {
            view: judge(*found, at=(_FEW,)).rates[_FEW][0]
            for (question, view), found in noisy.found.items()
            if question == "photograph"
        }
        mu = mean_guarantee(1, clipping_norm=norm, sigma=sigma).value
        proved = _NORMAL.cdf(_NORMAL.inv_cdf(_FEW) + mu)  # Dong, Roth & Su 2022, Eq. (6)
        rows.append(
            (
                f"{epsilon:g}",
                f"{proved:.1%}",
                *(f"{share:.1%}" for share in shares.values()),
                f"{noisy.accuracy:.1%}",
            )
        )
        figures[f"{epsilon:g}"] = {
            "sigma": sigma,
            "mu": mu,
            "proved": proved,
            "accuracy": noisy.accuracy,
            **shares,
        }
        report(3 + number, parts)
    return Finding(
        name="noise",
        title="The effect of noise on examples",
        verdict="not shown",
        sentence=(
            "noise on examples bounds any adversary's success, and costs accuracy: "
            f"without it {plain.accuracy:.1%} of other photographs are named correctly."
        ),
        table=Table(
            (
                "epsilon",
                f"proved, at {_FEW:.0%}",
                "from the store",
                "from answers",
                *(["from the table"] if table else []),
                "accuracy",
            ),
            tuple(rows),
            f"Noise on each shot, at δ = {config.delta:g}; --example-norm is {norm:.3g}, the median norm of "
            "the public ones. The column “proved” has the most that anybody can identify.",
        ),
        figures={"clipping_norm": norm, "delta": config.delta, "epsilons": figures},
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
    changes = []
    if _leaks(judgements["photograph", "stored"]) and config.shot < 5:
        changes.append(
            "Enrol more photographs of each class: a prototype made of few is close to each of them."
        )
    for view, option in (("label", "label"), ("rounded", f"rounded --confidence-step {config.step:g}")):
        if shares[view] < shares["full"]:
            changes.append(
                f"Answer with less: `sfumato serve --confidence {option}` lowers what answers give away from "
                f"{shares['full']:.1%} to {shares[view]:.1%}."
            )
    if _leaks(judgements["photograph", "stored"]):
        changes.append("Encrypt the store, and keep its backups as you would keep the photographs.")
    if changes:
        changes.append("Release codes of a few bits instead of images, and audit a gallery of them.")
    return changes
