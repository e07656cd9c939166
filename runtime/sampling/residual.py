"""Sampling the token after the accepted drafts, for the laws that weigh p against q."""

import mlx.core as mx

from mtplx.runtime.sampling.noise import Noise
from mtplx.runtime.sampling.verdict import choose


class DraftSampler:
    """Draws drafts from the drafter's own law, with noise that each round uses once.

    A block test looks at all drafts, so what it decides says something about the noise of the
    drafts it drops. Their positions are drafted again in the next round, from fresh noise.
    """

    def __init__(self, noise: Noise) -> None:
        self._noise = noise
        self._round = 0
        self._fork = noise.fork(0)

    def propose(self, scores: mx.array, position: int) -> mx.array:
        """Draw the draft for `position` from log-probabilities  # [1, V] -> [] int32."""
        return choose(scores[0] + self._fork.gumbel(position, 1)[0])

    def uniforms(self, first: int, num_drafts: int) -> mx.array:
        """The numbers that this round's drafts are tested against, float32  # [k]."""
        return self._fork.uniform(first, num_drafts)

    def finish(self, weights: mx.array, first: int) -> mx.array:
        """Draw the round's last token by `weights`  # [V] -> [] int32, and begin a new round.

        A round that begins at `first` is the only one to do so: this noise is used once.
        """
        self._round += 1
        self._fork = self._noise.fork(self._round)
        return choose(mx.log(weights) + self._noise.gumbel(first, 1)[0])


def log_ratios(target: mx.array, draft: mx.array, drafts: mx.array) -> mx.array:
    """log(M_b / M_s) of each draft  # [k + 1, V], [k, V], [k] -> [k]."""
    ids = drafts[:, None]
    ratios = mx.take_along_axis(target[:-1], ids, axis=-1) - mx.take_along_axis(draft, ids, axis=-1)
    return ratios[:, 0]


def next_weights(
    target: mx.array, draft: mx.array, accepted: mx.array, scales: mx.array
) -> mx.array:
    """Weights of the token that follows `accepted` drafts, not normalised  # -> [V].

    max(scale * M_b - M_s, 0) after a rejection, M_b when all drafts stay. `target`  # [k + 1, V],
    `draft`  # [k, V], `scales`  # [k]: the factor on M_b for each number of accepted drafts.
    """
    num_drafts = draft.shape[0]
    last = mx.minimum(accepted, num_drafts - 1)
    wanted = mx.exp(mx.take(target, accepted, axis=0))
    spent = mx.exp(mx.take(draft, last, axis=0)) * (accepted < num_drafts)
    scale = mx.where(accepted < num_drafts, mx.take(scales, last), 1.0)
    rest = mx.maximum(scale * wanted - spent, 0.0)
    # Two laws that differ by rounding alone can reject and leave nothing to draw from.
    return mx.where(mx.any(rest > 0), rest, wanted)
