"""Labels read from gradients: exact for one image, nearly so for the counts of a batch."""

import pytest
import torch
from torch import Tensor, nn

from sfumato import data
from sfumato.attack.label_inference import counts, last_linear, stand_ins
from sfumato.attack.victim import share
from sfumato.errors import ConfigError
from sfumato.images import to_float
from sfumato.networks import ConvNet8, LeNet, ResNet

SHAPE = (3, 16, 16)
CLASSES = 10
VICTIMS = {
    "lenet": lambda: LeNet(SHAPE, CLASSES),
    "convnet8": lambda: ConvNet8(SHAPE, CLASSES, width=4),
    "resnet20": lambda: ResNet(SHAPE, CLASSES, depth=20, width=4),
}


@pytest.fixture(scope="module")
def faces() -> Tensor:
    drawn = data.load("faces", identities=8, images_per_identity=4, headwear=4, size=16)
    return to_float(drawn.images)


def victim(name: str, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return VICTIMS[name]().eval()


def noise(seed: int = 0) -> Tensor:
    return stand_ins(SHAPE, 64, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", VICTIMS)
def test_the_label_of_one_image_is_exact(name: str, faces: Tensor):
    model = victim(name)
    for label in range(CLASSES):
        shared = share(model, faces[label, None], torch.tensor([label]))
        assert counts(model, shared, 1, noise()).tolist() == [int(k == label) for k in range(CLASSES)]


@pytest.mark.parametrize("name", VICTIMS)
def test_labels_of_batches_of_32_are_counted_to_97_percent(name: str, faces: Tensor):
    right = 0
    for seed in range(4):
        model = victim(name, seed)
        labels = torch.randint(0, CLASSES, (32,), generator=torch.Generator().manual_seed(seed))
        found = counts(model, share(model, faces, labels), 32, noise(seed))
        assert found.sum() == 32
        right += int(torch.minimum(found, labels.bincount(minlength=CLASSES)).sum())
    assert right / (4 * 32) >= 0.97


def test_stand_ins_are_smooth_images_that_a_seed_decides():
    images = noise()
    assert images.shape == (64, *SHAPE)
    assert 0 <= images.min() <= images.max() <= 1
    white = torch.rand(64, *SHAPE, generator=torch.Generator().manual_seed(0))
    assert images.diff(dim=3).abs().mean() < white.diff(dim=3).abs().mean() / 2
    assert torch.equal(images, noise())
    assert not torch.equal(images, noise(1))


@pytest.mark.parametrize("steps", [1, 4])
def test_of_known_probabilities_counts_are_those_of_the_formula_also_in_sums_of_steps(
    faces: Tensor, steps: int
):
    # The adversary's images are the batch: nothing is guessed, and what they solve is exact.
    model, labels = victim("lenet"), torch.tensor([3] * 20 + [7] * 11 + [0])
    shared = share(model, faces, labels, local_steps=steps, local_rate=1e-4)
    found = counts(model, {k: v / 1e-4 for k, v in shared.items()}, 32, faces, local_steps=steps)
    assert torch.equal(found, labels.bincount(minlength=CLASSES))


def test_shares_of_an_image_are_rounded_by_largest_remainder():
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    nn.init.zeros_(model[1].weight)
    nn.init.zeros_(model[1].bias)  # p = 1/3 of each class
    exact = torch.tensor([1.7, 2.6, 0.7])
    shared = {"1.bias": 1 / 3 - exact / 5}
    assert counts(model, shared, 5, torch.zeros(1, 1, 2, 2)).tolist() == [2, 2, 1]


def test_without_a_bias_different_classes_are_taken_from_the_rows():
    model = nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(48, 6, bias=False))
    nn.init.normal_(model[2].weight, std=0.01, generator=torch.Generator().manual_seed(0))
    images = torch.rand(3, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    shared = share(model, images, torch.tensor([5, 0, 2]))
    assert counts(model, shared, 3, images).tolist() == [1, 0, 1, 0, 0, 1]


def test_a_model_that_does_not_end_in_a_linear_layer_is_refused():
    with pytest.raises(ConfigError, match=r"is Conv2d: .* give the labels, or use labels='optimised'"):
        last_linear(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()))
    with pytest.raises(ConfigError, match="last layer of this model is without parameters"):
        last_linear(nn.Flatten())
