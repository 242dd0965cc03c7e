"""Artefacts: weights, the settings that made them, and the privacy they cost, in one .safetensors file.

The JSON card in the header describes the weights. There is no pickle anywhere: a file can be damaged
or foreign, and is then refused, but it cannot run code.

The card has a digest of itself and of the weights. It reveals a file that was damaged, or edited without
thought. It is not a signature: anybody who can write the file can write the digest. It is a key of the card,
since safetensors writes several entries of a header in a random order: equal artefacts are equal files.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from safetensors import SafetensorError, safe_open

import sfumato
from sfumato.base.files import open_regular, parse_json, whole
from sfumato.base.schemas import validate_json
from sfumato.errors import ArtefactError, shorten

# Cards are read without PyTorch, which a service of codes lacks; only tensors need it.
if TYPE_CHECKING:
    from torch import Tensor

MOST_HEADER = 4 << 20  # bytes of the names and the card, which are read before any check
MOST_SIDE = 4096  # pixels of an image that a card names
MOST_PIXELS = 1 << 20
MOST_MAP = 1 << 26  # numbers that one layer may make of one image

_CARD = "sfumato"
_DIGEST = "sha256"  # a key of the card
_SHOWN = 60  # letters of a wrong value that an error repeats

# The types of tensors by their names in safetensors, and in PyTorch.
_FLOATS = {"F16": "torch.float16", "BF16": "torch.bfloat16", "F32": "torch.float32", "F64": "torch.float64"}
_OTHERS = {"BOOL": "torch.bool", "U8": "torch.uint8"} | {f"I{b}": f"torch.int{b}" for b in (8, 16, 32, 64)}
_TYPES = _FLOATS | _OTHERS


class Card(BaseModel):
    """The keys of every card. Each kind has its own schema, next to its loader.

    Types are strict, and numbers finite. Unknown keys are accepted at the top, for keys that loaders do not
    need; an unknown setting of a training is refused, since it may change what the network computes.
    """

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False, frozen=True)

    kind: str
    version: str = ""

    @model_validator(mode="after")
    def _settings_are_known(self) -> "Card":
        for name in type(self).model_fields:
            _check_known(name, getattr(self, name))
        return self


def _check_known(name: str, value: Any) -> None:
    """Raises ValueError for keys that a dataclass does not have; pydantic leaves them on the instance."""
    known = getattr(type(value), "__dataclass_fields__", None)
    if known is None:
        return
    for key, inner in vars(value).items():
        if key not in known and not key.startswith("_"):
            raise ValueError(f"{name} has no setting {key!r}: if a newer version wrote it, upgrade sfumato")
        _check_known(f"{name}.{key}", inner)


def _is_image(shape: tuple[int, int, int]) -> tuple[int, int, int]:
    if shape[1] * shape[2] > MOST_PIXELS:
        raise ValueError(f"images of more than {MOST_PIXELS:,} pixels")
    return shape


def check_map(filters: int, shape: tuple[int, int, int], cell: int = 1) -> None:
    """Raises ValueError if a layer, with these filters at each cell of an image, has too many numbers.

    This bounds the memory of a network's computation, as its weights bound its own.
    """
    if filters * -(-shape[1] // cell) * -(-shape[2] // cell) > MOST_MAP:
        raise ValueError(
            f"a layer of {filters} filters has more than {MOST_MAP:,} numbers on images of "
            f"{shape[1]}x{shape[2]}"
        )


Side = Annotated[int, Field(ge=1, le=MOST_SIDE)]
Channels = Annotated[int, Field(ge=1, le=64)]
ImageShape = Annotated[tuple[Channels, Side, Side], AfterValidator(_is_image)]  # (C, H, W)
Name = Annotated[str, Field(max_length=4096)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def save(path: str | os.PathLike[str], tensors: "Mapping[str, Tensor]", card: Mapping[str, Any]) -> None:
    """Writes tensors and card, whole or not at all.

    Args:
        path: the file; a missing folder is made.
        tensors: name -> tensor; finite numbers.
        card: fit for JSON; "kind" names its kind, and the library version is added.

    Raises:
        ArtefactError: a number is NaN or infinite, as after a training that diverged.
    """
    import torch
    from safetensors.torch import save_file

    try:
        text = json.dumps({"version": sfumato.__version__, **card}, sort_keys=True, allow_nan=False)
    except ValueError as error:
        raise ArtefactError(
            f"{path}: not written: a number of its card is NaN or infinite ({error}): the training failed; "
            "lower its learning rate"
        ) from error
    # Copies, since safetensors refuses tensors that share memory, as tied weights do.
    copies = {
        k: v.detach().to("cpu", copy=True, memory_format=torch.contiguous_format) for k, v in tensors.items()
    }
    _check_numbers(f"{path}: not written", copies, "the training diverged; lower its learning rate")
    with whole(Path(path)) as temporary:
        card = {**json.loads(text), _DIGEST: _digest(text, copies)}
        save_file(copies, temporary, metadata={_CARD: json.dumps(card, sort_keys=True)})


def amend(path: str | os.PathLike[str], **more: Any) -> None:
    """Writes an artefact again, with more in its card that was not known before.

    Args:
        path: the file, of any kind; its tensors stay, and its digest is new.
        more: keys of the card, fit for JSON; they replace existing ones.

    Raises:
        ArtefactError: no such file, damaged, or not written by sfumato.
    """
    kind = str(read_card(path).get("kind"))
    tensors, card = load(path, kind=kind)
    save(path, tensors, {**card, **more})


def load(
    path: str | os.PathLike[str], *, kind: str, schema: type[Card] = Card
) -> "tuple[dict[str, Tensor], dict[str, Any]]":
    """Reads the tensors and the card of an artefact of one kind.

    Promises: the card fits the schema, every number is finite, and card and tensors are the ones
    that were saved.

    Args:
        path: the file.
        kind: the expected one.
        schema: of the cards of that kind.

    Raises:
        ArtefactError: no such file, damaged, edited, not written by sfumato, or of another kind; it names the
            file and the wrong key of a card.
    """
    with _open(path, "pt") as (metadata, tensors_of):
        card = _card(path, _text(path, metadata))
        digest = card.pop(_DIGEST, None)
        _check_kind(path, card, kind)
        check(path, card, schema)
        tensors = tensors_of()
    _check_digest(path, card, digest, _digest(json.dumps(card, sort_keys=True), tensors))
    _check_numbers(f"{path}: damaged", tensors, "take another copy, or train it again")
    return tensors, card


def load_card(
    path: str | os.PathLike[str], *, kind: str, schema: type[Card] = Card
) -> tuple[dict[str, Any], Mapping[str, tuple[int, ...]]]:
    """Reads the card of an artefact of one kind, and the shape of each tensor, without PyTorch.

    Promises and raises as `load` does, except for numbers that are not finite, which it does not read.
    """
    with _open(path) as (metadata, _):
        card = _card(path, _text(path, metadata))
        digest = card.pop(_DIGEST, None)
        _check_kind(path, card, kind)
        check(path, card, schema)
        # safe_open has checked the parts of the file against its header.
        with open_regular(path) as file:
            size = int.from_bytes(file.read(8), "little")
            named = parse_json(file.read(size))
            named.pop("__metadata__", None)
            sha = hashlib.sha256(json.dumps(card, sort_keys=True).encode("utf-8", "surrogatepass"))
            for name, told in sorted(named.items()):
                start, end = told["data_offsets"]
                sha.update(json.dumps([name, _TYPES.get(told["dtype"]), told["shape"]]).encode())
                file.seek(8 + size + start)
                sha.update(file.read(end - start))
    _check_digest(path, card, digest, sha.hexdigest())
    return card, {name: tuple(told["shape"]) for name, told in named.items()}


def _check_kind(path: str | os.PathLike[str], card: Mapping[str, Any], kind: str) -> None:
    if card.get("kind") != kind:
        raise ArtefactError(f"{path}: is a {card.get('kind')!r}, and a {kind!r} is needed")


def _check_digest(
    path: str | os.PathLike[str], card: Mapping[str, Any], digest: str | None, of_ours: str
) -> None:
    if digest != of_ours:
        raise ArtefactError(
            f"{path}: damaged, or edited after it was saved: its card and weights do not match its digest: "
            "take an unchanged copy, or make it again"
        )


def check(path: str | os.PathLike[str], card: Mapping[str, Any], schema: type[Card]) -> None:
    """Raises ArtefactError, with the file and the key, unless a card fits a schema."""
    try:
        validate_json(schema, json.dumps(card))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        key = ".".join(map(str, problem["loc"])) or "the card"
        value = "" if problem["type"] == "missing" else f" is {shorten(repr(problem['input']), _SHOWN)}"
        raise ArtefactError(
            f"{path}: damaged, or of another version: {key}{value} in its card: {shorten(problem['msg'])}"
        ) from error


def read_card(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads the card of an artefact of any kind, unchecked: enough to choose its loader.

    Raises:
        ArtefactError: no such file, damaged, or not written by sfumato.
    """
    with _open(path) as (metadata, _):
        card = _card(path, _text(path, metadata))
    card.pop(_DIGEST, None)
    return card


