"""A server of a real model in this process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mtplx.runtime.decode.options import GenerationOptions
from mtplx.runtime.loading.folder import load
from mtplx.runtime.scheduler.lanes import make_lane
from mtplx.runtime.scheduler.model_backend import ModelBackend
from mtplx.runtime.scheduler.modes import SchedulerMode
from mtplx.runtime.scheduler.owner import Owner
from mtplx.runtime.server.config import ServerConfig
from mtplx.runtime.server.metrics import Metrics
from mtplx.runtime.server.served import describe
from mtplx.runtime.server.service import Service

if TYPE_CHECKING:
    from pathlib import Path

_QUIET_S = 10.0


@contextmanager
def real_service(folder: Path, *, bank_bytes: int = 2**28) -> Iterator[Service]:
    """The model of `folder` behind its owner; requests draft three tokens unless they say otherwise."""
    owner = Owner(
        lambda: ModelBackend(load(folder), bank_bytes=bank_bytes),
        make_lane(SchedulerMode.SERIAL, 16),
    )
    owner.start()
    backend = owner.wait_loaded()
    assert isinstance(backend, ModelBackend)
    try:
        yield Service(
            owner=owner,
            model=describe(backend.model),
            config=ServerConfig(),
            metrics=Metrics(),
            defaults=GenerationOptions(max_tokens=64, depth=3),
        )
    finally:
        owner.stop(0.0)


def forget_prefixes(service: Service) -> None:
    """Let the next prompt be read from its first token; only while nothing is answered."""
    owner = service.owner
    assert isinstance(owner, Owner)
    assert isinstance(owner.backend, ModelBackend)
    wait_idle(service)
    owner.backend.bank.clear()


def wait_idle(service: Service) -> None:
    """Wait until no request runs or waits."""
    end = time.monotonic() + _QUIET_S
    while (health := service.owner.health()).active or health.queued:
        assert time.monotonic() < end, "a request did not end"
        time.sleep(0.005)
