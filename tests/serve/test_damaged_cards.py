"""Cards from strangers: whatever is in one, it is refused in a sentence, or the model is what it says.

Every card is damaged in a few hundred ways, key by key, with a digest that fits, as whoever edits one with
our own code would leave it.
"""

import copy
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
from torch import Tensor

from sfumato import artefacts
from sfumato.assess.semsim import SemSim
from sfumato.edge import graphs
from sfumato.errors import ArtefactError
from sfumato.learn import adversarial_mask, classifier, few_shot, meta, private_feature
from sfumato.learn.adversarial_mask import MaskConfig
from sfumato.learn.classifier import ClassifierConfig
from sfumato.learn.few_shot import FewShotConfig
from sfumato.learn.meta import MetaConfig
from sfumato.learn.private_feature import FeatureConfig
from sfumato.learn.semsim import SemSimConfig
from sfumato.networks.embedding import Embedding
from sfumato.protect import parse
from sfumato.protect.feature import load_extractor
from sfumato.protect.mask import load_masker
from sfumato.serve import models


@dataclass(frozen=True)
class Kind:
    """A real artefact of a kind, and all that reads it."""

    name: str
    tensors: Mapping[str, Tensor]
    card: dict[str, Any]
    readers: tuple[Callable[[Path], Any], ...]


def few_shot_kind() -> Kind:
    config = FewShotConfig(denoiser_depth=3, denoiser_width=4, precision="float32")
    card = {
        **{"kind": "few-shot", "cell": 4, "config": asdict(config), "specs": ["pixelize:cell=4"]},
        **{"channels": 1, "precision": "float32", "shape": [1, 16, 16]},
        **{"weights": {"pixelize:cell=4": 1.0}, "made_of": [None]},
        "refusal": {"threshold": 3.0, "accepted": 0.95, "refused": 0.4},
    }
    made = few_shot.untrained(1, config, [parse("pixelize:cell=4")])
    return Kind("few-shot", made.state_dict(), card, (few_shot.load, models.load))


def meta_kind() -> Kind:
    config = MetaConfig(network="strided", width=4)
    learner = meta._learner(config, (1, 16, 16))
    card = {"kind": "meta", "config": asdict(config), "image": [1, 16, 16], "spec": "blur:radius=2"}
    card |= {"privacy": None, "made_of": None, "inner_norm": 1.5}
    return Kind("meta", {"start": learner.initial()}, card, (meta.load,))


def classifier_kind() -> Kind:
    config = ClassifierConfig(network="lenet", precision="float32")
    card = {"kind": "classifier", "config": asdict(config), "shape": [1, 16, 16], "classes": ["a", "b"]}
    card |= {"precision": "float32", "spec": "blur:radius=2", "made_of": None, "shapes": False}
    made = classifier.untrained(card, config, seed=0)
    return Kind("classifier", made.state_dict(), card, (classifier.load,))


def mask_kind() -> Kind:
    config = MaskConfig(masker_width=2, levels=2, precision="float32")
    card = {"kind": "mask", "config": asdict(config), "shape": [1, 16, 16], "classes": ["a", "b"]}
    card |= {"precision": "float32"}
    made = adversarial_mask.untrained(card, config, seed=0)
    return Kind(
        *("mask", made.state_dict(), card),
        (adversarial_mask.load, lambda path: load_masker(str(path)), lambda path: graphs.read(str(path))),
    )


def feature_kind() -> Kind:
    config = FeatureConfig(widths=(2, 2, 8, 8, 8, 4, 4), dimension=3, precision="float32")
    card = {"kind": "private feature", "config": {**asdict(config), "widths": list(config.widths)}}
    card |= {"shape": [1, 16, 16], "classes": {"kind": ["a", "b"]}, "precision": "float32"}
    made = private_feature.untrained(card, seed=0)
    return Kind(
        *("private feature", made.state_dict(), card),
        (
            *(private_feature.load, models.load),
            *(lambda path: load_extractor(str(path)), lambda path: graphs.read(str(path))),
        ),
    )


def semsim_kind() -> Kind:
    config = SemSimConfig(network="lenet", size=8)
    card = {"kind": "semsim", "config": asdict(config)}
    made = Embedding("lenet", size=8, normalised=config.normalised)
    return Kind("semsim", made.state_dict(), card, (SemSim.load,))


KINDS = {
    kind.__name__.removesuffix("_kind"): kind
    for kind in (few_shot_kind, meta_kind, classifier_kind, mask_kind, feature_kind, semsim_kind)
}

LARGE: list[Any] = [
    *(64, 65, 4096, 1_000_000, 10**9, 10**30, 1e308),
    *([1, 10**6, 10**6], [1, 4096, 256], [64, 1024, 1024], [4096] * 7, [1] * 1000, ["x"] * 100_000),
]
WRONG: list[Any] = [
    *(
        None,
        True,
        "",
        "x",
        "9" * 40,
        "\ud800",
        "x" * 5000,
        "feature:artefact=a",
        "none:x=1",
        "dp-pix:cell=1e9",
    ),
    *(-1, 0, 2, -(10**30), 0.5, -0.5, 1e-320, 2.0),
    *([], [[]], [None], [1, 16], [1, -16, 16], [3, 2, 2], ["none", "none"], ["blur:radius=1", "none"]),
    *({}, {"a": 1}, {"": {"": {}}}, {"epsilon": 1.0}),
]


