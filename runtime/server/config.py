"""How a server listens, whom it answers, and how much it takes."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mtplx.contracts.errors import UsageError

if TYPE_CHECKING:
    from mtplx.runtime.server.keys import ApiKeys

MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The limits and rights of one server; sizes in bytes, times in seconds.

    `allowed_hosts` are names beside the server's own that requests may call it by, "*" any. `cors_origins` are
    origins whose pages may use the server, "*" any. Without `keys` everybody who reaches the port may.

    `receive_timeout_s` is what a request's body may take, `header_timeout_s` its head, `write_timeout_s` how long a
    client may read nothing. `deadline_s` is what an answer may take, waiting included. `stop_grace_s` is what
    answers get to end in when the server stops. `tuning` is what is told of `mtplx tune`'s result, `version` mtplx's.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    keys: ApiKeys | None = None
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    max_body_bytes: int = 16 * MIB
    max_json_depth: int = 64
    max_json_values: int = 1_000_000
    max_headers: int = 100
    max_header_bytes: int = 64 * 1024
    max_connections: int = 512
    receive_timeout_s: float = 30.0
    header_timeout_s: float = 15.0
    idle_timeout_s: int = 75
    write_timeout_s: float = 60.0
    keep_alive_s: float = 15.0
    max_failures: int = 10
    failure_window_s: float = 60.0
    deadline_s: float | None = None
    stop_grace_s: float = 10.0
    log_prompts: bool = False
    tuning: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""

    @property
    def url(self) -> str:
        """Where a client on this machine finds the server."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def check(self) -> None:
        """Refuse to be open to the network without a key.

        Raises:
            UsageError: the address is not this machine's own and there are no keys, or a host is allowed that is none.
        """
        if self.keys is None and not is_loopback(self.host):
            raise UsageError(
                f"--host {self.host} is open to other machines, and no API key is set.",
                hint="Make one and name the file: "
                '(umask 077; echo "me: $(openssl rand -hex 32)" > mtplx-keys) && '
                f"mtplx serve --host {self.host} --api-key-file mtplx-keys",
            )
        if "*" in self.allowed_hosts and self.keys is None:
            raise UsageError(
                "--allowed-host '*' lets any web page reach this server, and no API key is set.",
                hint="Name the hosts, or add --api-key-file FILE.",
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    address = parse_address(host)
    return host == "localhost" if address is None else address.is_loopback


def parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """`host` as an IP address, brackets allowed, or None for a name."""
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
