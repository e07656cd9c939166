"""The seam between drafting and committing: which drafts stay and what follows them."""

from typing import Protocol

import mlx.core as mx

from mtplx.contracts.errors import InvalidRequestError
from mtplx.runtime.sampling.block import Block
from mtplx.runtime.sampling.coupled import Coupled, Greedy
from mtplx.runtime.sampling.noise import Noise
from mtplx.runtime.sampling.params import SamplingParams
from mtplx.runtime.sampling.rejection import Rejection
from mtplx.runtime.sampling.verdict import DraftScores, Verdict

__all__ = ["ACCEPTANCE_NAMES", "Acceptance", "DraftScores", "Verdict", "make_acceptance"]

_LAWS: dict[str, type[Coupled] | type[Rejection] | type[Block]] = {
    law.name: law for law in (Coupled, Rejection, Block)
}

ACCEPTANCE_NAMES: tuple[str, ...] = tuple(_LAWS)
"""Names `make_acceptance` knows; the first is the default."""


class Acceptance(Protocol):
    """A law of acceptance. What it emits follows the target's processed law exactly.

    One object serves one request, round by round: `propose` for each draft in turn, then one
    `accept`. Scores come from `SamplingPipeline.scores`. Nothing is evaluated in either call.
    """

    @property
    def name(self) -> str:
        """The name the law was asked for by."""

    def propose(self, scores: mx.array, position: int) -> mx.array:
        """The draft for absolute `position`  # [1, V] -> [] int32."""

    def accept(self, target: mx.array, draft: DraftScores, drafts: mx.array, first: int) -> Verdict:
        """Judge k drafts; with k = 0 this is a step of plain decoding.

        `target`  # [k + 1, V], row 0 predicts absolute position `first`; `draft`  # [k, V] or k
        rows [1, V], the scores the drafts were proposed from; `drafts`  # int32 [k]. `first` must
        grow from round to round.
        """


def make_acceptance(name: str, params: SamplingParams, noise: Noise) -> Acceptance:
    """The law called `name` for one request; at temperature 0 all are the argmax match.

    Raises InvalidRequestError for a name that is not in ACCEPTANCE_NAMES.
    """
    if name not in _LAWS:
        raise InvalidRequestError(
            f"acceptance is {name!r}; expected one of {', '.join(ACCEPTANCE_NAMES)}.",
            key="acceptance",
        )
    return Greedy(name) if params.is_greedy else _LAWS[name](noise)
