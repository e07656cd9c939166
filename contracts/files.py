"""Writing files so that a crash leaves the old content or the new, and hashing them."""

import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mtplx.contracts.errors import MTPLXError, ResourceError, UsageError

_CHUNK = 4 * 1024 * 1024
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def write_bytes(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Put `data` at `path` atomically: temporary file in the same folder, fsync, rename.

    `mode` is the permission of the new file (0o600 for anything that holds prompts). A symlink
    at `path` is replaced, not followed. Raises ResourceError when the disk is full, UsageError
    when the folder cannot be written.
    """
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
        temporary = None
        sync_folder(path.parent)
    except OSError as cause:
        raise write_error(path, cause) from cause
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def write_text(path: Path, text: str, *, mode: int = 0o644) -> None:
    """`write_bytes` of UTF-8 text."""
    write_bytes(path, text.encode("utf-8"), mode=mode)


def write_json(path: Path, value: Any, *, mode: int = 0o644) -> None:
    """`write_bytes` of `value` as indented JSON in the order given; NaN is refused."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n", mode=mode)


def sha256_file(path: Path, *, on_bytes: Callable[[int], None] | None = None) -> str:
    """Hexadecimal sha256 of the file's content, read in chunks.

    `on_bytes` is called with the size of each chunk, for progress. Raises OSError.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            if on_bytes is not None:
                on_bytes(len(chunk))
    return digest.hexdigest()


def sync_folder(folder: Path) -> None:
    """Make a rename durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_error(path: Path, cause: OSError) -> MTPLXError:
    """What to tell when `path` cannot be written: the disk is full, or the place is not ours."""
    reason = cause.strerror or str(cause)
    if cause.errno in _NO_SPACE:
        return ResourceError(f"{path} cannot be written: {reason}.", hint="Free some disk space.")
    return UsageError(
        f"{path} cannot be written: {reason}.", hint="Choose a folder that you may write to."
    )
