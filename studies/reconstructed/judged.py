"""One data set: who judges, who is attacked, what is recognised of it, and what measures say that are not learned."""

import json
import math
import time
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from rows import Rows, make
from torch import Tensor

from reconstructed import recognisers
from reconstructed.sources import CLASSES, SEED, SOURCES, SQUEEZENET, named, parts
from reconstructed.victims import ATTACKS, Victim, accuracy, attacked, rebuild
from sfumato import images
from sfumato.annotate import proxies, results
from sfumato.annotate.campaign import CampaignConfig, Pair
from sfumato.annotate.proxies import PairProxy, Proxy
from sfumato.annotate.store import Store, create
from sfumato.assess import similarity
from sfumato.assess.frechet import frechet_distance
from sfumato.assess.perceptual import Perceptual
from sfumato.data import LabelledImages
from sfumato.errors import DataError
from sfumato.study.records import write_json

PROXY = "proxy annotators"
# Measure -> 1 where it rises as more leaks.
SIGNS = {"psnr": 1, "mse": -1, "ssim": 1, "squeezenet": -1, "frechet": -1}


def run(name: str, attack: str, count: int, records: Rows, runs: Path) -> None:
    """The records of a data set and of an attack on it that are missing: of so many originals a victim."""
    make(records, name, partial(_prepare, name, count, runs))
    originals = originals_of(name, records)
    for place, image in enumerate(originals.images):
        file = runs / name / "originals" / f"{place:02d}.png"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            images.write(file, image)
    make(records, f"{name}-{attack}", partial(_attack, name, attack, originals, runs))


def originals_of(name: str, records: Rows) -> LabelledImages:
    """Those that are attacked."""
    _, test = parts(name)
    return test.rows(torch.tensor(records[name]["originals"]))


def _prepare(name: str, count: int, runs: Path) -> dict[str, Any]:
    """Train everyone who is trained, and choose the originals."""
    train, test = parts(name)
    panel = recognisers.panel(name, runs)
    right = torch.stack([_before(each, test) for each in panel])  # (judges, N)
    recognised = right.double().mean(0) > 0.5
    trained = {
        each.network + "-" + each.policy: each
        for attack in ATTACKS
        for each in attacked(name, attack)
        if each.trained
    }
    return {
        "annotators": PROXY,
        "data": {"training": len(train), "test": len(test), "digests": [train.digest, test.digest]},
        "classes": list(test.label("class").names),
        "judges": {
            each.name: {"right": found.right, "trials": found.trials, "share": found.share}
            for each in panel
            for found in [recognisers.ask(each, test)]
        },
        "victims": {words: accuracy(name, each, runs) for words, each in trained.items()},
        "originals": _choose(test, recognised, count),
        "recognised_before": recognised.double().mean().item(),
    }


def _before(judge: Proxy | PairProxy, test: LabelledImages) -> Tensor:
    """Which test images a judge recognises as they are. Those who compare see an image beside itself."""
    if isinstance(judge, PairProxy):
        return torch.ones(len(test), dtype=torch.bool)
    said = [answer for part in test.images.split(128) for answer in judge.classify(part)]
    return torch.tensor([answer == truth for answer, truth in zip(said, named(test), strict=True)])


def _choose(test: LabelledImages, recognised: Tensor, count: int) -> list[int]:
    """Rows of test images, a class in turn, that most judges recognise; where these run out, others.

    No class has more than twice its share: judges may recognise one alone.
    """
    codes, classes = test.label("class").codes, len(test.label("class").names)
    most = 2 * math.ceil(count / classes)
    places = torch.zeros(len(codes), dtype=torch.int64)  # how many of the class come before
    order = torch.cat([recognised.nonzero().flatten(), (~recognised).nonzero().flatten()])
    for code in codes.unique():
        mine = order[codes[order] == code]
        places[mine] = torch.arange(len(mine))
    last = ~recognised | (places >= most)
    keys = (last * len(codes) + places) * classes + codes
    return [int(row) for row in keys.argsort(stable=True)[:count]]


def _attack(name: str, attack: str, originals: LabelledImages, runs: Path) -> dict[str, Any]:
    """Attack every victim, let the judges answer, and measure."""
    facts = {each.name: _rebuilt(name, each, originals, runs) for each in attacked(name, attack)}
    shares, alpha, recognised, by_judge = _annotate(name, attack, list(facts), originals, runs)
    measured = {victim: _measure(name, attack, victim, len(originals), runs) for victim in facts}
    return {
        "annotators": PROXY,
        "attack": attack,
        "krippendorff_alpha": alpha,
        "victims": {
            victim: {
                **facts[victim],
                **measured[victim],
                **shares[victim],
                "who": recognised[victim],
                "by_judge": by_judge[victim],
            }
            for victim in facts
        },
    }


