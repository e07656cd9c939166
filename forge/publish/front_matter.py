"""The YAML block at the head of a model card."""

import re
from typing import Any

import yaml

from mtplx.contracts.errors import UsageError

_BLOCK = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)


def read_front_matter(card: str) -> dict[str, Any]:
    """The values of the block, empty when the card has none. Raises UsageError for bad YAML."""
    block = _BLOCK.match(card)
    if block is None:
        return {}
    try:
        values = yaml.safe_load(block[1])
    except yaml.YAMLError as cause:
        reason = " ".join(str(cause).split())
        raise UsageError(
            f"The front matter of the model card is no YAML: {reason}.",
            hint="Correct the block between the lines `---` at the head of the card.",
        ) from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UsageError(
            f"The front matter of the model card is a {type(values).__name__}, expected a mapping.",
            hint="Write lines such as `license: apache-2.0` between the lines `---`.",
        )
    return values


def body_of(card: str) -> str:
    """The card without its block."""
    return _BLOCK.sub("", card, count=1).lstrip("\r\n")
