import csv
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sfumato import images
from sfumato.annotate import Campaign, CampaignConfig, Pair, create

Begin = Callable[..., Campaign]


def picture(number: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(number)
    return torch.randint(0, 256, (3, 8, 8), generator=generator).to(torch.uint8)


@pytest.fixture
def pairs(tmp_path: Path) -> list[Pair]:
    """Twelve originals of six classes of one source, and a reconstruction of each by one of two models."""
    made = []
    for number in range(12):
        files = tmp_path / "secret" / f"cat-{number}.png", tmp_path / "secret" / f"guess-{number}.png"
        for place, file in enumerate(files):
            images.write(file, picture(2 * number + place))
        made.append(
            Pair(
                original=files[0],
                reconstruction=files[1],
                true_class=("cat", "dog", "emu", "fox", "gnu", "hen")[number % 6],
                model=("lenet", "resnet")[number // 6],
                source="zoo",
            )
        )
    return made


@pytest.fixture
def begin(tmp_path: Path, pairs: list[Pair]) -> Begin:
    """A new campaign of these pairs."""

    def new(task: str = "choose", *, of: list[Pair] | None = None, **settings) -> Campaign:
        path = tmp_path / f"campaign-{len(list(tmp_path.glob('campaign-*')))}"
        create(path, pairs if of is None else of, CampaignConfig(task=task, **settings))
        return Campaign(path)

    return new


@pytest.fixture
def table(tmp_path: Path, pairs: list[Pair]) -> Path:
    """The pairs as a CSV beside their images."""
    path = tmp_path / "secret" / "pairs.csv"
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["original", "reconstruction", "class", "model", "source"])
        for one in pairs:
            out.writerow([one.original.name, one.reconstruction.name, one.true_class, one.model, one.source])
    return path
