"""Taking out of text what tells who and where somebody is, and what opens their doors."""

import getpass
import ipaddress
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

_TOKENS: Final = re.compile(
    r"\bhf_[A-Za-z0-9]{8,}"
    r"|\b(?:sk|glpat|xox[abprs])-[A-Za-z0-9_-]{8,}"
    r"|\b(?:gh[pousr]|github_pat)_\w{8,}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\bAIza[\w-]{35}"
    r"|\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{10,}"
    r"|(?i:\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}"
)
_CREDENTIALS: Final = re.compile(r"(?<=://)[^\s/@]+@")
_QUERY: Final = re.compile(r"(https?://[^\s?#]+)[?#]\S*")
_SECRET_NAME: Final = re.compile(
    r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY", re.IGNORECASE
)
_HOMES: Final = re.compile(r"(/home|/Users)/[^/\s'\":,;]+")
_ADDRESS: Final = re.compile(
    r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f:]*:[0-9A-Fa-f:.]+)(?![\w])"
)
_LEAST_SECRET: Final = 6

# Values of these keys are words of ours.
_FIXED_KEYS: Final = frozenset({"id", "status", "severity", "overall"})


@dataclass(frozen=True, slots=True)
class Redactor:
    """What must not be shown, longest first where one is part of another."""

    home: str
    users: tuple[str, ...]
    hosts: tuple[str, ...]
    secrets: tuple[str, ...]

    @classmethod
    def of_this_machine(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Home, user and host as the system names them; secrets by the names of variables."""
        home = str(Path(environment.get("HOME") or Path.home()))
        host = socket.gethostname()
        hosts = {host, host.partition(".")[0]} - {"", "localhost"}
        secrets = {
            value
            for name, value in environment.items()
            if _SECRET_NAME.search(name) and len(value) >= _LEAST_SECRET
        }
        return cls(
            home=home if home != "/" else "",
            users=_longest_first({_user(), Path(home).name} - {""}),
            hosts=_longest_first(hosts),
            secrets=_longest_first(secrets),
        )

    def text(self, text: str) -> str:
        """`text` without any of it."""
        for secret in self.secrets:
            text = text.replace(secret, "<secret>")
        text = _TOKENS.sub("<secret>", text)
        text = _CREDENTIALS.sub("<secret>@", text)
        text = _QUERY.sub(r"\1?<query>", text)
        if self.home:
            text = re.sub(re.escape(self.home) + r"(?![\w.-])", "~", text)
        text = _HOMES.sub(r"\1/<user>", text)
        for names, mark in ((self.hosts, "<host>"), (self.users, "<user>")):
            for name in names:
                # Names are case-blind to the systems that use them; letters or digits around
                # make another word of it, an underscore or hyphen does not.
                pattern = rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])"
                text = re.sub(pattern, mark, text, flags=re.IGNORECASE)
        return _ADDRESS.sub(_without_address, text)

    def value(self, value: Any) -> Any:
        """A JSON value with all its texts redacted, apart from words of the report's own."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {k: v if k in _FIXED_KEYS else self.value(v) for k, v in value.items()}
        return value


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as containers have
        return ""


def _longest_first(names: set[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=lambda name: (-len(name), name)))


def _without_address(match: re.Match[str]) -> str:
    try:
        ipaddress.ip_address(match[0].rstrip("."))
    except ValueError:
        return match[0]
    return "<ip>"
