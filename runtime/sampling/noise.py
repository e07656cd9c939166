"""Random numbers that depend on the seed and the place they are used at, and on nothing else."""

from enum import IntEnum
from hashlib import blake2b
from struct import pack

import mlx.core as mx

from mtplx.contracts.errors import InvalidRequestError

MAX_SEED = 2**64 - 1

_KEPT_ROWS = 16
_SMALLEST_UNIFORM = 2.0**-33


class Stream(IntEnum):
    """Independent streams of noise at one position."""

    TOKEN = 0
    ACCEPT = 1
    FORK = 2


class Noise:
    """Noise of one request, keyed by (seed, position, token id) and a stream.

    A row is the same in whatever call it is asked for, so it is also the same at every depth,
    for every drafter and in every batch. Raises InvalidRequestError for a seed outside 64 bits.
    """

    def __init__(self, seed: int, vocab_size: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED:
            raise InvalidRequestError(
                f"seed is {seed!r}; expected a whole number from 0 to {MAX_SEED}.", key="seed"
            )
        self.seed = seed
        self.vocab_size = vocab_size
        self._rows: dict[tuple[int, int], mx.array] = {}

    def gumbel(self, first: int, rows: int, stream: Stream = Stream.TOKEN) -> mx.array:
        """Standard Gumbel noise for the positions from `first` on, float32  # [rows, V]."""
        return mx.stack([self._row(position, stream) for position in range(first, first + rows)])

    def uniform(self, first: int, rows: int, stream: Stream = Stream.ACCEPT) -> mx.array:
        """One number in [0, 1) for each position from `first` on, float32  # [rows]."""
        # 24 bits are what float32 holds exactly: no number is rounded up to 1.
        bits = (self._bits(position, stream) >> 40 for position in range(first, first + rows))
        return mx.array([value / 2**24 for value in bits], dtype=mx.float32)

    def fork(self, index: int) -> "Noise":
        """Noise independent of this one and of every other fork."""
        return Noise(self._bits(index, Stream.FORK), self.vocab_size)

    def _row(self, position: int, stream: Stream) -> mx.array:
        """The Gumbel row of one position  # [V], kept since a draft and its check both read it."""
        key = (position, int(stream))
        if key not in self._rows:
            self._rows[key] = self._gumbel_row(position, stream)
        row = self._rows[key]
        while len(self._rows) > _KEPT_ROWS:
            del self._rows[next(iter(self._rows))]
        return row

    def _gumbel_row(self, position: int, stream: Stream) -> mx.array:
        bits = self._bits(position, stream)
        key = mx.array([bits >> 32, bits & 0xFFFFFFFF], dtype=mx.uint32)
        uniform = mx.random.uniform(shape=(self.vocab_size,), key=key)
        # The token with the smallest exponential wins, and float32 is fine near 0 and coarse
        # near 1: -log1p(-u) resolves the small exponentials 256 times finer than -log(u).
        exponential = -mx.log1p(-mx.maximum(uniform, _SMALLEST_UNIFORM))
        return -mx.log(exponential)

    def _bits(self, position: int, stream: Stream) -> int:
        """64 bits for one position of one stream."""
        block = pack("<QqQ", self.seed, position, stream)
        return int.from_bytes(blake2b(block, digest_size=8).digest(), "little")
