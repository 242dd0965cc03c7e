"""HEIC and AVIF, put together anew: their first picture and its transparency, and nothing else.

Both are HEIF files (ISO/IEC 23008-12): boxes that say of items how they are coded, and where. The size of a
picture is stated up to three times, by its box `ispe`, by its grid, and inside the coded data, which is what
its decoder obeys. Files are refused in which these differ.
"""

from sfumato.images.heif.picture import Picture, first_picture

__all__ = ["Picture", "first_picture"]
