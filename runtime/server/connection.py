"""Noticing that a client has left, while its answer is made."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from mtplx.runtime.scheduler.errors import RequestCancelledError
from mtplx.runtime.scheduler.ticket import CancelReason

T = TypeVar("T")


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client leaves.

    For answers that are sent whole; `receive` is that of a request whose body has been read.

    Raises:
        RequestCancelledError: the client has left.
    """
    working = asyncio.create_task(work)
    watching = asyncio.create_task(wait_disconnected(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)
    if working.cancelled():
        raise RequestCancelledError(
            "the client left before its answer was there.", reason=CancelReason.CLIENT
        )
    return working.result()


async def wait_disconnected(receive: Receive) -> None:
    """Come back when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
