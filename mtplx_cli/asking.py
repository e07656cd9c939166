"""Asking a server of mtplx how it is."""

from pathlib import Path
from typing import Any

import httpx2

from mtplx.config import Config
from mtplx.contracts.errors import ServerError, UsageError
from mtplx.runtime.server.keys import read_first_key

_TIMEOUT_S = 5.0


def configured_key(file: Path | None) -> str | None:
    """The key to send: of `file`, or of the setting `api_key_file`. Raises UsageError."""
    configured = Config.load(api_key_file=None if file is None else str(file)).api_key_file
    return None if configured is None else read_first_key(Path(configured).expanduser())


def ask_server(url: str, key: str | None) -> dict[str, Any]:
    """Its state and statistics; `status` and `reason` are always there.

    A server that does not answer has the status "unreachable". Statistics are left out where the key does not
    suffice for them.

    Raises:
        UsageError: `url` is none.
        ServerError: something answers that is no server of mtplx, or it refuses the key.
    """
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    try:
        # Proxies of the environment are for the outside.
        with httpx2.Client(
            base_url=url, headers=headers, timeout=_TIMEOUT_S, trust_env=False
        ) as client:
            health = client.get("/health/ready")
            found = _object(health, url)
            stats = client.get("/v1/mtplx/stats") if health.status_code == 200 else None
            if stats is not None and stats.status_code == 200:
                found |= {k: v for k, v in _object(stats, url).items() if k not in found}
    except (httpx2.UnsupportedProtocol, httpx2.InvalidURL) as error:
        raise UsageError(
            f"--url {url!r} is no address: {error}", hint="For example: http://127.0.0.1:8000"
        ) from error
    except httpx2.HTTPError as error:
        return {"status": "unreachable", "reason": str(error) or type(error).__name__}
    return found


def _object(response: httpx2.Response, url: str) -> dict[str, Any]:
    if response.status_code in (401, 403, 429):
        refused: Any = response.json()
        raise ServerError(
            f"{url} refuses: {refused['error']['message']}",
            hint="Name the file of its keys with --api-key-file, or set api_key_file.",
        )
    try:
        found: Any = response.json()
    except ValueError:
        found = None
    if not isinstance(found, dict) or response.status_code not in (200, 503):
        raise ServerError(
            f"{url} answers with status {response.status_code} and is no server of mtplx.",
            hint="Look at the port: `mtplx status` lists the servers of this machine.",
        )
    return {"status": "not_ready", "reason": None, **found}
