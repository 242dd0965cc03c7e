"""Membership in enrolled galleries: limits that recover something known, and oracles of scipy."""

import itertools
import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from sfumato.attack import membership
from sfumato.attack.membership import (
    TABLE,
    Galleries,
    by_person,
    draw_galleries,
    judge,
    lira,
    person_scores,
    photograph_scores,
    prototypes_of,
    ratios,
)
from sfumato.dp.clipping import clip_rows
from sfumato.errors import ConfigError, DataError, SpecError


def draw(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def photographs(people: int = 30, count: int = 6, size: int = 8) -> Tensor:
    """(P, n, D): people who differ more than their photographs do."""
    middles = 3 * torch.randn(people, 1, size, generator=draw(1))
    return middles + torch.randn(people, count, size, generator=draw(2))


def galleries(shot: int, count: int = 48, people: int = 30, **settings: float) -> Galleries:
    return draw_galleries(
        people=people, photographs=6, shot=shot, galleries=count, draw=draw(3), enrolled=1.0, **settings
    )


def attack(view: str, shot: int, *, sigma: float = 0.0, attacked: int = 8) -> membership.Membership:
    own, drawn = photographs(), galleries(shot)
    prototypes = prototypes_of(own, drawn)
    prototypes = prototypes + sigma * torch.randn(prototypes.shape, generator=draw(4))
    scores = photograph_scores(own, prototypes, drawn.enrolled, view=view).flatten(1, 2)
    found, members = ratios(scores, drawn.photographs(6).flatten(1, 2), attacked=attacked)
    return judge(found, members)


def test_a_stored_prototype_of_one_shot_is_its_photograph():
    found = attack("stored", 1)
    assert found.auc == 1
    assert found.rates[0.001][0] == 1


@pytest.mark.parametrize("view", membership.VIEWS)
def test_noise_without_end_leaves_chance(view):
    found = attack(view, 1, sigma=1e6)
    half = 3 * math.sqrt((found.members + found.others) / (12 * found.members * found.others))
    # Examples of one gallery share its prototypes: twice the deviation of a rank sum of independent ones.
    assert abs(found.auc - 0.5) < 2 * half


def test_more_noise_or_more_shots_leave_less_to_find():
    assert attack("stored", 3, sigma=0.5).auc > attack("stored", 3, sigma=2.0).auc
    assert attack("label", 1).auc < attack("rounded", 1).auc + 0.02 <= attack("full", 1).auc + 0.04


def test_the_ratio_is_that_of_two_normal_densities_by_scipy():
    scores = torch.randn(30, 5, 2, generator=draw(7), dtype=torch.float64)
    members = torch.rand(30, 5, generator=draw(8)) < 0.5
    asked = torch.randn(5, 2, generator=draw(9), dtype=torch.float64)
    found = lira(scores, members, asked)
    for i in range(5):
        logs = []
        for side in (members[:, i], ~members[:, i]):
            rows = scores[side, i].numpy()
            law = stats.multivariate_normal(rows.mean(0), torch.from_numpy(rows).T.cov().numpy())
            logs.append(law.logpdf(asked[i].numpy()))
        assert found[i].item() == pytest.approx(logs[0] - logs[1], rel=1e-6)


def test_an_example_without_two_of_each_kind_says_nothing():
    scores = torch.randn(10, 2, 1, generator=draw())
    members = torch.zeros(10, 2, dtype=torch.bool)
    members[:5, 1] = True
    found = lira(scores, members, torch.zeros(2, 1))
    assert found[0] == 0
    assert found[1] != 0


def test_no_adversary_is_above_the_trade_off_curve_of_the_noise():
    shot, norm, trials = 2, 1.0, 4000
    mu = 0.68  # of the Gaussian mechanism (Dong, Roth & Su 2022, Thm. 2.7); eps = 2 at delta = 1e-3
    sigma = 2 * norm / shot / mu  # replacing one of K rows of norms up to c moves their mean by 2c / K
    # The worst case: the shot that is replaced is opposite, so that the mean moves by the whole sensitivity.
    support = torch.zeros(2, trials, shot, 4)
    support[0, :, 0, 0], support[1, :, 0, 0] = 5.0, -5.0  # clipped to 1
    means = clip_rows(support.flatten(0, 2), clipping_norm=norm).view(support.shape).mean(2)
    noisy = means + sigma * torch.randn(means.shape, generator=draw(10))
    inside = torch.tensor([True, False])[:, None].expand(2, trials)
    found = judge(noisy[..., 0], inside, at=(0.01, 0.1))
    for rate, (_, low, high) in found.rates.items():
        # The curve at 1.3 and 0.7 times the rate: a threshold of 4,000 is off by so much.
        above, below = (stats.norm.cdf(stats.norm.ppf(off * rate) + mu) for off in (1.3, 0.7))
        assert low <= above
        assert high >= below  # the optimal test reaches the curve


def test_intervals_are_those_of_clopper_and_pearson():
    scores = torch.cat([torch.arange(100.0), torch.full((7,), 200.0), torch.zeros(13)])
    found = judge(scores, torch.arange(120) >= 100)
    share, low, high = found.rates[0.01]
    exact = stats.binomtest(7, 20).proportion_ci(0.95, "exact")
    assert (share, low, high) == pytest.approx((7 / 20, exact.low, exact.high), abs=1e-9)
    assert found.auc == pytest.approx((7 * 100 + 13 * 0.5) / (20 * 100))


def test_a_person_who_is_enrolled_is_found_by_other_photographs_of_them():
    own = photographs(people=60)
    drawn = draw_galleries(people=60, photographs=3, shot=2, galleries=40, enrolled=0.5, draw=draw(11))
    prototypes = prototypes_of(own[:, :3], drawn)
    aucs = {}
    for view in membership.VIEWS:
        scores = person_scores(own[:, 3:], prototypes, drawn.enrolled, view=view)
        aucs[view] = judge(*ratios(scores, drawn.enrolled, attacked=8)).auc
    assert aucs["stored"] > 0.95
    assert aucs["full"] > 0.9
    assert aucs["label"] < aucs["full"]


def test_a_table_is_looked_at_near_the_code_of_a_photograph():
    """By the labels of all codes, one by one."""
    own = photographs(people=6, size=5).sign()
    drawn = draw_galleries(people=6, photographs=6, shot=2, galleries=4, enrolled=0.7, draw=draw(12))
    prototypes = prototypes_of(own, drawn) + 1e-3 * torch.randn(4, 6, 5, generator=draw(13))  # without ties
    codes = torch.tensor(list(itertools.product([1.0, -1.0], repeat=5)))
    scores = photograph_scores(own, prototypes, drawn.enrolled, view=TABLE)
    known = person_scores(own[:, 4:], prototypes, drawn.enrolled, view=TABLE)
    for gallery, there in enumerate(drawn.enrolled):
        away = torch.cdist(codes, prototypes[gallery]).masked_fill(~there, torch.inf)
        labels = away.argmin(1)
        for person, number in itertools.product(range(6), range(6)):
            apart = (codes != own[person, number]).sum(1)
            shares = [(labels[apart == bits] == person).double().mean() for bits in range(3)]
            assert scores[gallery, person, number].tolist() == pytest.approx(shares)
        near = [(codes != own[0, number]).sum(1) for number in (4, 5)]
        name = torch.cat([labels[apart <= 2] for apart in near]).mode().values
        shares = [
            sum((labels[apart == bits] == name).double().mean() for apart in near) / 2 for bits in range(3)
        ]
        assert known[gallery, 0].tolist() == pytest.approx(shares)
    with pytest.raises(SpecError, match="a table needs codes of bits without noise"):
        photograph_scores(photographs(people=6, size=5), prototypes, drawn.enrolled, view=TABLE)


def test_a_table_tells_more_of_a_shot_than_one_label():
    own, drawn = photographs(size=10).sign(), galleries(2)
    prototypes, inside = prototypes_of(own, drawn), drawn.photographs(6).flatten(1, 2)
    aucs = []
    for view in ("label", TABLE, "stored"):
        scores = photograph_scores(own, prototypes, drawn.enrolled, view=view).flatten(1, 2)
        aucs.append(judge(*ratios(scores, inside, attacked=8)).auc)
    assert aucs[0] < aucs[1] < aucs[2]


def test_a_rounded_confidence_is_all_that_the_rounded_view_has():
    own, drawn = photographs(), galleries(1, count=4)
    scores = photograph_scores(own, prototypes_of(own, drawn), drawn.enrolled, view="rounded", step=0.25)
    assert len(scores.unique()) <= 5
    assert scores.isfinite().all()


def test_prototypes_are_means_of_the_shots_that_were_drawn():
    own, drawn = photographs(), galleries(3, count=4)
    inside = drawn.photographs(6)
    assert (inside.sum(2) == 3).all()
    expected = (own[None] * inside[..., None]).sum(2) / 3
    torch.testing.assert_close(prototypes_of(own, drawn), expected)


def test_people_with_too_few_photographs_are_left_out():
    codes = torch.tensor([0, 1, 0, 2, 1])
    rows = torch.arange(5.0)[:, None]
    assert by_person(rows, codes, photographs=2)[..., 0].tolist() == [[0, 2], [1, 4]]
    with pytest.raises(DataError, match="0 people have 3 photographs"):
        by_person(rows, codes, photographs=3)


def test_numbers_out_of_range_are_refused():
    own, drawn = photographs(), galleries(1, count=4)
    prototypes = prototypes_of(own, drawn)
    for message, mistake in (
        ("shot=7: from 1 to the 6", lambda: galleries(7)),
        ("no view is called 'all'", lambda: photograph_scores(own, prototypes, drawn.enrolled, view="all")),
        ("step=0: ", lambda: photograph_scores(own, prototypes, drawn.enrolled, view="rounded", step=0)),
    ):
        with pytest.raises(ConfigError, match=message):
            mistake()


def test_intervals_are_over_people_if_they_are_named():
    """Ten photographs of a person are found together: they are one trial, and not ten."""
    found = torch.arange(40).repeat_interleave(10) % 4 == 0  # a quarter of 40 people
    scores = torch.cat([torch.where(found, 2.0, 0.0), torch.linspace(0, 1, 400)])[None]
    members = (torch.arange(800) < 400)[None]
    people = torch.arange(40).repeat_interleave(10).repeat(2)
    alone, clustered = (
        judge(scores, members, at=(0.01,), people=each).rates[0.01] for each in (None, people)
    )
    assert alone[0] == clustered[0] == 0.25
    assert clustered[2] - clustered[1] > 2.5 * (alone[2] - alone[1])  # √10 times, nearly
