"""Which failures of a request pass by themselves, and how long to wait for that."""

import time
from collections.abc import Callable, Collection
from typing import TypeVar

import httpx2
from huggingface_hub.errors import HfHubHTTPError

T = TypeVar("T")

MAX_ATTEMPTS = 6
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 300.0

PASSING_STATUS = frozenset({408, 429, 500, 502, 503, 504})
LEFT_BY_LIBRARY = frozenset({500, 502, 503, 504})
"""Those that `hf_hub_download` does not wait for by itself while it reads a body."""

_PASSING_ERRORS = (httpx2.TimeoutException, httpx2.NetworkError, httpx2.RemoteProtocolError)


def retried(
    call: Callable[[], T],
    *,
    statuses: Collection[int] = PASSING_STATUS,
    sleep: Callable[[float], object] = time.sleep,
) -> T:
    """The result of `call`, tried again while it fails in a way that may pass.

    Waits double from `FIRST_WAIT_S`; a `Retry-After` of the server goes before, and one beyond
    `LONGEST_WAIT_S` ends the trying at once.
    """
    for attempt in range(1, MAX_ATTEMPTS):
        try:
            return call()
        except (HfHubHTTPError, httpx2.TransportError) as error:
            wait_s = wait_before_retry(error, attempt, statuses)
            if wait_s is None:
                raise
            sleep(wait_s)
    return call()


def wait_before_retry(
    error: BaseException, attempt: int, statuses: Collection[int] = PASSING_STATUS
) -> float | None:
    """Seconds to wait after failed attempt number `attempt` (from 1); None when trying is over."""
    if isinstance(error, HfHubHTTPError):
        if error.response.status_code not in statuses:
            return None
        asked = error.response.headers.get("Retry-After", "").strip()
        if asked.isdecimal():
            return float(asked) if float(asked) <= LONGEST_WAIT_S else None
    elif not isinstance(error, _PASSING_ERRORS):
        return None
    return float(FIRST_WAIT_S * 2 ** (attempt - 1))
