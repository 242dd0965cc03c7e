"""The records of a study: one JSON file per cell, named by the digest of all that decides its result.

A record has the kind of its cell, and a type: see `parse`. A run packs into a file of rows, its study and
its records, an object a line: see `pack` and `read_run`.
"""

import glob
import hashlib
import itertools
import json
import re
import string
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pydantic
from pydantic import Field

from sfumato.base.files import MOST_TABLE, parse_json, read_regular, whole
from sfumato.base.schemas import validate
from sfumato.errors import DataError, did_you_mean, shorten
from sfumato.protect.spec import file_name, with_files
from sfumato.study.measure.results import RESULTS, Model

CONTENT = "content_sha256"  # the key of the digest
CURE = "delete it and run the study again, which makes this record anew"
_MOST = 1_000_000  # bytes of a file of rows; the rest is in further ones
_PARTS = "parts"  # the key of their names
_DIGITS = string.digits + string.ascii_letters
_TYPES_OF_COUNTS = {"#int": int, "#float": float}
_SHORTEST = 8  # numbers that are packed
_REPEATED = re.compile(r"\((\d+)\)")  # how often, as packed has it
_MOST_COUNTS = 10_000_000  # of a file, once they are unpacked
# The keys that distinguish cells of a kind, besides protection and seed.
_WHICH = {"accuracy": "learner", "attack": "attack", "similarity": "view", "reconstruction": "attack"}
_WHICH["inference"] = "secret"


class CellOfRecord(Model):
    """The cell of a record, without its kind; the kind decides which of these it has."""

    protection: str
    seed: int
    learner: str | None = None
    attack: str | None = None
    view: str | None = None
    secret: str | None = None

    @property
    def which(self) -> tuple[str, ...]:
        """The values that distinguish it within its kind, protection and seed, by the names of the keys."""
        values = self.model_dump(exclude={"protection", "seed"}, exclude_none=True)
        return tuple(str(values[key]) for key in sorted(values))


class Record(Model):
    """The fields of all records."""

    kind: str
    cell: CellOfRecord
    result: Any  # see kinds for the type of each kind
    seconds: float
    processor_seconds: float | None = None  # these are not longer if other programs run
    digest: str = ""  # of all that decides the result
    versions: dict[str, str] = Field(default_factory=dict)  # of the programs that made it
    varied: dict[str, Any] = Field(default_factory=dict)  # key -> its value in a study with `vary`

    @property
    def name(self) -> str:
        """The name of the cell, such as "accuracy blur:radius=1 denoised 0"."""
        return " ".join([self.kind, self.cell.protection, *self.cell.which, str(self.cell.seed)])


_TYPES: dict[str, type[Record]] = {
    kind: pydantic.create_model(f"{kind.title()}Record", __base__=Record, result=(each, ...))
    for kind, each in RESULTS.items()
}


def parse(content: Mapping[str, Any]) -> Record:
    """The record of a loaded file.

    Raises DataError if it has an unknown kind, or lacks something, which the message names.
    """
    if "kind" not in content:
        raise DataError("kind is missing")
    if (kind := str(content["kind"])) not in _TYPES:
        raise DataError(f"no kind {shorten(repr(kind))}: {did_you_mean(kind, _TYPES)}")
    try:
        record: Record = validate(_TYPES[kind], content)
    except pydantic.ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(map(str, problem["loc"]))
        if problem["type"] == "missing":
            raise DataError(f"{path} is missing") from error
        message = problem["msg"].removeprefix("Value error, ")
        raise DataError(f"{path}: {message}" if path else message) from error
    if kind in _WHICH and getattr(record.cell, _WHICH[kind]) is None:
        raise DataError(f"cell has no {_WHICH[kind]!r}")
    return record


def source_of(name: str) -> str:
    """The name of the data in a study and its report: as in the study file, but without an absolute path.

    That is left out, with the folders of this machine: "folder" of "folder:/home/anna/photos". A relative one
    is in the words of the study's author, and stays.
    """
    kind, colon, place = name.partition(":")
    outside = place.startswith(("/", "~", "\\")) or Path(place).is_absolute() or place[1:2] == ":"
    return kind if colon and outside else name


