"""Images: the convention of batches, and reading and writing of files."""

from sfumato.images.convention import Images as Images
from sfumato.images.convention import Pixels as Pixels
from sfumato.images.convention import as_array as as_array
from sfumato.images.convention import as_tensor as as_tensor
from sfumato.images.convention import check_batch as check_batch
from sfumato.images.convention import digest as digest
from sfumato.images.convention import map_batches as map_batches
from sfumato.images.convention import to_float as to_float
from sfumato.images.convention import to_uint8 as to_uint8
from sfumato.images.reading import SUFFIXES as SUFFIXES
from sfumato.images.reading import count_pictures as count_pictures
from sfumato.images.reading import encode as encode
from sfumato.images.reading import is_image as is_image
from sfumato.images.reading import read as read
from sfumato.images.reading import read_array as read_array
from sfumato.images.reading import read_first as read_first
from sfumato.images.reading import read_pictures as read_pictures
from sfumato.images.reading import resize as resize
from sfumato.images.reading import take as take
from sfumato.images.reading import write as write
