"""What travels between a device and a service: releases as bytes, and the messages of the API."""

from sfumato.files import portable
from sfumato.wire.releases import (
    MEDIA_TYPE,
    FeatureHeader,
    Header,
    ImageHeader,
    decode,
    digests,
    encode,
    header,
)

__all__ = [
    "MEDIA_TYPE",
    "FeatureHeader",
    "Header",
    "ImageHeader",
    "decode",
    "digests",
    "encode",
    "header",
    "portable",
]
