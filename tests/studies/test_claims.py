"""Claims of papers: planted faults are caught, answers can come out either way, ours are the records'."""

import math
import re
import statistics
from dataclasses import replace
from typing import Any

import claims
import pytest
from claims import Claim, Compare, Contrast, Evidence, Measure, Pooled
from rows import with_commits
from scipy import stats
from tables import at, matches, of_spec, rises, rows

from sfumato.errors import DataError

MEASURE = Measure(rows="plain", value="accuracy", where={"view": "denoised"})
EVIDENCE = Evidence(
    data="photographs",
    verdict="yes",
    where={"view": "denoised"},
    regime={"network": ("network", "resnet50"), "ε": ("epsilon", 3.0)},
    compare=Compare(across="model", ours="new", theirs=["old"], within=["setting"]),
    room=(1.0, 0.02),
    learned=(0.2, 0.05),
)


def trained(gap: float = 0.1, seeds: int = 3, old: float = 0.6, **changes: Any) -> list[dict[str, Any]]:
    """Two models in two settings, one ahead by so much, less or more in each seed."""
    return [
        {"model": model, "setting": setting, "seed": seed, "network": "resnet50", "epsilon": 3.0}
        | {"view": "denoised", "record": f"{model}{setting}{seed}", "half": 0.01}
        | {"accuracy": old + (gap + 0.002 * seed) * (model == "new")}
        | changes
        for model in ("new", "old")
        for setting in (2.0, 10.0)
        for seed in range(seeds)
    ]


def judge(known: list[dict[str, Any]], half: str = "", left_out: Any = None, **changes: Any) -> claims.Judged:
    evidence = EVIDENCE.model_copy(update=changes)
    claim = Claim(says="", quantity="", regime="", left_out=left_out or {}, evidence=[evidence])
    return claims.judge(claim, evidence, MEASURE.model_copy(update={"half": half}), known)


RISING = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
BELOW = {"compare": EVIDENCE.compare.model_copy(update={"sign": "below"}), "room": (0.59, 0.02)}
NOISY = [row | {"accuracy": row["accuracy"] + 0.2 * (row["seed"] - 1)} for row in trained(0.1)]


@pytest.mark.parametrize(
    ("known", "changes", "word", "reason"),
    [
        (trained(0.1), {}, "yes", "alone shown in 2 of 2"),
        (trained(-0.1), {}, "no", "contradicted in 2"),
        # Paired by seed, what both models share does not count; what only one has, does.
        (NOISY, {}, "yes", "alone shown in 2 of 2"),
        ([row | {"accuracy": 0.6} if row["model"] == "old" else row for row in NOISY], {}, "open", ""),
        # A wrong view, epsilon or backbone
        (trained(view="released"), {"where": {}}, "not comparable", "is not the paper's quantity"),
        (trained(epsilon=1.0), {}, "not comparable", "ε 1 in place of 3. There: yes, alone shown in 2 of 2"),
        (trained(network="lenet"), {}, "not comparable", "network lenet in place of resnet50"),
        # At the ceiling nothing can rise, and at the floor nothing can fall.
        (trained(-0.1, old=0.99), {}, "open", "says nothing in 2 of 2: no room to rise"),
        (trained(0.1), BELOW, "open", "no room to fall"),
        (trained(0.004, old=0.21), {}, "open", "nothing was learned"),
        # One seed has no interval over seeds: it shows no more than its episodes do, and contradicts nothing.
        (trained(0.1, seeds=1), {"half": "half"}, "in part", "alone shown in 2 of 2"),
        (trained(-0.1, seeds=1), {"half": "half"}, "open", "contradicted in 2"),
        (trained(0.1, seeds=1), {}, "open", "alone shown in 0 of 2"),
        # Most settings have the one seed alone.
        ([row for row in trained(0.1) if row["setting"] == 2.0 or row["seed"] == 0], {}, "yes", ""),
    ],
)
def test_an_answer_comes_out_either_way_and_planted_faults_are_caught(known, changes, word, reason):
    judged = judge(known, **changes)
    assert judged.word == word
    assert reason in judged.reason


