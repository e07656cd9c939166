"""A served model that answers with a script, and a real server in front of it."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mlx_lm.tokenizer_utils import TokenizerWrapper
from starlette.applications import Starlette
from starlette.testclient import TestClient

from mtplx.runtime.decode.depth import MAX_DEPTH
from mtplx.runtime.decode.options import GenerationOptions
from mtplx.runtime.scheduler.owner import Owner
from mtplx.runtime.server.config import ServerConfig
from mtplx.runtime.server.listening import Listener, bind
from mtplx.runtime.server.metrics import Metrics
from mtplx.runtime.server.served import ServedModel
from mtplx.runtime.server.service import Service
from tests.support.scripted import BYTE_VOCABULARY, END_IDS, ScriptedTokenizer
from tests.support.scripted_owner import Script, ScriptedBackend, scripted_owner

NAME = "scripted"
URL = "http://127.0.0.1:8000"

_STOP_S = 5.0


def scripted_model(**changes: Any) -> ServedModel:
    """A model whose tokens are single bytes."""
    model = ServedModel(
        name=NAME,
        path=Path("/models/scripted"),
        tokenizer=TokenizerWrapper(ScriptedTokenizer(), eos_token_ids=list(END_IDS)),
        family="scripted",
        tier="verified",
        vocab_size=BYTE_VOCABULARY,
        context_length=4096,
        eos_token_ids=END_IDS,
        has_head=True,
        max_depth=MAX_DEPTH,
        sampler_defaults={},
        aliases=("other-name",),
        created=1_700_000_000,
    )
    return dataclasses.replace(model, **changes)


@contextmanager
def scripted_service(
    script: Script | ScriptedBackend = lambda _job: ["hello"],
    *,
    model: ServedModel | None = None,
    config: ServerConfig | None = None,
    owner: Owner | None = None,
    **options: Any,
) -> Iterator[Service]:
    """A service whose owner runs while the block does; `options` are those that requests begin with."""
    owner = owner or scripted_owner(script)
    try:
        yield Service(
            owner=owner,
            model=model or scripted_model(),
            config=config or ServerConfig(),
            metrics=Metrics(),
            defaults=GenerationOptions(**{"max_tokens": 200, **options}),
        )
    finally:
        owner.stop(0.0)


def client_of(app: Starlette, **options: Any) -> TestClient:
    """A client that calls `app` in this process, by a name that the app answers to."""
    return TestClient(app, base_url=URL, client=("127.0.0.1", 50_000), **options)


@contextmanager
def live_server(app: Starlette, config: ServerConfig | None = None) -> Iterator[str]:
    """The URL of a real server on a free port."""
    config = dataclasses.replace(config or ServerConfig(), port=0)
    listener = bind(config)
    config = dataclasses.replace(config, port=listener.getsockname()[1])
    is_ready = threading.Event()
    server = Listener(
        config,
        listener,
        load=lambda: app,
        on_ready=is_ready.set,
        drain=lambda: None,
        on_force=lambda: None,
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        assert is_ready.wait(_STOP_S), "the server does not start"
        yield config.url
    finally:
        server.stop()
        thread.join(_STOP_S)
        assert not thread.is_alive(), "the server does not stop"
