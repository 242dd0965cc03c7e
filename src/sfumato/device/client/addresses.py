"""What stands in the address of a request: the service, and the labels of classes."""

import ipaddress
import re
from urllib.parse import quote, urlsplit

from sfumato.errors import ConfigError
from sfumato.wire.messages import LABEL, as_kept, normal


def checked_url(url: str, *, insecure: bool) -> str:
    """The address of a service without a slash at its end. Raises ConfigError if no key may be sent to it."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
        raise ConfigError(
            "this is not an address of a service: write scheme and host, as https://cloud.example"
        )
    if parts.username is not None:
        raise ConfigError(f"the address of {host} has a name or a password: leave them out, and give the key")
    if parts.scheme == "http" and not insecure and not _is_loopback(host):
        raise ConfigError(
            f"http://{host}: key and labels would travel in clear: use https, or ask for it with "
            "insecure=True (--insecure)"
        )
    return url.rstrip("/")


def kept_label(label: str) -> str:
    """A label as the service keeps it, so that one person has one budget. Raises ConfigError."""
    quoted_label(label)
    try:
        return as_kept(label)
    except ValueError as error:
        raise ConfigError(f"{label!r} is not a label: {error}") from None


def quoted_label(label: str) -> str:
    """A label in an address. Raises ConfigError for what cannot be."""
    if not re.fullmatch(LABEL, label) or label in (".", ".."):
        raise ConfigError(
            f"{label!r} is not a label: 1 to 200 characters without '/' and control "
            "characters, and not only a "
            "dot or two; rename the class"
        )
    try:
        return quote(normal(label), safe="")
    except UnicodeEncodeError:
        raise ConfigError(
            f"{label!r} is not a label: it contains half a character: rename the class"
        ) from None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
