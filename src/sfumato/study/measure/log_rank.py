"""Log-rank privacy of numbers and bits; with a feature's accuracy, a point of its curve.

Source: Osia et al. 2018 (docs/papers.md, "DPFE"), Sec. 5, 6.1 and 6.2, and Procedure 2. The paper has one
adversary, a kernel density; two trained ones are added here (attack.reidentify), and the strongest counts.
"""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from sfumato.assess import log_rank
from sfumato.assess.log_rank import LogRank
from sfumato.attack.reidentify import FEATURE_ADVERSARIES, log_posteriors, split_gallery
from sfumato.data.labelled import LabelledImages
from sfumato.dp.mechanisms import seeded_noise
from sfumato.dp.naming import BY_STRENGTH, MOST_OUTPUTS, Assumption
from sfumato.errors import DataError
from sfumato.learn import private_feature
from sfumato.protect import naming, parse
from sfumato.protect.code import Code, signs, words_of
from sfumato.protect.feature import Feature
from sfumato.study.cells import Cell, Facts, Kind
from sfumato.study.grid import StudyConfig
from sfumato.study.lab.lab import Lab
from sfumato.study.vocabulary import BITS, NUMBERS, release_kind

DENSITY = "density"
TENTH = 0.1  # of the identities, the share in the paper's statement
_TAKES = (NUMBERS, BITS)


@dataclass(frozen=True)
class Ranked:
    """One protection against each adversary."""

    spec: str
    adversaries: dict[str, LogRank]  # by name; the density's includes the nearest neighbour
    chance: float  # how often a random known photograph is of another person
    proved: float  # lower bound of log-rank privacy for one release; 0 without a proof
    proved_of_many: dict[Assumption, float]  # the same for several releases, by assumption
    # For codes of few bits, how often one release names its person, to the best adversary with all these
    # photographs: of all namings, and of the hundredth of which they are surest.
    named: tuple[float, float] | None

    @property
    def strongest(self) -> str:
        """The adversary with the least log-rank privacy."""
        return min(self.adversaries, key=lambda name: self.adversaries[name].lrp)

    @property
    def if_normal(self) -> float:
        """The paper's statement for the strongest adversary, see log_rank.normal_anonymity."""
        worst = self.adversaries[self.strongest]
        return log_rank.normal_anonymity(worst.mean, worst.deviation, TENTH)


def rank_privacy(
    protection: Feature | Code,
    images: Tensor,
    identities: Tensor,
    *,
    known: int = 10,
    asked: int = 10,
    least: int = 4,
    copies: int = 3,
    releases: int = 100,
    seed: int = 0,
) -> Ranked:
    """Judge a protection by the ranks of the right people, (N,) int64, on (N, C, H, W) uint8 images.

    These people are not in its training. An adversary has `known` photographs of each and names `asked`
    others, or each side gets its share; people with fewer than `least` known ones, 2 or more, are left out.
    Noisy releases of known ones are `copies`. `releases` of a person are for the statement on many.

    Raises DataError: fewer than two people have enough photographs; or see log_rank.judge_features.
    """
    mine, theirs = split_gallery(identities, known=known, probes=asked, seed=seed)
    counts = identities[mine].bincount(minlength=int(identities.max()) + 1)
    rows, others = (rows[counts[identities[rows]] >= least] for rows in (mine, theirs))
    people = identities[rows].unique()
    if len(people) < 2:
        raise DataError(
            f"{len(people)} people have {least} photographs for the adversary: "
            "add photographs, or lower least"
        )
    copies = copies if protection.draws_noise else 1
    released = [
        protection.release(images[rows], seeded_noise(seed, copy)).vectors() for copy in range(copies)
    ]
    mine, owners = torch.cat(released), identities[rows].repeat(copies)
    theirs = protection.release(images[others], seeded_noise(seed, copies)).vectors()
    truth = identities[others]
    found = {DENSITY: log_rank.judge_features(mine, owners, theirs, truth)}
    for name in FEATURE_ADVERSARIES:
        guesses = log_posteriors(mine, owners, theirs, adversary=name, seed=seed)
        found[name] = log_rank.judge(guesses, torch.searchsorted(people, truth))
    shares = [codes.bincount(minlength=int(people.max()) + 1) / len(codes) for codes in (owners, truth)]
    channels, height, width = images.shape[1:]
    proved = partial(
        naming.log_rank,
        protection,
        (channels, height, width),
        people=len(people),
        largest=float(shares[1].max()),  # the largest share of queries of one person
    )
    named = None
    if isinstance(protection, Code) and (protection.outputs or math.inf) <= MOST_OUTPUTS:
        rows = torch.cat([rows, others])
        named = chance_and_surest(protection, protection.encode(images[rows]), identities[rows])
    return Ranked(
        protection.spec,
        found,
        chance=1 - float(shares[0] @ shares[1]),
        proved=proved(),
        proved_of_many={each: proved(releases=releases, assuming=each) for each in BY_STRENGTH},
        named=named,
    )


