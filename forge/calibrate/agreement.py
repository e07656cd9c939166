"""Teacher-forced agreement: how often the head's best token is the trunk's, with true tokens fed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import mlx.core as mx
import numpy as np

from mtplx.contracts.errors import HeadMissingError
from mtplx.runtime.model import Model


def measure_agreement(
    model: Model, texts: Iterable[Sequence[int]], *, depths: int = 3
) -> tuple[float, ...]:
    """Share of rows where the head's argmax at depth 1, 2, ... equals the trunk's for the same position.

    `texts` are token ids. Unconditional by depth: row i of depth d predicts token i + d + 1 from the trunk's hidden i
    and the true tokens up to i + d, whatever the depths before it said.

    Raises:
        HeadMissingError: the model has no head loaded.
    """
    if model.head is None:
        raise HeadMissingError(f"{model.path} has no MTP head to measure")
    agreed, rows = [0] * depths, [0] * depths
    for text in texts:
        matches = _matches(model, mx.array([list(text)]), depths)
        for depth, match in enumerate(matches):
            agreed[depth] += sum(match)
            rows[depth] += len(match)
    return tuple(a / max(n, 1) for a, n in zip(agreed, rows, strict=True))


def _matches(model: Model, ids: mx.array, depths: int) -> list[list[bool]]:
    """Whether each row agrees, for each depth."""
    head = model.head
    assert head is not None
    hidden = model.trunk.forward(ids, model.trunk.make_caches())
    target = mx.argmax(model.trunk.logits(hidden.after_norm)[0], axis=-1)
    fed = head.feed(hidden)
    matches: list[list[bool]] = []
    for depth in range(1, depths + 1):
        step = head.step(fed[:, :-1], ids[:, depth:], head.make_caches())
        found = mx.argmax(head.logits(step.output)[0], axis=-1)
        matches.append(np.array(found == target[depth:]).tolist())
        fed = step.recycled
    return matches