def _digest(text: str, tensors: "Mapping[str, Tensor]") -> str:
    """The SHA-256 of the text of a card, and of the names, types, shapes and bytes of tensors."""
    import torch

    sha = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    for name, tensor in sorted(tensors.items()):
        sha.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        sha.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def _check_numbers(what: str, tensors: "Mapping[str, Tensor]", cure: str) -> None:
    """Raises ArtefactError for tensors of types that no network has, and for NaN and infinities."""
    import torch

    for name, tensor in tensors.items():
        if str(tensor.dtype) not in _TYPES.values():
            raise ArtefactError(f"{what}: {name} is of {tensor.dtype}, which no network here uses")
        # A sum is faster, and is finite only if all numbers are; that of large float64 may not be.
        if (
            str(tensor.dtype) in _FLOATS.values()
            and not tensor.sum(dtype=torch.float64).isfinite()
            and not tensor.isfinite().all()
        ):
            raise ArtefactError(f"{what}: {name} has numbers that are NaN or infinite: {cure}")


def _text(path: str | os.PathLike[str], metadata: Mapping[str, str]) -> str:
    if _CARD not in metadata:
        raise ArtefactError(f"{path}: has no sfumato card: it was written by another program")
    return metadata[_CARD]


def _card(path: str | os.PathLike[str], text: str) -> dict[str, Any]:
    try:
        card = parse_json(text)
    except ValueError as error:
        raise ArtefactError(f"{path}: damaged: its card is not JSON ({error})") from error
    if not isinstance(card, dict):
        raise ArtefactError(f"{path}: damaged: its card is not a mapping")
    if not isinstance(kind := card.get("kind"), str | None) or len(kind or "") > _SHOWN:
        raise ArtefactError(
            f"{path}: damaged: kind is {shorten(repr(kind), _SHOWN)} in its card, which is not a name"
        )
    return card


@contextmanager
def _open(path: str | os.PathLike[str], framework: str = "np") -> Iterator[tuple[dict[str, str], Any]]:
    """Yields the metadata of a file, and a function that reads its tensors, as "pt" those of PyTorch."""
    try:
        with open_regular(path) as file:
            header = int.from_bytes(file.read(8), "little")
            if MOST_HEADER < header < os.fstat(file.fileno()).st_size:
                raise ArtefactError(
                    f"{path}: damaged, or not by sfumato: a header of {header:,} bytes, and at most "
                    f"{MOST_HEADER:,} are read"
                )
        with safe_open(path, framework=framework) as opened:
            yield (
                opened.metadata() or {},
                lambda: {name: opened.get_tensor(name) for name in opened.keys()},  # noqa: SIM118
            )
    except FileNotFoundError as error:
        raise ArtefactError(f"{path}: no such file") from error
    except (SafetensorError, OSError) as error:
        raise ArtefactError(f"{path}: damaged or not a .safetensors file ({error})") from error
