"""The table of few outputs, against exact enumeration of small random channels."""

import numpy as np
import pytest
import torch
from torch import Tensor

from sfumato.attack.table import Table, by_table
from sfumato.errors import DataError


def channel(people: int, outputs: int, seed: int, *, sharp: float = 1.0) -> Tensor:
    """p(y|s), (people, outputs), with some outputs much more likely than others."""
    draw = torch.Generator().manual_seed(seed)
    return (sharp * torch.randn(people, outputs, generator=draw, dtype=torch.float64)).softmax(1)


def releases(p: Tensor, truth: Tensor, draws: int, seed: int) -> Tensor:
    """(draws, m, 1) outputs of releases of people."""
    draw = torch.Generator().manual_seed(seed)
    return p[truth].multinomial(draws, replacement=True, generator=draw).T[..., None].float()


def attacked(p: Tensor, *, photographs: int, draws: int = 1, seed: int = 0) -> Table:
    identities = torch.arange(len(p)).repeat_interleave(photographs)
    gallery = releases(p, identities, draws, seed)
    return by_table(gallery, identities, releases(p, identities, draws, seed + 10_000), identities)


def exact(p: Tensor) -> float:
    """Σ_y max_s p(s)·p(y|s) of equally likely people, by enumeration."""
    return sum(max(float(p[s, y]) for s in range(len(p))) for y in range(p.shape[1])) / len(p)


@pytest.mark.parametrize("seed", range(4))
def test_with_many_photographs_the_table_is_as_right_as_anybody_can_be(seed: int):
    p = channel(5, 6, seed)
    table = attacked(p, photographs=20_000)
    # 100,000 probes: a share is off by 0.0016 or so; the counts that choose are of as many.
    assert table.top1 == pytest.approx(exact(p), abs=0.006)
    assert table.in_sample == pytest.approx(exact(p), abs=0.006)


def test_with_few_photographs_the_best_lies_between_new_and_known_ones():
    """On average over 300 galleries: the share on the gallery itself is too high, that on probes too low."""
    p = channel(8, 16, 1)
    tables = [attacked(p, photographs=6, seed=seed) for seed in range(300)]
    new = sum(table.top1 for table in tables) / len(tables)
    known = sum(table.in_sample for table in tables) / len(tables)
    assert new + 0.02 < exact(p) < known - 0.02


def test_releases_that_tell_nothing_are_named_by_chance_and_those_that_tell_everything_name_everybody():
    p = channel(10, 1, 0).expand(10, 4) / 4
    assert exact(p) == pytest.approx(0.1)
    assert attacked(p, photographs=2000).top1 == pytest.approx(0.1, abs=0.006)
    table = attacked(torch.eye(4).double(), photographs=3)
    assert (table.top1, table.in_sample) == (1, 1)


def test_people_of_whom_as_much_was_counted_are_named_in_turn_and_codes_may_have_gaps():
    """Two answers: people 70 and 3 give one, three others the other."""
    people = torch.tensor([70, 3, 8, 20, 5]).repeat_interleave(4)
    first = (people == 70) | (people == 3)
    answers = torch.stack([first, ~first], 1)[None].float()
    table = by_table(answers, people, answers, people)
    np.testing.assert_allclose(table.right, np.where(first, 1 / 2, 1 / 3))
    assert table.top1 == pytest.approx(2 / 5)


def test_who_is_asked_about_more_often_is_named_where_outputs_say_nothing():
    people = torch.tensor([0, 0, 0, 1])
    same = torch.zeros(1, 4, 1)
    assert by_table(same, people, same, people).top1 == pytest.approx(3 / 4)
    assert by_table(same, people, same + 1, people).top1 == pytest.approx(3 / 4)  # never counted


def test_a_probe_released_several_times_counts_once():
    p = channel(3, 4, 2)
    identities = torch.arange(3).repeat_interleave(50)
    gallery, probes = releases(p, identities, 4, 0), releases(p, identities, 7, 1)
    table = by_table(gallery, identities, probes, identities)
    once = [by_table(gallery, identities, draw[None], identities).right for draw in probes]
    assert table.right.shape == (150,)
    np.testing.assert_allclose(table.right, np.mean(once, 0))


def test_too_many_outputs_are_refused():
    outputs = torch.arange(5000)[None, :, None].float()
    with pytest.raises(DataError, match="5000 different outputs: a table is for 4096 at most"):
        by_table(outputs, torch.arange(5000) // 2, outputs[:, :1], torch.zeros(1, dtype=torch.int64))


def test_several_outputs_together_name_whom_bayes_rule_names():
    """Of p(y|s) that is known from very many releases, of people of whom there are unequally many."""
    p, identities = channel(4, 5, 2), torch.arange(4).repeat_interleave(torch.tensor([1, 2, 3, 4]) * 10_000)
    probes = releases(p, identities, 1, 9)
    table = by_table(releases(p, identities, 1, 1), identities, probes, identities)
    rows = torch.randint(len(identities), (200, 3), generator=torch.Generator().manual_seed(0))
    outputs = probes[0, :, 0].long()[rows]
    prior = torch.tensor([1, 2, 3, 4]).double().log()
    expected = p.log().T[outputs].sum(1) + prior
    singly = torch.from_numpy(table.log_posteriors[0] - table.log_prior)
    together = singly[rows].sum(1) + torch.from_numpy(table.log_prior)
    named, best = together.argmax(1), expected.topk(2).values
    clear = best[:, 0] - best[:, 1] > 0.2  # counts of 10,000 are off by a few per cent
    assert clear.sum() > 100
    assert torch.equal(named[clear], expected.argmax(1)[clear])
