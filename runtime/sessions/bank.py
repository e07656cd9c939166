"""Prefixes of earlier conversations, kept in their caches so that nobody reads them twice."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mtplx.runtime.decode.state import DecodeState, Mark

# A mark of a recurrent model holds a whole state; more than these are not worth their bytes.
_MAX_MARKS = 6
# What is remembered of prefixes that were evicted, to tell them from prefixes never seen.
_MAX_EVICTED = 256

Ids = NDArray[np.int32]


class MissReason(StrEnum):
    """Why a prompt had to be read from its first token."""

    OFF = "off"
    NEW = "new_session"
    DIVERGED = "prefix_divergence"
    NO_SNAPSHOT = "no_snapshot_coverage"
    EVICTED = "evicted"
    OVERSIZED = "oversized"


class Taken(NamedTuple):
    """A state that holds a prefix of the prompt and marks in it, or why there is none."""

    state: DecodeState | None
    marks: tuple[Mark, ...] = ()
    miss: MissReason | None = None


@dataclass(slots=True)
class _Entry:
    """`stable` tokens at its beginning were sent by the client: what lies behind them can be had again for little."""

    key: str
    state: DecodeState
    ids: Ids
    marks: tuple[Mark, ...]
    stable: int
    used: int

    @property
    def nbytes(self) -> int:
        return self.state.nbytes + sum(mark.nbytes for mark in self.marks)


class _Point(NamedTuple):
    """A place in an entry that a prompt can go on from; `mark` None is its end."""

    size: int
    entry: _Entry
    mark: Mark | None


class PrefixBank:
    """Decode states by the tokens they hold, the least recently used going first when `max_bytes` are exceeded.

    For one model in one process: a state is found by its tokens (which the template and the content sent decide) and
    by a key that separates callers, by nothing else. A state whose caches can be cut serves every prefix of its
    tokens, others their marks. Tokens are compared as arrays, which is faster than walking a tree for as many states
    as fit a machine. Not for several threads at once.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.hits = 0
        self.misses: Counter[MissReason] = Counter()
        self.evictions = 0
        self._entries: list[_Entry] = []
        self._clock = count()
        self._gone: deque[tuple[str, Ids, MissReason]] = deque(maxlen=_MAX_EVICTED)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(entry.nbytes for entry in self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def take(self, key: str, prompt: Sequence[int]) -> Taken:
        """The state that holds most of `prompt`, never all of it. It belongs to the caller until it is put back.

        A state that would lose more than an answer is copied, and stays.
        """
        ids = np.asarray(prompt, dtype=np.int32)
        points = [self._point(entry, ids) for entry in self._entries if entry.key == key]
        best = max((p for p in points if p is not None and p.size > 0), key=_size, default=None)
        if best is None:
            return self._missed(key, ids)
        self.hits += 1
        entry, mark = best.entry, best.mark
        entry.used = next(self._clock)
        if mark is None:
            self._entries.remove(entry)
            end = entry.state.mark()
            marks = entry.marks if entry.state.is_divisible else (*entry.marks, end)
            return Taken(entry.state, marks)
        marks = tuple(other for other in entry.marks if other.size <= mark.size)
        # One token less, because a cut in front of the head's last row is one token short.
        if mark.size < entry.stable - 1:
            return Taken(entry.state.fork(mark), marks)
        self._entries.remove(entry)
        entry.state.cut(mark)
        return Taken(entry.state, marks)

    def put(self, key: str, state: DecodeState, marks: Sequence[Mark], stable: int) -> None:
        """Keep a state that is between two rounds. `stable` is how many of its tokens the client sent."""
        held = state.trunk_caches.committed
        if not held or not self.max_bytes:
            return
        ids = np.asarray(state.tokens[:held], dtype=np.int32)
        entry = _Entry(key, state, ids, _fewer(marks), min(stable, held), next(self._clock))
        if entry.nbytes > self.max_bytes:
            self._gone.append((key, ids, MissReason.OVERSIZED))
            return
        self._entries = [other for other in self._entries if not _covers(entry, other)]
        self._entries.append(entry)
        self.shed(self.nbytes - self.max_bytes)

    def shed(self, nbytes: int) -> int:
        """Give up the least recently used states until `nbytes` are free; returns how many are."""
        freed = 0
        while freed < nbytes and self._entries:
            oldest = min(self._entries, key=lambda entry: entry.used)
            self._entries.remove(oldest)
            freed += oldest.nbytes
            self.evictions += 1
            self._gone.append((oldest.key, oldest.ids, MissReason.EVICTED))
        return freed

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self._gone.clear()

    def to_json(self) -> dict[str, Any]:
        """Counts and sizes."""
        return {
            "entries": len(self._entries),
            "bytes": self.nbytes,
            "max_bytes": self.max_bytes,
            "tokens": sum(len(entry.ids) for entry in self._entries),
            "hits": self.hits,
            "misses": {reason.value: self.misses[reason] for reason in MissReason},
            "evictions": self.evictions,
        }

    def _point(self, entry: _Entry, ids: Ids) -> _Point | None:
        """The farthest point of `entry` from which `ids` can go on."""
        limit = min(shared_length(entry.ids, ids), len(ids) - 1)
        if len(entry.ids) <= limit:
            return _Point(len(entry.ids), entry, None)
        if entry.state.is_divisible:
            mark = entry.state.mark_at(limit)
            return _Point(mark.size, entry, mark)
        reached = [mark for mark in entry.marks if mark.size <= limit]
        best = max(reached, key=lambda mark: mark.size, default=None)
        return None if best is None else _Point(best.size, entry, best)

    def _missed(self, key: str, ids: Ids) -> Taken:
        reason = self._reason(key, ids)
        self.misses[reason] += 1
        return Taken(None, (), reason)

    def _reason(self, key: str, ids: Ids) -> MissReason:
        if not self.max_bytes:
            return MissReason.OFF
        # Every prompt of a model begins alike, so few equal tokens are no sign of a conversation that went on.
        near = max(len(ids) // 2, 1)
        for other, gone, reason in reversed(self._gone):
            if other == key and shared_length(gone, ids) >= near:
                return reason
        same = [entry for entry in self._entries if entry.key == key]
        if not same:
            return MissReason.NEW
        longest = max(shared_length(entry.ids, ids) for entry in same)
        return MissReason.NO_SNAPSHOT if longest >= near else MissReason.DIVERGED


def shared_length(left: Ids, right: Ids) -> int:
    """How many tokens both begin with."""
    length = min(len(left), len(right))
    unequal = left[:length] != right[:length]
    return int(unequal.argmax()) if unequal.any() else length


def _size(point: _Point) -> int:
    return point.size


def _fewer(marks: Sequence[Mark]) -> tuple[Mark, ...]:
    """The first mark, which most conversations share, and the last ones."""
    by_size = sorted({mark.size: mark for mark in marks}.values(), key=lambda mark: mark.size)
    if len(by_size) <= _MAX_MARKS:
        return tuple(by_size)
    return (by_size[0], *by_size[1 - _MAX_MARKS :])


def _covers(entry: _Entry, other: _Entry) -> bool:
    """Whether `entry` can do all that `other` can."""
    if entry.key != other.key or shared_length(entry.ids, other.ids) < len(other.ids):
        return False
    sizes = {mark.size for mark in entry.marks} | {len(entry.ids)}
    wanted = {mark.size for mark in other.marks} | {len(other.ids)}
    return entry.state.is_divisible or wanted <= sizes
