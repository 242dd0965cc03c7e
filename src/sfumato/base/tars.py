"""Tar files of strangers, read member by member, with bounds on headers, members, unpacked bytes and memory.

tarfile knows none of these. Here, a damaged header is an error, and a first end is not the end.
"""

import bz2
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

MAX_MEMBERS = 1_000_000
_MAX_HEADER = 1 << 16  # bytes of an extended header: names of 4,096 bytes, and room for attributes
_MAX_NESTED, _MAX_GLOBALS = 8, 1000  # extended headers of one member, and all global ones
_XZ_MEMORY = 1 << 27  # bytes, for xz -9
_MOST_BEHIND = 100  # reads behind the end
_FREE, _RATIO = 1 << 30, 100  # bytes that any packed file may become, and more for each of its bytes

_EXTENDED: tuple[bytes, ...] = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_EXTENDED += (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_SPARSE = "a tar file with sparse files: pack them without --sparse"


class DamagedTarError(Exception):
    """A tar file that cannot be read to its end, with the cause, which names no file."""


def read_members(file: Any) -> Iterator[tuple[tarfile.TarInfo, Callable[..., bytes] | None]]:
    """Yields each member, and the function that reads its content (None for links and folders).

    The file need not seek; plain, or packed by gzip, bzip2 or xz. Raises DamagedTarError, also when content
    is read, if it is damaged, ends early, or passes a bound.
    """
    packed = _Counted(file, file.read(6))
    unpack = next((unpack for magic, unpack in _UNPACK.items() if packed.head.startswith(magic)), None)
    counted: Any = packed if unpack is None else _Counted(unpack(packed), packed=packed)
    with (
        _explain_damage(),
        # ignore_zeros: files that were joined (tar --concatenate, cat) have an end in their middle.
        tarfile.open(fileobj=counted, mode="r|", tarinfo=_BoundedInfo, ignore_zeros=True) as opened,
    ):
        for number, member in enumerate(opened):
            if number >= MAX_MEMBERS:
                raise DamagedTarError(f"a tar file of more than {MAX_MEMBERS:,} members")
            content = opened.extractfile(member) if member.isfile() else None
            yield member, None if content is None else _explain_damage()(content.read)
            vars(opened)["members"].clear()  # it keeps every one


@contextmanager
def _explain_damage() -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, EOFError, ValueError, zlib.error, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # gzip and bzip2 set no number
            raise
        raise DamagedTarError("a damaged tar file") from error


class _Unxz:
    """A file packed by xz, unpacked in bounded memory."""

    def __init__(self, file: "_Counted") -> None:
        self._file, self._decoder = file, lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)

    def read(self, size: int = -1) -> bytes:
        while not self._decoder.eof:
            packed = self._file.read(1 << 16) if self._decoder.needs_input else b""
            if self._decoder.needs_input and not packed:
                raise EOFError
            if data := self._decoder.decompress(packed, size):
                return data
        return b""


_UNPACK: dict[bytes, Any] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": _Unxz,
}


class _Counted:
    """A file whose bytes are counted.

    Raises DamagedTarError if they are more than the `packed` bytes may become, and EOFError if more and more
    is read behind the end: tarfile skips a member of any size in small steps.
    """

    def __init__(self, file: Any, head: bytes = b"", *, packed: "_Counted | None" = None) -> None:
        self._file, self.head, self._packed = file, head, packed
        self._first, self.bytes, self._behind = head, 0, 0

    def read(self, size: int = -1) -> bytes:
        data, self._first = self._first[:size], self._first[size:] if size >= 0 else b""
        data = data or self._file.read(size)
        self.bytes += len(data)
        self._behind = 0 if data else self._behind + 1
        if self._behind > _MOST_BEHIND:
            raise EOFError
        if self._packed is not None and self.bytes > _FREE + _RATIO * self._packed.bytes:
            raise DamagedTarError(f"a packed file that becomes more than {_RATIO} times as large")
        return data


class _BoundedInfo(tarfile.TarInfo):
    """A header of bounded length. After a damaged one, tarfile would end silently and lose the rest."""

    @classmethod
    def frombuf(cls, *arguments: Any) -> "_BoundedInfo":
        header = super().frombuf(*arguments)
        if header.size < 0:
            raise tarfile.ReadError("a size below 0")
        if header.type in _EXTENDED and header.size > _MAX_HEADER:
            raise DamagedTarError(f"a tar file with a header of more than {_MAX_HEADER:,} bytes")
        if header.type == tarfile.GNUTYPE_SPARSE:
            raise DamagedTarError(_SPARSE)
        return header

    @classmethod
    def fromtarfile(cls, opened: tarfile.TarFile) -> "_BoundedInfo":
        state = opened.__dict__
        state["nested"] = state.get("nested", 0) + 1
        if state["nested"] > _MAX_NESTED or len(opened.pax_headers) > _MAX_GLOBALS:
            raise DamagedTarError("a tar file with too many headers for one member")
        try:
            header = super().fromtarfile(opened)
        except tarfile.HeaderError as error:
            end = type(error).__name__
            # Zeros are an end; the file may go on, but not end without them.
            state["zeros"] = end == "EOFHeaderError" or (end == "EmptyHeaderError" and state.get("zeros"))
            if state["zeros"]:
                raise
            raise tarfile.ReadError(str(error)) from error
        finally:
            state["nested"] -= 1
        state["zeros"] = False
        return header

    def _proc_gnusparse_10(self, *_: Any) -> None:
        raise DamagedTarError(_SPARSE)
