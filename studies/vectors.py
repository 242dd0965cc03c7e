"""What embeddings of real faces give away, by `sfumato audit vectors`: three public encoders, as stored and with remedies.

    OMP_NUM_THREADS=1 python studies/vectors.py ../shared/data    # ten minutes on one core, nearly all of it to embed

All 8,391 faces of LFW at 84x84: MobileFaceNet on faces that are aligned by the landmarks of the data, SqueezeNet and
EfficientNet-Lite0 on the whole images. Gender is of the person, smiles of some photographs. Vectors are kept under runs/vectors, for
`sfumato audit vectors runs/vectors/mobile-face-net.npz --people person --labels gender,smile`; the record is
studies/results/vectors.jsonl, a row for each encoder and form, with the seconds of the processor that the audit takes.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from faces_networks import photographs

import sfumato
from sfumato.audits.findings import Report
from sfumato.audits.vectors import audit_vectors, read
from sfumato.images import to_float
from sfumato.networks import MobileFaceNet, align
from sfumato.networks.encoders.pretrained import open_pretrained, parse_pretrained
from sfumato.study.records import write_rows

ROOT = Path(__file__).parents[1]
RECORD, RUNS = ROOT / "studies" / "results" / "vectors.jsonl", ROOT / "runs" / "vectors"
ENCODERS = {
    "mobile-face-net": "mobilefacenet_casia_112x96.safetensors",
    "efficientnet-lite0": None,
    "squeeze-net": "squeezenet1_0_imagenet_deepcomp.npz",
}
BATCH, SEED = 64, 0


@torch.no_grad()
def embed(name: str, root: Path) -> Path:
    """The vectors of an encoder as an .npz, with people and attributes; those of an earlier run if there are."""
    path, file = RUNS / f"{name}.npz", ENCODERS[name]
    if path.exists():
        return path
    packed = dict(np.load(root / "lfw_faces_84.npz"))
    person = packed["person"]
    images = photographs(packed, np.arange(len(person)))
    if name == "mobile-face-net":
        network = MobileFaceNet.load(root / "weights" / str(file))
        vectors = network.embed(align(images, torch.from_numpy(packed["landmarks"])))
    else:
        spec = name if file is None else f"{name}:{root / 'weights' / file}"
        encoder = open_pretrained(parse_pretrained(spec)).eval()
        vectors = torch.cat([encoder.raw(to_float(part)) for part in images.split(BATCH)])
    unknown = {key: np.where(packed[key] == 255, -1, packed[key].astype(int)) for key in ("gender", "smile")}
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        path,
        vectors=vectors.float().numpy(),
        person=packed["names"][person],
        gender=unknown["gender"][person],
        smile=unknown["smile"],
    )
    return path


def rows(name: str, report: Report, seconds: float) -> Iterator[dict[str, Any]]:
    """A row for each form, the first with everything that the audit says of the vectors as they are."""
    of = {finding.name: finding.figures for finding in report.findings}
    for number, (form, figures) in enumerate(of["forms"].items()):
        stored = {key: of[key] for key in ("named", "attributes", "twins")} if number == 0 else {}
        kind = form.partition(",")[0]
        yield {
            "row": f"{name}, {form}",
            "encoder": name,
            "form": kind,
            **figures,
            "proved": figures["proved"] if figures["proved"] < 1 else None,
            "chance": {size: each["chance"] for size, each in of["named"].items()},
            "stored": stored,
            "seconds": round(seconds, 1),
            "seed": SEED,
            "version": sfumato.__version__,
        }


def main() -> None:
    """Embed, audit and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path, help="the folder of packed data")
    root, record = parser.parse_args().root, []
    torch.set_num_threads(1)
    for name in ENCODERS:
        given = read(embed(name, root), people="person", labels=["gender", "smile"], seed=SEED)
        started = time.process_time()
        report = audit_vectors(given, subject=name, seed=SEED)
        record += rows(name, report, time.process_time() - started)
        print(json.dumps({name: report.sentence}))
    write_rows(RECORD, record)


if __name__ == "__main__":
    main()
