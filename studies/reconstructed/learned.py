"""Measures that are learned: SemSim as published, and semsim-perceptual, on data sets that they were not trained on."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from rows import Rows
from safetensors.torch import load_file, save_file
from torch import Tensor

from reconstructed.judged import PROXY, read_pairs
from reconstructed.sources import SIZE, SQUEEZENET
from reconstructed.victims import ATTACKS, READ, attacked
from sfumato import images
from sfumato.assess import agreement
from sfumato.assess.semsim import SemSim
from sfumato.learn import semsim
from sfumato.learn.semsim import SemSimConfig, perceptual
from sfumato.learn.semsim.perceptual import Foretold, Looked, PerceptualConfig
from sfumato.networks import SqueezeNet
from sfumato.networks.encoders.squeeze_net import WIDTHS
from sfumato.networks.stage_distance import KINDS, StageDistance, average, relative_terms, terms_by_pixel

SEEDS = (0, 1, 2)
PUBLISHED = SemSimConfig(network="lenet", epochs=100, learning_rate=0.05, momentum=0.9)
STAGES = len(WIDTHS)
RELATIVE = PerceptualConfig(stages=STAGES)
SETTINGS = {
    "relative, last 3 stages": PerceptualConfig(),
    "relative": RELATIVE,
    "placed": replace(RELATIVE, terms="placed"),
    "both": replace(RELATIVE, terms="both"),
    "relative, last 3 stages, equal weights": PerceptualConfig(epochs=0),
    "relative, equal weights": replace(RELATIVE, epochs=0),
}
CHOSEN = "chosen"
MARGINS = (0.1, 0.3, 1.0, 3.0, 10.0)
FEW_EPOCHS, FEW_ORIGINALS = 20, 12  # of each backbone beside the others

Scores = dict[str, dict[str, list[float]]]  # attack -> victim -> of each image


def record_of(name: str, attack: str, records: Mapping[str, Any]) -> dict[str, Any]:
    """The record of an attack on a data set."""
    return records[f"{name}-{attack}"]


def present(names: Sequence[str], records: Mapping[str, Any]) -> tuple[str, ...]:
    """The attacks that all of these data sets have a record of."""
    return tuple(attack for attack in ATTACKS if all(f"{name}-{attack}" in records for name in names))


def complete(record: dict[str, Any], name: str, records: Rows) -> bool:
    """Whether a record of a learned measure has every attack that there is by now."""
    return record["attacks"] == list(present([name], records))


def shares_of(record: dict[str, Any]) -> list[float]:
    """What judges recognise of each victim."""
    return [each["recognised"] / each["items"] for each in record["victims"].values()]


def tau(distances: Sequence[float], shares: Sequence[float]) -> float:
    """Kendall's tau-b of distances, turned, with what is recognised."""
    generator = torch.Generator().manual_seed(0)
    return -agreement.rank_correlations(distances, shares, generator=generator).kendall.value


# SemSim as published


def judgements(names: Sequence[str], records: Mapping[str, Any], runs: Path) -> semsim.Judgements:
    """What judges recognised of data sets, by the first attack."""
    sets = []
    for name in names:
        judged = record_of(name, READ, records)["victims"]
        victims = {each.name: judged[each.name] for each in attacked(name, READ)}  # in the order of the draws
        pairs = [read_pairs(name, READ, victim, each["items"], runs) for victim, each in victims.items()]
        originals = images.to_uint8(pairs[0][0])
        sets.append(
            semsim.Judgements(
                originals,
                images.to_uint8(torch.cat([others for _, others in pairs])),
                torch.arange(len(originals)).repeat(len(pairs)),
                torch.tensor([each["who"] for each in victims.values()]).flatten(),
                f"{name} ({PROXY})",
            )
        )
    return semsim.combine(sets, size=SIZE)


