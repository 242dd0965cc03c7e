"""mini-Xception: its layers against an independent one, and the published weights on real faces."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from mini_xception import EMOTIONS, MiniXception
from PIL import Image
from torch import Tensor
from torch.nn import functional

from sfumato.errors import ArtefactError, DataError

WEIGHTS = "weights/emotion_mini_xception_fer2013.safetensors"


@pytest.fixture
def network() -> MiniXception:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return MiniXception().eval()


def same_pool(maps: Tensor) -> Tensor:
    """Keras's max pool of 3 by 2, "same", by hand."""
    height, width = maps.shape[2:]
    out = torch.empty(*maps.shape[:2], -(-height // 2), -(-width // 2))
    before = [
        max((size - 1) * 2 + 3 - side, 0) // 2
        for size, side in zip(out.shape[2:], (height, width), strict=True)
    ]
    for y in range(out.shape[2]):
        for x in range(out.shape[3]):
            top, left = 2 * y - before[0], 2 * x - before[1]
            window = maps[:, :, max(top, 0) : top + 3, max(left, 0) : left + 3]
            out[:, :, y, x] = window.amax((2, 3))
    return out


def test_its_layers_are_those_of_the_figure(network: MiniXception):
    state = network.state_dict()

    def normed(number: int, maps: Tensor) -> Tensor:
        name = f"batch_normalization_{number}"
        mean, var, weight, bias = (
            state[f"{name}.{each}"] for each in ("running_mean", "running_var", "weight", "bias")
        )
        return functional.batch_norm(maps, mean, var, weight, bias, eps=1e-3)

    def separable(number: int, maps: Tensor) -> Tensor:
        deep, flat = (
            state[f"separable_conv2d_{number}.{each}.weight"] for each in ("depthwise", "pointwise")
        )
        return functional.conv2d(functional.conv2d(maps, deep, padding=1, groups=maps.shape[1]), flat)

    faces = torch.rand(2, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    maps = faces * 2 - 1
    for number in (1, 2):
        maps = normed(number, functional.conv2d(maps, state[f"conv2d_{number}.weight"])).relu()
    for block in range(4):
        beside = normed(3 * block + 3, functional.conv2d(maps, state[f"conv2d_{block + 3}.weight"], stride=2))
        maps = normed(3 * block + 4, separable(2 * block + 1, maps)).relu()
        maps = same_pool(normed(3 * block + 5, separable(2 * block + 2, maps))) + beside
    logits = functional.conv2d(maps, state["conv2d_7.weight"], state["conv2d_7.bias"], padding=1).mean((2, 3))
    assert torch.allclose(network(faces), logits, atol=1e-5)


def test_the_published_weights_name_two_of_three_emotions(shared_data: Path):
    network = MiniXception.load(shared_data / WEIGHTS)
    packed = dict(np.load(shared_data / "fer2013_48_subset.npz"))
    assert tuple(packed["emotion_names"].tolist()) == EMOTIONS
    rows = np.flatnonzero(packed["usage"] == 2)[::10]
    files = [packed["blob"][packed["offset"][row] : packed["offset"][row + 1]].tobytes() for row in rows]
    pixels = np.stack([np.array(Image.open(io.BytesIO(file)).convert("L")) for file in files])[:, None]
    named = network.classify(torch.from_numpy(pixels)).argmax(1).numpy()
    # 65.6% of all 3,033 are published with the file; a tenth of them leaves 2 deviations of 0.055.
    assert (named == packed["emotion"][rows]).mean() == pytest.approx(0.656, abs=0.055)


def test_images_of_any_size_and_colour_are_classified(network: MiniXception):
    grey = torch.randint(0, 256, (2, 1, 48, 48), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    chances = network.classify(grey)
    assert chances.shape == (2, len(EMOTIONS))
    assert torch.allclose(chances, network.classify(grey.expand(-1, 3, -1, -1)), atol=1e-3)


def test_other_files_and_other_faces_are_named(network: MiniXception, tmp_path: Path):
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(ArtefactError, match="no weights of MiniXception: lacks"):
        MiniXception.load(tmp_path / "other.npz")
    with pytest.raises(DataError, match=r"faces of \(3, 64, 64\): mini-Xception reads \(1, 64, 64\)"):
        network(torch.zeros(1, 3, 64, 64))
