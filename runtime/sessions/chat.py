"""A conversation whose history stays in the caches."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mtplx.contracts.errors import InvalidRequestError
from mtplx.runtime.decode.options import GenerationOptions, change_options
from mtplx.runtime.decode.result import Event, Generation
from mtplx.runtime.decode.state import DecodeState, Snapshot
from mtplx.runtime.request import prepare

if TYPE_CHECKING:
    from mtplx.runtime.model import Model


class ChatSession:
    """Turns of one conversation. Each turn reads only what is new since the last one.

    A turn that is interrupted, closed or fails keeps the text it had shown as the assistant's message; one that ends
    before its first event leaves no trace. Either way the session goes on.
    """

    def __init__(self, model: Model, options: GenerationOptions) -> None:
        self._model = model
        self._options = options
        self._interrupted = threading.Event()
        self.messages: list[dict[str, Any]] = []
        self._state: DecodeState | None = None
        self._before_answer: Snapshot | None = None
        self._turns: list[Generation] = []
        self._running: Generator[Event, None, None] | None = None
        self.reset()

    def reset(self) -> None:
        """Forget the conversation; the system message stays."""
        self._end_turn()
        system = self._options.system
        self.messages = [{"role": "system", "content": system}] if system else []
        self._state = None
        self._before_answer = None
        self._turns = []

    def interrupt(self) -> None:
        """End the running answer before its next round. Safe to call from a signal handler or another thread."""
        self._interrupted.set()

    def send(self, text: str, **options: Any) -> Iterator[Event]:
        """The answer to a message of the user, as events. `options` hold for this turn only.

        A turn that still runs is ended first. Raises what `Model.stream` raises; a turn that could not start leaves
        the conversation as it was.
        """
        _refuse_fixed(options)
        parsed = change_options(self._options, options)
        self._end_turn()
        messages = [*self.messages, {"role": "user", "content": text}]
        ids = self._model.encode_prompt(messages)
        request = prepare(self._model, ids, parsed)
        fresh = self._model.new_state(parsed)
        state = self._resume(ids, fresh)
        if state is fresh and self._turns:
            note = f"the cache does not continue this conversation: all {len(ids)} tokens are read again"
            request = dataclasses.replace(request, warnings=(*request.warnings, note))
        self._interrupted.clear()
        events = request.events(state, self._interrupted.is_set)
        self._running = self._turn(messages, events, state)
        return self._running

    def totals(self) -> dict[str, Any]:
        """Sums over the finished turns: tokens read, reused and generated, drafts and their acceptance."""
        stats = [turn.stats for turn in self._turns]
        drafted = sum(sum(s.drafted_by_depth) for s in stats)
        accepted = sum(sum(s.accepted_by_depth) for s in stats)
        seconds = sum(s.decode_seconds for s in stats)
        generated = sum(s.completion_tokens for s in stats)
        return {
            "turns": len(stats),
            "context_tokens": 0 if self._state is None else len(self._state.tokens),
            "prompt_tokens": sum(s.prompt_tokens - s.reused_tokens for s in stats),
            "reused_tokens": sum(s.reused_tokens for s in stats),
            "completion_tokens": generated,
            "drafted": drafted,
            "accepted": accepted,
            "acceptance": accepted / drafted if drafted else None,
            "decode_tok_s": (generated - len(stats)) / seconds if seconds > 0 else None,
        }

    def _end_turn(self) -> None:
        """End a turn that nobody iterates over any more, so that it can't write to the conversation later."""
        if self._running is not None:
            self._running.close()
            self._running = None

    def _resume(self, ids: list[int], fresh: DecodeState) -> DecodeState:
        """The caches, if what they hold begins `ids`; else as they were before the last answer, if that does.

        `fresh` otherwise, and when the kept caches lack the head's rows or have some that would not be continued.
        """
        state = self._state
        if state is None or (state.head_caches is None) != (fresh.head_caches is None):
            return fresh
        if _begins(state, ids):
            return state
        if self._before_answer is not None:
            state.restore(self._before_answer)
            if _begins(state, ids):
                return state
        return fresh

    def _turn(
        self, messages: list[dict[str, Any]], events: Iterator[Event], state: DecodeState
    ) -> Generator[Event, None, None]:
        self.messages = messages
        self._state = None
        shown, first = "", True
        try:
            for event in events:
                if first:
                    self._before_answer, first = state.snapshot(), False
                # Only here, between rounds, do the caches hold exactly the committed tokens.
                self._state = state
                shown += event.text
                if event.generation is not None:
                    self._turns.append(event.generation)
                yield event
                # An exception inside the next round leaves them undefined: they are read again then.
                self._state = None
            self._state = state
        finally:
            if first:
                self.messages.pop()
            else:
                self.messages.append({"role": "assistant", "content": shown})


def _refuse_fixed(options: Mapping[str, Any]) -> None:
    """What the first message of a conversation decides can't change later."""
    for key in ("system", "raw"):
        if key in options:
            raise InvalidRequestError(
                f"{key} can't be given for one turn of a conversation",
                key=key,
                hint="start another session",
            )


def _begins(state: DecodeState, ids: list[int]) -> bool:
    held = state.trunk_caches.committed
    return held < len(ids) and state.tokens[:held] == ids[:held]
