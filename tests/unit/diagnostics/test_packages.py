"""Back ends that conflict, versions out of range, and other copies of mtplx."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from mtplx.runtime.diagnostics import packages
from mtplx.runtime.diagnostics.packages import Executable

REQUIREMENTS = [
    Requirement("mlx-lm>=0.32.2,<0.33"),
    Requirement("numpy>=2"),
    Requirement('mlx>=0.32,<0.33; sys_platform == "plan9"'),
    Requirement('mlx[cpu]>=0.32,<0.33; extra == "cpu"'),
    Requirement('pytest>=99; extra == "dev"'),
]
GOOD = {"mlx": "0.32.4", "mlx-cpu": "0.32.4", "mlx-lm": "0.32.2", "numpy": "2.4.0", "pytest": "8"}


def test_one_back_end_passes() -> None:
    assert packages.check_conflict(GOOD).status == "pass"


@pytest.mark.parametrize(
    ("others", "kept"),
    [(("mlx-cuda-13",), "mtplx[cuda13]"), (("mlx-cuda-12", "mlx-cuda-13"), "mtplx[cuda12]")],
)
def test_two_back_ends_fail_and_are_all_removed(others: tuple[str, ...], kept: str) -> None:
    check = packages.check_conflict({**GOOD, **dict.fromkeys(others, "0.32.4")})
    assert (check.status, check.exit_code) == ("fail", 7)
    removal, _, install = check.command.partition(" && ")
    assert {"mlx", "mlx-cpu", *others} <= set(removal.split())
    assert install == f"pip install '{kept}'"


def test_an_mlx_from_source_has_no_package_of_a_back_end() -> None:
    assert packages.check_conflict({"mlx": "0.32.4"}).status == "skip"


def test_a_back_end_of_another_version_than_mlx_fails() -> None:
    check = packages.check_conflict({**GOOD, "mlx-cpu": "0.32.1"})
    assert (check.status, check.exit_code) == ("fail", 7)
    assert check.command == "pip install --force-reinstall --no-deps mlx-cpu==0.32.4"


def test_a_package_named_like_one_is_none() -> None:
    assert packages.check_conflict({**GOOD, "mlx-cpu-tools": "1"}).status == "pass"


def test_versions_in_range_pass_and_unused_extras_are_not_asked() -> None:
    check = packages.check_versions(REQUIREMENTS, GOOD)
    assert (check.status, check.observed) == ("pass", "mlx 0.32.4, mlx-lm 0.32.2")


@pytest.mark.parametrize(
    ("change", "command"),
    [
        ({"mlx-lm": "0.40.0"}, "pip install 'mlx-lm<0.33,>=0.32.2'"),
        ({"mlx": "0.31.0"}, "pip install 'mlx<0.33,>=0.32'"),
        ({"numpy": "two"}, "pip install 'numpy>=2'"),
    ],
)
def test_a_version_out_of_range_fails(change: dict[str, str], command: str) -> None:
    check = packages.check_versions(REQUIREMENTS, {**GOOD, **change})
    assert (check.status, check.exit_code, check.command) == ("fail", 7, command)


def test_a_missing_dependency_is_named() -> None:
    installed = {name: version for name, version in GOOD.items() if name != "numpy"}
    check = packages.check_versions(REQUIREMENTS, installed)
    assert (check.status, check.observed) == ("fail", "numpy is missing")


def test_a_checkout_that_is_not_installed_is_skipped() -> None:
    assert packages.check_versions(None, GOOD).status == "skip"


def test_this_environment_is_in_range() -> None:
    installed = packages.read_installed()
    assert packages.check_versions(packages.read_requirements(), installed).status == "pass"


def test_remains_of_broken_installations_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (
        ("numpy-0", None),
        ("pydantic-0", "Metadata-Version: 2.1\nName: pydantic\n"),
    ):
        folder = tmp_path / f"{name}.dist-info"
        folder.mkdir()
        if text is not None:
            (folder / "METADATA").write_text(text)
    before = packages.read_installed()
    monkeypatch.syspath_prepend(tmp_path)
    assert packages.read_installed() == before


def script(folder: Path, text: str) -> Path:
    folder.mkdir()
    path = folder / "mtplx"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_every_mtplx_on_the_path_is_asked_for_its_version(tmp_path: Path) -> None:
    first = script(tmp_path / "a", "echo mtplx 0.1.0")
    broken = script(tmp_path / "b", "exit 3")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "mtplx").symlink_to(first)
    search = os.pathsep.join(str(tmp_path / name) for name in "abcd")
    found = packages.read_executables(search)
    assert found == [Executable(first, "0.1.0"), Executable(broken, None)]


@pytest.mark.parametrize(
    ("found", "status"),
    [
        ([], "pass"),
        ([Executable(Path("/a/mtplx"), "1.0")], "pass"),
        ([Executable(Path("/a/mtplx"), "1.0"), Executable(Path("/b/mtplx"), "0.9")], "warn"),
        ([Executable(Path("/a/mtplx"), None)], "warn"),
    ],
)
def test_another_mtplx_warns(found: list[Executable], status: str) -> None:
    assert packages.check_executables(found, "1.0").status == status
