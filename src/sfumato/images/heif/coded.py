"""Coded data: the common parts of both codings."""

from sfumato.images.refusals import MAX_PARTS, too_many_parts, two_sizes

# An encoder codes whole blocks; HEVC's largest have this side.
BLOCK = 64

# Less than this is cut off coded pictures: hardware codes pictures of 64 pixels as some of 160.
CUT = 256


class Bits:
    """Reads bits, one after another. State: the position."""

    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0

    def number(self, width: int) -> int:
        """A number of that many bits. Raises ValueError if they are missing."""
        start, self._position = self._position, self._position + width
        if self._position > 8 * len(self._data):
            raise ValueError("a header that is too short")
        last = (self._position + 7) // 8
        value = int.from_bytes(self._data[start // 8 : last])
        return value >> (8 * last - self._position) & ((1 << width) - 1)

    def golomb(self) -> int:
        """An unsigned Exp-Golomb number, ue(v) of H.265, 9.2."""
        zeros = 0
        while not self.number(1):
            zeros += 1
            if zeros > 32:
                raise ValueError("a number of more than 32 bits")
        return (1 << zeros) - 1 + self.number(zeros)


class Units:
    """Counts the units of coded data of a file, in all its items. State: their number."""

    def __init__(self) -> None:
        self._count = 0

    def another(self) -> None:
        """Counts one. Raises ImageError for more than MAX_PARTS."""
        self._count += 1
        if self._count > MAX_PARTS:
            raise too_many_parts()


def check_sizes(stated: tuple[int, int], coded: tuple[int, int], most: int, coding: str) -> None:
    """Raises ImageError unless a coded size is the stated one, or larger by less than `most` pixels."""
    if any(not side <= inside < side + most for side, inside in zip(stated, coded, strict=True)):
        raise two_sizes(coding, stated, coded)
