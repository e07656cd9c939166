"""What may be changed while the server runs: options that requests begin with, and their deadline."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mtplx.contracts.errors import HeadMissingError, InvalidRequestError
from mtplx.runtime.decode.depth import MAX_DEPTH
from mtplx.runtime.decode.options import change_options
from mtplx.runtime.sampling.params import SamplingParams
from mtplx.runtime.server.body import read_json
from mtplx.runtime.server.refusals import NoSuchResourceError

if TYPE_CHECKING:
    from mtplx.runtime.server.service import Service

_FIXED: Final = (
    "model", "host", "port", "aliases", "context_window", "scheduler_mode", "queue_size",
    "kv_bits", "prefix_cache_bytes", "api_key_file", "profile",
)  # fmt: skip


class Changes(BaseModel):
    """New values by their names; null gives a sampling value back to the model's own file, and lifts the deadline.

    `deadline_s` are seconds that an answer may take, waiting included.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    depth: Annotated[int, Field(ge=0, le=MAX_DEPTH)] | Literal["auto"] = "auto"
    acceptance: Literal["coupled", "rejection", "block"] = "coupled"
    max_tokens: Annotated[int, Field(ge=1)] = 256
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0)] | None = None
    deadline_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


KEYS: Final = tuple(Changes.model_fields)


def routes() -> list[Route]:
    """The endpoints that change something."""
    return [
        Route("/v1/mtplx/settings", show, methods=["GET"]),
        Route("/v1/mtplx/settings", change, methods=["POST"]),
        Route("/v1/mtplx/cancel/{request_id}", cancel, methods=["POST"]),
    ]


async def show(request: Request) -> Response:
    """The values in use."""
    return JSONResponse({"settings": current(request.app.state.service)})


async def change(request: Request) -> Response:
    """Take all of the values sent, or none."""
    service: Service = request.app.state.service
    apply(service, await read_json(request))
    return JSONResponse({"settings": current(service)})


async def cancel(request: Request) -> Response:
    """End a request, by its id, within one step."""
    service: Service = request.app.state.service
    request_id = request.path_params["request_id"]
    if not service.owner.cancel(request_id):
        raise NoSuchResourceError(
            f"no request {request_id[:80]!r} runs or waits.",
            hint="It has ended, or the id is wrong; ids are in the header x-request-id.",
        )
    return JSONResponse({"id": request_id, "cancelled": True})


def current(service: Service) -> dict[str, Any]:
    """The values in use, by their names."""
    values = {key: getattr(service.defaults, key) for key in KEYS if key != "deadline_s"}
    return {**values, "deadline_s": service.config.deadline_s}


def apply(service: Service, values: dict[str, Any]) -> None:
    """Change `service`; requests that run keep what they began with.

    Raises:
        InvalidRequestError: a name or a value is wrong; nothing is changed.
        HeadMissingError: a depth was asked for and the model has no head; nothing is changed.
    """
    said = _checked(values)
    deadline_s = said.pop("deadline_s", service.config.deadline_s)
    if said.get("depth") not in (None, "auto", 0) and not service.model.has_head:
        raise HeadMissingError(
            f"depth {said['depth']} needs an MTP head, and {service.model.name} has none."
        )
    defaults = change_options(service.defaults, said)
    sampling = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    SamplingParams(**{key: said[key] for key in sampling if said.get(key) is not None})
    service.defaults = defaults
    service.config = dataclasses.replace(service.config, deadline_s=deadline_s)


def _checked(values: dict[str, Any]) -> dict[str, Any]:
    """What was said, of the right types and ranges."""
    for key in values:
        if key in _FIXED:
            raise InvalidRequestError(
                f"{key} cannot be changed while the server runs.",
                key=key,
                hint=f"Start the server anew to change it; {', '.join(KEYS)} can be.",
            )
    try:
        return Changes.model_validate(values).model_dump(exclude_unset=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        key = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            raise InvalidRequestError(
                f"unknown setting {key[:80]!r}; known are {', '.join(KEYS)}.", key=key
            ) from None
        raise InvalidRequestError(
            f"{key} is {str(first['input'])[:80]!r}: {first['msg'].lower()}.", key=key
        ) from None
