"""`/v1/models`: what requests may ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mtplx.runtime.server.prompting import require_model

if TYPE_CHECKING:
    from mtplx.runtime.server.served import ServedModel
    from mtplx.runtime.server.service import Service


async def list_models(request: Request) -> Response:
    """The served model, once for each of its names."""
    service: Service = request.app.state.service
    models = [_entry(service.model, name) for name in service.model.names]
    return JSONResponse({"object": "list", "data": models})


async def show_model(request: Request) -> Response:
    """One name of the served model."""
    service: Service = request.app.state.service
    name = request.path_params["name"]
    require_model(service, name)
    return JSONResponse(_entry(service.model, name))


def _entry(model: ServedModel, name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": model.created, "owned_by": "mtplx"}