def chance_and_surest(protection: Code, numbers: Tensor, classes: Tensor) -> tuple[float, float]:
    """How often the right one of some equally likely classes is named from one of its codes, exactly.

    By the best adversary, who has all these images and knows the noise: for all namings, and for the
    hundredth of them with the surest. The proved bound is above the first, and 100 times it above the other.
    Takes (N, b) outputs of the code's encoder, of at most MOST_OUTPUTS codes, and (N,) int64 classes.
    """
    _, rows = np.unique(classes.numpy(), return_inverse=True)
    counts = np.zeros((rows.max() + 1, 2 ** numbers.shape[1]))
    np.add.at(counts, (rows, words_of(signs(numbers)).numpy()), 1.0)
    joint = protection.laws(counts / counts.sum(1, keepdims=True)) / len(counts)
    sent, right = joint.sum(0), joint.max(0)
    order = np.argsort(-right / np.maximum(sent, 1e-300))  # the outputs, the surest first
    most = np.searchsorted(sent[order].cumsum(), 0.01 - 1e-12) + 1
    return float(right.sum()), float(right[order][:most].sum() / sent[order][:most].sum())


def attribute_accuracies(protection: Feature | Code, images: LabelledImages, seed: int) -> dict[str, float]:
    """The accuracy of each attribute that a private feature keeps and the images have, one release each.

    Its own classifier names them: one model serves all noise, as in Procedure 2. A code has no classifier.
    """
    if not isinstance(protection, Feature):
        return {}
    model = private_feature.load(protection.artefact)
    if not set(model.classes) <= set(images.labels):
        return {}
    released = protection.release(images.images, seeded_noise(seed, 0)).vectors()
    return private_feature.evaluate(model, images, released)


def _cells(config: StudyConfig, spec: str, seed: int) -> list[Cell]:
    return [Cell("log-rank", spec, seed)] if config.log_rank and release_kind(spec) in _TAKES else []


def _settings(lab: Lab, cell: Cell) -> Facts:
    task, adversary = lab.config.task, lab.config.adversary
    return {
        "log-rank": 1,
        "task": [task.target, task.classes, task.sensitive],
        "known": [adversary.known, adversary.probes, adversary.copies],
    }


def _measure(lab: Lab, cell: Cell) -> Facts:
    task, protection = lab.config.task, parse(lab.protection(cell).spec, takes=_TAKES)
    gallery, probes, copies = _settings(lab, cell)["known"]
    of: dict[str, int] = {"known": gallery, "asked": probes, "least": min(4, gallery), "copies": copies}
    people = lab.test.label(str(task.sensitive)).codes
    ranked = rank_privacy(protection, lab.test.images, people, **of, seed=cell.seed)
    worst = ranked.adversaries[ranked.strongest]
    names = ("lrp", "low", "high", "guessing", "features", "identities")
    codes = lab.asked.label(task.target).codes
    # Of episodes all classes are new: a feature's own classifier knows none of them.
    right = {} if lab.config.episodic else attribute_accuracies(protection, lab.asked, cell.seed)
    return {
        **{name: getattr(worst, name) for name in names},
        "strongest": ranked.strongest,
        "images": len(codes),
        "chance": int(codes.bincount().max()) / len(codes),
        "accuracy": right.get(task.target),
    }


LOG_RANK = Kind(_cells, _settings, _measure)
