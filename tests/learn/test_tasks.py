from collections import Counter

import pytest
import torch

from sfumato.data.labelled import Label, label_of
from sfumato.episodes import Shape
from sfumato.errors import ConfigError, DataError
from sfumato.learn.tasks import deal_pool, overlap_of, poisson

SHAPE = Shape(way=3, shot=1, queries=2)


def label_with(*sizes):
    """A label with so many images of each class, their rows mixed."""
    codes = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    order = torch.randperm(len(codes), generator=torch.Generator().manual_seed(9))
    return Label(codes[order], tuple(f"class {i}" for i in range(len(sizes))))


def rows_of(pool):
    return [torch.cat(task).tolist() for task in pool.tasks]


def most(pool):
    """The most tasks of an image that has no copies."""
    return overlap_of(pool, label_of([str(row) for row in range(1 + max(map(max, rows_of(pool))))]))


def test_tasks_of_a_disjoint_pool_share_no_row_and_use_all_but_what_is_left_over():
    label = label_with(*[4] * 14)
    pool = deal_pool(label, SHAPE, seed=0)
    rows = [row for rows in rows_of(pool) for row in rows]
    assert len(pool) == 4
    assert most(pool) == 1
    assert len(rows) == len(set(rows)) == 4 * 3 * 4  # two classes are left over
    for task in pool.tasks:
        assert len(task) == 3
        classes = [label.codes[each].unique().tolist() for each in task]
        assert all(len(each) == 1 for each in classes)
        assert len({each[0] for each in classes}) == 3


def test_omniglot_has_as_many_disjoint_tasks_as_the_issue_says():
    # 1,028 to 1,200 training characters without rotations: "about 205 to 240" tasks of 5.
    shape = Shape(way=5, shot=1, queries=5)
    for characters, tasks in ((1028, 205), (1200, 240)):
        assert len(deal_pool(label_with(*[20] * characters), shape, seed=0)) == tasks


@pytest.mark.parametrize("tasks", [None, 5])
def test_the_pool_depends_on_the_classes_and_the_seed_alone(tasks):
    pools = []
    for state, seed in ((1, 4), (2, 4), (2, 5)):
        torch.manual_seed(state)
        pools.append(rows_of(deal_pool(label_with(*[3] * 9), SHAPE, seed=seed, tasks=tasks)))
    assert pools[0] == pools[1] != pools[2]


def test_images_within_a_class_do_not_decide_which_classes_are_a_task():
    """One image more in a large class moves no class into another task."""
    tasks = []
    for sizes in ([3] * 9, [3] * 8 + [4]):
        label = label_with(*sizes)
        pool = deal_pool(label, SHAPE, seed=0)
        tasks.append([[label.codes[rows[0]].item() for rows in task] for task in pool.tasks])
    assert tasks[0] == tasks[1]


@pytest.mark.parametrize("tasks", [None, 6])
def test_classes_that_are_too_small_are_left_out(tasks):
    label = label_with(2, 3, 3, 1, 3, 5, 3, 2, 3)
    pool = deal_pool(label, SHAPE, tasks=tasks, seed=0)
    used = {label.codes[row].item() for rows in rows_of(pool) for row in rows}
    assert used <= {1, 2, 4, 5, 6, 8}
    if tasks is None:
        assert used == {1, 2, 4, 5, 6, 8}


@pytest.mark.parametrize("seed", range(5))
def test_overlap_is_in_how_many_tasks_an_image_is_at_most(seed):
    pool = deal_pool(label_with(*[3] * 8), SHAPE, tasks=10, seed=seed)
    counts = Counter(row for rows in rows_of(pool) for row in rows)
    assert len(pool) == 10
    assert most(pool) == max(counts.values()) > 1
    assert all(len(rows) == len(set(rows)) for rows in rows_of(pool))  # no class twice in a task


def test_a_draw_has_different_rows_of_the_right_classes_and_mixes_the_labels():
    label = label_with(*[5] * 9)
    pool = deal_pool(label, SHAPE, seed=0)
    generator = torch.Generator().manual_seed(0)
    numbers = torch.tensor([2, 0])
    orders, used = set(), set()
    for _ in range(60):
        rows = pool.draw(numbers, SHAPE, generator)
        assert rows.shape == (2, 3, 3)
        for number, task in zip(numbers.tolist(), rows, strict=True):
            assert len(task.unique()) == 9
            codes = label.codes[task]
            assert (codes == codes[:, :1]).all()
            assert set(task.flatten().tolist()) <= set(rows_of(pool)[number])
            assert sorted(codes[:, 0].tolist()) == sorted(
                label.codes[r[0]].item() for r in pool.tasks[number]
            )
        orders.add(tuple(label.codes[rows[0, :, 0]].tolist()))
        used |= set(rows[0, :, 0].tolist())
    assert len(orders) == 6  # every order of three classes
    assert used == set(rows_of(pool)[2])  # every image is the support some time


