"""The privacy of released numbers by the ranks of DPFE: log-rank privacy, and nearest neighbour.

Source: Osia et al. 2018, Sec. 5, 6.1 and 6.2. The paper has one adversary, a kernel density; two trained ones
are added here (attack.reidentify), and the strongest counts.
"""

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from sfumato.assess import log_rank
from sfumato.assess.log_rank import LogRank
from sfumato.attack.reidentify import FEATURE_ADVERSARIES, log_posteriors, split_gallery
from sfumato.data.labelled import LabelledImages
from sfumato.dp.mechanisms import seeded_noise
from sfumato.dp.naming import BY_STRENGTH, MOST_OUTPUTS, Assumption
from sfumato.errors import ConfigError, DataError
from sfumato.learn import private_feature
from sfumato.protect.code import Code
from sfumato.protect.feature import Feature
from sfumato.protect.naming import chances_by_class
from sfumato.protect.naming import log_rank as log_rank_proved

DENSITY = "density"
TENTH = 0.1  # of the identities, the share in the paper's statement


@dataclass(frozen=True, kw_only=True)
class RankConfig:
    """The adversary's knowledge.

    Attributes:
        known, asked: numbers of photographs of each person that they have, and that they have to name; with
            fewer photographs, each side gets its share.
        least: people with fewer known photographs are left out; a density needs 2.
        copies: releases of each known photograph for training, if releases have noise.
        releases: number of releases of a person for the statement on many releases.
        seed: for the split, the noise and the network.
    """

    known: int = 10
    asked: int = 10
    least: int = 4
    copies: int = 3
    releases: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        for name, bound in (("known", 2), ("asked", 1), ("least", 2), ("copies", 1), ("releases", 1)):
            if getattr(self, name) < bound:
                raise ConfigError(f"{name}={getattr(self, name)}: at least {bound}")


@dataclass(frozen=True)
class Ranked:
    """One protection against each adversary.

    Attributes:
        spec: of the protection.
        adversaries: maps a name to its result; the density's includes the nearest neighbour.
        chance: how often a random known photograph is of another person.
        proved: the proved lower bound of log-rank privacy for one release; 0 without a proof.
        proved_of_many: the same for config.releases, by assumption: a key of naming.ASSUMED.
        named: for codes of few bits, how often one release names its person, to the best adversary with all
            these photographs: on average over equally likely people, and for the worst person.
    """

    spec: str
    adversaries: dict[str, LogRank]
    chance: float
    proved: float
    proved_of_many: dict[Assumption, float]
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
    """Judge a protection by the ranks of the right people among known people.

    Args:
        protection: a protection that releases numbers or bits.
        images: (N, C, H, W) uint8, of people who are not in its training.
        identities: (N,) int64, the person on each.
        config: see RankConfig.

    Raises:
        DataError: fewer than two people have enough photographs; or see log_rank.judge_features.
    """
    known, asked = split_gallery(identities, gallery=config.known, probes=config.asked, seed=config.seed)
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
        log_rank_proved,
        protection,
        (channels, height, width),
        people=len(people),
        largest=float(shares[1].max()),  # the largest share of queries of one person
    )

    named = None
    if isinstance(protection, Code) and (protection.outputs or math.inf) <= MOST_OUTPUTS:
        rows = torch.cat([known, asked])
        each = chances_by_class(protection, protection.encode(images[rows]), identities[rows])
        named = (float(each.mean()), float(each.max()))
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
