"""Codes: bits or numbers of an encoder, exact lies and noise, and what is proved of them."""

import math
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from sfumato import artefacts
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ArtefactError, DataError, SpecError
from sfumato.networks.code import make_code_network
from sfumato.protect.code import Code, load_encoder, words_of
from sfumato.protect.naming import bound_naming
from sfumato.protect.vectors import BitsRelease, unpack_bits

SHAPE = (3, 16, 16)


def photographs(count: int) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, *SHAPE), dtype=torch.uint8, generator=draw)


@cache
def weights(dimension: int) -> dict[str, Tensor]:
    """Of an encoder that was never trained, but whose batch norm has seen photographs."""
    network = make_code_network("conv4", SHAPE, dimension=dimension, seed=0)
    with torch.no_grad():
        for _ in range(50):
            network(photographs(64).float() / 255)
    return {f"network.{k}": v for k, v in network.state_dict().items()}


def encoder(path: Path, **size: int) -> str:
    card = {"kind": "code", "config": {"encoder": "conv4", **size}, "shape": list(SHAPE)}
    artefacts.save(path, weights(sum(size.values())), card)
    return str(path)


@pytest.fixture(scope="module")
def bits(tmp_path_factory: pytest.TempPathFactory) -> str:
    return encoder(tmp_path_factory.mktemp("bits") / "bits.safetensors", bits=12)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> str:
    return encoder(tmp_path_factory.mktemp("numbers") / "numbers.safetensors", numbers=6)


def released(protection: Code, count: int = 40, seed: int = 0) -> Tensor:
    return protection.release(photographs(count), seeded_noise(seed)).values


# What leaves


def test_bits_are_the_signs_of_what_the_encoder_gives(bits: str):
    network = load_encoder(bits).network
    with torch.no_grad():
        expected = torch.cat([network(image / 255) for image in photographs(8).float().split(1)]) > 0
    assert released(Code(bits), 8).equal(expected)
    assert 0.2 < released(Code(bits)).float().mean() < 0.8


def test_twelve_bits_travel_in_two_bytes_and_come_back(bits: str):
    release = Code(bits).release(photographs(5), seeded_noise(0))
    assert isinstance(release, BitsRelease)
    packets = release.pack()
    assert [len(packet) for packet in packets] == [2] * 5 == [release.bytes_per_image] * 5
    assert unpack_bits(packets, spec=release.spec, bits=12).values.equal(release.values)
    assert release.vectors().unique().tolist() == [-1, 1]


def test_the_first_bit_of_a_word_is_the_highest():
    every = torch.tensor(list(product([False, True], repeat=5)))
    assert words_of(every).tolist() == list(range(32))


def test_numbers_are_from_minus_1_to_1_and_travel_as_a_feature_does(numbers: str):
    release = Code(numbers).release(photographs(5), seeded_noise(0))
    assert release.kind == "numbers"
    assert release.values.abs().max() <= 1
    assert release.bytes_per_image == 4 * 6


# Lies and noise


def test_each_bit_is_flipped_as_often_as_the_spec_says(bits: str):
    truth, lying = released(Code(bits), 40), Code(bits, flip=0.2)
    told = torch.stack([released(lying, 40, n) for n in range(50)])
    lies = (told != truth).double()
    assert lies.mean().item() == pytest.approx(0.2, abs=5 * math.sqrt(0.16 / lies.numel()))
    # Each bit by itself: no two bits lie together more often than chance has it.
    pairs = np.cov(lies.flatten(0, 1).T.numpy())
    assert np.abs(pairs - np.diag(np.diag(pairs))).max() < 5 * 0.16 / math.sqrt(2000)


def test_a_word_is_told_as_it_is_with_the_probability_of_randomised_response(tmp_path: Path):
    small = encoder(tmp_path / "small.safetensors", bits=3)
    truth, lying = words_of(released(Code(small), 40)), Code(small, epsilon=2)
    told = torch.stack([words_of(released(lying, 40, n)) for n in range(60)])
    right = math.exp(2) / (math.exp(2) + 7)
    kept = (told == truth).double().mean().item()
    assert kept == pytest.approx(right, abs=5 * math.sqrt(right * (1 - right) / told.numel()))
    steps = ((told - truth) % 8).flatten().bincount(minlength=8)[1:]  # all other words alike
    expected = told.numel() * (1 - right) / 7
    assert ((steps - expected).abs() < 5 * math.sqrt(expected)).all()


