"""Learned masks beside classical obfuscations: what they keep, hide, show, and tell by their shape (paper: Mask).

    python studies/masks.py studies/masks/*.yaml            # seven hours on one core for faces alone; stopped, it goes on
    python studies/masks.py studies/mask-tables/*.yaml      # Tables I and II; first: python studies/stand_ins.py fer lfw-hair
    python studies/masks.py studies/masks-against/*.yaml    # against telling who is shown
    python studies/masks.py FILE --seed 2                   # a part, so that cores can share it
    python studies/masks.py FILE --small                    # settings too small to learn: a minute

Each file is a study, which `sfumato study run` runs as well; this takes the figures of each seed out of its run, and adds what
no study measures. Of the first seed of `masks` there are masks of half of the pixels, too, and pictures, docs/images/masks-*.png;
on drawn faces masks are held against what is known of the pixels. Of the tables: face similarity where MTCNN finds a face
on the original, and what the public emotion network, which was trained on clean faces, names of releases.

Records are studies/results/FOLDER.jsonl, a row a file and seed.
"""

import argparse
from collections import defaultdict
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from mini_xception import EMOTIONS, MiniXception
from rows import RESULTS, Rows
from stand_ins import DETECTOR, NAMES
from torch import Tensor

import sfumato
from sfumato import artefacts, images
from sfumato.assess.similarity import embedding_similarity
from sfumato.attack.reidentify import AdversaryConfig, FaceFinder
from sfumato.data.worlds._portraits import PARTS
from sfumato.data.worlds.faces import CARRIERS, draw, part_codes, people
from sfumato.dp.mechanisms import seeded_noise
from sfumato.networks import MTCNN, MobileFaceNet, align
from sfumato.protect.mask import KIND
from sfumato.study import grid, report, run, specs
from sfumato.study.grid import StudyConfig
from sfumato.study.lab.lab import Lab

RUNS = Path("runs")
PICTURES = Path(__file__).parents[1] / "docs" / "images"
OF_FIRST = "mask:keep=0.5,adversarial=yes,no"  # of the first seed of studies/masks alone
SHOWN = 500  # test images whose masks are looked at
STRIP = 8  # of them in the pictures
WEIGHTS = DETECTOR.parent
NETWORK_SAYS = {"happiness": "happy", "surprise": "surprise", "neutral": "neutral"}  # of the classes of FER+


def name_of(spec: str, *, tables: bool = False) -> str:
    """The name of a setting in records; in those of the tables all masks show as much, hard or soft."""
    recipe: Any = specs.recipe_of(spec)
    if recipe is None:
        return NAMES[Path(spec).parent.name] if spec.startswith("outside:") else spec
    if recipe.against is not None:
        return "against" if recipe.against else "without"
    kind = {None: "published", "yes": "adversarial", "no": "plain"}[recipe.adversarial]
    if tables:
        return f"{kind} {recipe.values}"
    return f"shape of {kind} {recipe.keep:g}" if recipe.values == "shape" else f"{kind} {recipe.keep:g}"


def settings_of(directory: Path) -> dict[str, dict[str, Any]]:
    """What a study of one seed found of each protection: spec -> learner, attack or measure."""
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for record in report.load(directory)[1]:
        of, result = found[record.cell.protection], record.result
        if record.kind == "accuracy":
            keys = ("accuracy", "low", "high", "chance")
            of[str(record.cell.learner)] = {key: getattr(result, key) for key in keys}
        elif record.kind == "attack":
            best = max(result.scores, key=lambda score: score.top1)
            of[str(record.cell.attack)] = {"chance": result.chance, **best.model_dump()}
        elif record.kind == "similarity" and record.cell.view == "released":
            keys = ("ssim", "psnr", "face-similarity", "face-similarity_of_two")
            of |= {key: result.model_extra[key] for key in keys if key in result.model_extra}
    return found


def held_against(parts: Tensor, shown: Tensor) -> dict[str, dict[str, float]]:
    """What masks show of each attribute's pixels, and of each part.

    Args:
        parts: (N, H, W) codes into PARTS, as `draw` gives them.
        shown: (N, 1, H, W) bool.

    Returns:
        for each: `of_shown`, the share of the shown pixels that are of it; `of_it`, the share of its pixels that
        are shown; `of_image`, its share of the image, which a mask that is drawn by lot has for `of_shown`.
    """
    carried = {attribute: part_codes(attribute) for attribute in CARRIERS}
    carried |= {f"part {name}": torch.tensor([code]) for code, name in enumerate(PARTS)}
    found = {}
    for name, codes in carried.items():
        its = torch.isin(parts, codes.to(parts.dtype))[:, None]  # (N, 1, H, W)
        both = (its & shown).sum().item()
        found[name] = {
            "of_shown": both / shown.sum().item(),
            "of_it": both / max(its.sum().item(), 1),
            "of_image": its.double().mean().item(),
        }
    return found


