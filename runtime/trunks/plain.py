"""Trunks of models without a head: the stock forward as it is."""

from __future__ import annotations

import mlx.core as mx

from mtplx.runtime.caches.composite import CacheSet
from mtplx.runtime.trunks.few_rows import install_few_rows
from mtplx.runtime.trunks.trunk import Hidden, Trunk


class PlainTrunk(Trunk):
    """Calls the model's own inner forward, masks and windows included.

    The hidden before the final norm is not visible here; no head exists that could ask for it.
    """

    def prepare_for_cpu(self, *, with_few_rows: bool) -> None:
        """Replace the linear layers; what lies between them is the model's own affair."""
        if with_few_rows:
            install_few_rows(self.model)

    def forward(self, tokens: mx.array, caches: CacheSet) -> Hidden:
        """One forward over T rows: `tokens` [1, T] appended to every cache."""
        hidden = self._inner(tokens, cache=caches)
        return Hidden(hidden, hidden)