def test_noisy_numbers_are_those_of_a_clipped_code(numbers: str):
    clean = released(Code(numbers))
    clipped = clean * (0.5 / clean.norm(dim=1, keepdim=True)).clamp(max=1)
    blurred = Code(numbers, norm=0.5, noise=0.01)
    noisy = torch.stack([released(blurred, 40, n) for n in range(40)])
    assert (noisy.mean(0) - clipped).abs().max() < 5 * 0.1 / math.sqrt(40) + 1 / 1024
    assert (noisy - clipped).std().item() == pytest.approx(0.1, rel=0.05)


def test_a_code_with_noise_differs_from_release_to_release_and_one_without_does_not(bits: str):
    assert Code(bits, flip=0.1).draws_noise
    assert not Code(bits).draws_noise
    assert not released(Code(bits, flip=0.1), seed=0).equal(released(Code(bits, flip=0.1), seed=1))


# What is proved


def test_few_bits_prove_by_counting_and_lies_prove_more(tmp_path: Path):
    five = encoder(tmp_path / "five.safetensors", bits=5)
    assert bound_naming(Code(five), SHAPE, candidates=369).chance == pytest.approx(32 / 369)  # 8.7%
    assert bound_naming(Code(five, flip=0.2), SHAPE, candidates=369).chance < 32 / 369
    assert bound_naming(Code(five, epsilon=2), SHAPE, candidates=369).chance == pytest.approx(
        32 * math.exp(2) / (math.exp(2) + 31) / 369, rel=1e-6
    )


def test_noise_on_numbers_proves_from_the_radius_of_the_ball(numbers: str):
    noisy = Code(numbers, norm=1, noise=0.0625)  # c / σ = 4
    assert bound_naming(noisy, SHAPE, candidates=10**6).chance < 0.24
    assert bound_naming(Code(numbers), SHAPE, candidates=10**6).chance == 1


def test_the_guarantee_of_lies_is_that_of_all_bits_together(bits: str):
    guarantee = Code(bits, flip=0.1).guarantee(SHAPE)
    assert guarantee is not None
    assert guarantee.whole_image == pytest.approx(12 * math.log(9))
    assert Code(bits).guarantee(SHAPE) is None
    assert bound_naming(Code(bits, flip=0.1), SHAPE, candidates=5000).chance < 2**12 / 5000


# Mistakes


def test_noise_of_the_wrong_kind_is_refused(bits: str, numbers: str):
    with pytest.raises(SpecError, match="makes numbers, which have norm= and noise="):
        released(Code(numbers, flip=0.1))
    with pytest.raises(SpecError, match="makes bits, which have flip= or epsilon="):
        released(Code(bits, norm=1, noise=1))
    with pytest.raises(SpecError, match=r"bits=16, and .*bits.safetensors makes 12 bits: write these"):
        released(Code(bits, bits=16))
    with pytest.raises(SpecError, match=r"numbers=3, and .*bits.safetensors makes 12 bits"):
        released(Code(bits, numbers=3))


def test_one_response_over_too_many_words_is_refused(tmp_path: Path):
    large = encoder(tmp_path / "large.safetensors", bits=17)
    with pytest.raises(SpecError, match=r"epsilon=2 on 17 bits: .* at most 16 bits: write flip="):
        released(Code(large, epsilon=2))


@pytest.mark.parametrize(
    ("packets", "message"), [([b"\0"], "a packet of 1 bytes"), ([b"\0\1"], "bits beyond the last")]
)
def test_foreign_packets_are_refused(packets: list[bytes], message: str):
    with pytest.raises(DataError, match=message):
        unpack_bits(packets, spec="code", bits=12)


def test_an_artefact_of_both_sizes_is_refused(tmp_path: Path, bits: str):
    tensors, card = artefacts.load(bits, kind="code")
    both = {**card["config"], "numbers": 12}
    artefacts.save(tmp_path / "both.safetensors", tensors, {**card, "config": both})
    with pytest.raises(ArtefactError, match="either bits or numbers"):
        load_encoder(str(tmp_path / "both.safetensors"))


@pytest.mark.parametrize("noise", [{}, {"flip": 0.2}, {"epsilon": 1.5}])
def test_the_laws_of_words_are_those_of_their_whole_channel(tmp_path: Path, noise: dict[str, float]):
    code = Code(str(encoder(tmp_path / "c.safetensors", bits=3)), **noise)
    flip, lies = noise.get("flip", 0.0), 7 * math.exp(-noise.get("epsilon", math.inf))
    channel = np.ones((1, 1))
    for _ in range(3):
        channel = np.kron(channel, [[1 - flip, flip], [flip, 1 - flip]])
    if "epsilon" in noise:
        channel = np.full((8, 8), lies / 7 / (1 + lies)) + (1 - lies / 7) / (1 + lies) * np.eye(8)
    counts = np.random.default_rng(0).dirichlet(np.ones(8), size=5)
    np.testing.assert_allclose(code.laws(counts), counts @ channel)
