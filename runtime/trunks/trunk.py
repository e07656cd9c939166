"""The trunk: an mlx-lm model whose hidden states can be seen before and after the final norm."""

from __future__ import annotations

from typing import Any, NamedTuple

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.base import create_attention_mask, create_ssm_mask

from mtplx.contracts.errors import UnsupportedModelError
from mtplx.kernels.few_rows import few_rows
from mtplx.runtime.caches.composite import CacheSet, make_caches
from mtplx.runtime.trunks.few_rows import install_few_rows
from mtplx.runtime.trunks.tails import MAX_ROWS, Tail, compile_tails

# In order of preference; mlx-lm's own default comes first.
_KV_GROUP_SIZES = (64, 128, 32)


class Hidden(NamedTuple):
    """Hidden states of T rows, [1, T, H] each: the residual before the final norm, and the normed one."""

    before_norm: mx.array
    after_norm: mx.array


class Trunk:
    """Runs the layers of a loaded mlx-lm model, which stays as it is.

    Covers the models whose inner module has `embed_tokens`, `layers` and `norm`, with an `lm_head` or a tied
    embedding: plain attention, MLA, and hybrids of gated-delta and attention layers.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._outer = model.language_model if hasattr(model, "language_model") else model
        self._inner = self._outer.model
        self.args: Any = self._outer.args
        self.layers: list[nn.Module] = list(self._inner.layers)
        # mlx-lm's MLA adds rotary scores through the mask and needs it as an array.
        self.needs_array_mask = any(
            hasattr(getattr(layer, "self_attn", None), "kv_lora_rank") for layer in self.layers
        )
        self._is_recurrent = [bool(getattr(layer, "is_linear", False)) for layer in self.layers]
        self._tails: list[Tail] = []
        self._uses_few_rows = False

    def prepare_for_cpu(self, *, with_few_rows: bool) -> None:
        """Run rounds with compiled layer tails and, `with_few_rows`, products that read the weights once.

        Call it when all weights are in place.
        """
        if with_few_rows:
            install_few_rows(self.model)
            self._uses_few_rows = self._inner.embed_tokens.weight.dtype == mx.float32
        self._tails = compile_tails(self.layers, self._inner.norm)

    @property
    def hidden_size(self) -> int:
        """Width of the residual stream, H."""
        return int(self.args.hidden_size)

    @property
    def vocab_size(self) -> int:
        """Number of logits, V."""
        return int(self.args.vocab_size)

    @property
    def is_recurrent(self) -> bool:
        """Whether any layer keeps a recurrent state, which can't be cut back like a KV cache."""
        return any(self._is_recurrent)

    @property
    def attention_layer(self) -> nn.Module:
        """A layer with attention."""
        return self.layers[self._is_recurrent.index(False)]

    @property
    def has_quantized_vocabulary(self) -> bool:
        """Whether embedding or output head are quantised, so that they only nearly equal the published ones."""
        output = self._outer.lm_head if "lm_head" in self._outer else self._inner.embed_tokens
        return "scales" in output or "scales" in self._inner.embed_tokens

    def make_caches(self, *, kv_bits: int | None = None) -> CacheSet:
        """Empty caches, one a layer; `kv_bits` quantises those of plain attention.

        Raises:
            UnsupportedModelError: `kv_bits` was given and the model can't work with a quantised cache.
        """
        if kv_bits is None:
            return make_caches(self.model)
        width = getattr(self.args, "head_dim", None)
        width = width or self.hidden_size // self.args.num_attention_heads
        fitting = [size for size in _KV_GROUP_SIZES if width % size == 0]
        size = fitting[0] if fitting else _KV_GROUP_SIZES[0]
        caches = make_caches(self.model, kv_bits=kv_bits, kv_group_size=size)
        if not fitting:
            raise UnsupportedModelError(
                f"kv_bits was given, but the heads are {width} wide and a group of a quantised cache holds "
                f"{', '.join(map(str, _KV_GROUP_SIZES))} values",
                hint="Run it without kv_bits.",
            )
        return caches

    def make_attention_cache(self, *, kv_bits: int | None) -> CacheSet:
        """An empty cache for one more attention layer of the trunk's kind."""
        caches = self.make_caches(kv_bits=kv_bits)
        return CacheSet([caches[self._is_recurrent.index(False)]])

    def embed(self, tokens: mx.array) -> mx.array:
        """[1, T] token ids to [1, T, H]."""
        embedding: mx.array = self._inner.embed_tokens(tokens)
        return embedding

    def forward(self, tokens: mx.array, caches: CacheSet) -> Hidden:
        """One forward over T rows: `tokens` [1, T] appended to every cache."""
        x = self.embed(tokens)
        attention_mask = recurrent_mask = None
        if False in self._is_recurrent:
            first = caches[self._is_recurrent.index(False)]
            attention_mask = create_attention_mask(x, first, return_array=self.needs_array_mask)
        if True in self._is_recurrent:
            recurrent_mask = create_ssm_mask(x, caches[self._is_recurrent.index(True)])
        masks = [
            recurrent_mask if recurrent else attention_mask for recurrent in self._is_recurrent
        ]
        if self._tails and x.shape[1] <= MAX_ROWS:
            return self._forward_compiled(x, masks, caches)
        for layer, mask, cache in zip(self.layers, masks, caches, strict=True):
            x = layer(x, mask, cache)
        return Hidden(x, self._inner.norm(x))

    def _forward_compiled(self, x: mx.array, masks: list[Any], caches: CacheSet) -> Hidden:
        normed = self.layers[0].input_layernorm(x)
        for layer, recurrent, mask, cache, tail in zip(
            self.layers, self._is_recurrent, masks, caches, self._tails, strict=True
        ):
            mixer = layer.linear_attn if recurrent else layer.self_attn
            x, normed = tail(x, mixer(normed, mask, cache))
        return Hidden(x, normed)

    def logits(self, hidden: mx.array) -> mx.array:
        """Normed hidden [1, T, H] to logits [1, T, V]."""
        embedding = self._inner.embed_tokens
        logits: mx.array
        if "lm_head" in self._outer:
            logits = self._outer.lm_head(hidden)
        elif self._uses_few_rows:
            logits = few_rows(hidden, embedding.weight)
        else:
            logits = embedding.as_linear(hidden)
        return logits

    def output_rows(self, rows: mx.array) -> mx.array:
        """Rows [R] of the output matrix, [R, H]."""
        if "lm_head" not in self._outer:
            return self.embed(rows)
        layer = self._outer.lm_head
        weight: mx.array = layer.weight[rows]
        if "scales" not in layer:
            return weight
        biases = layer.get("biases")
        return mx.dequantize(
            weight,
            layer.scales[rows],
            None if biases is None else biases[rows],
            group_size=layer.group_size,
            bits=layer.bits,
            mode=layer.mode,
        )
