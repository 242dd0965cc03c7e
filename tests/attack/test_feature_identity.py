"""Who it is from a feature: posteriors that are known in advance, and nothing where there is nothing."""

import math

import pytest
import torch
from torch import Tensor

from sfumato.assess.log_rank import guessing, judge, log_ranks
from sfumato.attack.reidentify import FEATURE_ADVERSARIES, log_posteriors
from sfumato.errors import ConfigError, DataError


def people(count: int, *, spread: float, seed: int, of: int = 5) -> tuple[Tensor, Tensor]:
    """Features around the corners of a simplex, with a deviation of `spread` in every direction."""
    generator = torch.Generator().manual_seed(seed)
    identities = torch.arange(count) % of
    return 3 * torch.eye(of)[identities] + spread * torch.randn(count, of, generator=generator), identities


def test_the_discriminant_has_the_posteriors_of_gaussians_of_one_covariance():
    features, identities = people(20_000, spread=1.5, seed=0)
    test, _ = people(200, spread=1.5, seed=1)
    found = log_posteriors(features, identities, test, adversary="discriminant")
    true = (-(test[:, None] - 3 * torch.eye(5)).square().sum(2) / (2 * 1.5**2)).double().log_softmax(1)
    assert (found.exp() - true.exp()).abs().mean() < 0.005  # shrunk a little, too


@pytest.mark.parametrize("adversary", FEATURE_ADVERSARIES)
def test_people_who_are_far_apart_are_always_known(adversary: str):
    features, identities = people(100, spread=0.1, seed=0)
    test, truth = people(50, spread=0.1, seed=1)
    found = log_posteriors(features, identities, test, adversary=adversary)
    assert found.argmax(1).tolist() == truth.tolist()
    assert torch.allclose(found.exp().sum(1), torch.ones(50, dtype=torch.float64))
    assert judge(found, truth).lrp < 0.01


@pytest.mark.parametrize("adversary", FEATURE_ADVERSARIES)
def test_features_of_nobody_are_guessed_blindly(adversary: str):
    generator = torch.Generator().manual_seed(0)
    features, test = torch.randn(400, 3, generator=generator), torch.randn(2000, 3, generator=generator)
    found = log_posteriors(features, torch.arange(400) % 10, test, adversary=adversary)
    result = judge(found, torch.arange(2000) % 10)
    assert result.low < guessing(10) < result.high


def test_a_network_knows_people_that_no_line_divides():
    """Two people in the corners of a square, each in two that are opposite."""
    generator = torch.Generator().manual_seed(0)
    corners = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
    rows = torch.arange(400) % 4
    features = corners[rows] + 0.2 * torch.randn(400, 2, generator=generator)
    known, line = (
        log_posteriors(features[:200], (rows // 2)[:200], features[200:], adversary=each)
        for each in ("network", "discriminant")
    )
    truth = (rows // 2)[200:]
    assert (known.argmax(1) == truth).float().mean() > 0.98
    assert (line.argmax(1) == truth).float().mean() < 0.7


def test_columns_are_in_the_order_of_the_codes_and_no_chance_is_zero():
    features, identities = people(100, spread=0.01, seed=0)
    found = log_posteriors(features, 90 - 7 * identities, features, adversary="network")
    assert (4 - found.argmax(1)).tolist() == identities.tolist()
    assert found.isfinite().all()
    assert log_ranks(found, 4 - identities).means.max() <= 5


def test_the_same_seed_gives_the_same_network():
    features, identities = people(100, spread=1.0, seed=0)
    one, again, other = (log_posteriors(features, identities, features, seed=each) for each in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"adversary": "netwrk"}, ConfigError, "did you mean 'network'"),
        ({"test_features": torch.zeros(3, 4)}, DataError, r"\(10, 2\) and test features of \(3, 4\)"),
        ({"identities": torch.zeros(9).long()}, DataError, "10 known features for 9 identities"),
        ({"identities": torch.zeros(10).long()}, DataError, "10 known features of 1 people"),
        ({"identities": torch.arange(10)}, DataError, "10 known features of 10 people"),
        ({"test_features": torch.zeros(0, 2)}, DataError, "no test features"),
        ({"features": torch.full((10, 2), math.nan)}, DataError, "not finite"),
    ],
)
def test_what_nobody_can_learn_from_is_refused(change, error, message: str):
    given = {
        "features": torch.randn(10, 2),
        "identities": torch.arange(10) % 2,
        "test_features": torch.zeros(3, 2),
    }
    with pytest.raises(error, match=message):
        log_posteriors(**given | change)
