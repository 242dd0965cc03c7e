"""What is asked: options and decoys that are drawn once, and pairs that are refused with their line."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from sfumato.annotate.campaign import CampaignConfig, Pair, draw_balanced, items, order, read_pairs
from sfumato.errors import ConfigError, DataError

CHOOSE = CampaignConfig(task="choose")
SAME = CampaignConfig(task="same")


def many(classes: int, *, of_each: int = 4, source: str = "zoo") -> list[Pair]:
    return [
        Pair(
            original=Path(f"{source}-{number}.png"),
            reconstruction=Path(f"{source}-{number}-rebuilt.png"),
            true_class=f"{source} {number % classes:03d}",
            model="lenet",
            source=source,
        )
        for number in range(classes * of_each)
    ]


def test_twenty_classes_of_the_source_are_offered_sorted_and_the_true_one_is_among_them():
    for item in items(many(50) + many(30, source="park"), CHOOSE):
        assert len(set(item.options)) == 20
        assert list(item.options) == sorted(item.options)  # a place tells nothing
        assert item.pair.true_class in item.options
        assert item.right == item.pair.true_class
        assert all(name.startswith(item.pair.source) for name in item.options)
    every = tuple(f"zoo {number:03d}" for number in range(7))  # where there are fewer
    assert {item.options for item in items(many(7), CHOOSE)} == {every}


def test_every_other_class_is_offered_about_equally_often():
    pairs = many(50, of_each=40)
    offered = [name for item in items(pairs, CHOOSE) for name in item.options if name != item.pair.true_class]
    # Binomial(1960, 19/49) of each class has a standard deviation of 21.6; 5 of them for the worst of 50.
    counts = Counter(offered)
    assert all(abs(counts[pair.true_class] - 2000 * 19 / 50) < 5 * 21.6 for pair in pairs)


@pytest.mark.parametrize("config", [CHOOSE, SAME])
def test_a_seed_repeats_a_campaign_and_another_draws_another(config: CampaignConfig):
    pairs = many(50)
    assert items(pairs, config) == items(pairs, config)
    assert items(pairs, config) != items(pairs, replace(config, seed=1))


@pytest.mark.parametrize(("share", "count"), [(0.2, 50), (0.5, 200), (0.001, 1), (0, 0)])
def test_decoys_are_a_share_of_all_items_and_take_no_pair_away(share: float, count: int):
    pairs = many(50)
    made = items(pairs, replace(SAME, decoys=share))
    assert [item.pair for item in made if not item.decoy] == pairs
    assert sum(item.decoy for item in made) == count


def test_a_decoy_shows_another_original_of_another_class_of_the_same_source():
    pairs = many(9) + many(9, source="park")
    owner = {pair.reconstruction: pair for pair in pairs}
    decoys = [item for item in items(pairs, SAME) if item.decoy]
    assert decoys
    for item in decoys:
        shown = owner[item.pair.reconstruction]
        assert shown.original != item.pair.original
        assert shown.true_class != item.pair.true_class
        assert shown.source == item.pair.source
        assert item.right == "different"


def test_each_annotator_has_an_order_of_their_own_over_all_items():
    orders = [order(40, annotator, seed=0) for annotator in (1, 2, 3)]
    assert all(sorted(each) == list(range(40)) for each in orders)
    assert len({tuple(each) for each in orders}) == 3
    assert orders[0] == order(40, 1, seed=0) != order(40, 1, seed=1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"task": "chose"}, "no task is called 'chose': did you mean 'choose'"),
        ({"annotators": 0}, "annotators=0: at least 1"),
        ({"options": 1}, "options=1: 2 to 30"),
        ({"options": 31}, "options=31: 2 to 30, a key for each"),
        ({"decoys": 0.6}, "decoys=0.6: a share of all items, 0 to 0.5"),
        ({"decoys": float("nan")}, "decoys=nan"),
        ({"seed": -1}, "seed=-1: at least 0"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict, message: str):
    with pytest.raises(ConfigError, match=message):
        CampaignConfig(**{"task": "same", **settings})


def of_models(source: str, **counts: int) -> list[Pair]:
    """So many pairs of each model, of the first originals of the source."""
    return [
        replace(pair, model=model, reconstruction=Path(f"{model}-{pair.original}"))
        for model, count in counts.items()
        for pair in many(count, of_each=1, source=source)
    ]


def test_pairs_are_drawn_of_every_source_and_model_about_equally_often():
    pairs = of_models("zoo", weak=30, strong=40, blind=50) + of_models("sea", weak=30, strong=30)
    drawn = draw_balanced(pairs, 60, seed=0)
    assert len(set(map(str, drawn))) == 60
    assert Counter((each.source, each.model) for each in drawn) == {
        **{("zoo", model): 10 for model in ("weak", "strong", "blind")},
        **{("sea", model): 15 for model in ("weak", "strong")},
    }


def test_draws_are_even_over_originals_full_of_a_model_with_few_pairs_and_those_of_their_seed():
    drawn = draw_balanced(of_models("zoo", weak=12, strong=12, blind=12), 24, seed=0)
    assert set(Counter(each.original for each in drawn).values()) == {2}
    drawn = draw_balanced(of_models("zoo", weak=2, strong=20), 12, seed=0)
    assert Counter(each.model for each in drawn) == {"weak": 2, "strong": 10}
    pairs = of_models("zoo", weak=20, strong=20)
    one, again, other = (draw_balanced(pairs, 10, seed=seed) for seed in (1, 1, 2))
    assert one == again != other


def test_pairs_that_cannot_be_drawn_or_asked_about_are_refused():
    with pytest.raises(DataError, match="9 pairs are to be drawn from 8: ask about fewer"):
        draw_balanced(many(2), 9, seed=0)
    with pytest.raises(ConfigError, match="campaign of 0 pairs: ask about at least 1"):
        draw_balanced(many(2), 0, seed=0)
    named = [replace(one, true_class="cannot tell") if n else one for n, one in enumerate(many(3))]
    for pairs, config, message in (
        ([], SAME, "no pairs: list at least one"),
        (named, CHOOSE, "a class is called 'cannot tell' like an answer: rename it"),
        (many(1), CHOOSE, "only one class, 'zoo 000', so every choice is right: add pairs"),
        (many(1), SAME, r"only one class, 'zoo 000', so no decoy .* set decoys=0"),
    ):
        with pytest.raises(DataError, match=message):
            items(pairs, config)
    assert len(items(many(1), replace(SAME, decoys=0))) == 4


def test_a_table_is_read_relative_to_its_folder(table: Path, pairs: list[Pair]):
    assert read_pairs(table) == pairs


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("cat-0.png,gone.png,cat,lenet,zoo", r"pairs.csv, line 14: .*gone.png: no such file: correct"),
        ("gone.png,guess-0.png,cat,lenet,zoo", r"pairs.csv, line 14: .*gone.png: no such file: correct"),
        ("cat-0.png,guess-0.png,,lenet,zoo", "pairs.csv, line 14: no value for 'class': fill it in"),
        ("cat-0.png,guess-0.png,cat", "pairs.csv, line 14: no value for 'model'"),
    ],
)
def test_a_row_that_cannot_be_used_is_named_by_its_line(table: Path, line: str, message: str):
    table.write_text(table.read_text() + line + "\n")
    with pytest.raises(DataError, match=message):
        read_pairs(table)


def test_a_table_that_cannot_be_used_is_refused(table: Path, tmp_path: Path):
    with pytest.raises(DataError, match=r"cannot be read \(No such file"):
        read_pairs(tmp_path / "none.csv")
    table.write_text("original,reconstruction,class,model\n")
    with pytest.raises(DataError, match="no column 'source': Known: class, model, original, reconstruction"):
        read_pairs(table)
    table.write_text("original,reconstruction,class,model,source\n")
    with pytest.raises(DataError, match="no rows: list at least one reconstruction"):
        read_pairs(table)
