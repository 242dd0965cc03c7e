"""What frozen encoders that come along know of new classes of photographs: those of wheels, and the one that is shipped.

    python studies/unpack.py caltech101 ../shared/data runs/data/caltech101
    OMP_NUM_THREADS=1 python studies/encoders.py                          # four minutes on one core

The 20 test classes of Caltech-101 at 84x84, as each encoder enlarges them, in clear: 2,000 episodes of 5 classes with 1
and 5 images of each, named by the nearest mean of embeddings of one length. Nothing is fitted. The same of its
validation classes, by which `sfumato demo` has chosen its encoder. Writes studies/results/encoders.jsonl, with the seconds
that 100 photographs take.
"""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

import sfumato
from sfumato import data
from sfumato.episodes import Sampler, Shape
from sfumato.images import to_float
from sfumato.learn.prototypes import episode_accuracies
from sfumato.networks.encoders.pretrained import on_card, open_pretrained, parse_pretrained
from sfumato.study.records import write_rows

ROOT = Path(__file__).parents[1]
DATA = ROOT / "runs" / "data"
SQUEEZENET = ROOT.parent / "shared" / "data" / "weights" / "squeezenet1_0_imagenet_deepcomp.npz"
RECORD = ROOT / "studies" / "results" / "encoders.jsonl"
ENCODERS = {
    "drawn": "drawn",
    "SqueezeNet": f"squeeze-net:{SQUEEZENET}",
    "efficientnet-lite0": "efficientnet-lite0",
    "efficientnet-lite2": "efficientnet-lite2",
}
SHOTS, QUERIES, EPISODES, SEED = (1, 5), 15, 2_000, 0


@torch.no_grad()
def measured(name: str, parts: Mapping[str, data.LabelledImages]) -> dict[str, Any]:
    """Accuracies of one encoder on each part, each with the half of its 95% interval over episodes."""
    encoder = open_pretrained(parse_pretrained(name)).eval()
    row: dict[str, Any] = {"encoder": on_card(name)}
    for part, of_part in parts.items():
        start = time.process_time()
        embeddings = [encoder.raw(images) for images in to_float(of_part.images).split(64)]
        row["cpu_seconds_of_100"] = round(100 * (time.process_time() - start) / len(of_part), 2)
        row[part] = {str(shot): _accuracy(torch.cat(embeddings), of_part, shot) for shot in SHOTS}
    return row


def _accuracy(embeddings: torch.Tensor, of_part: data.LabelledImages, shot: int) -> dict[str, float]:
    sampler = Sampler(of_part.label("class"), Shape(way=5, shot=shot, queries=QUERIES))
    places = sampler.draw(EPISODES, torch.Generator().manual_seed(SEED))
    hits = episode_accuracies(functional.normalize(embeddings), places, shot=shot)
    half = 1.96 * hits.std().item() / EPISODES**0.5
    return {"mean": round(hits.mean().item(), 4), "half_width": round(half, 4)}


def main() -> None:
    """Measure, and write the record."""
    loaded = data.load(f"table:{DATA / 'caltech101' / 'table.csv'}", size=84)
    parts = {part: loaded.split(part) for part in ("validation", "test")}
    record = {
        "images": {part: len(of_part) for part, of_part in parts.items()},
        "episodes": EPISODES,
        "rows": {name: measured(spec, parts) for name, spec in ENCODERS.items()},
        "threads": torch.get_num_threads(),
        "seed": SEED,
        "version": sfumato.__version__,
    }
    write_rows(RECORD, [record])
    print(json.dumps(record))


if __name__ == "__main__":
    main()
