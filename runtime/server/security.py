"""Who is answered: which names of this server, which web pages, which keys."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from mtplx.contracts.errors import MTPLXError
from mtplx.runtime.server.config import is_loopback, parse_address
from mtplx.runtime.server.errors import error_response
from mtplx.runtime.server.refusals import (
    ForbiddenError,
    HeadersTooLargeError,
    MissingKeyError,
    TooManyFailuresError,
)
from mtplx.runtime.server.requests import KEY_NAME, REQUEST_ID
from mtplx.runtime.server.throttle import Throttle

if TYPE_CHECKING:
    from mtplx.runtime.server.config import ServerConfig

ANY: Final = "*"
LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})

# These say whether the server lives, and no more to those without a key.
OPEN_PATHS: Final = frozenset({"/health", "/health/live", "/health/ready"})

_HOST: Final = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^:\[\]/@\s]+)(?::[0-9]{1,5})?")


class AddressGate:
    """Refuses requests that call the server by a strange name, or come from a strange web page.

    The first keeps a page whose own name was made to point here (DNS rebinding) away, the second every other page.
    A page is known by the header Origin, which browsers let no page change; other clients send none.
    """

    def __init__(self, app: ASGIApp, config: ServerConfig) -> None:
        self._app = app
        self._config = config
        self._hosts = _known_hosts(config)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on or refuse it."""
        if scope["type"] == "http":
            try:
                self._check(Headers(scope=scope))
            except MTPLXError as error:
                await _refuse(error, scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, headers: Headers) -> None:
        size = sum(len(name) + len(value) for name, value in headers.raw)
        config = self._config
        if len(headers) > config.max_headers or size > config.max_header_bytes:
            raise HeadersTooLargeError(
                f"the request has {len(headers)} headers of {size} bytes, at most "
                f"{config.max_headers} of {config.max_header_bytes} are read."
            )
        host = self._check_host(headers.getlist("host"))
        for origin in headers.getlist("origin"):
            self._check_origin(origin, host)

    def _check_host(self, hosts: list[str]) -> str:
        found = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if found is None:
            raise ForbiddenError("the request has no Host header that could be understood.")
        name = found["name"].lower().removesuffix(".")
        if not self._is_known(name):
            raise ForbiddenError(
                f"this server does not answer to the name {name}.",
                hint=f"If the name is its own, start it with --allowed-host {name}.",
            )
        return hosts[0].lower()

    def _is_known(self, name: str) -> bool:
        if ANY in self._hosts or name in self._hosts:
            return True
        # An address cannot be made to point elsewhere, and a server open to all cannot know all of its own.
        return parse_address(self._config.host) is not None and (
            not is_loopback(self._config.host) and parse_address(name) is not None
        )

    def _check_origin(self, origin: str, host: str) -> None:
        allowed = self._config.cors_origins
        parts = urlsplit(origin)
        is_own = parts.scheme in ("http", "https") and parts.netloc.lower() == host
        if not (is_own or ANY in allowed or origin in allowed):
            raise ForbiddenError(
                f"pages of {origin[:200]} may not use this server.",
                hint=f"To let them, start it with --cors-origin {origin[:200]}.",
            )


class KeyGate:
    """Asks for a key where there are keys, and makes clients that guess wait."""

    def __init__(self, app: ASGIApp, config: ServerConfig) -> None:
        self._app = app
        self._keys = config.keys
        self._throttle = Throttle(config.max_failures, config.failure_window_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with the name of its key, or refuse it."""
        if scope["type"] == "http" and self._keys is not None:
            client = scope.get("client")
            try:
                name = self._name(Headers(scope=scope), client[0] if client else "")
                if name is None and scope["path"] not in OPEN_PATHS:
                    raise MissingKeyError(
                        "this server wants an API key.",
                        hint="Send it as `Authorization: Bearer KEY` or as `x-api-key: KEY`.",
                    )
            except MTPLXError as error:
                await _refuse(error, scope, receive, send)
                return
            scope["state"][KEY_NAME] = name
        await self._app(scope, receive, send)

    def _name(self, headers: Headers, client: str) -> str | None:
        """The name of the key that was sent, None where none was."""
        presented = _presented(headers)
        if not presented or self._keys is None:
            return None
        if wait_s := self._throttle.wait_s(client):
            raise TooManyFailuresError(
                "too many wrong API keys came from this address.",
                retry_after_s=math.ceil(wait_s),
                hint="Wait for the seconds of Retry-After.",
            )
        names = [self._keys.find(key) for key in presented]
        found = next((name for name in names if name is not None), None)
        if found is None:
            self._throttle.fail(client)
            raise MissingKeyError(
                "this API key is not known.", hint="Look at the server's key file."
            )
        return found


def _known_hosts(config: ServerConfig) -> frozenset[str]:
    address = parse_address(config.host)
    is_v6 = address is not None and address.version == 6
    own = f"[{config.host}]" if is_v6 else config.host.lower()
    return LOCAL_NAMES | {own} | {host.lower() for host in config.allowed_hosts}


def _presented(headers: Headers) -> list[bytes]:
    """Every key the request carries; some clients send the same one in both headers."""
    keys = [key.encode("latin-1") for key in headers.getlist("x-api-key")]
    for value in headers.getlist("authorization"):
        scheme, _, key = value.partition(" ")
        if scheme.lower() == "bearer":
            keys.append(key.strip().encode("latin-1"))
    return [key for key in keys if key][:2]


async def _refuse(error: MTPLXError, scope: Scope, receive: Receive, send: Send) -> None:
    request_id = scope.get("state", {}).get(REQUEST_ID, "")
    await error_response(error, scope["path"], request_id)(scope, receive, send)
