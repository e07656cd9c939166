"""Whether the server lives, whether it serves, and what it has done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mtplx.runtime.server.metrics import CONTENT_TYPE
from mtplx.runtime.server.requests import KEY_NAME

if TYPE_CHECKING:
    from mtplx.runtime.server.service import Service


def routes() -> list[Route]:
    """The endpoints of operators."""
    return [
        Route("/health/live", live),
        Route("/health/ready", ready),
        Route("/health", ready, name="health"),
        Route("/metrics", metrics),
        Route("/v1/mtplx/stats", stats),
    ]


async def live(_request: Request) -> Response:
    """The process answers; nothing is said of the model."""
    return JSONResponse({"status": "live"})


async def ready(request: Request) -> Response:
    """200 where requests are served, else 503 with the reason.

    Without a key, where keys are asked for, nothing but the status and the reason is told.
    """
    service: Service = request.app.state.service
    health = service.owner.health()
    found: dict[str, Any] = {
        "status": "ready" if health.is_ready else "not_ready",
        "reason": health.reason,
    }
    if service.config.keys is None or request.scope["state"][KEY_NAME] is not None:
        found |= {
            "active_requests": health.active,
            "queued_requests": health.queued,
            "seconds_since_step": health.seconds_since_step,
            **about(service),
        }
    return JSONResponse(found, 200 if health.is_ready else 503)


async def metrics(request: Request) -> Response:
    """Everything that is counted, in Prometheus' text format."""
    service: Service = request.app.state.service
    body = service.metrics.render(service.owner.stats())
    return Response(body, headers={"content-type": CONTENT_TYPE})


async def stats(request: Request) -> Response:
    """What was done so far, as JSON."""
    service: Service = request.app.state.service
    return JSONResponse({**about(service), **service.owner.stats()})


def about(service: Service) -> dict[str, Any]:
    """What is served and how."""
    model, lane = service.model, service.owner.lane
    return {
        "model": model.name,
        "aliases": list(model.aliases),
        "family": model.family,
        "tier": model.tier,
        "context_length": model.context_length,
        "mtp": model.has_head,
        "depth": service.defaults.depth if model.has_head else 0,
        "acceptance": service.defaults.acceptance,
        "tuned": dict(service.config.tuning),
        "scheduler_mode": lane.mode.value,
        "scheduler_policy": lane.policy,
        "device": dict(model.device),
        "warnings": list(model.warnings),
        "version": service.config.version,
    }
