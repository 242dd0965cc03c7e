"""Long studies on an accelerator: adversaries on sets find what is planted, and tasks are done once."""

import json
import sys
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.append(str(Path(__file__).parents[2] / "studies" / "accelerator"))

import answers
import hats
import named
import pool
import releases
import scenes
import semsim


@pytest.fixture
def given(tmp_path: Path) -> pool.Options:
    return pool.Options(tmp_path, tmp_path, scale=0.01, seconds=60.0, workers=1)


def numbers(people: int, spread: float, *, pictures: int = 40, bits: int = 6, seed: int = 0) -> torch.Tensor:
    """(I, T, d) of people who differ in the mean by so much."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(people, pictures, bits, generator=draw) + spread * torch.randn(
        people, 1, bits, generator=draw
    )


def test_thresholds_of_their_own_take_away_what_people_differ_by_in_the_mean():
    """All of it: numbers of these people differ by their mean alone."""

    def ten(name: str) -> float:
        view = releases.view(name, torch.full((6,), 0.5), None)
        return releases.named(numbers(32, 0.5), numbers(24, 0.5, seed=1), view, panel=8, seed=0)["named"][
            "10"
        ]["share"]

    assert ten("as it is") > 0.4
    assert abs(ten("balanced") - 1 / 8) < 0.09


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


def test_a_region_is_enlarged_to_the_whole_image_and_nothing_else_is_left():
    images = torch.randint(
        0, 256, (3, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    regions = torch.zeros(3, 8, 8, dtype=torch.bool)
    regions[0, 2, 3] = True  # one pixel
    regions[1] = True  # all of them
    made = scenes.cut_out(images, regions)
    assert (made[0] == images[0, :, 2:3, 3:4]).all()
    assert made[1:].equal(images[1:])


def test_who_knows_everybodys_share_names_them_as_often_as_by_adding_up_all_sequences():
    shares = np.array([0.0, 0.3, 0.5, 0.5])
    sequences = np.array(list(np.ndindex(2, 2, 2)))
    chances = np.where(sequences, shares[:, None, None], 1 - shares[:, None, None]).prod(2)  # (P, 8)
    assert answers.reached(shares, 3) == pytest.approx(chances.max(0).sum() / 4)


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
    for tasks in (*(piece.tasks() for piece in (releases, hats, named)), [*chain(*semsim.tasks())]):
        names = [task.name for task in tasks]
        assert len(set(names)) == len(names)


def test_dp_pix_is_measured_at_every_seed_before_other_obfuscations():
    first = [task.settings for task in named.tasks()[:15]]
    assert {each["seed"] for each in first} == {0, 1, 2}
    assert all(each["protection"].startswith("dp-pix:") for each in first)
