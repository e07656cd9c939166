"""What forge calls the form of a source's weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mtplx.contracts.inspection import inspect_folder
from mtplx.contracts.source_format import SourceFormat, source_format
from tests.support.header_models import blank, config_of, mimo_head_names, trunk_names, write_model
from tests.support.tensorfile import Tensor
from tests.support.tiny_packed import BLOCKS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import TinyFactory

FOUR = {"group_size": 64, "bits": 4}


def form(folder: Path, *, head: bool = True, model_type: str = "mimo", **extra: Any) -> str:
    names = trunk_names(2) + (mimo_head_names() if head else [])
    config = config_of(model_type, **extra)
    return source_format(inspect_folder(write_model(folder, config, names)))


@pytest.mark.parametrize("dtype", ["BF16", "F32"])
def test_floating_weights_are_native(tiny: TinyFactory, dtype: str) -> None:
    found = inspect_folder(tiny("mimo", dtype=dtype))
    assert source_format(found) is SourceFormat.BF16_NATIVE


@pytest.mark.parametrize(("head", "name"), [(True, "mlx_affine_with_mtp"), (False, "mlx_affine")])
def test_mlx_packs_are_told_by_their_head(tmp_path: Path, head: bool, name: str) -> None:
    assert form(tmp_path, head=head, quantization=FOUR) == name


def test_a_head_in_a_file_beside_counts(tiny: TinyFactory) -> None:
    quantize = {"bits": 4, "group_size": 32}
    folder = tiny(
        "qwen3_5", layout="mlx", quantize=quantize, hidden=64, sidecar="mtp/weights.safetensors"
    )
    assert source_format(inspect_folder(folder)) is SourceFormat.MLX_AFFINE_WITH_MTP


@pytest.mark.parametrize(
    ("block", "name"),
    [
        (BLOCKS["awq"], "awq"),
        (BLOCKS["gptq"], "gptq"),
        (BLOCKS["compressed"], "compressed_tensors_awq"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block"),
    ],
)
def test_other_tools_are_told_by_the_config(
    tmp_path: Path, block: dict[str, Any], name: str
) -> None:
    assert form(tmp_path, quantization_config=block) == name


def test_the_form_is_known_of_a_model_that_cannot_run_for_another_reason(tmp_path: Path) -> None:
    config = config_of("mimo", layers=9)
    found = inspect_folder(write_model(tmp_path, config, trunk_names(2)))
    assert found.error is not None
    assert source_format(found) is SourceFormat.BF16_NATIVE


@pytest.mark.parametrize(
    "extra",
    [
        {"model_type": "nobody-knows-this"},
        {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}},
        {"quantization_config": {**BLOCKS["awq"], "version": "gemv"}},
    ],
)
def test_what_ends_before_the_weights_is_unknown(tmp_path: Path, extra: dict[str, Any]) -> None:
    assert form(tmp_path, **extra) == "unknown"


def test_no_folder_is_unknown(tmp_path: Path) -> None:
    assert source_format(inspect_folder(tmp_path / "absent")) is SourceFormat.UNKNOWN


def test_packed_weights_that_nothing_describes_are_unknown(tmp_path: Path) -> None:
    tensors = blank(*trunk_names(2), *mimo_head_names(), "model.layers.0.mlp.up_proj.scales")
    tensors["model.layers.0.mlp.up_proj.weight"] = Tensor("U32", (2, 2), bytes(16))
    found = inspect_folder(write_model(tmp_path, config_of("mimo"), tensors))
    assert source_format(found) is SourceFormat.UNKNOWN


def test_a_packed_head_does_not_change_the_form_of_its_trunk(tmp_path: Path) -> None:
    tensors = blank(*trunk_names(2), *mimo_head_names(), "model.mtp_layers.0.mlp.up_proj.scales")
    tensors["model.mtp_layers.0.mlp.up_proj.weight"] = Tensor("U32", (2, 2), bytes(16))
    found = inspect_folder(write_model(tmp_path, config_of("mimo"), tensors))
    assert source_format(found) is SourceFormat.BF16_NATIVE
