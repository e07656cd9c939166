"""The committed tokens of a request, as the counters that penalties read."""

from collections.abc import Sequence

import mlx.core as mx

from mtplx.contracts.errors import InvalidRequestError


class TokenHistory:
    """Counts of committed tokens. Drafts never enter: they are passed to the pipeline instead.

    The repetition penalty reads prompt and completion, presence and frequency the completion.
    """

    def __init__(self, vocab_size: int, prompt_ids: Sequence[int]) -> None:
        self.vocab_size = vocab_size
        self._completion = mx.zeros((vocab_size,), dtype=mx.float32)
        self._all = self._counted(self._completion, prompt_ids)

    @property
    def completion_counts(self) -> mx.array:
        """How often each token was generated, float32  # [V]."""
        return self._completion

    @property
    def context_counts(self) -> mx.array:
        """How often each token stands in prompt or completion, float32  # [V]."""
        return self._all

    def append(self, ids: Sequence[int]) -> None:
        """Count committed tokens of the completion.

        Raises InvalidRequestError for an id outside the vocabulary.
        """
        self._all = self._counted(self._all, ids)
        self._completion = self._counted(self._completion, ids)

    def _counted(self, counts: mx.array, ids: Sequence[int]) -> mx.array:
        """`counts` with each of `ids` counted once more."""
        if not ids:
            return counts
        # A scatter does not check its indices, so a stray id would write outside the array.
        if min(ids) < 0 or max(ids) >= self.vocab_size:
            stray = next(i for i in ids if not 0 <= i < self.vocab_size)
            raise InvalidRequestError(
                f"Token id {stray} lies outside the model's vocabulary of {self.vocab_size}.",
                key="prompt",
                hint="Check that the tokenizer belongs to this model.",
            )
        return counts.at[mx.array(list(ids), dtype=mx.int32)].add(1.0)
