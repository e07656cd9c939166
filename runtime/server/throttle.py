"""Clients that send wrong keys have to wait."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict, deque
from collections.abc import Callable


class Throttle:
    """Counts failures of clients; one with `limit` of them in `window_s` seconds is turned away.

    While it is, a right key is not looked at either, or guessing would go on at full speed. At most `max_clients` are
    remembered, the ones that failed longest ago are forgotten first. IPv6 clients are told apart by their /64, all
    addresses of which belong to one host.
    """

    def __init__(
        self,
        limit: int,
        window_s: float,
        *,
        max_clients: int = 1024,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = limit
        self._window_s = window_s
        self._max_clients = max_clients
        self._now = now
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failures)

    def wait_s(self, client: str) -> float:
        """Seconds until `client` is listened to again; 0 where it is now."""
        failures = self._failures.get(_network(client))
        if failures is None or len(failures) < self._limit:
            return 0.0
        return max(0.0, failures[0] + self._window_s - self._now())

    def fail(self, client: str) -> None:
        """Count one failure of `client`."""
        key = _network(client)
        failures = self._failures.pop(key, None) or deque(maxlen=self._limit)
        failures.append(self._now())
        self._failures[key] = failures
        while len(self._failures) > self._max_clients:
            self._failures.popitem(last=False)


def _network(client: str) -> str:
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return client
    if isinstance(address, ipaddress.IPv4Address):
        return client
    mapped = address.ipv4_mapped
    return str(mapped) if mapped else str(ipaddress.IPv6Network((int(address), 64), strict=False))
