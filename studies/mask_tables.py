"""Table I and II of the mask paper: task and face similarity, of its own soft masks, its baselines, and stand-ins.

    python studies/unpack.py fer ../shared/data runs/data/fer
    python studies/mask_tables.py emotion             # Table I on FER+: some 40 minutes on one core; stopped, it goes on
    python studies/unpack.py lfw ../shared/data runs/data/lfw
    python studies/hair.py ../shared/data runs/data/lfw
    python studies/mask_tables.py hair                # Table II on a proxy: an hour and a half
    python studies/mask_tables.py hair --seed 0       # a part
    python studies/mask_tables.py hair --small        # settings too small to learn, to try it out

A mask of 25% of the pixels is trained as published, by soft scores, and its epoch is chosen by the soft values that the paper
releases (`values=soft`), with the adversarial step and without. The same masks are released hard, too: the pixels as they
are. Beside them the paper's baselines, and stand_ins.py for CIAGAN and DeepPrivacy. Each release meets a classifier that
knows nothing of the mask, trained on releases (the paper has FERAtt and SlimCNN, trained on clean images); on FER+ the
public emotion network, which was trained on clean faces; and, where it is known who is shown, adversaries.

Face similarity is the cosine of MobileFaceNet's embeddings of release and original, both cut where MTCNN finds the face on
the original. Records are studies/results/mask-tables.jsonl.
"""

import argparse
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from masks import PICTURES, SEEDS, SHOWN, STRIP, WORLDS, Part, about, seeds_of, study, train, training
from rows import RESULTS, Rows
from stand_ins import DETECTOR, NAMES, stand_ins
from torch import Tensor

from sfumato import data, images
from sfumato.assess.similarity import embedding_similarity
from sfumato.attack.faces import FaceFinder
from sfumato.data import LabelledImages
from sfumato.dp.mechanisms import seeded_noise
from sfumato.learn.adversarial_mask import MaskConfig
from sfumato.networks import MTCNN, MobileFaceNet, align
from sfumato.networks.faces.mini_xception import EMOTIONS, MiniXception
from sfumato.protect import parse

RECORDS = Rows(RESULTS / "mask-tables.jsonl")
WORLD_OF = {"emotion": "fer", "hair": "lfw-hair"}
KEEP = 0.25  # of the paper's tables
BASELINES = ["block", "centre-blur:radius=8"]
LEARNERS = ["classifier-clean", "classifier-protected"]
ATTACKS = ["reidentify-static", "reidentify-adaptive", "reidentify-restored-adaptive"]
WEIGHTS = DETECTOR.parent
NETWORK_SAYS = {"happiness": "happy", "surprise": "surprise", "neutral": "neutral"}  # of the classes of FER+


def masks(part: Part) -> Iterator[tuple[str, MaskConfig, Path]]:
    """Name, settings and artefact of the mask without and with the adversarial step."""
    base = replace(part.mask, keep=KEEP, selection="soft", values="soft")
    for name, adversarial in (("plain", False), ("adversarial", True)):
        path = part.folder / "models" / part.name / f"soft-{name}-{KEEP:g}.safetensors"
        yield name, replace(base, adversarial=adversarial), path


def everybody(part: Part) -> tuple[LabelledImages, Tensor]:
    """All photographs of a world, and who is on each: somebody else on each, where it is not known."""
    source = dict(WORLDS[part.world].source)
    every = data.load(source.pop("source"), **source)
    sensitive = WORLDS[part.world].sensitive
    return every, torch.arange(len(every)) if sensitive is None else every.label(sensitive).codes


def emotions(network: MiniXception, released: Tensor, wanted: LabelledImages) -> float:
    """The share of releases whose emotion the public network names, of the three that the paper has."""
    label = wanted.label("emotion")
    columns = [EMOTIONS.index(NETWORK_SAYS[name]) for name in label.names]
    guesses = network.classify(released)[:, columns].argmax(1)
    return (guesses == label.codes).double().mean().item()


