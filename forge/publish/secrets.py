"""Finding credentials in text before it is shown to the world."""

import re
from typing import Final, NamedTuple

# Each begins with a mark of its own: random letters and the words of a tokenizer match none.
_PATTERNS: Final = {
    "Hugging Face token": r"\bhf_[A-Za-z0-9]{20,}",
    "API key": r"(?<![\w-])sk-[A-Za-z0-9_-]{20,}",
    "AWS access key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{22,})",
    "GitLab token": r"\bglpat-[\w-]{20,}",
    "Slack token": r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
    "Google API key": r"\bAIza[\w-]{35}",
    "JSON web token": r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}",
    "private key": r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----",
    "authorization header": r"\b[Bb]earer[ \t]+(?=\S*\d)[A-Za-z0-9._~+/=-]{20,}"
    r"|\bAuthorization[\"']?[ \t]*:[ \t]*[\"']?Basic[ \t]+[A-Za-z0-9+/=]{8,}",
    "password in a web address": r"://[^\s/:@\"'<>{}]+:[^\s/:@\"'<>{}]+@[\w.-]+",
}
_COMPILED: Final = {kind: re.compile(pattern) for kind, pattern in _PATTERNS.items()}


class Secret(NamedTuple):
    """What looks like a credential; the text itself is not kept, so that no message can show it."""

    kind: str
    line: int


def find_secrets(text: str) -> tuple[Secret, ...]:
    """Every kind of credential in `text` with the line of its first occurrence, counted from 1."""
    found = []
    for kind, pattern in _COMPILED.items():
        if match := pattern.search(text):
            found.append(Secret(kind, text.count("\n", 0, match.start()) + 1))
    return tuple(found)
