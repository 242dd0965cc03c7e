"""The metrics of a server, for Prometheus, without tenants, labels or keys."""

from collections.abc import Callable

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

MEDIA_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
_IMAGES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The counts of one server. State: the counts."""

    def __init__(self, waiting: Callable[[], int]) -> None:
        """`waiting`: returns the number of images that wait now."""
        self._registry = registry = CollectorRegistry()
        self._counts: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        named, words = ("method", "route"), "From first to last byte."
        self._requests = Counter(
            "sfumato_requests", "Requests answered.", (*named, "status"), registry=registry
        )
        self._seconds = Histogram(
            "sfumato_request_seconds", words, named, buckets=_SECONDS, registry=registry
        )
        self._batches = Histogram(
            "sfumato_batch_images", "Images of a forward pass.", buckets=_IMAGES, registry=registry
        )
        self._computed = Counter("sfumato_forward_seconds", "Time in forward passes.", registry=registry)
        words = "Bodies that were evidently not protected."
        self._refused = Counter("sfumato_not_protected", words, registry=registry)
        Gauge("sfumato_waiting_images", "Images that wait.", registry=registry).set_function(waiting)

    def count_answer(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request; `route` is its template, never its path, which holds labels."""
        counts = self._counts.get((method, route, status))
        if counts is None:  # bounded by the numbers of templates and statuses
            counts = self._requests.labels(method, route, str(status)), self._seconds.labels(method, route)
            self._counts[method, route, status] = counts
        counts[0].inc()
        counts[1].observe(seconds)

    def count_pass(self, images: int, seconds: float) -> None:
        """Count a forward pass."""
        self._batches.observe(images)
        self._computed.inc(seconds)

    def count_not_protected(self) -> None:
        """Count a body that the tripwire refused."""
        self._refused.inc()

    def text(self) -> bytes:
        """Return all metrics in the format of Prometheus."""
        return generate_latest(self._registry)
