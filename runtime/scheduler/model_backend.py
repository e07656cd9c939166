"""Jobs on a loaded model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import mlx.core as mx
import psutil

from mtplx.contracts.errors import (
    HeadMissingError,
    InvalidRequestError,
    PromptTooLongError,
    ResourceError,
)
from mtplx.runtime.decode.options import GenerationOptions
from mtplx.runtime.decode.result import Event
from mtplx.runtime.decode.state import DecodeState, Mark
from mtplx.runtime.model import Model
from mtplx.runtime.request import prepare, sampling_params, uses_head
from mtplx.runtime.scheduler.job import Job
from mtplx.runtime.sessions.bank import PrefixBank

# Of what the machine has free when the model is loaded, for caches and prefixes; the rest is for forwards.
_CACHE_SHARE = 0.8
# A growing cache holds up to half of its rows again in reserve.
_SPARE = 1.5
_PROBE_ROWS = 32


class ModelBackend:
    """Decodes jobs on `model`, each on the longest prefix of its prompt that `bank` has.

    `context_length` is the model's own or a smaller one. `capacity` are the bytes that caches may take.
    """

    def __init__(self, model: Model, *, bank_bytes: int, context_length: int | None = None) -> None:
        self.model = model
        self.context_length = context_length or model.context_length
        self.capacity = int(_CACHE_SHARE * free_memory())
        self.bank = PrefixBank(min(bank_bytes, self.capacity // 2))
        self.bytes_per_token = _bytes_per_token(model)

    def check(self, job: Job) -> None:
        """Refuse what cannot run here; see `Backend.check`."""
        model, prompt = self.model, len(job.prompt)
        if self.context_length is not None and prompt >= self.context_length:
            raise PromptTooLongError(
                f"the prompt has {prompt} tokens, the context holds {self.context_length}",
                hint=f"shorten the prompt by at least {prompt - self.context_length + 1} tokens",
            )
        _check_ids(job.prompt, model.trunk.vocab_size)
        params = sampling_params(model, job.options)
        _check_bias([token for token, _ in params.logit_bias], model.trunk.vocab_size)
        if model.head is None and job.options.depth not in ("auto", 0) and uses_head(job.options):
            raise HeadMissingError(
                f"depth {job.options.depth} was asked for, but {model.name} has no MTP head",
                hint="leave depth out, or send 0",
            )
        needed = self._needed(job)
        if needed > self.capacity:
            raise ResourceError(
                f"{prompt} tokens of prompt and up to {job.options.max_tokens} of answer need "
                f"{needed / 2**20:.0f} MiB of cache, {self.capacity / 2**20:.0f} MiB are available",
                hint="shorten the prompt, ask for fewer max_tokens, or start the server with --kv-bits 8",
            )

    def run(
        self, job: Job, is_interrupted: Callable[[], bool], on_prefill: Callable[[int, int], None]
    ) -> Iterator[Event]:
        """Decode and bank what was committed, also when it ends early."""
        options = replace(job.options, on_prefill=on_prefill)
        options = self._within_context(options, len(job.prompt))
        request = prepare(self.model, job.prompt, options, feeds_head=self.model.has_head)
        taken = self.bank.take(job.cache_key, job.prompt)
        state = taken.state or self.model.new_state(GenerationOptions())
        request.stats.cache_miss = None if taken.miss is None else taken.miss.value
        self.bank.shed(self._needed(job) + self.bank.nbytes - self.capacity)
        marks: list[Mark] = list(taken.marks)
        checkpoints = () if state.is_divisible else job.checkpoints
        events = request.events(
            state, is_interrupted, checkpoints, lambda reached: marks.append(reached.mark())
        )
        is_sound = True
        try:
            while True:
                # An exception inside a step leaves the caches undefined.
                is_sound = False
                event = next(events, None)
                is_sound = True
                if event is None:
                    return
                yield event
        finally:
            if is_sound:
                stable = max(job.checkpoints, default=len(job.prompt))
                self.bank.put(job.cache_key, state, marks, stable)

    def stats(self) -> dict[str, Any]:
        """Memory and prefixes."""
        return {
            "memory": {
                "active_bytes": mx.get_active_memory(),
                "peak_bytes": mx.get_peak_memory(),
                "cache_capacity_bytes": self.capacity,
                "cache_bytes_per_token": self.bytes_per_token,
            },
            "prefix_cache": self.bank.to_json(),
        }

    def _needed(self, job: Job) -> int:
        tokens = len(job.prompt) + job.options.max_tokens
        if self.context_length is not None:
            tokens = min(tokens, self.context_length)
        return int(_SPARE * tokens * self.bytes_per_token)

    def _within_context(self, options: GenerationOptions, prompt: int) -> GenerationOptions:
        if self.context_length is None:
            return options
        return replace(options, max_tokens=min(options.max_tokens, self.context_length - prompt))


def free_memory() -> int:
    """Bytes that this process may still take: of the GPU where MLX computes there, else of the machine."""
    machine = psutil.virtual_memory().available
    if mx.default_device() == mx.Device(mx.cpu):
        return machine
    limit = int(mx.device_info().get("max_recommended_working_set_size") or 0)
    total = limit or int(mx.device_info().get("memory_size") or machine)
    return max(total - mx.get_active_memory(), 0)


def _bytes_per_token(model: Model) -> float:
    """What one more row costs in all caches, from two lengths; recurrent layers add nothing."""

    def size(rows: int) -> int:
        state: DecodeState = model.new_state(GenerationOptions())
        hidden = model.trunk.forward(mx.zeros((1, rows), dtype=mx.int32), state.trunk_caches)
        state.trunk_caches.commit(rows)
        if model.head is not None and state.head_caches is not None:
            fed = model.head.feed(hidden)
            model.head.step(fed, mx.zeros((1, rows), dtype=mx.int32), state.head_caches)
            state.head_caches.commit(rows)
        head = 0 if state.head_caches is None else state.head_caches.snapshot().nbytes
        return state.trunk_caches.snapshot().nbytes + head

    return (size(2 * _PROBE_ROWS) - size(_PROBE_ROWS)) / _PROBE_ROWS


def _check_ids(ids: list[int], vocab_size: int) -> None:
    """An id outside the embedding would read foreign memory, not fail."""
    if not ids:
        raise InvalidRequestError("the prompt is empty", key="prompt")
    if min(ids) < 0 or max(ids) >= vocab_size:
        stray = next(token for token in ids if not 0 <= token < vocab_size)
        raise InvalidRequestError(
            f"token id {stray} lies outside the vocabulary of {vocab_size}", key="prompt"
        )


def _check_bias(tokens: list[int], vocab_size: int) -> None:
    for token in tokens:
        if token >= vocab_size:
            raise InvalidRequestError(
                f"logit_bias names token {token}; this model has tokens 0 to {vocab_size - 1}",
                key="logit_bias",
            )