def beside(part: Part, test: LabelledImages, named: dict[str, str]) -> dict[str, dict[str, float]]:
    """Face similarity of each setting, and what the emotion network names of it."""
    network = MobileFaceNet.load(WEIGHTS / "mobilefacenet_casia_112x96.safetensors")
    some = test.rows(torch.arange(len(test))[:: max(len(test) // SHOWN, 1)][:SHOWN])
    faces = FaceFinder(MTCNN.load(DETECTOR), some.images).find(some.images)

    def embedded(images: Tensor) -> Tensor:
        return network.embed(align(images[faces.seen], faces.landmarks[faces.seen]))

    judge = MiniXception.load(WEIGHTS / "emotion_mini_xception_fer2013.safetensors")
    clean = embedded(some.images)
    strangers = embedding_similarity(clean, clean.roll(len(clean) // 2, 0)).mean().item()
    found: dict[str, dict[str, float]] = {}
    for spec, name in {"none": "none", **named}.items():
        protection = parse(spec)
        released = protection.release(some.images, seeded_noise(part.seed)).images()
        found[name] = {
            "face-similarity": embedding_similarity(clean, embedded(released)).mean().item(),
            "face-similarity_of_two": strangers,
            "faces": len(clean),
        }
        if part.target == "emotion":
            whole = protection.release(test.images, seeded_noise(part.seed)).images()
            found[name]["emotion-network"] = emotions(judge, whole, test)
    return found


def released(
    part: Part, splits: dict[str, LabelledImages], named: dict[str, str], folder: str
) -> dict[str, Any]:
    """What releases keep of one target, and show of faces: name -> figures. `named`: spec -> name."""
    settings = study(part, named, folder, learners=LEARNERS, attacks=ATTACKS)
    for name, each in beside(part, splits["test"], named).items():
        settings[name] |= each
    return settings


def measure(part: Part) -> dict[str, Any]:
    """What masks, baselines and stand-ins keep of one target, and show of faces."""
    splits = part.load()
    made = list(masks(part))
    cards = {name: train(part, splits, config, path) for name, config, path in made}
    named = {spec: spec for spec in BASELINES} | stand_ins(part.world, *everybody(part))
    for name, _, path in made:
        named |= {
            f"mask:artefact={path},values=soft": f"{name} soft",
            f"mask:artefact={path}": f"{name} hard",
        }
    settings = released(part, splits, named, "-tables")
    for name, card in cards.items():
        settings[f"{name} soft"]["training"] = training(card)
    return about(part, splits) | {
        "mask": {name: asdict(config) for name, config, _ in made},
        "settings": settings,
    }


def completed(part: Part, record: dict[str, Any]) -> dict[str, Any]:
    """A record with the stand-ins that were added after it; the same where none was."""
    if record["settings"].keys() >= set(NAMES.values()):
        return record
    every = stand_ins(part.world, *everybody(part))
    added = {spec: name for spec, name in every.items() if name not in record["settings"]}
    settings = released(part, part.load(), added, "-stand-ins")
    more = {name: settings[name] for name in added.values()}
    return record | {"settings": record["settings"] | more}


def draw(part: Part) -> None:
    """Put some test images, and what each stand-in makes of them, into one picture."""
    test = part.load()["test"].images
    some = test[:: len(test) // STRIP][:STRIP]
    made = [
        parse(spec).release(some, seeded_noise(part.seed)).images()
        for spec in stand_ins(part.world, *everybody(part))
    ]
    strips = [torch.cat(list(strip), dim=2) for strip in (some, *made)]
    images.write(PICTURES / f"stand-ins-{part.world}.png", torch.cat(strips, dim=1))


def main() -> None:
    """Measure what has no record yet, and complete what has."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target", choices=list(WORLD_OF))
    parser.add_argument("--seed", type=int, choices=SEEDS, help="this seed alone")
    parser.add_argument("--small", action="store_true", help="settings too small to learn")
    given = parser.parse_args()
    for seed in seeds_of(given):
        part = Part(WORLD_OF[given.target], given.target, seed, given.small)
        records = part.records(RECORDS)
        before = records.get(part.row)
        found = measure(part) if before is None else completed(part, before)
        if found != before:
            records[part.row] = found
            print(f"record: {part.row}", flush=True)
            if not given.small and seed == SEEDS[0]:
                draw(part)


if __name__ == "__main__":
    main()
