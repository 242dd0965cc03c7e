"""Artefacts: what is saved comes back, whole or not at all, and nothing else is taken for one."""

import json
import pickle
import tracemalloc
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import sfumato
from sfumato import artefacts
from sfumato.errors import ArtefactError

WEIGHTS = {
    "encoder.weight": torch.arange(6.0).view(2, 3),
    "encoder.bias": torch.ones(2, dtype=torch.bfloat16),
}
CARD = {"kind": "few-shot", "spec": "blur:radius=3", "metrics": {"accuracy": 0.9}, "privacy_spent": None}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    artefacts.save(tmp_path / "model.safetensors", WEIGHTS, CARD)
    return tmp_path / "model.safetensors"


# Round trip


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
)
def test_tensors_come_back_bit_for_bit(tmp_path: Path, dtype: torch.dtype):
    tensor = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0)).mul(10).to(dtype)
    written = {"cube": tensor, "none": torch.empty(0, 3, dtype=dtype), "scalar": torch.tensor(1, dtype=dtype)}
    artefacts.save(tmp_path / "a", written, CARD)
    tensors, _ = artefacts.load(tmp_path / "a", kind="few-shot")
    assert set(tensors) == set(written)
    for name, expected in written.items():
        assert tensors[name].dtype == dtype
        assert torch.equal(tensors[name], expected)


def test_tensors_that_share_memory_or_have_strides_come_back_as_they_look(tmp_path: Path):
    tensor, weight = torch.arange(48.0).view(2, 3, 2, 4), torch.arange(6.0)
    written = {
        "channels last": tensor.contiguous(memory_format=torch.channels_last),
        "turned": tensor.mT[..., ::2],
        **{"weight": weight, "tied": weight, "part": weight[2:]},  # as in a user's own encoder
    }
    artefacts.save(tmp_path / "new" / "deep" / "a", written, CARD)  # a missing folder is made
    tensors, _ = artefacts.load(tmp_path / "new" / "deep" / "a", kind="few-shot")
    assert set(tensors) == set(written)
    assert all(torch.equal(tensors[name], each) for name, each in written.items())


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(extra=st.dictionaries(st.text().filter(lambda key: key not in ("kind", "version")), JSON, max_size=4))
def test_the_card_comes_back(tmp_path_factory: pytest.TempPathFactory, extra: dict[str, Any]):
    path = tmp_path_factory.getbasetemp() / "card.safetensors"
    artefacts.save(path, {}, {"kind": "few-shot", **extra})
    _, card = artefacts.load(path, kind="few-shot")
    assert card == {"kind": "few-shot", "version": sfumato.__version__, **extra}


def test_the_card_is_json_in_the_header_that_any_program_can_read(saved: Path):
    with safetensors.safe_open(saved, framework="numpy") as opened:
        assert json.loads(opened.metadata()["sfumato"])["spec"] == "blur:radius=3"


# Whole or not at all


