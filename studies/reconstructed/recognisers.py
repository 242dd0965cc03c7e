"""Recognisers: those that are trained on a data set, those of public weights, and the judges among them."""

import math
from functools import cache
from pathlib import Path

import admitted_judges as judges
import numpy as np
import torch
from admitted_judges import LEAST_JUDGES, Ability
from rows import CURE, RESULTS
from torch import Tensor
from torch.nn import functional

from reconstructed.sources import NARROW, SEED, SHARED, SOURCES, SQUEEZENET, named, parts
from sfumato import protect
from sfumato.annotate import campaign, proxies
from sfumato.annotate.proxies import PairProxy, Proxy
from sfumato.data import LabelledImages
from sfumato.learn import classifier
from sfumato.learn.classifier import ClassifierConfig, ClassifierModel
from sfumato.study.records import read_rows

EMOTION = SHARED / "weights" / "emotion_mini_xception_fer2013.safetensors"
FACES = SHARED / "weights" / "mobilefacenet_casia_112x96.safetensors"
JUDGES = RESULTS / "judges.jsonl"
STEPS, BATCH = 1000, 32
# name -> network, and how images are released to it: annotators differ in what they have seen.
TRAINED = {
    "conv4": ("conv4", "none"),
    "convnet8": (NARROW, "none"),
    "predictor": ("predictor", "none"),
    "conv4-noisy": ("conv4", "gaussian:sigma=20"),
    "convnet8-blurred": (NARROW, "blur:radius=1"),
}
# Of photographs of objects, beside these: a linear layer on SqueezeNet. Tuned from end to end it was no better on
# held-out training images (93% and 93% of Caltech-101 and CIFAR-10, and 95% and 94% as it is).
OBJECTS = {"squeeze-net": (f"squeeze-net:{SQUEEZENET},size=128", "none")}
OF_OBJECTS = ("cifar10", "caltech101")
_WORD = ", trained"  # behind its name, where those of public weights stand beside it
# What the classes of FER+ are called that are told apart here.
EXPRESSIONS = {"happy": "happiness", "neutral": "neutral", "surprise": "surprise"}
THRESHOLDS = [each / 50 for each in range(-10, 50)]


def trained_on(name: str) -> dict[str, tuple[str, str]]:
    """The recognisers that are trained on a data set, as TRAINED."""
    return TRAINED | (OBJECTS if name in OF_OBJECTS else {})


def path_of(name: str, recogniser: str, runs: Path) -> Path:
    """Where a trained recogniser lies; it is trained where it does not."""
    path = runs / name / "models" / f"proxy-{recogniser}.safetensors"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        network, spec = trained_on(name)[recogniser]
        train, _ = parts(name)
        config = ClassifierConfig(
            network=network,
            epochs=max(1, round(STEPS / math.ceil(len(train) / BATCH))),
            batch=BATCH,
            flips=SOURCES[name].flips,
            shifts=2,
        )
        classifier.train(train, protect.parse(spec), config, target="class", seed=SEED + 1).save(path)
    return path


def ability_of(name: str, recogniser: str, runs: Path) -> Ability:
    """How often a trained one is right on clean test images as they are, whatever it was trained on."""
    model = classifier.load(path_of(name, recogniser, runs)).eval()
    _, test = parts(name)
    right = sum(
        model.classes[code] == truth
        for code, truth in zip(model.classify(test.images).tolist(), named(test), strict=True)
    )
    return Ability(f"{recogniser}{_WORD}", right, len(test))


def few(images: LabelledImages, most: int) -> LabelledImages:
    """So many of them at most, drawn with a seed."""
    chosen = torch.randperm(len(images), generator=torch.Generator().manual_seed(SEED))[:most]
    return images.rows(chosen.sort().values)


def pairs(images: LabelledImages) -> tuple[Tensor, Tensor, Tensor]:
    """Each image with another of its class, and with one of another class: (first, second, same)."""
    codes, generator = images.label("class").codes, torch.Generator().manual_seed(SEED)
    first, second, same = [], [], []
    for row, code in enumerate(codes.tolist()):
        for alike in (True, False):
            others = ((codes == code) == alike).nonzero().flatten()
            others = others[others != row]
            if len(others):
                first.append(row)
                second.append(int(others[torch.randint(len(others), (1,), generator=generator)]))
                same.append(alike)
    return images.images[first], images.images[second], torch.tensor(same)


