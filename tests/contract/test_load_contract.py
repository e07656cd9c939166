"""`load` on an artifact: the contract is judged before any weight is read, and sets nothing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from mtplx.contracts.errors import CorruptModelError, MTPLXError, UnsupportedModelError, UsageError
from mtplx.contracts.family import Wiring
from mtplx.contracts.identity import CONTRACT_NAME
from mtplx.contracts.inspection import Tier
from mtplx.runtime.loading import folder as loading
from mtplx.runtime.loading.folder import load
from tests.support.contracts import verified_contract, write_verified

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import TinyFactory

SHARD = "model-00001-of-00002.safetensors"


@pytest.fixture
def artifact(tiny: TinyFactory) -> Path:
    return write_verified(tiny("mimo"))


@pytest.fixture
def no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a weight fails the test."""

    def read_arrays(*_: Any) -> None:
        raise AssertionError("weights were read")

    monkeypatch.setattr(loading, "read_arrays", read_arrays)


def flip_last_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("verify_hashes", [False, True])
def test_verified_artifact_loads_with_its_recorded_wiring(
    tiny: TinyFactory, verify_hashes: bool
) -> None:
    folder = tiny("mimo")
    head = {**verified_contract(folder)["head"], "feed": "pre", "mask_position0": False}
    model = load(write_verified(folder, head=head), verify_hashes=verify_hashes)
    assert model.inspection.tier is Tier.VERIFIED
    assert model.head is not None
    assert model.head.wiring == Wiring("pre", "post", "hidden_embedding", mask_position0=False)


@pytest.mark.usefixtures("no_weights")
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"schema_version": 2}, UnsupportedModelError),
        ({"min_engine_version": "99.0"}, UnsupportedModelError),
        ({"arch_id": "glm4-moe-mtp"}, UnsupportedModelError),
        ({"mtp_depth_max": 0}, CorruptModelError),
        ({"mtp_depth_max": "many"}, CorruptModelError),
    ],
)
def test_contract_is_refused_before_weights_are_read(
    artifact: Path, changes: dict[str, Any], error: type[MTPLXError]
) -> None:
    write_verified(artifact, **changes)
    with pytest.raises(error, match=CONTRACT_NAME):
        load(artifact)


@pytest.mark.usefixtures("no_weights")
def test_changed_weights_are_refused_before_they_are_read(artifact: Path) -> None:
    flip_last_byte(artifact / SHARD)
    steps: list[str] = []
    with pytest.raises(CorruptModelError, match=SHARD):
        load(artifact, verify_hashes=True, on_progress=lambda label, _: steps.append(label))
    assert set(steps) == {"checking files"}


@pytest.mark.usefixtures("no_weights")
def test_hashes_that_nobody_recorded_cannot_be_verified(tiny: TinyFactory) -> None:
    with pytest.raises(UsageError, match="records no hashes"):
        load(tiny("mimo"), verify_hashes=True)


def test_edited_template_runs_unverified_and_says_so(artifact: Path) -> None:
    (artifact / "chat_template.jinja").write_text("{{ messages[0].content }}")
    model = load(artifact)
    assert model.has_head
    assert model.inspection.tier is Tier.FAMILY_COMPATIBLE_UNVERIFIED
    assert any("chat_template.jinja" in warning for warning in model.warnings)


def test_contract_sets_no_switch(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"runtime_env_overrides": {"MTPLX_ANY": "1"}, "env": {"MTPLX_ANY": "1"}}
    monkeypatch.delenv("MTPLX_ANY", raising=False)
    before = dict(os.environ)
    model = load(write_verified(artifact, **keys, kv_bits=4, depth=1))
    assert dict(os.environ) == before
    assert model.kv_bits is None
    ignored = [w for w in model.warnings if "contract keys" in w]
    assert any("runtime_env_overrides" in w and "ignored" in w for w in ignored)
    assert any("kv_bits" in w and "not read" in w for w in ignored)


def test_labels_are_told(artifact: Path) -> None:
    model = load(write_verified(artifact, labels=["degraded-mtp"]))
    assert any("degraded-mtp" in warning for warning in model.warnings)
