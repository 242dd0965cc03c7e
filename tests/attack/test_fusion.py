"""The ensemble: whom it chooses, and that those who are named had no part in it."""

import torch
from torch import Tensor

from sfumato.attack.fusion import fuse, standardise

PEOPLE, EACH = 40, 10
TRUTH = torch.arange(PEOPLE).repeat_interleave(EACH)


def member(skill: float, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return standardise(skill * torch.eye(PEOPLE)[TRUTH] + torch.randn(len(TRUTH), PEOPLE, generator=draw))


def share(similarities: Tensor) -> float:
    return (similarities.argmax(1) == TRUTH).double().mean().item()


def test_independent_adversaries_name_more_together_than_the_best_of_them():
    members = torch.stack([member(1.5, seed) for seed in range(5)])
    fusion = fuse(members, torch.arange(PEOPLE), TRUTH)
    assert share(fusion.similarities) > max(share(one) for one in members) + 0.2


def test_who_tells_nothing_is_left_out():
    members = torch.stack([member(0, seed) for seed in range(4)] + [member(3, 9)])
    fusion = fuse(members, torch.arange(PEOPLE), TRUTH)
    assert all(max(set(chosen), key=chosen.count) == 4 for chosen in fusion.members)
    assert share(fusion.similarities) > share(members[4]) - 0.03


def test_the_choice_for_one_half_of_the_people_is_made_on_the_other():
    """A member that knows every second person, and one that knows the others."""
    even = (TRUTH % 2 == 0)[:, None]
    knows = standardise(torch.eye(PEOPLE)[TRUTH])
    noise = [member(0, seed) for seed in (0, 1)]
    members = torch.stack([knows.where(even, noise[0]), knows.where(~even, noise[1])])
    fusion = fuse(members, torch.arange(PEOPLE), TRUTH)
    assert [chosen[0] for chosen in fusion.members] == [1, 0]  # chosen where they know everybody
    # Each is the one that knows nothing of the half that is named.
    assert share(fusion.similarities) < 0.1


def test_adversaries_who_tell_nothing_find_nothing_together():
    members = torch.stack([member(0, seed) for seed in range(30)])
    assert share(fuse(members, torch.arange(PEOPLE), TRUTH).similarities) < 0.055  # 2.5% and 3 of 0.8


def test_similarities_of_any_scale_are_of_one_and_equal_ones_tell_nobody_apart():
    similarities = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    plain, scaled = standardise(similarities), standardise(1e30 * similarities.double() - 7)
    torch.testing.assert_close(plain, scaled)
    torch.testing.assert_close(plain.mean(1), torch.zeros(4).double())
    torch.testing.assert_close(plain.std(1, correction=0), torch.ones(4).double())
    assert standardise(torch.full((2, 5), 0.1)).tolist() == [[0.0] * 5] * 2
