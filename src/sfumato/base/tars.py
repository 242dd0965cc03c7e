"""Tar files of strangers, read member by member, with bounds on what their bytes become.

tarfile reads headers of any length, keeps every member, and unpacks without end. Here extended headers,
members and unpacked bytes are bounded, only gzip is unpacked, and neither a damaged header nor what lies
behind the first end of a file is left out in silence.
"""

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from typing import Any

MAX_MEMBERS = 1_000_000
_MAX_HEADER = 1 << 16  # bytes of an extended header: names of 4,096 bytes, and room for attributes
_MAX_NESTED = 8  # extended headers of one member
_MAX_GLOBALS = 1000  # of all global headers
_MOST_BEHIND = 100  # reads behind the end
_FREE, _RATIO = 1 << 30, 100  # bytes that any gzip file may become, and more for each of its bytes

_EXTENDED = frozenset(
    {
        tarfile.XHDTYPE,
        tarfile.XGLTYPE,
        tarfile.SOLARIS_XHDTYPE,
        tarfile.GNUTYPE_LONGNAME,
        tarfile.GNUTYPE_LONGLINK,
    }
)


class DamagedTarError(Exception):
    """A tar file that cannot be read to its end, with the cause, which names no file."""


def read_members(file: Any) -> Iterator[tuple[tarfile.TarInfo, Any]]:
    """Yield each member, and a file of its content (None if it is no regular file), to read before the next.

    Args:
        file: opened for reading, from its beginning; it need not seek. Plain, or packed by gzip.

    Raises:
        DamagedTarError: it is damaged, ends early, or passes a bound; see above.
        OSError: it cannot be read.
    """
    counted = _Counted(file, file.read(2))
    if counted.head == b"\x1f\x8b":
        counted = _Counted(gzip.GzipFile(fileobj=counted), packed=counted)
    try:
        # ignore_zeros: files that were joined (tar --concatenate, cat) have an end in their middle.
        with tarfile.open(fileobj=counted, mode="r|", tarinfo=_BoundedInfo, ignore_zeros=True) as opened:
            for number, member in enumerate(opened):
                if number >= MAX_MEMBERS:
                    raise DamagedTarError(f"a tar file of more than {MAX_MEMBERS:,} members")
                yield member, opened.extractfile(member) if member.isfile() else None
                opened.members.clear()
    except _BeyondError as error:
        raise DamagedTarError(str(error)) from error
    except gzip.BadGzipFile as error:
        raise DamagedTarError("a damaged tar file") from error
    except (tarfile.TarError, EOFError, ValueError, zlib.error) as error:
        raise DamagedTarError("a damaged tar file") from error


class _BeyondError(Exception):
    """A bound was passed."""


class _Counted:
    """A file whose bytes are counted. State: their number.

    Raises _BeyondError if they are more than the `packed` bytes that they come from may become, and EOFError
    if more and more is read behind the end: tarfile skips a member of any stated size in small steps.
    """

    def __init__(self, file: Any, head: bytes = b"", *, packed: "_Counted | None" = None) -> None:
        self._file, self.head, self._packed = file, head, packed
        self._first, self.bytes, self._behind = head, 0, 0

    def read(self, size: int = -1) -> bytes:
        """Read at most `size` bytes."""
        data, self._first = self._first[:size], self._first[size:] if size >= 0 else b""
        data = data or self._file.read(size)
        self.bytes += len(data)
        self._behind = 0 if data else self._behind + 1
        if self._behind > _MOST_BEHIND:
            raise EOFError
        if self._packed is not None and self.bytes > _FREE + _RATIO * self._packed.bytes:
            raise _BeyondError(f"a packed file that becomes more than {_RATIO} times as large")
        return data


class _BoundedInfo(tarfile.TarInfo):
    """A header of bounded length. After a damaged one, tarfile would end silently and lose the rest."""

    @classmethod
    def frombuf(cls, *arguments: Any) -> "_BoundedInfo":
        """Parse a block. Raises _BeyondError for a header whose text is too long, or a sparse file."""
        header = super().frombuf(*arguments)
        if header.size < 0:
            raise tarfile.ReadError("a size below 0")
        if header.type in _EXTENDED and header.size > _MAX_HEADER:
            raise _BeyondError(f"a tar file with a header of more than {_MAX_HEADER:,} bytes")
        if header.type == tarfile.GNUTYPE_SPARSE:
            raise _BeyondError(_SPARSE)
        return header

    @classmethod
    def fromtarfile(cls, opened: tarfile.TarFile) -> "_BoundedInfo":
        """Read a header, with its extended headers."""
        state = opened.__dict__
        state["nested"] = state.get("nested", 0) + 1
        if state["nested"] > _MAX_NESTED or len(opened.pax_headers) > _MAX_GLOBALS:
            raise _BeyondError("a tar file with too many headers for one member")
        try:
            header = super().fromtarfile(opened)
        except tarfile.HeaderError as error:
            end = type(error).__name__
            # Zeros are an end; the file may go on, but not end without them.
            if end == "EOFHeaderError" or (end == "EmptyHeaderError" and state.get("zeros")):
                state["zeros"] = True
                raise
            raise tarfile.ReadError(str(error)) from error
        finally:
            state["nested"] -= 1
        state["zeros"] = False
        return header

    def _proc_gnusparse_10(self, *_: Any) -> None:
        raise _BeyondError(_SPARSE)


_SPARSE = "a tar file with sparse files: pack them without --sparse"
