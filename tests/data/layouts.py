"""What the tests of data share: a picture to write, a data set read back as words, what its labels tell."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sfumato.data import LabelledImages


def photograph(path: Path, level: int = 0, *, size: tuple[int, int] = (20, 16), mode: str = "RGB") -> None:
    """Write a picture of one grey level, (width, height) as `size`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (level,) * 3).convert(mode).save(path)


def values(data: LabelledImages, label: str) -> list[str]:
    """The name of a label on each row."""
    return [data.label(label).names[code] for code in data.label(label).codes]


def by_split(data: LabelledImages, label: str) -> dict[str, set[str]]:
    """The names of a label in each split."""
    return {name: set(values(data.split(name), label)) for name in data.splits}


def levels(data: LabelledImages) -> list[int]:
    """The grey level of each image; JPEG may move it by one."""
    return np.asarray(data.images.float().mean((1, 2, 3)).round().int()).tolist()


def assert_independent(first: Tensor, second: Tensor) -> None:
    """The table of two columns of codes has the chi-square of independent ones.

    Its mean is then the degrees of freedom f, and its standard deviation about sqrt(2 f): four of those is
    a bound that chance passes in one world of ten thousand.
    """
    (_, a), (_, b) = (codes.unique(return_inverse=True) for codes in (first, second))
    counts = torch.zeros(int(a.max()) + 1, int(b.max()) + 1, dtype=torch.float64)
    counts.index_put_((a, b), torch.ones(len(a), dtype=torch.float64), accumulate=True)
    expected = counts.sum(1, keepdim=True) * counts.sum(0) / counts.sum()
    freedom = (counts.shape[0] - 1) * (counts.shape[1] - 1)
    assert abs((counts - expected).square().div(expected).sum() - freedom) < 4 * (2 * freedom) ** 0.5


def nearest_prototype(images: Tensor, codes: Tensor, *, episodes: int = 200) -> float:
    """Accuracy of the nearest class mean on raw pixels, 5 ways, 5 shots, 5 queries."""
    generator = torch.Generator().manual_seed(0)
    members = [(codes == code).nonzero().flatten() for code in codes.unique()]
    right = []
    for _ in range(episodes):
        classes = torch.randperm(len(members), generator=generator)[:5].tolist()
        rows = [members[c][torch.randperm(len(members[c]), generator=generator)[:10]] for c in classes]
        drawn = images[torch.stack(rows)].flatten(2).float()  # (5, 10, D)
        guesses = torch.cdist(drawn[:, 5:].flatten(0, 1), drawn[:, :5].mean(1)).argmin(1).view(5, -1)
        right.append((guesses == torch.arange(5)[:, None]).float().mean())
    return float(torch.stack(right).mean())