def test_that_validation_still_rose_is_a_footnote():
    assert judge(trained(validation=RISING)).rising
    assert judge(trained(validation=RISING)).word == "yes"
    assert not judge(trained()).rising


def test_a_sentence_about_several_settings_is_in_part_where_one_shows_it():
    mixed = [row for gap, of in ((0.1, 2.0), (-0.1, 10.0)) for row in trained(gap) if row["setting"] == of]
    judged = judge(mixed)
    assert (judged.word, judged.reason) == ("in part", "alone shown in 1 of 2, contradicted in 1")
    assert judge(mixed, needs="every").word == "no"


def test_records_that_do_not_say_what_the_regime_was_are_refused():
    silent = [{key: value for key, value in row.items() if key != "network"} for row in trained()]
    with pytest.raises(DataError, match="no row has network: the records do not show the network"):
        judge(silent)


def test_rows_that_are_left_out_without_a_reason_are_refused():
    some = {"where": {"view": "denoised", "setting": 2.0}}
    with pytest.raises(DataError, match=r"6 rows have accuracy and are neither chosen nor left out.*setting"):
        judge(trained(), **some)
    assert judge(trained(), **some, left_out={"too coarse": {"setting": 10.0}}).word == "yes"


def test_images_that_are_left_out_without_a_reason_are_refused():
    some = [row | {"world": "lfw", "labelled": 385} for row in trained()]
    measure = MEASURE.model_copy(update={"whole": {"labelled": {"lfw": 1483, "cmu": 158}}})
    claim = Claim(says="", quantity="", regime="", evidence=[EVIDENCE])
    with pytest.raises(DataError, match="labelled is 385 of 1483 in lfw: use all, or say under part why not"):
        claims.judge(claim, EVIDENCE, measure, some)
    said = EVIDENCE.model_copy(update={"part": "those with a known smile"})
    assert claims.judge(claim, said, measure, some).word == "yes"
    assert claims.judge(claim, EVIDENCE, measure, [row | {"labelled": 1483} for row in some]).word == "yes"


@pytest.mark.parametrize(("against", "sign"), [(0.5, "above"), (0.34, "above"), (0.0, "below")])
def test_a_sentence_that_no_outcome_can_show_is_refused(against, sign):
    """Hair is 8.5% of an image: of the quarter that a mask shows at most 34% can be hair."""
    shown = [{"seed": seed, "record": "", "accuracy": 0.26 + seed / 100, "most": 0.34} for seed in range(3)]
    measure = Measure(rows="plain", value="accuracy", bounds=(0, "most"))
    evidence = Evidence(data="hair", verdict="no", compare=Compare(against=against, sign=sign))
    claim = Claim(says="", quantity="", regime="", evidence=[evidence])
    with pytest.raises(DataError, match=r"no outcome can show this: accuracy is at (most 0.34|least 0)"):
        claims.judge(claim, evidence, measure, shown)
    possible = evidence.model_copy(update={"compare": Compare(against=0.2)})
    assert claims.judge(claim, possible, measure, shown).word == "yes"


# Contrasts


def contrast(gap: float, half: float = 0.01, seeds: int = 3) -> Contrast:
    return Contrast("", 0.5 + gap, 0.5, {str(seed): gap for seed in range(seeds)}, half)


def pooled(gap: float, half: float = 0.01, above: int = 60, largest: float = 0.0) -> Pooled:
    return Pooled(gap, half, 3, 60, above, largest)


def test_what_is_above_0_and_below_the_papers_effect_is_judged_by_both():
    claimed = Compare(claimed=0.03)
    assert [contrast(gap).outcome(claimed) for gap in (0.02, 0.005, -0.005)] == ["yes", "no", "no"]
    assert contrast(0.025, 0.03).outcome(claimed) == "open"
    assert contrast(-0.02).outcome(Compare(allowed=0.04)) == "yes"


