"""What a caller may ask of one generation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from mtplx.contracts.errors import InvalidRequestError
from mtplx.runtime.decode.depth import MAX_DEPTH
from mtplx.runtime.sampling.acceptance import ACCEPTANCE_NAMES

Depth = int | Literal["auto"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationOptions:
    """Options of `Model.stream` and `Model.generate`.

    `system` is put before a prompt given as text; `raw` sends the prompt without the chat template. `depth` is the
    number of drafts a round, or "auto" for the adaptive policy; `mtp=False` is plain decoding. Sampling values left
    None come from the model's generation_config.json. `seed` None is drawn at random and reported.
    `stop` strings end the answer and are not shown; `ignore_end_tokens` lets it run to `max_tokens`.
    `prefill_chunk` is in tokens; `on_prefill(done, total)` is called after each chunk.

    Raises:
        InvalidRequestError: a value is out of its range; `key` names it.
    """

    system: str | None = None
    raw: bool = False
    max_tokens: int = 256
    depth: Depth = "auto"
    mtp: bool = True
    acceptance: str = "coupled"
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None
    seed: int | None = None
    stop: Sequence[str] = ()
    ignore_end_tokens: bool = False
    prefill_chunk: int = 512
    on_prefill: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        _require(self.max_tokens >= 1, "max_tokens", self.max_tokens, "at least 1")
        _require(self.prefill_chunk >= 1, "prefill_chunk", self.prefill_chunk, "at least 1")
        is_depth = self.depth == "auto" or (
            isinstance(self.depth, int) and 0 <= self.depth <= MAX_DEPTH
        )
        _require(is_depth, "depth", self.depth, f"0 to {MAX_DEPTH}, or auto")
        known = ", ".join(ACCEPTANCE_NAMES)
        _require(self.acceptance in ACCEPTANCE_NAMES, "acceptance", self.acceptance, f"one of {known}")
        is_seed = self.seed is None or 0 <= self.seed < 2**64
        _require(is_seed, "seed", self.seed, "0 to 2**64 - 1")
        _require(all(self.stop), "stop", list(self.stop), "strings that are not empty")


def _require(condition: bool, key: str, found: object, expected: str) -> None:
    if not condition:
        raise InvalidRequestError(f"{key} is {found!r}, expected {expected}", key=key)
