"""Why a request is turned away before it reaches the model."""

from __future__ import annotations

from mtplx.contracts.errors import UsageError


class MissingKeyError(UsageError):
    """No API key was sent, or one that is not known."""

    code = "invalid_api_key"
    title = "Not authorised"


class ForbiddenError(UsageError):
    """The Host or Origin of the request is not one that this server answers to."""

    code = "forbidden"
    title = "Not allowed"


class NoSuchResourceError(UsageError):
    """Nothing is at this path, or under this id."""

    code = "not_found"
    title = "Not found"


class MethodError(UsageError):
    """The path does not take this method."""

    code = "method_not_allowed"
    title = "Method not allowed"


class ReceiveTimeoutError(UsageError):
    """The body did not arrive in time."""

    code = "receive_timeout"
    title = "Request too slow"


class BodyTooLargeError(UsageError):
    """The body has more bytes than are accepted."""

    code = "body_too_large"
    title = "Request too large"


class MediaTypeError(UsageError):
    """The body is not JSON in UTF-8."""

    code = "unsupported_media_type"
    title = "Unsupported media type"


class HeadersTooLargeError(UsageError):
    """The request has more headers than are accepted."""

    code = "headers_too_large"
    title = "Too many headers"


class TooManyFailuresError(UsageError):
    """This client has sent too many wrong keys; `retry_after_s` is when it may try again."""

    code = "too_many_failures"
    title = "Too many failures"

    def __init__(self, message: str, *, retry_after_s: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s
