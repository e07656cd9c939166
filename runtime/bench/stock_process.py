"""A process that decodes with stock mlx-lm: `python -m mtplx.runtime.bench.stock_process FOLDER`.

Speaks like `own.process`. Nothing of mtplx that could speed mlx up is imported, so this is what a user of mlx-lm gets.
Depths do not concern it, and decoding reads prompts in chunks of mlx-lm's own choice.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import mlx_lm
from mlx_lm.generate import generation_stream, stream_generate
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.sample_utils import make_sampler

from mtplx.contracts.errors import InternalError
from mtplx.runtime.bench.protocol import serve
from mtplx.runtime.bench.tasks import (
    DecodeTask,
    MemoryTask,
    MemoryUse,
    PrefillTask,
    PrefillTimes,
    Task,
)
from mtplx.runtime.tuning.job import Outcome


def main(folder: str) -> None:
    """Answer until standard input ends; a model that mlx-lm refuses ends the process with its message."""
    model, tokenizer = mlx_lm.load(folder)[:2]
    tokenizer.eos_token_ids = set()
    about = {"device": {"device": str(mx.default_device())}, "mlx_lm": mlx_lm.__version__}
    stock = Stock(model, tokenizer)
    serve(about, stock.answer)


class Stock:
    """Answers tasks with a model of mlx-lm."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._model = model
        self._tokenizer = tokenizer

    def answer(self, task: Task) -> Outcome | PrefillTimes | MemoryUse:
        """Do the task."""
        mx.reset_peak_memory()
        try:
            match task:
                case DecodeTask():
                    return self._decode(task)
                case PrefillTask():
                    return self._read_prompt(task)
                case MemoryTask():
                    return self._watch_memory(task)
                case _:
                    raise InternalError(f"mlx-lm is not asked for a {type(task).__name__}")
        finally:
            # It computes one token ahead, which must not run into what is measured next.
            mx.synchronize(generation_stream)

    def _decode(self, task: DecodeTask) -> Outcome:
        sampler = make_sampler(temp=task.temperature, top_p=task.top_p, top_k=task.top_k)
        mx.random.seed(task.seed)
        tokens: list[int] = []
        start = time.perf_counter()
        times: list[float] = []
        for token in self._tokens(task.prompt, task.max_tokens, sampler=sampler):
            tokens.append(token)
            times.append(time.perf_counter())
        return Outcome(
            tokens=tokens,
            ttft_s=times[0] - start,
            decode_tok_s=(len(tokens) - 1) / (times[-1] - times[0]),
            drafted_by_depth=[],
            accepted_by_depth=[],
            rounds=len(tokens) - 1,
            peak_bytes=mx.get_peak_memory(),
        )

    def _read_prompt(self, task: PrefillTask) -> PrefillTimes:
        start = time.perf_counter()
        next(self._tokens(task.prompt, 1, prefill_step_size=task.chunk))
        return PrefillTimes(time.perf_counter() - start, None, mx.get_peak_memory())

    def _watch_memory(self, task: MemoryTask) -> MemoryUse:
        caches = make_prompt_cache(self._model)
        tokens = self._tokens(
            task.prompt, task.max_tokens, prefill_step_size=task.chunk, prompt_cache=caches
        )
        next(tokens)
        prefill_peak = mx.get_peak_memory()
        mx.reset_peak_memory()
        for _ in tokens:
            pass
        return MemoryUse(prefill_peak, mx.get_peak_memory(), sum(cache.nbytes for cache in caches))

    def _tokens(self, prompt: list[int], max_tokens: int, **options: Any) -> Iterator[int]:
        for response in stream_generate(
            self._model, self._tokenizer, prompt, max_tokens=max_tokens, **options
        ):
            yield int(response.token)


if __name__ == "__main__":
    main(sys.argv[1])