def paths(card: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Every key of a card, and those one deeper."""
    for key, value in card.items():
        yield (key,)
        if isinstance(value, dict):
            yield from ((key, inner) for inner in value)


def damaged(card: Mapping[str, Any], values: Sequence[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What was done, and the card: every key with each of the values, and without any."""
    for path in paths(card):
        for value in (*values, ...):
            edited: dict[str, Any] = copy.deepcopy(dict(card))
            at = edited
            for key in path[:-1]:
                at = at[key]
            if value is ...:
                del at[path[-1]]
            else:
                at[path[-1]] = value
            words = "gone" if value is ... else repr(value)[:40]
            yield f"{'.'.join(path)} {words}", edited
    for key in ("config", "extra"):
        yield f"unknown {key}", {**card, key: {**card["config"], "no_such_setting": 1}}


EVERY = 5  # how many of the damages are tried: prime to the number of values, so that each key meets many


def outcomes(kind: Kind, folder: Path, values: Sequence[Any]) -> Iterator[tuple[str, str | None]]:
    """What was done to a card, and the error of a reader, one after another; None where it read the file."""
    path = folder / "stranger.safetensors"
    cards = itertools.islice(damaged(kind.card, values), 0, None, EVERY)
    for (words, card), read in zip(cards, itertools.cycle(kind.readers), strict=False):
        artefacts.save(path, kind.tensors, card)
        try:
            read(path)
        except ArtefactError as error:
            yield words, str(error)
        else:
            yield words, None


@pytest.mark.parametrize("name", KINDS)
def test_a_damaged_card_is_refused_by_name_and_never_otherwise(name: str, tmp_path: Path):
    kind = KINDS[name]()
    artefacts.save(tmp_path / "honest.safetensors", kind.tensors, kind.card)
    for read in kind.readers:
        read(tmp_path / "honest.safetensors")
    found = outcomes(kind, tmp_path, [*WRONG, *LARGE])
    errors = [(words, error) for words, error in found if error is not None]
    assert len(errors) >= 34
    for words, error in errors:
        assert error.startswith(f"{tmp_path}/stranger.safetensors: "), words
        assert "\n" not in error
        assert len(error) < 1200 + len(str(tmp_path)), words


@pytest.mark.parametrize("name", KINDS)
def test_a_key_that_is_missing_or_of_another_type_is_named(name: str, tmp_path: Path):
    kind = KINDS[name]()
    path = tmp_path / "stranger.safetensors"
    key = {"meta": "image", "semsim": "config", "few_shot": "channels"}.get(name, "shape")
    artefacts.save(path, kind.tensors, kind.card | {key: "x"})
    for read in kind.readers:
        with pytest.raises(ArtefactError, match=rf"stranger\.safetensors: .*{key} is 'x' in its card"):
            read(path)
    artefacts.save(path, kind.tensors, {k: v for k, v in kind.card.items() if k != key})
    for read in kind.readers:
        with pytest.raises(ArtefactError, match=rf"stranger\.safetensors: .*{key} in its card: Field requ"):
            read(path)


@pytest.mark.parametrize("name", KINDS)
def test_weights_that_do_not_fit_the_card_are_named(name: str, tmp_path: Path):
    kind = KINDS[name]()
    path = tmp_path / "stranger.safetensors"
    first = next(iter(kind.tensors))
    for tensors in (
        {},
        {k: v for k, v in kind.tensors.items() if k != first},
        {**kind.tensors, first: kind.tensors[first][:1]},
        {f"{k}x": v for k, v in kind.tensors.items()},
    ):
        artefacts.save(path, tensors, kind.card)
        for read in kind.readers:
            with pytest.raises(ArtefactError, match=r"stranger\.safetensors: damaged: .*fit"):
                read(path)


def test_an_unknown_setting_of_a_training_is_refused_and_other_keys_are_not(tmp_path: Path):
    kind = few_shot_kind()
    path = tmp_path / "m.safetensors"
    artefacts.save(path, kind.tensors, kind.card | {"noted_by_a_later_version": [1, {"a": 2}]})
    few_shot.load(path)
    artefacts.save(path, kind.tensors, kind.card | {"config": kind.card["config"] | {"dropout": 0.1}})
    with pytest.raises(ArtefactError, match=r"m\.safetensors: .*config has no setting 'dropout'"):
        few_shot.load(path)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "1e999", "[" * 50_000 + "]" * 50_000, "9" * 9999, "nope"]
)
def test_json_beyond_json_is_refused_by_every_reader(name: str, value: str, tmp_path: Path):
    kind = KINDS[name]()
    path = tmp_path / "stranger.safetensors"
    text = json.dumps(kind.card)[:-1] + f', "x": {value}}}'
    safetensors.torch.save_file(
        {k: v.contiguous() for k, v in kind.tensors.items()}, path, metadata={"sfumato": text}
    )
    for read in kind.readers:
        with pytest.raises(ArtefactError, match=r"stranger\.safetensors: damaged: its card is not JSON"):
            read(path)


def test_no_damaged_card_takes_more_memory_than_a_network_of_its_weights(tmp_path: Path):
    """In a process of its own, whose peak is its own. The files have 10 kB to 1 MB."""
    script = f"""
import resource, sys
sys.path[:0] = {[str(Path(__file__).parent)]!r}
from pathlib import Path
import torch
import test_damaged_cards as cards
torch.set_num_threads(1)
made = [kind() for kind in cards.KINDS.values()]
for kind in made:
    cards.artefacts.save(Path({str(tmp_path)!r}) / "m", kind.tensors, kind.card)
    [read(Path({str(tmp_path)!r}) / "m") for read in kind.readers]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for kind in made:
    list(cards.outcomes(kind, Path({str(tmp_path)!r}), cards.LARGE))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 600 << 10  # kB
