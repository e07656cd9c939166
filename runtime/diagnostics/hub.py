"""The hub: whether it answers and takes the token, which is never shown."""

from dataclasses import dataclass

import httpx2

from mtplx.runtime.diagnostics.catalogue import failed, passed, skipped, warned
from mtplx.runtime.diagnostics.redaction import without_credentials
from mtplx.runtime.diagnostics.report import Check

_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class HubFacts:
    """What came of asking `endpoint`, whose credentials are left out.

    `problem` is None when it answered; `is_offline` when nobody may ask it. `login_status` is the
    HTTP status of a login, None without a token.
    """

    endpoint: str
    problem: str | None = None
    is_offline: bool = False
    login_status: int | None = None


def read_hub() -> HubFacts:
    """Ask the hub of HF_ENDPOINT, with the token if there is one."""
    from huggingface_hub import constants, get_session, get_token
    from huggingface_hub.errors import OfflineModeIsEnabled

    endpoint = constants.ENDPOINT
    shown = without_credentials(endpoint)
    try:
        session = get_session()
        answer = session.get(f"{endpoint}/api/models", params={"limit": 1}, timeout=_LIMIT_S)
        if answer.status_code >= 400:
            return HubFacts(shown, f"HTTP {answer.status_code}")
        token = get_token()
        if token is None:
            return HubFacts(shown)
        headers = {"authorization": f"Bearer {token}"}
        login = session.get(f"{endpoint}/api/whoami-v2", headers=headers, timeout=_LIMIT_S)
    except OfflineModeIsEnabled:
        return HubFacts(shown, is_offline=True)
    # A token with characters that no header may have is a ValueError, whose text would show it.
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as cause:
        return HubFacts(shown, type(cause).__name__)
    return HubFacts(shown, login_status=login.status_code)


def check_hub(facts: HubFacts | None) -> list[Check]:
    """Reachability and login; both are skipped when nobody asked the hub."""
    if facts is None:
        why = "asked with --deep only"
        return [skipped("hub.access", why), skipped("hub.login", why)]
    if facts.is_offline:
        fix = "Unset HF_HUB_OFFLINE to download; models that are here run without the hub."
        return [
            warned("hub.access", "the offline mode is on", fix, "unset HF_HUB_OFFLINE"),
            skipped("hub.login", "the hub may not be asked"),
        ]
    if facts.problem is not None:
        fix = "Check the network and HF_ENDPOINT; models that are here run without the hub."
        observed = f"{facts.endpoint}: {facts.problem}"
        return [
            failed("hub.access", observed, fix, "printenv HF_ENDPOINT"),
            skipped("hub.login", "the hub does not answer"),
        ]
    return [passed("hub.access", f"{facts.endpoint} answers"), _check_login(facts.login_status)]


def _check_login(status: int | None) -> Check:
    if status is None:
        return passed("hub.login", "not logged in: public models only")
    if status < 400:
        return passed("hub.login", "the hub accepts the token")
    fix = "Log in again, or unset HF_TOKEN; with a bad token even public models are refused."
    return failed("hub.login", f"the hub refuses the token (HTTP {status})", fix, "hf auth login")
