"""Vertical federated learning: what joined outputs, and from these what images, gradients give away."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.assess.similarity import psnr
from sfumato.attack.vertical import Observation, Part, VerticalConfig, local_outputs, recover
from sfumato.errors import ConfigError, DataError

COUNT, BATCH, SIDE = 12, 8, 4  # images, of each batch, and the side of the quadrants of 8x8 pixels
WIDTH = 16
FEW = VerticalConfig(steps=2)


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
PARTS = [Part(each, (3, SIDE, SIDE)) for each in NETWORKS]
HEAD = drawn(lambda: nn.Sequential(nn.Linear(4 * WIDTH * SIDE**2, 16), nn.Sigmoid(), nn.Linear(16, 3)), 9)


def quadrants() -> list[Tensor]:
    """Of 12 smooth images."""
    coarse = torch.rand(COUNT, 3, 3, 3, generator=torch.Generator().manual_seed(0))
    images = functional.interpolate(coarse, size=(2 * SIDE, 2 * SIDE), mode="bilinear")
    return [each for half in images.chunk(2, 2) for each in half.chunk(2, 3)]


def joined() -> Tensor:
    with torch.no_grad():
        return torch.cat([each(part) for each, part in zip(NETWORKS, quadrants(), strict=True)], 1)


def observations(count: int = 24, *, seed: int = 0, head: nn.Module = HEAD) -> list[Observation]:
    """As a training would share them: of the mean loss of batches of different images."""
    generator, outputs = torch.Generator().manual_seed(seed), joined()
    labels = torch.arange(COUNT) % 3
    observed = []
    for _ in range(count):
        indices = torch.randperm(COUNT, generator=generator)[:BATCH]
        loss = functional.cross_entropy(head(outputs[indices]), labels[indices])
        found = torch.autograd.grad(loss, list(head.parameters()))
        names = [name for name, _ in head.named_parameters()]
        observed.append(Observation(indices, dict(zip(names, found, strict=True))))
    return observed


def test_outputs_of_local_networks_are_recovered_exactly():
    torch.testing.assert_close(local_outputs(HEAD, observations()).float(), joined(), rtol=0, atol=1e-3)


def test_as_many_different_batches_as_images_are_enough():
    observed = observations(24)
    least: list[Observation] = []
    rows: list[Tensor] = []
    for each in observed:
        row = torch.bincount(each.indices, minlength=COUNT).double()
        if torch.linalg.matrix_rank(torch.stack([*rows, row])) > len(rows):
            rows.append(row)
            least.append(each)
    assert len(least) == COUNT
    torch.testing.assert_close(local_outputs(HEAD, least).float(), joined(), rtol=0, atol=1e-2)


def test_more_batches_average_noise_away():
    def error(count: int) -> float:
        generator = torch.Generator().manual_seed(5)
        noisy = [
            Observation(
                each.indices,
                {k: g + 1e-5 * torch.randn(g.shape, generator=generator) for k, g in each.gradients.items()},
            )
            for each in observations(count)
        ]
        return (local_outputs(HEAD, noisy) - joined()).norm().item()

    assert error(96) < error(24) / 2


def test_batches_may_differ_in_size():
    outputs, labels = joined(), torch.arange(COUNT) % 3
    observed = []
    for size in range(1, COUNT + 1):
        loss = functional.cross_entropy(HEAD(outputs[:size]), labels[:size])
        weight, bias = torch.autograd.grad(loss, list(HEAD[0].parameters()))
        observed.append(Observation(torch.arange(size), {"0.weight": weight, "0.bias": bias}))
    torch.testing.assert_close(local_outputs(HEAD, observed).float(), outputs, rtol=0, atol=1e-2)


def test_all_parts_of_all_images_of_the_batches_come_back():
    found = recover(PARTS, HEAD, observations(), VerticalConfig(steps=300, total_variation=1e-4))
    for one, original in zip(found, quadrants(), strict=True):
        assert one.shape == original.shape
        assert 0 <= one.min() <= one.max() <= 1
        assert psnr(original, one).min() > 30


def test_parts_are_of_any_shape():
    images = torch.rand(COUNT, 3, 4, 6, generator=torch.Generator().manual_seed(2))
    left, right = images.split([2, 4], 3)
    parts = [Part(nn.Flatten(), (3, 4, 2)), Part(nn.Flatten(), (3, 4, 4))]
    head = drawn(lambda: nn.Sequential(nn.Linear(72, 16), nn.Sigmoid(), nn.Linear(16, 3)), 1)
    outputs = torch.cat([left.flatten(1), right.flatten(1)], 1)
    observed = []
    for skipped in range(COUNT):
        kept = torch.tensor([i for i in range(COUNT) if i != skipped])
        loss = functional.cross_entropy(head(outputs[kept]), kept % 3)
        weight, bias = torch.autograd.grad(loss, list(head[0].parameters()))
        observed.append(Observation(kept, {"0.weight": weight, "0.bias": bias}))
    found = recover(parts, head, observed, VerticalConfig(steps=200, total_variation=0.0))
    for one, original in zip(found, (left, right), strict=True):
        assert psnr(original, one).min() > 30


def test_nothing_is_drawn_and_nothing_is_left_behind():
    observed = observations()
    before = torch.random.get_rng_state()
    one, same = (recover(PARTS, HEAD, observed, FEW) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(p.grad is None for model in (*NETWORKS, HEAD) for p in model.parameters())


def test_progress_counts_steps_of_all_workers():
    told = []
    recover(PARTS, HEAD, observations(), FEW, progress=lambda done, total: told.append((done, total)))
    assert told == [(step, 8) for step in range(1, 9)]


# Mistakes


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"total_variation": -0.1}, "total_variation=-0.1: at least 0"),
        ({"learning_rate": 0}, "learning_rate=0: above 0"),
        ({"steps": 0}, "steps=0: at least 1"),
    ],
)
def test_a_setting_that_cannot_work_is_named(settings: dict, message: str):
    with pytest.raises(ConfigError, match=message):
        VerticalConfig(**settings)


def test_parts_that_do_not_make_up_what_the_head_takes_are_refused():
    with pytest.raises(ConfigError, match=r"give 256 \+ 256 \+ 256 numbers, and the head takes 1024: give"):
        recover(PARTS[:3], HEAD, observations(), FEW)
    with pytest.raises(ConfigError, match="the first layer with parameters is Conv2d"):
        recover(PARTS, NETWORKS[0], observations(), FEW)


def test_too_few_different_batches_are_refused():
    observed = observations()
    with pytest.raises(
        DataError, match=r"batches of 12 images, 11 of them independent: 12 are needed, .* 1 more"
    ):
        local_outputs(HEAD, [*observed[:11], *observed[:11]])
    with pytest.raises(DataError, match="no batch was observed"):
        local_outputs(HEAD, [])


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 25], r"13 of 26 images were in no batch, such as 12: count images from 0"),
        ([0, 1, 2, 3, 4, 5, 6, -1], "a batch has no indices, or some below 0"),
        ([], "a batch has no indices, or some below 0"),
    ],
)
def test_indices_that_are_none_are_refused(indices: list[int], message: str):
    first, *others = observations()
    with pytest.raises(DataError, match=message):
        local_outputs(HEAD, [replace(first, indices=torch.tensor(indices, dtype=torch.int64)), *others])


def test_gradients_that_do_not_fit_are_refused():
    first, *others = observations()
    lacking = replace(first, gradients={"0.weight": first.gradients["0.weight"]})
    with pytest.raises(DataError, match=r"the gradient lacks 0.bias"):
        local_outputs(HEAD, [lacking, *others])
    other = replace(first, gradients={**first.gradients, "0.bias": torch.ones(3)})
    with pytest.raises(DataError, match=r"the gradient of 0.bias is \(3,\) where the parameter is \(16,\)"):
        local_outputs(HEAD, [other, *others])


def test_an_image_that_the_layer_does_not_pass_on_is_named():
    head = drawn(lambda: nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2)), 0)
    nn.init.ones_(head[0].weight)
    nn.init.zeros_(head[0].bias)
    outputs = torch.tensor([[1.0, 2.0], [-1.0, -2.0]])  # no ReLU passes the second
    observed = []
    for index in range(2):
        loss = functional.cross_entropy(head(outputs[index, None]), torch.tensor([0]))
        weight, bias = torch.autograd.grad(loss, list(head[0].parameters()))
        observed.append(Observation(torch.tensor([index]), {"0.weight": weight, "0.bias": bias}))
    with pytest.raises(DataError, match=r"image 1 leaves no trace in the gradients of 0\.bias"):
        local_outputs(head, observed)
