"""The JSON body of a request, read under limits of size, shape and time."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import ClientDisconnect, Request

from mtplx.contracts.errors import InvalidRequestError
from mtplx.contracts.json_object import unique_pairs
from mtplx.runtime.scheduler.errors import RequestCancelledError
from mtplx.runtime.scheduler.ticket import CancelReason
from mtplx.runtime.server.json_scan import JsonScan
from mtplx.runtime.server.refusals import (
    BodyTooLargeError,
    MediaTypeError,
    ReceiveTimeoutError,
)
from mtplx.runtime.server.requests import REQUEST_ID

if TYPE_CHECKING:
    from mtplx.runtime.server.config import ServerConfig

log = logging.getLogger("mtplx.server")

# An escape of half a surrogate pair, which is rare enough to look closer only where one is.
_HALF_PAIR: Final = re.compile(rb"\\u[dD][89a-fA-F]")


async def read_json(request: Request) -> dict[str, Any]:
    """The JSON object that `request` carries.

    Raises:
        MediaTypeError: it is not sent as JSON in UTF-8.
        BodyTooLargeError: it has too many bytes.
        ReceiveTimeoutError: it did not arrive in time.
        InvalidRequestError: it is no JSON object, names a key twice, is nested too deeply or has too many values, or
            holds numbers or text that nothing could be done with. The key is "body".
    """
    config: ServerConfig = request.app.state.service.config
    _check_headers(request, config.max_body_bytes)
    data = await _receive(request, config)
    if config.log_prompts:
        log.info("request %s sent %s", request.scope["state"][REQUEST_ID], ascii(data)[2:-1])
    return parse_body(data)


def parse_body(data: bytes) -> dict[str, Any]:
    """The JSON object in `data`. Raises InvalidRequestError with the key "body"."""
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=unique_pairs,
            parse_float=_finite,
            parse_constant=_no_constant,
        )
        if _HALF_PAIR.search(data):
            # Half a pair has no UTF-8, and would fail wherever the text is used.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        raise _invalid(f"it is not UTF-8 at byte {error.start}") from None
    except UnicodeEncodeError:
        raise _invalid("a string in it has half of a surrogate pair") from None
    except RecursionError:
        raise _invalid("it is nested too deeply") from None
    except ValueError as error:
        raise _invalid(str(error)) from None
    if not isinstance(value, dict):
        raise _invalid(f"expected a JSON object, found {_kind(value)}")
    return value


def _check_headers(request: Request, max_bytes: int) -> None:
    """What can be refused before a byte of the body is read."""
    kind, _, parameters = request.headers.get("content-type", "").partition(";")
    if kind.strip().lower() != "application/json" or not _is_utf8(parameters):
        raise MediaTypeError(
            f"content-type is {request.headers.get('content-type', 'missing')!r}, expected "
            "application/json in UTF-8.",
            hint="Send the header content-type: application/json.",
        )
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise MediaTypeError(f"content-encoding {encoding!r} is not accepted; send it plain.")
    length = request.headers.get("content-length", "0")
    if length.isascii() and length.isdecimal() and int(length) > max_bytes:
        raise _too_large(max_bytes)


async def _receive(request: Request, config: ServerConfig) -> bytes:
    """The bytes of the body, measured while they come."""
    scan = JsonScan(max_depth=config.max_json_depth, max_values=config.max_json_values)
    body = bytearray()
    try:
        async with asyncio.timeout(config.receive_timeout_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > config.max_body_bytes:
                    raise _too_large(config.max_body_bytes)
                scan.feed(chunk)
    except TimeoutError:
        raise ReceiveTimeoutError(
            f"the body had not arrived after {config.receive_timeout_s:g} s."
        ) from None
    except ClientDisconnect:
        raise RequestCancelledError(
            "the client left while it sent its request.", reason=CancelReason.CLIENT
        ) from None
    return bytes(body)


def _is_utf8(parameters: str) -> bool:
    name, _, value = parameters.strip().partition("=")
    return not name or (
        name.lower() == "charset" and value.strip('" ').lower() in ("utf-8", "utf8")
    )


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _kind(value: object) -> str:
    names = {list: "a list", str: "a string", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")


def _invalid(reason: str) -> InvalidRequestError:
    return InvalidRequestError(f"the body cannot be used: {reason}.", key="body")


def _too_large(max_bytes: int) -> BodyTooLargeError:
    return BodyTooLargeError(
        f"the body has more than the {max_bytes} bytes that this server accepts.",
        hint="Shorten it, or start the server with a larger --max-body-bytes.",
    )
