"""Cards from strangers: whatever is in one, it is refused in a sentence, or the model is what it says.

Every card is damaged in a few hundred ways, key by key, with a digest that fits, as whoever edits one with
our own code would leave it.
"""

import copy
import functools
import hashlib
import itertools
import json
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import safetensors.torch
from cloud import refusing
from encoders import Small, write_onnx
from torch import Tensor

import sfumato
from sfumato import artefacts
from sfumato.assess.semsim import SemSim
from sfumato.errors import ArtefactError
from sfumato.export import sides
from sfumato.learn import adversarial_mask, classifier, few_shot, meta, private_feature
from sfumato.learn.semsim import SemSimConfig
from sfumato.networks.code import make_code_network
from sfumato.networks.encoders.pretrained import on_card
from sfumato.networks.encoders.small import Embedding
from sfumato.protect import parse
from sfumato.protect.code import load_encoder
from sfumato.protect.feature import load_extractor
from sfumato.protect.mask import load_masker
from sfumato.serve import models


@dataclass(frozen=True)
class Kind:
    """A real artefact of a kind, and all that reads it."""

    name: str
    tensors: Mapping[str, Tensor]
    card: dict[str, Any]
    readers: tuple[Callable[[str], Any], ...]


def few_shot_kind() -> Kind:
    config = few_shot.FewShotConfig(denoiser_depth=3, denoiser_width=4, precision="float32")
    card = {
        **{"kind": "few-shot", "cell": 4, "config": asdict(config), "spec": "pixelize:cell=4"},
        **{"channels": 1, "precision": "float32", "shape": [1, 16, 16]},
        "made_of": None,
        "refusal": refusing(3.0).card(),
    }
    made = few_shot.make_untrained(1, config, parse("pixelize:cell=4"))
    return Kind("few-shot", made.state_dict(), card, (few_shot.load, models.load))


def meta_kind() -> Kind:
    config = meta.MetaConfig(network="strided", width=4)
    learner = meta.make_untrained(config, (1, 16, 16))
    card = {"kind": "meta", "config": asdict(config), "image": [1, 16, 16], "spec": "blur:radius=2"}
    card |= {"privacy": None, "made_of": None, "inner_norm": 1.5}
    return Kind("meta", {"start": learner.initial()}, card, (meta.load,))


def classifier_kind() -> Kind:
    config = classifier.ClassifierConfig(network="lenet", precision="float32")
    card = {"kind": "classifier", "config": asdict(config), "shape": [1, 16, 16], "classes": ["a", "b"]}
    card |= {"precision": "float32", "spec": "blur:radius=2", "made_of": None, "shapes": False}
    made = classifier.make_untrained(card, config, seed=0)
    return Kind("classifier", made.state_dict(), card, (classifier.load,))


def mask_kind() -> Kind:
    config = adversarial_mask.MaskConfig(masker_width=2, levels=2, precision="float32")
    card = {"kind": "mask", "config": asdict(config), "shape": [1, 16, 16], "classes": ["a", "b"]}
    card |= {"precision": "float32"}
    made = adversarial_mask.make_untrained(card, config, seed=0)
    return Kind("mask", made.state_dict(), card, (adversarial_mask.load, load_masker, sides.read))


def feature_kind() -> Kind:
    config = private_feature.FeatureConfig(widths=(2, 2, 8, 8, 8, 4, 4), dimension=3, precision="float32")
    card = {"kind": "private feature", "config": {**asdict(config), "widths": list(config.widths)}}
    card |= {"shape": [1, 16, 16], "classes": {"kind": ["a", "b"]}, "precision": "float32"}
    made = private_feature.make_untrained(card, seed=0)
    readers = (private_feature.load, models.load, load_extractor, sides.read)
    return Kind("private feature", made.state_dict(), card, readers)


def code_kind() -> Kind:
    card = {"kind": "code", "config": {"encoder": "conv4", "bits": 4, "side": None}, "shape": [1, 16, 16]}
    card["prototypes"] = {
        "spread": {"within": 0.25, "between": 0.75},
        "refusal": refusing(9.5).card(),
        **{"no_refusal": "", "flip": 0.1, "norm": None, "noise": None},
    }
    made = make_code_network("conv4", (1, 16, 16), dimension=4)
    tensors = {f"network.{name}": each for name, each in made.state_dict().items()}
    return Kind("code", tensors, card, (load_encoder, models.load))


