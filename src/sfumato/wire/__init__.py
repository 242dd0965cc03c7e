"""The formats between a device and a service: releases as bytes, and the messages of the API."""

from typing import TYPE_CHECKING

from sfumato.base.registry import load

if TYPE_CHECKING:
    from sfumato.wire.releases import (
        MEDIA_TYPE,
        AnyRelease,
        BitsHeader,
        FeatureHeader,
        Header,
        ImageHeader,
        decode,
        encode,
        header,
    )

__all__ = [
    "MEDIA_TYPE",
    "AnyRelease",
    "BitsHeader",
    "FeatureHeader",
    "Header",
    "ImageHeader",
    "decode",
    "encode",
    "header",
]


def __getattr__(name: str) -> object:
    # Not at import: releases import all protections, which the messages, and so the store, do not need.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = load(f"sfumato.wire.releases:{name}")
    return value
