"""Prototypes of noisy codes: posterior means, against exact Bayes, and what they promise of few examples."""

from pathlib import Path

import numpy as np
import pytest
import torch
from cloud import refusing
from scipy import integrate

from sfumato import artefacts
from sfumato.errors import ArtefactError
from sfumato.learn import code_prototypes
from sfumato.learn.code_prototypes import BITS, CodePrototypes, Spread, measure_spread, part_left
from sfumato.learn.prototypes import prototype_logits
from sfumato.networks.code import make_code_network
from sfumato.protect.code import Code


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def of_bits(count: int, spread: Spread = BITS) -> CodePrototypes:
    return CodePrototypes(count, count, spread)


def unbiased(ones: int, examples: int, left: float) -> float:
    """The mean of so many noisy examples of a bit, divided by what is left of it."""
    return (2 * ones / examples - 1) / left


def posterior(
    made: CodePrototypes, means: list[float], weights: list[float], examples: list[int]
) -> list[float]:
    """Of one number a class."""
    found, _ = made.posterior(np.array(means)[:, None], np.array(weights), np.array(examples))
    return found[:, 0].tolist()


def of_tensors(
    made: CodePrototypes, means: torch.Tensor, weights: torch.Tensor, examples: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    found, shots = made.posterior(means.numpy(), weights.numpy(), examples.numpy())
    return torch.from_numpy(found), torch.from_numpy(shots)


@pytest.mark.parametrize("between", [0.2, 0.5, 0.9])
@pytest.mark.parametrize(("ones", "examples"), [(0, 1), (3, 5), (40, 45), (900, 1000)])
def test_of_bits_it_is_the_integral_for_any_prior(between: float, ones: int, examples: int):
    a, left = (1 / between - 1) / 2, 0.6

    def posterior_density(x: float) -> float:  # but for the prior, which is the weight of the integral
        q = (1 + left * x) / 2
        top = ones / examples
        return (
            (q / top) ** ones * ((1 - q) / (1 - top)) ** (examples - ones)
            if ones
            else (2 * (1 - q)) ** examples
        )

    def integral(power: int) -> float:
        return integrate.quad(
            lambda x: x**power * posterior_density(x), -1, 1, weight="alg", wvar=(a - 1, a - 1), limit=500
        )[0]

    made = of_bits(1, Spread(1 - between, between))
    (found, _) = posterior(
        made, [unbiased(ones, examples, left), 0.0], [left**2 * examples, left**2], [examples, 1]
    )
    assert found == pytest.approx(integral(1) / integral(0), abs=1e-3 if examples > 500 else 1e-6)


@pytest.mark.parametrize("examples", [1, 5, 100, 4000, 10**6])
def test_of_bits_without_noise_it_is_the_mean_of_the_known_beta_posterior(examples: int):
    ones = examples * 4 // 5
    made = of_bits(1, Spread(1 / 3, 2 / 3))
    found = posterior(made, [unbiased(ones, examples, 1), 0.0], [examples, 2], [examples, 2])
    expected = (2 * ones - examples) / (examples + 0.5)  # a = 1/4
    assert found == pytest.approx([expected, 0.0], abs=2e-4 if examples > 4096 else 1e-9)


def test_bits_of_noise_of_two_sizes_are_as_one_of_between():
    """A class of examples that were flipped by 0.1 and by 0.3, against the product of both likelihoods."""
    lefts, ones, counts = [0.8, 0.4], [9, 6], [10, 10]
    weights = [left**2 * n for left, n in zip(lefts, counts, strict=True)]
    means = [unbiased(s, n, left) for s, n, left in zip(ones, counts, lefts, strict=True)]
    together = sum(w * m for w, m in zip(weights, means, strict=True)) / sum(weights)
    (found, _) = posterior(of_bits(1, Spread(2 / 3, 1 / 3)), [together, 0.0], [sum(weights), 1], [20, 1])
    x = torch.linspace(-1, 1, 20_001, dtype=torch.float64)
    density = torch.ones_like(x)
    for left, s, n in zip(lefts, ones, counts, strict=True):
        density = density * ((1 + left * x) / 2) ** s * ((1 - left * x) / 2) ** (n - s)
    assert found == pytest.approx(((x * density).sum() / density.sum()).item(), abs=0.03)


@pytest.mark.parametrize("noise", [0.01, 0.3])
def test_of_numbers_it_is_the_posterior_mean_of_normal_ones(noise: float):
    made = CodePrototypes(None, 2, Spread(0.02, 0.1))
    weight = made.weight(Code("c", norm=1, noise=noise))
    counts = torch.tensor([1, 5, 20])
    means = torch.tensor([[0.3, -0.5], [-0.4, 0.2], [0.1, 0.3]], dtype=torch.float64)
    found, _ = of_tensors(made, means, counts * weight, counts)
    centre = means.mean(0)
    for mean, count, row in zip(means, counts.tolist(), found, strict=True):
        precision = count / (0.02 + noise)
        expected = (precision * mean + centre / 0.1) / (precision + 1 / 0.1)
        torch.testing.assert_close(row, expected)


# Examples that are few, beside others that are many


def named_rightly(made: CodePrototypes, code: Code, *, plain: bool) -> torch.Tensor:
    """The share of noisy queries of a class of 1, of 5 and of 20 examples that are named rightly: (3,)."""
    draw, counts = draws(), [1, 5, 20]
    hits = torch.zeros(3)
    bits = made.bits is not None
    middles = torch.rand(2000, 3, made.dimension, generator=draw) < 0.5
    for own in middles:
        if bits:
            clean = [(own[c].float() * 2 - 1).expand(counts[c] + 4, -1) for c in range(3)]
            noisy = [x * (1 - 2 * (torch.rand(x.shape, generator=draw) < code.flip).float()) for x in clean]
        else:
            assert code.noise is not None
            clean = [(own[c].float() - 0.5).expand(counts[c] + 4, -1) for c in range(3)]
            noisy = [x + code.noise**0.5 * torch.randn(x.shape, generator=draw) for x in clean]
        embedded = [torch.from_numpy(made.unbias(x.numpy(), code)) for x in noisy]
        means = torch.stack([x[4:].mean(0) for x in embedded])
        if not plain:
            examples = torch.tensor(counts)
            means, _ = of_tensors(made, means, examples * made.weight(code), examples)
        queries = torch.cat([x[:4] for x in embedded])
        logits = prototype_logits(queries, means)
        ties = 1e-4 * torch.rand(logits.shape, generator=draw)  # at random
        guesses = (logits + ties).argmax(-1).view(3, 4)
        hits += (guesses == torch.arange(3)[:, None]).float().mean(1)
    return hits / len(middles)


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (of_bits(8, Spread(0.05, 0.95)), Code("c", flip=0.25)),
        (CodePrototypes(None, 8, Spread(0.01, 0.25)), Code("c", norm=2, noise=1.0)),
    ],
)
def test_a_class_of_one_example_does_not_lose_to_those_of_many(made: CodePrototypes, code: Code):
    plain, fair = (named_rightly(made, code, plain=plain) for plain in (True, False))
    # Of 8,000 queries of each, a share has a deviation of at most 0.006.
    assert plain[2] - plain[0] > 0.45
    assert fair[2] - fair[0] < 0.35
    assert fair[0] > plain[0] + 0.15
    assert fair.mean() > plain.mean() + 0.02


