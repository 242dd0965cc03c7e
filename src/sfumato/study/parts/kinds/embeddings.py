"""Where a learner puts the images of a few classes, drawn in a plane by t-SNE."""

from typing import TYPE_CHECKING, Any

from sfumato.errors import needs_extra
from sfumato.study.cells import Cell
from sfumato.study.parts.kinds.common import Model
from sfumato.study.protocol import Kind
from sfumato.study.selection import learners_of
from sfumato.study.vocabulary import IMAGES, release_kind

if TYPE_CHECKING:
    from sfumato.study.grid import StudyConfig
    from sfumato.study.lab.lab import Lab

_CLASSES, _OF_EACH = 5, 20


class Result(Model):
    """Points of the plane, and the class of each."""

    points: list[tuple[float, float]]
    classes: list[str]


def cells(config: "StudyConfig", spec: str, seed: int) -> list[Cell]:
    """One for each few-shot learner that was trained for the protection."""
    if not config.embeddings or release_kind(spec) not in IMAGES:
        return []
    drawn = ["clean"] if spec == "none" else ["protected", "denoised"]
    return [
        Cell("embeddings", spec, seed, (("learner", learner),))
        for learner in learners_of(config, spec)
        if learner in drawn
    ]


def settings(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """The settings that decide the result, besides cell, data and artefacts."""
    config = lab.config
    return {"pictures": config.pictures, "views": config.views, **lab.training_settings()}


def measure(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """Embeds releases of some test images, and lays them out."""
    with needs_extra("t-SNE", "study"):
        from sklearn.manifold import TSNE

    import torch

    from sfumato.study.parts.learners import few_shot

    label = lab.asked.label(lab.config.task.target)
    order = lab.shuffle(len(lab.asked), cell.seed)
    classes = label.codes[order].unique_consecutive().tolist()
    chosen = list(dict.fromkeys(classes))[:_CLASSES]
    rows = torch.cat([order[label.codes[order] == code][:_OF_EACH] for code in chosen])
    released = lab.release(cell, lab.asked.images[rows]).images()
    model = few_shot.train_or_read(lab, cell.protection, cell.seed, cell.subject)
    vectors = model.embed(released).numpy()
    layout = TSNE(perplexity=min(20, len(rows) - 1), init="pca", random_state=cell.seed)
    return {
        "points": [[round(float(x), 3), round(float(y), 3)] for x, y in layout.fit_transform(vectors)],
        "classes": [label.names[code] for code in label.codes[rows].tolist()],
    }


KIND = Kind(Result, cells, settings, measure)
