"""The parts of a request's address: the service, and the labels of classes."""

import ipaddress
import re
from urllib.parse import quote, urlsplit

from sfumato.device.ledger.scopes import service_name
from sfumato.errors import ConfigError
from sfumato.wire.messages import LABEL, as_kept, normal


def check_url(url: str, *, insecure: bool) -> str:
    """Return a service's address, see service_name. Raises ConfigError if no key may be sent to it."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
        named = "cloud.example" if "://" in url or not url[:1].isalnum() else url
        like = f"http{'' if _is_loopback(re.split('[:/?#]', named)[0]) else 's'}://{named}"
        raise ConfigError(f"this is not the address of a service: write scheme and host, such as {like}")
    if parts.username is not None:
        raise ConfigError(f"the address of {host} has a user name or a password: remove it, and give the key")
    if parts.scheme == "http" and not insecure and not _is_loopback(host):
        raise ConfigError(
            f"http://{host}: key and labels would travel in clear: use https, or allow it with "
            "insecure=True (--insecure)"
        )
    return service_name(url)


def normalise_label(label: str) -> str:
    """Normalise a label as the service stores it, so that a person has one budget. Raises ConfigError."""
    quote_label(label)
    try:
        return as_kept(label)
    except ValueError as error:
        raise ConfigError(f"{label!r} is not a label: {error}") from None


def quote_label(label: str) -> str:
    """Quote a label for an address. Raises ConfigError if it is not a label."""
    if not re.fullmatch(LABEL, label) or label in (".", ".."):
        raise ConfigError(
            f"{label!r} is not a label: 1 to 200 characters without '/' and control characters, and more "
            "than one or two dots; rename the class"
        )
    try:
        return quote(normal(label), safe="")
    except UnicodeEncodeError:
        raise ConfigError(f"{label!r} is not a label: half a surrogate pair: rename the class") from None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
