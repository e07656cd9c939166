"""A process that decodes with stock mlx-lm: `python -m mtplx.runtime.tuning.stock_worker FOLDER`.

Speaks like `own_worker`. Nothing of mtplx that could speed mlx up is imported, so this is what a user of mlx-lm gets.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import mlx.core as mx
import mlx_lm
from mlx_lm.generate import stream_generate

from mtplx.runtime.tuning.job import Job, Outcome, serve_jobs


def main(folder: str) -> None:
    """Serve jobs until standard input ends; a model that mlx-lm refuses ends the process with its message."""
    model, tokenizer = mlx_lm.load(folder)[:2]
    tokenizer.eos_token_ids = set()
    about = {"device": {"device": str(mx.default_device())}, "mlx_lm": mlx_lm.__version__}
    serve_jobs(about, lambda job: _run(model, tokenizer, job))


def _run(model: Any, tokenizer: Any, job: Job) -> Outcome:
    start = time.perf_counter()
    tokens: list[int] = []
    times: list[float] = []
    for response in stream_generate(model, tokenizer, job.prompt, max_tokens=job.max_tokens):
        tokens.append(int(response.token))
        times.append(time.perf_counter())
    return Outcome(
        tokens=tokens,
        ttft_s=times[0] - start,
        decode_tok_s=(len(tokens) - 1) / (times[-1] - times[0]),
        drafted_by_depth=[],
        accepted_by_depth=[],
    )


if __name__ == "__main__":
    main(sys.argv[1])
