"""Whatever the JSON files of a folder hold, inspection answers and its account is valid JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtplx.contracts.errors import EXIT_CODES
from mtplx.contracts.inspection import inspect_folder
from tests.support.header_models import config_of, qwen_head_names, trunk_names, write_model

if TYPE_CHECKING:
    from pathlib import Path

CONFIG_KEYS = [
    "model_type",
    "architectures",
    "text_config",
    "num_hidden_layers",
    "vocab_size",
    "max_position_embeddings",
    "mtp_num_hidden_layers",
    "num_nextn_predict_layers",
    "mtp_layers_block_type",
    "mtp_use_dedicated_embeddings",
    "quantization",
    "quantization_config",
    "eos_token_id",
    "vision_config",
    "auto_map",
    "model_file",
]
SIDE_FILES = {
    "generation_config.json": ["eos_token_id"],
    "tokenizer_config.json": ["eos_token", "chat_template", "added_tokens_decoder", "auto_map"],
    "tokenizer.json": ["added_tokens", "model"],
    "special_tokens_map.json": ["eos_token"],
    "chat_template.json": ["chat_template"],
    "mtplx_runtime.json": [
        "schema_version",
        "min_engine_version",
        "head",
        "exactness",
        "speed_evidence",
        "content",
        "sampler",
        "mtp_contract",
        "runtime_env_overrides",
    ],
    "model.safetensors.index.json": ["weight_map", "metadata"],
}

words = st.sampled_from(["bits", "group_size", "mode", "content", "0", "name", "mimo", "\ud800"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**65) | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path, {}, trunk_names(2) + qwen_head_names())


@settings(max_examples=100)
@given(
    st.dictionaries(st.sampled_from(CONFIG_KEYS), values, max_size=3),
    st.sampled_from([None, *SIDE_FILES]),
    st.data(),
)
def test_inspection_never_raises(
    folder: Path, changes: dict[str, Any], side: str | None, data: st.DataObject
) -> None:
    for name in SIDE_FILES:
        (folder / name).unlink(missing_ok=True)
    (folder / "config.json").write_text(json.dumps({**config_of("qwen3_next"), **changes}))
    if side is not None:
        content = data.draw(st.dictionaries(st.sampled_from(SIDE_FILES[side]), values))
        (folder / side).write_text(json.dumps(content))
    found = inspect_folder(folder)
    shown = json.dumps(found.to_json(), allow_nan=False)
    assert found.exit_code in {row.number for row in EXIT_CODES}
    assert found.can_run == (found.error is None)
    if found.error is not None:
        assert found.error.hint
        str(found.error).encode()
    assert json.loads(shown)["tier"] == found.tier
