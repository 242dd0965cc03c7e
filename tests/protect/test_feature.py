"""Private features on the device: the noise that was asked for, and a claim only where one is proved."""

import math
from pathlib import Path
from statistics import NormalDist

import pytest
import torch
from torch import Tensor

from sfumato import artefacts
from sfumato.device.jobs import releasing
from sfumato.device.ledger import Ledger
from sfumato.device.ledger.budgets import Budget
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import BudgetExceededError, DataError
from sfumato.protect import feature as features
from sfumato.protect.feature import Feature, load_extractor, make_sides, noisy
from sfumato.protect.vectors import GRID, clip_and_noise, unpack_numbers

SHAPE = (3, 18, 20)
COVARIANCE = torch.tensor([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 0.5]])


@pytest.fixture
def artefact(tmp_path: Path) -> str:
    """An extractor that nobody trained."""
    card = {"kind": features.KIND, "shape": list(SHAPE), "classes": {"light": ["dark", "bright"]}}
    card["config"] = {"widths": [4] * 7, "cut": "conv4_2", "dimension": 3}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        side, _, _ = make_sides(card)
    side.covariance.copy_(COVARIANCE)
    path = tmp_path / "feature.safetensors"
    artefacts.save(path, {f"device.{k}": v for k, v in side.state_dict().items()}, card)
    return str(path)


def pictures(count: int = 5, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, *SHAPE), generator=generator).to(torch.uint8)


# What is released


def test_without_noise_the_release_is_the_extractors_output(artefact: str):
    release = Feature(artefact, noise=0.0).release(pictures(), seeded_noise(0))
    with torch.no_grad():
        expected = load_extractor(artefact).network(pictures() / 255)
    torch.testing.assert_close(release.values, expected)
    assert release.values.dtype == torch.float32
    assert release.values.shape == (5, 3)


def test_a_few_numbers_leave_the_device(artefact: str):
    release = Feature(artefact, noise=0.5).release(pictures(), seeded_noise(0))
    assert release.bytes_per_image == 12  # of an image of 1,080 bytes
    packets = release.pack()
    assert [len(packet) for packet in packets] == [12] * 5
    back = unpack_numbers(packets, spec=release.spec, dimension=3)
    assert torch.equal(back.values, release.values)
    assert back.spec == release.spec == f"feature:artefact={artefact},noise=0.5"


def test_the_noise_has_the_covariance_of_the_features_times_the_ratio():
    drawn = noisy(torch.full((40_000, 3), 5.0), COVARIANCE, seeded_noise(0), ratio=0.5)
    # 40,000 draws: a standard error of 0.7% of a variance of 1.
    torch.testing.assert_close(drawn.T.cov(), 0.5 * COVARIANCE, atol=0.04, rtol=0)
    torch.testing.assert_close(drawn.mean(0), torch.full((3,), 5.0), atol=0.03, rtol=0)


def test_a_release_has_the_noise_that_its_spec_says_of_the_covariance_of_the_artefact(artefact: str):
    clear = Feature(artefact, noise=0.0).release(pictures(), seeded_noise(0)).values
    released = Feature(artefact, noise=2.0).release(pictures(), seeded_noise(1)).values
    assert torch.equal(released, noisy(clear, COVARIANCE, seeded_noise(1), ratio=2.0))
    assert not torch.equal(released, clear)


def test_a_release_with_a_norm_is_clipped_to_it_and_has_the_noise_of_its_guarantee(artefact: str):
    clear = Feature(artefact, noise=0.0).release(pictures(), seeded_noise(0)).values
    norm = clear.norm(dim=1).median().item()
    released = Feature(artefact, noise=0.5, norm=norm).release(pictures(), seeded_noise(1)).values
    assert torch.equal(released, clip_and_noise(clear, seeded_noise(1), norm=norm, variance=0.5))
    clipped = Feature(artefact, noise=0.0, norm=norm).release(pictures(), seeded_noise(1)).values
    assert clipped.norm(dim=1).max() <= norm * (1 + 1e-6)
    torch.testing.assert_close(clipped[clear.norm(dim=1) <= norm], clear[clear.norm(dim=1) <= norm])
    loose = Feature(artefact, noise=0.0, norm=4 * norm).release(pictures(), seeded_noise(1)).values
    torch.testing.assert_close(loose, clear)


