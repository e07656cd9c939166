"""A model larger than memory can be forged: the peak is a shard and a layer, not the model."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.support.checkpoints import REPOSITORY
from tests.support.forged import recipe
from tests.support.large import Packing, layer_bytes, model_bytes, write_large

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.tiny_families import FamilyName

MIB = 2**20
SHARD = 16 * MIB
LAYERS = 24
# What interpreter, graph and allocator take beside arrays; the control run holds it to that.
REST = 16 * MIB
# Without hidden sizes worth mentioning, a conversion of as many tensors takes only that.
CONTROL_HIDDEN = 128


class Case(NamedTuple):
    """A kind of source."""

    family: FamilyName
    hidden: int
    packing: Packing = "none"


CASES = {
    "dense": Case("mimo", 768),
    "experts": Case("deepseek_v3", 512),
    "fused experts": Case("qwen3_5_moe", 512),
    "fp8 experts": Case("deepseek_v3", 512, "fp8"),
    "awq": Case("mimo", 768, "awq"),
    "gptq": Case("mimo", 768, "gptq"),
}

QUICK = ("fp8 experts", 4)


def large(folder: Path, case: Case) -> Path:
    write_large(
        folder,
        case.family,
        hidden=case.hidden,
        layers=LAYERS,
        shard=SHARD,
        packing=case.packing,
    )
    return folder


def allowed(source: Path) -> int:
    """1.3 times the largest shard and a layer, in bytes, for a model that is several times larger."""
    largest = max(path.stat().st_size for path in source.glob("*.safetensors"))
    bound = int(1.3 * largest) + layer_bytes(source)
    assert model_bytes(source) > 4 * (bound + REST)
    return bound


def measured(source: Path, out: Path, bits: int | None, *flags: str) -> dict[str, int]:
    """Peaks of a conversion in a process of its own."""
    how = recipe(bits, shard_size_gib=SHARD / 2**30).model_dump_json()
    command = [sys.executable, "-m", "tests.support.memory_probe", str(source), str(out), how]
    done = subprocess.run(
        [*command, *flags], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("kind", "bits"),
    [
        pytest.param(kind, bits, marks=() if (kind, bits) == QUICK else pytest.mark.slow)
        for kind in CASES
        for bits in (None, 4)
    ],
)
def test_the_peak_is_at_most_a_shard_and_a_layer(
    kind: str, bits: int | None, tmp_path: Path
) -> None:
    source = large(tmp_path / "source", CASES[kind])
    bound = allowed(source)
    found = measured(source, tmp_path / "out", bits)
    assert found["arrays"] < bound
    assert found["resident"] < bound + REST


@pytest.mark.slow
@pytest.mark.parametrize("kind", CASES)
def test_what_is_taken_beside_arrays_is_little(kind: str, tmp_path: Path) -> None:
    case = CASES[kind]._replace(hidden=CONTROL_HIDDEN)
    found = measured(large(tmp_path / "source", case), tmp_path / "out", 4)
    assert found["resident"] - found["arrays"] < REST


@pytest.mark.slow
def test_a_conversion_that_keeps_everything_would_be_noticed(tmp_path: Path) -> None:
    source = large(tmp_path / "source", CASES["dense"])
    bound = allowed(source)
    found = measured(source, tmp_path / "out", None, "hoard")
    assert found["arrays"] > 2 * bound
    assert found["resident"] > 2 * bound
