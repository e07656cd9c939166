"""A model larger than memory can be forged: the peak is a shard and a layer, not the model."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support import fp8
from tests.support.checkpoints import REPOSITORY
from tests.support.forged import recipe
from tests.support.tensorfile import ITEM_SIZE, Tensor, write_tensors
from tests.support.tiny_families import (
    HEAD_PREFIX,
    FamilyName,
    declare_head,
    head_shapes,
    make_config,
    trunk_shapes,
)
from tests.support.tiny_weights import is_full_linear, stored_dtype

if TYPE_CHECKING:
    from pathlib import Path

    from mtplx.forge.recipe import Recipe

pytestmark = pytest.mark.slow

MIB = 2**20
SHARD = 32 * MIB
LAYERS = 16
# What the interpreter, pages and the graph of a model of this size take beside its tensors.
RESIDENT_REST = 48 * MIB


def write_large(folder: Path, family: FamilyName, hidden: int, *, packed: bool) -> None:
    """A folder of some hundred MiB in shards of `SHARD`, all values equal, written shard by shard."""
    folder.mkdir()
    config = make_config(family, LAYERS, 8192, hidden)
    declare_head(config, family, 1)
    if packed:
        config["quantization_config"] = fp8.QUANTIZATION_CONFIG
    (folder / "config.json").write_text(json.dumps(config))
    shapes = trunk_shapes(family, config)
    prefix = HEAD_PREFIX[family]
    shapes |= {f"{prefix}{name}": s for name, s in head_shapes(family, config, 1).items()}
    stored: list[tuple[str, str, tuple[int, ...]]] = []
    for name, shape in shapes.items():
        if packed and len(shape) == 2 and is_full_linear(name):
            blocks = tuple(-(-size // 128) for size in shape)
            stored += [(name, "F8_E4M3", shape), (f"{name}_scale_inv", "F32", blocks)]
        else:
            stored.append((name, stored_dtype(name, "BF16"), shape))
    shard: dict[str, Tensor] = {}
    shards: list[list[tuple[str, str, tuple[int, ...]]]] = [[]]
    filled = 0
    for entry in stored:
        size = math.prod(entry[2]) * ITEM_SIZE[entry[1]]
        if filled + size > SHARD:
            shards.append([])
            filled = 0
        shards[-1].append(entry)
        filled += size
    for number, entries in enumerate(shards, start=1):
        shard = {name: _ones(dtype, shape) for name, dtype, shape in entries}
        write_tensors(folder / f"model-{number:05}-of-{len(shards):05}.safetensors", shard)


def _ones(dtype: str, shape: tuple[int, ...]) -> Tensor:
    one = {"BF16": b"\x80\x3f", "F32": np.float32(1).tobytes(), "F8_E4M3": b"\x38"}[dtype]
    return Tensor(dtype, shape, one * math.prod(shape))


def layer_bytes(folder: Path) -> int:
    """Bytes of the last layer as bfloat16."""
    config = json.loads((folder / "config.json").read_text())
    shapes = trunk_shapes(config["model_type"], config)
    at = f".layers.{LAYERS - 1}."
    return 2 * sum(math.prod(shape) for name, shape in shapes.items() if at in name)


def measured(source: Path, out: Path, how: Recipe) -> dict[str, int]:
    """Peaks of a conversion in a process of its own."""
    command = [sys.executable, "-m", "tests.support.memory_probe", str(source), str(out)]
    done = subprocess.run(
        [*command, how.model_dump_json()],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("family", "hidden", "packed"),
    [("mimo", 1024, False), ("deepseek_v3", 640, False), ("deepseek_v3", 640, True)],
    ids=["dense", "experts", "fp8-experts"],
)
def test_the_peak_is_at_most_a_shard_and_a_layer(
    family: FamilyName, hidden: int, packed: bool, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    write_large(source, family, hidden, packed=packed)
    total = sum(path.stat().st_size for path in source.glob("*.safetensors"))
    largest = max(path.stat().st_size for path in source.glob("*.safetensors"))
    bound = int(1.3 * largest) + layer_bytes(source)
    assert total > 2 * bound
    shards: dict[str, Any] = {"shard_size_gib": SHARD / 2**30}
    for bits in (None, 8, 4):
        found = measured(source, tmp_path / f"out-{bits}", recipe(bits, **shards))
        assert found["trunk"] < bound
        assert found["head"] < bound
        assert found["resident"] < bound + RESIDENT_REST
