"""Trunks of models whose head can't be run, or that have none: the stock forward as it is."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn

from mtplx.contracts.errors import UnsupportedModelError
from mtplx.runtime.caches.composite import CacheSet, make_caches
from mtplx.runtime.trunks.few_rows import install_few_rows
from mtplx.runtime.trunks.trunk import Hidden, Trunk


class PlainTrunk(Trunk):
    """Calls the whole model, so that masks, windows, scales and caps of its logits are its own.

    No head asks for hidden states here, so what `forward` hands on are the logits themselves; they are lazy, and only
    those that are asked for later cost anything.
    """

    def __init__(self, model: nn.Module) -> None:
        # The layered parts of the base are left out on purpose: these models need not have them.
        self.model = model
        self._vocab_size = _vocab_size(model)

    @property
    def vocab_size(self) -> int:
        """Number of logits, V."""
        return self._vocab_size

    def make_caches(self, *, kv_bits: int | None = None) -> CacheSet:
        """Empty caches, one a layer; `kv_bits` quantises those of plain attention."""
        return make_caches(self.model, kv_bits=kv_bits)

    def prepare_for_cpu(self, *, with_few_rows: bool) -> None:
        """Replace the linear layers; what lies between them is the model's own affair."""
        if with_few_rows:
            install_few_rows(self.model)

    def forward(self, tokens: mx.array, caches: CacheSet) -> Hidden:
        """One forward over T rows: `tokens` [1, T] appended to every cache; logits [1, T, V] twice."""
        logits = self.model(tokens, cache=caches)
        return Hidden(logits, logits)

    def logits(self, hidden: mx.array) -> mx.array:
        """What `forward` returned."""
        return hidden


def _vocab_size(model: nn.Module) -> int:
    """Rows of the widest embedding."""
    rows = [
        int(module.weight.shape[0])
        for _, module in model.named_modules()
        if isinstance(module, nn.Embedding | nn.QuantizedEmbedding)
    ]
    if not rows:
        raise UnsupportedModelError("the model has no token embedding")
    return max(rows)