def test_fresh_noise_for_every_image_and_the_same_for_one_seed(artefact: str):
    for norm in (None, 2.0):
        protection = Feature(artefact, noise=1.0, norm=norm)
        one, two, other = (protection.release(pictures(), seeded_noise(seed)).values for seed in (0, 0, 1))
        assert torch.equal(one, two)
        assert not (one == other).any()
        assert protection.draws_noise
    assert not Feature(artefact, noise=0.0).draws_noise


# By the ledger of a device


def test_a_budget_holds_what_is_proved_of_a_feature_and_nothing_of_one_without_a_norm(
    artefact: str, tmp_path: Path
):
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.set_budget(Budget.parse("rho=10"))
        releasing.release(Feature(artefact, noise=2.0, norm=3.0), pictures(1), ledger)  # 2 * 3^2 / 2 = 9
        with pytest.raises(BudgetExceededError, match="1 of 10 is left"):
            releasing.release(Feature(artefact, noise=4.0, norm=2.0), pictures(1), ledger)  # 2 more
        with pytest.raises(BudgetExceededError, match="nothing is proved of it"):
            releasing.release(Feature(artefact, noise=4.0), pictures(1), ledger)


# Clipping, and what is proved


def test_a_clipped_feature_has_at_most_the_norm_and_one_within_stays():
    values = torch.randn(2000, 6, generator=torch.Generator().manual_seed(0)) * 3
    tiny = 1e-18  # noise that is 0 but for one draw in e^500,000
    clipped = clip_and_noise(values, seeded_noise(0), norm=4.0, variance=tiny).double()
    assert clipped.norm(dim=1).max() <= 4.0
    within = values.norm(dim=1) <= 4.0
    assert 100 < within.sum() < 1900
    assert (clipped[within] - values[within]).abs().max() < 1 / GRID + 1e-6
    outside = values[~within].double()
    expected = outside * 4 / outside.norm(dim=1, keepdim=True)
    assert (clipped[~within] - expected).abs().max() < 1 / GRID + 1e-6


def test_a_clipped_feature_has_the_guarantee_of_the_gaussian_mechanism():
    guarantee = Feature("a", noise=4.0, norm=3.0).guarantee(SHAPE)
    assert guarantee.definition == "concentrated"
    assert guarantee.value == guarantee.whole_image == (2 * 3.0) ** 2 / (2 * 4.0)
    assert Feature("a", noise=4.0, norm=3.0).guarantee(SHAPE, pixels=50).value == guarantee.value
    epsilon = guarantee.to("approximate", delta=1e-5).value
    # Bun & Steinke 2016, Prop. 1.3, which is looser.
    assert 0 < epsilon <= 4.5 + 2 * math.sqrt(4.5 * math.log(1e5))


def test_naming_by_a_clipped_feature_is_bounded_from_the_middle_of_the_ball():
    """Phi(Phi^-1(pi) + c/sigma), with the radius c; by the diameter nothing would be proved here."""
    naming = Feature("a", noise=4.0, norm=3.0).guarantee(SHAPE).naming(candidates=100)
    normal = NormalDist()
    assert naming.chance == pytest.approx(normal.cdf(normal.inv_cdf(0.01) + 3.0 / 2.0), rel=1e-4)
    assert naming.chance < 0.21


def test_little_noise_for_the_grid_of_numbers_has_no_centre():
    assert Feature("a", noise=1e-5, norm=3.0).guarantee(SHAPE).centre is None


@pytest.mark.parametrize("settings", [{"noise": 4.0}, {"noise": 0.0}, {"noise": 0.0, "norm": 3.0}])
def test_nothing_is_claimed_without_a_norm_or_without_noise(settings):
    assert Feature("a", **settings).guarantee(SHAPE) is None


def test_features_that_are_no_numbers_are_never_released_under_a_guarantee():
    for bad in (math.nan, math.inf):
        with pytest.raises(DataError, match="cannot be clipped"):
            clip_and_noise(torch.tensor([[1.0, bad]]), seeded_noise(0), norm=1.0, variance=1.0)


def test_a_covariance_of_other_features_is_refused():
    with pytest.raises(DataError, match=r"covariance of \(3, 3\) for features of 4 numbers"):
        noisy(torch.zeros(2, 4), torch.eye(3), seeded_noise(0), ratio=1.0)


def test_packets_of_another_length_are_refused():
    with pytest.raises(DataError, match="a packet of 11 bytes is not a feature of 3 numbers, which has 12"):
        unpack_numbers([b"x" * 12, b"x" * 11], spec="feature", dimension=3)
    assert unpack_numbers([], spec="feature", dimension=3).values.shape == (0, 3)
