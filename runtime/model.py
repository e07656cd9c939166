"""A loaded model: the public way from a prompt to events."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mtplx.contracts.errors import (
    HeadMissingError,
    InvalidRequestError,
    PromptTooLongError,
    TokenizerMissingError,
    UsageError,
)
from mtplx.contracts.inspection import Inspection
from mtplx.runtime.decode.costs import measure_costs
from mtplx.runtime.decode.depth import MAX_DEPTH, AdaptiveDepth, Costs, DepthPolicy, FixedDepth
from mtplx.runtime.decode.engine import Engine
from mtplx.runtime.decode.generator import decode
from mtplx.runtime.decode.options import GenerationOptions
from mtplx.runtime.decode.result import Event, Generation
from mtplx.runtime.decode.state import DecodeState
from mtplx.runtime.decode.stats import Stats
from mtplx.runtime.decode.stop import Answer
from mtplx.runtime.decode.text import TextStream
from mtplx.runtime.heads.head import Head
from mtplx.runtime.loading.tokenizer import encode, render_chat
from mtplx.runtime.sampling.acceptance import make_acceptance
from mtplx.runtime.sampling.history import TokenHistory
from mtplx.runtime.sampling.noise import Noise
from mtplx.runtime.sampling.params import SamplingParams
from mtplx.runtime.sampling.pipeline import SamplingPipeline
from mtplx.runtime.sessions.chat import ChatSession
from mtplx.runtime.trunks.trunk import Trunk

Prompt = str | list[int] | list[dict[str, Any]]


@dataclass(slots=True)
class Model:
    """A model in memory. Made by `load`; everything about it is read-only to callers.

    `device` says where and with what it computes; `warnings` what a user should know about how it was loaded.
    """

    inspection: Inspection
    trunk: Trunk
    head: Head | None
    tokenizer: Any
    device: Mapping[str, Any]
    sampler_defaults: Mapping[str, float]
    warnings: tuple[str, ...]
    kv_bits: int | None = None
    _costs: Costs | None = field(default=None, repr=False)

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
        of token ids. Options: `GenerationOptions`.

        Raises:
            UsageError: an option or the prompt is wrong (before anything is computed).
            HeadMissingError: a depth was asked for and the model has no head.
            NumericError: the model produced NaN or infinite logits.
        """
        parsed = parse_options(options)
        ids = self.encode_prompt(prompt, system=parsed.system, raw=parsed.raw)
        return self.run(ids, parsed, self.new_state(parsed))

    def generate(self, prompt: Prompt, **options: Any) -> Generation:
        """Like `stream`, returning the whole at its end."""
        generation = None
        for event in self.stream(prompt, **options):
            generation = event.generation
        if generation is None:
            raise UsageError("the generation was closed before its end")
        return generation

    def session(self, **options: Any) -> ChatSession:
        """A conversation that keeps its history in the caches."""
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
            _check_ids(ids, self.trunk.vocab_size)
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
        return ids

    def new_state(self, options: GenerationOptions) -> DecodeState:
        """Empty caches for one sequence."""
        head = self.head if options.mtp and options.depth != 0 else None
        return DecodeState(
            self.trunk.make_caches(kv_bits=self.kv_bits),
            None if head is None else head.make_caches(kv_bits=self.kv_bits),
        )

    def costs(self, depth: int = 4) -> Costs:
        """v, c and o of this machine up to `depth`, measured once."""
        if self._costs is None or len(self._costs.rows) < depth + 1:
            self._costs = measure_costs(self.trunk, self.head, depth + 1)
        return self._costs

    def run(
        self,
        ids: list[int],
        options: GenerationOptions,
        state: DecodeState,
        is_interrupted: Callable[[], bool] = lambda: False,
    ) -> Iterator[Event]:
        """Generate after the tokens `ids`, of which `state` may hold a prefix."""
        warnings = list(self.warnings)
        policy = self._policy(options, warnings)
        max_tokens = self._budget(len(ids), options.max_tokens, warnings)
        seed = secrets.randbits(32) if options.seed is None else options.seed
        params = self.sampling_params(options)
        engine = self._engine(options, params, seed, ids, state)
        answer = Answer(
            None if self.tokenizer is None else TextStream(self.tokenizer),
            max_tokens=max_tokens,
            end_tokens=frozenset() if options.ignore_end_tokens else frozenset(self.eos_token_ids),
            stops=options.stop,
        )
        stats = Stats(costs=self._costs)

        def finished() -> Generation:
            return Generation(
                text=answer.text,
                prompt_token_ids=tuple(ids),
                token_ids=tuple(answer.tokens),
                finish_reason=answer.finish_reason or "interrupted",
                seed=seed,
                model=self.name,
                tier=self.tier,
                generation_mode="ar" if engine.head is None else "mtp",
                depth=options.depth if engine.head is not None else 0,
                acceptance=options.acceptance,
                stats=stats,
                warnings=tuple(warnings),
            )

        def events() -> Iterator[Event]:
            told = 0
            steps = decode(
                engine,
                state,
                ids,
                answer,
                policy,
                stats,
                chunk=options.prefill_chunk,
                on_prefill=options.on_prefill,
                is_interrupted=is_interrupted,
            )
            for _ in steps:
                tokens = tuple(answer.tokens[told:])
                told = len(answer.tokens)
                ended = answer.finish_reason
                yield Event(answer.new_text(), tokens, ended, finished() if ended else None)

        return events()

    def sampling_params(self, options: GenerationOptions) -> SamplingParams:
        """The options with the model's generation_config.json in the places left open."""
        defaults = self.sampler_defaults

        def choose(key: str, value: float | None, otherwise: float) -> float:
            return value if value is not None else defaults.get(key, otherwise)

        return SamplingParams(
            temperature=choose("temperature", options.temperature, 0.0),
            top_p=choose("top_p", options.top_p, 1.0),
            top_k=int(choose("top_k", options.top_k, 0)),
            min_p=choose("min_p", options.min_p, 0.0),
            repetition_penalty=options.repetition_penalty,
            presence_penalty=options.presence_penalty,
            frequency_penalty=options.frequency_penalty,
            logit_bias=tuple((options.logit_bias or {}).items()),
        )

    def _engine(
        self,
        options: GenerationOptions,
        params: SamplingParams,
        seed: int,
        ids: list[int],
        state: DecodeState,
    ) -> Engine:
        vocab_size = self.trunk.vocab_size
        pipeline = SamplingPipeline(params, vocab_size)
        return Engine(
            trunk=self.trunk,
            head=None if state.head_caches is None else self.head,
            pipeline=pipeline,
            acceptance=make_acceptance(options.acceptance, params, Noise(seed, vocab_size)),
            history=TokenHistory(vocab_size, ids) if pipeline.needs_history else None,
        )

    def _policy(self, options: GenerationOptions, warnings: list[str]) -> DepthPolicy:
        if not options.mtp or options.depth == 0:
            return FixedDepth(0)
        if self.head is None:
            if options.depth != "auto":
                raise HeadMissingError(
                    f"{self.path}: depth {options.depth} was asked for, but the model has no MTP head "
                    f"({self.inspection.head.state})",
                    hint="leave out --depth to decode plainly, or use a checkpoint that kept its head",
                )
            warnings.append("no MTP head: decoding plainly, one token a step")
            return FixedDepth(0)
        if options.depth == "auto":
            return AdaptiveDepth(self.costs(), MAX_DEPTH)
        return FixedDepth(options.depth)

    def _budget(self, prompt: int, max_tokens: int, warnings: list[str]) -> int:
        context = self.context_length
        if context is None:
            return max_tokens
        if prompt >= context:
            raise PromptTooLongError(
                f"the prompt has {prompt} tokens, the context of {self.name} holds {context}",
                hint=f"shorten the prompt by at least {prompt - context + 1} tokens",
            )
        if prompt + max_tokens > context:
            warnings.append(
                f"max_tokens cut from {max_tokens} to {context - prompt}: the context holds {context} tokens"
            )
        return min(max_tokens, context - prompt)


def parse_options(options: Mapping[str, Any]) -> GenerationOptions:
    """Options from keyword arguments.

    Raises:
        InvalidRequestError: an option is unknown or its value out of range.
    """
    known = GenerationOptions.__dataclass_fields__
    for key in options:
        if key not in known:
            raise InvalidRequestError(
                f"unknown option {key!r}; known are {', '.join(sorted(known))}", key=key
            )
    return GenerationOptions(**options)


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
    for position, token in enumerate(ids):
        if not 0 <= token < vocab_size:
            raise InvalidRequestError(
                f"token id {token} at position {position} lies outside the vocabulary of {vocab_size}",
                key="prompt",
            )