@pytest.mark.parametrize(
    ("of", "compare", "word"),
    [
        (pooled(0.1), Compare(), "yes"),
        (pooled(0.1, above=44), Compare(), "in part"),  # of 60 pairs
        (pooled(-0.1), Compare(), "no"),
        (pooled(0.01, 0.02), Compare(), "open"),
        # The paper's size: half of it is enough, and less is a little.
        (pooled(0.05), Compare(claimed=0.1), "yes"),
        (pooled(0.04), Compare(claimed=0.1), "yes, a little"),
        (pooled(0.01, 0.02), Compare(claimed=0.1), "no"),  # the interval is below the paper's size
        (pooled(0.01, 0.1), Compare(claimed=0.1), "open"),
        # "Up to 5%" is of the setting that gains most, and says nothing of the others.
        (pooled(0.011, largest=0.05), Compare(claimed=0.05, largest=True), "yes"),
        (pooled(0.011, largest=0.02), Compare(claimed=0.05, largest=True), "yes, a little"),
        (pooled(-0.01, 0.02), Compare(claimed=0.05, largest=True), "open"),
        # A loss that is allowed: the interval decides, whatever a pair varies.
        (pooled(-0.02, above=30), Compare(allowed=0.04), "yes"),
        (pooled(-0.035), Compare(allowed=0.04), "open"),
    ],
)
def test_an_answer_is_that_of_the_pooled_contrast(of, compare, word):
    assert claims.decide(of, [contrast(0.0, 0.1)] * 20, compare, "each")[0] == word


def test_pairs_of_one_setting_are_no_seeds_of_their_own():
    """Twenty settings shift together with the seed: the interval is of three means, not of 60 pairs."""
    of_seed = {"0": 0.1, "1": 0.2, "2": 0.3}
    alike = [
        Contrast("", 0.7, 0.5, {seed: gap + 0.001 * at for seed, gap in of_seed.items()}, 0.2)
        for at in range(20)
    ]
    found = claims.pool(alike, Compare())
    means = [gap + 0.0095 for gap in of_seed.values()]
    assert found.gap == pytest.approx(statistics.mean(means))
    assert found.half == pytest.approx(stats.t.ppf(0.975, 2) * statistics.stdev(means) / math.sqrt(3))
    assert (found.seeds, found.pairs, found.above) == (3, 60, 60)


def test_a_seed_that_lacks_settings_does_not_shift_the_mean():
    small = {str(seed): 0.1 for seed in range(3)}
    lacking = [Contrast("", 1, 0, each, 0.1) for each in (small, small, {"0": 0.5, "1": 0.5})]
    assert claims.pool(lacking, Compare()).gap == pytest.approx(0.1)  # of the settings that all three have
    lacking = [Contrast("", 1, 0, each, 0.1) for each in (small, {"0": 0.5, "1": 0.5}, {"0": 0.6, "1": 0.6})]
    assert claims.pool(lacking, Compare()).gap == pytest.approx(0.4)  # of the two seeds that all have
    apart = [Contrast("", 1, 0, {str(each): 0.1}, 0.1) for each in range(3)]
    with pytest.raises(DataError, match="no seed is in half of the settings"):
        claims.pool(apart, Compare())


def test_one_of_many_contrasts_comes_by_chance():
    none = pooled(0.0, 0.1)
    few = [contrast(0.1), *[contrast(0.0, 0.1)] * 16]
    assert claims.decide(none, few, Compare(), "each")[0] == "open"
    assert claims.decide(none, [contrast(0.1)] * 3 + few[3:], Compare(), "each")[0] == "in part"


