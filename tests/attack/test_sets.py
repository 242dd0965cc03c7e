"""Naming people from sets of releases: limits that are known, and what is chosen by whom."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import roc_curve
from torch import Tensor

from sfumato.attack import set_network, sets
from sfumato.attack.sets import Table, by_table
from sfumato.errors import DataError


def bits(people: int, each: int, apart: float, seed: int, count: int = 8) -> tuple[Tensor, Tensor]:
    """Codes of people each of whose bits is set with a probability of their own, and who they are."""
    draw = torch.Generator().manual_seed(seed)
    chances = 0.5 + apart * (torch.rand(people, 1, count, generator=draw) - 0.5)
    codes = (torch.rand(people, each, count, generator=draw) < chances).float() * 2 - 1
    return codes.flatten(0, 1), torch.arange(people).repeat_interleave(each)


def curve_of(apart: float, *, seed: int = 0, **more: Any) -> sets.Curve:
    codes, who = bits(24, 15, apart, seed)
    others, of_others = bits(30, 10, apart, seed + 1)
    return sets.curve({"": (codes, others)}, who, of_others, seed=seed, **{"most": 10, "draws": 4} | more)


@pytest.fixture(scope="module")
def clear() -> sets.Curve:
    return curve_of(1.0)


def test_more_releases_name_more_people(clear: sets.Curve):
    shares = [float(point.named.mean()) for point in clear.points]
    assert [point.releases for point in clear.points] == [1, 3, 10]
    assert shares == sorted(shares)
    assert shares[0] < 0.6 < 0.8 < shares[-1]
    assert clear.points[-1].accepted > 0.5
    assert clear.points[-1].linked.mean() > 0.5
    assert (clear.panel, clear.pictures) == (12, 15)  # of one half of the people: everybody is in one
    for point in clear.points:
        assert (point.people.tolist(), set(point.tries.tolist())) == (list(range(24)), {4})
        assert 0 <= point.named.min() <= point.named.max() <= 1


def test_whom_nothing_tells_apart_are_named_as_by_guessing():
    """The figure of an adversary whom other people chose has no luck in it, as the largest would have."""
    points = [curve_of(0.0, seed=seed).points[-1] for seed in range(6)]
    stated = np.mean([point.named.mean() for point in points])
    largest = np.mean([max(point.by_adversary.values()) for point in points])
    assert abs(stated - 1 / 12) < 0.05  # 144 people, four tries each
    assert largest > stated


def test_releases_of_one_picture_are_never_both_known_and_asked():
    """Each picture has two equal releases, and pictures tell nothing of the person."""
    draw = torch.Generator().manual_seed(0)
    pictures = torch.randn(24 * 10, 6, generator=draw)
    codes, scenes = pictures.repeat_interleave(2, 0), torch.arange(240).repeat_interleave(2)
    who = torch.arange(24).repeat_interleave(20)
    others, of_others = torch.randn(60, 6, generator=draw), torch.arange(30).repeat_interleave(2)

    def named(scenes: Tensor | None) -> float:
        made = sets.curve({"": (codes, others)}, who, of_others, scenes=scenes, most=1, draws=4, seed=0)
        return max(made.points[0].by_adversary.values())

    assert named(None) > 0.15
    assert named(scenes) < 0.13  # guessing: 0.083


@pytest.mark.parametrize("alone", [1, 3, 20, 21])
def test_people_in_one_scene_alone_are_not_looked_for_and_the_others_are(alone: int):
    who = torch.arange(24).repeat_interleave(15)
    scenes = torch.arange(len(who)).where(who >= alone, -1 - who)
    if 24 - alone < 4:
        with pytest.raises(DataError, match="fewer than four people are in two scenes"):
            curve_of(1.0, scenes=scenes, most=3, draws=2)
        return
    curve = curve_of(1.0, scenes=scenes, most=3, draws=2)
    assert [point.releases for point in curve.points] == [1, 3]
    assert curve.points[0].people.tolist() == list(range(alone, 24))


@pytest.mark.parametrize("scene_of", [[0] * 14 + [1], [0, *[1] * 14], [0] * 7 + [1] * 8])
def test_people_in_two_scenes_are_known_by_one_and_named_by_the_other(scene_of: list[int]):
    scenes = 2 * torch.arange(24).repeat_interleave(15) + torch.tensor(scene_of).repeat(24)
    assert curve_of(1.0, scenes=scenes, most=3, draws=2).points[0].releases == 1


@pytest.mark.parametrize(
    ("counts", "most", "size"),
    [
        ([150] * 4, 100, 100),
        ([150] * 4, 10, 10),
        ([149] * 4, 100, 30),
        ([150, 150, 15, 15, 15], 100, 10),  # fewer than half of the people
        ([150] * 3, 100, 0),  # two of each half
        ([1] * 50, 100, 0),
    ],
)
def test_as_many_releases_are_measured_as_half_of_the_people_have_pictures_for(
    counts: list[int], most: int, size: int
):
    who = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    assert sets.measurable(who, most) == size


def test_too_few_people_are_nobody_to_look_for():
    who = torch.arange(3).repeat_interleave(5)
    with pytest.raises(DataError, match="fewer than four people have two pictures"):
        sets.curve({"": (torch.zeros(15, 2), torch.zeros(4, 2))}, who, torch.arange(4), seed=0)


def test_what_a_device_sends_may_depend_on_what_it_sent_before():
    """A device that always sends the same tells nothing."""
    shares = curve_of(1.0, sent=np.zeros_like, most=1, draws=2).points[0].by_adversary
    assert shares == pytest.approx(dict.fromkeys(shares, 1 / 12))


def test_the_equal_error_is_that_of_the_curve_of_scikit_learn():
    draw = np.random.default_rng(0)
    fit = draw.standard_normal((2, 5, 30, 5))
    own = np.eye(5, dtype=bool)[None, :, None].repeat(2, 0).repeat(30, 2)
    fit[own] += 1.5
    alarms, accepted, _ = roc_curve(own.ravel(), fit.ravel(), drop_intermediate=False)
    crossing = np.abs(1 - accepted - alarms).argmin()
    assert sets._verify(fit)[1] == pytest.approx(alarms[crossing], abs=0.005)
    assert sets._verify(np.zeros_like(fit))[1] == 0.5  # nothing is told apart


# The scores of each adversary, person by person


@pytest.fixture
def panels() -> sets.Panels:
    """Two panels of three people, of each of whom four releases are known and six are named."""
    draw = np.random.default_rng(0)
    middles = draw.normal(0, 2, (2, 3, 1, 5))
    gallery, probes = (middles + draw.normal(0, 1 + np.arange(5) / 5, (2, 3, n, 5)) for n in (4, 6))
    others = draw.normal(0, 2, (7, 1, 5)) + draw.normal(0, 1 + np.arange(5) / 5, (7, 4, 5))
    shown = (each.astype(np.float32) for each in (gallery, probes, others.reshape(28, 5)))
    return sets.Panels(*shown, np.arange(7).repeat(4))


def inner(rows: np.ndarray) -> np.ndarray:
    return (rows - rows.mean(-2, keepdims=True)).reshape(-1, rows.shape[-1])


def test_variances_name_by_normal_densities_of_each_number(panels: sets.Panels):
    found = sets.by_variances(panels)(panels.gallery)(3)
    common = (inner(panels.others.reshape(7, 4, 5)) ** 2).mean(0)
    for panel in range(2):
        known = panels.gallery[panel].astype(np.float64)
        variances = (common + 4 * known.var(1)) / 4 * (1 + 1 / 4)  # one of theirs and three of their own
        law = stats.norm(known.mean(1), np.sqrt(variances))
        single = law.logpdf(panels.probes[panel].reshape(18, 1, 5)).sum(-1)
        expected = single.reshape(6, 3, 3).sum(1)
        scores = found[panel].reshape(6, 3)
        np.testing.assert_allclose(scores - scores[:, :1], expected - expected[:, :1], atol=1e-3)


@pytest.mark.parametrize(("width", "pairs"), [(1, False), (2, True)])
def test_products_are_tried_where_there_are_two_numbers(panels: sets.Panels, width: int, pairs: bool):
    names = dict(sets.adversaries(panels.of(lambda rows: rows[..., :width]), ""))
    assert ("logistic regression of products" in names) == pairs


def test_the_releases_of_a_person_are_split_into_two_sides():
    people = torch.tensor([4, 7, 4, 4, 9, 7, 4, 4])  # the one of person 9 is left out
    sides = set_network._two_sides(people, torch.Generator().manual_seed(0))
    assert sides.shape == (2, 2, 3)
    for who, first, second in zip((4, 7), *sides.tolist(), strict=True):
        assert not {*first} & {*second}
        assert {*first, *second} == {*(people == who).nonzero().flatten().tolist()}


# The table of few outputs, against exact enumeration of small random channels


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
