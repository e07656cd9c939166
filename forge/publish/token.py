"""The hub token: where it may come from, and what may never happen to it."""

import re
from typing import TextIO

from mtplx.contracts.errors import UsageError

_HINT = (
    "Set HF_TOKEN, log in with `hf auth login`, or pipe the token into --token-stdin; create one "
    "with write access under Settings, Access Tokens on the hub."
)

_MAX_LINE = 1024


def find_token(stdin: TextIO | None = None) -> str:
    """The token from the first line of `stdin`, or without one from HF_TOKEN or the hub's login.

    Raises UsageError when there is none, when it could not be sent, or when it would have to be
    typed where everybody sees it; no message shows it.
    """
    if stdin is not None and stdin.isatty():
        raise UsageError(
            "The hub token is not read from a terminal, which would show it.", hint=_HINT
        )
    if stdin is not None:
        token, origin = stdin.readline(_MAX_LINE).strip(), "standard input"
    else:
        from huggingface_hub import get_token

        token, origin = get_token() or "", "HF_TOKEN or the hub's login"
    if not token:
        raise UsageError(f"There is no hub token: {origin} gave none.", hint=_HINT)
    # Anything else would end up in an exception of the HTTP client, text and all.
    if not re.fullmatch(r"[!-~]{1,512}", token):
        raise UsageError(
            f"The hub token from {origin} has characters that no token has.", hint=_HINT
        )
    return token