def test_a_save_that_fails_leaves_the_old_file_and_one_that_does_not_nothing_beside_it(saved, monkeypatch):
    def disk_full(tensors: Mapping[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    before = saved.read_bytes()
    with pytest.raises(TypeError, match="JSON"):
        artefacts.save(saved, WEIGHTS, {"kind": "few-shot", "path": saved})
    with pytest.raises(ArtefactError, match="not written: a number of its card is NaN or infinite"):
        artefacts.save(saved, WEIGHTS, {"kind": "few-shot", "accuracy": float("nan")})
    with monkeypatch.context() as patched:
        patched.setattr(safetensors.torch, "save_file", disk_full)
        with pytest.raises(OSError, match="No space left"):
            artefacts.save(saved, {"other": torch.zeros(1)}, CARD)
    assert saved.read_bytes() == before
    artefacts.save(saved, {"other": torch.zeros(1)}, CARD)
    assert set(artefacts.load(saved, kind="few-shot")[0]) == {"other"}
    assert list(saved.parent.iterdir()) == [saved]


# What was not saved so


def rewritten(path: Path, tensors: Mapping[str, Tensor], text: str, digest: str | None) -> Path:
    """A file as another program would write it, with the digest of ours or without."""
    if digest is not None:
        text = json.dumps({**json.loads(text), "sha256": digest})
    safetensors.torch.save_file(dict(tensors), path, metadata={"sfumato": text})
    return path


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """The digest that belongs to the card of these tests."""
    parts = (
        (name, str(each.dtype), each.shape, each.view(torch.uint8).numpy().data)
        for name, each in sorted(tensors.items())
    )
    return artefacts._digest(json.dumps(CARD, sort_keys=True), parts)


def parts(path: Path) -> tuple[dict[str, Tensor], str, str]:
    with safetensors.safe_open(path, framework="pt") as opened:
        card = json.loads(opened.metadata()["sfumato"])
        digest = card.pop("sha256")
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        return tensors, json.dumps(card), digest


def test_equal_artefacts_are_equal_files(saved: Path, tmp_path: Path):
    for number in range(20):
        artefacts.save(tmp_path / f"{number}.safetensors", WEIGHTS, CARD)
        assert (tmp_path / f"{number}.safetensors").read_bytes() == saved.read_bytes()


def test_a_flipped_bit_anywhere_in_the_weights_is_refused(saved: Path):
    whole = saved.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    for place in range(header, len(whole)):
        saved.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ArtefactError, match=r"model\.safetensors: damaged, or edited after it was saved"):
            artefacts.load(saved, kind="few-shot")


def test_weights_under_another_name_shape_or_type_are_refused(saved: Path):
    tensors, text, digest = parts(saved)
    weight, bias = tensors["encoder.weight"], tensors["encoder.bias"]
    for edited in (
        {"encoder.weights": weight, "encoder.bias": bias},
        {"encoder.weight": weight.view(3, 2), "encoder.bias": bias},
        {"encoder.weight": weight, "encoder.bias": bias.view(torch.float16)},
        {"encoder.weight": weight},
        {**tensors, "more": torch.empty(0)},
    ):
        with pytest.raises(ArtefactError, match="edited after it was saved"):
            artefacts.load(rewritten(saved, edited, text, digest), kind="few-shot")


def test_an_accuracy_that_was_edited_and_a_file_without_a_digest_are_refused(saved: Path):
    tensors, text, digest = parts(saved)
    rewritten(saved, tensors, text.replace("0.9", "0.99"), digest)
    edited = r"model\.safetensors: .*edited after it was saved: .* do not match its digest: take an unch"
    with pytest.raises(ArtefactError, match=edited):
        artefacts.load(saved, kind="few-shot")
    rewritten(saved, tensors, text, None)
    with pytest.raises(ArtefactError, match=edited):
        artefacts.load(saved, kind="few-shot")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_numbers_that_are_none_are_neither_saved_nor_read(saved: Path, value: float, dtype: torch.dtype):
    bad = {"a": torch.ones(3), "b": torch.tensor([1.0, value], dtype=dtype)}
    before = saved.read_bytes()
    with pytest.raises(ArtefactError, match="not written: b has numbers that are NaN or infinite: the train"):
        artefacts.save(saved, bad, CARD)
    assert saved.read_bytes() == before
    rewritten(saved, bad, json.dumps(CARD), digest_of(bad))
    with pytest.raises(ArtefactError, match=r"model\.safetensors: damaged: b has numbers that are NaN"):
        artefacts.load(saved, kind="few-shot")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"kind": "few-shot", "a": NaN}', "NaN is not a number"),
        ('{"kind": "few-shot", "a": -Infinity}', "-Infinity is not a number"),
        ('{"kind": "few-shot", "a": 1e999}', "1e999 is too large a number"),
        ('{"kind": "mask", "kind": "few-shot"}', "a key occurs twice"),
        ('{"kind": "few-shot", "a": ' + "[" * 100_000 + "]" * 100_000 + "}", "recursion"),
        ('{"kind": "few-shot", "a": ' + "9" * 10_000 + "}", "digits"),
    ],
)
def test_json_that_no_card_is_written_in_is_refused(saved: Path, text: str, words: str):
    rewritten(saved, WEIGHTS, text, None)
    damaged = "(?s)model.safetensors: damaged: its card is not JSON"
    with pytest.raises(ArtefactError, match=f"{damaged} .*{words}"):
        artefacts.load(saved, kind="few-shot")


