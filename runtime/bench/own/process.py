"""A process that measures mtplx: `python -m mtplx.runtime.bench.own.process FOLDER [KV_BITS]`.

Reads questions from standard input and writes answers, one JSON object a line. The first line it writes describes
itself, or has the `error` for which the model could not be loaded.
"""

from __future__ import annotations

import sys

from mtplx.contracts.errors import MTPLXError
from mtplx.runtime.bench.own.answerer import Answerer
from mtplx.runtime.bench.protocol import serve, tell_error
from mtplx.runtime.loading.folder import load
from mtplx.runtime.tuning.job import write_line


def main(folder: str, kv_bits: str | None = None) -> None:
    """Answer until standard input ends."""
    try:
        model = load(folder, kv_bits=None if kv_bits is None else int(kv_bits))
    except MTPLXError as error:
        write_line(sys.stdout, tell_error(error))
        return
    answerer = Answerer(model)
    serve(answerer.about, answerer.answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
