"""What frozen encoders that come along know of new classes of photographs: those of wheels, and the one that is shipped.

    python studies/unpack.py caltech101 ../shared/data runs/data/caltech101
    OMP_NUM_THREADS=1 python studies/encoders.py                          # two minutes on one core

The 20 test classes of Caltech-101 at 84x84, as each encoder enlarges them, in clear: 2,000 episodes of 5 classes with 1
and 5 images of each, named by the nearest mean of embeddings of one length. Nothing is fitted. Writes
studies/results/encoders.json, with the seconds that 100 photographs take.
"""

import json
import time
from pathlib import Path

import torch
from torch.nn import functional

import sfumato
from sfumato import data
from sfumato.episodes import Sampler, Shape
from sfumato.files import whole
from sfumato.images import to_float
from sfumato.learn.prototypes import episode_accuracies
from sfumato.networks.pretrained import on_card, open_pretrained, parse_pretrained

ROOT = Path(__file__).parents[1]
DATA = ROOT / "runs" / "data"
SQUEEZENET = ROOT.parent / "shared" / "data" / "weights" / "squeezenet1_0_imagenet_deepcomp.npz"
ROOT = Path(__file__).parents[1]
DATA = ROOT / "runs" / "data"
SQUEEZENET = ROOT.parent / "shared" / "data" / "weights" / "squeezenet1_0_imagenet_deepcomp.npz"
RECORD = ROOT / "studies" / "results" / "encoders.json"
ENCODERS = {
    "drawn": "drawn",
    "SqueezeNet": f"squeeze-net:{SQUEEZENET}",
    "efficientnet-lite0": "efficientnet-lite0",
    "efficientnet-lite2": "efficientnet-lite2",
}
SHOTS, QUERIES, EPISODES, SEED = (1, 5), 15, 2_000, 0


@torch.no_grad()
def measured(name: str, test: data.LabelledImages) -> dict[str, object]:
    """Accuracies of one encoder, each with the half of its 95% interval over episodes."""
    encoder = open_pretrained(parse_pretrained(name)).eval()
    images = to_float(test.images)
    encoder.raw(images[:8])  # what is done once
    start = time.process_time()
    embeddings = functional.normalize(torch.cat([encoder.raw(part) for part in images.split(64)]))
    seconds = time.process_time() - start
    shots = {}
    for shot in SHOTS:
        sampler = Sampler(test.label("class"), Shape(way=5, shot=shot, queries=QUERIES))
        places = sampler.draw(EPISODES, torch.Generator().manual_seed(SEED))
        hits = episode_accuracies(embeddings, places, shot=shot)
        half = 1.96 * hits.std().item() / EPISODES**0.5
        shots[str(shot)] = {"mean": round(hits.mean().item(), 4), "half_width": round(half, 4)}
    return {
        "encoder": on_card(name),
        "shots": shots,
        "cpu_seconds_of_100": round(100 * seconds / len(images), 2),
    }


def main() -> None:
    """Measure, and write the record."""
    test = data.load(f"table:{DATA / 'caltech101' / 'table.csv'}", size=84).split("test")
    rows = {name: measured(spec, test) for name, spec in ENCODERS.items()}
    record = {
        "images": len(test),
        "classes": len(test.label("class").codes.unique()),
        "episodes": EPISODES,
        "rows": rows,
        "threads": torch.get_num_threads(),
        "seed": SEED,
        "version": sfumato.__version__,
    }
    with whole(RECORD) as temporary:
        temporary.write_text(json.dumps(record) + "\n", encoding="utf-8")
    print(json.dumps(record))


if __name__ == "__main__":
    main()
