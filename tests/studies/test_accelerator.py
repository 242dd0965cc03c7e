"""Long studies on an accelerator: adversaries on sets find what is planted, and tasks are done once."""

import json
import sys
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.append(str(Path(__file__).parents[2] / "studies" / "accelerator"))

import answers
import features
import hats
import papers
import pool
import releases
import scenes
import semsim
import student


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
    pieces = (releases, hats, papers, student)
    for tasks in (*(piece.tasks() for piece in pieces), [*chain(*semsim.tasks())]):
        names = [task.name for task in tasks]
        assert len(set(names)) == len(names)


def test_a_model_whose_records_are_known_is_no_task():
    done = {
        (row["cell"]["protection"], row["cell"].get("learner"), row["cell"]["seed"])
        for row in papers._known("omniglot-long")
    }
    todo = {
        (task.settings["protection"], task.settings["learner"], task.settings["seed"])
        for task in papers._trainings("omniglot-long")
    }
    assert done
    assert not done & todo


def test_no_more_tasks_share_the_card_than_may(given: pool.Options):
    tasks = [pool.Task(str(number), {}, on_card=number != 3) for number in range(4)]
    order = []

    def work(task: pool.Task, _: pool.Options) -> dict[str, str]:
        order.append(task.name)
        return {}

    assert pool.run("piece", tasks, work, replace(given, on_card=0)) == 0
    assert order == ["3"]  # those of processors go first


def test_a_beta_is_the_largest_that_costs_little_or_the_one_that_costs_least():
    assert features.choose_beta({0.01: 0.9, 0.1: 0.896, 1.0: 0.8}, simple=0.9) == 0.1
    assert features.choose_beta({0.01: 0.7, 0.1: 0.85, 1.0: 0.85}, simple=0.9) == 1.0


def test_bits_of_identity_are_those_of_a_known_gaussian_and_none_of_chance():
    draw = torch.Generator().manual_seed(0)
    people, identities = torch.arange(60).repeat_interleave(10), torch.arange(341)
    places = torch.randn(341, 8, generator=draw, dtype=torch.float64)
    seen = places[people] + torch.randn(600, 8, generator=draw, dtype=torch.float64)
    likely = -torch.cdist(seen, places).square() / 2
    known = np.log2(341) - torch.nn.functional.cross_entropy(likely, people).item() / np.log(2)
    # Scores on another scale: the temperature is found.
    assert student.judged(3 * likely, identities, people)["1"]["bits"]["mean"] == pytest.approx(
        known, abs=0.05
    )
    chance = torch.randn(600, 341, generator=draw, dtype=torch.float64)
    assert student.judged(chance, identities, people)["10"]["bits"]["mean"] == pytest.approx(0, abs=0.05)
