"""Long studies on an accelerator: adversaries on sets find what is planted, and tasks are done once."""

import json
import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[2] / "studies" / "accelerator"))

import hats
import naming
import photographs
import pool
import releases


@pytest.fixture
def given(tmp_path: Path) -> pool.Options:
    return pool.Options(tmp_path, tmp_path, scale=0.01, seconds=60.0, workers=1)


def numbers(people: int, spread: float, *, pictures: int = 40, bits: int = 6, seed: int = 0) -> torch.Tensor:
    """(I, T, d) of people who differ in the mean by so much."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(people, pictures, bits, generator=draw) + spread * torch.randn(
        people, 1, bits, generator=draw
    )


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(naming, "DRAWS", 3)
    monkeypatch.setattr(naming, "_STEPS", 30)


def named(spread: float, name: str = "as it is") -> dict[str, float]:
    """People named among 8 by numbers of releases."""
    view = releases.view(name, torch.full((6,), 0.5), None)
    found = naming.named(numbers(32, spread), numbers(24, spread, seed=1), view, panel=8)
    return {size: each["share"] for size, each in found["named"].items()}


@pytest.mark.usefixtures("few")
def test_who_people_are_adds_up_over_releases_and_chance_does_not():
    planted, none = named(0.5), named(0.0)
    assert planted["10"] > planted["1"] > 1 / 8
    assert planted["10"] > 0.4
    assert all(abs(share - 1 / 8) < 0.09 for share in none.values())


@pytest.mark.usefixtures("few")
def test_thresholds_of_their_own_take_away_what_people_differ_by_in_the_mean():
    # All of it: numbers of these people differ by their mean alone.
    assert abs(named(0.5, "balanced")["10"] - 1 / 8) < 0.09


def test_a_balanced_batch_sets_each_bit_as_often_as_others_do():
    sent = releases.balanced(numbers(5, 2.0, pictures=200), torch.tensor([0.5, 0.25, 0.5, 0.5, 0.5, 0.1]))
    shares = (sent > 0).float().unflatten(1, (2, 100)).mean(2)
    assert torch.allclose(shares, torch.tensor([0.5, 0.25, 0.5, 0.5, 0.5, 0.1]).expand_as(shares))


def test_tracked_thresholds_bring_each_bit_to_what_others_send():
    sent = releases.tracked(numbers(5, 1.0, pictures=2000), torch.full((6,), 0.5))
    assert torch.allclose((sent[:, 500:] > 0).float().mean(1), torch.tensor(0.5), atol=0.02)


def test_a_hat_is_pasted_with_nothing_left_of_the_other_hat():
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (12, 3, 8, 8), dtype=torch.uint8, generator=draw)
    regions = torch.rand(12, 8, 8, generator=draw) < 0.3
    identity = torch.arange(12) // 3
    made = hats.paste_regions(images, regions, identity, people=4, scenes=6)(draw)  # (P, S, C, H, W)
    assert made.shape == (4, 6, 3, 8, 8)
    # Each image is one that was given, outside of both regions, and the hat of its scene inside of one's own.
    for scene in made.unbind(1):
        given = [
            i for i in range(12) if all((x[:, regions[i]] == images[i][:, regions[i]]).all() for x in scene)
        ]
        assert len(given) == 1
        shown = []
        for x in scene:
            for i in range(12):
                region = regions[i] | regions[given[0]]
                if x.equal(torch.where(region, images[given[0]], images[i])):
                    shown.append(int(identity[i]))
        assert len(set(shown)) == 4


@pytest.mark.usefixtures("few")
def test_images_of_one_photograph_are_known_or_asked_for_and_not_both():
    # People whose photographs differ, and who do not: a photograph would be recognised at once.
    draw = torch.Generator().manual_seed(0)
    photographs = torch.randn(32, 10, 1, 6, generator=draw).expand(-1, -1, 8, -1).flatten(1, 2)
    view = releases.view("as it is", torch.full((6,), 0.5), None)
    found = {
        images: naming.named(photographs, numbers(24, 0.0), view, panel=8, images=images)["named"]["1"][
            "share"
        ]
        for images in (1, 8)
    }
    assert found[8] == pytest.approx(1 / 8, abs=0.06)
    assert found[1] > found[8] + 0.05


def test_finished_tasks_are_lines_which_are_not_done_again(given: pool.Options):
    tasks = [pool.Task(name, {"seed": 0}) for name in ("one", "fails", "three")]
    done = []

    def work(task: pool.Task, _: pool.Options) -> dict[str, str]:
        done.append(task.name)
        if task.name == "fails":
            raise ValueError(task.name)
        return {"said": task.name}

    assert pool.run("piece", tasks, work, given) == 1
    lines = [json.loads(line) for line in (given.out / "piece.jsonl").read_text().splitlines()]
    assert [line["result"]["said"] for line in lines] == ["one", "three"]
    assert lines[0]["settings"] == {"seed": 0, "scale": 0.01}
    assert pool.run("piece", tasks, work, given) == 1
    assert done == ["one", "fails", "three", "fails"]


def test_names_of_tasks_are_unlike():
    for piece in (releases, hats, photographs):
        names = [task.name for task in piece.tasks()]
        assert len(set(names)) == len(names)
