"""The limits of a server."""

import re
from dataclasses import dataclass
from pathlib import Path

from sfumato.errors import ConfigError, did_you_mean

CONFIDENCES = ("exact", "rounded", "label")


@dataclass(frozen=True, kw_only=True)
class ServiceConfig:
    """The limits of a server.

    Attributes:
        most_bytes: of a request's body.
        most_images, most_pixels: of a release; see sfumato.wire.decode.
        most_held: bytes of all requests together: their bodies and everything made from them; requests beyond
            it are answered by 503.
        body_seconds: time limit for a body. A proxy before the server limits headers and answers.
        window: seconds that a request may wait for others, to be computed with them.
        most_batch, most_waiting: images of a forward pass, and images that may wait for one.
        allow_origins: other sites whose pages may ask, such as "https://example.org"; by default none.
        metrics_key: the bearer token that Prometheus sends; None for no metrics.
        web: a folder with the page; None for none.
        confidence: the numbers that an answer gives with its labels. "exact": probabilities and distances;
            "rounded": probabilities only, as a multiple of confidence_step; "label": the nearest label only,
            whatever number is asked for. Each of them says whether an image is of none of the classes.
        confidence_step: above 0, at most 1.
    """

    most_bytes: int = 16_000_000
    most_images: int = 64
    most_pixels: int = 16_000_000
    most_held: int = 200_000_000
    body_seconds: float = 20.0
    window: float = 0.002
    most_batch: int = 32
    most_waiting: int = 512
    allow_origins: tuple[str, ...] = ()
    metrics_key: str | None = None
    web: Path | None = None
    confidence: str = "exact"
    confidence_step: float = 0.1

    def __post_init__(self) -> None:
        for name in ("most_bytes", "most_images", "most_pixels", "body_seconds"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}={getattr(self, name)}: must be above 0, or nothing can be sent")
        if self.most_held < self.most_bytes:
            words = f"at least most_bytes={self.most_bytes}, or a body of that size never finds room"
            raise ConfigError(f"most_held={self.most_held}: {words}")
        if not 0 <= self.window <= 1 or not 1 <= self.most_batch <= self.most_waiting:
            raise ConfigError(
                f"window={self.window:g}, most_batch={self.most_batch}, most_waiting={self.most_waiting}: a "
                "window of 0 to 1 s, a batch of at least 1 image, and room for one batch or more to wait"
            )
        for origin in self.allow_origins:
            if not re.fullmatch(r"https?://[^/\s*]+", origin):
                words = "write scheme and host, such as https://example.org; '*' is not offered"
                raise ConfigError(f"{origin!r} is not an origin: {words}")
        if self.confidence not in CONFIDENCES:
            raise ConfigError(f"confidence={self.confidence!r}: {did_you_mean(self.confidence, CONFIDENCES)}")
        if not 0 < self.confidence_step <= 1:
            raise ConfigError(f"confidence_step={self.confidence_step:g}: above 0, and at most 1")
        if self.metrics_key is not None and len(self.metrics_key) < 16:
            raise ConfigError("the key of the metrics is shorter than 16 characters: choose a longer one")
        if self.web is not None and not (self.web / "index.html").is_file():
            raise ConfigError(f"{self.web}: has no index.html: build the page first, or omit it")
