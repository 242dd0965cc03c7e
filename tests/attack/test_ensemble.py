"""All adversaries on one gallery: one, or a sum of several, chosen by people whom they do not name."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sfumato.attack.ensemble import Compared, Gallery, by_values, choose, standardise
from sfumato.attack.reidentify import Guesses, split_gallery


def test_each_half_of_the_people_is_named_by_the_adversary_whom_the_other_half_chose():
    truth, identities = torch.arange(4).repeat_interleave(2), torch.arange(4)
    right = torch.nn.functional.one_hot(truth, 4).float()
    even = torch.where(truth[:, None] % 2 == 0, right, right.roll(1, 1))  # right for people 0 and 2 alone
    guesses = {
        "even": Guesses("1-nn", identities, even),
        "odd": Guesses("1-nn", identities, right.roll(1, 1)),
    }
    strongest, (_, of_odd) = choose(guesses, truth, most=1)
    assert of_odd == ["even"]
    named = strongest.similarities.argmax(1) == truth
    assert not named[truth % 2 == 1].any()  # "even" names none of the people 1 and 3


def test_adversaries_who_are_as_good_on_one_half_are_not_chosen_by_the_other():
    """Both name one of the people 0 and 2; that "late" names 1 and 3 as well must not count for these."""
    truth = identities = torch.arange(4)
    right = torch.eye(4)
    wrong = right.roll(1, 1)
    early = torch.stack([right[0], wrong[1], wrong[2], wrong[3]])
    late = torch.stack([wrong[0], right[1], right[2], right[3]])
    early[2], early[0] = torch.tensor([0.0, 0.0, 0.5, 1.0]), 2 * early[0]  # the second guess is right
    guesses = {"late": Guesses("1-nn", identities, late), "early": Guesses("1-nn", identities, early)}
    assert choose(guesses, truth, most=1)[1][1] == ["early"]


PEOPLE, EACH = 40, 10
TRUTH = torch.arange(PEOPLE).repeat_interleave(EACH)


def member(skill: float, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return standardise(skill * torch.eye(PEOPLE)[TRUTH] + torch.randn(len(TRUTH), PEOPLE, generator=draw))


def together(members: list[Tensor]) -> tuple[Tensor, tuple[list[str], ...]]:
    guesses = {
        str(number): Guesses("1-nn", torch.arange(PEOPLE), each) for number, each in enumerate(members)
    }
    made, chosen = choose(guesses, TRUTH)
    return made.similarities, chosen


def share(similarities: Tensor) -> float:
    return (similarities.argmax(1) == TRUTH).double().mean().item()


def test_independent_adversaries_name_more_together_than_the_best_of_them():
    members = [member(1.5, seed) for seed in range(5)]
    assert share(together(members)[0]) > max(share(one) for one in members) + 0.2


def test_who_tells_nothing_is_left_out():
    members = [*(member(0, seed) for seed in range(4)), member(3, 9)]
    similarities, halves = together(members)
    assert all(max(set(chosen), key=chosen.count) == "4" for chosen in halves)
    assert share(similarities) > share(members[4]) - 0.03


def test_the_choice_for_one_half_of_the_people_is_made_on_the_other():
    """A member that knows every second person, and one that knows the others."""
    even = (TRUTH % 2 == 0)[:, None]
    knows = standardise(torch.eye(PEOPLE)[TRUTH])
    noise = [member(0, seed) for seed in (0, 1)]
    similarities, halves = together([knows.where(even, noise[0]), knows.where(~even, noise[1])])
    assert [chosen[0] for chosen in halves] == ["1", "0"]  # chosen where they know everybody
    # Each is the one that knows nothing of the half that is named.
    assert share(similarities) < 0.1


def test_adversaries_who_tell_nothing_find_nothing_together():
    assert share(together([member(0, seed) for seed in range(30)])[0]) < 0.055  # 2.5% and 3 of 0.8


def test_similarities_of_any_scale_are_of_one_and_equal_ones_tell_nobody_apart():
    similarities = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    plain, scaled = standardise(similarities), standardise(1e30 * similarities.double() - 7)
    torch.testing.assert_close(plain, scaled)
    torch.testing.assert_close(plain.mean(1), torch.zeros(4).double())
    torch.testing.assert_close(plain.std(1, correction=0), torch.ones(4).double())
    assert standardise(torch.full((2, 5), 0.1)).tolist() == [[0.0] * 5] * 2


# Mirror images


@dataclass(frozen=True)
class Flat:
    """A release of numbers."""

    values: Tensor

    def vectors(self) -> Tensor:
        return self.values


def profiles(*, turned: bool) -> tuple[Gallery, Tensor]:
    """Photographs of people, (N, 1, 8, 12): turned to either side at random, or each to the right alone."""
    draw = torch.Generator().manual_seed(0)
    faces = 30 * torch.randn(100, 1, 8, 12, generator=draw)
    if not turned:
        faces[1::2] = faces[::2].flip(3)  # the mirror image of each person is another person
    codes = torch.arange(100).repeat_interleave(4)
    images = 128 + faces[codes] + 45 * torch.randn(400, 1, 8, 12, generator=draw)
    if turned:
        left = torch.rand(400, generator=draw) < 0.5
        images[left] = images[left].flip(3)
    images, people = images.clamp(0, 255).to(torch.uint8), codes >= 60
    known, probes = split_gallery(codes[people], known=2, probes=2, seed=0)
    gallery = Gallery(
        known=images[people][known],
        names=codes[people][known],
        asked=images[people][probes],
        others=images[~people],
        of_others=codes[~people],
        release=lambda clear, stream, number: Flat(clear.flatten(1).float()),
        noisy=False,
        images=True,
        mirrored=True,
    )
    return gallery, codes[people][probes]


def by_vectors_of(gallery: Gallery) -> Compared:
    return by_values(gallery, lambda _: {"": Flat.vectors}, copies=1)


def by_plda(compared: Compared, truth: Tensor) -> float:
    (plda,) = [each for each in compared.guesses if each.classifier == "plda"]
    return (plda.identities[plda.similarities.argmax(1)] == truth).double().mean().item()


def test_mirror_images_help_to_name_people_who_turn_to_either_side():
    gallery, truth = profiles(turned=True)
    tried = by_vectors_of(gallery)
    assert tried.reading == "mirror images too"
    assert by_plda(tried, truth) > by_plda(by_vectors_of(replace(gallery, mirrored=False)), truth) + 0.1


def test_mirror_images_that_help_to_name_nobody_else_are_not_used():
    gallery, _ = profiles(turned=False)
    tried, plain = by_vectors_of(gallery), by_vectors_of(replace(gallery, mirrored=False))
    assert tried.reading == ""
    for one, other in zip(tried.guesses, plain.guesses, strict=True):
        assert torch.equal(one.similarities, other.similarities)
