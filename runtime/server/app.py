"""The application: the routes of all APIs behind one set of gates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from mtplx.contracts.errors import MTPLXError
from mtplx.runtime.server import health, settings
from mtplx.runtime.server.anthropic import routes as anthropic
from mtplx.runtime.server.errors import error_response, from_starlette
from mtplx.runtime.server.openai import routes as openai
from mtplx.runtime.server.openapi import document as openapi
from mtplx.runtime.server.requests import REQUEST_ID, RequestFrame
from mtplx.runtime.server.security import AddressGate, KeyGate

if TYPE_CHECKING:
    from mtplx.runtime.server.service import Service


def build_app(service: Service, extra_routes: Sequence[BaseRoute] = ()) -> Starlette:
    """The application that serves `service`, which endpoints find as `request.app.state.service`.

    `extra_routes` are behind the same gates as its own.
    """
    routes = [
        Route("/", index),
        *health.routes(),
        *settings.routes(),
        *openai.routes(),
        *anthropic.routes(),
        *openapi.routes(),
        *extra_routes,
    ]
    paths = {route.endpoint: route.path for route in routes if isinstance(route, Route)}
    config = service.config
    middleware = [
        Middleware(RequestFrame, metrics=service.metrics, paths=paths),
        Middleware(AddressGate, config=config),
    ]
    if config.cors_origins:
        middleware.append(
            Middleware(
                CORSMiddleware,
                allow_origins=config.cors_origins,
                allow_methods=("GET", "POST"),
                allow_headers=("*",),
                expose_headers=("x-request-id", "retry-after"),
                allow_private_network=True,
            )
        )
    middleware.append(Middleware(KeyGate, config=config))
    app = Starlette(
        routes=routes,
        middleware=middleware,
        exception_handlers={MTPLXError: _refuse, HTTPException: _refuse},
    )
    app.state.service = service
    return app


async def index(request: Request) -> Response:
    """What there is."""
    service: Service = request.app.state.service
    endpoints = [
        {"path": route.path, "methods": sorted(route.methods or ())}
        for route in request.app.routes
        if isinstance(route, Route)
    ]
    return JSONResponse(
        {"name": "mtplx", "version": service.config.version, "endpoints": endpoints}
    )


async def _refuse(request: Request, error: Exception) -> Response:
    path = request.url.path
    if isinstance(error, HTTPException):
        error = from_starlette(error, path)
    assert isinstance(error, MTPLXError), "registered for these two alone"
    return error_response(error, path, request.scope["state"][REQUEST_ID])
