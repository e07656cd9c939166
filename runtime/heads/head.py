"""The MTP head: from a hidden of the trunk and the next token to the hidden that predicts the token after."""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.base import create_attention_mask

from mtplx.contracts.families import Wiring
from mtplx.runtime.caches.composite import CacheSet
from mtplx.runtime.trunks.few_rows import install_few_rows
from mtplx.runtime.trunks.tails import MAX_ROWS, Tail, tail_of
from mtplx.runtime.trunks.trunk import Hidden, Trunk


class MTPModule(nn.Module):
    """The parameters every layout shares: two input norms, a projection, one decoder layer, an output norm.

    `own_embedding` and `own_output` exist only where the checkpoint's copies differ from the trunk's.
    """

    def __init__(
        self,
        hidden_size: int,
        eps: float,
        block: nn.Module,
        own_embedding: bool,
        own_output: bool,
        vocab_size: int,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.embedding_norm = nn.RMSNorm(hidden_size, eps=eps)
        self.hidden_norm = nn.RMSNorm(hidden_size, eps=eps)
        self.projection = nn.Linear(2 * hidden_size, hidden_size, bias=False)
        self.block = block
        self.output_norm = nn.RMSNorm(hidden_size, eps=eps)
        if own_embedding:
            self.own_embedding = nn.Embedding(vocab_size, hidden_size)
        if own_output:
            self.own_output = nn.Linear(hidden_size, vocab_size, bias=False)


class HeadStep(NamedTuple):
    """`output` [1, T, H] gives the logits, `recycled` [1, T, H] is what the next depth is fed."""

    output: mx.array
    recycled: mx.array


class Head:
    """One MTP layer over the trunk's embedding and output head, reused at every depth.

    Row alignment: the trunk's hidden at position i goes with token i+1 and predicts token i+2.
    """

    def __init__(self, module: MTPModule, trunk: Trunk, wiring: Wiring) -> None:
        self.module = module
        self.wiring = wiring
        self._trunk = trunk
        self._leave = tail_of(module.block, module.output_norm)
        self._compiled: tuple[Tail, Tail] | None = None

    def prepare_for_cpu(self, *, with_few_rows: bool) -> None:
        """Compile what surrounds attention and, `with_few_rows`, read the weights once a product.

        Call it when all weights are in place.
        """
        if with_few_rows:
            install_few_rows(self.module)
        # Weights are inputs, not constants, so that a changed weight is seen.
        state = [self.module.state]
        self._compiled = (
            mx.compile(self._enter, inputs=state),
            mx.compile(self._leave, inputs=state),
        )

    def make_caches(self, *, kv_bits: int | None = None) -> CacheSet:
        """An empty cache for the head's attention layer."""
        return self._trunk.make_attention_cache(kv_bits=kv_bits)

    def feed(self, hidden: Hidden) -> mx.array:
        """The trunk hidden that the head was trained on, [1, T, H]."""
        return hidden.before_norm if self.wiring.feed == "pre" else hidden.after_norm

    def step(self, hidden: mx.array, tokens: mx.array, caches: CacheSet) -> HeadStep:
        """T rows: `hidden` [1, T, H] with the embeddings of `tokens` [1, T]."""
        block, cache = self.module.block, caches[0]
        embedding = self._embed(tokens)
        if self.wiring.mask_position0 and cache.offset == 0:
            embedding = mx.concatenate([mx.zeros_like(embedding[:, :1]), embedding[:, 1:]], axis=1)
        parts: tuple[Tail, Tail] = (self._enter, self._leave)
        if self._compiled is not None and tokens.shape[1] <= MAX_ROWS:
            parts = self._compiled
        enter, leave = parts
        x, normed = enter(embedding, hidden)
        mask = create_attention_mask(x, cache, return_array=self._trunk.needs_array_mask)
        x, output = leave(x, block.self_attn(normed, mask, cache))
        return HeadStep(output, output if self.wiring.recycle == "post" else x)

    def _enter(self, embedding: mx.array, hidden: mx.array) -> tuple[mx.array, mx.array]:
        """The projected pair, and the same normed for attention."""
        module = self.module
        e, h = module.embedding_norm(embedding), module.hidden_norm(hidden)
        pair = [e, h] if self.wiring.concat == "embedding_hidden" else [h, e]
        x = module.projection(mx.concatenate(pair, axis=-1))
        return x, module.block.input_layernorm(x)

    def logits(self, output: mx.array) -> mx.array:
        """[1, T, H] to [1, T, V]."""
        if "own_output" in self.module:
            logits: mx.array = self.module.own_output(output)
            return logits
        return self._trunk.logits(output)

    def _embed(self, tokens: mx.array) -> mx.array:
        if "own_embedding" in self.module:
            embedding: mx.array = self.module.own_embedding(tokens)
            return embedding
        return self._trunk.embed(tokens)
