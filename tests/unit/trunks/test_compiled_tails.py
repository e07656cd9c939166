"""Compiled layer tails compute what the layers compute, with the weights of the moment."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mtplx.runtime.loading.folder import load
from mtplx.runtime.model import Model
from mtplx.runtime.trunks.trunk import Hidden
from tests.conftest import TinyFactory

FAMILIES = ["qwen3_5", "qwen3_5_moe", "qwen3_next", "deepseek_v3", "glm4_moe", "mimo"]
TOKENS = mx.array([[3, 1, 4, 1, 5]])


def _forward(model: Model) -> Hidden:
    return model.trunk.forward(TOKENS, model.trunk.make_caches())


def _without_tails(model: Model, monkeypatch: pytest.MonkeyPatch) -> Hidden:
    with monkeypatch.context() as patch:
        patch.setattr(model.trunk, "_tails", [])
        return _forward(model)


@pytest.mark.parametrize("family", FAMILIES)
def test_compiled_equals_layer_by_layer(
    shared_tiny: TinyFactory, monkeypatch: pytest.MonkeyPatch, family: Any
) -> None:
    model = load(shared_tiny(family, dtype="F32"))
    if mx.default_device() == mx.cpu:
        assert model.trunk._tails
    compiled, plain = _forward(model), _without_tails(model, monkeypatch)
    for mine, theirs in zip(compiled, plain, strict=True):
        np.testing.assert_allclose(np.array(mine), np.array(theirs), rtol=1e-4, atol=1e-5)


def test_a_changed_weight_is_seen(
    shared_tiny: TinyFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(shared_tiny("mimo", dtype="F32"))
    before = np.array(_forward(model).after_norm)
    layer = model.trunk.layers[0]
    layer.post_attention_layernorm.weight = layer.post_attention_layernorm.weight * 2
    after = np.array(_forward(model).after_norm)
    assert np.abs(after - before).max() > 1e-3
    expected = np.array(_without_tails(model, monkeypatch).after_norm)
    np.testing.assert_allclose(after, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_compiled_head_equals_the_plain_one(
    shared_tiny: TinyFactory, monkeypatch: pytest.MonkeyPatch, family: Any
) -> None:
    model = load(shared_tiny(family, dtype="F32"))
    head = model.head
    assert head is not None
    fed = head.feed(_forward(model))[:, :-1]
    compiled = head.step(fed, TOKENS[:, 1:], head.make_caches())
    with monkeypatch.context() as patch:
        patch.setattr(head, "_compiled", None)
        plain = head.step(fed, TOKENS[:, 1:], head.make_caches())
    for mine, theirs in zip(compiled, plain, strict=True):
        np.testing.assert_allclose(np.array(mine), np.array(theirs), rtol=1e-4, atol=1e-5)
