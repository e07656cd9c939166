"""A loaded model: the public way from a prompt to events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mtplx.contracts.errors import (
    InternalError,
    InvalidRequestError,
    TokenizerMissingError,
    UsageError,
)
from mtplx.contracts.inspection import Inspection
from mtplx.runtime.decode.costs import measure_costs
from mtplx.runtime.decode.depth import MAX_DEPTH, Costs
from mtplx.runtime.decode.options import GenerationOptions, change_options
from mtplx.runtime.decode.result import Event, Generation
from mtplx.runtime.decode.state import DecodeState
from mtplx.runtime.heads.head import Head
from mtplx.runtime.loading.tokenizer import encode, render_chat
from mtplx.runtime.request import prepare, uses_head
from mtplx.runtime.sessions.chat import ChatSession
from mtplx.runtime.trunks.trunk import Trunk

Prompt = str | list[int] | list[dict[str, Any]]

# Depths whose costs are measured for the adaptive policy; deeper drafts have not paid on any machine measured.
_MEASURED_DEPTH = 4


@dataclass(slots=True)
class Model:
    """A model in memory. Made by `mtplx.load`; everything about it is read-only to callers.

    `device` says where and with what it computes; `sampler_defaults` are the values of its generation_config.json;
    `warnings` what a user should know about how it was loaded; `head_norm_encoding` says whether the head's gains
    were stored as they are ("absolute") or minus one ("delta").
    """

    inspection: Inspection
    trunk: Trunk
    head: Head | None
    tokenizer: Any
    device: Mapping[str, Any]
    sampler_defaults: Mapping[str, float]
    warnings: tuple[str, ...]
    kv_bits: int | None = None
    head_norm_encoding: str | None = None
    known_costs: Costs | None = field(default=None, repr=False)

    @property
    def path(self) -> Path:
        """The folder it was loaded from."""
        return self.inspection.path

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.resolve().name

    @property
    def tier(self) -> str:
        """What inspection concluded."""
        return str(self.inspection.tier)

    @property
    def family_name(self) -> str:
        """The family's name in the registry."""
        family = self.inspection.family
        return family.name if family else str(self.inspection.config.get("model_type"))

    @property
    def has_head(self) -> bool:
        """Whether an MTP head is loaded."""
        return self.head is not None

    @property
    def max_depth(self) -> int:
        """The deepest draft; 0 without a head."""
        return MAX_DEPTH if self.head is not None else 0

    @property
    def context_length(self) -> int | None:
        """Tokens of prompt and answer the model was trained for, None when it does not say."""
        return self.inspection.context_length

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Tokens that end an answer, from every source."""
        return self.inspection.eos_token_ids

    def stream(self, prompt: Prompt, **options: Any) -> Iterator[Event]:
        """Generate, yielding an Event for each round; the last one carries the Generation.

        `prompt` is text (one user message, or the text itself with `raw=True`), a list of chat messages, or a list
        of token ids. Options: `GenerationOptions`. What is wrong with them is raised by this call, before anything
        is computed.

        Raises:
            UsageError: an option or the prompt is wrong.
            HeadMissingError: a depth was asked for and the model has no head.
            NumericError: the model produced NaN or infinite logits (while iterating).
        """
        parsed = parse_options(options)
        ids = self.encode_prompt(prompt, system=parsed.system, raw=parsed.raw)
        return prepare(self, ids, parsed).events(self.new_state(parsed))

    def generate(self, prompt: Prompt, **options: Any) -> Generation:
        """Like `stream`, returning the whole at its end."""
        generation = None
        for event in self.stream(prompt, **options):
            generation = event.generation
        if generation is None:
            raise InternalError("a stream ended without its last event")
        return generation

    def session(self, **options: Any) -> ChatSession:
        """A conversation that keeps its history in the caches; options as in `stream`."""
        return ChatSession(self, parse_options(options))

    def encode_prompt(
        self, prompt: Prompt, *, system: str | None = None, raw: bool = False
    ) -> list[int]:
        """Token ids of a prompt.

        Raises:
            TokenizerMissingError: text was given and the model has no tokenizer.
            ChatTemplateMissingError: a chat was asked for and the model has no template.
            UsageError: the prompt is empty.
        """
        if isinstance(prompt, list) and all(isinstance(item, int) for item in prompt):
            ids = [item for item in prompt if isinstance(item, int)]
        elif self.tokenizer is None:
            raise TokenizerMissingError(
                f"{self.path} has no tokenizer",
                hint="add tokenizer.json and tokenizer_config.json, or give token ids",
            )
        elif isinstance(prompt, str) and raw:
            ids = encode(self.tokenizer, prompt)
        else:
            ids = render_chat(self.tokenizer, _messages(prompt, system), self.path)
        if not ids:
            raise UsageError("the prompt is empty", hint="give at least one character or token")
        _check_ids(ids, self.trunk.vocab_size)
        return ids

    def new_state(self, options: GenerationOptions) -> DecodeState:
        """Empty caches for one sequence."""
        head = self.head if uses_head(options) else None
        return DecodeState(
            self.trunk.make_caches(kv_bits=self.kv_bits),
            None if head is None else head.make_caches(kv_bits=self.kv_bits),
        )

    def costs(self, depth: int = _MEASURED_DEPTH) -> Costs:
        """v, c and o of this model on this machine up to `depth`, measured on the first call."""
        if self.known_costs is None or len(self.known_costs.rows) <= depth:
            self.known_costs = measure_costs(self.trunk, self.head, depth + 1)
        return self.known_costs


def parse_options(options: Mapping[str, Any]) -> GenerationOptions:
    """Options from keyword arguments.

    Raises:
        InvalidRequestError: an option is unknown or its value out of range.
    """
    return change_options(GenerationOptions(), options)


def _messages(prompt: Prompt, system: str | None) -> list[dict[str, Any]]:
    if isinstance(prompt, str):
        messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    else:
        messages = [dict(item) for item in prompt if isinstance(item, Mapping)]
        if len(messages) != len(prompt):
            raise InvalidRequestError(
                "a prompt list holds either token ids or messages with role and content, not both",
                key="prompt",
            )
    return [{"role": "system", "content": system}, *messages] if system else messages


def _check_ids(ids: list[int], vocab_size: int) -> None:
    """An id outside the embedding would read foreign memory, not fail."""
    for position, token in enumerate(ids):
        if not 0 <= token < vocab_size:
            raise InvalidRequestError(
                f"token id {token} at position {position} lies outside the vocabulary of {vocab_size}",
                key="prompt",
                hint="check that the tokenizer belongs to this model",
            )
