"""A process that decodes with mtplx: `python -m mtplx.runtime.tuning.own_worker FOLDER [KV_BITS]`.

Reads jobs from standard input and writes outcomes, one JSON object a line. The first line it writes describes itself.
"""

from __future__ import annotations

import sys

from mtplx.runtime.loading.folder import load
from mtplx.runtime.model import Model
from mtplx.runtime.tuning.conditions import chip_name
from mtplx.runtime.tuning.job import Job, Outcome, serve_jobs


def main(folder: str, kv_bits: str | None = None) -> None:
    """Serve jobs until standard input ends."""
    model = load(folder, kv_bits=None if kv_bits is None else int(kv_bits))
    costs = model.costs()
    about = {
        "device": dict(model.device),
        "chip": chip_name(),
        "v": list(costs.rows),
        "c": costs.draft,
        "o": costs.overhead,
        "step_seconds": costs.step_seconds,
        "warnings": list(model.warnings),
    }
    serve_jobs(about, lambda job: _run(model, job))


def _run(model: Model, job: Job) -> Outcome:
    found = model.generate(
        job.prompt,
        depth="auto" if job.depth is None else job.depth,
        max_tokens=job.max_tokens,
        temperature=0.0,
        ignore_end_tokens=True,
    )
    stats = found.stats
    return Outcome(
        tokens=list(found.token_ids),
        ttft_s=stats.ttft_seconds or 0.0,
        decode_tok_s=stats.decode_tok_s or 0.0,
        drafted_by_depth=stats.drafted_by_depth[: stats.deepest],
        accepted_by_depth=stats.accepted_by_depth[: stats.deepest],
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
