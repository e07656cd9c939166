"""What a build was asked for; a resumed build must be asked the same."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from mtplx.contracts.errors import UsageError
from mtplx.contracts.files import sha256_file
from mtplx.contracts.identity import header_sha256, identity_files
from mtplx.contracts.tensors import TensorIndex
from mtplx.version import __version__

VerifyExtent = Literal["full", "exactness", "none"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """Everything that decides what a build writes.

    `source` is a repository, or None for a local folder, whose place plays no part;
    `source_digest` covers the headers of its weights and its small files.
    """

    source: str | None
    commit: str | None
    source_digest: str
    name: str
    recipe: Mapping[str, Any]
    calibrate: bool
    verify: VerifyExtent
    allow_degraded_mtp: bool
    calibration_text: str | None
    versions: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """Every field by its name."""
        return asdict(self)

    def digest(self) -> str:
        """sha256 of everything that decides the bytes."""
        canonical = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def check_same(self, recorded: Mapping[str, Any], run: Path) -> None:
        """Refuse to go on with a run that was started for something else.

        Raises UsageError naming the first difference.
        """
        for key, wanted in self.to_json().items():
            if recorded.get(key) != wanted:
                raise UsageError(
                    f"{run} was started with {key} {recorded.get(key)!r}, and now {key} is {wanted!r}.",
                    hint="Resume it with what it was started with, or give another --run-id.",
                )


def check_name(name: str, flag: str) -> str:
    """`name` when it is fit for a folder. Raises UsageError naming the flag."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{flag} is {name!a}; expected letters, digits, dots, dashes and underscores, 96 at most.",
            hint=f"For example: {flag} my-model-4bit",
        )
    return name


def source_digest(folder: Path, index: TensorIndex) -> str:
    """sha256 over weight headers, sizes and small files: cheap, and the same before a download."""
    digest = hashlib.sha256()
    for role, name in identity_files(folder, index.files):
        path = folder / name
        content = header_sha256(path) if role == "weights" else sha256_file(path)
        digest.update(f"{name}\0{path.stat().st_size}\0{content}\n".encode())
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """The packages that decide bytes: mtplx, mlx and mlx-lm."""
    found = {"mtplx": __version__}
    for name in ("mlx", "mlx-lm"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    return found