def test_nobody_drawn_gives_no_rows():
    pool = deal_pool(label_with(*[3] * 9), SHAPE, seed=0)
    rows = pool.draw(torch.empty(0, dtype=torch.int64), SHAPE, torch.Generator())
    assert rows.shape == (0, 3, 3)
    assert rows.dtype == torch.int64


def of(*words):
    return lambda count: b"".join(word.to_bytes(8, "little") for word in words)[:count]


def test_a_task_takes_part_where_its_word_is_below_the_rate():
    half = 1 << 63
    words = of(0, half - 1, half, half + 1, (1 << 64) - 1)
    assert poisson(5, 0.5, words).tolist() == [0, 1]
    assert poisson(5, 2**-64, words).tolist() == [0]
    assert poisson(5, 1 - 2**-53, words).tolist() == [0, 1, 2, 3]
    third = int(1 / 3 * 2**64)
    assert poisson(2, 1 / 3, of(third - 1, third)).tolist() == [0]


def test_at_rate_1_everybody_takes_part_and_at_rate_0_nobody():
    assert poisson(4, 1.0, of(*[(1 << 64) - 1] * 4)).tolist() == [0, 1, 2, 3]
    assert poisson(4, 0.0, of(0, 0, 0, 0)).tolist() == []


def test_tasks_take_part_independently_with_the_rate():
    pool, rate, draws = 6, 0.3, 8000
    seen = torch.zeros(draws, pool, dtype=torch.float64)
    for i in range(draws):
        seen[i, poisson(pool, rate)] = 1
    # A mean of 8,000 has a deviation of 0.005, and so has a correlation times 2: five of them.
    assert (seen.mean(0) - rate).abs().max() < 5 * 0.0052
    correlations = seen.T.corrcoef() - torch.eye(pool, dtype=torch.float64)
    assert correlations.abs().max() < 5 * draws**-0.5
    counts = seen.sum(1)
    assert counts.var().item() == pytest.approx(pool * rate * (1 - rate), rel=0.1)
    assert (counts == 0).double().mean().item() == pytest.approx(0.7**6, abs=0.02)  # empty draws happen


def test_draws_are_from_the_operating_system_unless_said_otherwise():
    found = []
    with torch.random.fork_rng():
        for _ in range(2):
            torch.manual_seed(0)
            found.append(poisson(400, 0.5).tolist())
    assert found[0] != found[1]


@pytest.mark.parametrize(
    ("sizes", "tasks", "error", "message"),
    [
        ((3, 3, 3, 3, 3, 2), None, DataError, "5 classes have 3 images, .* of way=3 needs 6"),
        ([3] * 9, 1, ConfigError, "pool_tasks=1: a pool needs two or more"),
        ((3, 3, 2), 4, DataError, "2 classes have 3 images, .* of way=3 needs 3"),
    ],
)
def test_a_pool_of_too_few_tasks_or_classes_is_refused(sizes, tasks, error, message):
    with pytest.raises(error, match=message):
        deal_pool(label_with(*sizes), SHAPE, seed=0, tasks=tasks)


@pytest.mark.parametrize("tasks", [None, 30])
def test_copies_of_an_image_count_as_the_image(tasks):
    # Four turned copies of each of 40 drawings, whose classes are dealt to different tasks.
    turned = [
        (turn, character, drawer) for turn in range(4) for character in range(20) for drawer in range(2)
    ]
    label = label_of([f"{character}/{turn}" for turn, character, _ in turned])
    original = label_of([f"{character}/{drawer}" for _, character, drawer in turned])
    pool = deal_pool(label, Shape(way=2, shot=1, queries=1), seed=0, tasks=tasks)
    found = Counter(code for task in pool.tasks for code in set(original.codes[torch.cat(task)].tolist()))
    assert overlap_of(pool, original) == max(found.values()) > 1
    assert tasks or most(pool) == 1
