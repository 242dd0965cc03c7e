"""Log-rank privacy of numbers and bits; with a feature's accuracy, a point of its curve.

Source: Osia et al. 2018 (docs/papers.md, "DPFE"), Sec. 5, 6.1 and 6.2, and Procedure 2. The paper has one
adversary, a kernel density; two trained ones are added here (attack.reidentify), and the strongest counts.
"""

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from sfumato.assess import log_rank
from sfumato.assess.log_rank import LogRank
from sfumato.attack.reidentify import FEATURE_ADVERSARIES, log_posteriors, split_gallery
from sfumato.attack.saturation import check_bounds
from sfumato.data.labelled import LabelledImages
from sfumato.dp.mechanisms import seeded_noise
from sfumato.dp.naming import BY_STRENGTH, MOST_OUTPUTS, Assumption
from sfumato.errors import DataError
from sfumato.learn import private_feature
from sfumato.protect import naming, parse
from sfumato.protect.code import Code
from sfumato.protect.feature import Feature
from sfumato.study.cells import Cell, Facts, Kind
from sfumato.study.grid import StudyConfig
from sfumato.study.lab.lab import Lab
from sfumato.study.vocabulary import BITS, NUMBERS, release_kind

DENSITY = "density"
TENTH = 0.1  # of the identities, the share in the paper's statement
_TAKES = (NUMBERS, BITS)


@dataclass(frozen=True, kw_only=True)
class RankConfig:
    """The adversary's knowledge."""

    known: int = 10  # photographs of each person that they have; with fewer, each side gets its share
    asked: int = 10  # photographs of each person to name
    least: int = 4  # people with fewer known photographs are left out; a density needs 2
    copies: int = 3  # releases of each known photograph for training, if releases have noise
    releases: int = 100  # of a person, for the statement on many releases
    seed: int = 0  # for the split, the noise and the network

    def __post_init__(self) -> None:
        check_bounds(self, known=2, asked=1, least=2, copies=1, releases=1)


@dataclass(frozen=True)
class Ranked:
    """One protection against each adversary."""

    spec: str
    adversaries: dict[str, LogRank]  # by name; the density's includes the nearest neighbour
    chance: float  # how often a random known photograph is of another person
    proved: float  # lower bound of log-rank privacy for one release; 0 without a proof
    proved_of_many: dict[Assumption, float]  # the same for config.releases, by assumption
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
    protection: Feature | Code, images: Tensor, identities: Tensor, config: RankConfig
) -> Ranked:
    """Judge a protection by the ranks of the right people, (N,) int64, on (N, C, H, W) uint8 images.

    These people are not in its training. Raises DataError: fewer than two have enough photographs; or see
    log_rank.judge_features.
    """
    known, asked = split_gallery(identities, known=config.known, probes=config.asked, seed=config.seed)
    counts = identities[known].bincount(minlength=int(identities.max()) + 1)
    known, asked = (rows[counts[identities[rows]] >= config.least] for rows in (known, asked))
    people = identities[known].unique()
    if len(people) < 2:
        raise DataError(
            f"{len(people)} people have {config.least} photographs for the adversary: "
            "add photographs, or lower least"
        )
    copies = config.copies if protection.draws_noise else 1
    released = [
        protection.release(images[known], seeded_noise(config.seed, copy)).vectors() for copy in range(copies)
    ]
    mine, owners = torch.cat(released), identities[known].repeat(copies)
    theirs = protection.release(images[asked], seeded_noise(config.seed, copies)).vectors()
    truth = identities[asked]
    found = {DENSITY: log_rank.judge_features(mine, owners, theirs, truth)}
    for name in FEATURE_ADVERSARIES:
        guesses = log_posteriors(mine, owners, theirs, adversary=name, seed=config.seed)
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
        rows = torch.cat([known, asked])
        named = naming.chance_and_surest(protection, protection.encode(images[rows]), identities[rows])
    return Ranked(
        protection.spec,
        found,
        chance=1 - float(shares[0] @ shares[1]),
        proved=proved(),
        proved_of_many={each: proved(releases=config.releases, assuming=each) for each in BY_STRENGTH},
        named=named,
    )


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


def _find_omissions(config: StudyConfig, spec: str) -> dict[str, tuple[str, ...]]:
    taken = spec == "none" or release_kind(spec) in _TAKES
    return {} if taken or not config.log_rank else {"log-rank privacy": _TAKES}


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
    known = RankConfig(known=gallery, asked=probes, least=min(4, gallery), copies=copies, seed=cell.seed)
    people = lab.test.label(str(task.sensitive)).codes
    ranked = rank_privacy(protection, lab.test.images, people, known)
    worst = ranked.adversaries[ranked.strongest]
    names = ("lrp", "low", "high", "guessing", "features", "identities")
    codes = lab.asked.label(task.target).codes
    return {
        **{name: getattr(worst, name) for name in names},
        "strongest": ranked.strongest,
        "images": len(codes),
        "chance": int(codes.bincount().max()) / len(codes),
        "accuracy": attribute_accuracies(protection, lab.asked, cell.seed).get(task.target),
    }


LOG_RANK = Kind(_cells, _settings, _measure, _find_omissions)
