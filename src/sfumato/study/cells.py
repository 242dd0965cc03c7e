"""A cell of a study: one thing to find out, and the digest of all that decides its result."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Cell:
    """One thing to find out: a kind, a protection, a seed, and which learner, attack or view."""

    kind: str
    protection: str
    seed: int
    which: tuple[tuple[str, str], ...] = ()

    @property
    def subject(self) -> str:
        """The name of its learner, attack, view or secret: it has one of them."""
        ((_, name),) = self.which
        return name

    @property
    def coordinates(self) -> dict[str, Any]:
        """The cell without its kind, as study.json and the records carry it."""
        return {"protection": self.protection, "seed": self.seed, **dict(self.which)}

    def __str__(self) -> str:
        return " ".join([self.kind, *(value for _, value in self.which), self.protection])


def digest_of(settings: Any) -> str:
    """A short digest of settings that are fit for JSON; the order of keys does not matter."""
    text = json.dumps(settings, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def non_defaults(config: Any) -> dict[str, Any]:
    """The settings of a configuration that are not at their defaults, for a digest.

    So a new setting leaves the digests of studies that do not use it; another default, or other results of
    the same settings, need another `models.RESULTS`. `before` in a field's metadata is its former default,
    which old digests stand for; `by_content` marks values that count by content.
    """
    plain = dataclasses.asdict(config)
    return {
        field.name: field.metadata.get("by_content", _by_content)(plain[field.name])
        for field in dataclasses.fields(config)
        if field.default is dataclasses.MISSING
        or getattr(config, field.name) != field.metadata.get("before", field.default)
    }


def _by_content(value: Any) -> Any:
    """A setting; for an encoder in a file, its content and not its path."""
    if not isinstance(value, str) or ":" not in value:
        return value
    from sfumato.networks.encoders.pretrained import on_card  # it needs PyTorch, which reports do without

    return on_card(value)
