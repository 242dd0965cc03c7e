"""Public networks on the packed real data: are these the networks, weights and conventions that were published?

    python studies/faces_networks.py ../shared/data    # about 8 minutes on one core

LFW verification by MobileFaceNet, with the landmarks that come with the data and with those that our MTCNN
finds; detection itself; and SqueezeNet's features on few-shot episodes of Caltech-101. The record is
studies/results/face-networks.jsonl.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from unpack import picture

import sfumato
from sfumato.assess import recognition
from sfumato.data import Label
from sfumato.episodes import Sampler, Shape
from sfumato.images import to_float
from sfumato.learn.prototypes import episode_accuracies
from sfumato.networks import MTCNN, MobileFaceNet, align
from sfumato.networks.encoders.pretrained import open_pretrained, parse_pretrained
from sfumato.study.records import write_rows

RECORD = Path(__file__).parent / "results" / "face-networks.jsonl"
SQUEEZENET = Path("weights") / "squeezenet1_0_imagenet_deepcomp.npz"
EPISODES, QUERIES, SEED = 600, 15, 0
ENLARGED = (84, 168)  # pixels at which SqueezeNet, trained at 227, sees the photographs of 84


def photographs(packed: dict[str, np.ndarray], rows: np.ndarray) -> Tensor:
    """(n, 3, 84, 84) uint8."""
    return torch.from_numpy(np.stack([np.asarray(picture(packed, i)).transpose(2, 0, 1) for i in rows]))


def verification_accuracy(scores: Tensor, same: Tensor, folds: Tensor) -> Tensor:
    """Compute the measure of LFW: each fold by the best threshold of all others. -> (F,).

    Source: Huang et al. 2007, View 2. Their figure is the mean over ten folds with its standard error.

    Args:
        scores: (P,) similarity of each pair.
        same: (P,) bool, whether a pair shows one person.
        folds: (P,) int64; two or more.
    """
    if len(folds.unique()) < 2:
        raise ValueError("two folds or more: one to test on, others to choose a threshold")
    accuracies = []
    for fold in folds.unique():
        rest, tested = folds != fold, folds == fold
        ordered, order = scores[rest].sort()
        truth = same[rest][order].long()
        # Correct if all from position i on are called the same: pairs above that are, pairs below that are
        # not.
        right = truth.sum() - truth.cumsum(0) + truth + (1 - truth).cumsum(0) - (1 - truth)
        # A threshold accepts all equal scores: only the first of them is a candidate.
        new = torch.cat([torch.tensor([True]), ordered[1:] > ordered[:-1]])
        threshold = ordered[right.where(new, -1).argmax()]
        accuracies.append(((scores[tested] >= threshold) == same[tested]).double().mean())
    return torch.stack(accuracies)


def verification(cosines: Tensor, same: Tensor, folds: Tensor) -> dict[str, float]:
    """The measures of LFW on its pairs."""
    folded, judged = verification_accuracy(cosines, same, folds), recognition.verification(cosines, same)
    return {
        "accuracy": folded.mean().item(),
        "standard_error": folded.std().item() / math.sqrt(len(folded)),
        "auc": judged.auc,
        "tar_at_far_1e-3": judged.tar_at_far["1e-3"],
        "mean_cosine_same": cosines[same].mean().item(),
        "mean_cosine_different": cosines[~same].mean().item(),
    }


def faces(root: Path) -> dict[str, Any]:
    """Verification and detection on the faces that the pairs name."""
    packed = dict(np.load(root / "lfw_faces_84.npz"))
    rows = np.unique(packed["pairs"][:, :2])
    pairs = torch.from_numpy(np.searchsorted(rows, packed["pairs"][:, :2]))
    same, folds = torch.from_numpy(packed["pairs"][:, 2] == 1), torch.from_numpy(packed["pairs"][:, 3])
    images, landmarks = photographs(packed, rows), torch.from_numpy(packed["landmarks"][rows])
    recogniser = MobileFaceNet.load(root / "weights" / "mobilefacenet_casia_112x96.safetensors")
    detector = MTCNN.load(root / "weights" / "mtcnn.safetensors")

    def verified(points: Tensor, *, flip: bool) -> dict[str, float]:
        embeddings = recogniser.embed(align(images, points), flip=flip)
        left, right = embeddings[pairs].unbind(1)
        return verification((left * right).sum(1), same, folds)

    started = time.perf_counter()
    detected = detector.detect(images)
    seconds = time.perf_counter() - started
    found, subjects = landmarks.clone(), [each.central(*images.shape[2:]) for each in detected]
    for i, (each, subject) in enumerate(zip(detected, subjects, strict=True)):
        if subject is not None:  # a face that is missed keeps the place that it has on average
            found[i] = each.landmarks[subject]
        else:
            found[i] = landmarks.mean(0)
    seen = torch.tensor([subject is not None for subject in subjects])
    errors = (found - landmarks)[seen].norm(dim=2)  # (n, 5)
    return {
        "images": len(images),
        "pairs": len(pairs),
        "detection": {
            "central_face_found": seen.double().mean().item(),
            "faces_an_image": sum(len(each.boxes) for each in detected) / len(images),
            "landmark_error_pixels": {
                "mean": errors.mean().item(),
                "median": errors.median().item(),
                "95%": errors.quantile(0.95).item(),
            },
            "seconds_an_image": seconds / len(images),
        },
        "verification": {
            "stored landmarks": verified(landmarks, flip=False),
            "stored landmarks, with mirror images": verified(landmarks, flip=True),
            "landmarks of MTCNN": verified(found, flip=False),
        },
    }


def objects(root: Path) -> dict[str, Any]:
    """Few-shot accuracy by the nearest mean of SqueezeNet's last features, each averaged and of unit length."""
    packed = dict(np.load(root / "caltech101_84.npz"))
    rows = np.flatnonzero(packed["suggested_split"][packed["label"]] == "test")
    images, codes = photographs(packed, rows), torch.from_numpy(packed["label"][rows].astype(np.int64))
    label = Label(codes, tuple(packed["classes"].tolist()))
    record: dict[str, Any] = {"images": len(images), "classes": len(codes.unique()), "episodes": EPISODES}
    for size in ENLARGED:
        encoder = open_pretrained(parse_pretrained(f"squeeze-net:{root / SQUEEZENET},size={size}"))
        with torch.no_grad():
            seen = torch.cat([encoder.raw(to_float(part)) for part in images.split(64)])
        for shot in (1, 5):
            sampler = Sampler(label, Shape(way=5, shot=shot, queries=QUERIES))
            rows = sampler.draw(EPISODES, torch.Generator().manual_seed(SEED))
            accuracy = episode_accuracies(functional.normalize(seen), rows, shot=shot)  # (E,)
            record[f"{size} pixels, 5-way {shot}-shot"] = {
                "accuracy": accuracy.mean().item(),
                "half_width_95%": 1.96 * accuracy.std().item() / math.sqrt(EPISODES),
            }
    return record


def main() -> None:
    """Measure everything and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path, help="the folder of packed data")
    root = parser.parse_args().root
    torch.set_num_threads(1)
    started = time.perf_counter()
    record = {"faces": faces(root), "objects": objects(root), "seed": SEED, "version": sfumato.__version__}
    record |= {"torch": torch.__version__, "threads": 1, "seconds": time.perf_counter() - started}
    write_rows(RECORD, [record])
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
