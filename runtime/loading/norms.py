"""How the head's RMSNorm gains are stored: as the gain, or as the gain minus one.

Qwen and Step publish zero-centred gains (`x_hat * (1 + w)`); `mlx.nn.RMSNorm` multiplies by `w`, so such a head
needs one added to all of its norms. A missed or doubled shift raises no error, it only makes every draft wrong.
"""

from __future__ import annotations

import re
from typing import Any

import mlx.core as mx

from mtplx.contracts.errors import CorruptModelError, HeadWeightsError
from mtplx.runtime.loading.arrays import Weights

# The lowest mean gain seen in a sound head is 0.27 (a `pre_fc_norm_embedding`); a gain below this was stored
# minus one.
_LOWEST_GAIN = 0.1
_SHOWN_MEANS = 6
_NORM = re.compile(r"norm[^.]*\.weight$")


def norm_names(weights: Weights) -> list[str]:
    """Names of the norm gains: the one-dimensional `weight` of a module with `norm` in its name, which need
    not be the end of it (`pre_fc_norm_embedding`).
    """
    return sorted(n for n, w in weights.items() if _NORM.search(n) and w.ndim == 1)


def shift_norms(weights: Weights) -> Weights:
    """All norm gains plus one, added in float32: a bf16 sum would lose small deltas."""
    norms = set(norm_names(weights))
    return {
        name: value.astype(mx.float32) + 1.0 if name in norms else value
        for name, value in weights.items()
    }


def stored_as_delta(head: Weights, trunk: Weights) -> bool:
    """Whether the head's gains lack the one that the trunk's gains (as loaded) have.

    One decision for the whole set, from the q/k norms: their mean is compared with the same norms of the trunk,
    which mlx-lm has loaded as gains already.

    Raises:
        HeadWeightsError: the q/k norms fit neither convention, or single norms contradict the decision.
    """
    head_means, trunk_means = _qk_means(head), _qk_means(trunk)
    if not head_means or not trunk_means:
        raise HeadWeightsError(
            "the head has no q_norm/k_norm to tell its norm convention from",
            hint="convert the published checkpoint again, or record norm_encoding in mtplx_runtime.json",
        )
    found = sum(head_means.values()) / len(head_means)
    expected = sum(trunk_means.values()) / len(trunk_means)
    missing = expected - found
    if 0.35 < missing < 0.65:
        raise HeadWeightsError(
            f"the head's q/k norms have means {_listing(head_means)}, the trunk's average {expected:.2f}: "
            "stored as gains they should agree, stored minus one they should be 1.0 lower",
            hint="convert the published checkpoint again",
        )
    delta = missing >= 0.65
    if not delta:
        _refuse_mixed(head)
    return delta


def refuse_mixed_layouts(weights: Weights) -> None:
    """Raise CorruptModelError for convolutions in both layouts: mlx-lm takes one raw one for a raw release and
    shifts every norm.
    """
    raw = {n: w.shape[-1] != 1 for n, w in weights.items() if n.endswith(".conv1d.weight")}
    if len(set(raw.values())) < 2:
        return
    first = min(name for name, is_raw in raw.items() if is_raw)
    other = min(name for name, is_raw in raw.items() if not is_raw)
    gains = {name: _mean(weights[name]) for name in norm_names(weights)[:_SHOWN_MEANS]}
    raise CorruptModelError(
        f"{first} is laid out as published and {other} as MLX stores it, so nothing tells whether norms hold gains "
        f"or gains minus one: {_listing(gains)}",
        hint="convert the published checkpoint again; this folder mixes two sets of weights",
    )


def _refuse_mixed(head: Weights) -> None:
    means = {name: _mean(head[name]) for name in norm_names(head)}
    low = {name: mean for name, mean in means.items() if mean < _LOWEST_GAIN}
    if low:
        raise HeadWeightsError(
            "the head mixes two norm conventions: its q/k norms are stored as gains, but "
            f"{_listing(low)} look stored minus one",
            hint="convert the published checkpoint again; this file can't be read safely",
        )


def _qk_means(weights: Weights) -> dict[str, float]:
    return {
        name: _mean(weights[name])
        for name in norm_names(weights)
        if name.endswith((".q_norm.weight", ".k_norm.weight"))
    }


def _mean(gains: mx.array) -> float:
    mean: Any = gains.astype(mx.float32).mean().item()
    return float(mean)


def _listing(means: dict[str, float]) -> str:
    return ", ".join(f"{name} (mean {mean:.2f})" for name, mean in sorted(means.items()))
