"""Signatures of thinking blocks.

Clients send thinking back with its signature and nothing else. Where they asked not to be shown it, the signature is
what carries it to the next turn, so that a model in the midst of its tool calls knows what it had in mind. It keeps
nothing secret, and thinking that comes back is not checked against it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Final

_HOLDS: Final = "mtplx-thinking:"
_NAMES: Final = "mtplx-sha256:"


def sign(thinking: str) -> str:
    """The signature of thinking that is shown."""
    return _NAMES + hashlib.sha256(thinking.encode()).hexdigest()


def seal(thinking: str) -> str:
    """The signature of thinking that is not shown."""
    return _HOLDS + base64.b64encode(thinking.encode()).decode("ascii")


def unseal(thinking: str, signature: str) -> str:
    """The thinking of a block that came back. Raises ValueError for a signature that was damaged."""
    if thinking or not signature.startswith(_HOLDS):
        return thinking
    try:
        return base64.b64decode(signature.removeprefix(_HOLDS), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ValueError("the signature of this block is damaged") from error
