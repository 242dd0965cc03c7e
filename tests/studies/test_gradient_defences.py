"""What a client does to its gradients: how much is cut, how much noise there is, and what it may cost."""

import math

import pytest
import torch
from gradient_defences import add_gaussian, add_laplacian, clip_and_noise, dp_sgd_epsilon, prune
from scipy.stats import kstest, laplace, norm

from sfumato.dp.accounting import Stretch, epsilon


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def some(*leading: int) -> dict[str, torch.Tensor]:
    generator = seeded(7)
    shapes = {"conv.weight": (4, 3, 5, 5), "conv.bias": (4,), "head.weight": (10, 8)}
    return {name: torch.randn(*leading, *shape, generator=generator) for name, shape in shapes.items()}


CHANGES = {
    "prune": lambda gradients: prune(gradients, share=0.5),
    "gaussian": lambda gradients: add_gaussian(gradients, scale=0.1, generator=seeded()),
    "laplacian": lambda gradients: add_laplacian(gradients, scale=0.1, generator=seeded()),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_names_shapes_and_types_stay_and_what_came_in_does_too(change):
    gradients = some() | {"half": torch.randn(3, 3, generator=seeded(), dtype=torch.float64)}
    before = {name: gradient.clone() for name, gradient in gradients.items()}
    after = change(gradients)
    assert list(after) == list(before)
    for name, was in before.items():
        assert (after[name].shape, after[name].dtype) == (was.shape, was.dtype)
        assert torch.equal(gradients[name], was)
        assert not torch.equal(after[name], was)


@pytest.mark.parametrize("share", [0.0, 0.29, 0.5, 0.9, 0.99])
def test_of_each_tensor_the_smallest_entries_go_and_as_many_as_were_asked_for(share: float):
    gradients = {"one": torch.randn(10, 10, generator=seeded()), "other": 50 * torch.randn(100)}
    pruned = prune(gradients, share=share)
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
    assert prune({"bias": torch.tensor(values)}, share=share)["bias"].tolist() == kept


@pytest.mark.parametrize(
    ("add", "distribution"),
    [(add_gaussian, norm(scale=0.3)), (add_laplacian, laplace(scale=0.3 / math.sqrt(2)))],
)
def test_noise_has_its_distribution_and_scale_is_its_standard_deviation(add, distribution):
    noisy = add({"zero": torch.zeros(20_000)}, scale=0.3, generator=seeded())["zero"]
    assert noisy.std().item() == pytest.approx(0.3, rel=0.05)
    assert kstest(noisy.numpy(), distribution.cdf).pvalue > 0.001


@pytest.mark.parametrize("add", [add_gaussian, add_laplacian])
def test_noise_repeats_by_its_seed_and_is_another_for_each_tensor_and_none_of_no_scale(add):
    equal = {"one": torch.zeros(5), "other": torch.zeros(5)}
    first, same, third = (add(equal, scale=1.0, generator=seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(first["one"], same["one"])
    assert not torch.equal(first["one"], third["one"])
    assert not torch.equal(first["one"], first["other"])
    assert not add(equal, scale=0, generator=seeded())["one"].any()


def by_hand(gradients: dict[str, torch.Tensor], clipping_norm: float) -> dict[str, torch.Tensor]:
    """The mean of clipped gradients, an example after the other."""
    count = len(gradients["conv.bias"])
    total = {name: torch.zeros(gradient.shape[1:]) for name, gradient in gradients.items()}
    for example in range(count):
        length = math.sqrt(sum(g[example].double().square().sum().item() for g in gradients.values()))
        for name, gradient in gradients.items():
            total[name] += gradient[example] * min(1.0, clipping_norm / length) / count
    return total


@pytest.mark.parametrize("clipping_norm", [1.0, 19.5, 1000.0])
def test_without_noise_it_is_the_mean_of_examples_clipped_over_all_layers_together(clipping_norm: float):
    gradients = some(6)
    mean = clip_and_noise(gradients, clipping_norm=clipping_norm, noise_multiplier=0, generator=seeded())
    for name, expected in by_hand(gradients, clipping_norm).items():
        torch.testing.assert_close(mean[name], expected)


def test_one_example_moves_the_sum_by_no_more_than_the_norm():
    gradients = some(6)
    larger = {k: torch.cat([100 * v[:1], v[1:]]) for k, v in gradients.items()}
    without = {k: torch.cat([0 * v[:1], v[1:]]) for k, v in gradients.items()}
    how = {"clipping_norm": 2.0, "noise_multiplier": 0, "generator": seeded()}
    one, other = (clip_and_noise(each, **how) for each in (larger, without))
    moved = math.sqrt(sum((one[k] - other[k]).square().sum().item() for k in one)) * 6
    assert moved == pytest.approx(2.0, rel=1e-4)


def test_noise_is_drawn_once_for_the_sum_and_divided_by_the_number_of_examples():
    zeros = {"weight": torch.zeros(5, 100, 200)}
    noisy = clip_and_noise(zeros, clipping_norm=3.0, noise_multiplier=0.5, generator=seeded())["weight"]
    assert noisy.shape == (100, 200)
    assert kstest(noisy.flatten().numpy(), norm(scale=0.5 * 3.0 / 5).cdf).pvalue > 0.001


def test_what_it_costs_is_what_the_accountant_says():
    cost = dp_sgd_epsilon(noise_multiplier=1.1, rate=0.01, steps=1000, delta=1e-5)
    assert cost == epsilon([Stretch(1.1, 0.01, 1000)], 1e-5)
    assert 0 < cost < dp_sgd_epsilon(noise_multiplier=1.1, rate=0.01, steps=2000, delta=1e-5)
    assert dp_sgd_epsilon(noise_multiplier=0, rate=0.01, steps=1, delta=1e-5) == math.inf
