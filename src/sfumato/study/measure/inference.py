"""How often adversaries infer labels: attributes of the people on images, and every label of the data set.

An adversary learns the classes of an attribute from releases of people they know, by textbook classifiers of
the values, and for images by a network. Every label is inferred by the former alone: from training images if
these have the same classes, else, as for identity, from half of the test images of each class.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from sfumato.attack.ensemble import OTHERS, PROBES
from sfumato.attack.saturation import hold_out
from sfumato.base.proportions import over_people
from sfumato.data.labelled import LabelledImages
from sfumato.errors import ConfigError, DataError
from sfumato.learn import classifier, of_vectors
from sfumato.study.cells import Cell, Facts, Kind, non_defaults
from sfumato.study.lab.lab import TELLING, TOLD, Lab
from sfumato.study.lab.trained import train_once
from sfumato.study.measure.attack import hits
from sfumato.study.vocabulary import IMAGES, release_kind

_VERSION = 1  # raised when the same adversary would infer more or less
_LEARNED = 10_000  # releases at most that classifiers of values learn from
_HELD_OUT = 256  # photographs of people who choose among classifiers, or say when to stop
_COMPONENTS = 100  # numbers that a release is reduced to
_IMAGES = 1500  # of each side at most, for every label


def _reducer(vectors: Tensor) -> Callable[[Tensor], Tensor]:
    """Maps (N, D) numbers to at most 100 principal components of these vectors, float64."""
    from sklearn.decomposition import PCA

    if not (vectors.shape[1] > _COMPONENTS < len(vectors) and vectors.std(0).any()):
        return Tensor.double
    pca = PCA(_COMPONENTS, svd_solver="randomized", random_state=0).fit(vectors.double().numpy())
    return lambda others: torch.from_numpy(pca.transform(others.double().numpy()))


# Attributes


def check(lab: Lab) -> None:
    """Raises an error if an attribute of the study cannot be learned, or its bound cannot be kept at all."""
    for label in lab.config.task.attributes:
        codes = lab.test.label(label).codes
        known = lab.adversaries.training.label(label).codes
        if not torch.isin(codes, known).all() or len(codes.unique()) < 2:
            raise DataError(
                f"sensitive: {label}: an attribute has two classes or more on test images, and training "
                f"images of other people have all of these: split the data by {lab.adversaries.sensitive}, "
                f"or leave {label} out"
            )
        guessing = codes.bincount().max().item() / len(codes)
        if (bound := lab.config.recommend.inference_at_most[label]) <= guessing:
            raise ConfigError(
                f"inference_at_most: {label}: {bound:g}: to name the commonest class is right in "
                f"{guessing:.3f} of the cases, and no protection changes that: set a bound above it"
            )


def _settings(lab: Lab, cell: Cell) -> Facts:
    config = lab.config
    decided: Facts = {"inference": _VERSION, "sensitive": config.task.sensitive}
    if release_kind(cell.protection) in IMAGES:
        decided["classifier"] = non_defaults(config.classifier)
    return {**decided, "copies": config.adversary.copies}


def _measure(lab: Lab, cell: Cell) -> Facts:
    label, people = cell.subject, lab.adversaries.sensitive
    codes, who = lab.test.label(label).codes, lab.test.label(people).codes
    others = lab.adversaries.training
    held = hold_out(others.label(people).codes, most=_HELD_OUT, seed=cell.seed)
    chosen_by = others.rows(held.nonzero().flatten()) if held.any() else None
    others = others.rows((~held).nonzero().flatten())
    guesses = {"values": _by_values(lab, cell, others, chosen_by)}
    if release_kind(cell.protection) in IMAGES:
        guesses["network"] = _by_network(lab, cell, others, chosen_by)
    photographs = who.unique(return_counts=True)[1].tolist()
    scores = []
    for name, guessed in guesses.items():
        counted = hits(guessed == codes, who)
        (low, high), top1 = over_people(counted, photographs), sum(counted) / len(codes)
        scores.append({"classifier": name, "top1": top1, "low": low, "high": high, "hits": counted})
    counts = codes.unique(return_counts=True)[1]
    return {
        "scores": scores,
        "chance": counts.max().item() / len(codes),
        "identities": len(counts),
        "probes": len(codes),
        "people": photographs,
    }


def _by_values(lab: Lab, cell: Cell, others: LabelledImages, chosen_by: LabelledImages | None) -> Tensor:
    """(N,) classes of the test images, by the textbook classifier that is best on `chosen_by`."""
    known = others.rows(lab.shuffle(len(others), cell.seed)[:_LEARNED])
    copies = lab.config.adversary.copies if lab.protection(cell).draws_noise else 1
    copies = max(1, min(copies, _LEARNED // len(known)))
    values = torch.cat(
        [lab.release(cell, known.images, OTHERS, number).vectors() for number in range(copies)]
    )
    reduce, validation = _reducer(values), None
    if chosen_by is not None:
        released = lab.release(cell, chosen_by.images, OTHERS)
        validation = reduce(released.vectors()), chosen_by.label(cell.subject).codes
    codes = known.label(cell.subject).codes.repeat(copies)
    model = of_vectors.train(reduce(values), codes, validation=validation, seed=cell.seed)
    return model.classify(reduce(lab.release(cell, lab.test.images, PROBES).vectors()))


def _by_network(lab: Lab, cell: Cell, others: LabelledImages, chosen_by: LabelledImages | None) -> Tensor:
    """(N,) classes of the test images, by a network that learned from releases."""
    decided = {**_settings(lab, cell), "label": cell.subject}
    model = train_once(
        *(lab, "inferrer", classifier, lab.config.classifier, decided, cell.protection, cell.seed),
        data=others,
        target=cell.subject,
        validation=chosen_by,
    )
    names = lab.test.label(cell.subject).names
    codes = torch.tensor([names.index(name) for name in model.classes])
    return codes[model.classify(lab.release(cell, lab.test.images, PROBES).images())]


# Every label


def _measure_labels(lab: Lab, cell: Cell) -> Facts:
    """Learns each label from the travelled values, and tests on other images."""
    labels = {}
    train = lab.data.split("train")
    known = train.rows(lab.shuffle(len(train), cell.seed)[:_IMAGES])
    asked = lab.test.rows(lab.shuffle(len(lab.test), cell.seed + 1)[:_IMAGES])
    values = lab.release(cell, known.images, TELLING).vectors()
    reduce = _reducer(values)
    of_known, of_asked = reduce(values), reduce(lab.release(cell, asked.images, TOLD).vectors())
    sensitive = lab.config.task.sensitive
    who = torch.arange(len(asked)) if sensitive is None else asked.label(sensitive).codes
    for name in lab.data.labels:
        rows, asked_rows = (lab.config.task.rows(part, name) for part in (known, asked))
        known_codes, codes = known.label(name).codes[rows], asked.label(name).codes[asked_rows]
        if torch.isin(codes, known_codes.unique()).double().mean().item() > 0.99:  # can have been learned
            learned, tested = (of_known[rows], known_codes), (of_asked[asked_rows], codes, who[asked_rows])
        else:
            halves = _halves(codes)
            if halves is None:
                continue
            first, second = (asked_rows[half] for half in halves)
            learned = (of_asked[first], codes[halves[0]])
            tested = (of_asked[second], codes[halves[1]], who[second])
        if len(learned[1].unique()) < 2 or not len(tested[1]):
            continue
        model = of_vectors.train(*learned, seed=cell.seed)
        guessed = model.classify(tested[0])
        accuracy = classifier.Accuracy.of(guessed, tested[1], cell.protection)
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


def _halves(codes: Tensor) -> tuple[Tensor, Tensor] | None:
    first, second = [], []
    for code in codes.unique():
        rows = (codes == code).nonzero().flatten()
        if len(rows) > 1:
            first.append(rows[: len(rows) // 2])
            second.append(rows[len(rows) // 2 :])
    return (torch.cat(first), torch.cat(second)) if len(first) > 1 else None


INFERENCE = Kind(
    lambda config, spec, seed: [
        Cell("inference", spec, seed, (("secret", label),)) for label in config.task.attributes
    ],
    _settings,
    _measure,
)
TELLS = Kind(
    lambda config, spec, seed: [Cell("tells", spec, seed)] if config.tells else [],
    lambda lab, cell: {"tells": 2, **lab.task_settings()},
    _measure_labels,
)
