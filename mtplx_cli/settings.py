"""The keys of `config.toml`: their types, defaults and meaning."""

import os
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_settings import NoDecode

from mtplx.profiles import NO_PROFILE, PROFILES, canonical_name
from mtplx.runtime.scheduler.modes import SchedulerMode


@dataclass(frozen=True, slots=True)
class About:
    """What a setting means, and the words for its values in messages."""

    meaning: str
    expected: str


def _refuse_bool(value: object) -> object:
    """pydantic takes `true` for the number 1."""
    if isinstance(value, bool):
        raise ValueError("a truth value is not a number")
    return value


def _split_paths(value: object) -> object:
    """A variable or an argument holds several paths the way PATH does."""
    return value.split(os.pathsep) if isinstance(value, str) else value


def _check_profile(value: object) -> object:
    name = canonical_name(value) if isinstance(value, str) else None
    if name is None:
        raise ValueError("no such profile")
    return name


def _whole(value: object) -> object:
    """Numbers come as text from variables and arguments, which a Literal would not take."""
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        return int(value)
    return _refuse_bool(value)


_number = BeforeValidator(_refuse_bool)
_Count = Annotated[int, _number, Field(ge=1)]
_Depth = Annotated[int, _number, Field(ge=0, le=8)]
_Bits = Annotated[Literal[2, 3, 4, 5, 6, 8], BeforeValidator(_whole)]
_NonNegative = Annotated[float, _number, Field(ge=0, allow_inf_nan=False)]
_Share = Annotated[float, _number, Field(gt=0, le=1)]
_TopK = Annotated[int, _number, Field(ge=0)]
_Port = Annotated[int, _number, Field(ge=0, le=65535)]
_Text = Annotated[str, Field(min_length=1)]


class Settings(BaseModel):
    """The settings as they are when no source says otherwise."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    profile: Annotated[
        str,
        BeforeValidator(_check_profile),
        About(
            "a named set of options below these settings; `mtplx config profiles` explains them",
            f"one of {', '.join((NO_PROFILE, *PROFILES))}",
        ),
    ] = NO_PROFILE
    model: Annotated[
        _Text | None,
        About(
            "the model of commands that name none; the bundled demo model if not set",
            "the path of a model folder, or a name that `mtplx models` lists",
        ),
    ] = None
    model_dirs: Annotated[
        tuple[_Text, ...],
        NoDecode,
        BeforeValidator(_split_paths),
        About(
            "folders in which models are found by name, beside mtplx's own and the hub's cache",
            f"a list of folders, in one text separated by `{os.pathsep}`",
        ),
    ] = ()
    host: Annotated[
        _Text,
        About("address that a server listens on", "an address or a host name of this machine"),
    ] = "127.0.0.1"
    port: Annotated[
        _Port, About("port that a server listens on; 0 is any free one", "a number, 0 to 65535")
    ] = 8000
    api_key_file: Annotated[
        _Text | None,
        About(
            "keys that a server asks for, the first of which `status` sends; none if not set",
            "the path of a file of lines `name: key`",
        ),
    ] = None
    context_window: Annotated[
        _Count | None,
        About(
            "most tokens of prompt and answer in a server; the model's own if not set",
            "a number of tokens, 1 or more",
        ),
    ] = None
    scheduler_mode: Annotated[
        SchedulerMode,
        About("how the requests of a server share the model", f"one of {', '.join(SchedulerMode)}"),
    ] = SchedulerMode.SERIAL
    depth: Annotated[
        _Depth | Literal["auto"],
        About(
            "tokens drafted a round; 0 is plain decoding, auto decides round by round",
            "a number from 0 to 8, or auto",
        ),
    ] = "auto"
    acceptance: Annotated[
        Literal["coupled", "rejection", "block"],
        About("law by which drafts are accepted", "one of coupled, rejection, block"),
    ] = "coupled"
    max_tokens: Annotated[
        _Count, About("most tokens of an answer", "a number of tokens, 1 or more")
    ] = 256
    prefill_chunk: Annotated[
        _Count, About("prompt tokens read at a time", "a number of tokens, 1 or more")
    ] = 512
    kv_bits: Annotated[
        _Bits | Literal["off"],
        About(
            "bits of a number in the attention cache; off keeps it as computed",
            "one of 2, 3, 4, 5, 6, 8, or off",
        ),
    ] = "off"
    temperature: Annotated[
        _NonNegative | None,
        About("0 is greedy; the model's own if not set", "a number, 0 or more"),
    ] = None
    top_p: Annotated[
        _Share | None,
        About("nucleus, 1 is off; the model's own if not set", "a number above 0, at most 1"),
    ] = None
    top_k: Annotated[
        _TopK | None,
        About("most likely tokens, 0 is off; the model's own if not set", "a number, 0 or more"),
    ] = None

    @property
    def kv_cache_bits(self) -> int | None:
        """`kv_bits` as `mtplx.load` takes it."""
        return None if self.kv_bits == "off" else self.kv_bits


KEYS = tuple(Settings.model_fields)


def about(key: str) -> About:
    """What there is to say about the setting `key`."""
    return next(item for item in Settings.model_fields[key].metadata if isinstance(item, About))
