"""The flags that every generating command has, written once."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mtplx.contracts.errors import InvalidRequestError, UsageError
from mtplx.screen import Screen

if TYPE_CHECKING:
    from mtplx.config import Config

_DECODING = "Decoding"
_SAMPLING = "Sampling"


def _complete_profile(incomplete: str) -> list[str]:
    from mtplx.profiles import PROFILES

    return [name for name in PROFILES if name.startswith(incomplete)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationFlags:
    """What the user said about model, decoding and sampling; None is "nothing said"."""

    model: Annotated[
        str | None,
        typer.Option(
            help="Model folder, or a name that `mtplx models` lists; the bundled demo model if "
            "none is named."
        ),
    ] = None
    profile: Annotated[
        str | None,
        typer.Option(
            help="A named set of options, which other settings and flags go before; "
            "`mtplx config profiles` explains them.",
            autocompletion=_complete_profile,
        ),
    ] = None
    system: Annotated[str | None, typer.Option(help="System message.")] = None
    max_tokens: Annotated[
        int | None, typer.Option(help="Most tokens of an answer (256).", show_default=False)
    ] = None
    stop: Annotated[
        list[str] | None, typer.Option(help="Stop before this text; may be repeated.")
    ] = None
    depth: Annotated[
        str | None,
        typer.Option(
            metavar="N|auto", help="Tokens drafted a round, 0 to 8.", rich_help_panel=_DECODING
        ),
    ] = None
    mtp: Annotated[
        bool | None,
        typer.Option(
            "--mtp/--no-mtp",
            help="Insist on, or do without, the model's MTP head.",
            rich_help_panel=_DECODING,
        ),
    ] = None
    acceptance: Annotated[
        Literal["coupled", "rejection", "block"] | None,
        typer.Option(help="Law by which drafts are accepted.", rich_help_panel=_DECODING),
    ] = None
    prefill_chunk: Annotated[
        int | None,
        typer.Option(help="Prompt tokens read at a time (512).", rich_help_panel=_DECODING),
    ] = None
    kv_bits: Annotated[
        str | None,
        typer.Option(
            metavar="N|off",
            help="Quantise the KV cache to this many bits.",
            rich_help_panel=_DECODING,
        ),
    ] = None
    verify_hashes: Annotated[
        bool,
        typer.Option(
            "--verify-hashes", help="Compare every byte of the model with its contract first."
        ),
    ] = False
    temperature: Annotated[
        float | None,
        typer.Option(help="0 is greedy; the model's own default.", rich_help_panel=_SAMPLING),
    ] = None
    top_p: Annotated[
        float | None, typer.Option(help="Nucleus; 1 is off.", rich_help_panel=_SAMPLING)
    ] = None
    top_k: Annotated[
        int | None, typer.Option(help="Most likely tokens; 0 is off.", rich_help_panel=_SAMPLING)
    ] = None
    min_p: Annotated[
        float | None,
        typer.Option(help="Share of the likeliest token's probability.", rich_help_panel=_SAMPLING),
    ] = None
    repetition_penalty: Annotated[
        float | None,
        typer.Option(help="1 is off; the model's own default.", rich_help_panel=_SAMPLING),
    ] = None
    presence_penalty: Annotated[
        float | None, typer.Option(help="0 is off.", rich_help_panel=_SAMPLING)
    ] = None
    frequency_penalty: Annotated[
        float | None, typer.Option(help="0 is off.", rich_help_panel=_SAMPLING)
    ] = None
    logit_bias: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID=VALUE",
            help="Added to one token's logit; may be repeated.",
            rich_help_panel=_SAMPLING,
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(
            help="The text depends on it alone; random if not given.", rich_help_panel=_SAMPLING
        ),
    ] = None

    def config(self) -> "Config":
        """The settings with these flags on top."""
        from mtplx.config import Config

        return Config.load(**self._settings())

    def tell_overridden(self, config: "Config", screen: Screen) -> None:
        """Note which options of the profile that was asked for are set to something else."""
        if self.profile is None:
            return
        from mtplx.profiles import profile_options

        origins = config.origins(**self._settings())
        for key, wanted in profile_options(config.profile).items():
            found = getattr(config, key)
            if found != wanted and origins[key].kind != "flag":
                screen.note(f"{key} is {found} by {origins[key]}, not {wanted} by the profile")

    def depth_choice(self, config: "Config") -> str | None:
        """What decides about the depth before a tuned one does; None where nobody has said anything."""
        from mtplx.tuned import depth_choice

        return depth_choice(config, self._settings(), mtp=self.mtp)

    def _settings(self) -> dict[str, object]:
        from mtplx.settings import KEYS

        return {key: getattr(self, key) for key in KEYS if key in self.__dataclass_fields__}

    def options(self, config: "Config", *, has_head: bool) -> dict[str, Any]:
        """The options of a generation; what nobody said is left to the runtime's defaults.

        A depth from the settings is a preference and yields where there is no head; a depth given
        as a flag is passed on for the runtime to refuse.
        """
        if self.mtp is False and self.depth not in (None, "0", "auto"):
            raise UsageError(
                f"--no-mtp and --depth {self.depth} contradict each other",
                hint="Leave one of the two out.",
            )
        can_draft = has_head and self.mtp is not False
        said = {
            "system": self.system,
            "max_tokens": config.max_tokens,
            "depth": config.depth if can_draft or self.depth is not None else "auto",
            "mtp": self.mtp,
            "acceptance": config.acceptance,
            "prefill_chunk": config.prefill_chunk,
            "temperature": config.temperature,
            "top_p": config.top_p,
            "top_k": config.top_k,
            "min_p": self.min_p,
            "repetition_penalty": self.repetition_penalty,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "logit_bias": parse_logit_bias(self.logit_bias or ()) or None,
            "seed": self.seed,
            "stop": tuple(self.stop or ()) or None,
        }
        return {key: value for key, value in said.items() if value is not None}


def parse_logit_bias(items: Iterable[str]) -> dict[int, float]:
    """Read `ID=VALUE` items; raises InvalidRequestError for one that is not of that form."""
    biases: dict[int, float] = {}
    for item in items:
        token_id, _, value = item.partition("=")
        try:
            biases[int(token_id)] = float(value)
        except ValueError as error:
            raise InvalidRequestError(
                f"--logit-bias: expected ID=VALUE with a token id and a number, found {item!r}",
                key="logit_bias",
                hint="For example: --logit-bias 42=-5",
            ) from error
    return biases


def with_generation_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` the flags above, collected into its parameter `flags`."""
    names = [field.name for field in fields(GenerationFlags)]

    @wraps(command)
    def collect(**values: Any) -> None:
        flags = GenerationFlags(**{name: values.pop(name) for name in names})
        command(flags=flags, **values)

    signature = inspect.signature(command)
    kept = [p for p in signature.parameters.values() if p.name != "flags"]
    added = inspect.signature(GenerationFlags).parameters.values()
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*kept, *added)]
    # typer reads a command's flags from its signature.
    collect.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return collect
