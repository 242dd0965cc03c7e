import pytest
import torch

from sfumato.learn.prototypes import episode_accuracies, prototype_logits


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_logits_are_minus_the_squared_distances():
    queries, means = normal(6, 8), normal(3, 8, seed=1)
    expected = [[-float((q - p).square().sum()) for p in means] for q in queries]
    torch.testing.assert_close(prototype_logits(queries, means), torch.tensor(expected))


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