def write_json(path: Path, value: Any) -> None:
    """Writes a value as one line of JSON, whole or not at all; an object with a digest, see read_json."""
    if isinstance(value, dict):
        # As it will be read: keys that are numbers become text, of which 10 comes before 5.
        value = _with_digest(json.loads(json.dumps(value, allow_nan=False)))
    text = json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False) + "\n"
    with whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_json(path: Path, cure: str) -> dict[str, Any]:
    """Reads an object that `write_json` wrote, without its digest.

    Promises: an object that was edited or damaged since it was written is refused, if it has a digest. It is
    not a signature: who can write the file can write the digest. Raises DataError, with the cure, for that
    and for what is not a JSON object of finite numbers.
    """
    return _object(_read_text(path, cure), str(path), cure)


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes objects, one a line, each with its digest and with its lists of counts packed.

    A file has at most a megabyte; more rows go to further files, which the first line of `path` names. That
    file is replaced last, so that readers see all rows of before or all of now.
    """
    files = [b""]
    for row in rows:
        content = pack_counts(_with_digest(json.loads(json.dumps(row, allow_nan=False))))
        line = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
        if files[-1] and len(files[-1]) + len(line) > _MOST:
            files.append(b"")
        files[-1] += line
    parts = {f"{path.stem}.{hashlib.sha256(part).hexdigest()[:8]}{path.suffix}": part for part in files[1:]}
    head = json.dumps({_PARTS: list(parts)}).encode() + b"\n" if parts else b""
    for name, part in {**parts, path.name: head + files[0]}.items():
        with whole(path.with_name(name)) as temporary:
            temporary.write_bytes(part)
    for old in path.parent.glob(f"{glob.escape(path.stem)}.????????{path.suffix}"):
        if old.name not in parts:
            old.unlink()


def read_rows(path: Path, cure: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Reads the rows of `write_rows`: file and line, for errors, and the object; see read_json."""
    files = [path]
    for file in files:
        for place, line in enumerate(_read_text(file, cure).splitlines(), 1):
            content = _object(line, f"{file}:{place}", cure)
            if place == 1 and file == path and content.keys() == {_PARTS}:
                files += [path.with_name(Path(str(name)).name) for name in content[_PARTS]]
            else:
                yield f"{file}:{place}", content


