"""Recognisers in place of people: what they answer, when they cannot tell, and that they are never people."""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from campaigns import say
from torch import Tensor

from sfumato import images
from sfumato.annotate import Campaign, Pair
from sfumato.annotate.proxies import Proxy, by_classifier, by_encoder, fill
from sfumato.annotate.results import results
from sfumato.errors import ConfigError, DataError
from sfumato.learn import classifier, few_shot
from sfumato.protect import parse

Begin = Callable[..., Campaign]
NAMES = ("cat", "dog", "emu", "fox", "gnu", "hen")


def always(name: str, answer: str) -> Proxy:
    return Proxy(name, "choose", lambda shown: [answer] * len(shown))


def said(campaign: Campaign) -> list[list[str]]:
    """What each proxy answered, by item."""
    return [[mine[number].answer for number in campaign.items] for mine in campaign.answers().values()]


def grey(pairs: list[Pair]) -> list[Pair]:
    """The same pairs, their reconstructions flat: as bright as the number of their class."""
    for number, one in enumerate(pairs):
        images.write(one.original, torch.full((3, 16, 16), 200, dtype=torch.uint8))
        images.write(one.reconstruction, torch.full((3, 16, 16), 40 * (number % 6), dtype=torch.uint8))
    return pairs


def test_a_proxy_is_shown_the_reconstruction_of_each_item(begin: Begin, pairs: list[Pair]):
    truth = {images.read(one.reconstruction).sum().item(): one.true_class for one in pairs}
    campaign = begin()
    fill(
        campaign,
        [Proxy("all-knowing", "choose", lambda shown: [truth[image.sum().item()] for image in shown])],
    )
    assert all(one.recognised for one in results(campaign))


def test_a_class_that_an_item_does_not_offer_is_as_if_it_could_not_tell(begin: Begin):
    campaign = begin(options=2)
    fill(campaign, [always("big", "cat"), always("far", "yak")])
    offered = [item.options for item in campaign.items.values()]
    assert said(campaign)[0] == ["cat" if "cat" in options else "cannot tell" for options in offered]
    assert said(campaign)[1] == ["cannot tell"] * 12


def test_a_pair_proxy_is_shown_original_and_reconstruction(begin: Begin, pairs: list[Pair]):
    campaign = begin("same")
    together = {
        (images.read(one.original).sum().item(), images.read(one.reconstruction).sum().item())
        for one in pairs
    }

    def compare(originals: Tensor, others: Tensor) -> list[str]:
        both = zip(originals, others, strict=True)
        belong = [(one.sum().item(), other.sum().item()) in together for one, other in both]
        return ["same" if each else "different" for each in belong]

    fill(campaign, [Proxy("all-knowing", "same", compare)])
    assert said(campaign) == [["same"] * 12 + ["different"] * 3]


def test_images_of_several_sizes_are_answered_size_by_size(begin: Begin, pairs: list[Pair]):
    images.write(pairs[4].reconstruction, torch.zeros(3, 5, 9, dtype=torch.uint8))
    shapes = []

    def classify(shown: Tensor) -> list[str]:
        shapes.append(tuple(shown.shape))
        return ["gnu" if shown.shape[3] == 9 else "cat"] * len(shown)

    campaign = begin()
    fill(campaign, [Proxy("big", "choose", classify)])
    assert sorted(shapes) == [(1, 3, 5, 9), (11, 3, 8, 8)]
    assert said(campaign)[0].index("gnu") == 4


def saved_classifier(path: Path, *, sharpness: float = 1.0) -> Path:
    """A classifier of 16x16 images with random weights, or one whose logits are far apart."""
    config = classifier.ClassifierConfig(network="conv4", precision="float32")
    card = {
        **{"config": asdict(config), "shape": [3, 16, 16], "classes": list(NAMES)},
        **{"precision": "float32", "spec": "none", "shapes": False},
    }
    model = classifier.make_untrained(card, config, seed=0)
    with torch.no_grad():
        model.network[1].weight.mul_(sharpness)
    model.save(path)
    return path


def test_a_classifier_names_its_most_likely_class(begin: Begin, pairs: list[Pair], tmp_path: Path):
    campaign = begin(of=grey(pairs))
    path = saved_classifier(tmp_path / "rough.safetensors")
    fill(campaign, [by_classifier(path, threshold=0)])
    shown = torch.stack([images.read(one.reconstruction) for one in pairs])
    expected = [NAMES[code] for code in classifier.load(path).classify(shown).tolist()]
    assert said(campaign) == [expected]
    assert list(campaign.answers()) == ["rough"]


