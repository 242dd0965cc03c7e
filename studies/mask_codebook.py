"""A mask's shape as one of 16: four bits leave a device and no pixel, so that it is proved how rarely anybody is named.

    python studies/mask_codebook.py              # half an hour on one quiet core; stopped, it goes on
    python studies/mask_codebook.py --small      # settings too small to learn

Not in the mask paper. Masks of 10% of the pixels of LFW photographs of 64x64 are trained for their shape and the task of a smile
(studies/masks-against/lfw-32-smile-shape.yaml, which has 32x32). The shapes of training images whose class is known are put into
eight groups of each class, by k-means; the 16 means, cut to as many pixels, are the codebook. A device sends the one nearest to
its own shape. Beside it stands the shape itself; studies/lfw-smile.yaml has a code of four bits, of the same photographs.

Records are studies/results/mask-codebook.jsonl, a row a seed.
"""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from masks import settings_of, too_small
from rows import RESULTS, Rows, make
from safetensors.torch import load_file, save_file
from torch import Tensor

import sfumato
from sfumato.dp.mechanisms import Noise, seeded_noise
from sfumato.images import Images
from sfumato.protect.mask import Mask, top_pixels
from sfumato.protect.release import FilePath, Release, TrainedProtection
from sfumato.study import grid, run
from sfumato.study.lab.lab import Lab
from sfumato.study.vocabulary import SHAPE, ProtectionWords

STUDY = Path(__file__).parent / "masks-against" / "lfw-32-smile-shape.yaml"
RUNS = Path("runs/mask-codebook")
SHAPE_OF = "mask:keep=0.1,values=shape"
WORDS, ROUNDS, SIDE = 16, 30, 64


@dataclass(frozen=True)
class Codebook(TrainedProtection):
    """The nearest of 16 masks to the shape of an image's own; `artefact` is a file of `make_codebook`."""

    artefact: FilePath

    name, kind, has_shape, outputs = "mask-codebook", SHAPE, True, WORDS
    words = ProtectionWords(
        "Codebook of masks", release=SHAPE, leaves=f"One of {WORDS} masks, that nearest to the image's own."
    )

    def release(self, images: Images, noise: Noise) -> Release:
        """See Protection.release."""
        masks = load_file(self.artefact)["masks"].bool()  # (16, 1, H, W)
        own = Mask(str(Path(self.artefact).with_suffix(".mask")), values="shape").release(images, noise)
        assert own.shown is not None
        shown = masks[distances(own.shown, masks.float()).argmin(1)]
        made = replace(own, spec=self.spec, shown=shown)
        return replace(made, array=made.shapes().numpy())


def distances(shapes: Tensor, centres: Tensor) -> Tensor:
    """(N, 1, H, W) and (K, 1, H, W) -> (N, K)."""
    return torch.cdist(shapes.flatten(1).float(), centres.flatten(1))


def k_means(shapes: Tensor, count: int, draw: torch.Generator) -> Tensor:
    """(N, 1, H, W) bool -> (count, 1, H, W) float means."""
    centres = shapes[torch.randperm(len(shapes), generator=draw)[:count]].float()
    for _ in range(ROUNDS):
        nearest = distances(shapes, centres).argmin(1)
        means = [
            shapes[nearest == k].float().mean(0) if (nearest == k).any() else centres[k] for k in range(count)
        ]
        centres = torch.stack(means)
    return centres


def make_codebook(lab: Lab, seed: int, path: Path) -> None:
    """The codebook of a lab's shape mask, which is copied beside it."""
    artefact = lab.artefact_of(SHAPE_OF, seed)
    assert artefact is not None
    path.with_suffix(".mask").write_bytes(artefact.read_bytes())
    shown = lab.protection_of(SHAPE_OF, seed).release(lab.train.images, seeded_noise(seed)).shown
    codes, draw = lab.train.label(lab.config.task.target).codes, torch.Generator().manual_seed(seed)
    classes = codes.unique()
    centres = torch.cat([k_means(shown[codes == code], WORDS // len(classes), draw) for code in classes])
    save_file({"masks": top_pixels(centres, count=int(shown[0].sum())).byte()}, path)


def measure(seed: int, *, small: bool) -> dict[str, Any]:
    """The record of a seed."""
    folder = RUNS / ("small" if small else "")
    config = replace(grid.load(STUDY), seeds=[seed], protections=[SHAPE_OF], pictures=0, measures=[])
    config = replace(config, data={**config.data, "size": SIDE}, learners=["classifier-protected"])
    config = replace(config, attacks=["reidentify-adaptive", "reidentify-values"])
    config = too_small(config) if small else config
    prepared = run.prepare(config)
    path = folder / f"codebook-{seed}.safetensors"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        make_codebook(Lab(config, prepared.data[0], folder, run.Progress()), seed, path)
    config = replace(config, protections=[*config.protections, f"mask-codebook:artefact={path}"])
    run.run(run.prepare(config, loaded=prepared.data[0]), folder, progress=run.Progress.printed())
    settings = settings_of(folder)
    return {"settings": {spec.partition(":artefact")[0]: found for spec, found in settings.items()}}


def main() -> None:
    """Measure what has no record yet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="settings too small to learn")
    small = parser.parse_args().small
    sfumato.register("protections", "mask-codebook", Codebook)
    records = Rows(RUNS / "small.jsonl") if small else Rows(RESULTS / "mask-codebook.jsonl")
    for seed in (0,) if small else grid.load(STUDY).seeds:
        make(records, f"smile-{seed}", lambda seed=seed: measure(seed, small=small), seed=seed)  # type: ignore[misc]


if __name__ == "__main__":
    main()
