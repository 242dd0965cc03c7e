"""How many components PLDA keeps is chosen among people whom the tried model has not seen."""

import torch
from scipy.stats import binomtest

from sfumato.attack import plda


def test_of_photographs_that_show_nobody_the_held_out_share_is_chance():
    """Noise alone: who is named rightly is so by chance, unless the model was trained on these very people.

    30 of 60 people are looked for, on two of four photographs each; in 40 dimensions a model that knows the
    photographs finds directions in which they happen to differ.
    """
    identities = torch.arange(60).repeat_interleave(4)
    values = torch.randn(1, 240, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    right = round(60 * plda.train(values, identities).held_out)
    # The best of three numbers of components: each alone is 1 in 30 of 60 probes.
    assert binomtest(right, 60, 1 / 30, alternative="greater").pvalue > 1e-3


def test_the_share_held_out_is_that_of_people_who_are_told_apart():
    identities = torch.arange(40).repeat_interleave(6)
    draw = torch.Generator().manual_seed(1)
    people = 20 * torch.randn(40, 12, generator=draw, dtype=torch.float64)
    values = people[identities] + torch.randn(240, 12, generator=draw, dtype=torch.float64)
    assert plda.train(values[None], identities).held_out == 1
