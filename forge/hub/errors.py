"""Failures of the hub and of the network, told as errors of mtplx.

No message repeats a URL or an answer of a server: either may carry a signature or a token.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
from huggingface_hub import constants
from huggingface_hub.errors import (
    DisabledRepoError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RevisionNotFoundError,
    XetDownloadError,
)

from mtplx.contracts.errors import DownloadError, MTPLXError, ResourceError, UsageError
from mtplx.contracts.tensor_header import shortened

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_LOG_IN = "log in with `hf auth login` or set HF_TOKEN"


@contextmanager
def hub_errors(repo: str, doing: str, *, revision: str | None = None) -> Iterator[None]:
    """Turn failures in the block into DownloadError, UsageError or ResourceError.

    `doing` completes "failed while ...": "reading config.json".
    """
    try:
        yield
    except (
        httpx2.HTTPError,  # HfHubHTTPError is one
        httpx2.InvalidURL,
        OSError,
        ValueError,
        RuntimeError,  # hf_xet raises bare ones
        XetDownloadError,
    ) as cause:
        raise as_mtplx_error(cause, repo, doing, revision=revision) from cause


def as_mtplx_error(
    cause: BaseException, repo: str, doing: str, *, revision: str | None = None
) -> MTPLXError:
    """The error to show for `cause`, which happened at `repo` while `doing`."""
    error = _root(cause)
    if isinstance(error, HfHubHTTPError):
        return _http_error(error, repo, doing, revision)
    if isinstance(error, OfflineModeIsEnabled):
        return DownloadError(
            f"{repo} was to be read from the hub, and the offline mode is on.",
            hint="Unset HF_HUB_OFFLINE, or give the path of a downloaded folder.",
        )
    if isinstance(error, HFValidationError):
        return UsageError(f"{repo} is no valid repository: {shortened(str(error))}.")
    if isinstance(error, httpx2.HTTPError | httpx2.InvalidURL):
        return DownloadError(
            f"{repo}: the connection to {constants.ENDPOINT} failed while {doing}: "
            f"{_shown(error)}.",
            hint="Check the network and HF_ENDPOINT, and run the command again.",
        )
    if isinstance(error, OSError) and error.errno is not None:
        return _file_error(error, repo, doing)
    return DownloadError(f"{repo}: {doing} failed: {_shown(error)}.", hint="Run the command again.")


def _http_error(
    error: HfHubHTTPError, repo: str, doing: str, revision: str | None
) -> DownloadError:
    status = error.response.status_code
    page = f"{constants.ENDPOINT}/{repo}"
    if isinstance(error, GatedRepoError):
        message = f"{repo} is gated, and you have no access (HTTP {status})."
        hint = f"Accept its terms at {page}, then {_LOG_IN}."
    elif isinstance(error, DisabledRepoError):
        message, hint = f"{repo} has been disabled on the hub.", f"See {page}."
    elif status == 401:
        message = f"{repo} does not exist, or your login does not give access to it (HTTP 401)."
        hint = f"Check the spelling; for a private or gated repository, {_LOG_IN}."
    elif status == 403:
        message = f"The hub refuses access to {repo} (HTTP 403)."
        hint = f"If it is private or gated, {_LOG_IN}, with a token that has the rights."
    elif isinstance(error, RevisionNotFoundError):
        message = f"{repo} has no such revision: {shortened(revision or 'main')}."
        hint = f"Branches, tags and commits are listed at {page}."
    elif isinstance(error, RemoteEntryNotFoundError):
        message = f"{repo}: a file is not there (HTTP 404 while {doing})."
        hint = "Was the repository changed? Run the command again."
    elif status == 404:
        message = f"There is no such repository: {repo} (at {constants.ENDPOINT})."
        hint = "Check the spelling; for a folder of this machine, give a path that exists."
    elif status == 429:
        message = f"{repo}: the hub received too many requests (HTTP 429 while {doing})."
        hint = "Wait some minutes and run the command again; logged-in users may ask more often."
    else:
        message = f"{repo}: the hub answered HTTP {status} while {doing}."
        hint = "Run the command again later; files that are complete are kept."
    return DownloadError(message, hint=hint)


def _file_error(error: OSError, repo: str, doing: str) -> MTPLXError:
    place = error.filename or constants.HF_HUB_CACHE
    reason = f"{Path(str(place))}: {error.strerror or error}"
    if error.errno in _NO_SPACE:
        return ResourceError(
            f"{repo}: the disk is full while {doing} ({reason}).",
            hint="Free some disk space, or set HF_HOME to a larger disk.",
        )
    return DownloadError(
        f"{repo}: {doing} failed: {reason}.",
        hint="Check the permissions of the cache, or set HF_HOME to another folder.",
    )


def _root(error: BaseException) -> BaseException:
    """What went wrong, under what the library wraps around it.

    That is "not in the cache either" for downloads and a bare RuntimeError for uploads.
    """
    wrappers = (LocalEntryNotFoundError, RuntimeError)
    while isinstance(error, wrappers) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _shown(error: BaseException) -> str:
    """One line of an error's text without anything that looks like an address."""
    words = [word for word in str(error).split() if "://" not in word]
    return shortened(" ".join(words) or type(error).__name__).removesuffix(".")