def test_a_classifier_that_is_not_sure_cannot_tell(begin: Begin, pairs: list[Pair], tmp_path: Path):
    pairs = grey(pairs)
    shown = torch.stack([images.read(one.reconstruction) for one in pairs])
    path = saved_classifier(tmp_path / "rough.safetensors", sharpness=20.0)
    with torch.no_grad():
        confidence = classifier.load(path)(shown).softmax(1).amax(1)
    threshold = confidence.median().item()
    campaign = begin(of=pairs)
    fill(campaign, [by_classifier(path, threshold=threshold)])
    assert [answer == "cannot tell" for answer in said(campaign)[0]] == (confidence < threshold).tolist()
    assert 0 < said(campaign)[0].count("cannot tell") < 12


def test_a_classifier_of_another_size_is_refused(begin: Begin, tmp_path: Path):
    campaign = begin()
    proxy = by_classifier(saved_classifier(tmp_path / "c.safetensors"), threshold=0.5)
    with pytest.raises(DataError, match=r"trained on images of 3x16x16, and the campaign shows 3x8x8: name"):
        fill(campaign, [proxy])
    assert (campaign.kind, list((campaign.path / "answers").iterdir())) == ("people", [])


def saved_encoder(path: Path) -> Path:
    config = few_shot.FewShotConfig(denoiser_depth=None, precision="float32")
    card = {"config": asdict(config), "spec": "none", "encoder": config.encoder, "channels": 3}
    model = few_shot.make_untrained(
        3, config, [parse("none")], card={**card, "precision": "float32", "target": "class"}
    )
    model.save(path)
    return path


def test_an_encoder_finds_an_image_the_same_as_itself(begin: Begin, pairs: list[Pair], tmp_path: Path):
    encoder = saved_encoder(tmp_path / "e.safetensors")
    same = [replace(one, reconstruction=one.original) for one in grey(pairs)]
    campaign = begin("same", of=same, decoys=0)
    fill(campaign, [by_encoder(encoder, threshold=0.999)])
    assert said(campaign) == [["same"] * 12]
    assert list(campaign.answers()) == ["e"]
    other = begin("same", of=grey(pairs), decoys=0)
    fill(other, [by_encoder(encoder, threshold=1.0)])
    assert "different" in said(other)[0]


def test_an_encoder_of_grey_images_is_not_asked_about_colours(begin, pairs, tmp_path):
    for one in pairs:
        images.write(one.original, torch.zeros(1, 16, 16, dtype=torch.uint8))
    proxy = by_encoder(saved_encoder(tmp_path / "e.safetensors"), threshold=0.5)
    with pytest.raises(DataError, match="trained on images of 3 channels, and the campaign shows 1: name an"):
        fill(begin("same"), [proxy])


def test_proxies_that_cannot_answer_and_thresholds_of_no_confidence_are_refused(begin: Begin):
    for by, threshold, message in (
        *((by_classifier, value, "a probability, 0 to 1") for value in (-0.1, 1.1, float("nan"))),
        (by_encoder, 1.5, r"threshold=1\.5: a cosine, -1 to 1"),
    ):
        with pytest.raises(ConfigError, match=message):
            by(Path("none"), threshold=threshold)
    for task, names, message in (
        ("same", ["big"], "big: answers 'choose', and the campaign asks 'same': a classifier"),
        ("choose", ["big", "big"], "proxies need names that differ, got big, big: rename one"),
        ("choose", [], "no proxies: name at least one recogniser"),
    ):
        with pytest.raises(ConfigError, match=message):
            fill(begin(task), [always(name, "cat") for name in names])


def test_proxies_answer_no_campaign_that_people_have_begun_and_none_twice(begin: Begin):
    begun = say(begin(), {1: ["cat"]})
    with pytest.raises(DataError, match=r"people have answered here \(5 files\), and proxies never share a"):
        fill(begun, [always("big", "cat")])
    campaign = begin()
    fill(campaign, [always("big", "cat")])
    with pytest.raises(DataError, match="a proxy called 'big' has answered: give another name"):
        fill(campaign, [always("small", "cat"), always("big", "dog")])
    assert list(campaign.answers()) == ["big"]
