"""The head's `kv_b_proj` becomes the absorbed pair that mlx-lm computes with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np

from mtplx.runtime.loading.arrays import split_kv_b
from tests.unit.loading.reading import bind, disk, parameters

if TYPE_CHECKING:
    from tests.conftest import TinyFactory

HEADS, NOPE, VALUE, RANK = 2, 16, 16, 32
AT = "block.self_attn."


def test_the_pair_holds_the_rows_of_its_head(shared_tiny: TinyFactory) -> None:
    folder = shared_tiny("deepseek_v3")
    stored = disk(folder)["model.layers.2.self_attn.kv_b_proj.weight"]
    loaded = parameters(bind(folder)[0])
    by_head = stored.reshape(HEADS, NOPE + VALUE, RANK)
    for head in range(HEADS):
        keys, values = by_head[head, :NOPE], by_head[head, NOPE:]
        np.testing.assert_array_equal(loaded[f"{AT}embed_q.weight"][head], keys.T)
        np.testing.assert_array_equal(loaded[f"{AT}unembed_out.weight"][head], values)
    assert not any("kv_b_proj" in name for name in loaded)


def test_the_pair_scores_and_reads_like_the_unsplit_projection() -> None:
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(HEADS * (NOPE + VALUE), RANK)).astype(np.float32)
    query = rng.normal(size=(HEADS, NOPE)).astype(np.float32)
    latent = rng.normal(size=(5, RANK)).astype(np.float32)
    split = split_kv_b(
        {f"{AT}kv_b_proj.weight": mx.array(weight)},
        num_heads=HEADS,
        nope_dim=NOPE,
        kv_rank=RANK,
    )
    embed, unembed = (np.array(split[f"{AT}{n}.weight"]) for n in ("embed_q", "unembed_out"))
    for head in range(HEADS):
        full = latent @ weight.reshape(HEADS, NOPE + VALUE, RANK)[head].T
        scores = full[:, :NOPE] @ query[head]
        np.testing.assert_allclose(latent @ (embed[head] @ query[head]), scores, rtol=1e-4)
        np.testing.assert_allclose(latent @ unembed[head].T, full[:, NOPE:], rtol=1e-4, atol=1e-5)


def test_a_quantised_projection_is_widened_first() -> None:
    weight = mx.random.normal((HEADS * (NOPE + VALUE), 64), key=mx.random.key(1))
    packed, scales, biases = mx.quantize(weight, group_size=32, bits=4)
    stored = {"weight": packed, "scales": scales, "biases": biases}
    sizes = {"num_heads": HEADS, "nope_dim": NOPE, "kv_rank": 64}
    found = split_kv_b({f"{AT}kv_b_proj.{k}": v for k, v in stored.items()}, **sizes)
    full = mx.dequantize(packed, scales, biases, group_size=32, bits=4)
    expected = split_kv_b({f"{AT}kv_b_proj.weight": full}, **sizes)
    assert found.keys() == expected.keys()
    for name in expected:
        assert mx.array_equal(found[name], expected[name])