def test_contrasts_of_one_data_set_may_all_say_the_same_by_one_chance():
    none = pooled(0.0, 0.1)
    lfw = [replace(contrast(0.1), data="lfw")] * 3
    others = [replace(contrast(0.0, 0.1), data=name) for name in ("cmu", "faces")]
    assert claims.decide(none, [*lfw, *others], Compare(), "each")[0] == "open"
    shown = [*lfw, replace(lfw[0], data="cmu")]
    assert claims.decide(none, [*shown, *others], Compare(), "each")[0] == "in part"


@pytest.mark.parametrize(("order", "word"), [("falling", "no"), ("rising", "yes"), ("peak inside", "no")])
def test_values_in_an_order_are_compared_step_by_step(order, word):
    known = [
        {"size": size, "seed": seed, "record": "", "accuracy": size + seed / 100}
        for size in (2, 10, 4)
        for seed in range(3)
    ]
    compare = Compare(across="size", order=order)
    ordered = Evidence(data="", verdict="yes", compare=compare, needs="every")
    claim = Claim(says="", quantity="", regime="", evidence=[ordered])
    judged = claims.judge(claim, ordered, Measure(rows="plain", value="accuracy"), known)
    assert len(judged.contrasts) == 2
    assert judged.word == word


def test_a_value_is_compared_with_a_number_or_a_column_of_its_row():
    known = [row | {"chance": 0.65} for row in trained()]
    against = {"compare": Compare(against="chance", within=["model", "setting"]), "room": None}
    assert [each.gap > 0 for each in judge(known, **against).contrasts] == [True, True, False, False]
    against = {"compare": Compare(against=0.65, within=["model", "setting"]), "room": None}
    assert judge(known, **against).word == "in part"


def test_several_rows_of_one_seed_need_a_word_how_they_become_one():
    both = {"compare": Compare(across="model", ours="new")}
    with pytest.raises(DataError, match="2 rows of one seed, 0, have accuracy: say `reduce`"):
        judge(trained(), **both)
    least = both["compare"].model_copy(update={"reduce": "min"})
    assert judge(trained(), compare=least).word == "yes"


# Rows


def test_the_sound_variant_needs_three_times_the_epsilon_for_the_noise_of_the_paper():
    assert of_spec("dp-pix:cell=8,epsilon=3", 3, 1)["noise_epsilon"] == 1.0
    assert of_spec("dp-pix:cell=8,epsilon=3", 1, 1)["noise_epsilon"] == 3.0
    assert of_spec("dp-pix:cell=8,epsilon=3,variant=published", 3, 1)["noise_epsilon"] == 3.0
    assert of_spec("pixelize:cell=8", 3, None)["sees"] == "one value a cell"


def test_columns_are_keys_or_the_way_to_them_and_texts_are_patterns():
    row = {"cell": {"seed": 1}, "a.b": 2, "name": "plain 0.25"}
    assert [at(row, path) for path in ("cell.seed", "a.b", "cell.no", "name.no")] == [1, 2, None, None]
    assert matches(row, {"name": ["x", "plain *"], "cell.seed": 1})
    assert not matches(row, {"name": "plain"})


def test_training_is_said_to_rise_by_more_than_half_a_point_over_its_last_quarter():
    assert rises((0.5, 0.6, 0.7, 0.8))
    flat = (0.5, 0.6, 0.7, 0.70, 0.69, 0.71, 0.70, 0.708)  # 0.700 to 0.704
    assert [rises(curve) for curve in ((0.5, 0.8, 0.80, 0.804), flat, (0.5, 0.6, 0.7))] == [
        False,
        False,
        None,
    ]


# Ours


def ours(paper: str, says: str) -> Claim:
    """The claim of a paper whose sentence begins so."""
    return next(claim for claim in claims.load()[paper][1] if claim.says.startswith(says))


def test_what_the_records_alone_do_not_say_is_said():
    for _, known in claims.load().values():
        for claim in known:
            for evidence in claim.evidence:
                if evidence.verdict in ("open", "not comparable"):
                    assert evidence.because or evidence.here, claim.says


