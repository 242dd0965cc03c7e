"""studies/device_cost.py: counts that can be counted otherwise, times and memory of a run."""

import math
from pathlib import Path

import pytest
import torch
from device_cost import Cost, profile
from devices import pictures, write_code, write_feature, write_mask

from sfumato.dp.mechanisms import seeded_noise
from sfumato.export import graphs
from sfumato.export.card import session
from sfumato.learn import private_feature
from sfumato.protect import parse
from sfumato.protect.code import Code
from sfumato.protect.feature import Feature


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("profiles")


@pytest.fixture(scope="module")
def costs(folder: Path) -> list[Cost]:
    writers = {"m": write_mask, "f": write_feature}
    paths = [write(folder / f"{name}.safetensors") for name, write in writers.items()]
    paths.append(write_code(folder / "b.safetensors", bits=16))
    return profile([str(path) for path in paths], images=20)


def convolution(inputs: int, outputs: int, side: int) -> int:
    """Weights of a convolution without bias, and scale and shift of its batch norm."""
    return inputs * outputs * side**2 + 2 * outputs


def test_a_mask_and_a_code_have_one_line_and_a_feature_two(costs: list[Cost]):
    parts = ["mask", "device, cut at conv2", "whole", "code of 16 bits"]
    assert [each.part for each in costs] == parts
    assert [Path(each.artefact).stem for each in costs] == ["m", "f", "f", "b"]


def test_bytes_are_those_that_a_release_has_and_the_whole_model_sends_none(costs: list[Cost], folder: Path):
    mask, device, whole, bits = costs
    protections = (
        parse(f"mask:artefact={folder / 'm.safetensors'}"),
        Feature(str(folder / "f.safetensors"), noise=1.0),
        Code(str(folder / "b.safetensors")),
    )
    sent = [len(each.release(pictures(1), seeded_noise(0)).pack()[0]) for each in protections]
    assert sent == [math.ceil(18 * 20 / 8) + 3 * 90, 4 * 3, 2]
    assert sent == [each.bytes for each in (mask, device, bits)]
    assert whole.bytes == 0


def test_parameters_are_those_of_the_layers_added_up(costs: list[Cost]):
    mask, device, whole, bits = costs
    first = convolution(3, 4, 3) + convolution(4, 4, 3)
    below = convolution(4, 8, 3) + convolution(8, 8, 3)
    assert mask.parameters == first + below + convolution(8 + 4, 4, 3) + convolution(4, 4, 3) + (4 + 1)

    between = 4 * (18 // 2) * (20 // 2)
    assert device.parameters == first + 3 * between + 3
    assert whole.parameters > device.parameters
    encoder = convolution(3, 64, 3) + 3 * convolution(64, 64, 3)
    assert bits.parameters == encoder + (64 + 1) * 16


def test_the_whole_model_that_is_timed_classifies_as_pytorch_does(costs: list[Cost], folder: Path):
    model, images = private_feature.load(folder / "f.safetensors"), pictures(4)
    opened = session(graphs.whole_graph(model).SerializeToString())
    for image in images.split(1):
        found = opened.run(graphs.logit_names(model), {"images": image.numpy()})
        for ours, theirs in zip(found, model.classify(image).values(), strict=True):
            torch.testing.assert_close(torch.from_numpy(ours), theirs, atol=1e-3, rtol=0)


def test_times_are_in_order_and_memory_is_that_of_a_small_graph(costs: list[Cost]):
    for cost in costs:
        assert 0 < cost.low <= cost.milliseconds <= cost.high
        assert 0 < cost.memory < 100  # MiB; a process with PyTorch in it has several hundred
