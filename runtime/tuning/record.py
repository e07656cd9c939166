"""What tuning found for one model under one set of conditions, as the store keeps it."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from mtplx.runtime.tuning.conditions import Conditions
from mtplx.runtime.tuning.statistics import Gain

if TYPE_CHECKING:
    from mtplx.runtime.decode.depth import Costs

Depth = int | Literal["auto"]

# `decode.depth.MAX_DEPTH`, whose package cannot be imported without mlx.
DEEPEST = 8

_Depth = Annotated[int, Field(ge=0, le=DEEPEST)] | Literal["auto"]
_Positive = Annotated[float, Field(gt=0)]
_Share = Annotated[float, Field(ge=0, le=1)]


class _Kept(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Spread(_Kept):
    """A median, of several domains their mean, and its bootstrap interval."""

    median: _Positive
    low: _Positive
    high: _Positive

    @classmethod
    def of(cls, found: Gain) -> Self:
        """The same as a part of a record."""
        return cls(median=found.median, low=found.low, high=found.high)


class DepthRow(_Kept):
    """One way of decoding; depth 0 is plain.

    `tok_s` counts tokens a second, `gain` is over plain decoding, paired by round, and None for plain itself; both are
    means over domains of medians. `acceptance` is the share of the drafts of each depth that stayed, over all domains.
    `was_dropped` says that it was left out of later rounds: it was clearly slower, or the time did not hold it.
    """

    depth: _Depth
    rounds: int
    tok_s: Spread
    gain: Spread | None
    acceptance: tuple[_Share, ...]
    acceptance_by_domain: dict[str, tuple[_Share, ...]]
    was_dropped: bool
    text_equals_plain: bool


class KnownCosts(_Kept):
    """v by rows, c and o in units of one plain step, and the seconds of that step."""

    v: Annotated[tuple[_Positive, ...], Field(min_length=1)]
    c: Annotated[float, Field(ge=0)]
    o: Annotated[float, Field(ge=0)]
    step_seconds: _Positive

    def to_costs(self) -> Costs:
        """As the adaptive policy takes them."""
        from mtplx.runtime.decode.depth import Costs

        return Costs(self.v, self.c, self.o, self.step_seconds)


class TuningRecord(_Kept):
    """The depth to use, why, and all that was measured.

    `confidence` is that of the intervals. `is_decided` is False where the
    time ran out before every depth was told apart from the best.
    """

    identity: str
    model: str
    time: AwareDatetime
    conditions: Conditions
    depth: _Depth
    reason: str
    is_decided: bool
    rounds: int
    confidence: _Share
    tokens: int
    domains: tuple[str, ...]
    rows: tuple[DepthRow, ...]
    costs: KnownCosts

    @property
    def summary(self) -> str:
        """The depth and why, in one sentence."""
        return f"plain decoding: {self.reason}" if self.depth == 0 else self.reason

    @property
    def key(self) -> str:
        """Under which the store keeps it: one for a model under conditions."""
        text = json.dumps([self.identity, self.conditions], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def depth_name(depth: Depth) -> str:
    """What to call a way of decoding."""
    return {0: "plain", "auto": "auto"}.get(depth, f"depth {depth}")
