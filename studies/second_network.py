"""A second public face network: what dlib's ResNet and MobileFaceNet name on LFW, each alone and both together.

    python studies/second_network.py ../shared/data    # 5 minutes on one core

Pairs of LFW at 84 pixels, and naming from one photograph, in clear and by releases. The adversary is adaptive: the
gallery is released in the same way. Faces lie where MTCNN finds them on clear photographs; on releases, where it
finds one, and otherwise at the usual place. Both together are the sum of two similarities, each of mean 0 and
deviation 1. The record is studies/results/second-network.jsonl.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from faces_networks import photographs, verification
from torch import Tensor
from torch.nn import functional

import sfumato
from sfumato import protect
from sfumato.assess import recognition
from sfumato.attack.fusion import standardise
from sfumato.attack.reidentify import FaceFinder, split_gallery
from sfumato.dp.mechanisms import seeded_noise
from sfumato.networks import MTCNN, DlibResNet, MobileFaceNet, align
from sfumato.study.records import write_rows

RECORD = Path(__file__).parent / "results" / "second-network.jsonl"
RELEASES = ("none", "pixelize:cell=4", "pixelize:cell=6", "blur:radius=3")
EVERY, PEOPLE, GALLERY, PROBES, SEED = 8, 40, 5, 5, 0


class Both:
    """The two networks: (n, 3, 84, 84) photographs and their landmarks -> the embeddings by each."""

    def __init__(self, weights: Path) -> None:
        self._mobile = MobileFaceNet.load(weights / "mobilefacenet_casia_112x96.safetensors")
        self._dlib = DlibResNet.load()
        self.seconds = {"MobileFaceNet": 0.0, "dlib": 0.0}
        self.faces = 0

    def embed(self, images: Tensor, landmarks: Tensor) -> dict[str, Tensor]:
        """By name of the network, (n, 128)."""
        made = {}
        self.faces += len(images)
        for name, of in (
            ("MobileFaceNet", lambda: self._mobile.embed(align(images, landmarks))),
            ("dlib", lambda: self._dlib.embed(self._dlib.cut(images, landmarks))),
        ):
            started = time.process_time()
            made[name] = of()
            self.seconds[name] += time.process_time() - started
        return made


def pairs(packed: dict[str, np.ndarray], networks: Both) -> dict[str, Any]:
    """Whether two photographs show one person: the measures of each network, and of both."""
    chosen = packed["pairs"][::EVERY]
    rows = np.unique(chosen[:, :2])
    places = torch.from_numpy(np.searchsorted(rows, chosen[:, :2]))
    same, folds = torch.from_numpy(chosen[:, 2] == 1), torch.from_numpy(chosen[:, 3])
    embedded = networks.embed(photographs(packed, rows), torch.from_numpy(packed["landmarks"][rows]))
    cosines = {}
    for name, vectors in embedded.items():
        left, right = vectors[places].unbind(1)
        cosines[name] = (left * right).sum(1)
    cosines["both"] = sum(standardise(each[None])[0] for each in cosines.values())
    measured = {name: verification(each, same, folds) for name, each in cosines.items()}
    return {"pairs": len(chosen), "images": len(rows), **measured}


def naming(packed: dict[str, np.ndarray], networks: Both, detector: MTCNN) -> dict[str, Any]:
    """How many probes each network names first, and both, for each protection."""
    people, counts = np.unique(packed["person"], return_counts=True)
    enough = people[counts >= GALLERY + PROBES]
    order = torch.randperm(len(enough), generator=torch.Generator().manual_seed(SEED))
    chosen = np.isin(packed["person"], enough[order[:PEOPLE]])
    rows = np.flatnonzero(chosen)
    codes = torch.from_numpy(packed["person"][rows].astype(np.int64))
    known, asked = split_gallery(codes, gallery=GALLERY, probes=PROBES, seed=SEED)
    clear = photographs(packed, rows)
    others = photographs(packed, np.flatnonzero(~chosen)[::20][:300])
    finder = FaceFinder(detector, others)
    landmarks = finder.find(clear[known]).landmarks
    made = {}
    for spec in RELEASES:
        released = protect.parse(spec).release(clear, seeded_noise(SEED)).images()
        faces = finder.find(released[asked])
        gallery = networks.embed(released[known], landmarks)
        probes = networks.embed(released[asked], faces.landmarks)
        similarities = {name: to_means(gallery[name], codes[known], probes[name]) for name in gallery}
        similarities["both"] = sum(standardise(each) for each in similarities.values())
        identities = codes[known].unique()
        made[spec] = {"faces_found": faces.rate}
        for name, each in similarities.items():
            judged = recognition.identification(each, identities, codes[asked])
            made[spec][name] = {"top1": judged.top1, "low": judged.low, "high": judged.high}
        print(spec, json.dumps(made[spec]), flush=True)
    chance = recognition.chance(codes[asked])
    return {"people": PEOPLE, "gallery": GALLERY, "probes": len(asked), "chance": chance, "named": made}


def to_means(gallery: Tensor, names: Tensor, probes: Tensor) -> Tensor:
    """(m, I) cosines of probes to the mean of each person."""
    _, places = names.unique(return_inverse=True)
    sums = gallery.new_zeros(int(places.max()) + 1, gallery.shape[1]).index_add(0, places, gallery)
    return probes @ functional.normalize(sums).T


def main() -> None:
    """Measure everything and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path, help="the folder of packed data")
    root = parser.parse_args().root
    torch.set_num_threads(1)
    packed = dict(np.load(root / "lfw_faces_84.npz"))
    networks = Both(root / "weights")
    detector = MTCNN.load(root / "weights" / "mtcnn.safetensors")
    record = {"naming": naming(packed, networks, detector), "verification": pairs(packed, networks)}
    record |= {"cpu_seconds_a_face": {name: each / networks.faces for name, each in networks.seconds.items()}}
    record |= {"seed": SEED, "version": sfumato.__version__, "torch": torch.__version__}
    write_rows(RECORD, [record])
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
