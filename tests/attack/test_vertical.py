"""Vertical federated learning: what joined outputs, and from these what images, gradients give away."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.assess.similarity import psnr
from sfumato.attack.vertical import Observation, local_outputs, recover
from sfumato.errors import ConfigError, DataError

COUNT, BATCH, SIDE = 12, 8, 4  # images, of each batch, and the side of the quadrants of 8x8 pixels
WIDTH = 16


def drawn(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = make()
        for parameter in model.parameters():
            nn.init.uniform_(parameter, -0.5, 0.5)
        return model


def network(seed: int) -> nn.Module:
    return drawn(
        lambda: nn.Sequential(nn.Conv2d(3, WIDTH, 3, 1, padding=1), nn.Sigmoid(), nn.Flatten()), seed
    )


NETWORKS = [network(seed) for seed in range(4)]
PARTS = [(each, (3, SIDE, SIDE)) for each in NETWORKS]
HEAD = drawn(lambda: nn.Sequential(nn.Linear(4 * WIDTH * SIDE**2, 16), nn.Sigmoid(), nn.Linear(16, 3)), 9)


def quadrants() -> list[Tensor]:
    """Of 12 smooth images."""
    coarse = torch.rand(COUNT, 3, 3, 3, generator=torch.Generator().manual_seed(0))
    images = functional.interpolate(coarse, size=(2 * SIDE, 2 * SIDE), mode="bilinear")
    return [each for half in images.chunk(2, 2) for each in half.chunk(2, 3)]


def joined() -> Tensor:
    with torch.no_grad():
        return torch.cat([each(part) for each, part in zip(NETWORKS, quadrants(), strict=True)], 1)


def observe(head: nn.Module, outputs: Tensor, indices: Tensor) -> Observation:
    """As a training would share it: of the mean loss of a batch."""
    loss = functional.cross_entropy(head(outputs[indices]), indices % 3)
    names, parameters = zip(*head.named_parameters(), strict=True)
    return indices, dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


def observations(count: int = 24) -> list[Observation]:
    """Of batches of different images."""
    generator, outputs = torch.Generator().manual_seed(0), joined()
    return [observe(HEAD, outputs, torch.randperm(COUNT, generator=generator)[:BATCH]) for _ in range(count)]


def test_outputs_of_local_networks_are_recovered_exactly():
    torch.testing.assert_close(local_outputs(HEAD, observations()).float(), joined(), rtol=0, atol=1e-3)


def test_as_many_different_batches_as_images_are_enough_of_any_size():
    observed = [observe(HEAD, joined(), torch.arange(size)) for size in range(1, COUNT + 1)]
    torch.testing.assert_close(local_outputs(HEAD, observed).float(), joined(), rtol=0, atol=1e-2)


def test_all_parts_of_all_images_of_the_batches_come_back():
    found = recover(PARTS, HEAD, observations(), steps=300, total_variation=1e-4)
    for one, original in zip(found, quadrants(), strict=True):
        assert one.shape == original.shape
        assert 0 <= one.min() <= one.max() <= 1
        assert psnr(original, one).min() > 30


def test_nothing_is_drawn_and_nothing_is_left_behind():
    observed, before = observations(), torch.random.get_rng_state()
    one, same = (recover(PARTS, HEAD, observed, steps=2) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(p.grad is None for model in (*NETWORKS, HEAD) for p in model.parameters())


def test_parts_that_do_not_make_up_what_the_head_takes_are_refused():
    with pytest.raises(ConfigError, match=r"give 256 \+ 256 \+ 256 numbers, and the head takes 1024: give"):
        recover(PARTS[:3], HEAD, observations())
    with pytest.raises(ConfigError, match="the first layer with parameters is Conv2d"):
        recover(PARTS, NETWORKS[0], observations())


INDICES, SHARED = observations(1)[0]


@pytest.mark.parametrize(
    ("observed", "message"),
    [
        (11 * observations(1), r"11 batches of \d+ images, 1 of them independent: .* that mix the images"),
        ([], "0 batches of 1 images, 0 of them independent: 1 are needed"),
        ([(torch.tensor([0, 25]), SHARED)], "26 are needed, .* count images from 0"),
        ([(torch.tensor([0, -1]), SHARED)], "a batch has no indices, or some below 0"),
        ([(INDICES[:0], SHARED)], "a batch has no indices, or some below 0"),
        ([(INDICES, {"0.weight": SHARED["0.weight"]})], "the gradient lacks 0.bias"),
        (
            [(INDICES, {**SHARED, "0.bias": torch.ones(3)})],
            r"the gradient of 0.bias is \(3,\) where the parameter is \(16,\)",
        ),
    ],
)
def test_batches_from_which_outputs_do_not_follow_are_refused(observed: list[Observation], message: str):
    with pytest.raises(DataError, match=message):
        local_outputs(HEAD, observed)


def test_an_image_that_the_layer_does_not_pass_on_is_named():
    head = drawn(lambda: nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3)), 0)
    nn.init.ones_(head[0].weight)
    nn.init.zeros_(head[0].bias)
    outputs = torch.tensor([[1.0, 2.0], [-1.0, -2.0]])  # no ReLU passes the second
    observed = [observe(head, outputs, torch.tensor([index])) for index in range(2)]
    with pytest.raises(DataError, match=r"image 1 leaves no trace in the gradients of 0\.bias"):
        local_outputs(head, observed)
