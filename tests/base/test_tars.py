"""Tar files of strangers: each sibling of a known bomb is refused by its cause, in little memory and time."""

import bz2
import gzip
import io
import lzma
import tarfile
import tracemalloc
from collections import deque
from collections.abc import Callable

import pytest

from sfumato.base import tars
from sfumato.base.tars import DamagedTarError, read_members

END = bytes(1024)
HUGE = 500 << 20


def member(name: str, content: bytes, form: int = tarfile.PAX_FORMAT) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    return info.tobuf(form) + content + bytes(-len(content) % 512)


def header(kind: bytes, size: int) -> bytes:
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, size
    return info.tobuf(tarfile.USTAR_FORMAT if size >= 0 else tarfile.GNU_FORMAT)


def attributes(kind: bytes, **values: str) -> bytes:
    text = b""
    for key, value in values.items():
        rest = f" {key.replace('_', '.')}={value}\n"
        length = next(n for n in range(len(rest), len(rest) + 9) if len(f"{n}{rest}") == n)
        text += f"{length}{rest}".encode()
    return header(kind, len(text)) + text + bytes(-len(text) % 512)


def zeros(before: bytes, megabytes: int) -> bytes:
    return gzip.compress(before + bytes(megabytes << 20))


A = member("a.png", b"hello")
SPARSE = {"GNU_sparse_major": "1", "GNU_sparse_minor": "0", "GNU_sparse_realsize": "9999999"}


@pytest.mark.parametrize(
    "content",
    [
        A + END,
        gzip.compress(A + END),
        bz2.compress(A + END),
        lzma.compress(A + END),
        attributes(tarfile.XGLTYPE, comment="of a commit") + A + END,
        attributes(tarfile.XHDTYPE, mtime="1.5") + A + END,
    ],
    ids=["plain", "gzip", "bzip2", "xz", "global header", "pax header"],
)
def test_a_tar_file_is_read_plain_or_packed(content: bytes):
    read = [(info.name, content and content()) for info, content in read_members(io.BytesIO(content))]
    assert read == [("a.png", b"hello")]


def test_files_that_were_joined_and_long_names_are_read_to_the_end():
    names = ["a.png", "d/" * 90 + "gnu.png", "d/" * 90 + "pax.png"]
    formats = [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
    joined = b"".join(member(name, b"", form) + END for name, form in zip(names, formats, strict=True))
    assert [info.name for info, _ in read_members(io.BytesIO(joined))] == names


@pytest.mark.parametrize(
    ("content", "cause"),
    {
        "pax header": (lambda: header(tarfile.XHDTYPE, HUGE), "a header of more than 65,536 bytes"),
        "global header": (lambda: header(tarfile.XGLTYPE, HUGE), "a header of more than"),
        "GNU name": (lambda: header(tarfile.GNUTYPE_LONGNAME, HUGE), "a header of more than"),
        "headers of headers": (lambda: attributes(tarfile.XHDTYPE, a="b") * 2000 + A, "too many headers"),
        "globals": (
            lambda: b"".join(attributes(tarfile.XGLTYPE, **{f"k{i}": "v"}) + A for i in range(1100)) + END,
            "too many headers",
        ),
        "sparse map": (lambda: header(tarfile.GNUTYPE_SPARSE, 9) + END, "sparse files"),
        "sparse pax map": (
            lambda: attributes(tarfile.XHDTYPE, **SPARSE) + member("a", b"9000000\n" + b"1\n" * 99) + END,
            "sparse files",
        ),
        "a size below 0": (lambda: header(tarfile.REGTYPE, -512) + A + END, "damaged"),
        "a size of an attribute": (lambda: attributes(tarfile.XHDTYPE, size="9" * 14) + A + END, "damaged"),
        "zeros in a member": (lambda: zeros(header(tarfile.REGTYPE, 2 << 30), 40), "100 times as large"),
        "zeros between members": (lambda: zeros(A, 40), "100 times as large"),
        "members": (lambda: member("a", b"") * 40 + END, "more than 30 members"),
        "cut": (lambda: (A + END)[:700], "damaged"),
        "cut gzip": (lambda: gzip.compress(A + END)[:-9], "damaged"),
        "cut xz": (lambda: lzma.compress(A + END)[:-9], "damaged"),
        "words behind the end": (lambda: A + END + b"z" * 512, "damaged"),
        "nothing": (lambda: b"", "damaged"),
    }.values(),
)
def test_what_would_become_too_large_or_is_left_out_is_refused_by_its_cause(
    monkeypatch: pytest.MonkeyPatch, content: Callable[[], bytes], cause: str
):
    packed = content()
    if "30 members" in cause:
        monkeypatch.setattr(tars, "MAX_MEMBERS", 30)
    monkeypatch.setattr(tars, "_FREE", 1 << 20)
    tracemalloc.start()
    with pytest.raises(DamagedTarError, match=cause):
        deque((read(1000) for _, read in read_members(io.BytesIO(packed)) if read), maxlen=0)
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()
