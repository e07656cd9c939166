"""Keys of our own, which every API takes beside those of its public schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from mtplx.contracts.errors import HeadMissingError, InvalidRequestError
from mtplx.runtime.decode.depth import MAX_DEPTH
from mtplx.runtime.decode.options import GenerationOptions
from mtplx.runtime.server.served import ServedModel
from mtplx.runtime.server.validation import RequestPart


class Extensions(RequestPart):
    """How drafts are made, and the seed of the draws. Left out, the server's own options hold."""

    generation_mode: Literal["ar", "mtp"] | None = None
    depth: Annotated[int, Field(ge=0, le=MAX_DEPTH)] | Literal["auto"] | None = None
    acceptance: Literal["coupled", "rejection", "block"] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**64)] | None = None

    def changes(self, model: ServedModel, defaults: GenerationOptions) -> dict[str, Any]:
        """What is to be changed in `defaults`.

        Raises:
            HeadMissingError: MTP was asked for by name, and the model has no head.
            InvalidRequestError: a depth beside `generation_mode` "ar".
        """
        said = {
            key: value
            for key in ("depth", "acceptance", "seed")
            if (value := getattr(self, key)) is not None
        }
        if self.generation_mode == "mtp":
            if not model.has_head:
                raise HeadMissingError(
                    f'generation_mode is "mtp", and {model.name} has no MTP head.',
                    hint='Leave it out, or send "ar".',
                )
            depth = "auto" if defaults.depth == 0 else defaults.depth
            return {"mtp": True, "depth": depth, **said}
        if self.generation_mode == "ar":
            if self.depth not in (None, "auto", 0):
                raise InvalidRequestError(
                    f'depth is {self.depth}, and generation_mode "ar" makes no drafts.', key="depth"
                )
            return {"mtp": False, **said}
        return said
