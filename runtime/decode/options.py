"""What a caller may ask of one generation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard

from mtplx.contracts.errors import InvalidRequestError
from mtplx.runtime.decode.depth import MAX_DEPTH
from mtplx.runtime.sampling.acceptance import ACCEPTANCE_NAMES
from mtplx.runtime.sampling.constraint import Constraint
from mtplx.runtime.sampling.logprobs import MAX_TOP_LOGPROBS

Depth = int | Literal["auto"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationOptions:
    """Options of `Model.stream` and `Model.generate`.

    `system` is put before a prompt given as text; `raw` sends the prompt without the chat template. `depth` is the
    number of drafts a round, or "auto" for the adaptive policy; `mtp=False` is plain decoding. Sampling values left
    None come from the model's generation_config.json. `seed` None is drawn at random and reported.
    `stop` strings end the answer and are not shown; `ignore_end_tokens` lets it run to `max_tokens`.
    `logprobs` reports the log-probability of every emitted token and of so many of the likeliest ones.
    `constraint` masks the tokens that a grammar does not allow; it serves one request.
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
    repetition_penalty: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None
    seed: int | None = None
    stop: Sequence[str] = ()
    ignore_end_tokens: bool = False
    logprobs: int | None = None
    constraint: Constraint | None = None
    prefill_chunk: int = 512
    on_prefill: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        for key in ("max_tokens", "prefill_chunk"):
            value = getattr(self, key)
            _require(_is_int(value) and value >= 1, key, value, "a whole number, at least 1")
        is_depth = self.depth == "auto" or (_is_int(self.depth) and 0 <= self.depth <= MAX_DEPTH)
        _require(is_depth, "depth", self.depth, f"0 to {MAX_DEPTH}, or auto")
        known = ", ".join(ACCEPTANCE_NAMES)
        is_law = self.acceptance in ACCEPTANCE_NAMES
        _require(is_law, "acceptance", self.acceptance, f"one of {known}")
        is_seed = self.seed is None or (_is_int(self.seed) and 0 <= self.seed < 2**64)
        _require(is_seed, "seed", self.seed, "a whole number, 0 to 2**64 - 1")
        is_top = self.logprobs is None or (
            _is_int(self.logprobs) and 0 <= self.logprobs <= MAX_TOP_LOGPROBS
        )
        _require(is_top, "logprobs", self.logprobs, f"0 to {MAX_TOP_LOGPROBS}")
        # A string is a sequence of strings too, and would stop at each of its characters.
        is_stop = not isinstance(self.stop, str) and all(
            isinstance(stop, str) and stop for stop in self.stop
        )
        _require(is_stop, "stop", self.stop, "a list of strings that are not empty")


def change_options(base: GenerationOptions, changes: Mapping[str, Any]) -> GenerationOptions:
    """`base` with `changes`.

    Raises:
        InvalidRequestError: an option is unknown or its value out of range.
    """
    known = GenerationOptions.__dataclass_fields__
    for key in changes:
        if key not in known:
            raise InvalidRequestError(
                f"unknown option {key!r}; known are {', '.join(sorted(known))}", key=key
            )
    return dataclasses.replace(base, **changes)


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _require(condition: bool, key: str, found: object, expected: str) -> None:
    if not condition:
        raise InvalidRequestError(f"{key} is {found!r}, expected {expected}", key=key)