def test_a_header_of_many_megabytes_is_refused_before_it_is_read(saved: Path):
    rewritten(saved, WEIGHTS, json.dumps({**CARD, "a": "x" * artefacts.MOST_HEADER}), None)
    tracemalloc.start()
    try:
        long = r"a header of 4,19\d,\d+ bytes, and at most 4,194,304 are read"
        with pytest.raises(ArtefactError, match=long):
            artefacts.load(saved, kind="few-shot")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_weights_of_a_type_that_no_network_has_are_refused(saved: Path):
    complex_ones = {"a": torch.zeros(2, dtype=torch.complex64)}
    rewritten(saved, complex_ones, json.dumps(CARD), digest_of(complex_ones))
    with pytest.raises(ArtefactError, match=r"model\.safetensors: damaged: a is of C64"):
        artefacts.load(saved, kind="few-shot")


# What is no artefact


def test_a_file_cut_anywhere_or_with_something_behind_it_is_refused(saved: Path):
    whole = saved.read_bytes()
    for content in (whole + b"x", *(whole[:end] for end in range(len(whole)))):
        saved.write_bytes(content)
        with pytest.raises(
            ArtefactError, match=r"model\.safetensors: damaged or not a \.safetensors file \("
        ):
            artefacts.load(saved, kind="few-shot")


def test_a_wrong_byte_in_the_header_never_raises_another_error(saved: Path):
    """It is refused, or it changed a word of the card or of a name."""
    whole = saved.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    for place in range(header):
        for byte in (0, 0xFF, whole[place] ^ 1):
            saved.write_bytes(whole[:place] + bytes([byte]) + whole[place + 1 :])
            with suppress(ArtefactError):
                tensors, card = artefacts.load(saved, kind="few-shot")
                assert card["kind"] == "few-shot"
                assert len(tensors) == 2


@pytest.mark.parametrize("card", ["not JSON", "", "{", "[]", "3", "null", '"few-shot"'])
def test_a_card_that_is_no_mapping_is_refused(tmp_path: Path, card: str):
    safetensors.torch.save_file(WEIGHTS, tmp_path / "a.safetensors", metadata={"sfumato": card})
    with pytest.raises(ArtefactError, match=r"a\.safetensors: "):
        artefacts.load(tmp_path / "a.safetensors", kind="few-shot")


def test_what_is_no_artefact_or_of_another_kind_is_refused_by_name(saved: Path, tmp_path: Path):
    for name, metadata in (("none", None), ("empty", {}), ("others", {"format": "pt"})):
        safetensors.torch.save_file(WEIGHTS, tmp_path / name, metadata=metadata)
        with pytest.raises(ArtefactError, match=f"{name}: has no sfumato card: .* another program"):
            artefacts.load(tmp_path / name, kind="few-shot")
    with pytest.raises(ArtefactError, match=r"model\.safetensors: is a 'few-shot', and a 'recogniser' is n"):
        artefacts.load(saved, kind="recogniser")
    with pytest.raises(ArtefactError, match=r"gone\.safetensors: no such file"):
        artefacts.load(tmp_path / "gone.safetensors", kind="few-shot")
    with pytest.raises(ArtefactError, match="damaged or not"):
        artefacts.load(tmp_path, kind="few-shot")


class Bomb:
    """What a pickle can do when it is read."""

    def __init__(self, touched: Path) -> None:
        self.touched = touched

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.touched,)


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_is_refused_and_not_run(tmp_path: Path, protocol: int):
    touched = tmp_path / "touched"
    (tmp_path / "a.safetensors").write_bytes(pickle.dumps(Bomb(touched), protocol))
    with pytest.raises(ArtefactError, match=r"a\.safetensors: damaged or not a \.safetensors file"):
        artefacts.load(tmp_path / "a.safetensors", kind="few-shot")
    assert not touched.exists()
    pickle.loads((tmp_path / "a.safetensors").read_bytes())
    assert touched.exists()  # the pickle was one that runs


def test_what_is_saved_is_no_pickle(saved: Path):
    with pytest.raises((pickle.UnpicklingError, ValueError, EOFError, KeyError)):
        pickle.loads(saved.read_bytes())
