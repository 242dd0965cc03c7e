"""Long studies on an accelerator: tasks are done once, and what is known is no task."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.append(str(Path(__file__).parents[2] / "studies" / "accelerator"))

import features
import papers
import pool
import student

from sfumato.study import grid, run
from sfumato.study.lab.lab import Lab, Progress


@pytest.fixture
def given(tmp_path: Path) -> pool.Options:
    return pool.Options(tmp_path, tmp_path, scale=0.01, seconds=60.0, workers=1)


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
    pieces = (papers, student)
    for tasks in [piece.tasks() for piece in pieces]:
        names = [task.name for task in tasks]
        assert len(set(names)) == len(names)


def test_a_model_whose_records_are_known_is_no_task():
    of = ("protection", "learner", "seed")
    done = {tuple(map(row["cell"].get, of)) for row in papers._known("omniglot-long")}
    todo = {tuple(map(task.settings.get, of)) for task in papers._trainings("omniglot-long")}
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


def test_a_few_shot_task_makes_the_records_of_its_study(given: pool.Options, monkeypatch: pytest.MonkeyPatch):
    tiny = Path(__file__).parents[2] / "studies" / "tiny.yaml"
    prepared = run.prepare(grid.load(tiny, ["adversary.copies=1"]), fit=True)
    lab = Lab(prepared.config, prepared.data[0], given.out / "tiny", Progress())
    monkeypatch.setattr(papers, "lab_of", lambda name, given: lab)
    about = {"study": "tiny", "learner": "protected", "protection": "pixelize:cell=4", "seed": 0}
    made = papers.train_few_shot(pool.Task("one", about), given)
    assert made["failed"] == []
    assert {"accuracy", "attack", "similarity"} <= {record["kind"] for record in made["records"]}
