"""Pickles of plain values and bytes, read without running anything that they name.

A pickle is a program: it names Python's functions and calls them. Here it gets none. The few names that an
array of bytes needs are replaced by objects of this module, which only store its bytes; any other name
is refused. So a file never calls Python or NumPy, with any arguments.
"""

import io
import math
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from sfumato.errors import DataError

_MAX_BYTES = 256_000_000  # the largest official file, the training part of CIFAR-100, has 155 MB
_MAX_CALLS = 100  # an array and its keys take about ten

_PLAIN = frozenset(
    "PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 "  # noqa: SIM905
    "STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 "
    "BINBYTES SHORT_BINBYTES BINBYTES8 EMPTY_TUPLE EMPTY_LIST EMPTY_DICT LIST APPEND APPENDS DICT SETITEM "
    "SETITEMS PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET GLOBAL STACK_GLOBAL".split()
)
_CALLS = frozenset(["TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "REDUCE", "BUILD"])


def read(path: Path, *, cure: str) -> Any:
    """Reads the value in a pickle: dicts, lists, numbers, text and bytes, and arrays of uint8 as `Array`.

    Text of Python 2 comes back as bytes.

    Args:
        path: the file, of at most 256 MB.
        cure: what to do about a refused file: the end of the error message.

    Raises:
        DataError: the file is missing, damaged, or names a function that no array of uint8 needs.
    """
    try:
        size = path.stat().st_size
        if size > _MAX_BYTES:
            raise DataError(f"{path}: {size} bytes, more than any official file has: {cure}")
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}): {cure}") from error
    try:
        _check(data)
        return _Reader(data).load()
    except _RefusedError as error:
        raise DataError(f"{path}: refused, for it {error}: {cure}") from error
    except (
        ArithmeticError,
        AttributeError,
        EOFError,
        LookupError,
        MemoryError,
        TypeError,
        ValueError,
    ) as error:
        raise DataError(f"{path}: a damaged pickle ({error}): {cure}") from error
    except pickle.UnpicklingError as error:
        raise DataError(f"{path}: a damaged pickle ({error}): {cure}") from error


class Array:
    """Replaces a pickled array of uint8: its bytes and its shape."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values: np.ndarray = np.empty(0, np.uint8)

    def __setstate__(self, state: tuple[object, tuple[int, ...], object, object, bytes]) -> None:
        _, shape, dtype, by_column, content = state
        if not isinstance(dtype, _UInt8):
            raise _RefusedError("holds an array of another type than uint8")
        if not isinstance(content, bytes) or math.prod(shape) != len(content) or min(shape) < 0:
            raise _RefusedError(f"claims an array of shape {shape} with other content than its bytes")
        self.values = np.frombuffer(content, np.uint8).reshape(shape, order="F" if by_column else "C")


class _RefusedError(pickle.UnpicklingError):
    """A pickle that asks for more than plain values."""


class _UInt8:
    """Replaces numpy.dtype("u1"). State: none."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        pass  # byte order, fields, alignment: single bytes do not need them


class _Stand:
    """Replaces a function in a pickle: it can be called, and not be changed."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function

    def __call__(self, *arguments: object) -> object:
        return self._function(*arguments)

    def __setstate__(self, state: object) -> NoReturn:
        raise _RefusedError("changes a function")


class _Reader(pickle.Unpickler):
    """Unpickles with stand-ins for every global. State: the bytes that may still be made from text."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="bytes")
        self._left = len(data)
        array_type = _Stand(_not_callable)
        self._stands = {
            "_codecs.encode": _Stand(self._encode),
            "numpy.core.multiarray._reconstruct": _Stand(_new_array),
            "numpy._core.multiarray._reconstruct": _Stand(_new_array),
            "numpy.ndarray": array_type,
            "numpy.dtype": _Stand(_dtype),
        }

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for a global. Raises _RefusedError that names any other."""
        stand = self._stands.get(f"{module}.{name}")
        if stand is None:
            raise _RefusedError(f"names {module}.{name}")
        return stand

    def _encode(self, text: str, encoding: str) -> bytes:
        # How Python 3 writes bytes in the older protocols. The same text could be encoded again and again.
        self._left -= len(text)
        if encoding != "latin1" or self._left < 0:
            raise _RefusedError("encodes more text than it holds, or as something else than bytes")
        return text.encode("latin-1")


def _new_array(kind: object, shape: object, dtype: object) -> Array:
    return Array()  # empty, whatever the arguments claim: the following state has the content


def _dtype(name: str | bytes, *_: object) -> _UInt8:
    if name not in ("u1", b"u1", "|u1", b"|u1", "uint8", b"uint8"):
        raise _RefusedError(f"holds an array of type {name!r}, not uint8")
    return _UInt8()


def _not_callable(*_: object) -> NoReturn:
    raise _RefusedError("calls numpy.ndarray itself")


def _check(data: bytes) -> None:
    """Raises _RefusedError for opcodes that plain values do not need, or that could exhaust the machine.

    The C unpickler allocates a memo for any given number, and hashes tuples of any depth: a few bytes
    could take gigabytes, or the stack.
    """
    calls = 0
    for opcode, argument, position in pickletools.genops(data):
        if opcode.name in _CALLS:
            calls += 1
            if calls > _MAX_CALLS:
                raise _RefusedError(f"makes more than {_MAX_CALLS} calls")
        elif opcode.name not in _PLAIN:
            raise _RefusedError(f"uses {opcode.name}, which no array of bytes needs")
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument or 0) > int(position or 0):
            raise _RefusedError(f"numbers a value {argument} after {position} bytes")
