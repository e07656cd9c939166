"""Rejection acceptance: each draft is weighed by its own two probabilities."""

import mlx.core as mx

from mtplx.runtime.sampling.noise import Noise
from mtplx.runtime.sampling.residual import DraftSampler, log_ratios, next_weights
from mtplx.runtime.sampling.verdict import DraftScores, Verdict, check_rows, draft_rows, leading


class Rejection:
    """Speculative sampling (Leviathan et al. 2211.17192, Chen et al. 2302.01318).

    Draft i stays with chance min(1, M_b / M_s); the first that fails is replaced by a draw from
    the normalised max(M_b - M_s, 0). The emitted tokens follow the target's law exactly, as long
    as the draft was drawn from the law that is reported here. `laws.rejection_outcome` states it
    on plain numbers.
    """

    name = "rejection"

    def __init__(self, noise: Noise) -> None:
        self._sampler = DraftSampler(noise)

    def propose(self, scores: mx.array, position: int) -> mx.array:
        """Draw the draft for `position`  # log-probabilities [1, V] -> [] int32."""
        return self._sampler.propose(scores, position)

    def accept(self, target: mx.array, draft: DraftScores, drafts: mx.array, first: int) -> Verdict:
        """Judge drafts for the positions from `first` on; see `Acceptance.accept`."""
        num_drafts = check_rows(target, drafts)
        if num_drafts == 0:
            token = self._sampler.finish(mx.exp(target[0]), first)
            return Verdict(mx.array(0, dtype=mx.int32), token)
        rows = draft_rows(draft, num_drafts)
        chances = stay_chances(target, rows, drafts)
        accepted = leading(self._sampler.uniforms(first, num_drafts) < chances)
        weights = next_weights(target, rows, accepted, mx.ones((num_drafts,)))
        return Verdict(accepted, self._sampler.finish(weights, first))


def stay_chances(target: mx.array, draft: mx.array, drafts: mx.array) -> mx.array:
    """min(1, M_b / M_s) of each draft  # [k + 1, V], [k, V], [k] -> [k]."""
    return mx.exp(mx.minimum(log_ratios(target, draft, drafts), 0.0))
