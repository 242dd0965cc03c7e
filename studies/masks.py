"""Learned masks against classical obfuscations on drawn faces: what they keep, hide, show, and tell by their shape.

    python studies/masks.py             # about 9 hours on one core; stopped, it goes on
    python studies/masks.py --small     # the same on a few images, with settings too small to learn: a minute

For each target and seed: masks with an adversary and without, of three shares, then a study of them beside every
classical obfuscation (report.html under OUT/TARGET-SEED). Then what each mask shows of the world's own knowledge of
which pixels carry what, and the mean mask as a picture. The record is studies/results/masks.json.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import sfumato
from sfumato import artefacts, data, images
from sfumato.data import LabelledImages
from sfumato.data.faces import CARRIERS, PARTS, draw, part_codes, people
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ArtefactError
from sfumato.files import whole
from sfumato.learn import adversarial_mask
from sfumato.learn.adversarial_mask import MaskConfig
from sfumato.protect import parse
from sfumato.protect.mask import KIND
from sfumato.study import grid, report, run

RECORD = Path(__file__).parent / "results" / "masks.json"
TARGETS = ("hair_color", "expression")
SHOWN = 500  # test images whose masks are held against the world


@dataclass(frozen=True)
class Scale:
    """How much of it: the world, the training of masks, and the study, which is a study file."""

    world: dict[str, int]
    keeps: tuple[float, ...]
    seeds: tuple[int, ...]
    mask: MaskConfig
    study: str


FULL = Scale(
    world={"identities": 160, "images_per_identity": 20, "headwear": 150, "size": 64},
    keeps=(0.1, 0.25, 0.5),
    seeds=(0, 1, 2),
    mask=MaskConfig(epochs=12),
    study="""
        title: Learned masks and classical obfuscations, {target} against identity
        data: {{source: faces, {world}}}
        task: {{target: {target}, sensitive: identity}}
        protections: {protections}
        learners: [classifier-clean, classifier-protected, classifier-shape]
        attacks: [reidentify-static, reidentify-adaptive, reidentify-shape]
        measures: [ssim, psnr, face-similarity]
        classifier: {{network: conv4, epochs: 8, patience: 3}}
        adversary: {{steps: 400, adaptive_steps: 80, gallery: 10, probes: 10, copies: 2}}
        seeds: [{seed}]
        embeddings: false
    """,
)
CLASSICAL = [
    "block:share=0.4,0.6",
    "centre-blur:radius=4,8",
    "blur:radius=2,4",
    "pixelize:cell=4,8",
    "gaussian:sigma=80,160",
    "dp-pix:cell=4,8,epsilon=3",
]
SMALL = Scale(
    world={"identities": 40, "images_per_identity": 4, "headwear": 9, "size": 32},
    keeps=(0.1, 0.25, 0.5),
    seeds=(0,),
    mask=MaskConfig(epochs=1, batch=16, masker_width=4, levels=2),
    study=FULL.study.replace("epochs: 8, patience: 3", "epochs: 1, batch: 16").replace(
        "steps: 400, adaptive_steps: 80, gallery: 10, probes: 10",
        "steps: 2, adaptive_steps: 1, batch: 8, gallery: 2, probes: 2",
    ),
)


def masks(scale: Scale, target: str, seed: int, out: Path) -> Iterator[tuple[str, MaskConfig, Path]]:
    """Name, settings and artefact of each mask."""
    for adversarial in (True, False):
        for keep in scale.keeps:
            name = f"{'adversarial' if adversarial else 'plain'} {keep:g}"
            config = replace(scale.mask, keep=keep, adversarial=adversarial)
            yield name, config, out / "models" / f"{target}-{seed}" / f"{name.replace(' ', '-')}.safetensors"


def train(loaded: LabelledImages, target: str, config: MaskConfig, seed: int, path: Path) -> dict[str, Any]:
    """Train a mask where it is not there yet, and return its card."""
    training = loaded.split("train")
    if path.exists():
        _, card = artefacts.load(path, kind=KIND)
        if (card["config"], card["data"]["digest"]) != (asdict(config), training.digest):
            raise ArtefactError(f"{path}: trained with other settings, or on other data: delete it")
        return card
    started, checkpoint = time.perf_counter(), path.with_suffix(".checkpoint")
    model = adversarial_mask.train(
        training,
        config,
        target=target,
        validation=loaded.split("validation"),
        seed=seed,
        checkpoint=checkpoint,
    )
    model.save(path)
    checkpoint.unlink(missing_ok=True)
    print(f"{path}: {time.perf_counter() - started:.0f} s", flush=True)
    return model.card


def study(scale: Scale, target: str, seed: int, out: Path) -> dict[str, Any]:
    """Run the study of one target and seed, and return what it found of each setting, by its name."""
    named = {f"mask:artefact={path}": name for name, _, path in masks(scale, target, seed, out)}
    file = out / f"{target}-{seed}.yaml"
    text = scale.study.format(
        target=target,
        seed=seed,
        protections=json.dumps([*CLASSICAL, *named]),
        world=", ".join(f"{key}: {value}" for key, value in scale.world.items()),
    )
    with whole(file) as temporary:
        temporary.write_text(text, encoding="utf-8")
    directory = out / f"{target}-{seed}"
    run.run(grid.load(file), directory, progress=run.Progress(cell=_say))
    report.write(directory)
    listed = json.loads((directory / "study.json").read_text(encoding="utf-8"))["cells"]
    found: dict[str, Any] = {}
    for one in listed:
        record = json.loads((directory / "records" / f"{one['digest']}.json").read_text(encoding="utf-8"))
        cell, result = record["cell"], record["result"]
        of = found.setdefault(named.get(cell["protection"], cell["protection"]), {})
        match record["kind"]:
            case "accuracy":
                keys = ("accuracy", "low", "high", "chance")
                of[cell["learner"]] = {key: result[key] for key in keys}
            case "attack":
                best = max(result["scores"], key=lambda score: score["top1"])
                of[cell["attack"]] = {"chance": result["chance"], **best}
            case "similarity":
                of |= {
                    key: result[key] for key in ("ssim", "psnr", "face-similarity", "face-similarity_of_two")
                }
    return found


def _say(words: str, done: int, total: int) -> None:
    print(f"{done}/{total} {words}", flush=True)


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


def measure(scale: Scale, target: str, seed: int, out: Path) -> dict[str, Any]:
    """Masks, study and ground truth of one target and seed."""
    loaded = data.load("faces", **scale.world)
    trained = {}
    for name, config, path in masks(scale, target, seed, out):
        card = train(loaded, target, config, seed, path)
        trained[name] = {"epochs": card["epochs"], "validation_accuracy": card["validation_accuracy"]}
    settings = study(scale, target, seed, out)
    world = people(**{key: value for key, value in scale.world.items() if key != "size"})
    drawn, parts = draw(world.rows(loaded.splits["test"][:SHOWN]), size=scale.world["size"])
    for name, _, path in masks(scale, target, seed, out):
        shown = parse(f"mask:artefact={path}").release(drawn, seeded_noise(seed)).shown
        assert shown is not None
        mean = shown.double().mean(0)  # (1, H, W)
        picture = out / "pictures" / f"{path.parent.name}-{path.stem}.png"
        images.write(picture, (255 * mean).round().to(torch.uint8))
        truth = {"world": held_against(parts, shown), "mean_mask": str(picture)}
        # How much the mask is the same for everybody: 1 for one mask for all, and `keep` for masks by lot.
        truth["mean_where_shown"] = (mean.square().sum() / mean.sum()).item()
        settings[name] |= {"training": trained[name], **truth}
    return {"target": target, "seed": seed, "settings": settings}


def table(found: list[dict[str, Any]]) -> str:
    """A row a setting, means over seeds in percent."""

    def mean(target: str, name: str, *keys: str) -> str:
        values = []
        for one in found:
            value = one["settings"].get(name)
            for key in keys:
                value = value.get(key) if isinstance(value, dict) else None
            if one["target"] == target and value is not None:
                values.append(value)
        return f"{100 * sum(values) / len(values):.1f}" if values else "–"

    columns = {
        "accuracy": ("classifier-protected", "accuracy"),
        "clean classifier": ("classifier-clean", "accuracy"),
        "by shape": ("classifier-shape", "accuracy"),
        "static": ("reidentify-static", "top1"),
        "adaptive": ("reidentify-adaptive", "top1"),
        "its shape": ("reidentify-shape", "top1"),
        "face similarity": ("face-similarity",),
    }
    lines = []
    for target in dict.fromkeys(one["target"] for one in found):
        lines += [
            f"| {target} | {' | '.join(columns)} | shown of it | of shown |",
            "| --- " * (len(columns) + 3) + "|",
        ]
        for name in dict.fromkeys(name for one in found for name in one["settings"]):
            world = [mean(target, name, "world", target, key) for key in ("of_it", "of_shown")]
            cells = [mean(target, name, *keys) for keys in columns.values()] + world
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Train, study, hold against the world, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="settings too small to learn, to try it out")
    parser.add_argument("--out", type=Path, help="where masks and studies are kept (default: runs/masks)")
    parser.add_argument("--only", choices=TARGETS, help="this target alone")
    given = parser.parse_args()
    scale = SMALL if given.small else FULL
    out = given.out or Path("runs/masks-small" if given.small else "runs/masks")
    out.mkdir(parents=True, exist_ok=True)
    found = [
        measure(scale, target, seed, out)
        for target in ([given.only] if given.only else TARGETS)
        for seed in scale.seeds
    ]
    whole_run = not given.small and given.only is None
    record = {
        "world": scale.world,
        "mask": asdict(scale.mask),
        "found": found,
        "version": sfumato.__version__,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }
    path = RECORD if whole_run else out / "masks.json"
    with whole(path) as temporary:
        temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(table(found))
    print(f"record: {path}")


if __name__ == "__main__":
    main()
