"""Claims of papers: planted faults are caught, verdicts can come out either way, ours are the records'."""

from dataclasses import replace
from typing import Any

import claims
import pytest
from claims import Claim, Compare, Contrast, Evidence, Measure
from tables import at, matches, of_spec, rises, rows

from sfumato.errors import DataError

MEASURE = Measure(rows="plain", value="accuracy", where={"view": "denoised"})
EVIDENCE = Evidence(
    data="photographs",
    verdict="holds",
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
# Two of three seeds have but one setting.
FEWER = [row for row in trained(0.1) if row["setting"] == 2.0 or row["seed"] == 0]


@pytest.mark.parametrize(
    ("known", "changes", "word", "reason"),
    [
        (trained(0.1), {}, "holds", "shown in 2 of 2"),
        (trained(-0.1), {}, "fails", "contradicted in 2"),
        # Paired by seed, what both models share does not count; what only one has, does.
        (NOISY, {}, "holds", "shown in 2 of 2"),
        ([row | {"accuracy": 0.6} if row["model"] == "old" else row for row in NOISY], {}, "no power", ""),
        # A wrong view, epsilon or backbone
        (trained(view="released"), {"where": {}}, "another regime", "is not the paper's quantity"),
        (trained(epsilon=1.0), {}, "another regime", "ε 1 in place of 3. There: holds, shown in 2 of 2"),
        (trained(network="lenet"), {}, "another regime", "network lenet in place of resnet50"),
        # At the ceiling nothing can rise, and at the floor nothing can fall.
        (trained(-0.1, old=0.99), {}, "no power", "no room to rise"),
        (trained(0.1), BELOW, "no power", "no room to fall"),
        (trained(0.004, old=0.21), {}, "no power", "nothing was learned"),
        # One seed; without an interval over episodes; the contrast with the fewest seeds decides.
        (trained(0.1, seeds=1), {"half": "half"}, "holds in part", "shown in 2 of 2, 1 of 3 seeds"),
        (trained(-0.1, seeds=1), {"half": "half"}, "no power", "1 of 3 seeds"),
        (trained(0.1, seeds=1), {}, "no power", "1 of 3 seeds"),
        (FEWER, {"half": "half"}, "holds in part", "shown in 2 of 2, 1 of 3 seeds"),
        # What still rose does not decide against a sentence.
        (trained(validation=RISING), {}, "holds in part", "most trainings still rose"),
        (trained(-0.1, validation=RISING), {}, "no power", "most trainings still rose"),
        (trained(seeds=1, validation=RISING), {"half": "half"}, "no power", "most trainings still rose"),
    ],
)
def test_a_verdict_comes_out_either_way_and_planted_faults_are_caught(known, changes, word, reason):
    judged = judge(known, **changes)
    assert judged.word == word
    assert reason in judged.reason


def test_a_sentence_about_several_settings_holds_in_part_where_it_is_shown():
    mixed = [row for gap, of in ((0.1, 2.0), (-0.1, 10.0)) for row in trained(gap) if row["setting"] == of]
    judged = judge(mixed)
    assert (judged.word, judged.reason) == ("holds in part", "shown in 1 of 2, contradicted in 1: 2")
    assert judge(mixed, needs="every").word == "fails"


def test_records_that_do_not_say_what_the_regime_was_are_refused():
    silent = [{key: value for key, value in row.items() if key != "network"} for row in trained()]
    with pytest.raises(DataError, match="no row has network: the records do not show the network"):
        judge(silent)


def test_rows_that_are_left_out_without_a_reason_are_refused():
    some = {"where": {"view": "denoised", "setting": 2.0}}
    with pytest.raises(DataError, match=r"6 rows have accuracy and are neither chosen nor left out.*setting"):
        judge(trained(), **some)
    assert judge(trained(), **some, left_out={"too coarse": {"setting": 10.0}}).word == "holds"


# Contrasts


def contrast(gap: float, half: float = 0.01) -> Contrast:
    return Contrast("", 0.5 + gap, 0.5, gap, half, 3, "")


def test_what_is_above_0_and_below_the_papers_effect_is_judged_by_both():
    claimed = Compare(claimed=0.03)
    assert [contrast(gap).outcome(claimed) for gap in (0.02, 0.005, -0.005)] == ["yes", "no", "no"]
    assert contrast(0.025, 0.03).outcome(claimed) == "open"
    assert contrast(-0.02).outcome(Compare(allowed=0.04)) == "yes"


def test_one_of_many_contrasts_comes_by_chance():
    few = [contrast(0.1), *[contrast(0.0, 0.1)] * 16]
    assert claims.decide(few, Compare(), "each")[0] == "no power"
    assert claims.decide([contrast(0.1)] * 3 + few[3:], Compare(), "each")[0] == "holds in part"


def test_contrasts_of_one_data_set_may_all_say_the_same_by_one_chance():
    lfw = [replace(contrast(0.1), data="lfw")] * 3
    others = [replace(contrast(0.0, 0.1), data=name) for name in ("cmu", "faces")]
    assert claims.decide([*lfw, *others], Compare(), "each")[0] == "no power"
    shown = [*lfw, replace(lfw[0], data="cmu")]
    assert claims.decide([*shown, *others], Compare(), "each")[0] == "holds in part"


@pytest.mark.parametrize(
    ("order", "word"), [("falling", "fails"), ("rising", "holds"), ("peak inside", "fails")]
)
def test_values_in_an_order_are_compared_step_by_step(order, word):
    known = [
        {"size": size, "seed": seed, "record": "", "accuracy": size + seed / 100}
        for size in (2, 10, 4)
        for seed in range(3)
    ]
    compare = Compare(across="size", order=order)
    ordered = Evidence(data="", verdict="holds", compare=compare, needs="every")
    claim = Claim(says="", quantity="", regime="", evidence=[ordered])
    judged = claims.judge(claim, ordered, Measure(rows="plain", value="accuracy"), known)
    assert len(judged.contrasts) == 2
    assert judged.word == word


def test_a_value_is_compared_with_a_number_or_a_column_of_its_row():
    known = [row | {"chance": 0.65} for row in trained()]
    against = {"compare": Compare(against="chance", within=["model", "setting"]), "room": None}
    assert [each.gap > 0 for each in judge(known, **against).contrasts] == [True, True, False, False]
    against = {"compare": Compare(against=0.65, within=["model", "setting"]), "room": None}
    assert judge(known, **against).word == "holds in part"


def test_several_rows_of_one_seed_need_a_word_how_they_become_one():
    both = {"compare": Compare(across="model", ours="new")}
    with pytest.raises(DataError, match="2 rows of one seed, 0, have accuracy: say `reduce`"):
        judge(trained(), **both)
    least = both["compare"].model_copy(update={"reduce": "min"})
    assert judge(trained(), compare=least).word == "holds"


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
                if evidence.verdict in ("no power", "another regime", "cannot be checked"):
                    assert evidence.because or evidence.here, claim.says


def test_another_verdict_than_that_of_the_records_is_refused_with_both_words():
    claim = ours("meta-clip", "An adaptive norm")
    wrong = claim.evidence[0].model_copy(update={"verdict": "fails"})
    with pytest.raises(DataError, match=r"the records say 'holds'.*and the file 'fails'.*studies/claims"):
        claims.verdict(claim, wrong)


def test_a_test_that_is_named_must_be_there():
    claim = ours("dpfe", "The entropy")
    lost = claim.evidence[0].model_copy(update={"test": "tests/studies/test_claims.py::test_" + "lost"})
    with pytest.raises(DataError, match=r"test_lost is not there"):
        claims.verdict(claim, lost)


@pytest.mark.parametrize(
    ("paper", "says", "number", "change", "caught"),
    [
        ("fs-pic", "DP-Pix has the lowest SSIM", 0, {"where": {"cell.view": "released"}}, "paper's quantity"),
        ("fs-pic", "On photographs accuracy", 2, {}, "ε of DP-Pix's noise 1 in place of 3"),
        ("mask", "The adversarial step", 0, {}, "no room to fall"),
        ("semsim", "SemSim agrees with people", 1, {}, "network lenet in place of resnet50"),
        ("fs-pic", "A denoiser in front", 1, {"seeds": 3}, "1 of 3 seeds"),
        ("meta-clip", "An adaptive norm", 0, {"learned": (0.25, 0.0)}, "nothing was learned"),
    ],
)
def test_the_faults_of_an_earlier_version_are_caught_in_its_own_records(paper, says, number, change, caught):
    claim = ours(paper, says)
    evidence = claim.evidence[number].model_copy(update=change)
    measure = claims.measure_of(claim, evidence)
    assert caught in claims.judge(claim, evidence, measure, rows(evidence.records, measure.rows)).reason


def test_a_row_of_the_quantity_that_no_row_of_the_claim_has_is_refused():
    claim = ours("dpfe", "Features fine-tuned")
    faces = claim.evidence[1].model_copy(update={"where": {"compared": "over plain", "world": "faces"}})
    claim = claim.model_copy(update={"evidence": [faces]})
    with pytest.raises(DataError, match="neither chosen"):
        claims.verdict(claim, faces)
