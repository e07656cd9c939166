"""Trunk and head reproduce the logits that PyTorch computed for the trained checkpoints."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from mtplx.runtime.loading.folder import load
from mtplx.runtime.model import Model
from tests.support.checkpoints import (
    TRAINED,
    TrainedName,
    reference,
    require_checkpoint,
    trained_wiring,
)

# Largest difference of a logit; all families are far below it.
TOLERANCE = 1e-3
DEPTHS = (1, 2, 3)


def _logits(model: Model, tokens: list[int]) -> dict[str, mx.array]:
    """Logits of every row of the trunk and of three teacher-forced depths, [T, V] each."""
    head = model.head
    assert head is not None
    ids = mx.array([tokens])
    hidden = model.trunk.forward(ids, model.trunk.make_caches())
    found = {"trunk": model.trunk.logits(hidden.after_norm)[0]}
    fed = head.feed(hidden)
    for depth in DEPTHS:
        step = head.step(fed[:, :-1], ids[:, depth:], head.make_caches())
        found[f"mtp{depth}"] = head.logits(step.output)[0]
        fed = step.recycled
    return found


@pytest.mark.parametrize("family", TRAINED)
@pytest.mark.parametrize("prompt", [0, 1])
def test_trunk_and_three_depths_match_pytorch(family: TrainedName, prompt: int) -> None:
    expected = reference(family)
    model = load(require_checkpoint(family), wiring=trained_wiring(family))
    tokens = [*expected[f"p{prompt}.prompt"].tolist(), *expected[f"p{prompt}.greedy"].tolist()]
    found = _logits(model, tokens)
    rows = expected[f"p{prompt}.rows"].tolist()
    for part in ("trunk", *(f"mtp{d}" for d in DEPTHS)):
        kept = [row for row in rows if row < found[part].shape[0]]
        mine = np.array(found[part][mx.array(kept)])
        theirs = expected[f"p{prompt}.{part}.rows"][: len(kept)]
        difference = np.abs(mine - theirs).max(axis=-1)
        print(f"{family} p{prompt} {part}: max |difference| by row {difference.round(5).tolist()}")
        assert difference.max() <= TOLERANCE, f"{part}: rows {kept}, {difference}"


@pytest.mark.parametrize("family", TRAINED)
def test_eight_best_tokens_of_every_row_match_pytorch(family: TrainedName) -> None:
    expected = reference(family)
    model = load(require_checkpoint(family), wiring=trained_wiring(family))
    tokens = [*expected["p1.prompt"].tolist(), *expected["p1.greedy"].tolist()]
    for part, logits in _logits(model, tokens).items():
        ids = expected[f"p1.{part}.top8_ids"][: logits.shape[0]]
        theirs = expected[f"p1.{part}.top8_logits"][: logits.shape[0]]
        mine = np.take_along_axis(np.array(logits), ids.astype(np.int64), axis=-1)
        difference = np.abs(mine - theirs).max(axis=-1)
        assert difference.max() <= TOLERANCE, f"{part}: row {difference.argmax()}"
