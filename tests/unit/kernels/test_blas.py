"""Finding and choosing a BLAS; what is bound in a process can't be changed, so loading runs in processes of its own."""

from __future__ import annotations

import ctypes.util
import json
import os
import site
import subprocess
import sys
from pathlib import Path

import pytest

from mtplx.kernels import blas

_REPORT = """
import json, sys
from mtplx.contracts.errors import MTPLXError
try:
    from mtplx.kernels.backend import describe
    print(json.dumps(describe()))
except MTPLXError as error:
    print(json.dumps(error.to_json()))
"""


def _describe(code: str = _REPORT, **environment: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def _fake_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    lib = tmp_path / "lib"
    lib.mkdir()
    for name in names:
        (lib / name).write_bytes(b"not a library")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(site, "getuserbase", lambda: str(tmp_path / "user"))
    monkeypatch.setattr(ctypes.util, "find_library", lambda _name: None)


def test_mkl_of_the_environment_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_prefix(tmp_path, monkeypatch, "libmkl_rt.so.3", "libother.so")
    assert [(b.name, Path(b.path).name) for b in blas.find_blas()] == [("mkl", "libmkl_rt.so.3")]


def test_a_link_to_the_same_library_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake_prefix(tmp_path, monkeypatch, "libmkl_rt.so.3")
    (tmp_path / "lib" / "libmkl_rt.so").symlink_to("libmkl_rt.so.3")
    assert len(blas.find_blas()) == 1


def test_the_systems_openblas_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_prefix(tmp_path, monkeypatch)
    monkeypatch.setattr(ctypes.util, "find_library", lambda _name: "libopenblas.so.0")
    assert blas.find_blas() == [blas.Blas("openblas", "libopenblas.so.0")]


def test_a_file_that_is_no_library_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake_prefix(tmp_path, monkeypatch, "libmkl_rt.so.3")
    monkeypatch.delenv(blas.ENVIRONMENT_KEY, raising=False)
    assert blas.load_blas() is None


def test_none_keeps_the_blas_of_the_wheel() -> None:
    found = _describe(MTPLX_BLAS="none")
    if found["kind"] != "cpu":
        pytest.skip("only the CPU back end binds a BLAS")
    assert found["blas"] is None
    assert "no MKL or OpenBLAS found: the slow reference BLAS is in use" in str(found["notes"])


def test_a_named_library_that_does_not_exist_is_an_error() -> None:
    found = _describe(MTPLX_BLAS="/nowhere/libopenblas.so.0")
    if found.get("kind") not in (None, "cpu"):
        pytest.skip("only the CPU back end binds a BLAS")
    assert found["code"] == "backend"
    assert "/nowhere/libopenblas.so.0" in str(found["message"])


def test_a_missing_compiler_is_told(tmp_path: Path) -> None:
    found = _describe(PATH=str(tmp_path))
    if found["kind"] != "cpu":
        pytest.skip("only the CPU back end compiles with g++")
    assert "no g++ found" in str(found["notes"])


def test_mlx_imported_first_is_told() -> None:
    found = _describe("import mlx.core\n" + _REPORT)
    if found["kind"] != "cpu":
        pytest.skip("only the CPU back end binds a BLAS")
    assert found["blas"] is None
    assert "before mtplx" in str(found["notes"])


def test_without_mlx_the_command_that_installs_it_is_named() -> None:
    found = _describe("import sys; sys.modules['mlx.core'] = None\n" + _REPORT)
    assert found["exit_code"] == 7
    assert "pip install" in str(found["hint"])
