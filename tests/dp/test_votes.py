"""A task that is not finite takes no part in a step: neither its vector nor its bit moves anything."""

import pytest
import torch

from sfumato.dp.clipping import Quantile


def zero(shape: tuple[int, ...], std: float) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.float64)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_task_that_is_not_finite_has_no_say_in_the_next_norm(value: float):
    """Andrew et al. 2021: C exp(-η (b - γ)); the bits are ±1/2, of the finite tasks alone."""
    rows = torch.tensor([[0.5, 0.0], [2.0, 0.0], [3.0, 0.0], [0.1, value]])
    norms = []
    for tasks in (rows, rows[:3]):
        policy = Quantile(1.0, learning_rate=0.3)
        outcome = policy.step(tasks, noise_multiplier=0.0, public_count=8.0, draw=zero)
        norms.append((policy.norm, outcome.update.tolist(), outcome.zeroed))
    (norm, update, zeroed), (without, same, none) = norms
    assert norm == without
    assert update == same
    assert (zeroed, none) == (True, False)
    fraction = (0.5 - 0.5 - 0.5) / 8 + 0.5
    assert norm == pytest.approx(torch.tensor(-0.3 * (fraction - 0.5)).exp().item())
