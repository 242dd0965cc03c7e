import pytest
import torch

from sfumato.learn.prototypes import (
    episode_accuracies,
    prototype_logits,
    prototypes,
    support_weights,
)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_logits_are_minus_the_squared_distances():
    queries, means = normal(6, 8), normal(3, 8, seed=1)
    expected = [[-float((q - p).square().sum()) for p in means] for q in queries]
    torch.testing.assert_close(prototype_logits(queries, means), torch.tensor(expected))


def test_a_prototype_is_the_mean_of_its_support():
    support = normal(3, 5, 8)
    expected = torch.stack([sum(rows) / 5 for rows in support])
    torch.testing.assert_close(prototypes(support), expected)


@pytest.mark.parametrize("episodes", [7, 130])  # 130: more than are judged at a time
def test_episode_accuracy_agrees_with_a_plain_loop(episodes):
    generator = torch.Generator().manual_seed(1)
    embeddings = torch.randn(40, 4, generator=generator)
    places = torch.stack([torch.randperm(40, generator=generator)[:18].view(3, 6) for _ in range(episodes)])
    expected = []
    for episode in places:
        means = [(embeddings[rows[0]] + embeddings[rows[1]]) / 2 for rows in episode]
        hits = [
            min(range(3), key=lambda c: float((embeddings[row] - means[c]).norm())) == label
            for label, rows in enumerate(episode)
            for row in rows[2:]
        ]
        expected.append(sum(hits) / len(hits))
    found = episode_accuracies(embeddings, places, shot=2)
    assert found.tolist() == pytest.approx(expected)


def grouped(slopes, deviations, *, classes=400, each=12):
    """Embeddings of classes around prototypes, drawn to the middle and noised by group."""
    prototypes_of = normal(classes, 8)
    codes = torch.arange(classes).repeat_interleave(each)
    groups = torch.arange(classes * each) % len(slopes)
    slope, deviation = torch.tensor(slopes)[groups, None], torch.tensor(deviations)[groups, None]
    errors = torch.randn(len(codes), 8, generator=torch.Generator().manual_seed(9))
    return 3 + slope * prototypes_of[codes] + deviation * errors, codes, groups


@pytest.mark.parametrize(
    ("slopes", "deviations"), [((1.0, 1.0), (0.5, 2.0)), ((1.0, 0.3), (0.5, 0.5)), ((1.0, 0.5), (1.0, 0.2))]
)
def test_support_weights_are_the_slope_over_the_variance(slopes, deviations):
    found = support_weights(*grouped(slopes, deviations))
    expected = torch.tensor(slopes) / torch.tensor(deviations).square()
    assert found.mean().item() == pytest.approx(1)
    assert (found[0] / found[1]).item() == pytest.approx((expected[0] / expected[1]).item(), rel=0.1)


def test_a_group_that_tells_nothing_weighs_nothing():
    found = support_weights(*grouped((1.0, 0.0), (0.3, 1.0)))
    assert found[1] < 0.05 * found[0]


def test_embeddings_that_are_all_equal_weigh_alike():
    codes = torch.arange(4).repeat_interleave(4)
    found = support_weights(torch.ones(16, 3), codes, torch.arange(16) % 2)
    assert found.tolist() == [1, 1]