def read_run(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Reads a study and then its records, from the folder of a run or from a file of rows.

    In a study with `vary` a record has `varied`, key -> value, as its cell is listed; it comes once for each
    of several values that it serves. Raises DataError if there is no study, or an object is damaged.
    """
    (place, study), *records = _read_once(path)
    yield place, study
    listed: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for cell in study["cells"] if "vary" in study else []:
        listed[cell["digest"]].append({"varied": cell["varied"]})
    for place, record in records:
        for varied in listed.get(record.get("digest", ""), [{}]):
            yield place, record | varied


def _read_once(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if path.is_file():
        yield from read_rows(path, CURE)
        return
    file = path / "study.json"
    yield str(file), read_json(file, "give the directory of a study that has been run, or its file of rows")
    for file in sorted((path / "records").glob("*.json")):
        yield str(file), read_json(file, CURE)


def pack(run: Path, path: Path, *, leave_out: Collection[str] = ()) -> int:
    """Packs a run into a file of rows: its study, and the records of its cells. Returns how many records.

    Kinds of `leave_out` are left out. Without "pictures" reconstructions lose theirs, too.
    """
    (_, study), *records = _read_once(run)
    listed = {cell["digest"] for cell in study["cells"]}
    rows = [row for _, row in records if row["digest"] in listed and row["kind"] not in leave_out]
    if "pictures" in leave_out:
        for row in filter(lambda row: row["kind"] == "reconstruction", rows):
            row["result"] |= {"originals": [], "pictures": []}
    names = names_of(study["protections"])
    write_rows(path, [rename(row, names) for row in (study, *rows)])
    return len(rows)


def unpack(path: Path, run: Path) -> None:
    """Makes the folder of a run from a file of rows, so that a study can resume there."""
    for _, content in _read_once(path):
        file = f"records/{content['digest']}.json" if "digest" in content else "study.json"
        write_json(run / file, content)


def names_of(specs: Sequence[str]) -> dict[str, str]:
    """The names of protections in reports and rows: a file by its name, with a number for equal names."""
    paths: dict[str, list[str]] = {}  # of each name

    def short(key: str, path: str) -> str:
        name = file_name(path)
        known = paths.setdefault(name, [])
        if path not in known:
            known.append(path)
        return name if path == known[0] else f"{name} ({known.index(path) + 1})"

    return {spec: called for spec in specs if (called := with_files(spec, short)) != spec}


def rename(value: Any, names: Mapping[str, str]) -> Any:
    """A part of a study with these texts instead of others."""
    if not names:
        return value
    if isinstance(value, dict):
        return {names.get(key, key): rename(part, names) for key, part in value.items()}
    if isinstance(value, list):
        return [rename(part, names) for part in value]
    return names.get(value, value) if isinstance(value, str) else value


def pack_counts(value: Any) -> Any:
    """The same value with each list of counts as one text: {"#int": "0(41)103"} for 41 zeros, 1, 0 and 3.

    Packs lists of eight numbers or more, all ints or all floats, whole, and from 0 to 61 (digits, small
    letters, capital letters). `unpack_counts` gives each back with its type.
    """
    if isinstance(value, dict):
        return {key: pack_counts(part) for key, part in value.items()}
    if not isinstance(value, list):
        return value
    for key, of in _TYPES_OF_COUNTS.items():
        digits = {str(of(number)): digit for number, digit in enumerate(_DIGITS)}  # as text: -0.0 is no 0.0
        if len(value) >= _SHORTEST and all(type(each) is of and str(each) in digits for each in value):
            runs = [(digits[each], len(list(same))) for each, same in itertools.groupby(map(str, value))]
            return {key: "".join(f"{digit}({n})" if n > 4 else digit * n for digit, n in runs)}
    return [pack_counts(part) for part in value]


def unpack_counts(value: Any) -> Any:
    """Reverses the packing."""
    if isinstance(value, list):
        return [unpack_counts(part) for part in value]
    if not isinstance(value, dict):
        return value
    for key, of in _TYPES_OF_COUNTS.items():
        if value.keys() == {key}:
            runs = re.findall(r"(\w)(?:\((\d+)\))?", str(value[key]))
            return [each for digit, n in runs for each in [of(_DIGITS.index(digit))] * int(n or 1)]
    return {key: unpack_counts(part) for key, part in value.items()}


def _read_text(path: Path, cure: str) -> str:
    try:
        text = read_regular(path, MOST_TABLE).decode()
        if sum(map(int, _REPEATED.findall(text))) > _MOST_COUNTS:
            raise ValueError(f"more than {_MOST_COUNTS:,} counts")
        return text
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}): {cure}") from error
    except ValueError as error:
        raise DataError(f"{path}: damaged, not JSON ({error}): {cure}") from error


def _object(text: str, name: str, cure: str) -> dict[str, Any]:
    try:
        content = unpack_counts(parse_json(text))
    except ValueError as error:
        raise DataError(f"{name}: damaged, not JSON ({error}): {cure}") from error
    if not isinstance(content, dict):
        raise DataError(f"{name}: damaged: not a JSON object: {cure}")
    if CONTENT in content and content != _with_digest(content):
        raise DataError(f"{name}: edited or damaged since it was written: {cure}")
    content.pop(CONTENT, None)
    return content


def _with_digest(content: dict[str, Any]) -> dict[str, Any]:
    content = {key: part for key, part in content.items() if key != CONTENT}
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    return {**content, CONTENT: hashlib.sha256(text.encode()).hexdigest()}
