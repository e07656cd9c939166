"""Taking out of text what tells who and where somebody is, and what opens their doors."""

import getpass
import ipaddress
import os
import re
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from mtplx.contracts.folders import config_folder, state_folder

_TOKENS: Final = re.compile(
    r"\bhf_[A-Za-z0-9]{8,}"
    r"|\b(?:sk|glpat|xox[abprs])-[A-Za-z0-9_-]{8,}"
    r"|\b(?:gh[pousr]|github_pat)_\w{8,}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\bAIza[\w-]{35}"
    r"|\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{10,}"
    r"|(?i:\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}"
)
_CREDENTIALS: Final = re.compile(r"(?<=://)[^\s/]+@")
_QUERY: Final = re.compile(r"(\w://[^\s?#]+)[?#]\S*")
_SECRET_NAME: Final = re.compile(
    r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY", re.IGNORECASE
)
_URL: Final = re.compile(r"(\w://)(\[[^\s\]]*\]|[^\s/:'\",;)]*)(:\d+)?(/[^\s'\",;)]*)?")
_PUBLIC_HOSTS: Final = frozenset({"huggingface.co", "hf.co", "github.com", "pypi.org"})
# A path in quotes may have spaces in it. A slash after a letter, a mark of ours or another slash
# does not begin a path.
_PATH: Final = re.compile(
    r"(?<=')/[^']+|(?<=\")/[^\"]+"
    r"|(?<![\w~>/.-])/(?!/)[^\s'\",;:()<>|`]+"
    r"|~[\w.-]*/[^\s'\",;:()<>|`]+"
)
# What lies there comes with systems, not with persons.
_SYSTEM: Final = re.compile(
    r"/(?:usr/(?:local/)?)?(?:bin|sbin|lib|lib64)/|/opt/(?:intel|homebrew)/|/System/|/Library/"
)
_ADDRESS: Final = re.compile(
    r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f:]*:[0-9A-Fa-f:.]+)(?![\w])"
)
_LEAST_SECRET: Final = 6

# Values of these keys are words of ours.
_FIXED_KEYS: Final = frozenset({"id", "status", "severity", "overall"})


class Place(NamedTuple):
    """A folder that is shown as `mark`; what follows it in a path stays."""

    path: str
    mark: str


@dataclass(frozen=True, slots=True)
class Redactor:
    """What must not be shown, longest first where one is part of another."""

    home: str
    users: tuple[str, ...]
    hosts: tuple[str, ...]
    secrets: tuple[str, ...]
    places: tuple[Place, ...] = ()

    @classmethod
    def of_this_machine(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Home, user and host as the system names them; secrets by the names of variables."""
        home = environment.get("HOME") or _home()
        host = socket.gethostname()
        hosts = {host, host.partition(".")[0]} - {"", "localhost"}
        secrets = {
            value
            for name, value in environment.items()
            if _SECRET_NAME.search(name) and len(value) >= _LEAST_SECRET
        }
        places = (
            Place(str(state_folder()), "<state>"),
            Place(str(config_folder()), "<config>"),
            Place(sys.prefix, "<python>"),
        )
        return cls(
            home=str(Path(home)) if home not in ("", "/") else "",
            users=_longest_first({_user(), Path(home).name} - {""}),
            hosts=_longest_first(hosts),
            secrets=_longest_first(secrets),
            places=_by_length(places),
        )

    def knowing(self, path: str | Path, mark: str) -> Self:
        """A redactor that shows `path` as `mark`, in the form given and in full."""
        forms = {str(path), str(Path(path).absolute())} - {"", ".", "/"}
        places = (*self.places, *(Place(form, mark) for form in forms))
        return replace(self, places=_by_length(places))

    def without_secrets(self, text: str) -> str:
        """`text` without what opens doors: tokens, values of variables, parts of addresses."""
        for secret in self.secrets:
            text = text.replace(secret, "<secret>")
        return without_credentials(_TOKENS.sub("<secret>", text))

    def text(self, text: str) -> str:
        """`text` without secrets and without what tells of people, machines and projects."""
        text = _URL.sub(_known_host_only, self.without_secrets(text))
        for path, mark in self.places:
            text = re.sub(rf"(?<!\w){re.escape(path)}(?![\w-])", mark, text)
        if self.home:
            text = re.sub(re.escape(self.home) + r"(?![\w.-])", "~", text)
        text = _PATH.sub(_system_path_only, text)
        for names, name_mark in ((self.hosts, "<host>"), (self.users, "<user>")):
            for name in names:
                # Names are case-blind to the systems that use them; letters or digits around
                # make another word of it, an underscore or hyphen does not.
                pattern = rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])"
                text = re.sub(pattern, name_mark, text, flags=re.IGNORECASE)
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


def without_credentials(text: str) -> str:
    """`text` without user names, passwords and queries in the addresses that it has."""
    return _QUERY.sub(r"\1?<query>", _CREDENTIALS.sub("<secret>@", text))


def _home() -> str:
    try:
        return str(Path.home())
    except RuntimeError:  # a user id without a name, as containers have
        return ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


def _longest_first(names: set[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=lambda name: (-len(name), name)))


def _by_length(places: tuple[Place, ...]) -> tuple[Place, ...]:
    return tuple(sorted(places, key=lambda place: -len(place.path)))


def _known_host_only(match: re.Match[str]) -> str:
    """An address without its path, which may name a private repository."""
    scheme, host, port, path = match.groups(default="")
    if host.lower() not in _PUBLIC_HOSTS:
        host = host and "<host>"
    return f"{scheme}{host}{port}{path and '/'}{path.strip('/') and '<path>'}"


def _system_path_only(match: re.Match[str]) -> str:
    path = match[0]
    if path.startswith("~"):
        return "~/<path>"
    return path if _SYSTEM.match(path) else "<path>"


def _without_address(match: re.Match[str]) -> str:
    try:
        ipaddress.ip_address(match[0].rstrip("."))
    except ValueError:
        return match[0]
    return "<ip>"
