"""How the requests of a server share the model: which are admitted, and which wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mtplx.contracts.errors import InvalidRequestError
from mtplx.runtime.scheduler.modes import SchedulerMode

Decision = Literal["run", "wait", "refuse"]


@dataclass(frozen=True, slots=True)
class Lane:
    """Admission of one scheduler mode: `waiting` requests may queue behind the one that runs.

    `uses_bank` says whether prefixes are kept; `policy` explains the mode to users.
    """

    mode: SchedulerMode
    policy: str
    waiting: int
    uses_bank: bool = True

    def decide(self, *, is_busy: bool, queued: int) -> Decision:
        """What becomes of one more request."""
        if not is_busy and not queued:
            return "run"
        return "wait" if queued < self.waiting else "refuse"


def make_lane(mode: SchedulerMode, queue_size: int) -> Lane:
    """The lane of `mode`; `queue_size` counts for `serial` only.

    Raises:
        InvalidRequestError: this version has no such lane.
    """
    if mode is SchedulerMode.SERIAL:
        policy = f"one request at a time in the order they came, up to {queue_size} waiting"
        return Lane(mode, policy, queue_size)
    if mode is SchedulerMode.HYPER:
        return Lane(mode, "one request has the whole machine, others are refused with 429", 0)
    if mode is SchedulerMode.SOLO_MTP:
        policy = "one request, no queue and no prefix reuse: nothing but decoding is measured"
        return Lane(mode, policy, 0, uses_bank=False)
    available = ", ".join(AVAILABLE_MODES)
    raise InvalidRequestError(
        f"scheduler_mode {mode.value} is not available in this version; available are {available}",
        key="scheduler_mode",
        hint="choose one of these",
    )


AVAILABLE_MODES = (SchedulerMode.SERIAL, SchedulerMode.SOLO_MTP, SchedulerMode.HYPER)
