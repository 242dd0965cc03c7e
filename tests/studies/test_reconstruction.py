"""studies/reconstruction.py: victims with names of their own, and correlations from records."""

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
    """Of two data sets: one measure ranks victims as judges do, others by chance."""
    records = Rows(tmp_path_factory.mktemp("records") / "records.jsonl")
    for place, name in enumerate(SETS):
        chance, found = drawn(VICTIMS, seed=place + 100), {}
        for row, recognised in enumerate(leaks(place)):
            scores = {measure: chance[row].item() for measure in (POOR, "mse")}
            # Of one data set nothing is said of sets of images.
            scores["frechet"] = None if place else chance[row].item()
            scores["ssim"] = chance.flip(0)[row].item()
            scores[PERFECT] = 1 - recognised.float().mean().item()
            counts = {"recognised": int(recognised.sum()), "items": 20, "who": recognised.tolist()}
            found[f"v{row}"] = {**counts, "scores": scores}
        records[f"{name}-{reconstruction.READ}"] = {"victims": found}
        learned = {victim: 1 - each["recognised"] / 20 for victim, each in found.items()}
        for seed in reconstruction.SEEDS:
            records[f"semsim-{name}-{seed}"] = {"distances": learned}
    return records


def test_every_victim_has_a_name_of_its_own_and_no_judge_the_network_of_a_measure_or_a_victim():
    assert len({each.name for each in reconstruction.VICTIMS}) == len(reconstruction.VICTIMS) == 22
    assert not {"linear", reconstruction.PUBLISHED.network, "squeeze-net"} & set(reconstruction.JUDGES)


def test_a_correlation_is_kendalls_by_scipy_turned_so_that_1_is_agreement(records: Rows):
    found = reconstruction.correlations(SETS, records)["tables"][reconstruction.READ]
    for name in SETS:
        record = records[f"{name}-{reconstruction.READ}"]["victims"].values()
        shares = [each["recognised"] / each["items"] for each in record]
        expected = stats.kendalltau([each["scores"]["mse"] for each in record], shares).statistic
        rows = found["rows"][name]
        assert rows["mse"][0]["kendall"]["value"] == pytest.approx(-expected)
        assert rows[PERFECT][0]["kendall"]["value"] == pytest.approx(1)
        # A learned measure has one for each seed, and one that a data set lacks is left out.
        assert [each["kendall"]["value"] for each in rows["semsim"]] == pytest.approx([1, 1, 1])
        assert "frechet" not in rows
    # The judges' own stands beside them, and is high where victims differ.
    assert all(each["kendall"]["value"] > 0.8 for each in found["reliability"].values())


@pytest.mark.parametrize("share", [0.0, 0.29, 0.5, 0.9, 0.99])
def test_of_each_tensor_the_smallest_entries_go_and_as_many_as_were_asked_for(share: float):
    gradients = {
        "one": torch.randn(10, 10, generator=torch.Generator().manual_seed(0)),
        "other": 50 * torch.randn(100),
        "equal": torch.ones(100),
    }
    pruned = reconstruction.prune(gradients, share=share)
    for name, gradient in gradients.items():
        gone = pruned[name] == 0
        assert gone.sum() == round(100 * share)
        assert torch.equal(pruned[name][~gone], gradient[~gone])
        if gone.any():
            assert gradient[gone].abs().max() <= gradient[~gone].abs().min()
    three = reconstruction.prune({"bias": torch.tensor([3.0, -1, 2])}, share=0.99)["bias"]
    assert three.tolist() == [3, 0, 0]  # a fraction of an entry stays