def mobile_face_net(train: LabelledImages) -> PairProxy:
    """One person or two, at the threshold that is most often right on training pairs."""
    with np.load(SHARED / "lfw_faces_84.npz") as packed:
        landmarks = torch.from_numpy(packed["landmarks"].mean(0) / 84).float()
    embed = judges.face_embedding(FACES, landmarks=landmarks)
    first, second, same = pairs(few(train, 150))
    cosines = functional.cosine_similarity(embed(first), embed(second))
    best = max(THRESHOLDS, key=lambda each: int(((cosines >= each) == same).sum()))
    return proxies.by_embedding(f"MobileFaceNet from a cosine of {best:g}", embed, threshold=best)


def emotion_network() -> Proxy:
    """Names one of the three expressions."""
    return judges.by_emotion(EMOTION, threshold=0.0, names=EXPRESSIONS.get)


def centroids(train: LabelledImages, size: int) -> Proxy:
    """SqueezeNet's features, and the nearest class mean."""
    return judges.by_centroids(SQUEEZENET, train.images, named(train), size=size)


def admitted() -> dict[str, tuple[str, ...]]:
    """Data set -> the names of its judges, by the record of studies/judges.py.

    None has the network of a victim: what matches a victim's gradient may deceive its like. SqueezeNet is the network of
    two measures, which may agree with it for that alone: it is asked only where there are too few others. Of two
    with one network, which see alike, the first is asked.
    """
    ((_, record),) = read_rows(JUDGES, CURE)
    found = record["judges"]
    return {name: _unlike(judges, trained_on(name)) for name, judges in found.items()}


def _unlike(judges: list[str], recognisers: dict[str, tuple[str, str]]) -> tuple[str, ...]:
    by_network: dict[str, str] = {}
    for judge in judges:
        trained = judge.removesuffix(_WORD)
        network = recognisers[trained][0] if trained in recognisers else judge
        if network != NARROW:
            by_network.setdefault("squeeze-net" if network.lower().startswith("squeeze") else network, judge)
    if len(by_network) > LEAST_JUDGES:
        by_network.pop("squeeze-net", None)
    return tuple(by_network.values())


@cache
def panel(name: str, runs: Path) -> list[Proxy] | list[PairProxy]:
    """Those who judge reconstructions of a data set: each as the task asks it.

    Where they choose among classes, they name the likeliest, as in the test of clean images that admits them. Where
    they compare, trained ones call the same what is of one class with probability a half or more.
    """
    train, _ = parts(name)
    made: list[Proxy | PairProxy] = []
    for judge in admitted()[name]:
        trained = judge.removesuffix(_WORD)
        if judge == trained:
            made.append(mobile_face_net(train) if judge.startswith("MobileFaceNet") else emotion_network())
        elif SOURCES[name].task == campaign.CHOOSE:
            made.append(proxies.by_classifier(path_of(name, trained, runs), threshold=0.0))
        else:
            made.append(comparer(name, trained, runs))
    return made  # type: ignore[return-value]


def comparer(name: str, trained: str, runs: Path) -> PairProxy:
    """Two images show the same where its probability that both are of one class is a half or more."""
    model: ClassifierModel = classifier.load(path_of(name, trained, runs)).eval()

    @torch.no_grad()
    def compare(originals: Tensor, others: Tensor) -> list[bool | None]:
        return [
            each >= 0.5 for each in (model(originals).softmax(1) * model(others).softmax(1)).sum(1).tolist()
        ]

    return PairProxy(trained, compare)


def ask(proxy: Proxy | PairProxy, test: LabelledImages) -> Ability:
    """How often a judge is right on clean test images, asked as it judges reconstructions."""
    if isinstance(proxy, Proxy):
        return judges.ability(proxy, test.images, named(test))
    return judges.ability_on_pairs(proxy, *pairs(test))