def pretrained_kind() -> Kind:
    with TemporaryDirectory() as folder:
        spec = write_onnx(Path(folder) / "small.onnx", Small())
        config = few_shot.FewShotConfig(encoder=spec, denoiser_depth=None, precision="float32")
        made = few_shot.make_untrained(3, config, parse("blur:radius=2"))
        card = {
            **{"kind": "few-shot", "cell": 1, "spec": "blur:radius=2", "made_of": None},
            **{"config": {**asdict(config), "encoder": on_card(spec)}, "precision": "float32"},
            **{"channels": 3, "shape": [3, 16, 16]},
        }
    return Kind("few-shot", made.state_dict(), card, (few_shot.load, models.load))


def semsim_kind() -> Kind:
    config = SemSimConfig(network="lenet", size=8)
    card = {"kind": "semsim", "config": asdict(config)}
    made = Embedding("lenet", size=8, normalised=config.normalised)
    return Kind("semsim", made.state_dict(), card, (SemSim.load,))


KINDS = {
    kind.__name__.removesuffix("_kind"): functools.cache(kind)  # no test changes what is made
    for kind in (
        *(few_shot_kind, meta_kind, classifier_kind, mask_kind, feature_kind, code_kind, semsim_kind),
        pretrained_kind,
    )
}

LARGE: list[Any] = [64, 65, 4096, 1_000_000, 10**9, 10**30, 1e308, [1, 10**6, 10**6], [1, 4096, 256]]
LARGE += [[64, 1024, 1024], [4096] * 7, [1] * 1000, ["x"] * 100_000]
WRONG: list[Any] = [None, True, "", "x", "9" * 40, "\ud800", "x" * 5000, "feature:artefact=a", "none:x=1"]
WRONG += ["dp-pix:cell=1e9", -1, 0, 2, -(10**30), 0.5, -0.5, 1e-320, 2.0, [], [[]], [None], [1, 16]]
WRONG += [[1, -16, 16], [3, 2, 2], ["none", "none"], ["blur:radius=1", "none"], {}, {"a": 1}]
WRONG += [{"": {"": {}}}, {"epsilon": 1.0}]


