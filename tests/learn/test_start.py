"""The weights that trainings begin with: what is shipped, and whom it is given to."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sfumato import artefacts, data
from sfumato.episodes import Sampler, Shape
from sfumato.images import to_float
from sfumato.learn import classifier, code, few_shot
from sfumato.learn.prototypes import episode_accuracies
from sfumato.learn.start import begin, by_content
from sfumato.networks import Conv4
from sfumato.networks.encoders import drawn
from sfumato.networks.encoders.small import ResNet12
from sfumato.protect import parse
from sfumato.study.cells import non_defaults


def begun(channels: int = 3) -> Conv4:
    network = Conv4(channels)
    begin(network, "drawn")
    return network.eval()


# What is shipped


def test_the_shipped_start_is_below_a_megabyte():
    assert drawn.SHIPPED.stat().st_size < 1_000_000


def test_the_shipped_start_was_trained_until_its_validation_was_flat():
    curve = artefacts.read_card(drawn.SHIPPED)["curve"]
    assert max(curve[2 * len(curve) // 3 :]) < max(curve[: 2 * len(curve) // 3]) + 0.01


def test_its_filters_are_as_large_as_random_ones():
    """A step of Adam moves a weight by the learning rate: larger filters would learn more slowly."""
    random = Conv4(3).state_dict()
    for name, each in begun().state_dict().items():
        if each.ndim == 4:
            assert 0.9 < each.norm() / random[name].norm() < 1.1


def test_photographs_of_objects_are_told_apart_before_anything_is_trained(shared_data: Path):
    """Caltech-101's test classes, 5-way 5-shot: random filters reach 43%, and no photograph was seen."""
    packed = dict(np.load(shared_data / "caltech101_84.npz"))
    test = np.flatnonzero(packed["suggested_split"][packed["label"]] == "test")[::3]
    blobs = [packed["blob"][packed["offset"][i] : packed["offset"][i + 1]].tobytes() for i in test]
    pixels = [np.array(Image.open(io.BytesIO(blob)).convert("RGB").resize((64, 64))) for blob in blobs]
    images = torch.from_numpy(np.stack(pixels).transpose(0, 3, 1, 2).copy())
    codes = torch.from_numpy(packed["label"][test]).long()
    names = tuple(packed["classes"].tolist())
    objects = data.LabelledImages("caltech101", images, {"class": data.Label(codes, names)}, {})
    assert accuracy(begun(), objects) > 0.65


@torch.no_grad()
def accuracy(network: Conv4, images: data.LabelledImages) -> float:
    rows = Sampler(images.label("class"), Shape(way=5, shot=5, queries=5)).draw(
        200, torch.Generator().manual_seed(0)
    )
    embeddings = torch.cat([network(to_float(part)) for part in images.images.split(256)])
    return episode_accuracies(torch.nn.functional.normalize(embeddings), rows, shot=5).mean().item()


# Whom it is given to


def test_of_grey_images_a_network_of_one_channel_sees_what_one_of_three_does():
    grey = torch.rand(2, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(begun(1)(grey), begun(3)(grey.expand(-1, 3, -1, -1)), atol=1e-4, rtol=1e-4)


def test_planes_beside_the_colours_keep_their_filters():
    network = Conv4(5)
    own = network.state_dict()["blocks.0.0.weight"].clone()
    begin(network, "drawn")
    filters = network.state_dict()["blocks.0.0.weight"]
    assert torch.equal(filters[:, 3:], own[:, 3:])
    assert torch.equal(filters[:, :3], begun().state_dict()["blocks.0.0.weight"])


@pytest.mark.parametrize(
    ("network", "start"), [(Conv4(3, width=32), "drawn"), (ResNet12(3), "drawn"), (Conv4(3), "random")]
)
def test_other_networks_keep_their_weights_and_all_do_of_a_random_start(network: torch.nn.Module, start: str):
    before = {name: each.clone() for name, each in network.state_dict().items()}
    assert begin(network, start) is None
    assert all(torch.equal(each, before[name]) for name, each in network.state_dict().items())


@pytest.mark.parametrize("start", ["drawn", "random"])
def test_every_training_says_on_its_card_what_it_began_with(start: str):
    world = data.glyphs(classes=6, drawers=6, size=16)
    world = data.LabelledImages(world.name, world.images, world.labels, {})
    short = {"way": 3, "shot": 2, "queries": 2, "epochs": 1, "episodes_per_epoch": 1, "start": start}
    checked = {"validation_way": 3, "validation_shot": 2, "validation_queries": 2, "validation_episodes": 2}
    episodic = few_shot.FewShotConfig(**short, **checked, denoiser_depth=None)
    ordinary = classifier.ClassifierConfig(network="conv4", epochs=1, start=start)
    models = [
        few_shot.train(world, parse("none"), episodic, target="class", validation=world),
        code.train(world, code.CodeConfig(bits=4, **short), target="class"),
        classifier.train(world, parse("none"), ordinary, target="class"),
    ]
    said = by_content("drawn") if start == "drawn" else None
    assert [model.card["start"] for model in models] == [said] * 3
    assert said is None or said.startswith("drawn ")


def test_settings_without_a_start_have_the_digest_that_they_had_when_all_starts_were_random():
    assert non_defaults(code.CodeConfig(bits=4, start="random")) == {"bits": 4}
    assert non_defaults(code.CodeConfig(bits=4)) == {"bits": 4, "start": by_content("drawn")}
