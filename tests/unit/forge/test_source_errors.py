"""Failures of network, hub and disk as errors that say what to do."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import httpx2
import pytest
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

from mtplx.contracts.errors import DownloadError, ResourceError, UsageError
from mtplx.forge.hub import retry
from mtplx.forge.hub.errors import as_mtplx_error, hub_errors
from mtplx.forge.hub.retry import retried, wait_before_retry


def http_error(status: int, **headers: str) -> HfHubHTTPError:
    """The library's error for an answer."""
    request = httpx2.Request("GET", "https://storage/x?sig=secret")
    response = httpx2.Response(status, headers=headers, request=request)
    return HfHubHTTPError("at https://storage/x?sig=secret", response=response)


def test_full_disk_is_a_matter_of_resources() -> None:
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/cache/blob")
    with pytest.raises(ResourceError, match=r"disk is full.*/cache/blob"), hub_errors("a/b", "x"):
        raise error


def test_unwritable_cache_names_the_file() -> None:
    found = as_mtplx_error(PermissionError(errno.EACCES, "Permission denied", "/c"), "a/b", "x")
    assert isinstance(found, DownloadError)
    assert "/c: Permission denied" in found.message


def test_wrapped_errors_are_told_by_their_cause() -> None:
    wrapped = LocalEntryNotFoundError("not in the cache either")
    wrapped.__cause__ = http_error(503)
    assert "HTTP 503 while reading" in str(as_mtplx_error(wrapped, "a/b", "reading"))
    wrapped.__cause__ = OfflineModeIsEnabled("offline")
    assert "HF_HUB_OFFLINE" in str(as_mtplx_error(wrapped, "a/b", "reading"))


@pytest.mark.parametrize(
    "error",
    [
        http_error(500),
        http_error(418),
        httpx2.ConnectError("cannot reach https://storage/x?sig=secret now"),
        ValueError("bad https://storage/x?sig=secret"),
        RuntimeError("https://storage/x?sig=secret"),
    ],
)
def test_addresses_are_not_repeated(error: Exception) -> None:
    with pytest.raises(DownloadError) as caught, hub_errors("a/b", "reading config.json"):
        raise error
    assert "secret" not in str(caught.value)
    assert "a/b" in str(caught.value)
    assert "reading config.json" in str(caught.value)


def test_invalid_repository_name_is_a_usage_error() -> None:
    from huggingface_hub import HfApi

    with pytest.raises(UsageError, match="no valid repository"), hub_errors("a/b--c", "x"):
        HfApi().model_info("a/b--c")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (http_error(500), [1.0, 2.0, 4.0]),
        (http_error(429, **{"Retry-After": "7"}), [7.0, 7.0, 7.0]),
        (http_error(429, **{"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}), [1.0, 2.0, 4.0]),
        (http_error(429, **{"Retry-After": "86400"}), [None, None, None]),
        (http_error(404), [None, None, None]),
        (httpx2.ReadError("reset"), [1.0, 2.0, 4.0]),
        (httpx2.ReadTimeout("slow"), [1.0, 2.0, 4.0]),
        (httpx2.UnsupportedProtocol("ftp"), [None, None, None]),
    ],
)
def test_waits(error: Exception, expected: list[float | None]) -> None:
    assert [wait_before_retry(error, attempt) for attempt in (1, 2, 3)] == expected


def test_trying_ends() -> None:
    calls: list[int] = []
    waits: list[float] = []

    def fail() -> None:
        calls.append(1)
        raise httpx2.ReadError("reset")

    with pytest.raises(httpx2.ReadError):
        retried(fail, sleep=waits.append)
    assert len(calls) == retry.MAX_ATTEMPTS == len(waits) + 1


def test_local_sources_do_without_the_hub_library_and_without_mlx() -> None:
    code = (
        "import sys; from mtplx.forge.source import open_source; open_source('.');"
        "print(sorted({'mlx', 'huggingface_hub', 'httpx2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
