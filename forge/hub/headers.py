"""The first bytes of safetensors files on the hub, by range requests."""

import httpx2
from huggingface_hub import constants, get_session, hf_hub_url
from huggingface_hub.utils import (  # type: ignore[attr-defined]  # exported lazily
    build_hf_headers,
    hf_raise_for_status,
)

from mtplx.contracts.tensor_header import MAX_HEADER_BYTES
from mtplx.forge.hub.retry import retried

FIRST_READ_BYTES = 128 * 1024
"""Holds the length field and the header of nearly every file."""


def read_head(repo: str, commit: str, name: str, size: int) -> bytes:
    """Length field and header of the file `name`, which is `size` bytes long.

    Files that are no safetensors give their first bytes, for `read_header` to reject like on disk.
    Raises HfHubHTTPError or httpx2.TransportError.
    """
    url = hf_hub_url(repo, name, revision=commit)
    first = _read(url, 0, min(size, FIRST_READ_BYTES))
    end = 8 + int.from_bytes(first[:8], "little")
    if end > min(size, 8 + MAX_HEADER_BYTES):
        return first[:8]
    if end <= len(first):
        return first[:end]
    return first + _read(url, len(first), end)


def _read(url: str, start: int, end: int) -> bytes:
    """Bytes `start` to `end` (exclusive) of `url`."""
    if start == end:
        return b""
    return retried(lambda: _read_once(url, start, end))


def _read_once(url: str, start: int, end: int) -> bytes:
    # Compressed answers have other offsets. Redirects to storage drop the authorization by
    # themselves, as they lead to another host.
    headers = {
        **build_hf_headers(),
        "Range": f"bytes={start}-{end - 1}",
        "Accept-Encoding": "identity",
    }
    timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
    with get_session().stream("GET", url, headers=headers, timeout=timeout) as response:
        hf_raise_for_status(response)
        # A server that knows no ranges sends the file from its beginning; leaving the block
        # closes the connection on the rest.
        skip = 0 if response.status_code == 206 else start
        wanted = skip + end - start
        data = bytearray()
        for chunk in response.iter_bytes():
            data += chunk
            if len(data) >= wanted:
                break
    if len(data) < wanted:
        raise httpx2.RemoteProtocolError(f"the answer ended after {len(data)} of {wanted} bytes")
    return bytes(data[skip:wanted])
