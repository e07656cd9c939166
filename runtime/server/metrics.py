"""What the server counts, as Prometheus reads it."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from mtplx.runtime.server.answering import Delta

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_TOKEN_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 5)


class Metrics:
    """Counters and histograms of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "mtplx_http_requests", "Requests answered.", ("path", "status"), registry=self.registry
        )
        self.request_seconds = Histogram(
            "mtplx_http_request_seconds",
            "Seconds from a request's first byte to its answer's last.",
            ("path",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.first_token = Histogram(
            "mtplx_time_to_first_token_seconds",
            "Seconds from submission to the first token, waiting and prefill included.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.between_tokens = Histogram(
            "mtplx_time_between_tokens_seconds",
            "Seconds a token took after the first one; observed once a round, as its mean.",
            buckets=_TOKEN_SECONDS,
            registry=self.registry,
        )

    def request_ended(self, path: str, status: int, seconds: float) -> None:
        """Count a request; status 0 is one whose client left before there was an answer."""
        self.requests.labels(path, str(status)).inc()
        self.request_seconds.labels(path).observe(seconds)

    @asynccontextmanager
    async def timed(
        self, answer: AbstractAsyncContextManager[AsyncGenerator[Delta]]
    ) -> AsyncIterator[AsyncGenerator[Delta]]:
        """`answer`, whose tokens are timed on their way."""
        started = time.monotonic()
        async with answer as deltas, aclosing(self._timed(deltas, started)) as timed:
            yield timed

    async def _timed(self, deltas: AsyncGenerator[Delta], started: float) -> AsyncGenerator[Delta]:
        last: float | None = None
        async for delta in deltas:
            if delta.tokens:
                now = time.monotonic()
                if last is None:
                    self.first_token.observe(now - started)
                else:
                    self.between_tokens.observe((now - last) / delta.tokens)
                last = now
            yield delta

    def render(self, stats: Mapping[str, Any]) -> bytes:
        """Everything in Prometheus' text format; `stats` are the owner's."""
        return generate_latest(self.registry) + generate_latest(_OwnerStats(stats))


class _OwnerStats:
    """The owner's statistics as metrics. What a backend does not tell is not there."""

    def __init__(self, stats: Mapping[str, Any]) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        """Every figure there is."""
        stats = self._stats
        yield _gauge("active_requests", "Requests that run.", stats["active_requests"])
        yield _gauge("queued_requests", "Requests that wait.", stats["queued_requests"])
        yield _counter(
            "refused_requests", "Requests for which the queue was full.", stats["requests_refused"]
        )
        for outcome in ("finished", "failed", "cancelled"):
            counts = stats[f"requests_{outcome}"]
            yield _counters(
                f"{outcome}_requests", f"Requests that {_OUTCOMES[outcome]}.", "reason", counts
            )
        yield _counter("prompt_tokens", "Tokens of prompts.", stats["prompt_tokens"])
        yield _counter(
            "cached_tokens", "Tokens of prompts that were in a cache.", stats["cached_tokens"]
        )
        yield _counter("completion_tokens", "Tokens of answers.", stats["completion_tokens"])
        for kind in ("drafted", "accepted"):
            by_depth = {str(d): n for d, n in enumerate(stats[f"{kind}_by_depth"], start=1)}
            yield _counters(f"{kind}_tokens", f"Draft tokens {kind}.", "depth", by_depth)
        yield from self._prefixes()
        for name, value in stats.get("memory", {}).items():
            yield _gauge(f"memory_{name}", _MEMORY.get(name, "Memory."), value)

    def _prefixes(self) -> Iterator[Metric]:
        bank = self._stats.get("prefix_cache")
        if bank is None:
            return
        yield _counter(
            "prefix_cache_hits", "Prompts whose beginning was in the cache.", bank["hits"]
        )
        yield _counters(
            "prefix_cache_misses", "Prompts of which nothing was.", "reason", bank["misses"]
        )
        yield _counter("prefix_cache_evictions", "Prefixes given up.", bank["evictions"])
        yield _gauge("prefix_cache_entries", "Prefixes that are kept.", bank["entries"])
        yield _gauge("prefix_cache_bytes", "Bytes that they take.", bank["bytes"])
        yield _gauge("prefix_cache_max_bytes", "Bytes that they may take.", bank["max_bytes"])


_OUTCOMES: Final = {
    "finished": "came to an end, by finish reason",
    "failed": "ended with an error, by its code",
    "cancelled": "were cancelled, by who did",
}

_MEMORY: Final = {
    "active_bytes": "Bytes that MLX holds.",
    "peak_bytes": "Most bytes that MLX has held.",
    "cache_capacity_bytes": "Bytes that the caches of requests and prefixes may take.",
    "cache_bytes_per_token": "Bytes that one token takes in the caches.",
}


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"mtplx_{name}", text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"mtplx_{name}", text, value=value)


def _counters(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(f"mtplx_{name}", text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
