"""Errors of several readers about images of a kind that we do not read."""

from sfumato.errors import ImageError

# The most segments, chunks, blocks or strips of a file: each costs its decoder a step in Python, and 64 MB
# hold 16 million. libpng's chunks of 8 kB make 8,000, strips of one row 8,000.
MAX_PARTS = 65_536


def not_read(message: str) -> ImageError:
    """An unread kind of image; the message says which, and what to do."""
    return ImageError(message, cause="a kind of image that is not read")


def too_many_parts() -> ImageError:
    """A file with more than MAX_PARTS parts."""
    return not_read(f"an image in more than {MAX_PARTS} parts: save it anew")


def twice(kind: str, parts: str) -> ImageError:
    """A part occurs twice that a format has once: decoders differ in which one counts."""
    return ImageError(
        f"a {kind} with 2 {parts}: decoders differ in which they believe; save it anew",
        cause="a part that occurs twice and may occur once",
    )


def two_sizes(kind: str, first: tuple[int, int], second: tuple[int, int]) -> ImageError:
    """A file, or its decoder, states two sizes, (width, height), of one picture."""
    (width, height), (other_width, other_height) = first, second
    return ImageError(
        f"a {kind} of two sizes, {width}x{height} and {other_width}x{other_height}: save it anew",
        cause="two sizes of one picture",
    )
