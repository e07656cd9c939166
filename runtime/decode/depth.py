"""How many tokens to draft in the next round."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

MAX_DEPTH = 8

_PRIOR_ACCEPTANCE = 0.7
_PRIOR_ROUNDS = 4.0
_DECAY = 0.97
_PROBE_EVERY = 32


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured costs in units of one plain step.

    `rows[m - 1]` is v(m), a forward over m rows; `draft` is c, one draft step; `overhead` is o, what a round costs
    beside its forwards. `step_seconds` is the unit.
    """

    rows: tuple[float, ...]
    draft: float
    overhead: float
    step_seconds: float

    def round(self, depth: int) -> float:
        """Cost of a round at `depth`; plain decoding is 1 + o."""
        return self.rows[depth] + depth * self.draft + self.overhead


class DepthPolicy(Protocol):
    """Chooses the depth of each round and learns from what became of it."""

    def next_depth(self) -> int:
        """Depth of the next round, before it is clipped to the room left."""

    def record(self, drafted: int, accepted: int) -> None:
        """Tell what the last round accepted."""


@dataclass(frozen=True, slots=True)
class FixedDepth:
    """The same depth every round; 0 is plain decoding."""

    depth: int

    def next_depth(self) -> int:
        """The fixed depth."""
        return self.depth

    def record(self, drafted: int, accepted: int) -> None:
        """Nothing to learn."""


@dataclass(slots=True)
class AdaptiveDepth:
    """The marginal rule: draft one deeper while that raises tokens per unit of time.

    With A_d the chance that the first d drafts are all accepted, S(D) = (1 + A_1 + ... + A_D) / cost(D); depth D + 1
    pays when A_{D+1} > S(D) * (cost(D+1) - cost(D)). Acceptance by position is a decayed average of what was seen,
    which begins with a few imagined drafts of the position before; costs are measured. When plain decoding wins, a
    draft is tried now and then, so that a text that becomes predictable is noticed.
    """

    costs: Costs
    max_depth: int
    _tries: list[float] = field(init=False)
    _hits: list[float] = field(init=False)
    _imagined: list[float] = field(init=False)
    _since_probe: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.max_depth = min(self.max_depth, len(self.costs.rows) - 1)
        self._tries = [0.0] * self.max_depth
        self._hits = [0.0] * self.max_depth
        self._imagined = [_PRIOR_ROUNDS] * self.max_depth

    def next_depth(self) -> int:
        """The depth where the marginal rule stops."""
        depth = self.best_depth()
        if depth == 0 and self.max_depth > 0:
            self._since_probe += 1
            if self._since_probe >= _PROBE_EVERY:
                self._since_probe = 0
                return 1
        return depth

    def best_depth(self) -> int:
        """The marginal rule over the present estimates."""
        expected, reach, depth = 1.0, 1.0, 0
        for acceptance in self.acceptance():
            reach *= acceptance
            speed = expected / self.costs.round(depth)
            extra = self.costs.round(depth + 1) - self.costs.round(depth)
            if reach <= speed * extra:
                break
            expected += reach
            depth += 1
        return depth

    def acceptance(self) -> list[float]:
        """Chance that draft d is accepted given that all before it were, for d = 1 to the deepest."""
        estimates: list[float] = []
        prior = _PRIOR_ACCEPTANCE
        for tries, hits, imagined in zip(self._tries, self._hits, self._imagined, strict=True):
            prior = (hits + imagined * prior) / (tries + imagined)
            estimates.append(prior)
        return estimates

    def record(self, drafted: int, accepted: int) -> None:
        """Count every draft whose predecessors were accepted."""
        for d in range(min(drafted, accepted + 1)):
            self._tries[d] = self._tries[d] * _DECAY + 1.0
            self._hits[d] = self._hits[d] * _DECAY + (1.0 if d < accepted else 0.0)
            self._imagined[d] *= _DECAY