def scores_of(
    model: SemSim, name: str, records: Mapping[str, Any], runs: Path, device: torch.device
) -> Scores:
    """The distance of each image of the victims of a data set."""
    scores: Scores = {}
    for attack in present([name], records):
        victims = record_of(name, attack, records)["victims"]
        pairs = [read_pairs(name, attack, victim, each["items"], runs) for victim, each in victims.items()]
        originals, others = (torch.cat(side).to(device) for side in zip(*pairs, strict=True))
        apart = model.distance(originals, others).split([len(each) for each, _ in pairs])
        scores[attack] = dict(zip(victims, map(_rounded, apart), strict=True))
    return scores


def published(
    known: semsim.Judgements, config: SemSimConfig, name: str, seed: int, records: Rows, runs: Path
) -> dict[str, Any]:
    """Train SemSim on judgements, and measure the victims of a data set that is not among them."""
    trained = semsim.train(known, config, seed=seed)
    model = SemSim(trained.network, card=trained.card)
    scores = scores_of(model, name, records, runs, torch.device("cpu"))
    return {
        "annotators": PROXY,
        "data": name,
        "seed": seed,
        "card": trained.card,
        "attacks": list(scores),
        "images": scores,
    }


def _rounded(values: Tensor) -> list[float]:
    return [round(value, 4) for value in values.tolist()]


# semsim-perceptual


@dataclass(frozen=True)
class Seen:
    """What the network sees of all victims of one attack on one data set, before any weight.

    Attributes:
        victims: their names.
        originals: (N, 2656) averages, see networks.stage_distance.
        averages: (victims, N, 2656) of reconstructions.
        placed: (victims, N, 9) terms.
        who: (victims, N) bool, what most judges recognise.
        shares: what is recognised of each victim.
    """

    victims: tuple[str, ...]
    originals: Tensor
    averages: Tensor
    placed: Tensor
    who: Tensor
    shares: tuple[float, ...]

    def terms(self, config: PerceptualConfig, others: Tensor) -> Tensor:
        """(victims, N, K) of a setting, relative to other originals (G, 2656)."""
        made = []
        for kind in perceptual.TERMS[config.terms]:
            terms = self.placed
            if kind != "placed":
                terms = torch.stack([relative_terms(self.originals, each, others) for each in self.averages])
            made.append(terms[..., -config.stages :])
        return torch.cat(made, dim=-1)


def look(originals: Tensor, others: Iterable[Tensor], size: int) -> dict[str, Tensor]:
    """What the network sees of originals, and of several counterparts of all of them, see Seen."""
    network = StageDistance(size=size, kinds=KINDS, stages=STAGES, others=0).eval()
    network.backbone = SqueezeNet.load(SQUEEZENET)
    stages = network.stages(originals)
    shown = [network.stages(each) for each in others]
    return {
        "originals": average(stages),
        "averages": torch.stack([average(each) for each in shown]),
        "placed": torch.stack([terms_by_pixel(stages, each) for each in shown]),
    }


@cache
def seen(name: str, attack: str, records: Rows, runs: Path) -> Seen:
    """What the network sees, or what it saw before."""
    record = record_of(name, attack, records)
    found = record["victims"]
    path = runs / name / f"{attack}-seen.safetensors"
    if not path.exists():
        pairs = [read_pairs(name, attack, victim, each["items"], runs) for victim, each in found.items()]
        save_file(look(pairs[0][0], (others for _, others in pairs), RELATIVE.size), path)
    kept = load_file(path)
    who = torch.tensor([each["who"] for each in found.values()])
    return Seen(
        tuple(found), kept["originals"], kept["averages"], kept["placed"], who, tuple(shares_of(record))
    )


