"""studies/reconstruction.py: victims with names of their own, and tables of correlations from records."""

import statistics

import pytest
import reconstruction
import torch
from rows import Rows
from scipy import stats

SETS = ("cats", "dogs")
VICTIMS = 7
PERFECT, POOR = "squeezenet", "psnr"


def drawn(*shape: int, seed: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def leaks(seed: int) -> torch.Tensor:
    """(victims, images) bool: each victim leaks more than the one before."""
    return drawn(VICTIMS, 20, seed=seed) < torch.linspace(0, 1, VICTIMS)[:, None]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """Of two data sets and both attacks: one measure ranks victims as judges do, others by chance."""
    records = Rows(tmp_path_factory.mktemp("records") / "records.jsonl")
    for place, name in enumerate(SETS):
        learned = {}
        for number, attack in enumerate(reconstruction.ATTACKS):
            seed = 10 * place + number
            who = leaks(seed)
            chance = drawn(VICTIMS, seed=seed + 100)
            found = {}
            for row, recognised in enumerate(who):
                by_chance = {measure: chance[row].item() for measure in (POOR, "mse", "frechet")}
                if attack == reconstruction.SEARCHED:
                    by_chance["frechet"] = None
                scores = {**by_chance, "ssim": chance.flip(0)[row].item()}
                scores[PERFECT] = 1 - recognised.float().mean().item()
                counts = {"recognised": int(recognised.sum()), "items": 20, "who": recognised.tolist()}
                found[f"v{row}"] = {**counts, "scores": scores}
            records[f"{name}-{attack}"] = {"victims": found}
            learned[attack] = {victim: 1 - each["recognised"] / 20 for victim, each in found.items()}
        for seed in reconstruction.SEEDS:
            records[f"semsim-{name}-{seed}"] = {
                "images": {a: {v: [value] * 3 for v, value in each.items()} for a, each in learned.items()}
            }
    return records


@pytest.fixture(scope="module")
def found(records: Rows) -> dict:
    return reconstruction.correlations(SETS, records)["tables"]


def test_every_victim_has_a_name_of_its_own_under_its_attack():
    for attack in reconstruction.ATTACKS:
        attacked = reconstruction.VICTIMS[attack]
        assert all(each.attack == attack for each in attacked)
        assert len({each.name for each in attacked}) == len(attacked) >= 7


def test_a_correlation_is_kendalls_by_scipy_turned_so_that_1_is_agreement(records: Rows, found: dict):
    found = found[reconstruction.READ]
    for name in SETS:
        record = records[f"{name}-{reconstruction.READ}"]["victims"].values()
        shares = [each["recognised"] / each["items"] for each in record]
        expected = stats.kendalltau([each["scores"]["mse"] for each in record], shares).statistic
        assert found["rows"][name]["mse"][0]["kendall"]["value"] == pytest.approx(-expected)
        assert found["rows"][name][PERFECT][0]["kendall"]["value"] == pytest.approx(1)
    values = [found["rows"][name][POOR][0]["kendall"]["value"] for name in SETS]
    assert found["means"][POOR] == pytest.approx(statistics.mean(values))
    assert found["best_hand_made"] == PERFECT


def test_a_learned_measure_as_good_as_the_best_is_ahead_of_it_by_nothing(found: dict):
    found = found[reconstruction.POOLED]
    assert len(found["rows"]["cats"]["semsim"]) == len(reconstruction.SEEDS)
    assert all(end == pytest.approx(0) for each in found["ahead"].values() for end in each.values())


def test_all_victims_are_those_of_both_attacks_and_a_measure_that_one_lacks_is_left_out(found: dict):
    assert "frechet" in found[reconstruction.READ]["means"]
    assert "frechet" not in found[reconstruction.SEARCHED]["means"]
    assert "frechet" not in found[reconstruction.POOLED]["means"]


def test_the_judges_own_reliability_stands_beside_and_is_high_where_victims_differ(found: dict):
    found = found[reconstruction.POOLED]
    assert all(each["kendall"]["value"] > 0.8 for each in found["reliability"].values())


@pytest.mark.parametrize("share", [0.0, 0.29, 0.5, 0.9, 0.99])
def test_of_each_tensor_the_smallest_entries_go_and_as_many_as_were_asked_for(share: float):
    gradients = {
        "one": torch.randn(10, 10, generator=torch.Generator().manual_seed(0)),
        "other": 50 * torch.randn(100),
    }
    pruned = reconstruction.prune(gradients, share=share)
    for name, gradient in gradients.items():
        gone = pruned[name] == 0
        assert gone.sum() == round(100 * share)
        assert torch.equal(pruned[name][~gone], gradient[~gone])
        if gone.any():
            assert gradient[gone].abs().max() <= gradient[~gone].abs().min()


@pytest.mark.parametrize(
    ("values", "share", "kept"),
    [
        ([1.0, -1, 1, 1, -1, 1, 1, 1, 1, 1], 0.9, [0] * 9 + [1]),  # of equal ones no more than were asked for
        ([3.0, -1, 2], 0.99, [3, 0, 0]),  # a fraction of an entry stays
    ],
)
def test_as_many_entries_go_as_are_whole(values: list[float], share: float, kept: list[float]):
    assert reconstruction.prune({"bias": torch.tensor(values)}, share=share)["bias"].tolist() == kept
