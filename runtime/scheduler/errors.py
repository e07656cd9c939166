"""Why the owner did not run a job to its end."""

from __future__ import annotations

from typing import ClassVar

from mtplx.contracts.errors import MTPLXError, ResourceError
from mtplx.runtime.scheduler.ticket import CancelReason


class QueueFullError(ResourceError):
    """More requests than the lane takes; `retry_after_s` is when one more may be."""

    code = "queue_full"
    title = "Server busy"

    def __init__(self, message: str, *, retry_after_s: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class NotReadyError(MTPLXError):
    """The model is being loaded, or the server stops."""

    exit_code = 7
    code = "not_ready"
    title = "Not ready"


class RequestCancelledError(MTPLXError):
    """A job was cancelled before it began; `reason` says by whom."""

    exit_code: ClassVar[int] = 130
    code = "cancelled"
    title = "Cancelled"

    def __init__(self, message: str, *, reason: CancelReason) -> None:
        super().__init__(message)
        self.reason = reason
