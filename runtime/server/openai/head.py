"""What all objects of one answer have in common."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.requests import Request

from mtplx.runtime.server.requests import KEY_NAME, REQUEST_ID

if TYPE_CHECKING:
    from mtplx.runtime.server.service import Service


class Head(NamedTuple):
    """The name of a request, when it came (seconds since 1970), and who answers it.

    `fingerprint` is the identity of the model's files, None where there is no record of it. `cache_key` separates
    callers that must not share prefixes.
    """

    request_id: str
    created: int
    model: str
    fingerprint: str | None
    cache_key: str

    def id_of(self, prefix: str) -> str:
        """An id for clients."""
        return prefix + self.request_id.removeprefix("req_")

    def envelope(self, prefix: str, kind: str) -> dict[str, Any]:
        """The keys that a completion and each of its chunks begin with."""
        return {
            "id": self.id_of(prefix),
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }


def head_of(request: Request) -> Head:
    """The head of the answer to `request`."""
    service: Service = request.app.state.service
    state = request.scope["state"]
    identity = service.model.identity
    return Head(
        request_id=state[REQUEST_ID],
        created=int(time.time()),
        model=service.model.name,
        fingerprint=None if identity is None else f"fp_{identity.rpartition(':')[2][:16]}",
        cache_key=state[KEY_NAME] or "",
    )