def test_the_first_page_is_short_and_says_what_the_papers_have():
    papers = claims.load()
    first = {
        paper: [each.first for claim in known for each in claim.evidence if each.first]
        for paper, (_, known) in papers.items()
    }
    assert all(first.values())
    assert sum(map(len, first.values())) <= 25
    assert all(each.theirs for of in first.values() for each in of)


def test_another_verdict_than_that_of_the_records_is_refused_with_both_words():
    claim = ours("meta-clip", "An adaptive norm")
    wrong = claim.evidence[0].model_copy(update={"verdict": "no"})
    with pytest.raises(DataError, match=r"the records say 'yes'.*and the file 'no'.*studies/claims"):
        claims.verdict(claim, wrong)


def test_each_command_is_of_a_script_that_is_there_or_says_its_commit_and_loses_nothing_after_a_hash():
    made = {each.made_by for _, known in claims.load().values() for claim in known for each in claim.evidence}
    for command in made:
        scripts = re.findall(r"studies/[\w/*.-]+\.(?:py|yaml|sh)", command)
        there = all(list(claims.TESTS.glob(script)) for script in scripts)
        assert there or "at commit" in with_commits(f"`{command}`"), command
    written = "".join(path.read_text(encoding="utf-8") for path in claims.FOLDER.glob("*.yaml"))
    assert re.findall(r"^ *command: (?![\"']).* #.*", written, re.MULTILINE) == []
    assert "python studies/reconstruction.py  # at commit 2f64c651" in made


def test_a_test_that_is_named_must_be_there():
    claim = ours("dpfe", "The entropy")
    lost = claim.evidence[0].model_copy(update={"test": "tests/studies/test_claims.py::test_" + "lost"})
    with pytest.raises(DataError, match=r"test_lost is not there"):
        claims.verdict(claim, lost)


@pytest.mark.parametrize(
    ("paper", "says", "number", "change", "caught"),
    [
        ("fs-pic", "DP-Pix has the lowest SSIM", 0, {"where": {"cell.view": "released"}}, "paper's quantity"),
        ("fs-pic", "On photographs accuracy", 1, {}, "ε of DP-Pix's noise 1 in place of 3"),
        ("mask", "The adversarial step", 0, {}, "no room to fall"),
        ("semsim", "A margin of 1", 0, {}, "network lenet in place of resnet50"),
        ("meta-clip", "Clipping that adapts", 0, {}, "inner noise in lengths of a clipped gradient 112, 116"),
        ("meta-clip", "An adaptive norm", 0, {"learned": (0.25, 0.0)}, "nothing was learned"),
    ],
)
def test_the_faults_of_an_earlier_version_are_caught_in_its_own_records(paper, says, number, change, caught):
    claim = ours(paper, says)
    evidence = claim.evidence[number].model_copy(update=change)
    measure = claims.measure_of(claim, evidence)
    assert caught in claims.judge(claim, evidence, measure, rows(evidence.records, measure.rows)).reason


@pytest.mark.parametrize(
    ("paper", "says", "change", "caught"),
    [
        # Features with a known smile alone; most of what is shown is hair.
        ("dpfe", "Beyond the paper", {"part": ""}, "labelled is 385 of 1483"),
        ("mask", "A mask shows", {"compare": Compare(against=1.0)}, "no outcome can show this"),
    ],
)
def test_what_can_only_fail_or_has_a_part_of_the_data_is_refused_in_ours(paper, says, change, caught):
    claim = ours(paper, says)
    with pytest.raises(DataError, match=caught):
        claims.verdict(claim, claim.evidence[0].model_copy(update=change))


def test_a_row_of_the_quantity_that_no_row_of_the_claim_has_is_refused():
    claim = ours("dpfe", "Features fine-tuned")
    faces = claim.evidence[1].model_copy(update={"where": {"compared": "over plain", "world": "faces"}})
    claim = claim.model_copy(update={"evidence": [faces]})
    with pytest.raises(DataError, match="neither chosen"):
        claims.verdict(claim, faces)
