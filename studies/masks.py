"""Learned masks and classical obfuscations: what they keep, hide, show, and tell by their shape (paper: Mask).

    python studies/masks.py faces           # some seven hours on one core; stopped, it goes on
    python studies/masks.py lfw             # photographs: smile and gender, against who it is
    python studies/masks.py cmu             # 20 people: sunglasses and expression
    python studies/masks.py fer             # emotion; of people who are unknown
    python studies/masks.py lfw --only smile --seed 2    # a part, so that cores can share a world
    python studies/masks.py faces --small   # settings too small to learn: a minute

For each target and seed: masks with an adversary and without, and as published, then a study of them beside every
classical obfuscation (report.html under runs/masks/WORLD/TARGET-SEED); the first seed has half of the pixels, too.
On drawn faces it is then held against the world's own knowledge of which pixels carry what. Records are
studies/results/masks.jsonl, pictures docs/images/masks-WORLD-TARGET.png and mean masks beside the reports.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rows import RESULTS, Rows
from torch import Tensor

import sfumato
from sfumato import artefacts, data, images
from sfumato.base.files import whole
from sfumato.data import LabelledImages
from sfumato.data.worlds.faces import CARRIERS, PARTS, draw, part_codes, people
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ArtefactError
from sfumato.learn import adversarial_mask
from sfumato.learn.adversarial_mask import MaskConfig
from sfumato.protect import parse
from sfumato.protect.mask import KIND
from sfumato.study import grid, report, run

RECORDS = Rows(RESULTS / "masks.jsonl")
RUNS = Path("runs/masks")
PICTURES = Path(__file__).parents[1] / "docs" / "images"
SEEDS = (0, 1, 2)
KEEPS, OF_FIRST = (0.25, 0.1), (0.5,)  # shares of the pixels: with every seed, and with the first alone
SHOWN = 500  # test images whose masks are looked at
STRIP = 8  # of them in the pictures
MASKS: dict[str, dict[str, Any]] = {
    "adversarial": {},
    "plain": {"adversarial": False},
    "published": {"selection": "soft"},  # at the first share alone
}
SHAPED = "adversarial 0.1"  # whose shape is released by itself, too, without what is in its pixels
CLASSICAL = [
    "block:share=0.6",
    "centre-blur:radius=8",
    "blur:radius=4",
    "pixelize:cell=8",
    "gaussian:sigma=160",
    "dp-pix:cell=8,epsilon=3",
]
LEARNERS = ["classifier-clean", "classifier-protected", "classifier-shape"]
ATTACKS = ["reidentify-static", "reidentify-adaptive", "reidentify-shape", "reidentify-restored-adaptive"]
# Not trained further: it takes half of his time, and he who restores, mostly the strongest, named fewer people after it
# at each of nine settings (studies/lfw-adversaries.yaml).
PUBLIC = """recogniser: mobile-face-net, weights: ../shared/data/weights/mobilefacenet_casia_112x96.safetensors,
          detector: ../shared/data/weights/mtcnn.safetensors, steps: 0, adaptive_steps: 0, copies: 2"""


@dataclass(frozen=True)
class Task:
    """What is to be kept.

    Attributes:
        mask: how masks are trained: as many epochs as images of validation need to be named.
        classifier: how long the independent classifiers are trained, as a study has it: long enough to learn the clean
            task, which few photographs take many epochs for.
        classes: those that count; none for all.
    """

    mask: MaskConfig
    classifier: str = "epochs: 8, patience: 3"
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class World:
    """Where images come from, and who looks for what.

    Attributes:
        source: the `data` of a study.
        targets: by the label that tells it.
        sensitive: the label to hide, where it is known.
        adversary: settings, as a study has them.
    """

    source: dict[str, Any]
    targets: dict[str, Task]
    sensitive: str | None
    adversary: str


WORLDS = {
    "faces": World(
        {"source": "faces", "identities": 160, "images_per_identity": 20, "headwear": 150, "size": 64},
        {"hair_color": Task(MaskConfig(epochs=12)), "expression": Task(MaskConfig(epochs=24))},
        "identity",
        "steps: 400, adaptive_steps: 80, gallery: 10, probes: 10, copies: 2",
    ),
    "lfw": World(
        {"source": "table:runs/data/lfw/attributes.csv", "size": 64},
        {
            "smile": Task(
                MaskConfig(epochs=30, flips=True),
                "epochs: 40, patience: 10, flips: true, shifts: 4",
                ("no", "yes"),
            ),
            "gender": Task(
                MaskConfig(epochs=5, flips=True),
                "epochs: 5, patience: 3, flips: true, shifts: 4",
                ("female", "male"),
            ),
        },
        "identity",
        PUBLIC,
    ),
    # Small, for studies that train many masks (masks_against.py): on LFW networks of 32 pixels tell a smile as well.
    "lfw-32": World(
        {"source": "table:runs/data/lfw/attributes.csv", "size": 32},
        {
            "smile": Task(
                MaskConfig(epochs=20, flips=True, masker_width=8),
                "epochs: 40, patience: 10, flips: true, shifts: 2",
                ("no", "yes"),
            ),
            "gender": Task(
                MaskConfig(epochs=5, flips=True, masker_width=8),
                "epochs: 5, patience: 3, flips: true, shifts: 2",
                ("female", "male"),
            ),
        },
        "identity",
        PUBLIC,
    ),
    # Dark above the forehead or not, a proxy of hair colour (hair.py); for mask_tables.py.
    "lfw-hair": World(
        {"source": "table:runs/data/lfw/hair.csv", "size": 64},
        {
            "hair": Task(
                MaskConfig(epochs=12, flips=True, masker_width=8),
                "epochs: 12, patience: 4, flips: true, shifts: 2",
                ("dark", "other"),
            )
        },
        "identity",
        PUBLIC,
    ),
    "cmu": World(
        {"source": "table:runs/data/cmu/table.csv", "size": 32},
        {
            target: Task(MaskConfig(epochs=60, flips=True), "epochs: 80, patience: 20, batch: 32")
            for target in ("sunglasses", "expression")
        },
        "identity",
        "steps: 300, adaptive_steps: 80, gallery: 10, probes: 20, copies: 2",
    ),
    "fer": World(
        {"source": "table:runs/data/fer/table.csv", "size": 48},
        {"emotion": Task(MaskConfig(epochs=30, flips=True), "epochs: 15, patience: 5")},
        None,
        "",
    ),
}


@dataclass(frozen=True)
class Part:
    """One target and seed of a world."""

    world: str
    target: str
    seed: int
    small: bool

    @property
    def task(self) -> Task:
        """What is to be kept."""
        return WORLDS[self.world].targets[self.target]

    @property
    def mask(self) -> MaskConfig:
        """How its masks are trained: too little to learn, where it is small."""
        if self.small:
            return replace(self.task.mask, epochs=1, batch=16, masker_width=4, levels=2)
        return self.task.mask

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{self.target}-{self.seed}"

    @property
    def folder(self) -> Path:
        """Where its masks and its study are."""
        return RUNS / f"{self.world}{'-small' if self.small else ''}"

    @property
    def row(self) -> str:
        """The name of its record."""
        return f"{self.world}-{self.name}"

    def records(self, of: Rows) -> Rows:
        """Where its record is kept: small ones beside its masks."""
        return Rows(self.folder / of.path.name) if self.small else of

    def masks(self) -> Iterator[tuple[str, MaskConfig, Path]]:
        """Name, settings and artefact of each mask."""
        for keep in (*KEEPS, *(OF_FIRST if self.seed == SEEDS[0] else ())):
            for kind, changes in MASKS.items():
                if kind == "published" and keep != KEEPS[0]:
                    continue
                path = self.folder / "models" / self.name / f"{kind}-{keep:g}.safetensors"
                yield f"{kind} {keep:g}", replace(self.mask, keep=keep, **changes), path

    def load(self) -> dict[str, LabelledImages]:
        """The splits, of images whose class is known; and "people", all training images."""
        world = WORLDS[self.world]
        source = {key: each for key, each in world.source.items() if key != "source"}
        loaded = data.load(world.source["source"], **source)
        splits = {"people": loaded.split("train")}
        for name in ("train", "validation", "test"):
            part = loaded.split(name)
            label = part.label(self.target)
            wanted = self.task.classes or label.names
            known = torch.tensor([label.names[code] in wanted for code in label.codes.tolist()])
            splits[name] = part.rows(known.nonzero().flatten())
        return splits


def train(part: Part, splits: dict[str, LabelledImages], config: MaskConfig, path: Path) -> dict[str, Any]:
    """Train a mask where it is not there yet, and return its card."""
    if path.exists():
        _, card = artefacts.load(path, kind=KIND)
        if (MaskConfig(**card["config"]), card["data"]["digest"]) != (config, splits["train"].digest):
            raise ArtefactError(f"{path}: trained with other settings, or on other data: delete it")
        return card
    started, checkpoint = time.perf_counter(), path.with_suffix(".checkpoint")
    model = adversarial_mask.train(
        splits["train"],
        config,
        target=part.target,
        sensitive=WORLDS[part.world].sensitive if config.against else None,
        people=splits["people"] if config.against else None,
        validation=splits["validation"],
        seed=part.seed,
        checkpoint=checkpoint,
    )
    model.card["seconds"] = round(time.perf_counter() - started)
    model.save(path)
    checkpoint.unlink(missing_ok=True)
    print(f"{path}: {model.card['seconds']} s", flush=True)
    return model.card


def with_masks(part: Part) -> dict[str, str]:
    """The protections of the study of one target and seed: spec -> its name."""
    masks = {f"mask:artefact={path}": name for name, _, path in part.masks()}
    shapes = {f"{spec},values=shape": f"shape of {name}" for spec, name in masks.items() if name == SHAPED}
    return {spec: spec for spec in CLASSICAL} | masks | shapes


def study(
    part: Part,
    named: dict[str, str],
    beside: str = "",
    *,
    learners: list[str] = LEARNERS,
    attacks: list[str] = ATTACKS,
) -> dict[str, Any]:
    """Run a study of one target and seed, and return what it found of each setting, by its name.

    Args:
        part: see Part.
        named: its protections: spec -> name.
        beside: what tells its folder from that of the study of the masks.
        learners, attacks: of the study.
    """
    world = WORLDS[part.world]
    task: dict[str, Any] = {"target": part.target}
    measures = ["ssim", "psnr"]
    if part.task.classes:
        task["classes"] = list(part.task.classes)
    if world.sensitive is not None:
        task["sensitive"] = world.sensitive
        measures.append("face-similarity")
    settings = f"""
        title: {json.dumps(f"Masks on {part.world}: {part.target}")}
        data: {json.dumps(world.source)}
        task: {json.dumps(task)}
        protections: {json.dumps(list(named))}
        learners: {json.dumps(learners)}
        attacks: {json.dumps(attacks if world.sensitive else [])}
        measures: {json.dumps(measures)}
        classifier: {{network: conv4, {"epochs: 1" if part.small else part.task.classifier}}}
        restoration: {{network: unet, steps: {2 if part.small else 200}, batch: 16}}
        seeds: [{part.seed}]
        tells: false
        embeddings: false
    """
    if world.adversary:
        small = ", steps: 2, adaptive_steps: 1, batch: 8, gallery: 2, probes: 2"
        settings += f"    adversary: {{{small[2:] if part.small else world.adversary}}}\n"
    file = part.folder / f"{part.name}{beside}.yaml"
    with whole(file) as temporary:
        temporary.write_text(settings, encoding="utf-8")
    directory = part.folder / f"{part.name}{beside}"
    # All parts of a world share what they measured: who somebody is does not depend on what he is asked for.
    for shared in ("records", "models"):
        if not (directory / shared).exists():
            (part.folder / "shared" / shared).mkdir(parents=True, exist_ok=True)
            directory.mkdir(exist_ok=True)
            (directory / shared).symlink_to(Path("..") / "shared" / shared)
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
            case "similarity" if cell["view"] == "released":
                keys = ("ssim", "psnr", "face-similarity", "face-similarity_of_two")
                of |= {key: result[key] for key in keys if key in result}
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


def measure(part: Part) -> dict[str, Any]:
    """Masks, study and ground truth of one target and seed, or that there is nothing to keep: `unlearned`."""
    splits = part.load()
    cards = {name: train(part, splits, config, path) for name, config, path in part.masks()}
    settings = study(part, with_masks(part))
    clean = settings["none"]["classifier-clean"]
    if clean["low"] <= clean["chance"] and not part.small:
        return about(part, splits) | {"unlearned": clean}
    shown_of = splits["test"].images[:SHOWN]
    parts = None
    if part.world == "faces":
        source = {key: each for key, each in WORLDS["faces"].source.items() if key not in ("source", "size")}
        rows = people(**source).rows(data.load("faces", **source).splits["test"][:SHOWN])
        shown_of, parts = draw(rows, size=WORLDS["faces"].source["size"])
    strips = [torch.cat(list(shown_of[:STRIP]), dim=2)]
    for name, _, path in part.masks():
        release = parse(f"mask:artefact={path}").release(shown_of, seeded_noise(part.seed))
        assert release.shown is not None
        mean = release.shown.double().mean(0)  # (1, H, W)
        images.write(
            part.folder / "pictures" / f"{part.name}-{path.stem}.png", (255 * mean).round().to(torch.uint8)
        )
        strips.append(torch.cat(list(release.images()[:STRIP]), dim=2))
        strips[-1][..., -mean.shape[2] :] = (255 * mean).round().to(torch.uint8)  # the last is the mean mask
        # How much the mask is the same for everybody: 1 for one mask for all, and `keep` for masks by lot.
        found = {
            "mean_where_shown": (mean.square().sum() / mean.sum()).item(),
            "bytes": release.bytes_per_image,
        }
        if parts is not None:
            found["world"] = held_against(parts, release.shown)
        settings[name] |= {"training": training(cards[name]), **found}
    if not part.small and part.seed == SEEDS[0]:
        images.write(PICTURES / f"masks-{part.world}-{part.target}.png", torch.cat(strips, dim=1))
    return about(part, splits) | {"mask": asdict(part.task.mask), "settings": settings}


def about(part: Part, splits: dict[str, LabelledImages]) -> dict[str, Any]:
    """What every record of a part says of its making."""
    return {
        "world": part.world,
        "target": part.target,
        "seed": part.seed,
        "images": {name: len(splits[name]) for name in ("train", "validation", "test")},
        "version": sfumato.__version__,
        "threads": torch.get_num_threads(),
    }


def training(card: dict[str, Any]) -> dict[str, Any]:
    """How a mask was trained, of its card."""
    return {key: card.get(key) for key in ("epochs", "validation_accuracy", "seconds")}


def measured(part: Part) -> dict[str, Any] | None:
    """Its record, where there is one of masks with the settings of today."""
    record = part.records(RECORDS).get(part.row)
    if record is None:
        return None
    return record if "unlearned" in record or MaskConfig(**record["mask"]) == part.task.mask else None


def unlearned(part: Part) -> bool:
    """Whether the first seed's classifier of clean images learned nothing, so that no mask has anything to keep."""
    first = measured(replace(part, seed=SEEDS[0]))
    return first is not None and "unlearned" in first


def seeds_of(given: argparse.Namespace) -> Sequence[int]:
    """The seed that is asked for, or all; of small settings the first."""
    if given.seed is not None:
        return (given.seed,)
    return SEEDS[:1] if given.small else SEEDS


def main() -> None:
    """Measure what has no record yet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("world", choices=list(WORLDS))
    parser.add_argument("--small", action="store_true", help="settings too small to learn, to try it out")
    parser.add_argument("--only", help="this target alone")
    parser.add_argument("--seed", type=int, choices=SEEDS, help="this seed alone")
    given = parser.parse_args()
    for seed in seeds_of(given):
        for target in WORLDS[given.world].targets:
            part = Part(given.world, target, seed, given.small)
            if given.only in (None, target) and measured(part) is None and not unlearned(part):
                part.records(RECORDS)[part.row] = measure(part)
                print(f"record: {part.row}", flush=True)


if __name__ == "__main__":
    main()
