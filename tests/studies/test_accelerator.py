"""Long studies on an accelerator: adversaries on sets find what is planted, and tasks are done once."""

import json
import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[2] / "studies" / "accelerator"))

import naming
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


def test_the_shift_of_people_is_estimated_without_bias_from_the_same_scenes():
    draw = torch.Generator().manual_seed(0)
    scenes = torch.randn(300, 1, 20, 4, generator=draw)  # in common, and without effect
    chance = torch.randn(300, 12, 20, 4, generator=draw)
    people = 0.3 * torch.randn(300, 12, 1, 4, generator=draw)
    found = [
        torch.stack([releases.shift(each) for each in codes])
        for codes in (scenes + chance, scenes + chance + people)
    ]
    assert found[0].mean().item() == pytest.approx(0, abs=0.003)
    assert found[1].mean().item() == pytest.approx(0.09, abs=0.006)


def test_a_balanced_batch_sets_each_bit_as_often_as_others_do():
    sent = releases.balanced(numbers(5, 2.0, pictures=200), torch.tensor([0.5, 0.25, 0.5, 0.5, 0.5, 0.1]))
    shares = (sent > 0).float().unflatten(1, (2, 100)).mean(2)
    assert torch.allclose(shares, torch.tensor([0.5, 0.25, 0.5, 0.5, 0.5, 0.1]).expand_as(shares))


def test_tracked_thresholds_bring_each_bit_to_what_others_send():
    sent = releases.tracked(numbers(5, 1.0, pictures=2000), torch.full((6,), 0.5))
    assert torch.allclose((sent[:, 500:] > 0).float().mean(1), torch.tensor(0.5), atol=0.02)


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
    names = [task.name for task in releases.tasks()]
    assert len(set(names)) == len(names)
