"""The caches of a whole model, which move together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from mlx_lm.models import cache as mlx_caches

from mtplx.contracts.errors import InternalError, UnsupportedModelError
from mtplx.runtime.caches.base import Cache, Snapshot, check_restorable
from mtplx.runtime.caches.kv import KVCache
from mtplx.runtime.caches.quantized import QuantizedKVCache
from mtplx.runtime.caches.recurrent import RecurrentCache
from mtplx.runtime.caches.rotating import RotatingKVCache

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import mlx.core as mx
    import mlx.nn as nn


class CacheSet:
    """Several caches that take the same rows: a model's layers, or the parts of one layer.

    A commit is checked on every member before any member changes.
    """

    kind = "set"

    def __init__(self, caches: Sequence[Cache]) -> None:
        self._caches = list(caches)
        if not self._caches:
            raise InternalError("a cache set needs at least one cache")

    def __getitem__(self, index: int) -> Any:
        return self._caches[index]

    def __len__(self) -> int:
        return len(self._caches)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._caches)

    @property
    def offset(self) -> int:
        """Rows appended so far and not forgotten."""
        return self._caches[0].offset

    @property
    def committed(self) -> int:
        """Rows that are final."""
        return self._caches[0].committed

    @property
    def nbytes(self) -> int:
        """Bytes held by all members."""
        return sum(c.nbytes for c in self._caches)

    @property
    def is_divisible(self) -> bool:
        """Whether every member can return to any number of committed rows."""
        return all(c.is_divisible for c in self._caches)

    def size(self) -> int:
        """Rows held."""
        return self.offset

    def empty(self) -> bool:
        """Whether no row is held."""
        return self.offset == 0

    def arm(self) -> None:
        """Let the next append be kept in part."""
        for cache in self._caches:
            cache.arm()

    def check_commit(self, rows: int) -> None:
        """Raise InternalError when a member could not commit `rows`."""
        for cache in self._caches:
            cache.check_commit(rows)

    def commit(self, rows: int) -> None:
        """Keep the first `rows` rows appended since the last commit, in every member or none."""
        self.check_commit(rows)
        for cache in self._caches:
            cache.commit(rows)

    def rollback(self) -> None:
        """Forget every row appended since the last commit."""
        self.commit(0)

    def check(self) -> None:
        """Raise InternalError when a member is unsound or members differ in rows."""
        for cache in self._caches:
            cache.check()
        counts = [(c.offset, c.committed) for c in self._caches]
        if len(set(counts)) != 1:
            raise InternalError(f"caches disagree on (rows, committed rows): {counts}")

    def snapshot(self) -> Snapshot:
        """Copy the committed content of every member."""
        return Snapshot(self.kind, self.committed, parts=tuple(c.snapshot() for c in self._caches))

    def restore(self, snapshot: Snapshot) -> None:
        """Become what `snapshot` was taken from; no member changes when one can't."""
        self.check_restore(snapshot)
        for cache, part in zip(self._caches, snapshot.parts, strict=True):
            cache.restore(part)

    def check_restore(self, snapshot: Snapshot) -> None:
        """Raise InternalError when a member can't be restored from its part of `snapshot`."""
        check_restorable(self.kind, snapshot, parts=len(self._caches))
        for cache, part in zip(self._caches, snapshot.parts, strict=True):
            cache.check_restore(part)

    def mark(self, rows: int | None = None) -> Snapshot:
        """A point that all members can be cut to, after `rows` rows or all."""
        parts = tuple(c.mark(rows) for c in self._caches)
        return Snapshot(self.kind, self.committed if rows is None else rows, parts=parts)

    def cut(self, mark: Snapshot) -> None:
        """Return to a mark of this set."""
        check_restorable(self.kind, mark, parts=len(self._caches))
        for cache, part in zip(self._caches, mark.parts, strict=True):
            cache.cut(part)

    def fork(self, mark: Snapshot) -> Self:
        """Another set, as this one was at the mark."""
        check_restorable(self.kind, mark, parts=len(self._caches))
        pairs = zip(self._caches, mark.parts, strict=True)
        return type(self)([cache.fork(part) for cache, part in pairs])

    def arrays(self) -> Iterator[mx.array]:
        """The arrays held, for `mx.eval`."""
        return (array for cache in self._caches for array in cache.arrays())

    @property
    def state(self) -> list[mx.array]:
        """The arrays held, under mlx-lm's name."""
        return list(self.arrays())


def make_caches(
    model: nn.Module, *, kv_bits: int | None = None, kv_group_size: int = 64
) -> CacheSet:
    """Empty caches for every layer of a loaded mlx-lm model.

    `kv_bits` quantises the layers with plain full attention; sliding-window and recurrent layers
    stay as they are.

    Raises:
        UnsupportedModelError: the model wants a kind of cache that isn't known here, or `kv_bits`
        was given and the model has no layer that can read a quantised cache. InvalidRequestError:
        `kv_bits` or `kv_group_size` is not a value MLX can quantise with.
    """
    stock = mlx_caches.make_prompt_cache(model)
    caches = [_from_stock(c) for c in stock]
    if kv_bits is None:
        return CacheSet(caches)
    _check_quantizable(model, caches)
    return CacheSet(
        [
            QuantizedKVCache(bits=kv_bits, group_size=kv_group_size)
            if isinstance(c, KVCache)
            else c
            for c in caches
        ]
    )


def _from_stock(stock: Any) -> Cache:
    kind = type(stock)
    if kind is mlx_caches.KVCache:
        return KVCache()
    if kind is mlx_caches.RotatingKVCache and stock.keep == 0:
        return RotatingKVCache(stock.max_size)
    if kind is mlx_caches.ArraysCache:
        return RecurrentCache(len(stock.cache))
    if kind is mlx_caches.CacheList:
        return CacheSet([_from_stock(c) for c in stock.caches])
    raise UnsupportedModelError(
        f"this model keeps state in mlx-lm's {kind.__name__}, which can't be rolled back here",
        hint="Known are KVCache, RotatingKVCache (keep=0), ArraysCache and CacheList.",
    )


def _check_quantizable(model: nn.Module, caches: Sequence[Cache]) -> None:
    """Raise UnsupportedModelError when this model's attention can't read a quantised cache."""
    for _, module in model.named_modules():
        if hasattr(module, "kv_lora_rank"):
            reason = "its latent attention reads the cache unquantised"
            break
        if "sinks" in module:
            reason = "its attention sinks don't work with a quantised cache"
            break
    else:
        if any(isinstance(c, KVCache) for c in caches):
            return
        reason = "no layer has plain full attention"
    raise UnsupportedModelError(
        f"kv_bits was given, but the KV cache of this model can't be quantised: {reason}",
        hint="Run it without kv_bits.",
    )
