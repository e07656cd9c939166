"""What doctor says of a tuning result: current, stale, unreadable, or none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mtplx.contracts.inspection import Inspection, inspect_folder
from mtplx.demo import demo_model_path
from mtplx.runtime.diagnostics.backend import BackendFacts, probe_backend
from mtplx.runtime.diagnostics.report import Check
from mtplx.runtime.diagnostics.tuning import check_tuning, read_known
from mtplx.runtime.tuning.conditions import Conditions
from mtplx.runtime.tuning.store import TuningStore, signature
from tests.conftest import TinyFactory
from tests.support.fake_tuning import a_record

MLX = BackendFacts(
    backend={
        "kind": "cpu",
        "device": "cpu",
        "mlx_version": "0.32.4",
        "blas": {"name": "mkl", "path": "libmkl_rt.so"},
        "notes": [],
    },
    chip="A chip",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the demo model, free to be changed."""
    return Path(shutil.copytree(demo_model_path(), tmp_path / "a model"))


@pytest.fixture
def inspection(folder: Path) -> Inspection:
    return inspect_folder(folder)


def save(inspection: Inspection, **changes: str | int | None) -> None:
    """A result of the model for this machine, but for `changes` of its conditions."""
    here: Conditions = {**read_known(inspection, MLX, None), "number types": "float32"}
    record = a_record(conditions={**here, **{k.replace("_", " "): v for k, v in changes.items()}})
    TuningStore.of_this_user().save(record, inspection, signature(inspection))


def check(inspection: Inspection, mlx: BackendFacts = MLX, kv_bits: int | None = None) -> Check:
    return check_tuning(inspection, mlx, kv_bits)


def test_a_current_result_passes_and_names_what_was_not_compared(inspection: Inspection) -> None:
    save(inspection)
    found = check(inspection)
    assert found.status == "pass"
    expected = "depth 1, measured on 2026-01-02; not compared: number types"
    assert found.observed == expected


def test_without_mlx_more_is_not_compared(inspection: Inspection) -> None:
    save(inspection)
    found = check(inspection, BackendFacts(error={"message": "no", "hint": ""}))
    assert found.status == "pass"
    unknown = found.observed.partition("not compared: ")[2].split(", ")
    assert sorted(unknown) == ["back end", "blas", "chip", "device", "number types"]


@pytest.mark.parametrize(
    ("name", "then"), [("chip", "Another chip"), ("mlx", "0.1"), ("cores", 999), ("blas", None)]
)
def test_a_result_of_other_conditions_warns_with_them_and_the_command(
    inspection: Inspection, name: str, then: str | int | None
) -> None:
    save(inspection, **{name: then})
    found = check(inspection)
    assert found.status == "warn"
    assert f"{name} {'none' if then is None else then} then, " in found.observed
    assert found.command == f"mtplx tune --model '{inspection.path}'"


def test_the_kv_cache_of_the_settings_counts(inspection: Inspection) -> None:
    save(inspection)
    found = check(inspection, kv_bits=8)
    assert (found.status, "kv_bits none then, 8 now" in found.observed) == ("warn", True)
    assert found.command.endswith("--kv-bits 8")


def test_files_that_were_written_to_warn(inspection: Inspection) -> None:
    save(inspection)
    os.utime(inspection.path / "config.json")
    found = check(inspect_folder(inspection.path))
    assert (found.status, "written to" in found.observed) == ("warn", True)


def test_a_model_that_was_never_tuned_is_skipped_with_the_command(inspection: Inspection) -> None:
    found = check(inspection)
    assert found.status == "skip"
    assert found.command == f"mtplx tune --model '{inspection.path}'"
    assert found.command in found.observed
    assert not TuningStore.of_this_user().path.parent.exists()


def test_a_damaged_store_warns_and_tuning_mends_it(inspection: Inspection) -> None:
    save(inspection)
    TuningStore.of_this_user().path.write_text("{")
    found = check(inspection)
    assert (found.status, "damaged" in found.observed) == ("warn", True)
    assert found.command.startswith("mtplx tune")


def test_a_store_that_cannot_be_read_warns_and_shows_it(inspection: Inspection) -> None:
    path = TuningStore.of_this_user().path
    path.mkdir(parents=True)
    found = check(inspection)
    assert (found.status, "cannot be read" in found.observed) == ("warn", True)
    assert found.command == f"ls -l {path}"


def test_models_that_cannot_be_tuned_are_skipped(shared_tiny: TinyFactory, tmp_path: Path) -> None:
    headless = check(inspect_folder(shared_tiny("qwen3_5", head=False)))
    assert (headless.status, headless.command) == ("skip", "")
    assert check(inspect_folder(tmp_path / "none")).status == "skip"


def test_a_missing_package_is_left_to_the_check_of_packages(
    inspection: Inspection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "mtplx.runtime.tuning.store")
    monkeypatch.setitem(sys.modules, "filelock", None)
    found = check(inspection)
    assert (found.status, found.observed) == ("skip", "filelock is missing")


def test_the_probe_tells_the_chip_that_a_result_records() -> None:
    from mtplx.runtime.tuning.conditions import chip_name

    found = probe_backend()
    assert found.chip == chip_name()


def test_nothing_of_it_imports_mlx(inspection: Inspection) -> None:
    save(inspection)
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from mtplx.contracts.inspection import inspect_folder\n"
        "from mtplx.runtime.diagnostics.backend import BackendFacts\n"
        "from mtplx.runtime.diagnostics.tuning import check_tuning\n"
        "print(check_tuning(inspect_folder(Path(sys.argv[1])), BackendFacts(), None).status)\n"
        "print({'mlx', 'mlx_lm', 'transformers'} & {name.split('.')[0] for name in sys.modules})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(inspection.path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["pass", "set()"]


def test_a_probe_that_died_early_is_no_reason_to_doubt(inspection: Inspection) -> None:
    save(inspection)
    assert check(inspection, replace(MLX, chip=None)).status == "pass"
