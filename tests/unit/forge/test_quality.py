"""KL and top-1 agreement of two trunks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import pytest

from mtplx.contracts.errors import UsageError
from mtplx.forge.verify.quality import compare_quality
from mtplx.runtime.loading.folder import load

if TYPE_CHECKING:
    from tests.conftest import TinyFactory

TEXTS = [list(range(40)), list(range(5, 30))]


def test_a_model_is_its_own_equal(shared_tiny: TinyFactory) -> None:
    model = load(shared_tiny("mimo"))
    found = compare_quality(model, model, TEXTS)
    assert found.rows == 65
    assert found.top1 == 1.0
    assert abs(found.kl) < 1e-6


def test_the_divergence_is_that_of_the_formula(shared_tiny: TinyFactory) -> None:
    first, second = load(shared_tiny("mimo")), load(shared_tiny("mimo"))
    embedding = second.trunk.model.model.embed_tokens
    embedding.weight = embedding.weight * 1.5
    found = compare_quality(first, second, TEXTS)

    divergences, equal = [], []
    for text in TEXTS:
        rows = []
        for model in (first, second):
            hidden = model.trunk.forward(mx.array([text]), model.trunk.make_caches())
            logits = np.array(model.trunk.logits(hidden.after_norm)[0], dtype=np.float64)
            exp = np.exp(logits - logits.max(axis=-1, keepdims=True))
            rows.append(exp / exp.sum(axis=-1, keepdims=True))
        p, q = rows
        divergences.append((p * np.log(p / q)).sum(axis=-1))
        equal.append(p.argmax(axis=-1) == q.argmax(axis=-1))
    assert found.kl == pytest.approx(np.concatenate(divergences).mean(), rel=1e-3)
    assert found.top1 == pytest.approx(np.concatenate(equal).mean())
    assert found.kl > 0


def test_nothing_to_compare_is_refused(shared_tiny: TinyFactory) -> None:
    model = load(shared_tiny("mimo"))
    with pytest.raises(UsageError, match="no text"):
        compare_quality(model, model, [])
