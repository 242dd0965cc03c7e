"""The client: an image in, a safer image out. `parse` reads the spec that names a protection everywhere."""

from sfumato.protect.release import Protection, Release, enlarge, unpack
from sfumato.protect.spec import expand, parse, parse_feature

__all__ = ["Protection", "Release", "enlarge", "expand", "parse", "parse_feature", "unpack"]
