"""Coupled acceptance: draft and target decide with the same noise."""

import mlx.core as mx

from mtplx.runtime.sampling.noise import Noise
from mtplx.runtime.sampling.verdict import DraftScores, Verdict, choose, match


class Coupled:
    """Gumbel coupling (Daliri et al. 2408.07978).

    Both sides take argmax(log p + g) with g keyed by (seed, position, token id). A draft stays
    when the target chooses it too, and every emitted token is the target's own. So the text is a
    function of seed and target alone, whatever the depth or the drafter, and a draft stays with a
    chance between (1 - TV) / (1 + TV) and 1 - TV.
    """

    name = "coupled"

    def __init__(self, noise: Noise) -> None:
        self._noise = noise

    def propose(self, scores: mx.array, position: int) -> mx.array:
        """The draft for `position`  # log-probabilities [1, V] -> [] int32."""
        return choose(scores + self._noise.gumbel(position, 1))[0]

    def accept(self, target: mx.array, draft: DraftScores, drafts: mx.array, first: int) -> Verdict:  # noqa: ARG002
        """Judge drafts for the positions from `first` on; see `Acceptance.accept`."""
        return match(choose(target + self._noise.gumbel(first, target.shape[0])), drafts)


class Greedy:
    """Every law at temperature 0: a draft stays when it is the target's most likely token."""

    def __init__(self, name: str) -> None:
        self.name = name

    def propose(self, scores: mx.array, position: int) -> mx.array:  # noqa: ARG002
        """The most likely token  # [1, V] -> [] int32."""
        return choose(scores)[0]

    def accept(self, target: mx.array, draft: DraftScores, drafts: mx.array, first: int) -> Verdict:  # noqa: ARG002
        """Judge drafts by equality; see `Acceptance.accept`."""
        return match(choose(target), drafts)
