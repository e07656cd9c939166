"""One request made ready: engine, depth policy, budget and the answer it fills."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtplx.contracts.errors import HeadMissingError, PromptTooLongError
from mtplx.runtime.decode.depth import MAX_DEPTH, AdaptiveDepth, DepthPolicy, FixedDepth
from mtplx.runtime.decode.engine import Engine
from mtplx.runtime.decode.generator import decode
from mtplx.runtime.decode.options import GenerationOptions
from mtplx.runtime.decode.result import Event, Generation
from mtplx.runtime.decode.state import DecodeState
from mtplx.runtime.decode.stats import Stats
from mtplx.runtime.decode.stop import Answer
from mtplx.runtime.decode.text import TextStream
from mtplx.runtime.sampling.acceptance import make_acceptance
from mtplx.runtime.sampling.history import TokenHistory
from mtplx.runtime.sampling.noise import Noise
from mtplx.runtime.sampling.params import SamplingParams
from mtplx.runtime.sampling.pipeline import SamplingPipeline

if TYPE_CHECKING:
    from mtplx.runtime.model import Model


@dataclass(frozen=True, slots=True)
class Request:
    """A request whose options have been checked against the model. `events` runs it."""

    model: Model
    prompt: list[int]
    options: GenerationOptions
    seed: int
    engine: Engine
    policy: DepthPolicy
    answer: Answer
    stats: Stats
    warnings: tuple[str, ...]

    def events(
        self,
        state: DecodeState,
        is_interrupted: Callable[[], bool] = lambda: False,
        checkpoints: Collection[int] = (),
        on_checkpoint: Callable[[DecodeState], None] = lambda _state: None,
    ) -> Iterator[Event]:
        """Generate on `state`, which may hold a prefix of the prompt; `checkpoints` as in `prefill`."""
        told = 0
        steps = decode(
            self.engine,
            state,
            self.prompt,
            self.answer,
            self.policy,
            self.stats,
            chunk=self.options.prefill_chunk,
            on_prefill=self.options.on_prefill,
            is_interrupted=is_interrupted,
            checkpoints=checkpoints,
            on_checkpoint=on_checkpoint,
        )
        for _ in steps:
            tokens = tuple(self.answer.tokens[told:])
            told = len(self.answer.tokens)
            ended = self.answer.finish_reason
            yield Event(
                self.answer.new_text(),
                tokens,
                ended,
                self._result() if ended else None,
                tuple(self.answer.logprobs[told - len(tokens) : told]),
            )

    def _result(self) -> Generation:
        can_draft = self.policy != FixedDepth(0)
        return Generation(
            text=self.answer.text,
            prompt_token_ids=tuple(self.prompt),
            token_ids=tuple(self.answer.tokens),
            finish_reason=self.answer.finish_reason or "interrupted",
            seed=self.seed,
            model=self.model.name,
            tier=self.model.tier,
            generation_mode="mtp" if can_draft else "ar",
            depth=self.options.depth if can_draft else 0,
            acceptance=self.options.acceptance,
            stats=self.stats,
            warnings=self.warnings,
            stop_sequence=self.answer.stop_sequence,
        )


def prepare(
    model: Model, prompt: list[int], options: GenerationOptions, *, feeds_head: bool = False
) -> Request:
    """Check `options` against `model` and build what the request needs.

    With `feeds_head` the head reads along where plain decoding was asked for, so that drafts can be made later on.

    Raises:
        HeadMissingError: a depth was asked for and the model has no head.
        PromptTooLongError: the prompt does not fit the context.
        InvalidRequestError: a sampling value is out of range.
    """
    warnings = list(model.warnings)
    max_tokens = _budget(model, len(prompt), options.max_tokens, warnings)
    policy = _policy(model, options, warnings)
    seed = secrets.randbits(32) if options.seed is None else options.seed
    answer = Answer(
        None if model.tokenizer is None else TextStream(model.tokenizer),
        max_tokens=max_tokens,
        end_tokens=frozenset() if options.ignore_end_tokens else frozenset(model.eos_token_ids),
        stops=options.stop,
    )
    return Request(
        model=model,
        prompt=prompt,
        options=options,
        seed=seed,
        engine=_engine(model, prompt, options, seed, feeds_head=feeds_head),
        policy=policy,
        answer=answer,
        stats=Stats(costs=model.known_costs),
        warnings=tuple(warnings),
    )


def sampling_params(model: Model, options: GenerationOptions) -> SamplingParams:
    """The options, with the model's generation_config.json in the places left open."""
    defaults = model.sampler_defaults

    def choose(key: str, value: float | None, otherwise: float) -> float:
        return value if value is not None else defaults.get(key, otherwise)

    return SamplingParams(
        temperature=choose("temperature", options.temperature, 0.0),
        top_p=choose("top_p", options.top_p, 1.0),
        top_k=int(choose("top_k", options.top_k, 0)),
        min_p=choose("min_p", options.min_p, 0.0),
        repetition_penalty=choose("repetition_penalty", options.repetition_penalty, 1.0),
        presence_penalty=options.presence_penalty,
        frequency_penalty=options.frequency_penalty,
        logit_bias=tuple((options.logit_bias or {}).items()),
    )


def uses_head(options: GenerationOptions) -> bool:
    """Whether the options leave room for drafts."""
    return options.mtp and options.depth != 0


def _engine(
    model: Model, prompt: list[int], options: GenerationOptions, seed: int, *, feeds_head: bool
) -> Engine:
    vocab_size = model.trunk.vocab_size
    params = sampling_params(model, options)
    pipeline = SamplingPipeline(params, vocab_size)
    return Engine(
        trunk=model.trunk,
        head=model.head if feeds_head or uses_head(options) else None,
        pipeline=pipeline,
        acceptance=make_acceptance(options.acceptance, params, Noise(seed, vocab_size)),
        history=TokenHistory(vocab_size, prompt) if pipeline.needs_history else None,
        constraint=options.constraint,
        logprobs=options.logprobs,
    )


def _policy(model: Model, options: GenerationOptions, warnings: list[str]) -> DepthPolicy:
    if not uses_head(options):
        return FixedDepth(0)
    if model.head is None:
        if options.depth != "auto":
            raise HeadMissingError(
                f"{model.path}: depth {options.depth} was asked for, but no MTP head is loaded "
                f"(config and files: {model.inspection.head.state})",
                hint="leave out --depth to decode plainly, or use a checkpoint that kept its head",
            )
        warnings.append("no MTP head: decoding plainly, one token a step")
        return FixedDepth(0)
    if options.depth == "auto":
        return AdaptiveDepth(model.costs(), MAX_DEPTH)
    return FixedDepth(options.depth)


def _budget(model: Model, prompt: int, max_tokens: int, warnings: list[str]) -> int:
    """`max_tokens`, cut to the room that the context leaves."""
    context = model.context_length
    if context is None:
        return max_tokens
    if prompt >= context:
        raise PromptTooLongError(
            f"the prompt has {prompt} tokens, the context of {model.name} holds {context}",
            hint=f"shorten the prompt by at least {prompt - context + 1} tokens",
        )
    room = context - prompt
    if max_tokens > room:
        warnings.append(
            f"max_tokens cut from {max_tokens} to {room}: the context holds {context} tokens"
        )
    return min(max_tokens, room)
