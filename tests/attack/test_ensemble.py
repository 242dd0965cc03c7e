"""All adversaries on one gallery: the strongest is chosen by people whom it does not name."""

import torch

from sfumato.attack.ensemble import choose
from sfumato.attack.reidentify import Guesses


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
