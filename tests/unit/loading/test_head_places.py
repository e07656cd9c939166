"""Heads are found wherever exporters put them: other prefixes, files of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from mtplx.runtime.loading.folder import load
from tests.support.tiny_families import FamilyName
from tests.unit.loading.reading import head_logits, trunk_logits

if TYPE_CHECKING:
    from tests.conftest import TinyFactory

WITH_HEAD: tuple[FamilyName, ...] = (
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_next",
    "deepseek_v3",
    "glm4_moe",
    "mimo",
)


@pytest.mark.parametrize("family", WITH_HEAD)
@pytest.mark.parametrize(
    "sidecar", ["mtp.safetensors", "mtp/weights.safetensors", "model-mtp.safetensors"]
)
def test_a_head_in_a_file_of_its_own_is_bound(
    tiny: TinyFactory, shared_tiny: TinyFactory, family: FamilyName, sidecar: str
) -> None:
    folder = tiny(family, sidecar=sidecar)
    model = load(folder)
    assert (folder / sidecar).is_file()
    np.testing.assert_array_equal(head_logits(model), head_logits(load(shared_tiny(family))))


@pytest.mark.parametrize(
    ("family", "prefix"),
    [
        ("qwen3_5", "model.mtp."),
        ("qwen3_5", "language_model.mtp."),
        ("qwen3_5_moe", "model.language_model.mtp."),
        ("qwen3_next", "language_model.model.mtp."),
        ("deepseek_v3", "mtp.layers."),
        ("glm4_moe", "model.mtp_layers."),
        ("mimo", "mtp_layers."),
    ],
)
def test_every_prefix_of_a_head_is_recognised(
    tiny: TinyFactory, shared_tiny: TinyFactory, family: FamilyName, prefix: str
) -> None:
    model = load(tiny(family, prefix=prefix))
    np.testing.assert_array_equal(head_logits(model), head_logits(load(shared_tiny(family))))
    np.testing.assert_array_equal(trunk_logits(model), trunk_logits(load(shared_tiny(family))))
