"""Quick batch norms against PyTorch's own: outputs, gradients, and gradients of gradients."""

import copy

import pytest
import torch
from torch import nn

from sfumato.learn.adaptation import with_quick_norms


def both(channels: int) -> tuple[nn.Module, nn.Module]:
    """PyTorch's own, with a scale of both signs, and ours."""
    norm = nn.BatchNorm2d(channels, track_running_stats=False).double()
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm, with_quick_norms(copy.deepcopy(norm))


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def test_gradients_and_their_gradients_are_those_of_finite_differences():
    norm = both(3)[1]
    rows = torch.randn(3, 3, 2, 2, dtype=torch.double, requires_grad=True)

    def function(rows, weight, bias):
        return torch.func.functional_call(norm, {"weight": weight, "bias": bias}, (rows,))

    given = rows, norm.weight, norm.bias
    assert torch.autograd.gradcheck(function, given)
    assert torch.autograd.gradgradcheck(function, given)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_step_learned_through_a_step_is_that_of_pytorch(layout):
    rows = torch.randn(5, 4, 6, 6, dtype=torch.double).contiguous(memory_format=layout)
    found = []
    for norm in both(4):
        inner = norm(rows).relu().square().sum()
        gradients = torch.autograd.grad(inner, list(norm.parameters()), create_graph=True)
        learned = {
            name: each - 0.1 * gradient
            for (name, each), gradient in zip(norm.named_parameters(), gradients, strict=True)
        }
        outer = torch.func.functional_call(norm, learned, (rows.flip(0) ** 3,)).relu().sum()
        found.append(torch.cat(torch.autograd.grad(outer, list(norm.parameters()))))
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-9)


def test_norms_with_running_statistics_are_left_as_they_are():
    norm = with_quick_norms(nn.BatchNorm2d(2))
    assert "forward" not in vars(norm)


def test_one_number_a_channel_is_refused_in_the_words_of_pytorch():
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        both(2)[1](torch.zeros(1, 2, 1, 1, dtype=torch.double))