def learn(
    known: Sequence[Seen], config: PerceptualConfig, seed: int
) -> tuple[StageDistance, Tensor, Foretold]:
    """The distance learned from data sets; the originals that it is relative to; how well it foretells."""
    originals = torch.cat([each.originals for each in known])
    order = torch.randperm(len(originals), generator=torch.Generator().manual_seed(seed))
    others = originals[order[: config.others]]
    terms, of, who, first = [], [], [], 0
    for each in known:
        terms.append(each.terms(config, others).flatten(0, 1))
        of.append(first + torch.arange(len(each.originals)).repeat(len(each.victims)))
        who.append(each.who.flatten().float())
        first += len(each.originals)
    looked = Looked(torch.cat(terms), torch.cat(of), torch.cat(who), range(first), PROXY)
    kinds = perceptual.TERMS[config.terms]
    distance = StageDistance(size=config.size, kinds=kinds, stages=config.stages, others=0)
    foretold = perceptual.learn(distance, looked, config, seed=seed)
    return distance, others, foretold


@torch.no_grad()
def distances(learned: tuple[StageDistance, Tensor, Foretold], of: Seen, config: PerceptualConfig) -> Tensor:
    """(victims, N) by what was learned."""
    distance, others, _ = learned
    return of.terms(config, others) @ distance.weights


@cache
def chosen(names: tuple[str, ...], records: Rows, runs: Path) -> str:
    """The setting that does best on each of these data sets, trained on the others of them; by the first attack."""

    def mean(config: PerceptualConfig) -> float:
        found = []
        for name in names:
            known = [seen(other, READ, records, runs) for other in names if other != name]
            of = seen(name, READ, records, runs)
            found.append(tau(distances(learn(known, config, 0), of, config).mean(1).tolist(), of.shares))
        return sum(found) / len(found)

    return max(SETTINGS, key=lambda name: mean(SETTINGS[name]))


def by_stages(name: str, names: Sequence[str], seed: int, records: Rows, runs: Path) -> dict[str, Any]:
    """All settings, learned from the other data sets, on this one; and which of them those others choose."""
    rest = [other for other in names if other != name]
    known = [seen(other, READ, records, runs) for other in rest]
    found: dict[str, Any] = {}
    for setting, config in SETTINGS.items():
        learned = learn(known, config, seed)
        by_attack = {}
        for attack in present([name], records):
            of = seen(name, attack, records, runs)
            apart = distances(learned, of, config)
            with torch.no_grad():
                sure = learned[0].probability(apart)
            by_attack[attack] = {
                "scores": dict(zip(of.victims, _rounded(apart.mean(1)), strict=True)),
                "probability": dict(zip(of.victims, _rounded(sure.mean(1)), strict=True)),
                "foretold": asdict(
                    Foretold.of(sure.flatten(), of.who.flatten().float(), originals=len(of.originals))
                ),
            }
        found[setting] = {
            "attacks": by_attack,
            "weights": _rounded(learned[0].weights),
            "held_out": asdict(learned[2]),
        }
    return {
        "annotators": PROXY,
        "data": name,
        "seed": seed,
        "attacks": list(present([name], records)),
        "configs": {setting: asdict(config) for setting, config in SETTINGS.items()},
        CHOSEN: chosen(tuple(rest), records, runs),
        "settings": found,
    }


# Fig. 9, and backbones


def variants(known: semsim.Judgements) -> dict[str, tuple[semsim.Judgements, SemSimConfig]]:
    """SemSim as published with one thing changed at a time; every backbone with as many epochs."""
    order = torch.randperm(len(known.originals), generator=torch.Generator().manual_seed(0))
    kept = order[:FEW_ORIGINALS].sort().values
    rows = torch.isin(known.of, kept)
    some = semsim.Judgements(
        *(known.originals[kept], known.reconstructions[rows], torch.searchsorted(kept, known.of[rows])),
        *(known.recognised[rows], known.source),
    )
    short = replace(PUBLISHED, epochs=FEW_EPOCHS)
    return {f"margin-{margin:g}": (known, replace(PUBLISHED, margin=margin)) for margin in MARGINS} | {
        f"short-{network}": (some, replace(short, network=network)) for network in ("lenet", "resnet18")
    }
