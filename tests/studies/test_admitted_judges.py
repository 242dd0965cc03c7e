"""Judges: how they are tested, which are admitted, and what those of public weights answer."""

from collections.abc import Sequence
from pathlib import Path

import admitted_judges as judges
import pytest
import torch
from admitted_judges import Ability, ability, ability_on_pairs, admit
from mini_xception import EMOTIONS, MiniXception
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from sfumato.annotate.proxies import PairProxy, Proxy
from sfumato.errors import ConfigError, DataError
from sfumato.networks import MobileFaceNet, SqueezeNet, align

# Landmarks of the frame that MobileFaceNet is trained on, as shares of its 96 columns and 112 rows.
FRAME = torch.tensor(
    [[30.29, 51.70], [65.53, 51.50], [48.03, 71.74], [33.55, 92.37], [62.73, 92.20]]
) / torch.tensor([96.0, 112.0])


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of all networks, drawn by lot."""
    folder = tmp_path_factory.mktemp("weights")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        networks = {"squeezenet": SqueezeNet(), "faces": MobileFaceNet(), "emotion": MiniXception()}
    for name, network in networks.items():
        save_file(network.state_dict(), folder / f"{name}.safetensors")
    return folder


def plain(*greys: int, side: int = 32) -> Tensor:
    return torch.stack([torch.full((3, side, side), grey, dtype=torch.uint8) for grey in greys])


def answering(answers: Sequence[str | None]) -> Proxy:
    left = list(answers)
    return Proxy("told", lambda shown: [left.pop(0) for _ in shown])


# The rule


def test_a_proxy_is_tested_by_how_often_it_names_the_class_and_cannot_tell_is_not_right():
    found = ability(answering(["cat", "dog", None, "cat"]), plain(0, 1, 2, 3), ["cat", "cat", "cat", "cat"])
    assert (found.name, found.right, found.trials, found.share) == ("told", 2, 4, 0.5)
    low, high = found.interval
    assert low < 0.5 < high


def test_a_pair_proxy_is_tested_on_pairs_and_cannot_tell_is_never_right():
    said: list[bool | None] = [True, False, None, None]
    proxy = PairProxy("told", lambda first, second: said)
    found = ability_on_pairs(
        proxy, plain(0, 1, 2, 3), plain(0, 9, 2, 9), torch.tensor([True, True, True, False])
    )
    assert (found.right, found.trials) == (1, 4)


@pytest.mark.parametrize(("right", "able"), [(84, False), (85, True), (100, True)])
def test_a_judge_is_right_on_85_percent_of_clean_images_or_more(right: int, able: bool):
    assert Ability("one", right, 100).able is able


def test_a_data_set_keeps_the_judges_that_are_able_and_is_left_out_by_name_without_two():
    faces = [Ability("net", 95, 100), Ability("other", 90, 100), Ability("weak", 60, 100)]
    objects = [Ability("net", 86, 100), Ability("weak", 43, 100)]
    found = admit({"lfw": faces, "cifar10": objects})
    assert found.judges == {"lfw": ("net", "other")}
    assert found.left_out == (
        "cifar10 is left out: 1 of its 2 judges are right on 85% of clean test images or more, and 2 "
        "are needed (net 86%, weak 43%)",
    )
    assert set(admit({"cifar10": objects}, least=1).judges) == {"cifar10"}


def test_what_tests_nobody_is_named():
    with pytest.raises(DataError, match="2 images with 1 truths: test a judge on one image or more"):
        ability(answering(["cat", "cat"]), plain(0, 1), ["cat"])
    with pytest.raises(DataError, match="0 images with 0 truths"):
        ability(answering([]), plain(0)[:0], [])
    with pytest.raises(ConfigError, match="least=0: a data set needs one judge or more"):
        admit({}, least=0)


# Judges of public weights


def test_faces_in_the_frame_of_the_network_are_embedded_as_they_are(weights: Path):
    faces = torch.randint(0, 256, (2, 3, 112, 96), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    smooth = functional.avg_pool2d(faces.float(), 9, 1, 4).to(torch.uint8)
    embed = judges.face_embedding(weights / "faces.safetensors", landmarks=FRAME)
    network = MobileFaceNet.load(weights / "faces.safetensors")
    assert functional.cosine_similarity(embed(smooth), network.embed(smooth)).min() > 0.99


def test_faces_of_any_size_and_grey_ones_are_brought_to_that_frame(weights: Path):
    small = torch.randint(0, 256, (2, 1, 28, 24), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    embed = judges.face_embedding(weights / "faces.safetensors", landmarks=FRAME)
    placed = (FRAME * torch.tensor([24.0, 28.0])).expand(2, -1, -1)
    expected = MobileFaceNet.load(weights / "faces.safetensors").embed(
        align(small.expand(-1, 3, -1, -1), placed)
    )
    assert torch.equal(embed(small), expected)


def test_emotions_of_one_name_are_added_up_and_others_are_not_offered(weights: Path):
    shown = torch.randint(0, 256, (5, 3, 48, 48), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    called = {"happy": "smile", **dict.fromkeys(("sad", "angry", "neutral"), "none")}
    proxy = judges.by_emotion(weights / "emotion.safetensors", threshold=0.0, names=called.get)
    chances = MiniXception.load(weights / "emotion.safetensors").classify(shown)
    smile, none = chances[:, EMOTIONS.index("happy")], chances[:, [0, 4, 6]].sum(1)
    assert proxy.classify(shown) == ["smile" if a > b else "none" for a, b in zip(smile, none, strict=True)]
    assert proxy.name == "emotion"
    surer = judges.by_emotion(weights / "emotion.safetensors", threshold=1.0, names=called.get)
    assert surer.classify(shown) == [None] * 5
    with pytest.raises(ConfigError, match="threshold=2: a probability, 0 to 1"):
        judges.by_emotion(weights / "emotion.safetensors", threshold=2)


def test_the_nearest_class_mean_names_images_like_those_it_was_shown(weights: Path):
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(0, 256, (4, 3, 32, 32), generator=generator).to(torch.uint8)
    stripes = torch.zeros(4, 3, 32, 32, dtype=torch.uint8)
    stripes[:, :, ::4] = torch.tensor([140, 170, 200, 230], dtype=torch.uint8)[:, None, None, None]
    train, classes = torch.cat([noise[:3], stripes[:3]]), ["noise"] * 3 + ["stripes"] * 3
    proxy = judges.by_centroids(weights / "squeezenet.safetensors", train, classes, size=32)
    assert proxy.classify(torch.cat([noise[3:], stripes[3:]])) == ["noise", "stripes"]
    unsure = judges.by_centroids(weights / "squeezenet.safetensors", train, classes, size=32, margin=2.0)
    assert unsure.classify(noise[3:]) == [None]


def test_a_single_class_cannot_be_told_apart(weights: Path):
    with pytest.raises(ConfigError, match="margin=0 and 1 classes: the margin must be at least 0"):
        judges.by_centroids(weights / "squeezenet.safetensors", plain(1, 2), ["a", "a"], size=32)
