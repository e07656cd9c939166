"""Installed packages: one MLX back end, versions in range, and which mtplx the shell would run."""

import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from mtplx.runtime.diagnostics.catalogue import failed, passed, skipped, warned
from mtplx.runtime.diagnostics.report import Check

_BACK_END = re.compile(r"mlx-(cpu|metal|cuda(-\d+)?)")
# Extras ask for mlx once more, with its back end.
_IN_EXTRAS = "mlx"
_VERSION_LIMIT_S = 10.0


class Executable(NamedTuple):
    """An `mtplx` on PATH; `version` is None when it does not tell one."""

    path: Path
    version: str | None


def read_installed() -> dict[str, str]:
    """Versions of all installed distributions by canonical name."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        fields = distribution.metadata
        # Remains of a broken installation have neither.
        if "Name" in fields and "Version" in fields:
            # The first on the path is the one that is imported.
            found.setdefault(canonicalize_name(fields["Name"]), fields["Version"])
    return found


def read_requirements() -> list[Requirement] | None:
    """What the installed mtplx asks for; None when it runs without being installed."""
    try:
        lines = importlib.metadata.requires("mtplx") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return [Requirement(line) for line in lines]


def check_conflict(installed: Mapping[str, str]) -> Check:
    """Back ends overwrite each other's files, and one of another version does not load.

    An mlx that was built from source has its back end inside.
    """
    back_ends = sorted(name for name in installed if _BACK_END.fullmatch(name))
    observed = ", ".join(f"{name} {installed[name]}" for name in back_ends) or "none"
    if not back_ends:
        return skipped("mlx.conflict", "no package of a back end")
    if len(back_ends) == 1:
        (name,), mlx = back_ends, installed.get("mlx")
        if mlx in (None, installed[name]):
            return passed("mlx.conflict", observed)
        fix = "Install mlx and its back end of one version."
        command = f"pip install --force-reinstall --no-deps {name}=={mlx}"
        return failed("mlx.conflict", f"mlx {mlx}, {observed}", fix, command)
    kept = next((name for name in back_ends if name != "mlx-cpu"), back_ends[0])
    removed = " ".join(["mlx", *back_ends])
    fix = f"Remove all of them and install one, for example {kept}."
    command = f"pip uninstall -y {removed} && {_install(_extra(kept))}"
    return failed("mlx.conflict", observed, fix, command)


def check_versions(
    requirements: Sequence[Requirement] | None, installed: Mapping[str, str]
) -> Check:
    """Whether every dependency is there and in range."""
    if requirements is None:
        return skipped("packages.versions", "mtplx is not installed as a package")
    faults: dict[str, str] = {}
    for wanted in requirements:
        name = canonicalize_name(wanted.name)
        applies = wanted.marker is None or wanted.marker.evaluate({"extra": ""})
        if not applies and name != _IN_EXTRAS:
            continue
        version = installed.get(name)
        if version is None:
            faults[f"{name}{wanted.specifier}"] = f"{name} is missing"
        elif not _is_in(wanted.specifier, version):
            faults[f"{name}{wanted.specifier}"] = f"{name} {version} is not {wanted.specifier}"
    if not faults:
        main = ", ".join(f"{name} {installed[name]}" for name in ("mlx", "mlx-lm"))
        return passed("packages.versions", main)
    command = "pip install " + " ".join(shlex.quote(name) for name in faults)
    fix = "Install versions that mtplx was made for."
    return failed("packages.versions", "; ".join(faults.values()), fix, command)


def _is_in(specifier: SpecifierSet, version: str) -> bool:
    try:
        return specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def read_executables(search_path: str | None = None) -> list[Executable]:
    """Every `mtplx` on PATH, in the order in which the shell looks, links to one file once."""
    places = (search_path or os.environ.get("PATH", "")).split(os.pathsep)
    found: dict[Path, Path] = {}
    for place in places:
        path = shutil.which("mtplx", path=place) if place else None
        if path is not None:
            found.setdefault(Path(path).resolve(), Path(path))
    return [Executable(path, _version_of(path)) for path in found.values()]


def check_executables(found: Sequence[Executable], own_version: str) -> Check:
    """Whether the shell starts the mtplx that is running, and no other lies behind it."""
    if not found:
        return passed("runtime.identity", f"none on PATH; running: {own_version}")
    observed = ", ".join(f"{path} ({version or 'does not start'})" for path, version in found)
    if all(version == own_version for _, version in found):
        return passed("runtime.identity", observed)
    stranger = next(path for path, version in found if version != own_version)
    observed += f"; running: {own_version}"
    fix = f"Remove or update {stranger}, or put the right one first on PATH."
    return warned("runtime.identity", observed, fix, f"{shlex.quote(str(stranger))} --version")


def _version_of(path: Path | str) -> str | None:
    try:
        done = subprocess.run(
            [str(path), "--version"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=_VERSION_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.fullmatch(r"mtplx (\S+)", done.stdout.strip())
    return match[1] if match and done.returncode == 0 else None


def _extra(back_end: str) -> str:
    if back_end == "mlx-metal":
        return ""
    return back_end.removeprefix("mlx-").replace("-", "")


def _install(extra: str) -> str:
    return "pip install " + shlex.quote(f"mtplx[{extra}]" if extra else "mtplx")
