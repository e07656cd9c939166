"""What a round needs and never changes: trunk, head, sampling pipeline and acceptance law."""

from __future__ import annotations

from dataclasses import dataclass

from mtplx.runtime.heads.head import Head
from mtplx.runtime.sampling.acceptance import Acceptance
from mtplx.runtime.sampling.constraint import Constraint
from mtplx.runtime.sampling.history import TokenHistory
from mtplx.runtime.sampling.pipeline import SamplingPipeline
from mtplx.runtime.trunks.trunk import Trunk


@dataclass(frozen=True, slots=True)
class Engine:
    """The parts of one request. `head` is None for plain decoding, `history` None when no penalty needs it.

    `logprobs` is how many of the likeliest tokens are reported for each emitted one, None for no report at all.
    """

    trunk: Trunk
    head: Head | None
    pipeline: SamplingPipeline
    acceptance: Acceptance
    history: TokenHistory | None
    constraint: Constraint | None = None
    logprobs: int | None = None
