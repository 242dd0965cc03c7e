"""How well a release tells every label of the data set, compared with guessing.

The adversary is a textbook one: classifiers of the travelled values, trained on releases of other images.
Labels with the same classes in training and test images are learned on training images; for others, such as
identity, half of the test images of each class are known.
"""

from typing import TYPE_CHECKING, Any

from sfumato.base.proportions import over_people
from sfumato.study.cells import Cell
from sfumato.study.hits import Hits
from sfumato.study.parts.kinds.common import Model
from sfumato.study.protocol import Kind

if TYPE_CHECKING:
    from torch import Tensor

    from sfumato.data.labelled import LabelledImages
    from sfumato.study.grid import StudyConfig
    from sfumato.study.lab.lab import Lab

_IMAGES = 1500  # of each side at most


class Told(Model):
    """How often one label is inferred correctly.

    Attributes:
        accuracy, low, high: the share, and its 95% interval over people; over images without a secret.
        guessing: the share of the commonest class.
        classes, images: how many there are.
        adversary: the kind of classifier that was best on images of its own.
        hits, probes: (P,) right answers and images of each person, or of each image without a secret.
        people: how many there are, in records without these two.
    """

    accuracy: float
    low: float
    high: float
    guessing: float
    classes: int
    images: int
    adversary: str
    hits: tuple[float, ...] = ()
    probes: tuple[float, ...] = ()
    people: int | None = None

    @property
    def counted(self) -> Hits:
        """Its hits; if only their sum is known, each person counts as one probe."""
        trials = self.people or self.images
        alike = (self.accuracy,) * trials, (1.0,) * trials
        return Hits(*((self.hits, self.probes) if self.probes else alike), seeds=1)


class Result(Model):
    """Label -> how often it is inferred."""

    labels: dict[str, Told]


def cells(config: "StudyConfig", spec: str, seed: int) -> list[Cell]:
    """One for each protection."""
    return [Cell("tells", spec, seed)] if config.tells else []


def settings(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """The settings that decide the result, besides cell, data and artefacts."""
    return {"tells": 2, "target": lab.config.task.target, "classes": lab.config.task.classes}


def measure(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """Learns each label from the travelled values, and tests on other images."""
    import torch

    from sfumato.learn import of_vectors
    from sfumato.learn.classifier import Accuracy
    from sfumato.study.lab.streams import TELLING, TOLD
    from sfumato.study.parts.attacks.reduced import Reduced
    from sfumato.study.parts.attacks.scores import hits

    labels = {}
    train = lab.data.split("train")
    known = train.rows(lab.shuffle(len(train), cell.seed)[:_IMAGES])
    asked = lab.test.rows(lab.shuffle(len(lab.test), cell.seed + 1)[:_IMAGES])
    reduce = Reduced(lab.release(cell, known.images, TELLING).vectors())
    of_known, of_asked = reduce.known, reduce(lab.release(cell, asked.images, TOLD).vectors())
    sensitive = lab.config.task.sensitive
    who = torch.arange(len(asked)) if sensitive is None else asked.label(sensitive).codes
    for name in lab.data.labels:
        learned_rows, asked_rows = (_of_the_task(lab, part, name) for part in (known, asked))
        known_codes, codes = known.label(name).codes[learned_rows], asked.label(name).codes[asked_rows]
        if _same_classes(known_codes, codes):
            learned = (of_known[learned_rows], known_codes)
            tested = (of_asked[asked_rows], codes, who[asked_rows])
        else:
            halves = _halves(codes)
            if halves is None:
                continue
            first, second = halves
            learned = (of_asked[asked_rows][first], codes[first])
            tested = (of_asked[asked_rows][second], codes[second], who[asked_rows][second])
        if len(learned[1].unique()) < 2 or not len(tested[1]):
            continue
        model = of_vectors.train(*learned, seed=cell.seed)
        guessed = model.classify(tested[0])
        accuracy = Accuracy.of(guessed, tested[1], cell.protection)
        counted = hits(guessed == tested[1], tested[2])
        probes = tested[2].unique(return_counts=True)[1].tolist()
        low, high = over_people(counted, probes)
        labels[name] = {
            "accuracy": accuracy.mean,
            **{"low": low, "high": high, "hits": counted, "probes": probes},
            "guessing": accuracy.chance,
            "classes": len(tested[1].unique()),
            "images": accuracy.images,
            "adversary": model.name,
        }
    return {"labels": labels}


def _of_the_task(lab: "Lab", part: "LabelledImages", name: str) -> "Tensor":
    """Rows of the images whose class counts: for the target, those of the task's classes; for others, all."""
    import torch

    label, task = part.label(name), lab.config.task
    if name != task.target or task.classes is None:
        return torch.arange(len(part))
    wanted = torch.tensor([label.names.index(each) for each in task.classes])
    return torch.isin(label.codes, wanted).nonzero().flatten()


def _same_classes(known: "Tensor", asked: "Tensor") -> bool:
    """Whether nearly all classes of `asked` can have been learned."""
    import torch

    return torch.isin(asked, known.unique()).double().mean().item() > 0.99


def _halves(codes: "Tensor") -> tuple["Tensor", "Tensor"] | None:
    """Rows of each half of the images of each class; None if no class has two."""
    import torch

    first, second = [], []
    for code in codes.unique():
        rows = (codes == code).nonzero().flatten()
        if len(rows) > 1:
            first.append(rows[: len(rows) // 2])
            second.append(rows[len(rows) // 2 :])
    return (torch.cat(first), torch.cat(second)) if len(first) > 1 else None


KIND = Kind(Result, cells, settings, measure)
