"""A process with the server: `python -m mtplx.runtime.bench.endpoint.server_process FOLDER BURST`.

The server is that of `mtplx serve`, with the tokenizer and the chat template of FOLDER and an engine that costs
nothing. Writes a line of JSON with `url` and `model`, then for every line of standard input a ServerTold.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from mtplx.contracts.errors import MTPLXError
from mtplx.contracts.inspection import Inspection, inspect_folder
from mtplx.runtime.bench.endpoint.engine import PlaybackBackend, play
from mtplx.runtime.bench.endpoint.tasks import ServerTold
from mtplx.runtime.bench.protocol import tell_error
from mtplx.runtime.decode.options import GenerationOptions
from mtplx.runtime.loading.tokenizer import encode, load_tokenizer
from mtplx.runtime.scheduler.lanes import make_lane
from mtplx.runtime.scheduler.modes import SchedulerMode
from mtplx.runtime.scheduler.owner import Owner
from mtplx.runtime.server.app import build_app
from mtplx.runtime.server.config import ServerConfig
from mtplx.runtime.server.listening import Listener, bind
from mtplx.runtime.server.metrics import Metrics
from mtplx.runtime.server.served import ServedModel, require_tokenizer
from mtplx.runtime.server.service import Service
from mtplx.runtime.tuning.job import write_line
from mtplx.runtime.tuning.prompts import SUITE

_QUEUE = 256


def main(folder: str, burst: str) -> None:
    """Serve until standard input ends."""
    try:
        service, backend = _service(Path(folder), int(burst))
    except MTPLXError as error:
        write_line(sys.stdout, tell_error(error))
        return
    listener = bind(service.config)
    port = listener.getsockname()[1]

    def tell_ready() -> None:
        write_line(sys.stdout, {"url": f"http://127.0.0.1:{port}", "model": service.model.name})
        threading.Thread(target=answer, daemon=True).start()

    def answer() -> None:
        for _ in sys.stdin:
            told = ServerTold(dict(backend.read_at), time.process_time())
            backend.read_at.clear()
            write_line(sys.stdout, asdict(told))
        server.stop()

    server = Listener(
        service.config,
        listener,
        load=lambda: build_app(service),
        on_ready=tell_ready,
        drain=lambda: service.owner.stop(0.0),
        on_force=lambda: None,
    )
    server.run()


def _service(folder: Path, burst: int) -> tuple[Service, PlaybackBackend]:
    inspection = inspect_folder(folder)
    model = served_without_weights(inspection)
    text = "\n\n".join(prompt.text for prompts in SUITE.values() for prompt in prompts)
    backend = PlaybackBackend(play(model.tokenizer, encode(model.tokenizer, text)), burst)
    owner = Owner(lambda: backend, make_lane(SchedulerMode.SERIAL, _QUEUE))
    owner.start()
    owner.wait_loaded()
    service = Service(
        owner=owner,
        model=model,
        config=ServerConfig(port=0, version=version("mtplx")),
        metrics=Metrics(),
        defaults=GenerationOptions(),
    )
    return service, backend


def served_without_weights(inspection: Inspection) -> ServedModel:
    """A folder's tokenizer and chat template, as a model to serve.

    Raises what `load_tokenizer` and `require_tokenizer` raise.
    """
    family = inspection.family
    return ServedModel(
        name=inspection.path.resolve().name,
        path=inspection.path,
        tokenizer=require_tokenizer(
            inspection.path, load_tokenizer(inspection.path, inspection.eos_token_ids)
        ),
        family=family.name if family else "",
        tier=str(inspection.tier),
        vocab_size=int(inspection.config.get("vocab_size") or 0),
        context_length=None,
        eos_token_ids=inspection.eos_token_ids,
        has_head=False,
        max_depth=0,
        sampler_defaults={},
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
