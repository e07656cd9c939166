"""Inspection of quantised models: what is run, what is refused, and how it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mtplx.contracts.errors import UnsupportedModelError
from mtplx.contracts.inspection import Inspection, Tier, inspect_folder
from tests.support.header_models import (
    blank,
    config_of,
    mimo_head_names,
    trunk_names,
    write_model,
)
from tests.support.tensorfile import Tensor

if TYPE_CHECKING:
    from pathlib import Path

FOUR = {"group_size": 64, "bits": 4}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128}


def compressed(form: str, **weights: Any) -> dict[str, Any]:
    settings = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, **weights}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": settings}},
    }


def inspected(folder: Path, **extra: Any) -> Inspection:
    names = trunk_names(2) + mimo_head_names()
    return inspect_folder(write_model(folder, config_of("mimo", **extra), names))


@pytest.mark.parametrize("key", ["quantization", "quantization_config"])
def test_mlx_block_under_both_names(tmp_path: Path, key: str) -> None:
    found = inspected(tmp_path, **{key: FOUR})
    assert found.can_run
    assert found.quantization == FOUR
    assert found.to_json()["quantization"] == {
        "scheme": "mlx",
        "bits": [4],
        "group_size": 64,
        "mode": "affine",
        "overrides": 0,
    }


def test_mixed_widths_are_all_told(tmp_path: Path) -> None:
    block = {
        **FOUR,
        "model.layers.0.mlp.down_proj": {"group_size": 64, "bits": 6},
        "language_model.lm_head": {"bits": 8},
        "model.layers.1.mlp.gate": False,
    }
    shown = inspected(tmp_path, quantization=block).to_json()["quantization"]
    assert shown["bits"] == [4, 6, 8]
    assert shown["overrides"] == 3


@pytest.mark.parametrize(
    "block",
    [
        {"group_size": 32, "bits": 4, "mode": "mxfp4"},
        {"group_size": 16, "bits": 4, "mode": "nvfp4"},
        {"group_size": 32, "bits": 8, "mode": "mxfp8"},
        *({"group_size": 128, "bits": bits} for bits in (2, 3, 5, 6, 8)),
        {"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e4m3"},
        {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"},
        {"quant_method": "awq", "bits": 4, "group_size": -1, "version": "GEMM"},
        *({"quant_method": "gptq", "bits": bits, "group_size": 128} for bits in (2, 3, 4, 8)),
        {**GPTQ, "checkpoint_format": "gptq_v2", "group_size": -1},
        {**GPTQ, "dynamic": {"-:.*mtp.*": {}, "+:.*down_proj": {"bits": 8}}},
        compressed("pack-quantized", num_bits=4),
        compressed("pack-quantized", num_bits=8, strategy="channel", group_size=None),
        compressed("int-quantized", num_bits=8, strategy="channel"),
        compressed("float-quantized", num_bits=8, type="float", strategy="tensor"),
        compressed(
            "float-quantized",
            num_bits=8,
            type="float",
            strategy="block",
            block_structure=[128, 128],
        ),
    ],
)
def test_schemes_that_run(tmp_path: Path, block: dict[str, Any]) -> None:
    assert inspected(tmp_path, quantization_config=block).can_run


def test_fp8_is_told_by_its_blocks(tmp_path: Path) -> None:
    block = {"quant_method": "fp8", "weight_block_size": [128, 64]}
    shown = inspected(tmp_path, quantization_config=block).to_json()["quantization"]
    assert shown == {"scheme": "fp8", "bits": [8], "block": [128, 64]}


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        (AWQ, {"scheme": "awq", "bits": [4], "group_size": 128}),
        (
            {**GPTQ, "dynamic": {"+:.*down_proj": {"bits": 8}}},
            {"scheme": "gptq", "bits": [4, 8], "group_size": 128},
        ),
        (
            compressed("pack-quantized"),
            {"scheme": "compressed-tensors", "bits": [4], "group_size": 32},
        ),
        (
            compressed("int-quantized", num_bits=8, strategy="channel"),
            {"scheme": "compressed-tensors", "bits": [8], "group_size": None},
        ),
    ],
)
def test_packs_of_other_tools_are_told_like_our_own(
    tmp_path: Path, block: dict[str, Any], shown: dict[str, Any]
) -> None:
    found = inspected(tmp_path, quantization_config=block)
    assert found.tier is Tier.FAMILY_COMPATIBLE_UNVERIFIED
    assert found.to_json()["quantization"] == shown


SPARSE = {"format": "sparse-24-bitmask"}


@pytest.mark.parametrize(
    ("block", "named"),
    [
        *(({**AWQ, "version": form}, form) for form in ("gemv", "gemv_fast", "marlin", "exllama")),
        ({**AWQ, "version": 1}, "version 1"),
        ({**AWQ, "backend": "llm-awq"}, "llm-awq"),
        ({**AWQ, "bits": 8}, "bits 8"),
        ({**AWQ, "group_size": 0}, "group_size 0"),
        ({"quant_method": "awq", "bits": 4}, "group_size None"),
        ({**GPTQ, "checkpoint_format": "marlin"}, "marlin"),
        ({**GPTQ, "is_marlin_format": True}, "marlin"),
        ({**GPTQ, "pack_dtype": "int16"}, "int16"),
        ({**GPTQ, "bits": 5}, "bits 5"),
        ({**GPTQ, "bits": True}, "bits True"),
        ({**GPTQ, "dynamic": {"+:.*": {"bits": 6}}}, "bits 6"),
        ({**GPTQ, "dynamic": [1]}, "dynamic [1]"),
        ({"quant_method": "compressed-tensors"}, "config_groups None"),
        *(
            (compressed(form), form)
            for form in ("nvfp4-pack-quantized", "mxfp4-pack-quantized", "marlin-24", "dense")
        ),
        ({**compressed("pack-quantized"), "sparsity_config": SPARSE}, "sparse-24-bitmask"),
        ({**compressed("pack-quantized"), "transform_config": {"R1": {}}}, "transform_config"),
        ({**compressed("pack-quantized"), "config_groups": {"group_0": 4}}, "group_0"),
        (compressed("pack-quantized", num_bits=3), "num_bits 3"),
        (compressed("pack-quantized", type="float"), "'float'"),
        (compressed("pack-quantized", strategy="tensor_group"), "tensor_group"),
        (compressed("pack-quantized", group_size=None), "group_size None"),
        (compressed("float-quantized", num_bits=8, type="float", strategy="block"), "block_str"),
    ],
)
def test_variants_that_cannot_be_unpacked_are_named(
    tmp_path: Path, block: dict[str, Any], named: str
) -> None:
    found = inspected(tmp_path, quantization_config=block)
    assert found.tier is Tier.INCOMPATIBLE
    assert isinstance(found.error, UnsupportedModelError)
    assert block["quant_method"] in found.error.message
    assert named in found.error.message


@pytest.mark.parametrize(
    ("block", "named"),
    [
        ({"group_size": 64, "bits": 7}, "7"),
        ({"group_size": 64, "bits": 1}, "1"),
        ({"group_size": 64, "bits": "4"}, "'4'"),
        ({"group_size": 64, "bits": [4]}, "[4]"),
        ({"group_size": 64, "bits": True}, "True"),
        ({"group_size": 48, "bits": 4}, "48"),
        ({"bits": 4}, "group_size"),
        ({"group_size": 64}, "bits"),
        ({"group_size": 64, "bits": 4, "mode": "mxfp4"}, "64"),
        ({"group_size": 64, "bits": 4, "mode": "new"}, "new"),
        ({"group_size": 64, "bits": 4, "mode": ["affine"]}, "affine"),
        ({**FOUR, "model.layers.0.mlp": {"bits": 9}}, "model.layers.0.mlp"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
        ({"quant_method": ["fp8"]}, "fp8"),
        ({"quant_method": "fp8"}, "weight_block_size"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "[128]"),
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, "[0, 128]"),
        ("int4", "str"),
    ],
)
def test_schemes_that_do_not_run_are_named(tmp_path: Path, block: object, named: str) -> None:
    found = inspected(tmp_path, quantization_config=block)
    assert found.tier is Tier.INCOMPATIBLE
    assert isinstance(found.error, UnsupportedModelError)
    assert "quantisation" in found.error.message
    assert named in found.error.message
    assert found.exit_code == 5


def test_modelopt_settings_in_a_file_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "hf_quant_config.json").write_text("{}")
    found = inspected(tmp_path)
    assert isinstance(found.error, UnsupportedModelError)
    assert "hf_quant_config.json" in found.error.message


def test_packed_weights_without_a_block_in_the_config(tmp_path: Path) -> None:
    tensors = blank(*trunk_names(2), *mimo_head_names(), "model.layers.0.mlp.up_proj.scales")
    tensors["model.layers.0.mlp.up_proj.weight"] = Tensor("U32", (2, 2), bytes(16))
    found = inspect_folder(write_model(tmp_path, config_of("mimo"), tensors))
    assert isinstance(found.error, UnsupportedModelError)
    assert "model.layers.0.mlp.up_proj.weight" in found.error.message


def test_packed_head_of_a_plain_trunk_is_allowed(tmp_path: Path) -> None:
    tensors = blank(*trunk_names(2), *mimo_head_names(), "model.mtp_layers.0.mlp.up_proj.scales")
    tensors["model.mtp_layers.0.mlp.up_proj.weight"] = Tensor("U32", (2, 2), bytes(16))
    assert inspect_folder(write_model(tmp_path, config_of("mimo"), tensors)).can_use_head