def look_at_masks(lab: Lab, seed: int, picture: Path | None) -> dict[str, dict[str, Any]]:
    """Of each mask how much it is the same for everybody, its bytes, and what it shows of drawn faces; and a picture."""
    shown_of, parts = lab.asked.images[:SHOWN], None
    if lab.config.data["source"] == "faces":
        source = {key: each for key, each in lab.config.data.items() if key not in ("source", "size")}
        rows = people(**source).rows(lab.data.splits["test"][:SHOWN])
        shown_of, parts = draw(rows, size=lab.config.data["size"])
    strips, found = [torch.cat(list(shown_of[:STRIP]), dim=2)], {}
    for spec in lab.recipes:
        if "values=shape" in spec:
            continue
        release = lab.protection_of(spec, seed).release(shown_of, seeded_noise(seed))
        mean = release.shown.double().mean(0)  # (1, H, W)
        strips.append(torch.cat(list(release.images()[:STRIP]), dim=2))
        strips[-1][..., -mean.shape[2] :] = (255 * mean).round().to(torch.uint8)  # the last is the mean mask
        # 1 for one mask for all, and `keep` for masks by lot.
        found[spec] = {
            "mean_where_shown": (mean.square().sum() / mean.sum()).item(),
            "bytes": release.bytes_per_image,
        }
        if parts is not None:
            found[spec]["world"] = held_against(parts, release.shown)
    if picture is not None:
        images.write(picture, torch.cat(strips, dim=1))
    return found


def look_at_faces(lab: Lab, seed: int) -> dict[str, dict[str, float]]:
    """Face similarity of each setting where a face is found, and what the emotion network names of it."""
    network = MobileFaceNet.load(WEIGHTS / "mobilefacenet_casia_112x96.safetensors")
    judge = MiniXception.load(WEIGHTS / "emotion_mini_xception_fer2013.safetensors")
    test = lab.asked
    some = test.images[:: max(len(test) // SHOWN, 1)][:SHOWN]
    faces = FaceFinder(MTCNN.load(DETECTOR), some).find(some)

    def embedded(images: Tensor) -> Tensor:
        return network.embed(align(images[faces.seen], faces.landmarks[faces.seen]))

    clean = embedded(some)
    strangers = embedding_similarity(clean, clean.roll(len(clean) // 2, 0)).mean().item()
    found: dict[str, dict[str, float]] = {}
    for spec in lab.config.specs:
        protection = lab.protection_of(spec, seed)
        released = protection.release(some, seeded_noise(seed)).images()
        alike = embedding_similarity(clean, embedded(released)).mean().item()
        found[spec] = {"face-similarity": alike, "face-similarity_of_two": strangers, "faces": len(clean)}
        if lab.config.task.target == "emotion":
            label = test.label("emotion")
            columns = [EMOTIONS.index(NETWORK_SAYS[name]) for name in label.names]
            every = protection.release(test.images, seeded_noise(seed)).images()
            right = judge.classify(every)[:, columns].argmax(1) == label.codes
            found[spec]["emotion-network"] = right.double().mean().item()
    return found


def too_small(config: StudyConfig) -> StudyConfig:
    """The study with settings that learn nothing."""
    return replace(
        config,
        masks=replace(config.masks, epochs=1, batch=16, masker_width=4, levels=2),
        classifier=replace(config.classifier, epochs=1),
        restoration=replace(config.restoration, steps=2),
        adversary=AdversaryConfig(steps=2, adaptive_steps=1, batch=8, gallery=2, probes=2),
    )


def measure(config: StudyConfig, directory: Path, *, folder: str, picture: Path | None) -> dict[str, Any]:
    """The record of a study of one seed, or that there is nothing to keep: `unlearned`."""
    (seed,), prepared = config.seeds, run.prepare(config)
    run.run(prepared, directory, progress=run.Progress.printed())
    report.write(directory)
    lab, settings = Lab(config, prepared.data[0], directory, run.Progress()), settings_of(directory)
    about = {
        "world": config.name.removesuffix("-shape").removesuffix(f"-{config.task.target}"),
        "target": config.task.target,
        "seed": seed,
        "images": {"train": len(lab.train), "validation": len(lab.validation or ()), "test": len(lab.asked)},
        "released": "shape" if config.masks.values == "shape" else "pixels",
        "version": sfumato.__version__,
        "threads": torch.get_num_threads(),
    }
    clean = settings["none"]["classifier-clean"]
    if clean["low"] <= clean["chance"] and not directory.name.endswith("-small"):
        return about | {"unlearned": clean}
    looked: dict[str, dict[str, Any]] = {}
    if folder != "masks-against":
        looked = look_at_faces(lab, seed) if folder == "mask-tables" else look_at_masks(lab, seed, picture)
    for spec, more in looked.items():
        settings[spec] |= more
    for spec in lab.recipes:
        _, card = artefacts.load(lab.artefact_of(spec, seed) or "", kind=KIND)
        settings[spec]["training"] = {key: card.get(key) for key in ("epochs", "validation_accuracy")}
    named = {name_of(spec, tables=folder == "mask-tables"): of for spec, of in settings.items()}
    return about | {"mask": asdict(config.masks), "settings": named}


def main() -> None:
    """Measure what has no record yet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--small", action="store_true", help="settings too small to learn, to try it out")
    parser.add_argument("--seed", type=int, help="this seed alone")
    given = parser.parse_args()
    for file in given.files:
        config, folder = grid.load(file), file.parent.name
        first, records = config.seeds[0], Rows(RESULTS / f"{folder}.jsonl")
        if given.small:
            config, records = too_small(config), Rows(RUNS / folder / "small.jsonl")
        for seed in config.seeds if given.seed is None else [given.seed]:
            row = f"{config.name}-{seed}"
            if row in records or "unlearned" in records.get(f"{config.name}-{first}", {}):
                continue
            own = replace(config, seeds=[seed])
            if folder == "masks" and seed == first:
                own = replace(own, protections=[*own.protections, OF_FIRST])
            shown = seed == first and not given.small
            picture = PICTURES / f"masks-{config.name}.png" if shown else None
            directory = RUNS / folder / f"{config.name}{'-small' if given.small else ''}"
            records[row] = measure(own, directory, folder=folder, picture=picture)
            print(f"record: {row}", flush=True)


if __name__ == "__main__":
    main()
