"""Data sets at 32x32 pixels: what victims learn, and what is attacked."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import torch
from rows import RESULTS, Rows

from sfumato import data
from sfumato.annotate import campaign
from sfumato.data import LabelledImages
from sfumato.data.labelled import label_of
from sfumato.networks import ConvNet8
from sfumato.networks.classifiers import CLASSIFIERS

RECORDS = Rows(RESULTS / "reconstruction.jsonl")
RUNS = Path("runs/reconstruction")
SHARED = Path("../shared/data")
SQUEEZENET = SHARED / "weights" / "squeezenet1_0_imagenet_deepcomp.npz"
SIZE = 32
CLASSES = 20  # those with most images
SEED = 0
NARROW = "convnet8-16"  # of 64 filters it takes 20 minutes an image
CLASSIFIERS[NARROW] = partial(ConvNet8, width=16)


@dataclass(frozen=True)
class Source:
    """Where images come from.

    Attributes:
        load: all of them.
        label: what a victim classifies.
        classes: those that are told apart; none for the CLASSES with most images.
        parts: splits that are trained on and tested on; None: a quarter of each class is tested.
        task: what annotators are asked.
        flips: whether a mirrored image is of the same class.
    """

    load: Callable[[], LabelledImages]
    label: str = "class"
    classes: tuple[str, ...] = ()
    parts: tuple[str, str] | None = None
    task: str = campaign.CHOOSE
    flips: bool = True


# Classes of objects are those that are told apart on TRAINING images, by `python studies/judges.py --classes`.
SOURCES = {
    "cifar10": Source(
        lambda: data.load("table:runs/data/cifar10/table.csv", size=SIZE),
        classes=("automobile", "frog", "horse", "ship"),
        parts=("train", "test"),
    ),
    "caltech101": Source(
        lambda: data.load("table:runs/data/caltech101/table.csv", size=SIZE),
        classes=(
            "Faces",
            "accordion",
            "brain",
            "buddha",
            "camera",
            "car_side",
            "ceiling_fan",
            "cellphone",
        ),
    ),
    "lfw": Source(
        lambda: data.load("table:runs/data/lfw/table.csv", size=SIZE), label="identity", task=campaign.SAME
    ),
    "fer": Source(
        lambda: data.load("table:runs/data/fer/table.csv", size=SIZE),
        label="emotion",
        parts=("train", "test"),
    ),
    "omniglot": Source(
        lambda: data.load("omniglot:runs/data/omniglot", size=SIZE, rotations=False), flips=False
    ),
}


@cache
def parts(name: str, *, every_class: bool = False) -> tuple[LabelledImages, LabelledImages]:
    """Training and test images of the classes that are told apart, with the label "class"."""
    source = SOURCES[name]
    loaded = source.load()
    label = loaded.label(source.label)
    if source.classes and not every_class:
        chosen = torch.tensor([label.names.index(each) for each in source.classes])
    else:
        counts = label.codes.bincount(minlength=len(label.names))
        chosen = counts.argsort(descending=True, stable=True)[:CLASSES]
    generator = torch.Generator().manual_seed(SEED)
    order = torch.randperm(len(loaded), generator=generator)
    if source.parts is None:
        known, asked = [], []
        for code in chosen:
            mine = order[label.codes[order] == code]
            asked.append(mine[: len(mine) // 4])
            known.append(mine[len(mine) // 4 :])
        rows = (torch.cat(known), torch.cat(asked))
    else:
        usable = order[torch.isin(label.codes[order], chosen)]
        rows = tuple(usable[torch.isin(usable, loaded.splits[part])] for part in source.parts)  # type: ignore[assignment]
    return tuple(  # type: ignore[return-value]
        LabelledImages(
            name, loaded.images[each], {"class": label_of([label.names[code] for code in label.codes[each]])}
        )
        for each in rows
    )


def named(images: LabelledImages) -> list[str]:
    """The class of each."""
    label = images.label("class")
    return [label.names[code] for code in label.codes.tolist()]