def damages(card: Mapping[str, Any], values: Sequence[Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every key of a card, and those one deeper, with each value, and without any (...); unknown settings."""
    keys = [(key,) for key in card]
    keys += [(key, inner) for key, value in card.items() if isinstance(value, dict) for inner in value]
    yield from itertools.product(keys, (*values, ...))
    yield ("config", "no_such_setting"), 1
    yield ("extra",), card["config"] | {"no_such_setting": 1}


def damaged(card: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    edited: dict[str, Any] = copy.deepcopy(dict(card))
    at = edited[path[0]] if len(path) > 1 else edited
    if value is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return edited


EVERY = 5  # how many of the damages are tried: prime to the number of values, so that each key meets many


class Stranger:
    """A file of one kind, which takes one card after another. State: what lies on the disk.

    Its bytes are those that artefacts.save would write, without writing its weights anew for every card.
    """

    def __init__(self, kind: Kind, path: Path) -> None:
        self.path = path
        artefacts.save(path, kind.tensors, kind.card)
        saved = path.read_bytes()
        end = 8 + int.from_bytes(saved[:8], "little")
        self._header, self._weights = json.loads(saved[8:end]), saved[end:]
        self._digested = b"".join(
            json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode() + tensor.numpy().tobytes()
            for name, tensor in sorted(kind.tensors.items())
        )
        assert self._text(kind.card) == self._header["__metadata__"]["sfumato"]

    def _text(self, card: Mapping[str, Any]) -> str:
        marked = {"version": sfumato.__version__, **card}
        digest = hashlib.sha256(json.dumps(marked, sort_keys=True).encode() + self._digested).hexdigest()
        return json.dumps(marked | {"sha256": digest}, sort_keys=True)

    def take(self, card: Mapping[str, Any]) -> None:
        header = json.dumps(self._header | {"__metadata__": {"sfumato": self._text(card)}}).encode()
        self.path.write_bytes(len(header).to_bytes(8, "little") + header + self._weights)


def outcomes(kind: Kind, stranger: Stranger) -> Iterator[tuple[str, str | None]]:
    """What was done to a card, and the error of a reader, one after another; None where it read the file."""
    tried = itertools.islice(damages(kind.card, [*WRONG, *LARGE]), 0, None, EVERY)
    for (keys, value), read in zip(tried, itertools.cycle(kind.readers), strict=False):
        stranger.take(damaged(kind.card, keys, value))
        words = f"{'.'.join(keys)} {'gone' if value is ... else reprlib.repr(value)}"
        try:
            read(str(stranger.path))
        except ArtefactError as error:
            yield words, str(error)
        else:
            yield words, None


def resident(what: str) -> int:
    """Memory of this process, in kB: VmRSS now, VmHWM at its peak."""
    (line,) = re.findall(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(line)


@pytest.fixture(scope="module", params=KINDS)
def tried(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    """A file, what came of the damages to its card, and the memory that they took at most, in kB."""
    kind = KINDS[request.param]()
    stranger = Stranger(kind, tmp_path_factory.mktemp("cards") / "stranger.safetensors")
    for read in kind.readers:
        read(str(stranger.path))  # what is honest
    try:
        Path("/proc/self/clear_refs").write_text("5")  # Linux: the peak is that from now on
        before = resident("VmRSS")
    except OSError:
        return stranger.path, list(outcomes(kind, stranger)), None
    return stranger.path, list(outcomes(kind, stranger)), resident("VmHWM") - before


def test_a_damaged_card_is_refused_by_name_and_never_otherwise(tried: tuple[Any, ...]):
    path, found, _ = tried
    errors = [(words, error) for words, error in found if error is not None]
    assert len(errors) >= 34
    for words, error in errors:
        assert error.startswith(f"{path}: "), words
        assert "\n" not in error
        assert len(error) < 1200 + len(str(path.parent)), words


def test_no_damaged_card_takes_more_memory_than_a_network_of_its_weights(tried: tuple[Any, ...]):
    """The files have 10 kB to 1 MB."""
    if tried[2] is None:
        pytest.skip("the peak of a process cannot be measured anew here")
    assert tried[2] < 200 << 10


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    made: Kind = KINDS[request.param]()
    return made


def check_refused(kind: Kind, path: Path, message: str, *, but: Sequence[Callable[[str], Any]] = ()) -> None:
    for read in kind.readers:
        if read not in but:
            with pytest.raises(ArtefactError, match=rf"stranger\.safetensors: {message}"):
                read(str(path))


def test_a_key_that_is_missing_or_of_another_type_is_named(kind: Kind, tmp_path: Path):
    path = tmp_path / "stranger.safetensors"
    key = next(key for key in ("image", "channels", "shape", "config") if key in kind.card)
    artefacts.save(path, kind.tensors, kind.card | {key: "x"})
    check_refused(kind, path, f".*{key} is 'x' in its card")
    artefacts.save(path, kind.tensors, {k: v for k, v in kind.card.items() if k != key})
    check_refused(kind, path, f".*{key} in its card: Field requ")


def test_weights_that_do_not_fit_the_card_are_named(kind: Kind, tmp_path: Path):
    path = tmp_path / "stranger.safetensors"
    first, last = next(iter(kind.tensors)), next(reversed(kind.tensors))
    for tensors in (
        {},
        {k: v for k, v in kind.tensors.items() if k != first},
        {**kind.tensors, first: kind.tensors[first][:1]},
        {f"{k}x": v for k, v in kind.tensors.items()},
    ):
        artefacts.save(path, tensors, kind.card)
        # A server computes nothing of a feature or a code: it looks at how many numbers they make.
        computes = kind.name not in ("private feature", "code") or last not in tensors
        check_refused(kind, path, "damaged: .*fit", but=() if computes else [models.load])


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "1e999", "[" * 50_000 + "]" * 50_000, "9" * 9999, "nope"]
)
def test_json_beyond_json_is_refused_by_every_reader(kind: Kind, value: str, tmp_path: Path):
    path, text = tmp_path / "stranger.safetensors", json.dumps(kind.card)[:-1] + f', "x": {value}}}'
    tensors = {k: v.contiguous() for k, v in kind.tensors.items()}
    safetensors.torch.save_file(tensors, path, metadata={"sfumato": text})
    check_refused(kind, path, "damaged: its card is not JSON")
