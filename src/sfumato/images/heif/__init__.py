"""HEIC and AVIF, put together anew: only one picture and its transparency.

Both are HEIF files (ISO/IEC 23008-12): boxes give the coding and the position of items. The size of a
picture is stated up to three times, by its box `ispe`, by its grid, and inside the coded data, which its
decoder obeys. A file is refused if these differ.
"""

from sfumato.images.heif.boxes import count_samples
from sfumato.images.heif.picture import Picture, further_pictures, picture_of

__all__ = ["Picture", "count_samples", "further_pictures", "picture_of"]
