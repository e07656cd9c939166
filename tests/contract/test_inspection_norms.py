"""How inspection decides whether norm gains are stored zero-centred: by provenance only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtplx.contracts.inspection import inspect_folder
from tests.support.header_models import (
    blank,
    config_of,
    mimo_head_names,
    qwen_head_names,
    trunk_names,
    write_model,
)
from tests.support.tensorfile import write_tensors

if TYPE_CHECKING:
    from pathlib import Path

CONV = "model.layers.0.linear_attn.conv1d.weight"


@pytest.mark.parametrize(
    ("conv", "head", "made_by", "encoding"),
    [
        ((8, 1, 4), True, "pt", "delta"),
        ((8, 4, 1), True, "mlx", "undecided-needs-values"),
        ((8, 4, 1), False, "mlx", "absolute"),
        ((8, 1, 4), False, "pt", "delta"),
        (None, True, "pt", "delta"),
        (None, True, "mlx", "undecided-needs-values"),
        (None, True, "other", "undecided-needs-values"),
    ],
)
def test_norm_encoding_by_where_the_weights_come_from(
    tmp_path: Path, conv: tuple[int, ...] | None, head: bool, made_by: str, encoding: str
) -> None:
    tensors = blank(*trunk_names(2), *(qwen_head_names() if head else []))
    if conv is not None:
        tensors |= blank(CONV, shape=conv)
    folder = write_model(tmp_path, config_of("qwen3_next"), tensors, made_by=made_by)
    assert inspect_folder(folder).norm_encoding == encoding


def test_norm_encoding_of_a_foreign_sidecar_is_open_even_beside_raw_weights(tmp_path: Path) -> None:
    tensors = blank(*trunk_names(2)) | blank(CONV, shape=(8, 1, 4))
    write_model(tmp_path, config_of("qwen3_next"), tensors)
    write_tensors(tmp_path / "mtp.safetensors", blank(*qwen_head_names()))
    found = inspect_folder(tmp_path)
    assert found.norm_encoding == "undecided-needs-values"
    assert found.can_use_head


def test_layouts_that_contradict_each_other_decide_nothing(tmp_path: Path) -> None:
    other = CONV.replace("layers.0", "layers.1")
    tensors = blank(*trunk_names(2)) | blank(CONV, shape=(8, 1, 4)) | blank(other, shape=(8, 4, 1))
    folder = write_model(tmp_path, config_of("qwen3_next"), tensors)
    assert inspect_folder(folder).norm_encoding == "undecided-needs-values"


@pytest.mark.parametrize("made_by", ["pt", "mlx"])
def test_families_with_plain_norms_need_no_decision(tmp_path: Path, made_by: str) -> None:
    tensors = blank(*trunk_names(2), *mimo_head_names())
    folder = write_model(tmp_path, config_of("mimo"), tensors, made_by=made_by)
    assert inspect_folder(folder).norm_encoding == "absolute"