# What is known of noise


@pytest.mark.parametrize("code", [Code("c"), Code("c", flip=0.1), Code("c", epsilon=3.0)])
def test_an_example_of_bits_weighs_the_square_of_what_noise_leaves(code: Code):
    assert of_bits(4).weight(code) == pytest.approx(part_left(code, 4) ** 2)


def test_an_example_of_numbers_weighs_less_the_more_noise_it_has():
    made = CodePrototypes(None, 16)
    weights = [made.weight(Code("c", norm=1, noise=noise)) for noise in (0.01, 0.0625, 1.0)]
    assert weights == pytest.approx([1 / 1.16, 0.5, 1 / 17])
    assert made.weight(Code("c")) == 1


def test_the_strongest_noise_has_a_weight_and_a_finite_prototype():
    made, code = of_bits(16), Code("c", epsilon=1e-12)
    weight = made.weight(code)
    assert weight > 0
    means = torch.tensor([[1e30] * 16, [0.5] * 16])
    found, shots = of_tensors(
        made, means, torch.tensor([weight, 1.0], dtype=torch.float64), torch.tensor([1, 1])
    )
    assert found.isfinite().all()
    assert not shots.isnan().any()
    assert found[0].abs().max() < 1e-3  # nothing is known of it but the prior


def test_the_spread_is_that_of_the_codes_that_were_drawn():
    draw = draws()
    classes = torch.arange(400).repeat_interleave(torch.tensor([3, 9]).repeat(200))
    middles = 0.5 * torch.randn(400, 8, generator=draw)
    numbers = 1 + middles[classes] + 0.2 * torch.randn(len(classes), 8, generator=draw)
    found = measure_spread(numbers, classes, bits=False)
    assert (found.within, found.between) == pytest.approx((0.04, 0.25), rel=0.05)
    chances = torch.distributions.Beta(0.25, 0.25)
    torch.manual_seed(0)
    bits = 2 * (torch.rand(len(classes), 8, generator=draw) < chances.sample((400, 8))[classes]).float() - 1
    found = measure_spread(bits, classes, bits=True)
    assert (found.within, found.between) == pytest.approx((1 / 3, 2 / 3), rel=0.05)


