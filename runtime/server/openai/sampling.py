"""Keys that say how tokens are chosen and when an answer ends, the same for every endpoint."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from mtplx.contracts.errors import InvalidRequestError
from mtplx.runtime.decode.options import GenerationOptions, change_options
from mtplx.runtime.server.extensions import Extensions
from mtplx.runtime.server.served import ServedModel
from mtplx.runtime.server.validation import RequestPart, refuse

MAX_STOPS: Final = 4

_SAMPLING: Final = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)


def _stops(value: Any) -> Any:
    """One string or several, as a list."""
    stops = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops):
        refuse("is neither a string nor a list of strings, none of them empty")
    if len(stops) > MAX_STOPS:
        refuse(f"has {len(stops)} strings, and {MAX_STOPS} is the most")
    return stops


Stops = Annotated[list[str], BeforeValidator(_stops, json_schema_input_type=str | list[str] | None)]
Penalty = Annotated[float, Field(ge=-2, le=2, allow_inf_nan=False)]
TokenCount = Annotated[int, Field(ge=1)]


class StreamOptions(RequestPart):
    """What a stream tells beside its text."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class Sampling(Extensions):
    """How tokens are chosen; what is left out is as the server's and the model's defaults have it.

    `top_k`, `min_p` and `repetition_penalty` are not in the public schema.
    """

    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None

    def options(
        self, model: ServedModel, defaults: GenerationOptions, more: dict[str, Any]
    ) -> GenerationOptions:
        """`defaults` with what the request says, and with those of `more` that are not None.

        Raises what `Extensions.changes` raises.
        """
        said = {key: getattr(self, key) for key in _SAMPLING} | more
        said = {key: value for key, value in said.items() if value is not None}
        return change_options(defaults, said | self.changes(model, defaults))


def read_bias(bias: dict[str, float] | None, model: ServedModel) -> dict[int, float] | None:
    """The bias of each token id. Raises InvalidRequestError for a key that is no id of the vocabulary."""
    for key in bias or ():
        if not (key.isascii() and key.isdecimal() and int(key[:12]) < model.vocab_size):
            raise InvalidRequestError(
                f"logit_bias has the key {key[:40]!r}, expected ids of tokens, "
                f"0 to {model.vocab_size - 1}.",
                key="logit_bias",
            )
    return None if bias is None else {int(key): value for key, value in bias.items()}


def require_streamed(stream: bool | None, options: StreamOptions | None) -> None:
    """Raise InvalidRequestError for options of a stream that was not asked for."""
    if options is None:
        return
    if not stream:
        raise InvalidRequestError(
            "stream_options is set, and stream is not true.", key="stream_options"
        )
    if options.include_obfuscation:
        raise InvalidRequestError(
            "stream_options.include_obfuscation is not available here: nothing is padded.",
            key="stream_options.include_obfuscation",
        )
