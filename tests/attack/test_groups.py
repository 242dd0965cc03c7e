"""Groups of releases of one person: how they are dealt, and what they tell in limits that are known."""

import pytest
import torch
from torch import Tensor

from sfumato.attack import groups, plda
from sfumato.attack.reidentify import Guesses

CODES = torch.tensor([3] * 12 + [5] * 4 + [9] * 10)


def test_groups_are_disjoint_and_of_one_person():
    rows = groups.split_into_groups(CODES, 5, seed=0)
    assert rows.shape == (4, 5)  # two of the first, none of the second, two of the third
    assert len(rows.unique()) == rows.numel()
    assert CODES[rows].tolist() == [[3] * 5] * 2 + [[9] * 5] * 2


def test_groups_of_a_photograph_are_all_photographs():
    assert sorted(groups.split_into_groups(CODES, 1, seed=0).flatten().tolist()) == list(range(len(CODES)))


def test_the_seed_decides_who_is_together():
    one, again, other = (groups.split_into_groups(CODES, 5, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_nobody_with_enough_is_no_group():
    assert groups.split_into_groups(CODES, 20, seed=0).shape == (0, 20)


def test_two_services_have_photographs_of_the_people_of_whom_both_have_enough():
    first, second = CODES, torch.tensor([3] * 11 + [9] * 5 + [11] * 20)
    sides = groups.sides(first, second, 5, seed=0)
    assert sides.people.tolist() == [3, 9]
    assert sides.first.shape == sides.second.shape == (1, 2, 5)  # person 9 has 5 at the second
    assert first[sides.first[0]].tolist() == second[sides.second[0]].tolist() == [[3] * 5, [9] * 5]


def test_the_rounds_of_two_services_are_disjoint():
    sides = groups.sides(CODES, CODES, 2, seed=0)
    assert sides.first.shape == (2, 3, 2)  # as often as person 5 can
    for rows in (sides.first, sides.second):
        assert len(rows.unique()) == rows.numel()


def test_where_no_two_services_have_the_same_people_nobody_is_linked():
    assert len(groups.sides(CODES, torch.tensor([1, 2]), 1, seed=0).people) == 0


def noisy(people: int, each: int, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    """Similarities of probes of people to people, with independent noise, and who they are."""
    draw = torch.Generator().manual_seed(seed)
    truth = torch.arange(people).repeat_interleave(each)
    return torch.eye(people)[truth] + noise * torch.randn(len(truth), people, generator=draw), truth


def named(guesses: Guesses, truth: Tensor, size: int) -> float:
    rows = groups.split_into_groups(truth, size, seed=0)
    return (guesses.of_groups(rows).argmax(1) == truth[rows[:, 0]]).double().mean().item()


def test_of_independent_noise_more_releases_tell_more():
    similarities, truth = noisy(50, 20, 1.0, 0)
    guesses = Guesses("cosine", torch.arange(50), similarities)
    shares = [named(guesses, truth, size) for size in (1, 5, 10, 20)]
    assert shares == sorted(shares)
    assert shares[0] < 0.2
    assert shares[-1] > 0.9


def test_equal_releases_tell_no_more_than_one():
    similarities, truth = noisy(50, 1, 1.0, 0)
    guesses = Guesses("cosine", torch.arange(50), similarities.repeat_interleave(10, 0))
    truth = truth.repeat_interleave(10)
    assert named(guesses, truth, 1) == named(guesses, truth, 5) == named(guesses, truth, 10) > 0


def test_a_group_of_one_has_the_similarities_of_its_probe():
    similarities, truth = noisy(5, 4, 1.0, 0)
    rows = groups.split_into_groups(truth, 1, seed=0)
    guesses = Guesses("cosine", torch.arange(5), similarities)
    assert torch.equal(guesses.of_groups(rows).float(), similarities[rows[:, 0]])


def linked(first: Tensor, second: Tensor, codes: Tensor, learned: Tensor, size: int) -> dict[str, float]:
    """How often labels are linked, by cosines and by a model that learned of other people."""
    model = plda.train(learned[None], codes)
    ways = {"cosine": groups.by_cosine(first, second), "plda": plda.match_by_plda(model, first, second)}
    sides = groups.sides(codes, codes, size, seed=0)
    right = torch.arange(len(sides.people))
    pairs = list(zip(sides.first, sides.second, strict=True))
    return {
        way: torch.stack([match(*rows).argmax(1) == right for rows in pairs]).double().mean().item()
        for way, match in ways.items()
    }


def released(people: Tensor, each: int, noise: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Releases of (P, D) people by two services, who they are, and releases to learn from."""
    draw = torch.Generator().manual_seed(1)
    codes = torch.arange(len(people)).repeat_interleave(each)
    first, second, learned = (
        people[codes] + noise * torch.randn(len(codes), people.shape[1], generator=draw) for _ in range(3)
    )
    return first, second, codes, learned


@pytest.mark.parametrize("size", [1, 5])
def test_people_who_are_clear_are_all_linked(size: int):
    assert linked(*released(torch.eye(40), 20, 0.01), size) == {"cosine": 1, "plda": 1}


@pytest.mark.parametrize("size", [1, 5])
def test_pure_noise_is_linked_as_by_chance(size: int):
    shares = linked(*released(torch.zeros(200, 8), 20, 1.0), size)
    # 200 labels in 20 or 4 rounds: chance is 0.5%, with a standard error of 0.25 points at most.
    assert max(shares.values()) < 0.0126


def test_more_releases_on_each_side_link_more():
    people = torch.randn(100, 16, generator=torch.Generator().manual_seed(0))
    shares = [linked(*released(people, 20, 2.5), size) for size in (1, 5, 10)]
    for way in ("cosine", "plda"):
        assert shares[0][way] < shares[1][way] < shares[2][way]
        assert shares[2][way] > shares[0][way] + 0.3