@pytest.mark.parametrize("bits", [False, True])
@pytest.mark.parametrize("codes", [torch.ones(8, 3), torch.tensor([1.0, -1]).repeat(4)[:, None]])
def test_codes_that_tell_all_or_nothing_of_their_classes_have_finite_prototypes(
    codes: torch.Tensor, bits: bool
):
    spread = measure_spread(codes, torch.arange(8) // 2, bits=bits)
    made = CodePrototypes(1 if bits else None, 1, spread)
    found, _ = of_tensors(made, torch.tensor([[2.0], [-1.0]]), torch.tensor([0.5, 9.0]), torch.tensor([1, 9]))
    assert found.isfinite().all()


# Refusals


def test_a_refusal_is_of_the_noise_that_it_was_measured_with():
    refusal = refusing(3.0)
    made = CodePrototypes(4, 4, refusal=refusal, noise=(0.1, None, None))
    assert made.refusal_of(Code("c", flip=0.1)) == refusal
    for other in (Code("c"), Code("c", flip=0.2), Code("c", epsilon=1.0)):
        assert made.refusal_of(other) is None
    plain = CodePrototypes(4, 4, refusal=refusal)
    assert plain.refusal_of(Code("c")) == refusal
    assert plain.refusal_of(Code("c", epsilon=1.0)) is None


def save(path: Path, **card: object) -> Path:
    network = make_code_network("conv4", (3, 16, 16), dimension=4)
    known = {"kind": "code", "config": {"encoder": "conv4", "bits": 4}, "shape": [3, 16, 16], **card}
    artefacts.save(path, {f"network.{name}": each for name, each in network.state_dict().items()}, known)
    return path


KNOWN = {
    "spread": {"within": 0.25, "between": 0.75},
    "refusal": refusing(9.5).card(),
    **{"no_refusal": "", "flip": 0.1, "norm": None, "noise": None},
}


def test_a_card_tells_spread_and_refusal_and_an_earlier_one_neither(tmp_path: Path):
    made, _ = code_prototypes.read(save(tmp_path / "new.safetensors", prototypes=KNOWN))
    assert made == CodePrototypes(4, 4, Spread(0.25, 0.75), refusing(9.5), (0.1, None, None))
    for card in ({}, {"prototypes": None}):  # trained without validation images
        made, _ = code_prototypes.read(save(tmp_path / "old.safetensors", **card))
        assert made == CodePrototypes(4, 4)
        assert made.refusal_of(Code("c")) is None


@pytest.mark.parametrize(
    "change",
    [
        {"spread": {"within": 0.25, "between": 0.0}},
        {"spread": {"within": 0.25}},
        {"spread": {"within": 0.25, "between": 1.5}},
        {"spread": {"within": 0.25, "between": 1e-300}},
        {"no_refusal": None},
        {"refusal": refusing(1.0).card() | {"threshold": -1.0}},
        {"refusal": refusing(1.0).card() | {"classes": 0}},
        {"flip": "0.1"},
        {"other": 1},
    ],
)
def test_a_damaged_card_is_refused(tmp_path: Path, change: dict[str, object]):
    with pytest.raises(ArtefactError, match=r"prototypes"):
        code_prototypes.read(save(tmp_path / "c.safetensors", prototypes=KNOWN | change))


@pytest.mark.parametrize("bits", [1, 4, 16])
@pytest.mark.parametrize("epsilon", [1e-12, 0.1, 2, 50, 1000])
def test_what_a_response_leaves_of_a_bit_is_that_of_its_channel(bits: int, epsilon: float):
    """Against the definition: the mean of a bit that is 1, over all words that may be told in place of it."""
    words, grown = 2**bits, torch.tensor(epsilon, dtype=torch.float64).clamp(max=600).exp().item()
    right = grown / (grown + words - 1)
    wrong = (1 - right) / (words - 1)
    # Half of all words have the bit: the right one and words / 2 - 1 others; the other half have not.
    expected = right + wrong * (words / 2 - 1) - wrong * words / 2
    left = part_left(Code("c", epsilon=epsilon), bits)
    assert left == pytest.approx(expected, rel=1e-6, abs=1e-15)
    assert 0 < left <= 1
