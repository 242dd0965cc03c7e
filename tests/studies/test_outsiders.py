"""studies/outsiders.py: classifiers of scikit-learn, and what they read of a release."""

import numpy as np
import outsiders
import pytest
import torch

from sfumato import protect
from sfumato.dp.mechanisms import seeded_noise

DIMENSIONS = 12


def photographs(people: np.ndarray, *, seed: int) -> np.ndarray:
    """Values that differ from person to person by much, and from photograph to photograph by little."""
    means = 10 * np.random.default_rng(0).normal(size=(people.max() + 1, DIMENSIONS))
    return means[people] + np.random.default_rng(seed).normal(size=(len(people), DIMENSIONS))


def test_each_names_all_whose_values_lie_far_apart_and_nobody_by_values_of_others():
    known, asked = np.repeat(np.arange(6), 5), np.repeat(np.arange(6), 3)
    learned = np.repeat(np.arange(6, 16), 5)
    values = (
        photographs(known, seed=1),
        known,
        photographs(asked, seed=2),
        photographs(learned, seed=3),
        learned,
    )
    guesses = dict(outsiders.named(*values, seed=0))
    assert len(guesses) == 9 + 2  # of ten people there are nine discriminants at most
    for name, guess in guesses.items():
        assert (guess == asked).mean() > 0.9, name
        assert (guess == (asked + 1) % 6).mean() < 0.1, name


@pytest.mark.parametrize(
    ("spec", "ways"),
    [
        ("pixelize:cell=2", {"": 3 * 16 * 16, ", 4x4 means": 3 * 4 * 4}),
        ("pixelize:cell=8", {"": 3 * 4 * 4}),
        ("gaussian:sigma=40", {", 2x2 means": 3 * 16 * 16, ", 4x4 means": 3 * 8 * 8}),
    ],
)
def test_few_values_are_read_as_they_are_and_many_by_means(spec: str, ways: dict[str, int]):
    images = torch.randint(
        0, 256, (2, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    released = protect.parse(spec).release(images, seeded_noise(0))
    found = outsiders.readings(released)
    assert {way: values.shape[1] for way, values in found.items()} == ways
    if ", 4x4 means" in found:
        first = released.values[0, 0, :4, :4].float().mean() / 255
        assert found[", 4x4 means"][0, 0].item() == pytest.approx(first.item())
