"""How a repository of the hub is written: `ORG/NAME`, `hf:ORG/NAME`, or its address on the web."""

import re
from dataclasses import dataclass, replace
from urllib.parse import unquote, urlsplit

from huggingface_hub import constants

from mtplx.contracts.errors import UsageError
from mtplx.contracts.tensor_header import shortened

_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_OTHER_KINDS = ("datasets", "spaces", "buckets", "kernels", "collections")


@dataclass(frozen=True, slots=True)
class Address:
    """A model repository and, when it is named, a revision."""

    repo: str
    revision: str | None = None

    def at(self, revision: str | None) -> "Address":
        """The address with `revision`. Raises UsageError when it names another one already."""
        if revision is None or revision == self.revision:
            return self
        if self.revision is not None:
            raise UsageError(
                f"The address names revision {shortened(self.revision)}, and revision "
                f"{shortened(revision)} was asked for.",
                hint="Give one of them.",
            )
        return replace(self, revision=revision)


def parse_address(text: str) -> Address | None:
    """The repository that `text` names, None when it looks like something else.

    Raises UsageError for a `hf:` or web address that is not that of a model.
    """
    if text.startswith(("https://", "http://")):
        return _from_url(text)
    if text.startswith("hf:"):
        repo = text.removeprefix("hf:").removeprefix("//").removeprefix("models/")
        if not _REPO.fullmatch(repo):
            raise _not_a_model(text)
        return Address(repo)
    return Address(text) if _REPO.fullmatch(text) else None


def _from_url(text: str) -> Address:
    try:
        url = urlsplit(text)
    except ValueError:
        raise _not_a_model(text) from None
    if url.netloc != urlsplit(constants.ENDPOINT).netloc and url.hostname not in (
        constants.HF_URL_HOSTS
    ):
        raise UsageError(
            f"{shortened(url.netloc)} is not the hub that is set up ({constants.ENDPOINT}).",
            hint="Set HF_ENDPOINT to use another hub.",
        )
    parts = [unquote(part) for part in url.path.split("/") if part]
    repo = "/".join(parts[:2])
    if not _REPO.fullmatch(repo) or parts[0] in _OTHER_KINDS:
        raise _not_a_model(text)
    has_revision = len(parts) > 3 and parts[2] in ("tree", "blob", "resolve", "commit")
    return Address(repo, parts[3] if has_revision else None)


def _not_a_model(text: str) -> UsageError:
    # A web address may carry credentials or a signature; it is not repeated.
    shown = shortened(text) if text.startswith("hf:") else "The web address"
    return UsageError(
        f"{shown} is not the address of a model repository.",
        hint="Expected ORG/NAME, hf:ORG/NAME or https://huggingface.co/ORG/NAME.",
    )
