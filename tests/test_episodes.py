"""Episodes: what one holds, that every one is equally likely, and what is said when none can be drawn."""

from collections import Counter
from itertools import permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2
from torch import Tensor

from sfumato.data import Label
from sfumato.data.labelled import label_of
from sfumato.episodes import Sampler, Shape, describe_fit, fit_episodes
from sfumato.errors import ConfigError, DataError

# Draws are by a fixed seed, so these tests cannot fail by chance; a right sampler had this chance to pass.
CONFIDENCE = 1 - 1e-4


@st.composite
def cases(draw: st.DrawFn) -> tuple[Label, Shape]:
    """A label with at least N classes of K + Q rows, and any smaller ones, down to none; rows are mixed."""
    way, shot, queries = draw(st.integers(2, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    large = draw(st.lists(st.integers(shot + queries, shot + queries + 3), min_size=way, max_size=way + 3))
    sizes = large + draw(st.lists(st.integers(0, shot + queries - 1), max_size=4))
    codes = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    mixed = codes[torch.randperm(len(codes), generator=seeded(draw(st.integers(0, 99))))]
    names = tuple(f"class-{i}" for i in range(len(sizes)))
    return Label(mixed, names), Shape(way=way, shot=shot, queries=queries)


# What an episode holds


@given(case=cases(), seed=st.integers(0, 99))
def test_an_episode_has_n_distinct_classes_of_k_plus_q_distinct_rows_each_by_its_seed(case, seed: int):
    label, shape = case
    sampler, before = Sampler(label, shape), torch.random.get_rng_state()
    rows = sampler.draw(50, seeded(seed))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(Sampler(label, shape).draw(50, seeded(seed)), rows)
    assert rows.shape == (50, shape.way, shape.shot + shape.queries)
    assert rows.dtype == torch.int64
    for episode in rows[:5]:
        codes = label.codes[episode]
        assert (codes == codes[:, :1]).all()  # all rows of one class
        assert len(codes[:, 0].unique()) == shape.way
        assert len(episode.unique()) == episode.numel()  # so support and query share none
    # Classes that are too small are named and never drawn.
    counts = Counter(label.codes.tolist())
    small = {label.names[c] for c, count in counts.items() if count < shape.shot + shape.queries}
    assert set(sampler.left_out) == small
    assert small.isdisjoint(label.names[code] for code in label.codes[rows].unique().tolist())


def test_a_generator_moves_on_and_no_episodes_can_be_drawn():
    sampler = Sampler(label_of(list("abc") * 20), Shape(way=2, shot=1, queries=1))
    generator = seeded(0)
    assert not torch.equal(sampler.draw(10, generator), sampler.draw(10, generator))
    assert sampler.draw(0, generator).shape == (0, 2, 2)


def test_a_way_of_all_classes_draws_all_of_them_in_every_episode():
    label = label_of(list("abcd") * 3)
    rows = Sampler(label, Shape(way=4, shot=2, queries=1)).draw(20, seeded(0))
    assert (label.codes[rows[:, :, 0]].sort(dim=1).values == torch.arange(4)).all()
    assert (rows.flatten(1).sort(dim=1).values == torch.arange(12)).all()  # and with K + Q = 3, all images


def test_classes_of_an_episode_may_share_an_alphabet():
    """Greek has three characters, Latin four, and Tagalog too few for an episode of three."""
    characters = list("αβγabcdxy") * 4
    alphabets = [dict(zip("αβγabcdxy", "GGGLLLLTT", strict=True))[each] for each in characters]
    label, within = label_of(characters), label_of(alphabets)
    rows = Sampler(label, Shape(way=3, shot=1, queries=2), within).draw(2_000, seeded(5))
    drawn = within.codes[rows].flatten(1)  # (E, N * (K + Q))
    assert (drawn == drawn[:, :1]).all()
    names = [within.names[code] for code in drawn[:, 0].tolist()]
    assert_equally_likely(torch.tensor([["GL".index(name)] for name in names]), [(0,), (1,)])
    drawn = label.codes[rows[:, :, 0]].unique().tolist()
    assert {label.names[code] for code in drawn} == set("αβγabcd")


# How likely an episode is


def test_every_ordered_choice_of_classes_is_equally_likely_whatever_their_sizes():
    """Counts of the 20 ordered pairs of 5 classes are multinomial: chi-square, 19 degrees of freedom."""
    label = label_of(list("a" * 2 + "b" * 3 + "c" * 9 + "d" * 20 + "e" * 40))
    rows = Sampler(label, Shape(way=2, shot=1, queries=1)).draw(20_000, seeded(1))
    assert_equally_likely(label.codes[rows[:, :, 0]], list(permutations(range(5), 2)))


def test_every_ordered_choice_of_images_of_a_class_is_equally_likely():
    """24 ordered triples (1 support, 2 queries) of 4 images; chi-square, 23 degrees. Rows are mixed."""
    label = label_of(list("abababab" + "a" * 9))
    rows = Sampler(label, Shape(way=2, shot=1, queries=2)).draw(20_000, seeded(2))
    of_b = rows[label.codes[rows[..., 0]] == 1]  # (20,000, 3): both classes are in every episode
    assert_equally_likely(of_b, list(permutations([1, 3, 5, 7], 3)))


def test_the_largest_class_is_drawn_from_its_first_image_to_its_last():
    label = label_of(["a"] * 2 + ["b"] * 30)
    rows = Sampler(label, Shape(way=2, shot=1, queries=1)).draw(20_000, seeded(3))
    of_b = rows[label.codes[rows[..., 0]] == 1]
    assert_equally_likely(of_b[:, :1], [(row,) for row in range(2, 32)])


def test_what_one_class_draws_tells_nothing_of_another():
    label = label_of(["a"] * 4 + ["b"] * 4)
    rows = Sampler(label, Shape(way=2, shot=1, queries=1)).draw(20_000, seeded(4))[..., 0].sort(dim=1).values
    assert_equally_likely(rows, [(a, b) for a in range(4) for b in range(4, 8)])


# What is refused


@pytest.mark.parametrize(
    ("wrong", "least"), [({"way": 1}, 2), ({"shot": 0}, 1), ({"queries": 0}, 1), ({"shot": -3}, 1)]
)
def test_a_shape_that_is_no_episode_is_refused(wrong: dict[str, int], least: int):
    ((name, value),) = wrong.items()
    with pytest.raises(ConfigError, match=f"{name}={value}: an episode needs a {name} of at least {least}"):
        Shape(**{"way": 2, "shot": 1, "queries": 1} | wrong)


def test_too_few_large_classes_are_counted_and_the_smallest_is_named_with_a_cure():
    label = label_of(list("aaaaaabbbbbbccdddd"))
    with pytest.raises(DataError) as raised:
        Sampler(label, Shape(way=3, shot=4, queries=2))
    assert str(raised.value) == (
        "2 classes have 6 images (shot 4 + queries 2) and the way is 3; the smallest is 'c' with 2: "
        "add images or classes, or set way=3, shot=3 and queries=1"
    )


def test_groups_that_are_too_small_for_an_episode_are_refused_and_the_largest_is_named():
    label, within = label_of(list("abcde") * 2), label_of(list("GGLLL") * 2)
    with pytest.raises(DataError) as raised:
        Sampler(label, Shape(way=4, shot=1, queries=1), within)
    assert str(raised.value) == (
        "the largest group of classes, 'L', has 3 with enough images, and the way is 4: "
        "set a smaller way, or draw any classes"
    )


def test_no_images_and_a_class_of_two_groups_are_refused():
    empty = Label(torch.empty(0, dtype=torch.int64), ("a", "b"))
    with pytest.raises(DataError, match=r"0 classes have 2 images .* the way is 2: add images"):
        Sampler(empty, Shape(way=2, shot=1, queries=1))
    label, within = label_of(list("aabb")), label_of(list("GGGL"))
    with pytest.raises(DataError, match=r"images of class 'b' have several, 'G', 'L': name a label that all"):
        Sampler(label, Shape(way=2, shot=1, queries=1), within)


# Helpers


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def assert_equally_likely(drawn: Tensor, possible: list[tuple[int, ...]]) -> None:
    """Pearson's chi-square of (n, k) draws, each one of the possible tuples, against equal counts."""
    counts = Counter(map(tuple, drawn.tolist()))
    assert set(counts) <= set(possible)
    expected = len(drawn) / len(possible)
    statistic = sum((counts[outcome] - expected) ** 2 / expected for outcome in possible)
    assert statistic < chi2.ppf(CONFIDENCE, df=len(possible) - 1)


def test_what_was_chosen_is_said_in_the_words_of_an_episode():
    wanted = Shape(way=20, shot=5, queries=15)
    allowed = fit_episodes(wanted, label_of(list("aaaabbbbcc")).codes)
    assert allowed == Shape(way=3, shot=1, queries=1)
    assert describe_fit("test", wanted, allowed) == (
        "test episodes: 3-way 1-shot with 1 query, the largest that the classes allow, and not 20-way 5-shot "
        "with 15 queries"
    )
    assert describe_fit("test", allowed, fit_episodes(allowed, label_of(list("aaaabbbbcc")).codes)) == ""
