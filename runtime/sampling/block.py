"""Block acceptance: the whole block of drafts is weighed jointly."""

from typing import NamedTuple

import mlx.core as mx

from mtplx.runtime.sampling.noise import Noise
from mtplx.runtime.sampling.residual import DraftSampler, log_ratios, next_weights
from mtplx.runtime.sampling.verdict import DraftScores, Verdict, check_rows, draft_rows


class BlockChances(NamedTuple):
    """The two sequences of Sun et al. 2403.10444, algorithm 2."""

    joint: mx.array
    """p_0 .. p_k  # [k + 1]"""

    stay: mx.array
    """h_1 .. h_k  # [k]"""


class Block:
    """Block verification (Sun et al. 2403.10444, algorithm 2).

    Prefix X^i of the drafts passes its own test with chance h_i, and the longest prefix that
    passes stays. Exact like `Rejection`, and accepts at least as many tokens on average.
    `laws.block_outcome` states it on plain numbers.
    """

    name = "block"

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
        chances = block_chances(target, rows, drafts)
        passed = self._sampler.uniforms(first, num_drafts) < chances.stay
        accepted = mx.max(passed * mx.arange(1, num_drafts + 1))
        weights = next_weights(target, rows, accepted, chances.joint[:-1])
        return Verdict(accepted, self._sampler.finish(weights, first))


def block_chances(target: mx.array, draft: mx.array, drafts: mx.array) -> BlockChances:
    """p and h of the block  # [k + 1, V], [k, V], [k], log-probabilities."""
    log_joint = _log_joint(log_ratios(target, draft, drafts))
    joint = mx.exp(log_joint)
    inner = joint[1:-1]
    gains = inner[:, None] * mx.exp(target[1:-1]) - mx.exp(draft[1:])
    mass = mx.maximum(gains, 0.0).sum(axis=-1)
    below = mass - mx.expm1(log_joint[1:-1])
    # Both are 0 when p_i = 1 and the laws agree; whatever follows is then accepted anyway.
    stay = mx.where(below > 0, mass / mx.maximum(below, 1e-38), 1.0)
    return BlockChances(joint, mx.concatenate([stay, joint[-1:]]))


def _log_joint(ratios: mx.array) -> mx.array:
    """log p_0 .. log p_k, where p_i = min(p_{i-1} * ratio_i, 1)  # [k] -> [k + 1]."""
    steps = [mx.zeros((1,))]
    for i in range(ratios.shape[0]):
        steps.append(mx.minimum(steps[-1] + ratios[i : i + 1], 0.0))
    return mx.concatenate(steps)
