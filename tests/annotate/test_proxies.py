"""Recognisers in place of people: what they answer, when they cannot tell, and that they are never people."""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sfumato import images
from sfumato.annotate import Pair, Store
from sfumato.annotate.proxies import PairProxy, Proxy, by_classifier, by_embedding, by_encoder, fill
from sfumato.annotate.results import results
from sfumato.errors import ConfigError, DataError
from sfumato.learn import classifier, few_shot
from sfumato.protect import parse

Begin = Callable[..., Store]
NAMES = ("cat", "dog", "emu", "fox", "gnu", "hen")


def always(name: str, answer: str | None) -> Proxy:
    return Proxy(name, lambda shown: [answer] * len(shown))


def said(store: Store) -> list[list[str]]:
    """What each proxy answered, by item."""
    return [[mine[number] for number in store.items()] for mine in store.answers().values()]


def grey(pairs: list[Pair]) -> list[Pair]:
    """The same pairs, their reconstructions flat: as bright as the number of their class."""
    for number, one in enumerate(pairs):
        images.write(one.original, torch.full((3, 16, 16), 200, dtype=torch.uint8))
        images.write(one.reconstruction, torch.full((3, 16, 16), 40 * (number % 6), dtype=torch.uint8))
    return pairs


def test_a_proxy_is_shown_the_reconstruction_of_each_item(begin: Begin, pairs: list[Pair]):
    truth = {images.read(one.reconstruction).sum().item(): one.true_class for one in pairs}
    store = begin()
    fill(store, [Proxy("all-knowing", lambda shown: [truth[image.sum().item()] for image in shown])])
    assert all(one.recognised for one in results(store))


def test_a_proxy_that_names_no_class_cannot_tell(begin: Begin):
    store = begin()
    fill(store, [always("blind", None)])
    assert said(store) == [["cannot tell"] * 12]


def test_a_class_that_an_item_does_not_offer_is_as_if_it_could_not_tell(begin: Begin):
    store = begin(options=2)
    fill(store, [always("big", "cat"), always("far", "yak")])
    offered = [item.options for item in store.items().values()]
    assert said(store)[0] == ["cat" if "cat" in options else "cannot tell" for options in offered]
    assert said(store)[1] == ["cannot tell"] * 12


def test_a_pair_proxy_is_shown_original_and_reconstruction(begin: Begin, pairs: list[Pair]):
    store = begin("same")
    together = {
        (images.read(one.original).sum().item(), images.read(one.reconstruction).sum().item())
        for one in pairs
    }

    def compare(originals: Tensor, others: Tensor) -> list[bool]:
        both = zip(originals, others, strict=True)
        return [(one.sum().item(), other.sum().item()) in together for one, other in both]

    fill(store, [PairProxy("all-knowing", compare)])
    assert said(store) == [["same"] * 12 + ["different"] * 3]


def test_images_of_several_sizes_are_answered_size_by_size(begin: Begin, pairs: list[Pair]):
    images.write(pairs[4].reconstruction, torch.zeros(3, 5, 9, dtype=torch.uint8))
    shapes = []

    def classify(shown: Tensor) -> list[str]:
        shapes.append(tuple(shown.shape))
        return ["gnu" if shown.shape[3] == 9 else "cat"] * len(shown)

    store = begin()
    fill(store, [Proxy("big", classify)])
    assert sorted(shapes) == [(1, 3, 5, 9), (11, 3, 8, 8)]
    assert said(store)[0].index("gnu") == 4


@pytest.mark.parametrize(("threshold", "expected"), [(0.5, "same"), (1.0, "different"), (-1.0, "same")])
def test_images_are_the_same_from_a_cosine_on(begin: Begin, threshold: float, expected: str):
    store = begin("same", decoys=0)

    def embed(shown: Tensor) -> Tensor:  # originals lie at 0 degrees, reconstructions at 45
        calls.append(len(shown))
        return torch.tensor([[3.0, 3.0 * (len(calls) % 2 == 0)]]).expand(len(shown), 2)

    calls: list[int] = []
    fill(store, [by_embedding("angles", embed, threshold=threshold)])
    assert set(said(store)[0]) == {expected}


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
    store = begin(of=grey(pairs))
    path = saved_classifier(tmp_path / "rough.safetensors")
    fill(store, [by_classifier(path, threshold=0)])
    shown = torch.stack([images.read(one.reconstruction) for one in pairs])
    expected = [NAMES[code] for code in classifier.load(path).classify(shown).tolist()]
    assert said(store) == [expected]
    assert store.annotators()[0].name == "rough"


def test_a_classifier_that_is_not_sure_cannot_tell(begin: Begin, pairs: list[Pair], tmp_path: Path):
    pairs = grey(pairs)
    shown = torch.stack([images.read(one.reconstruction) for one in pairs])
    path = saved_classifier(tmp_path / "rough.safetensors", sharpness=20.0)
    with torch.no_grad():
        confidence = classifier.load(path)(shown).softmax(1).amax(1)
    threshold = confidence.median().item()
    store = begin(of=pairs)
    fill(store, [by_classifier(path, threshold=threshold)])
    assert [answer == "cannot tell" for answer in said(store)[0]] == (confidence < threshold).tolist()
    assert 0 < said(store)[0].count("cannot tell") < 12


def test_a_classifier_of_another_size_is_refused(begin: Begin, tmp_path: Path):
    store = begin()
    proxy = by_classifier(saved_classifier(tmp_path / "c.safetensors"), threshold=0.5)
    with pytest.raises(
        DataError, match=r"trained on images of 3x16x16, and the campaign shows 3x8x8: name a"
    ):
        fill(store, [proxy])
    assert (store.kind, store.history()) == ("people", [])


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
    store = begin("same", of=same, decoys=0)
    fill(store, [by_encoder(encoder, threshold=0.999)])
    assert said(store) == [["same"] * 12]
    assert store.annotators()[0].name == "e"


def test_an_encoder_of_grey_images_is_not_asked_about_colours(
    begin: Begin, pairs: list[Pair], tmp_path: Path
):
    for one in pairs:
        images.write(one.original, torch.zeros(1, 16, 16, dtype=torch.uint8))
    proxy = by_encoder(saved_encoder(tmp_path / "e.safetensors"), threshold=0.5)
    with pytest.raises(DataError, match="trained on images of 3 channels, and the campaign shows 1: name an"):
        fill(begin("same"), [proxy])


@pytest.mark.parametrize("threshold", [-0.1, 1.1, float("nan")])
def test_a_confidence_is_a_probability(threshold: float):
    with pytest.raises(ConfigError, match="a probability, 0 to 1"):
        by_classifier(Path("none"), threshold=threshold)


def test_a_cosine_is_at_most_one():
    with pytest.raises(ConfigError, match=r"threshold=1\.5: a cosine, -1 to 1"):
        by_embedding("angles", lambda shown: shown, threshold=1.5)


def test_a_proxy_of_the_other_task_is_refused(begin: Begin):
    with pytest.raises(ConfigError, match="big: a Proxy cannot answer 'same': a classifier answers 'choose'"):
        fill(begin("same"), [always("big", "cat")])


def test_proxies_have_names_of_their_own(begin: Begin):
    with pytest.raises(ConfigError, match="proxies need names that differ, got big, big: rename one"):
        fill(begin(), [always("big", "cat"), always("big", "dog")])


def test_no_proxies_are_a_mistake(begin: Begin):
    with pytest.raises(ConfigError, match="no proxies: name at least one recogniser"):
        fill(begin(), [])