def folder_of(name: str, attack: str, victim: str, runs: Path) -> Path:
    """Where reconstructions lie."""
    return runs / name / attack / victim


def _rebuilt(name: str, victim: Victim, originals: LabelledImages, runs: Path) -> dict[str, Any]:
    """Attack one victim; its reconstructions become files, and what is known of them a small one beside."""
    folder = folder_of(name, victim.attack, victim.name, runs)
    done = folder / "facts.json"
    if done.exists():
        return dict(json.loads(done.read_text()))
    started = time.process_time()
    pictures, facts = rebuild(name, victim, originals, runs)
    folder.mkdir(parents=True, exist_ok=True)
    for place, picture in enumerate(pictures):
        images.write(folder / f"{place:02d}.png", picture)
    write_json(done, {**facts, "seconds_of_attack": round(time.process_time() - started, 1)})
    return dict(json.loads(done.read_text()))


def pairs_of(
    name: str, attack: str, victims: Sequence[str], originals: LabelledImages, runs: Path
) -> list[Pair]:
    """Reconstructions of victims with their originals, as campaigns ask about them."""
    return [
        Pair(
            original=(runs / name / "originals" / f"{place:02d}.png").absolute(),
            reconstruction=(folder_of(name, attack, victim, runs) / f"{place:02d}.png").absolute(),
            true_class=true,
            model=victim,
            source=name,
        )
        for victim in victims
        for place, true in enumerate(named(originals))
    ]


def _annotate(
    name: str, attack: str, victims: Sequence[str], originals: LabelledImages, runs: Path
) -> tuple[dict[str, dict[str, Any]], float | None, dict[str, list[bool]], dict[str, list[int]]]:
    """Let the judges answer. -> by victim: share recognised; agreement; which images; and how many by each judge."""
    path = runs / name / f"{attack}.campaign"
    path.unlink(missing_ok=True)  # one that was not filled
    panel = recognisers.panel(name, runs)
    config = CampaignConfig(
        task=SOURCES[name].task, annotators=len(panel), options=CLASSES, decoys=0, seed=SEED
    )
    create(path, pairs_of(name, attack, victims, originals, runs), config)
    with Store(path) as store:
        proxies.fill(store, panel)
        found = results.results(store)
        alpha = results.agreement(store)
        asked, answers = store.items(), list(store.answers().values())
    by_judge = {victim: [0] * len(answers) for victim in victims}
    for number, item in asked.items():
        for judge, given in enumerate(answers):
            by_judge[item.pair.model][judge] += given[number] == item.right
    shares = {
        one.model: {"recognised": one.recognised, "items": one.items, "low": one.low, "high": one.high}
        for one in results.shares(found)
    }
    who: dict[str, list[bool]] = {victim: [] for victim in victims}
    for one in found:
        who[one.model].append(bool(one.recognised))
    return shares, alpha, who, by_judge


def _measure(name: str, attack: str, victim: str, count: int, runs: Path) -> dict[str, Any]:
    """Every measure that is not learned, image by image, and the mean; of sets the Fréchet distance."""
    originals, others = read_pairs(name, attack, victim, count, runs)
    compared = perceptual().compare(originals, others)
    each = {
        # At most 100 dB, which stands for images that are equal.
        "psnr": similarity.psnr(originals, others).clamp(max=100),
        "mse": similarity.mse(originals, others),
        "ssim": similarity.ssim(originals, others),
        "squeezenet": compared.distances,
    }
    try:
        apart: float | None = frechet_distance(compared.originals, compared.others).distance
    except DataError:
        apart = None
    return {
        "scores": {measure: values.mean().item() for measure, values in each.items()} | {"frechet": apart},
        "images": {
            measure: [round(value, 4) for value in values.tolist()] for measure, values in each.items()
        },
    }


@cache
def perceptual() -> Perceptual:
    """The distance of SqueezeNet features, which is not LPIPS."""
    return Perceptual.of_squeezenet(SQUEEZENET)


def read_pairs(name: str, attack: str, victim: str, count: int, runs: Path) -> tuple[Tensor, Tensor]:
    """Originals and reconstructions of a victim, (N, C, H, W) float."""
    both = [
        torch.stack([images.read(folder / f"{place:02d}.png", channels=None) for place in range(count)])
        for folder in (runs / name / "originals", folder_of(name, attack, victim, runs))
    ]
    return images.to_float(both[0]), images.to_float(both[1])
