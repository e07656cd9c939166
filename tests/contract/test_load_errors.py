"""Folders and requests that cannot work end in an error that says what, why and what to do."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from mlx_lm.models import base as mlx_base

from mtplx.contracts.errors import (
    CorruptModelError,
    HeadMissingError,
    HeadWeightsError,
    InvalidRequestError,
    ModelNotFoundError,
    MTPLXError,
    NotAModelError,
    PromptTooLongError,
    ShardMissingError,
    TensorFileError,
    UnsupportedModelError,
    UsageError,
)
from mtplx.runtime.loading.folder import load
from tests.support import disk as damage
from tests.support.tensorfile import encode, read_tensors, write_tensors
from tests.support.tiny_families import FamilyName

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mtplx.runtime.model import Model
    from tests.conftest import TinyFactory

HEADED: tuple[FamilyName, ...] = ("qwen3_5", "deepseek_v3", "glm4_moe", "mimo")
SECOND = "model-00002-of-00002.safetensors"


def refuse(folder: Path, error: type[MTPLXError], *named: str) -> MTPLXError:
    """The folder does not load, with that class of error naming those things."""
    with pytest.raises(error) as caught:
        load(folder)
    for name in named:
        assert name in caught.value.message
    assert caught.value.hint
    return caught.value


def drop_trunk_tensor(folder: Path) -> None:
    damage.remove_tensors(folder, lambda name: name == "model.layers.1.mlp.up_proj.weight")


def add_trunk_tensor(folder: Path) -> None:
    path = damage.shard_files(folder)[0]
    extra = {"model.layers.0.mlp.third_proj.weight": encode(np.ones((4, 4), np.float32), "BF16")}
    write_tensors(path, {**read_tensors(path), **extra})
    damage.edit_weight_map(folder, lambda names: {**names, **dict.fromkeys(extra, path.name)})


def misshape_trunk_tensor(folder: Path) -> None:
    path, name = damage.find_tensor(folder, r"layers\.1\.mlp\.up_proj")
    damage.replace_tensor(path, name, encode(np.ones((8, 8), np.float32), "BF16"))


def strip_head(folder: Path) -> None:
    damage.remove_tensors(folder, lambda name: "mtp_layers" in name and "o_proj" in name)


@pytest.mark.parametrize(
    ("spoil", "error", "named"),
    [
        (damage.drop_shard, ShardMissingError, SECOND),
        (damage.rename_shard, ShardMissingError, SECOND),
        (lambda f: damage.truncate(f / SECOND), TensorFileError, SECOND),
        (lambda f: damage.append_bytes(f / SECOND), TensorFileError, SECOND),
        (lambda f: damage.overlap_tensors(f / SECOND), TensorFileError, SECOND),
        (drop_trunk_tensor, CorruptModelError, "up_proj"),
        (add_trunk_tensor, CorruptModelError, "third_proj"),
        (misshape_trunk_tensor, CorruptModelError, "up_proj"),
        (strip_head, HeadWeightsError, "o_proj"),
    ],
)
def test_damaged_weights_are_refused_by_name(
    tiny: TinyFactory,
    spoil: Callable[[Path], object],
    error: type[MTPLXError],
    named: str,
) -> None:
    folder = tiny("mimo")
    spoil(folder)
    assert refuse(folder, error, named).exit_code == 4


def test_what_is_no_model_is_refused(tmp_path: Path, tiny: TinyFactory) -> None:
    assert refuse(tmp_path / "absent", ModelNotFoundError, "absent").exit_code == 3
    assert refuse(tmp_path, NotAModelError, "config.json").exit_code == 3
    shard = damage.shard_files(tiny("mimo"))[0]
    assert refuse(shard, NotAModelError, shard.name).exit_code == 3


def test_an_unknown_model_type_is_named(tiny: TinyFactory) -> None:
    folder = tiny("llama", config_overrides={"model_type": "gpt_99", "architectures": ["Gpt99"]})
    assert refuse(folder, UnsupportedModelError, "gpt_99").exit_code == 5


def test_a_config_that_mlx_lm_refuses_is_unsupported(tiny: TinyFactory) -> None:
    folder = tiny("mimo")
    damage.edit_json(folder / "config.json", {"hidden_size": ...})
    assert refuse(folder, UnsupportedModelError, "hidden_size").exit_code == 5


@pytest.mark.parametrize("family", HEADED)
def test_an_announced_head_that_is_not_there_runs_plain_and_says_so(
    shared_tiny: TinyFactory, family: FamilyName
) -> None:
    model = load(shared_tiny(family, head=False))
    assert not model.has_head
    assert (model.tier, model.max_depth) == ("no-mtp-heads", 0)
    done = model.generate([1, 2, 3], max_tokens=4, temperature=0.0)
    assert (done.generation_mode, done.depth) == ("ar", 0)
    assert any("no MTP head" in warning for warning in done.warnings)
    assert done.to_json()["warnings"]
    plain = load(shared_tiny(family)).generate([1, 2, 3], max_tokens=4, temperature=0.0, depth=0)
    assert done.token_ids == plain.token_ids


@pytest.mark.parametrize("family", HEADED)
def test_an_explicit_depth_without_a_head_is_refused(
    shared_tiny: TinyFactory, family: FamilyName
) -> None:
    model = load(shared_tiny(family, head=False))
    with pytest.raises(HeadMissingError, match=r"depth 3 .*declared\+missing") as caught:
        model.stream([1, 2, 3], depth=3)
    assert caught.value.exit_code == 6
    assert "--depth" in caught.value.hint
    for allowed in ({"depth": 0}, {"mtp": False, "depth": 3}):
        assert model.generate([1, 2, 3], max_tokens=2, **allowed).token_ids


def test_a_model_without_heads_says_nothing_when_plain_decoding_was_asked(
    shared_tiny: TinyFactory,
) -> None:
    done = load(shared_tiny("llama")).generate([1, 2, 3], max_tokens=2, depth=0)
    assert not any("MTP head" in warning for warning in done.warnings)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Model:
    from tests.support.tiny import build_tiny

    folder = tmp_path_factory.mktemp("short") / "tiny"
    return load(build_tiny(folder, "mimo", config_overrides={"max_position_embeddings": 16}))


@pytest.mark.parametrize("length", [16, 17, 40])
def test_a_prompt_that_fills_the_context_is_refused_with_the_numbers(
    short: Model, length: int
) -> None:
    with pytest.raises(PromptTooLongError, match=f"{length} tokens, .* holds 16") as caught:
        short.stream([1] * length)
    assert caught.value.exit_code == 2
    assert f"at least {length - 15} " in caught.value.hint


def test_an_answer_is_cut_at_the_context_and_says_so(short: Model) -> None:
    done = short.generate([1] * 12, max_tokens=50, depth=8, ignore_end_tokens=True)
    assert len(done.token_ids) == 4
    assert done.finish_reason == "length"
    assert any("from 50 to 4" in warning for warning in done.warnings)


@pytest.mark.parametrize("max_tokens", [0, -1])
def test_no_tokens_at_all_are_refused(short: Model, max_tokens: int) -> None:
    with pytest.raises(InvalidRequestError, match="max_tokens") as caught:
        short.generate([1], max_tokens=max_tokens)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("prompt", ["", []])
def test_an_empty_prompt_is_refused(short: Model, prompt: Any) -> None:
    with pytest.raises(UsageError, match="empty") as caught:
        short.generate(prompt, raw=True)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("token", [-1, 64, 10**9])
def test_a_token_outside_the_vocabulary_is_refused(short: Model, token: int) -> None:
    with pytest.raises(InvalidRequestError, match=f"token id {token} at position 1"):
        short.generate([1, token])


def test_a_prompt_of_mixed_kinds_is_refused(short: Model) -> None:
    with pytest.raises(InvalidRequestError, match="not both"):
        short.generate([1, {"role": "user", "content": "x"}])  # type: ignore[arg-type]


def test_a_refused_request_leaves_the_model_as_it_was(short: Model) -> None:
    before = dataclasses.astuple(short.generate([1, 2], max_tokens=3, seed=1, depth=1))[:3]
    with pytest.raises(InvalidRequestError):
        short.generate([1, 2], top_p=7.0)
    after = dataclasses.astuple(short.generate([1, 2], max_tokens=3, seed=1, depth=1))[:3]
    assert after == before


def test_a_cache_that_cannot_be_quantised_is_refused_at_load(shared_tiny: TinyFactory) -> None:
    with pytest.raises(UnsupportedModelError, match="kv_bits") as caught:
        load(shared_tiny("deepseek_v3"), kv_bits=8)
    assert caught.value.exit_code == 5
    with pytest.raises(InvalidRequestError, match="kv_bits is 7"):
        load(shared_tiny("mimo"), kv_bits=7)
    with pytest.raises(UnsupportedModelError, match="16 wide"):
        load(shared_tiny("mimo"), kv_bits=8)


def test_a_quantised_cache_that_the_back_end_lacks_is_refused_at_load(
    shared_tiny: TinyFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_kernel(*_: object, **__: object) -> None:
        raise RuntimeError("[quantized_matmul] No implementation for problem shape")

    monkeypatch.setattr(mlx_base, "quantized_scaled_dot_product_attention", no_kernel)
    folder = shared_tiny("mimo", hidden=128)
    with pytest.raises(UnsupportedModelError, match="No implementation") as caught:
        load(folder, kv_bits=8)
    assert "without kv_bits" in caught.value.hint
    assert load(folder).kv_bits is None
