"""All adversaries on one gallery: one, or a sum of several, chosen by people whom they do not name."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from sfumato.attack.ensemble import (
    GALLERY,
    PROBES,
    Compared,
    Gallery,
    by_sets,
    by_values,
    choose,
    standardise,
)
from sfumato.attack.reidentify import Guesses, split_gallery
from sfumato.attack.sets import by_table


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


def test_people_are_named_by_the_sum_over_their_releases_and_ties_share():
    """Each has exactly the two releases of a set: no draw decides."""
    truth = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 4])  # the last has one release, and is not looked for
    similarities = torch.randn(9, 5, generator=torch.Generator().manual_seed(1)) + torch.eye(5)[truth]
    similarities[2:4, :2] = 9.0  # persons 0 and 1 are as likely
    sums = similarities[:8].view(4, 2, 5).sum(1)
    expected = (sums.argmax(1) == torch.arange(4)).double()
    expected[1] = 0.5
    assert 0 < expected[[0, 2, 3]].sum() < 3
    assert torch.equal(by_sets(similarities, truth, 2, seed=0), expected)
    assert by_sets(similarities[2:], truth[2:], 2, seed=0) is None  # three are too few


@pytest.mark.parametrize(
    ("noisy", "most", "photographs", "copies"),
    [
        (True, 14, 7, 2),
        (True, 13, 7, 1),
        (True, 99, 7, 5),
        (False, 99, 7, 1),
        (True, 5, 5, 1),
        (True, 4, 0, 4),
    ],
)
def test_as_many_releases_of_others_are_learned_from_as_are_allowed(noisy, most, photographs, copies):
    """Two people, of two and of five photographs; by this seed the second comes first."""
    images, who = torch.arange(7).view(7, 1, 1, 1), torch.tensor([5, 5, 8, 8, 8, 8, 8])
    gallery = Gallery(
        **{"known": images, "names": who, "asked": images, "others": images, "of_others": who, "seed": 1},
        **{"release": lambda shown, stream, number: (shown, number), "noisy": noisy, "images": True},
    )
    released, people = gallery.learn_from(most=most, copies=5)
    assert (len(people), [len(shown) for shown, _ in released]) == (photographs, [photographs] * copies)


def test_a_table_of_few_outputs_counts_eight_releases_of_each_photograph():
    """Two bits of a person's number, each flipped once in five times."""

    def release(shown: Tensor, stream: int, number: int) -> SimpleNamespace:
        draw = torch.Generator().manual_seed(100 * stream + number)
        flips = torch.rand(len(shown), 2, generator=draw) < 0.2
        bits = ((shown.flatten()[:, None] >> torch.arange(2)) % 2).bool() ^ flips
        return SimpleNamespace(vectors=lambda: bits.float())

    who = torch.arange(4).repeat_interleave(5)
    shown = who.view(-1, 1, 1, 1)
    gallery = Gallery(
        **{"known": shown, "names": who, "asked": shown, "others": shown, "of_others": who},
        **{"release": release, "noisy": True, "images": False},
    )
    made = by_values(gallery, lambda _: {"": lambda sent: sent.vectors()}, copies=2, outputs=4)
    known, asked = (
        torch.stack([release(shown, stream, number).vectors() for number in range(8)])
        for stream in (GALLERY, PROBES)
    )
    expected = by_table(known, who, asked, who[:1].expand(len(who)))
    assert made.table is not None
    assert made.table.right.tolist() == expected.right.tolist()
    assert [each.classifier for each in made.guesses].index("table") == len(made.guesses) - 1
    assert torch.equal(made.guesses[-1].similarities, torch.from_numpy(expected.log_posteriors[0]))


# Mirror images


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
        release=lambda clear, stream, number: clear.flatten(1).float(),
        noisy=False,
        images=True,
        mirrored=True,
    )
    return gallery, codes[people][probes]


def by_vectors_of(gallery: Gallery) -> Compared:
    return by_values(gallery, lambda _: {"": lambda sent: sent}, copies=1)


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
