"""MLX seen from outside: missing, crashing, hanging, wrong, slow."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from mtplx.runtime.diagnostics import backend, backend_probe
from mtplx.runtime.diagnostics.backend import BackendFacts
from mtplx.runtime.diagnostics.report import Check

CPU: dict[str, Any] = {
    "kind": "cpu",
    "device": "cpu",
    "mlx_version": "0.32.4",
    "blas": {"name": "mkl", "path": "libmkl_rt.so"},
    "notes": [],
}
RIGHT = [{"name": "float32", "error": 1e-8, "bound": 1e-6}]
GOOD = BackendFacts(backend=CPU, products=RIGHT, kernels=RIGHT)


def by_id(facts: BackendFacts) -> dict[str, Check]:
    return {check.id: check for check in backend.check_backend(facts)}


def told_by(code: str, limit_s: float = 20.0) -> BackendFacts:
    return backend.probe_backend([sys.executable, "-c", code], limit_s=limit_s)


def test_a_good_back_end_passes() -> None:
    assert {check.status for check in by_id(GOOD).values()} == {"pass"}


def test_mlx_of_this_machine_passes_and_is_not_imported_here() -> None:
    code = (
        "import sys; from mtplx.runtime.diagnostics.backend import *\n"
        "facts = probe_backend(); print([c.id for c in check_backend(facts) if c.status == 'fail'])\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'mlx'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n[]\n"


def test_a_missing_mlx_fails_with_what_installs_it() -> None:
    code = (
        "import sys; sys.modules['mlx.core'] = None\n"
        f"import runpy; runpy.run_module('{backend.PROBE}', run_name='__main__')"
    )
    checks = by_id(told_by(code))
    assert checks["mlx.import"].status == "fail"
    assert checks["mlx.import"].exit_code == 7
    assert "pip install" in checks["mlx.import"].fix
    assert checks["mlx.compute"].status == checks["cpu.blas"].status == "skip"


def test_a_crash_on_import_is_a_failed_check() -> None:
    facts = told_by("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert facts.ending == "was killed by SIGSEGV"
    check = by_id(facts)["mlx.import"]
    assert (check.status, check.exit_code) == ("fail", 7)
    assert "SIGSEGV" in check.observed


def test_what_was_found_before_a_crash_is_kept() -> None:
    code = (
        "import json, os\n"
        f"print(json.dumps({{'backend': {CPU!r}}}), flush=True)\n"
        "print('a library says hello'); print('[1]'); print('{\"prod', flush=True)\n"
        "os.abort()"
    )
    checks = by_id(told_by(code))
    assert checks["mlx.import"].status == "pass"
    assert checks["mlx.compute"].status == "fail"
    assert "SIGABRT" in checks["mlx.compute"].observed
    assert checks["kernels.self_check"].status == "fail"


def test_a_hang_ends_at_the_limit() -> None:
    facts = told_by("import time; time.sleep(60)", limit_s=0.5)
    assert facts.backend is None
    assert "stopped after" in by_id(facts)["mlx.import"].observed


def test_files_of_the_current_folder_are_not_taken_for_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit('not NumPy')")
    monkeypatch.chdir(tmp_path)
    assert by_id(backend.probe_backend())["mlx.import"].status == "pass"


@pytest.mark.parametrize(
    ("answer", "is_there"),
    [("echo GPU 0: NVIDIA", True), ("echo no devices", False), ("echo GPU 0; exit 9", False)],
)
def test_a_driver_without_a_gpu_is_no_gpu(
    answer: str, is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{answer}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert told_by("").has_nvidia is is_there


def test_blas_that_was_turned_off_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTPLX_BLAS", "None")
    assert told_by("").is_blas_off


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"free_memory": 3, "total_memory": 4, "architecture": "sm_90"}, {"free": 3, "total": 4}),
        ({"memory_size": 4, "architecture": "applegpu_g15"}, None),
    ],
)
def test_only_a_gpu_with_memory_of_its_own_has_one(
    info: dict[str, Any], expected: dict[str, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mx, "device_info", lambda: info)
    assert backend_probe.gpu_memory() == expected


def test_the_last_line_of_an_exception_is_shown() -> None:
    facts = told_by("raise SystemExit('libcuda.so.1 is not there')")
    assert "libcuda.so.1 is not there" in by_id(facts)["mlx.import"].observed


@pytest.mark.parametrize("error", [0.3, None])
@pytest.mark.parametrize(
    ("part", "check_id"), [("products", "mlx.compute"), ("kernels", "kernels.self_check")]
)
def test_wrong_results_fail(part: str, check_id: str, error: float | None) -> None:
    wrong = [*RIGHT, {"name": "odd", "error": error, "bound": 1e-6}]
    check = by_id(replace(GOOD, **{part: wrong}))[check_id]  # type: ignore[arg-type]  # named by the case
    assert (check.status, check.exit_code) == ("fail", 7)
    assert "odd" in check.observed
    assert "float32" not in check.observed


def test_rounding_that_was_asked_for_is_named_as_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = [{"name": "few_rows of 1", "error": 3.6e-4, "bound": 1e-5}]
    facts = replace(GOOD, kernels=wrong, is_tf32_on=True)
    assert by_id(facts)["kernels.self_check"].command == "unset MLX_ENABLE_TF32"
    assert by_id(replace(GOOD, is_tf32_on=True))["kernels.self_check"].status == "pass"
    monkeypatch.setenv("MLX_ENABLE_TF32", "1")
    assert told_by("").is_tf32_on
    monkeypatch.setenv("MLX_ENABLE_TF32", "0")
    assert not told_by("").is_tf32_on


def test_the_reference_blas_warns() -> None:
    slow = replace(GOOD, backend={**CPU, "blas": None})
    assert by_id(slow)["cpu.blas"].status == "warn"
    assert by_id(slow)["cpu.blas"].command == "pip install 'mtplx[cpu]'"
    assert by_id(replace(slow, is_blas_off=True))["cpu.blas"].command == "unset MTPLX_BLAS"


def test_a_missing_compiler_warns() -> None:
    assert by_id(replace(GOOD, has_compiler=False))["cpu.compiler"].status == "warn"


def test_an_idle_gpu_warns() -> None:
    assert by_id(replace(GOOD, has_nvidia=True))["mlx.import"].status == "warn"
    unseen = replace(GOOD, backend={**CPU, "kind": "cuda"})
    assert by_id(unseen)["mlx.import"].command == "nvidia-smi"


def test_a_gpu_has_no_blas_to_look_at() -> None:
    checks = by_id(replace(GOOD, backend={**CPU, "kind": "cuda", "device": "gpu"}))
    assert checks["cpu.blas"].status == checks["cpu.compiler"].status == "skip"
    assert checks["mlx.import"].status == "pass"


def test_a_product_that_is_wrong_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = mx.quantized_matmul

    def wrong(*args: Any, **options: Any) -> mx.array:
        return right(*args, **options) * 1.01

    assert backend_probe.quantized_product()["error"] == pytest.approx(0, abs=1e-5)
    monkeypatch.setattr(mx, "quantized_matmul", wrong)
    found = backend_probe.quantized_product()
    assert found["error"] is not None
    assert found["error"] > found["bound"]


def test_a_kernel_that_is_wrong_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from mtplx.kernels import few_rows

    monkeypatch.setattr(few_rows, "few_rows", lambda x, weight: (x @ weight.T) * float("nan"))
    assert {row["error"] for row in backend_probe.few_rows_deviations()} == {None}
