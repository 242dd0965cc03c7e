"""The client: an image in, a safer image out. `parse` reads the spec that names a protection everywhere."""

from sfumato.protect.release import Protection, Release, enlarge, unpack
from sfumato.protect.spec import AnyProtection, expand, parse

__all__ = ["AnyProtection", "Protection", "Release", "enlarge", "expand", "parse", "unpack"]
