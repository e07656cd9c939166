"""A generation: prefill, then rounds until the answer ends, as a plain Python generator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from mtplx.runtime.decode.depth import DepthPolicy
from mtplx.runtime.decode.engine import Engine
from mtplx.runtime.decode.prefill import prefill
from mtplx.runtime.decode.round import run_round
from mtplx.runtime.decode.state import DecodeState
from mtplx.runtime.decode.stats import Clock, Stats
from mtplx.runtime.decode.stop import Answer


def decode(
    engine: Engine,
    state: DecodeState,
    prompt: list[int],
    answer: Answer,
    policy: DepthPolicy,
    stats: Stats,
    *,
    chunk: int,
    on_prefill: Callable[[int, int], None] | None = None,
    is_interrupted: Callable[[], bool] = lambda: False,
    checkpoints: Collection[int] = (),
    on_checkpoint: Callable[[DecodeState], None] = lambda _state: None,
) -> Iterator[None]:
    """Yields whenever `answer` has grown, until it has a finish reason.

    `state` may hold a prefix of `prompt`, which is not read again. Between two yields at most one round runs, and
    `is_interrupted` is asked before each, and before each chunk of the prompt. Whenever control is outside, caches
    hold committed tokens only.
    """
    clock = Clock()
    stats.prompt_tokens = len(prompt)
    stats.reused_tokens = state.trunk_caches.committed
    first = prefill(
        engine,
        state,
        prompt,
        chunk=chunk,
        on_progress=on_prefill,
        is_interrupted=is_interrupted,
        checkpoints=checkpoints,
        on_checkpoint=on_checkpoint,
    )
    stats.prefill_seconds = clock.lap()
    if first is None:
        answer.interrupt()
        yield
        return
    stats.ttft_seconds = clock.total()
    answer.keep([first.token])
    answer.logprobs += first.logprobs
    state.tokens.append(first.token)
    if engine.history is not None:
        engine.history.append([first.token])
    if engine.constraint is not None:
        engine.constraint.commit([first.token])
    stats.completion_tokens = len(answer.tokens)
    yield
    while answer.finish_reason is None:
        if is_interrupted():
            answer.interrupt()
            yield
            return
        clock.lap()
        # A round emits up to depth + 1 tokens.
        depth = min(policy.next_depth(), answer.room - 1)
        done = run_round(engine, state, depth, answer.keep)
        answer.logprobs += done.logprobs
        policy.record(done.drafted, done.accepted)
        stats.record_round(done.drafted, done.accepted, clock.lap())
        stats.completion_tokens = len(answer.tokens)
        yield
