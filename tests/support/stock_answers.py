"""What stock mlx-lm answers, asked in a process that knows nothing of mtplx.

The process: `python -m tests.support.stock_answers`, jobs on standard input, one JSON object a line.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.checkpoints import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType


class Answer(NamedTuple):
    """Text of `mlx_lm.generate`, and the ids that it stands for."""

    text: str
    token_ids: list[int]


class Stock:
    """`mlx_lm.load` and `mlx_lm.generate`, unpatched. Use as a context manager."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.support.stock_answers"],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Stock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()

    def answers(self, folder: Path, prompts: Sequence[Sequence[int]], count: int) -> list[Answer]:
        """The greedy answers of `folder` to prompts of token ids, `count` tokens each at most.

        Weights are widened to float32 after loading: MLX has no 16-bit experts on CPUs, and with
        fewer digits a tie can be decided either way.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        job = {"folder": str(folder), "prompts": [list(p) for p in prompts], "count": count}
        print(json.dumps(job), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, f"mlx-lm refused {folder}"
        return [Answer(**answer) for answer in json.loads(line)]


def _answers(job: dict[str, Any]) -> list[dict[str, Any]]:
    import mlx.core as mx
    import mlx_lm

    model, tokenizer = mlx_lm.load(job["folder"])
    model.set_dtype(mx.float32)
    return [
        {
            "text": mlx_lm.generate(model, tokenizer, prompt, max_tokens=job["count"]),
            "token_ids": [
                int(response.token)
                for response in mlx_lm.stream_generate(
                    model, tokenizer, prompt, max_tokens=job["count"]
                )
            ],
        }
        for prompt in job["prompts"]
    ]


if __name__ == "__main__":
    for _line in sys.stdin:
        print(json.dumps(_answers(json.loads(_line))), flush=True)
        assert not any(name.partition(".")[0] == "mtplx" for name in sys.modules)
