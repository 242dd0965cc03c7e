"""The formats between a device and a service: releases as bytes, and the messages of the API."""

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
