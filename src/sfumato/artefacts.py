"""Artefacts: weights, the settings that made them, and the privacy they cost, in one .safetensors file.

The JSON card in the header describes the weights. There is no pickle anywhere: a file can be damaged
or foreign, and is then refused, but it cannot run code.

The card has a digest of itself and of the weights, which reveals damage. It is not a signature: anybody who
can write the file can write the digest. It is a key of the card, since safetensors writes several entries of
a header in a random order: equal artefacts are equal files.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open

import sfumato
from sfumato.base.files import open_regular, parse_json, whole
from sfumato.base.schemas import validate_json
from sfumato.errors import ArtefactError, shorten

# Cards are read without PyTorch, which a service of codes lacks; only tensors need it.
if TYPE_CHECKING:
    from torch import Tensor

StrPath = str | os.PathLike[str]

MOST_HEADER = 4 << 20  # bytes of the names and the card, which are read before any check
MOST_SIDE = 4096  # pixels of an image that a card names
MOST_PIXELS = 1 << 20
MOST_MAP = 1 << 26  # numbers that one layer may make of one image

_CARD = "sfumato"
_DIGEST = "sha256"  # a key of the card
_SHOWN = 60  # letters of a wrong value that an error repeats

# The types of tensors by their names in safetensors, and in PyTorch.
_TYPES = {"BF16": "torch.bfloat16", "BOOL": "torch.bool", "U8": "torch.uint8"}
_TYPES |= {f"F{bits}": f"torch.float{bits}" for bits in (16, 32, 64)}
_TYPES |= {f"I{bits}": f"torch.int{bits}" for bits in (8, 16, 32, 64)}
_Part = tuple[str, str, Sequence[int], Any]  # of a file: the name, type, shape and bytes of a tensor


class Card(BaseModel):
    """The keys of every card. Each kind has its own schema, next to its loader.

    Unknown keys at the top are skipped, since loaders do not need them; an unknown setting of a training is
    refused, since it may change what the network computes.
    """

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)

    kind: str
    version: str = ""


def _is_image(shape: tuple[int, int, int]) -> tuple[int, int, int]:
    if shape[1] * shape[2] > MOST_PIXELS:
        raise ValueError(f"images of more than {MOST_PIXELS:,} pixels")
    return shape


def check_map(filters: int, shape: tuple[int, int, int], cell: int = 1) -> None:
    """Raises ValueError if a layer, with these filters at each cell of an image, has too many numbers.

    This bounds the memory of a network's computation, as its weights bound its own.
    """
    _, height, width = shape
    if filters * -(-height // cell) * -(-width // cell) > MOST_MAP:
        most = f"more than {MOST_MAP:,} numbers on images of {height}x{width}"
        raise ValueError(f"a layer of {filters} filters has {most}")


Side = Annotated[int, Field(ge=1, le=MOST_SIDE)]
Channels = Annotated[int, Field(ge=1, le=64)]
ImageShape = Annotated[tuple[Channels, Side, Side], AfterValidator(_is_image)]  # (C, H, W)
Name = Annotated[str, Field(max_length=4096)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def save(path: StrPath, tensors: "Mapping[str, Tensor]", card: Mapping[str, Any]) -> None:
    """Writes name -> tensor and a card, fit for JSON, whole or not at all; a missing folder is made.

    Raises ArtefactError: a number is NaN or infinite, as after a training that diverged.
    """
    import torch
    from safetensors.torch import save_file

    try:
        text = json.dumps({"version": sfumato.__version__, **card}, sort_keys=True, allow_nan=False)
    except ValueError as error:
        failed = f"a number of its card is NaN or infinite ({error}): the training failed"
        raise ArtefactError(f"{path}: not written: {failed}; lower its learning rate") from error
    # Copies, since safetensors refuses tensors that share memory, as tied weights do.
    copies = {
        k: v.detach().to("cpu", copy=True, memory_format=torch.contiguous_format) for k, v in tensors.items()
    }
    _check_numbers(f"{path}: not written", copies, "the training diverged; lower its learning rate")
    parts = (
        (name, str(each.dtype), each.shape, each.reshape(-1).view(torch.uint8).numpy().data)
        for name, each in sorted(copies.items())
    )
    with whole(Path(path)) as temporary:
        card = {**json.loads(text), _DIGEST: _digest(text, parts)}
        save_file(copies, temporary, metadata={_CARD: json.dumps(card, sort_keys=True)})


def amend(path: StrPath, **more: Any) -> None:
    """Writes an artefact of any kind again, with more keys in its card, or others: see `save` and `load`."""
    tensors, card = load(path, kind=str(read_card(path).get("kind")))
    save(path, tensors, {**card, **more})


def load(
    path: StrPath, *, kind: str, schema: type[Card] = Card
) -> "tuple[dict[str, Tensor], dict[str, Any]]":
    """Reads the tensors and the card of an artefact of one kind.

    Promises: the card fits the schema of its kind, every number is finite, and card and tensors are the ones
    that were saved. Raises ArtefactError: no such file, damaged, edited, foreign, or of another kind.
    """
    import torch

    tensors: dict[str, Tensor] = {}

    def take(name: str, dtype: str, shape: Sequence[int], data: bytearray) -> None:
        kind_of = getattr(torch, dtype.removeprefix("torch."))
        flat = torch.frombuffer(data, dtype=kind_of) if data else torch.empty(0, dtype=kind_of)
        tensors[name] = flat.reshape(shape)

    card, _ = load_card(path, kind=kind, schema=schema, take=take)
    _check_numbers(f"{path}: damaged", tensors, "take another copy, or train it again")
    return tensors, card


def load_card(
    path: StrPath,
    *,
    kind: str,
    schema: type[Card] = Card,
    take: Callable[[str, str, Sequence[int], bytearray], None] | None = None,
) -> tuple[dict[str, Any], Mapping[str, tuple[int, ...]]]:
    """Reads the card of an artefact of one kind, and the shape of each tensor, without PyTorch.

    Promises and raises as `load`, but for numbers that are not finite. `take` gets the parts of each tensor.
    """
    with _open(path) as (file, header, card):
        digest, first = card.pop(_DIGEST, None), file.tell()
        if card.get("kind") != kind:
            raise ArtefactError(f"{path}: is a {card.get('kind')!r}, and a {kind!r} is needed")
        check(path, card, schema)

        def parts() -> Iterator[_Part]:
            for name, entry in sorted(header.items()):
                if (dtype := entry["dtype"]) not in _TYPES:
                    raise ArtefactError(f"{path}: damaged: {name} is of {dtype}, which no network here uses")
                start, end = entry["data_offsets"]
                data = bytearray(end - start)
                file.seek(first + start)
                file.readinto(data)
                yield name, _TYPES[dtype], entry["shape"], data
                if take is not None:
                    take(name, _TYPES[dtype], entry["shape"], data)

        if digest != _digest(json.dumps(card, sort_keys=True), parts()):
            cure = "its card and weights do not match its digest: take an unchanged copy, or make it again"
            raise ArtefactError(f"{path}: damaged, or edited after it was saved: {cure}")
    return card, {name: tuple(entry["shape"]) for name, entry in header.items()}


def check(path: StrPath, card: Mapping[str, Any], schema: type[Card]) -> None:
    """Raises ArtefactError, with the file and the key, unless a card fits a schema."""
    known = {key: value for key, value in card.items() if key in schema.model_fields}
    try:
        validate_json(schema, json.dumps(known))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        value = "" if problem["type"] == "missing" else f" is {shorten(repr(problem['input']), _SHOWN)}"
        key = ".".join(map(str, problem["loc"])) or "the card"
        wrong = f"{key}{value} in its card: {shorten(problem['msg'])}"
        raise ArtefactError(f"{path}: damaged, or of another version: {wrong}") from error


def read_card(path: StrPath) -> dict[str, Any]:
    """Reads the card of an artefact of any kind, unchecked: enough to choose its loader. Raises as `load`."""
    with _open(path) as (_, _, card):
        card.pop(_DIGEST, None)
        return card


def _digest(text: str, parts: Iterable[_Part]) -> str:
    sha = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    for name, dtype, shape, data in parts:
        sha.update(json.dumps([name, dtype, list(shape)]).encode())
        sha.update(data)
    return sha.hexdigest()


def _check_numbers(what: str, tensors: "Mapping[str, Tensor]", cure: str) -> None:
    """Raises ArtefactError for tensors of types that no network has, and for NaN and infinities."""
    for name, tensor in tensors.items():
        if str(tensor.dtype) not in _TYPES.values():
            raise ArtefactError(f"{what}: {name} is of {tensor.dtype}, which no network here uses")
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise ArtefactError(f"{what}: {name} has numbers that are NaN or infinite: {cure}")


@contextmanager
def _open(path: StrPath) -> Iterator[tuple[BufferedReader, dict[str, Any], dict[str, Any]]]:
    """Yields a file at its first tensor, the type, shape and place of each tensor by name, and the card."""
    try:
        with open_regular(path) as file:
            size = int.from_bytes(file.read(8), "little")
            if MOST_HEADER < size < os.fstat(file.fileno()).st_size:
                most = f"a header of {size:,} bytes, and at most {MOST_HEADER:,} are read"
                raise ArtefactError(f"{path}: damaged, or not by sfumato: {most}")
            with safe_open(path, framework="np"):  # it checks the parts of the file against the header
                text = file.read(size)
            header = _json(path, "header", text)
            metadata = header.pop("__metadata__", None) or {}
            if _CARD not in metadata:
                raise ArtefactError(f"{path}: has no sfumato card: it was written by another program")
            card = _json(path, "card", metadata[_CARD])
            if not isinstance(kind := card.get("kind"), str | None) or len(kind or "") > _SHOWN:
                kind = shorten(repr(kind), _SHOWN)
                raise ArtefactError(f"{path}: damaged: kind is {kind} in its card, which is not a name")
            yield file, header, card
    except FileNotFoundError as error:
        raise ArtefactError(f"{path}: no such file") from error
    except (SafetensorError, OSError) as error:
        raise ArtefactError(f"{path}: damaged or not a .safetensors file ({error})") from error


def _json(path: StrPath, what: str, text: str | bytes) -> dict[str, Any]:
    try:
        mapping = parse_json(text)
    except ValueError as error:
        raise ArtefactError(f"{path}: damaged: its {what} is not JSON ({error})") from error
    if not isinstance(mapping, dict):
        raise ArtefactError(f"{path}: damaged: its {what} is not a mapping")
    return mapping
