"""Model folders that are missing, damaged, unproven, without a head, or too large."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mtplx.contracts.errors import ModelNotFoundError
from mtplx.contracts.inspection import Inspection, Tier, inspect_folder
from mtplx.demo import demo_model_path
from mtplx.runtime.diagnostics import model
from mtplx.runtime.diagnostics.model import Memory
from mtplx.runtime.diagnostics.report import Check
from tests.support.contracts import write_verified

GIB = 2**30
MEMORY = Memory(8 * GIB, 16 * GIB)


def by_id(path: Path, *, deep: bool = False) -> dict[str, Check]:
    found = model.check_inspection(inspect_folder(path, verify_hashes=deep), MEMORY)
    return {check.id: check for check in found}


def test_the_demo_model_passes() -> None:
    assert {check.status for check in by_id(demo_model_path()).values()} == {"pass"}


def test_a_missing_folder_fails_with_the_code_of_a_missing_model(tmp_path: Path) -> None:
    checks = by_id(tmp_path / "none")
    assert checks["model.integrity"].status == "fail"
    assert checks["model.integrity"].exit_code == 3
    assert checks["model.tier"].status == "skip"


def test_a_missing_shard_is_corruption(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(demo_model_path(), tmp_path / "model"))
    (folder / "model-00002-of-00002.safetensors").unlink()
    check = by_id(folder)["model.integrity"]
    assert (check.status, check.exit_code) == ("fail", 4)


def test_no_choice_of_a_model_is_a_failed_check() -> None:
    first, *others = model.unusable(ModelNotFoundError("no demo model", hint="Reinstall."))
    assert (first.status, first.exit_code, first.fix) == ("fail", 3, "Reinstall.")
    assert {check.status for check in others} == {"skip"}


@pytest.mark.parametrize(
    ("tier", "status"),
    [
        (Tier.VERIFIED, "pass"),
        (Tier.FAMILY_COMPATIBLE_UNVERIFIED, "pass"),
        (Tier.ARCHITECTURE_COMPATIBLE_UNVERIFIED, "warn"),
        (Tier.AR_ONLY, "warn"),
        (Tier.NO_MTP_HEADS, "warn"),
    ],
)
def test_a_model_without_a_head_to_use_warns(tier: Tier, status: str) -> None:
    check = model.check_tier(Inspection(Path("/m"), tier, reasons=("why",)))
    assert (check.status, check.observed) == (status, f"{tier}: why")


@pytest.mark.parametrize(("size", "status"), [(GIB, "pass"), (9 * GIB, "warn"), (16 * GIB, "fail")])
def test_weights_that_do_not_fit(size: int, status: str) -> None:
    check = model.check_fit(size, MEMORY)
    assert (check.status, check.exit_code) == (status, 8)


def test_a_contract_without_evidence_warns_with_what_proves_it(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(demo_model_path(), tmp_path / "my model"))
    write_verified(folder)
    assert by_id(folder)["model.contract"].status == "pass"
    write_verified(folder, exactness=None)
    check = by_id(folder)["model.contract"]
    assert (check.status, check.command) == ("warn", f"mtplx forge verify '{folder}'")


def test_deep_compares_every_byte(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(demo_model_path(), tmp_path / "model"))
    write_verified(folder)
    weights = folder / "model-00001-of-00002.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert by_id(folder)["model.integrity"].status == "pass"
    check = by_id(folder, deep=True)["model.integrity"]
    assert (check.status, check.exit_code) == ("fail", 4)
