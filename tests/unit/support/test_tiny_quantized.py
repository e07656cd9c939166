from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_lm.utils import load_model

from tests.support.tensorfile import decode, read_tensors
from tests.support.tiny_families import FAMILY_NAMES, FamilyName

if TYPE_CHECKING:
    from tests.conftest import TinyFactory

SIDE = "mtp.safetensors"
PACK = {"layout": "mlx", "hidden": 64, "sidecar": SIDE}


def logits(model: nn.Module) -> Any:
    model.set_dtype(mx.float32)
    return np.array(model(mx.array([[3, 1, 4, 1, 5]]))[0])


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_quantised_pack_loads_in_stock_mlx_lm(tiny: TinyFactory, family: FamilyName) -> None:
    model, _ = load_model(tiny(family, **PACK, quantize={"bits": 8, "group_size": 32}))
    exact, _ = load_model(tiny(family, **PACK))
    assert any(isinstance(module, nn.QuantizedLinear) for module in model.modules())
    difference = np.abs(logits(model) - logits(exact))
    assert 0 < np.median(difference) < 0.5


@pytest.mark.parametrize(
    ("naming", "at"),
    [("module", "language_model.model."), ("checkpoint", "model.language_model.")],
)
def test_mixed_bits_are_recorded_under_either_naming(
    tiny: TinyFactory, naming: str, at: str
) -> None:
    up, down = ("language_model.model.layers.0.mlp." + part for part in ("up_proj", "down_proj"))
    how = {
        "bits": 4,
        "group_size": 32,
        "overrides": {up: {"bits": 8, "group_size": 64}, down: False},
        "naming": naming,
    }
    folder = tiny("qwen3_5", **PACK, quantize=how)
    block = json.loads((folder / "config.json").read_text())["quantization"]
    assert block[f"{at}layers.0.mlp.up_proj"] == {"bits": 8, "group_size": 64}
    assert block[f"{at}layers.0.mlp.down_proj"] is False
    tensors = {
        n: t
        for path in folder.glob("model*")
        if path.suffix == ".safetensors"
        for n, t in read_tensors(path).items()
    }
    assert tensors[f"{at}layers.0.mlp.up_proj.weight"].shape == (128, 16)
    assert tensors[f"{at}layers.0.mlp.gate_proj.weight"].shape == (128, 8)
    assert tensors[f"{at}layers.0.mlp.down_proj.weight"].dtype == "BF16"


def test_a_pack_may_quantise_its_head(tiny: TinyFactory) -> None:
    how = {
        "bits": 4,
        "group_size": 32,
        "head": {"bits": 8, "group_size": 32},
        "overrides": {"mtp.layers.0.self_attn.q_proj": False},
    }
    plain = read_tensors(tiny("qwen3_5_moe", **PACK) / SIDE)
    folder = tiny("qwen3_5_moe", **PACK, quantize=how)
    stored = read_tensors(folder / SIDE)
    block = json.loads((folder / "config.json").read_text())["quantization"]
    at = "mtp.layers.0.mlp.switch_mlp.up_proj"
    assert block[at] == {"group_size": 32, "bits": 8}
    weight, scales, biases = (
        mx.array(np.array(decode(stored[f"{at}.{part}"])))
        for part in ("weight", "scales", "biases")
    )
    back = mx.dequantize(weight, scales, biases, group_size=32, bits=8)
    assert np.abs(np.array(back) - decode(plain[f"{at}.weight"])).max() < 0.02
    for untouched in ("fc", "norm", "layers.0.mlp.gate", "layers.0.self_attn.q_proj"):
        assert stored[f"mtp.{untouched}.weight"] == plain[f"mtp.{untouched}.weight"]
    left_alone = read_tensors(
        tiny("qwen3_5_moe", **PACK, quantize={"bits": 4, "group_size": 32}) / SIDE
    )
    assert left_alone == plain
