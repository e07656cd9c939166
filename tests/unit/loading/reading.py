"""What a folder stores and what was loaded from it, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from mtplx.contracts.inspection import inspect_folder
from mtplx.runtime.heads.registry import find_layout
from mtplx.runtime.loading.arrays import read_arrays
from mtplx.runtime.loading.folder import take_head
from mtplx.runtime.loading.head_weights import HeadBinding, bind_head
from mtplx.runtime.loading.trunk_weights import build_trunk, widen
from mtplx.runtime.trunks.trunk import Trunk
from tests.support.tensorfile import read_values

if TYPE_CHECKING:
    from pathlib import Path

    import mlx.nn as nn
    from numpy.typing import NDArray

    from mtplx.runtime.heads.head import MTPModule
    from mtplx.runtime.model import Model

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]


def disk(folder: Path) -> dict[str, NDArray[Any]]:
    """Every stored tensor of a folder, by name."""
    values: dict[str, NDArray[Any]] = {}
    for path in sorted(folder.rglob("*.safetensors")):
        values |= read_values(path)
    return values


def parameters(module: nn.Module) -> dict[str, NDArray[np.float32]]:
    """Every parameter of a module, by path."""
    flat: Any = tree_flatten(module.parameters())
    return {name: np.array(value) for name, value in flat}


def trunk_logits(model: Model, tokens: list[int] = TOKENS) -> NDArray[np.float32]:
    """Logits after each token, [T, V]."""
    trunk = model.trunk
    hidden = trunk.forward(mx.array([tokens]), trunk.make_caches())
    return np.array(trunk.logits(hidden.after_norm)[0])


def head_logits(model: Model, tokens: list[int] = TOKENS) -> NDArray[np.float32]:
    """Logits of the head's first depth, [T - 1, V]."""
    head = model.head
    assert head is not None
    ids = mx.array([tokens])
    hidden = model.trunk.forward(ids, model.trunk.make_caches())
    step = head.step(head.feed(hidden)[:, :-1], ids[:, 1:], head.make_caches())
    return np.array(head.logits(step.output)[0])


def bind(folder: Path) -> tuple[MTPModule, HeadBinding]:
    """The head of a folder and the account of its tensors."""
    inspection = inspect_folder(folder)
    inspection.raise_if_unrunnable()
    assert inspection.index is not None
    assert inspection.family is not None
    weights = read_arrays(inspection.index)
    tensors = take_head(inspection, weights)
    assert tensors is not None
    family = inspection.family
    model, _ = build_trunk(folder, weights, mx.float32, model_type=family.model_types[0])
    return bind_head(
        find_layout(family.layout),
        widen(tensors, mx.float32),
        Trunk(model),
        raw_norms={"delta": True, "absolute": False}.get(inspection.norm_encoding or ""),
    )
