"""Images: the convention of batches, and reading and writing of files."""

from sfumato.images.convention import (
    Images,
    Pixels,
    as_array,
    as_tensor,
    check_batch,
    digest,
    map_batches,
    to_float,
    to_uint8,
)
from sfumato.images.pictures import take
from sfumato.images.reading import SUFFIXES, TRANSPARENT, encode, read, read_array, resize, write
from sfumato.images.several import count_pictures, is_image, read_first, read_pictures

__all__ = [
    "SUFFIXES",
    "TRANSPARENT",
    "Images",
    "Pixels",
    "as_array",
    "as_tensor",
    "check_batch",
    "count_pictures",
    "digest",
    "encode",
    "is_image",
    "map_batches",
    "read",
    "read_array",
    "read_first",
    "read_pictures",
    "resize",
    "take",
    "to_float",
    "to_uint8",
    "write",
]
